"""Mistakes in moves of partitions (reassignments) that are made on purpose, for a simulation of four brokers to find.

`JESENSKA_PURE=1 PYTHONHASHSEED=0 python -m tests.processes.testing.planted_move_bugs NAME [FIRST [SEEDS]]` prints the
first seed that fails, and why. Exit code 1 if none of so many does, 2 if one fails with other words than it should."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable
from typing import Any

from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.controller.changes import reassignments as changes
from jesenska.controller.context import TopicView
from jesenska.controller.machine import Controller
from jesenska.controller.plans import reassignments as plans
from jesenska.metadata.nodes import TopicNode
from jesenska.testing.simulation.moves import moving_simulation
from tests.processes.testing.planted_search import first_and_seeds, first_failure


def old_replicas_go_before_the_new_ones_are_in_sync() -> None:
    """A move ends as soon as one replica of the target is in sync."""
    plans._is_complete = lambda reassignment, isr, live: bool(set(isr) & set(reassignment.target))


def a_new_controller_forgets_what_is_being_added() -> None:
    """A controller that begins takes the replicas of moves that are under way for settled ones."""
    init = Controller.__init__

    def forgetful(self: Controller, *arguments: Any, **more: Any) -> None:
        init(self, *arguments, **more)
        for name, topic in self.context.topics.items():
            node = TopicNode(topic.node.replicas, topic.node.topic_id)
            self.context.topics[name] = TopicView(name, node, topic.version, topic.partitions, topic.deleting)

    Controller.__init__ = forgetful  # type: ignore[method-assign]


def a_cancellation_deletes_no_log() -> None:
    """The replicas that a cancelled move has added keep their logs."""
    plan_request = plans.plan_request

    def plan(view: Any, topic: Any, wanted: Any, **more: Any) -> Any:
        made = plan_request(view, topic, wanted, **more)
        return made._replace(dropped={}) if None in wanted.values() else made

    changes.plan_request = plan  # type: ignore[attr-defined]


def a_live_replica_of_the_target_may_be_out_of_sync() -> None:
    """A move ends when the replicas that it adds are in sync, whatever the others are."""
    plans._is_complete = lambda reassignment, isr, live: (
        set(reassignment.adding) <= set(isr) and bool(set(isr) & set(reassignment.target))
    )


def what_was_moved_while_a_broker_was_away_is_kept() -> None:
    """A broker that comes back keeps the logs of partitions that have moved to others."""

    async def delete_strays(self: ReplicaManager) -> None:
        return

    ReplicaManager.delete_strays = delete_strays  # type: ignore[method-assign]


#: Each mistake, and words that the simulation must report for it.
BUGS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    plant.__name__: (plant, words)
    for plant, words in (
        (old_replicas_go_before_the_new_ones_are_in_sync, ("are not in sync",)),
        (a_new_controller_forgets_what_is_being_added, ("at the end, and may have", "come into sync")),
        (a_cancellation_deletes_no_log, ("keep logs of partitions",)),
        (a_live_replica_of_the_target_may_be_out_of_sync, ("are not in sync",)),
        (what_was_moved_while_a_broker_was_away_is_kept, ("keep logs of partitions",)),
    )
}


def search(name: str, first: int, seeds: int) -> int:
    """Makes the mistake and searches for a seed that finds it. Returns the exit code."""
    plant, words = BUGS[name]
    plant()
    gc.freeze()
    return first_failure(moving_simulation, words, first, seeds)


def main() -> int:
    logging.disable(logging.CRITICAL)
    return search(sys.argv[1], *first_and_seeds())


if __name__ == "__main__":
    sys.exit(main())
