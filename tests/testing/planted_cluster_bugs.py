"""Mistakes that are made on purpose in brokers of a cluster, for a simulation of three to find.

`JESENSKA_PURE=1 python -m tests.testing.planted_cluster_bugs NAME [FIRST [SEEDS]]` prints the first seed that fails,
and why. Exit code 1 if none of so many does."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from jesenska.base.errors import ErrorCode
from jesenska.controller import brokers, many_elections
from jesenska.controller.order_fence import OrderFence
from jesenska.log.partition_log import PartitionLog
from jesenska.replication import follower_link
from jesenska.replication.partition import Partition
from jesenska.replication.replicas import Replicas
from jesenska.testing.simulation.schedule import simulation


def committed_is_what_the_leader_has() -> None:
    """The high watermark is the end of the leader's log."""
    Replicas.next_high_watermark = lambda self, current, end, now_ms: max(current, end)  # type: ignore[assignment,method-assign]


def cut_to_the_high_watermark() -> None:
    """A follower cuts its log to what it knows to be committed, and not to where the epochs part."""

    def cut(log: PartitionLog, diverging: Any, now_ms: int, settled: Any) -> None:
        log.truncate_to(log.high_watermark, now_ms, settled)

    follower_link.cut = cut  # type: ignore[attr-defined]


def nothing_is_cut() -> None:
    """A follower goes on where its log ends, whatever its leader has there."""

    def cut(log: PartitionLog, diverging: Any, now_ms: int, settled: Any) -> None:
        settled(None)

    follower_link.cut = cut  # type: ignore[attr-defined]


def who_crashed_is_elected() -> None:
    """A broker that comes back after a crash stays in every ISR."""
    came = brokers.Brokers._change

    def change(self: Any, gone: Any, arrived: Any) -> Any:
        return came(self, gone, [event._replace(crashed=False) for event in arrived])

    brokers.Brokers._change = change  # type: ignore[method-assign,assignment]


def orders_of_anybody_are_obeyed() -> None:
    """Whoever was controller once is obeyed."""

    def admit(self: OrderFence, orderer: Any, broker_epoch: int) -> ErrorCode:
        self.controller_id, self.controller_epoch = orderer.controller_id, orderer.controller_epoch
        return ErrorCode.NONE

    OrderFence.admit = admit  # type: ignore[method-assign]


def proposed_is_agreed() -> None:
    """The high watermark does not wait for those who are to leave the ISR."""
    Replicas._in_either = property(lambda self: dict.fromkeys(self.proposed_isr or self.isr))  # type: ignore[assignment,method-assign]


def a_leader_that_was_replaced_writes_on() -> None:
    """Acknowledgements are kept across the end of a leadership."""

    def answer(self: Partition) -> None:
        waiting, self._uncommitted = self._uncommitted or (), None
        for write in waiting:
            write.done(write.result)

    Partition._fail_uncommitted = answer  # type: ignore[method-assign]


def elections_are_not_fenced() -> None:
    """A controller that was replaced writes elections all the same."""
    many_elections.epoch_check = lambda view: ()  # type: ignore[attr-defined]


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        committed_is_what_the_leader_has,
        cut_to_the_high_watermark,
        nothing_is_cut,
        who_crashed_is_elected,
        orders_of_anybody_are_obeyed,
        proposed_is_agreed,
        a_leader_that_was_replaced_writes_on,
        elections_are_not_fenced,
    )
}


def main() -> int:
    name = sys.argv[1]
    first, seeds = (int(text) for text in [*sys.argv[2:], *("1", "200")[len(sys.argv) - 2 :]])
    logging.disable(logging.CRITICAL)
    BUGS[name]()
    gc.freeze()
    for seed in range(first, first + seeds):
        with simulation(seed, brokers=3) as one:
            try:
                one.run()
            except Exception as error:
                print(f"seed {seed} fails at {one.world.now:.3f} s: {type(error).__name__}: {error}")
                return 0
    print(f"no seed of {seeds} fails")
    return 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.testing.planted_cluster_bugs", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
