"""A topic is branched while brokers die, or do not know the high watermark yet. In the end the branch has all records
that were committed at the time of the request, on every replica, or it does not exist.

`JESENSKA_PURE=1 python -m tests.processes.testing.branch_in_the_making SCENE [--whatever-is-known] [SEEDS]` prints the
outcome of each seed. The exit code is 1 where a branch lacks records, and 2 where the fault never happened. With
`--whatever-is-known` a broker branches up to the high watermark that it knows, as a follower may.

    killed      the controller, which leads a partition of the source and of the branch, is killed just before it
                makes the log of the branch. It returns while others lead the source
    power       the same, and its machine loses its power
    succeeded   the leader of a partition of the source has just died, and its successor does not know the high
                watermark yet. It learns it a moment later, and the branch waits for it
    unknown     the same, but the successor learns it only much later"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.client.administration.admin import Admin
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.testing.simulation.churn import CHURNED
from jesenska.testing.simulation.clients import cluster_of
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.schedule import PARTITIONS, TOPIC, Simulation
from jesenska.testing.simulation.watches.history import ViolationError
from tests.processes.testing.scripted_fault import outcome

#: The watch of the cluster ignores a topic of this name. It would find the high watermark of a branch above that of
#: its leader, which has not reported one yet.
_BRANCH = CHURNED
#: Under the others the simulation makes a topic of that name itself, or has disasters of its own.
_SEEDS = (1, 2, 5, 6, 7, 8, 9, 10, 12, 13, 15, 16)
_AT_SECONDS, _SECONDS = 10.0, 40.0
#: The time for which the followers' high watermarks stay unchanged before a leader dies, and its successor's
#: afterwards.
_STILL_SECONDS = 2.0
_UNKNOWN_SECONDS = {"succeeded": 0.5, "unknown": 5.0}
_SETTLED_SECONDS = 60.0
_MADE = "it is made"


class _Fault:
    """The fault that happens to one branch."""

    def __init__(self, one: Simulation, scene: str) -> None:
        self.came = False
        self._one = one
        self._scene = scene
        self._victim: BrokerHost | None = None
        self._held: TopicPartition | None = None
        #: The offsets that were committed at the request for the branch.
        self._committed: dict[int, int] = {}
        self._told = "it was not asked for"
        world = one.world
        if scene in _UNKNOWN_SECONDS:
            world.at(_AT_SECONDS - _STILL_SECONDS, self._hold)
            world.at(_AT_SECONDS, self._kill_leader)
        else:
            world.at(_AT_SECONDS, self._kill_controller)
        one._judge_clients = self._judge  # type: ignore[method-assign]

    # --- what happens ------------------------------------------------------------------------------------------------

    def _kill_controller(self) -> None:
        one = self._one
        self._victim = one.controller
        if self._victim is not None and self._victim.number in (
            one.watch.leader_of(key) for key in one.topic_partitions
        ):
            self._ask()

    def prevents(self, broker_id: int, topic_partition: TopicPartition) -> bool:
        """Called when a broker is about to make the log of a partition of the branch. True if it dies before that."""
        victim, one = self._victim, self._one
        if self._scene in _UNKNOWN_SECONDS or victim is None or victim.number != broker_id:
            return False
        if one.watch.leader_of(TopicPartition(TOPIC, topic_partition.partition)) != broker_id:
            return False
        self._victim, self.came = None, True
        one.world.after(0.0, lambda: self._end(victim))
        return True

    def _end(self, victim: BrokerHost) -> None:
        if self._scene == "power":
            self._one.lose_power(victim)
        else:
            self._one.kill(victim)

    def _hold(self) -> None:
        one, controller = self._one, self._one.watch.controller_id
        self._held = next(
            (key for key in one.topic_partitions if one.watch.leader_of(key) not in (-1, controller)), None
        )

    def holds(self, log: PartitionLog) -> bool:
        """True if the high watermark of the log does not move."""
        if log.topic_partition != self._held:
            return False
        return (
            self._victim is not None
            or self._one.hosts[self._one.watch.leader_of(self._held)].data not in log.directory.parents
        )

    def _kill_leader(self) -> None:
        one = self._one
        if self._held is not None and (leader := one.watch.leader_of(self._held)) >= 0:
            self._note_committed()
            self._victim = one.hosts[leader]
            one.kill(self._victim)
            self._wait_for_successor(leader)

    def _wait_for_successor(self, leader: int) -> None:
        assert self._held is not None
        world, now = self._one.world, self._one.watch.leader_of(self._held)
        if now in (-1, leader):
            world.after(0.01, lambda: self._wait_for_successor(leader))
        else:
            self.came = True
            self._ask()
            world.after(_UNKNOWN_SECONDS[self._scene], self._release)

    def _release(self) -> None:
        held, self._held = self._held, None
        for host in self._one.hosts:
            if host.is_up and held is not None:
                assert host.program.broker is not None
                host.program.broker.view.topics[TOPIC].partitions[held.partition]._look_again()

    def _ask(self) -> None:
        self._note_committed()
        process = Process(self._one.world, self._one._network, "brancher")
        self._one._start(process, self._branch(process))

    def _note_committed(self) -> None:
        for host in self._one.hosts:
            for key, offset in host.program.high_watermarks().items() if host.is_up else ():
                if key.topic == TOPIC:
                    self._committed[key.partition] = max(offset, self._committed.get(key.partition, 0))

    async def _branch(self, process: Process) -> None:
        cluster = cluster_of(process, self._one._bootstrap)
        try:
            await Admin(cluster, timeout_ms=8000).branch_topic(TOPIC, _BRANCH)
            self._told = _MADE
        except (KafkaError, TimeoutError) as error:
            self._told = f"{error}"
        await cluster.close()

    # --- what came of it ---------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        one = self._one
        one._go_on(self._is_settled, _SETTLED_SECONDS, f"the branch comes to no end ({self._told})")
        is_there = _branch_on(one.hosts[0]) is not None
        if not is_there and self._told == _MADE:
            raise ViolationError("the branch was acknowledged, and is not there")
        if self._scene == "succeeded" and self._told != _MADE:
            raise ViolationError(f"the leader of the source was not waited for: {self._told}")
        for number, committed in self._committed.items() if is_there else ():
            logs = [_logs(host)[TopicPartition(_BRANCH, number)] for host in one.hosts]
            if logs[0].log_end_offset < committed:
                raise ViolationError(
                    f"partition {number} of the branch ends at {logs[0].log_end_offset}, and {committed} was "
                    f"committed ({self._told})"
                )
            for host in one.hosts:
                source, branch = _bytes_of(host, TOPIC, number), _bytes_of(host, _BRANCH, number)
                if not source.startswith(branch):
                    raise ViolationError(
                        f"partition {number} of the branch is no beginning of its source on {host.name}"
                    )
        one.world.tell("brancher", f"the branch is {'whole' if is_there else 'not there'} ({self._told})")

    def _is_settled(self) -> bool:
        """True if no broker knows the branch, or all know a finished one, with all replicas in sync and equally
        long."""
        branches = [_branch_on(host) for host in self._one.hosts]
        if not all(branches):
            return not any(branches)
        if any(branch.config.overrides["jesenska.branch.of"] != TOPIC for branch in branches):
            return False
        led = [partition for branch in branches for partition in branch.partitions if partition.is_served]
        ends = {
            (partition.topic_partition, _logs(host)[partition.topic_partition].log_end_offset)
            for host in self._one.hosts
            for partition in led
        }
        return len(led) == len(ends) == PARTITIONS and all(
            len(partition.isr) == len(self._one.hosts) for partition in led
        )


def _branch_on(host: BrokerHost) -> Any:
    assert host.program.broker is not None
    return host.program.broker.view.topics.get(_BRANCH)


def _logs(host: BrokerHost) -> Mapping[TopicPartition, PartitionLog]:
    assert host.program.broker is not None
    return host.program.broker.directories.logs


def _bytes_of(host: BrokerHost, topic: str, number: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((host.data / f"{topic}-{number}").glob("*.log")))


_faults: list[_Fault] = []


def _plan(one: Simulation, scene: str) -> Callable[[], bool]:
    _faults[:] = [_Fault(one, scene)]
    return lambda: _faults[0].came


def _plant() -> None:
    begin, move = ReplicaManager._begin_branch, PartitionLog.move_high_watermark

    def _begin_branch(self: ReplicaManager, topic_partition: TopicPartition, *others: Any) -> None:
        if not _faults[0].prevents(self._core.broker_id, topic_partition):
            begin(self, topic_partition, *others)

    def move_high_watermark(self: PartitionLog, offset: int) -> None:
        if not _faults[0].holds(self):
            move(self, offset)

    ReplicaManager._begin_branch = _begin_branch  # type: ignore[method-assign, assignment]
    PartitionLog.move_high_watermark = move_high_watermark  # type: ignore[method-assign]


def main() -> int:
    scene, *arguments = sys.argv[1:]
    if "--whatever-is-known" in arguments:
        arguments.remove("--whatever-is-known")
        ReplicaManager._has_all_committed = lambda self, topic_partition, source: True  # type: ignore[method-assign]
    _plant()
    return outcome(
        _SEEDS[: int(arguments[0]) if arguments else 3],
        lambda one, seed: _plan(one, scene),
        seconds=_SECONDS,
        min_in_sync=1,
    )


if __name__ == "__main__":
    sys.exit(main())
