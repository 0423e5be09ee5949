"""The tree is unreachable for thirty seconds, with min.insync.replicas=2, and a leader and its followers do not reach
each other for part of that time. The leader commits again when the followers are back, without the tree.

`JESENSKA_PURE=1 python -m tests.processes.testing.tree_out_of_reach [--proposals-stand] [SEEDS]` prints the outcome of
each seed. The exit code is 1 where nothing was committed in between, and 2 where no leader proposed an ISR without its
followers. With `--proposals-stand` a proposal that was never sent stays in force, too."""

from __future__ import annotations

import logging
import sys
from typing import Any

from jesenska.base.identifiers import TopicPartition
from jesenska.replication.replicas import Replicas
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.schedule import Simulation, simulation

_SECONDS = 50.0
_TREE_GOES, _TREE_GONE_SECONDS = 10.0, 30.0
#: The time of the followers' loss, when sessions are suspended, and its length, after which they are out of sync.
_FOLLOWERS_GO, _FOLLOWERS_GONE_SECONDS = 14.0, 9.0
_FOLLOWERS_ARE_BACK, _TREE_IS_NOT_BACK = 30.0, 39.0


class _Watched:
    """The partitions of leaders whose followers are out of reach, and their high watermarks."""

    def __init__(self, one: Simulation) -> None:
        self._one = one
        self._leaders: dict[TopicPartition, BrokerHost] = {}
        self.wanted_to_be_alone: set[TopicPartition] = set()
        self._seen: dict[TopicPartition, int] = {}
        self.stood_still: set[TopicPartition] = set()
        one.world.at(_TREE_GOES, self._tree_goes)
        one.world.at(_FOLLOWERS_GO, self._followers_go)
        one.world.at(_FOLLOWERS_GO + _FOLLOWERS_GONE_SECONDS - 0.1, self._look_who_wants_to_be_alone)
        one.world.at(_FOLLOWERS_ARE_BACK, self._look)
        one.world.at(_TREE_IS_NOT_BACK, self._look)

    def _tree_goes(self) -> None:
        for host in self._one.hosts:
            self._one.cut_from_tree(host, _TREE_GONE_SECONDS)

    def _followers_go(self) -> None:
        hosts = self._one.hosts
        for first, second in ((0, 1), (0, 2), (1, 2)):
            self._one.cut_between(hosts[first], hosts[second], _FOLLOWERS_GONE_SECONDS)
        for topic_partition in self._one.topic_partitions:
            self._leaders[topic_partition] = hosts[self._one.watch.leader_of(topic_partition)]

    def _partition(self, topic_partition: TopicPartition) -> Any:
        broker = self._leaders[topic_partition].program.broker
        assert broker is not None
        return broker.view.topics[topic_partition.topic].partitions[topic_partition.partition]

    def _look_who_wants_to_be_alone(self) -> None:
        self.wanted_to_be_alone = {key for key in self._leaders if len(self._partition(key).proposed_isr or ()) == 1}

    def _look(self) -> None:
        for key in self.wanted_to_be_alone:
            high_watermark = self._partition(key).high_watermark
            if self._seen.get(key) == high_watermark:
                self.stood_still.add(key)
            self._seen[key] = high_watermark


def _run(seed: int) -> tuple[int, int]:
    """The number of partitions whose leader proposed an ISR of itself alone, and the number of those that committed
    nothing afterwards."""
    with simulation(seed, brokers=3, faults=0, seconds=_SECONDS, is_synced=False, min_in_sync=2) as one:
        watched = _Watched(one)
        one.run()
    counts = len(watched.wanted_to_be_alone), len(watched.stood_still)
    print(
        f"seed {seed}: {counts[0]} partitions were to be their leader's alone, {counts[1]} of them committed nothing "
        f"afterwards"
    )
    return counts


def main() -> int:
    logging.disable(logging.CRITICAL)
    arguments = [argument for argument in sys.argv[1:] if argument != "--proposals-stand"]
    if len(arguments) < len(sys.argv) - 1:
        Replicas._keep_caught_up = lambda self, log_end_offset, now_ms: None  # type: ignore[method-assign]
    counts = [_run(seed) for seed in range(1, 1 + (int(arguments[0]) if arguments else 2))]
    if any(stood_still for _, stood_still in counts):
        return 1
    return 0 if any(wanted for wanted, _ in counts) else 2


if __name__ == "__main__":
    sys.exit(main())
