"""Simulations in which partitions move to other brokers (reassignments), with the clients and faults of `schedule`.

An operator gives partitions new targets, changes the targets of moves that are under way, and cancels them. He moves
the partitions of the simulation's topic and of __consumer_offsets. In half of the seeds a throttle makes moves last
longer. The invariants are in `move_watch`. At the end all moves must have ended, no broker may have the log of a
partition that is not assigned to it, and the replicas of each partition must have the same log.

No machine loses its power, because the rules for a loss of power in `schedule` assume a replica on each broker.
Nothing of `disasters` happens."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from jesenska.base.errors import (
    InvalidReplicaAssignmentError,
    KafkaError,
    NoReassignmentInProgressError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, TOPIC, ConfigChange
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.testing.simulation import schedule
from jesenska.testing.simulation.clients import cluster_of
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.machine.tree import TreeProgram
from jesenska.testing.simulation.schedule import _REST_SECONDS, Simulation, simulation
from jesenska.testing.simulation.watches.history import ViolationError
from jesenska.testing.simulation.watches.move_watch import Expected, MoveWatch

MOVING_SECONDS, MOVING_FAULTS = 40.0, 6
MOVING_BROKERS_MIN = 3
#: The least number of replicas of a target: the highest min.insync.replicas.
_REPLICAS_MIN = 2
_PAUSES_SECONDS, _AGAIN_SECONDS = (0.05, 0.3, 1.0, 3.0), 0.5
#: The fractions of requests that concern a partition that was moved before, and of these, that cancel.
_SAME, _CANCELLED = 0.5, 0.4
#: If a response takes more seconds, the request may have been sent more than once.
_ANSWERED_SECONDS = 1.0
#: The throttle of each broker in bytes per second.
_BYTES_PER_SECOND = ("2000", "20000")
#: The errors of a request that was refused, and not carried out.
_REFUSALS = (InvalidReplicaAssignmentError, NoReassignmentInProgressError)


class Mover:
    """The operator who moves partitions. `expected` has what may come of it."""

    def __init__(self, process: Process, bootstrap: str, watch: MoveWatch, brokers: int) -> None:
        self.process = process
        self.is_stopping = False
        self.expected: dict[TopicPartition, Expected] = {}
        self.outcomes: dict[str, int] = {}
        self._bootstrap, self._watch, self._brokers = bootstrap, watch, brokers

    async def run(self) -> None:
        random = self.process.world.random
        cluster = cluster_of(self.process, self._bootstrap)
        if random.random() < 0.5:
            await self._throttle(Admin(cluster), random.choice(_BYTES_PER_SECOND))
        moved: list[TopicPartition] = []
        while not self.is_stopping:
            keys = [
                TopicPartition(name, number)
                for name in (schedule.TOPIC, OFFSETS_TOPIC)
                for number in (self._watch.nodes[name].replicas if name in self._watch.nodes else ())
            ]
            is_same = bool(moved) and random.random() < _SAME
            key = random.choice([*moved[-3:], moved[-1]] if is_same else keys)
            target: tuple[int, ...] | None = None
            if not is_same or random.random() >= _CANCELLED:
                target = tuple(random.sample(range(self._brokers), random.randint(_REPLICAS_MIN, self._brokers)))
            await self._request(Admin(cluster), key, target)
            moved.append(key)
            await asyncio.sleep(random.choice(_PAUSES_SECONDS))
        await cluster.close()

    async def _throttle(self, admin: Admin, rate: str) -> None:
        every = ConfigChange("follower.replication.throttled.replicas", "*")
        limit = ConfigChange("follower.replication.throttled.rate", rate)
        try:
            await admin.alter_configs(TOPIC, schedule.TOPIC, [every])
            for number in range(self._brokers):
                await admin.alter_configs(BROKER, str(number), [limit])
        except KafkaError:
            return  # without a throttle, or with one on some brokers

    async def _request(self, admin: Admin, key: TopicPartition, target: tuple[int, ...] | None) -> None:
        expected = self.expected.setdefault(key, Expected.settled(self._watch.replicas_of(key)))
        began = asyncio.get_running_loop().time()
        error: KafkaError | None
        try:
            error = (await admin.alter_reassignments({key: target}))[key]
        except KafkaError as failed:
            error = failed
        is_sure = asyncio.get_running_loop().time() - began < _ANSWERED_SECONDS
        if not is_sure or (error is not None and not isinstance(error, _REFUSALS)):
            expected.unsure(target)
        if error is None and target is None:
            expected.cancelled()
        elif error is None and target is not None:
            expected.begun(target)
        outcome = f"{'cancelled' if target is None else 'moved'}{'' if error is None else f', {type(error).__name__}'}"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.process.world.tell(self.process.name, f"{key} to {None if target is None else list(target)}: {outcome}")
        if error is not None and not isinstance(error, _REFUSALS):
            await asyncio.sleep(_AGAIN_SECONDS)


class MovingSimulation(Simulation):
    """The run of one seed with moves."""

    FIRST_DISASTERS: ClassVar = (-1, -1)

    def __init__(self, seed: int, directory: Path, **others: Any) -> None:
        super().__init__(seed, directory, **others)
        self.move_watch = MoveWatch(self._live)
        self.watch.has_moves = True
        self.mover: Mover

    def _further_settings(self, brokers: int, others: Mapping[str, str]) -> dict[str, str]:
        # If all partitions of an internal topic are on the same, too few brokers, the controller adds replicas.
        return {"offsets.topic.replication.factor": str(_REPLICAS_MIN)}

    def _live(self, topic_partition: TopicPartition) -> Collection[int]:
        """Returns the brokers of a partition that the present controller knows to be registered."""
        number = self.watch.controller_id
        broker = self.hosts[number].program.broker if number >= 0 else None
        if broker is None or not broker.is_loaded or not broker.control.controllership.is_controller:
            return ()
        context = broker.control.controllership.runtime.controller.context
        return context.live(*topic_partition)

    def _start_tree(self, data: Path) -> None:
        process = Process(self.world, self._network, f"tree.{self._tree_incarnation}")

        def begun(tree: Any) -> None:
            self.move_watch.tree_is(tree)
            self.watch.tree_is(tree)

        self._tree = TreeProgram(process, data, begun)
        self._start(process, self._tree.run())

    def _begin_clients(self, settings: Mapping[str, str]) -> None:
        super()._begin_clients(settings)
        process = Process(self.world, self._network, self._name("mover"))
        self.mover = Mover(process, self._bootstrap, self.move_watch, len(self.hosts))
        self._start(process, self.mover.run())

    def _watch(self) -> None:
        self.move_watch.look()
        super()._watch()

    # --- faults ------------------------------------------------------------------------------------------------------

    def lose_power(self, host: BrokerHost, back_after: float | None = None) -> bool:
        self.kill(host)
        return False

    def is_left_alone(self, host: BrokerHost) -> bool:
        return False

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end_clients(self) -> None:
        self.mover.is_stopping = True
        (moving,) = (task for process, task in self._tasks if process is self.mover.process)
        self._go_on(moving.done, _REST_SECONDS, "the operator who moves partitions does not come to an end")
        super()._end_clients()

    def _is_in_sync(self) -> bool:
        """Returns True if every broker is up, no move is under way, and every partition has all its replicas in
        sync."""
        if not all(host.is_up for host in self.hosts):
            return False
        for name, node in self.move_watch.nodes.items():
            if node.adding or node.removing:
                return False
            for number, replicas in node.replicas.items():
                state = self.watch.states.get(TopicPartition(name, number))
                if state is None or state.leader < 0 or set(state.isr) != set(replicas):
                    return False
                if not self._serves(self.hosts[state.leader], name, number):
                    return False
        return True

    @staticmethod
    def _serves(host: BrokerHost, name: str, number: int) -> bool:
        assert host.program.broker is not None
        topic = host.program.broker.view.topics.get(name)
        return topic is not None and number < len(topic.partitions) and topic.partitions[number].is_served

    def _different_log(self) -> str | None:
        for name, node in self.move_watch.nodes.items():
            for number, replicas in node.replicas.items():
                if self._compacts and name != schedule.TOPIC:
                    continue
                logs = [
                    b"".join(
                        path.read_bytes() for path in sorted((self.hosts[one].data / f"{name}-{number}").glob("*.log"))
                    )
                    for one in replicas
                ]
                if any(log != logs[0] for log in logs):
                    return f"{name}-{number}"
        return None

    def _strays(self) -> Sequence[str]:
        """Returns the logs that brokers have of partitions that are not assigned to them."""
        return [
            f"{name}-{number} on {host.name}"
            for name, node in self.move_watch.nodes.items()
            for number, replicas in node.replicas.items()
            for host in self.hosts
            if host.number not in replicas and (host.data / f"{name}-{number}").exists()
        ]

    def _judge_clients(self) -> None:
        self._go_on(
            lambda: not self._strays(),
            60.0,
            f"brokers keep logs of partitions that were moved to others ({', '.join(self._strays()[:3])})",
        )
        for key, expected in self.mover.expected.items():
            replicas = self.move_watch.replicas_of(key)
            if not expected.allows(replicas):
                raise ViolationError(
                    f"{key} has the replicas {list(replicas)} at the end, and may have {sorted(expected.may_have)}"
                )
        self.world.tell(
            "simulation", f"of the moves {self.move_watch.completed} were completed; requests: {self.mover.outcomes}"
        )


def moving_simulation(seed: int, *, tree_apart: bool = False, brokers: int = 4) -> AbstractContextManager[Simulation]:
    """Gives the `with` block a simulation with moves. The arguments are those of `schedule.simulation`."""
    return simulation(
        seed,
        seconds=MOVING_SECONDS,
        faults=MOVING_FAULTS,
        tree_apart=tree_apart,
        brokers=brokers,
        kind=MovingSimulation,
    )
