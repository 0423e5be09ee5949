"""Runs one simulation: brokers, producers and a consumer group for some seconds, with faults at times that the seed
chooses, and checks at the end. The faults:

killed              a broker's process is killed between two steps; all its writes are kept
power loss          a broker's process ends; the disk keeps the synced writes and any part of the other writes. A lone
                    broker loses its power only if the topic is synced before each response. One of several brokers
                    does only if all replicas are in sync, or if it is the only in-sync replica and
                    min.insync.replicas is 2
stopped             a broker is stopped in an orderly way, and started again
cut                 some or all connections break
slow disk           the work of a broker's threads takes longer for a while
full disk           no file of a broker can grow for a while
clock               a broker's wall clock is set forward or back
member gone         a member of the group is killed, and a new member joins
cut off             a client is cut off from the network, for so long that its group may rebalance without it

If the metadata tree (ZooKeeper's nodes) has its own server program (`tree_apart`, and always with several brokers):

tree killed         the server is killed, and started again on its journal; sessions continue
tree cut off        the server is cut off from the network, perhaps until the brokers' sessions have ended

With several brokers:

pause               a broker's process is paused, perhaps until its session has ended
partition           a broker receives nothing, or can send nothing, or both; or two brokers cannot reach each other; or
                    a broker cannot reach the tree's server

With several brokers, half of the faults are single faults, and the other half are combined faults (`combined`). Half
of all faults hit a broker with a role at that moment: the controller, the group coordinator, or the leader of a
partition. During the faults, `cluster_watch` checks invariants. At the end all replicas must be in sync again, their
logs must be the same, and all brokers must agree on the controller.

In every seventh seed disks are replaced, logs lose their ends, and metadata trees are lost or replaced by wrong trees
(`disasters`). In every eleventh seed with several brokers, a topic is repeatedly created and deleted (`churn`).

In every ninth seed brokers compact __consumer_offsets and another topic, which has its own producer (`compacted`). In
other seeds the log cleaner is off, so that they run faster."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from jesenska.base.identifiers import TopicPartition
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.metadata.nodes import PartitionStateNode
from jesenska.testing.simulation.churn import CHURNED, Churner
from jesenska.testing.simulation.clients import (
    BrokerProgram,
    SimulatedMember,
    Writer,
    create_topic,
    read_everything,
    take_controllers_place,
)
from jesenska.testing.simulation.combined import CombinedFaults
from jesenska.testing.simulation.disasters import MADE_SINCE, Disasters
from jesenska.testing.simulation.machine.host import BrokerHost
from jesenska.testing.simulation.machine.network import SimulatedNetwork
from jesenska.testing.simulation.machine.process import Process
from jesenska.testing.simulation.machine.tree import TREE_HOST, TREE_PORT, TreeProgram
from jesenska.testing.simulation.machine.world import World
from jesenska.testing.simulation.watches import compacted
from jesenska.testing.simulation.watches.cluster_watch import ClusterWatch
from jesenska.testing.simulation.watches.compacted import KEYED, PARTITION, KeyedWriter
from jesenska.testing.simulation.watches.coverage import Coverage
from jesenska.testing.simulation.watches.history import History, ViolationError

TOPIC, PARTITIONS = "t", 3
_PORT = 9092
SECONDS, FAULTS = 60.0, 5
#: The seconds of simulated time within which all programs must end after the last fault.
_REST_SECONDS = 400.0
#: A directory of Linux whose files are in memory. Syncs of simulated disks need not reach a real disk.
_IN_MEMORY = "/dev/shm"  # noqa: S108
_SETTINGS = {
    "log.segment.bytes": "20000",
    "log.index.size.max.bytes": "4096",
    "log.index.interval.bytes": "512",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "20000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "auto.create.topics.enable": "false",
}
#: One of this many seeds compacts topics.
_COMPACTING = 9
#: The first number: one of this many seeds with several brokers creates and deletes a topic repeatedly. The second
#: number is the first such seed.
_CHURNING, _FIRST_CHURNING = 11, 3
#: The seconds after the last fault within which all brokers must agree on the topic that is created and deleted
#: repeatedly.
_CHURN_SECONDS = 100.0
#: The settings of brokers if the metadata tree has its own server program.
_TREE_APART = {"zookeeper.connect": f"{TREE_HOST}:{TREE_PORT}", "zookeeper.session.timeout.ms": "3000"}
_SEVERAL = {
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "4000",
    "replica.fetch.backoff.ms": "300",
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "3000",
}
#: The seconds for which another broker is protected from faults after a loss of power. Sessions end within this time.
#: A broker that has lost unsynced data must be out of the ISRs before the last other in-sync broker ends.
_SPARED_SECONDS = 5.0
#: The seconds that a leader may need to sync its log after a controller has made it the only replica in the ISR.
_SYNC_SECONDS = 0.3
#: The possible intervals in seconds between two checks for preferred replicas that are not leaders.
_BALANCE_SECONDS = ("3", "300")
#: The seconds that a starting broker may need to connect to the tree's server again.
_TREE_BACK_SECONDS = 5.0


class Simulation:
    """The run of one seed. `run` raises ViolationError if a check fails; `world.trace` contains the events. The class
    has more than 500 lines, since each fault is a method, and all faults need the same state."""

    #: The first seed with `disasters`: for one broker, and for several brokers.
    FIRST_DISASTERS: ClassVar = (3, 4)

    def __init__(
        self,
        seed: int,
        directory: Path,
        *,
        seconds: float = SECONDS,
        faults: int = FAULTS,
        tree_apart: bool = False,
        brokers: int = 1,
        is_synced: bool | None = None,
        min_in_sync: int | None = None,
    ) -> None:
        self.world = World(seed)
        self.history = History()
        self._directory = directory
        self._seconds = seconds
        self._fault_count = faults
        self._network = SimulatedNetwork(self.world)
        self._tree_incarnation = 0
        self._tree: TreeProgram | None = None
        self._tree_apart = tree_apart or brokers > 1
        #: The time until which a broker may fail to start, because it cannot reach the tree's server.
        self._tree_gone_until = -1.0
        self._tasks: list[tuple[Process, asyncio.Task[Any]]] = []
        self._writers: list[Writer | KeyedWriter] = []
        self._compacts = seed % _COMPACTING == 0
        #: The client that creates and deletes a topic repeatedly; None in most seeds.
        self._churner: Churner | None = None
        #: True if clocks were set, so that tombstones may be deleted too early.
        self._clocks_were_set = False
        self._members: list[SimulatedMember] = []
        self._names = 0
        #: True if every response waits for a sync. Then a lone broker may lose its power at any time.
        self.is_synced = self.world.random.random() < 0.5
        if is_synced is not None:
            self.is_synced = is_synced
        several = self._settings_of_several(min_in_sync) if brokers > 1 else {}
        self.hosts = [self._host(number, brokers, several) for number in range(brokers)]
        self._bootstrap = ",".join(f"{host.name}:{_PORT}" for host in self.hosts)
        self.topic_partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self.watch = ClusterWatch(self.world, self.hosts)
        self.coverage = Coverage()
        self.combined = CombinedFaults(self)
        self.disasters = Disasters(self, seed, self.FIRST_DISASTERS[brokers > 1])
        self._is_over = False
        #: If the last check had only one running broker: this broker and its high watermarks. Otherwise None.
        self._seen_last: tuple[BrokerProgram, dict[TopicPartition, int]] | None = None
        #: The time until which a broker is paused or cut off, or until which its disk is slow.
        self._trouble_until = -1.0
        self._spared: BrokerHost | None = None
        self._spared_until = -1.0
        #: The times since which leaders have known a leader epoch in which they are the only in-sync replica.
        self._known_alone: dict[tuple[TopicPartition, int, int], float] = {}
        #: When the only in-sync replica loses its power, one of these brokers is protected from faults.
        self._to_spare: list[BrokerHost] = []
        if self._several:
            self._watch_several(int(several["min.insync.replicas"]))

    def _settings_of_several(self, min_in_sync: int | None) -> dict[str, str]:
        least = self.world.random.choice((1, 2))
        return {
            "leader.imbalance.check.interval.seconds": self.world.random.choice(_BALANCE_SECONDS),
            "min.insync.replicas": str(least if min_in_sync is None else min_in_sync),
        }

    def _watch_several(self, min_in_sync: int) -> None:
        """Passes to `cluster_watch` the settings on which its checks depend. Connects it to the records that are
        acknowledged and to the ends of broker processes."""
        self.watch.min_in_sync = min_in_sync
        self.watch.compacts = self._compacts
        self.history.on_acknowledged = self.watch.acknowledged
        for host in self.hosts:
            host.before_end = self.watch.look

    def _host(self, number: int, brokers: int, others: Mapping[str, str]) -> BrokerHost:
        name = f"broker-{number}"
        settings = {"broker.id": str(number), "listeners": f"PLAINTEXT://{name}:{_PORT}"}
        further = (
            (compacted.BROKER_SETTINGS if self._compacts else {})
            | (_TREE_APART if self._tree_apart else {})
            | (_SEVERAL if brokers > 1 else {})
            | dict(others)
            | self._further_settings(brokers, others)
        )
        return BrokerHost(
            self.world,
            self._network,
            name,
            number,
            self._directory,
            {**_SETTINGS, **settings, **further},
            self._start,
            self._excuse,
        )

    def _further_settings(self, brokers: int, others: Mapping[str, str]) -> dict[str, str]:
        """Returns the broker settings that this kind of simulation needs. `others` are settings that the seed has
        chosen."""
        return {}

    @property
    def _several(self) -> bool:
        return len(self.hosts) > 1

    # --- running -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        world = self.world
        world.tell(
            "simulation",
            f"seed {world.seed}, {'a sync before each answer' if self.is_synced else 'no sync before an answer'}",
        )
        if self._tree_apart:
            self._start_tree(self._directory / "tree")
            self._go_on(self._tree_is_ready, 10.0, "the tree does not start")
        for host in self.hosts:
            host.start()
        self._go_on(lambda: all(host.is_up for host in self.hosts), 60.0, "the brokers do not start")
        settings = {"flush.messages": "1"} if self.is_synced else {}
        maker = Process(world, self._network, "admin")
        made = self._start(maker, create_topic(maker, self._bootstrap, TOPIC, PARTITIONS, len(self.hosts), settings))
        self._go_on(made.done, 60.0, "the topic is not made")
        if self._compacts:
            made = self._start(
                maker,
                create_topic(maker, self._bootstrap, KEYED, 1, len(self.hosts), compacted.TOPIC_SETTINGS | settings),
            )
            self._go_on(made.done, 60.0, "the compacted topic is not made")
        maker.end()
        self._begin_clients(settings)
        self._watch()
        for _ in range(self._fault_count):
            world.at(world.random.uniform(2.0, self._seconds - 5.0), self._struck)
        self.disasters.begin(self._seconds)
        world.run_until(lambda: False, self._seconds)
        self._go_on(lambda: not self.disasters.is_under_way, _REST_SECONDS, "brokers do not get back what they had")
        self._judge_tasks()
        self._end()

    def _begin_clients(self, settings: Mapping[str, str]) -> None:
        """Starts the clients. The topic exists already; `settings` are the seed's settings for any other topic."""
        if self._compacts:
            process = Process(self.world, self._network, self._name("writer"))
            self._writers.append(KeyedWriter(process, self._bootstrap, self.history.on_acknowledged))
            self._start(process, self._writers[0].run())
        if self._several and self.world.seed % _CHURNING == _FIRST_CHURNING:
            process = Process(self.world, self._network, self._name("operator"))
            self._churner = Churner(
                process, self._bootstrap, lambda: [host.program.broker if host.is_up else None for host in self.hosts]
            )
            self._start(process, self._churner.run())
        for _ in range(2):
            self._new_writer()
            self._new_member()

    def _end_churn(self) -> None:
        """Stops the repeated creation and deletion of a topic after the last fault. Waits until every broker reports
        the topic's final state."""
        churner = self._churner
        if churner is None:
            return
        churner.is_stopping = True
        (churning,) = (task for process, task in self._tasks if process is churner.process)
        self._go_on(
            lambda: churning.done() and (churner.is_settled or churner.is_deleted_late),
            _CHURN_SECONDS,
            "not all brokers agree on the topic that was made and deleted, or nobody leads it",
        )

    def _end_clients(self) -> None:
        """Stops all clients after the last fault."""
        for writer in self._writers:
            writer.is_stopping = True
        writing = [task for process, task in self._tasks if process.name.startswith("writer")]
        self._go_on(lambda: all(task.done() for task in writing), _REST_SECONDS, "a producer does not come to an end")
        self._go_on(
            lambda: self.history.all_is_read, _REST_SECONDS, "the group does not read every acknowledged record"
        )
        for member in self._members:
            member.is_stopping = True
        self._go_on(
            lambda: all(task.done() for process, task in self._tasks if not process.is_dead),
            _REST_SECONDS,
            "a member does not come to an end",
        )

    def _end(self) -> None:
        world = self.world
        world.tell("simulation", "no more faults; everybody comes to an end")
        self._is_over = True
        self._heal()
        self._end_churn()
        self._end_clients()
        self._go_on(self._is_in_sync, _REST_SECONDS, "not all replicas come into sync again")
        if self._several:
            self._go_on(self.watch.is_agreed, _REST_SECONDS, "not all brokers agree who is controller and who is up")
        self.disasters.judge()
        reader = Process(world, self._network, "last-reader")
        reading = self._start(reader, read_everything(reader, self.history, self._bootstrap, TOPIC, PARTITIONS))
        self._go_on(reading.done, _REST_SECONDS, "the last reader does not come to an end")
        self._judge_tasks()
        ends = reading.result()
        lost = sorted(place for place in self.history.acknowledged if place.offset >= ends[place.partition])
        if lost:
            raise ViolationError(
                f"{len(lost)} acknowledged records are not there at the end, the first of them at offset "
                f"{lost[0].offset} of {lost[0].partition}"
            )
        world.tell(
            "simulation",
            f"{len(self.history.acknowledged)} acknowledged records are there, the logs end at {list(ends.values())}",
        )
        self._go_on(lambda: self._different_log() is None, _REST_SECONDS, "not all replicas have the same log")
        self._judge_compacted()
        self._judge_clients()
        for host in self.hosts:
            broker = host.program.broker
            assert broker is not None
            stopped = self._start(host.program.process, broker.stop())
            self._go_on(stopped.done, 60.0, f"{host.name} does not stop")
        self._judge_tasks()
        world.tell("simulation", f"the dice stand at {world.random.getrandbits(64):016x}")

    def _is_in_sync(self) -> bool:
        """Returns True if every broker is up, and every partition has a leader and all replicas in sync."""
        if not all(host.is_up for host in self.hosts):
            return False
        led: dict[TopicPartition, int] = {}
        known: set[TopicPartition] = set()
        for host in self.hosts:
            assert host.program.broker is not None
            for topic in host.program.broker.view.topics.values():
                for partition in topic.partitions if topic.name != CHURNED else ():
                    known.add(partition.topic_partition)
                    if partition.is_served:
                        led[partition.topic_partition] = len(partition.isr)
                        # A rebuilt tree contains only replicas that existed. If this topic was just being created, it
                        # may have fewer replicas.
                        if topic.name == MADE_SINCE and len(partition.isr) == len(partition.replicas):
                            led[partition.topic_partition] = len(self.hosts)
        return all(led.get(topic_partition) == len(self.hosts) for topic_partition in known)

    def _different_log(self) -> str | None:
        """Returns a partition whose replicas do not have the same bytes. Returns None if there is no such
        partition."""
        names = (
            sorted({path.name for host in self.hosts for path in host.data.iterdir() if path.is_dir()})
            if self._several
            else ()
        )
        for name in names:
            if name.startswith(f"{CHURNED}-") or (self._compacts and name.rpartition("-")[0] != TOPIC):
                continue
            logs = [
                b"".join(path.read_bytes() for path in sorted((host.data / name).glob("*.log"))) for host in self.hosts
            ]
            if any(log != logs[0] for log in logs):
                return name
        return None

    def _judge_clients(self) -> None:
        """Runs the checks that only this kind of simulation has. All clients have ended and all replicas are in
        sync."""

    def _judge_compacted(self) -> None:
        """Checks the compacted logs. All clients have ended and all replicas are in sync."""
        logs: dict[TopicPartition, list[PartitionLog]] = {}
        for host in self.hosts if self._compacts else ():
            assert host.program.broker is not None
            for topic_partition, log in host.program.broker.directories.logs.items():
                if log.config.compact:
                    logs.setdefault(topic_partition, []).append(log)
        if not self._clocks_were_set:
            for topic_partition, replicas in logs.items():
                newest = [compacted.newest_of(log) for log in replicas]
                if any(other != newest[0] for other in newest):
                    raise ViolationError(f"the newest records of {topic_partition} are not the same on all replicas")
        for writer in self._writers:
            if isinstance(writer, KeyedWriter):
                left = [
                    writer.judge(host.name, log, knows_tombstones=not self._clocks_were_set)
                    for host, log in zip(self.hosts, logs[PARTITION], strict=True)
                ]
                self.world.tell(
                    "simulation", f"of {sum(map(len, writer.sent.values()))} records with keys {left} are left"
                )

    def close(self) -> None:
        """Ends all programs and closes their files."""
        for process, _ in self._tasks:
            process.end()
        for host in self.hosts:
            if hasattr(host, "program"):
                host.end()
        self.disasters.close()
        if self._tree is not None:
            self._tree.process.end()

    def _go_on(self, done: Callable[[], bool], seconds: float, otherwise: str) -> None:
        if not self.world.run_until(done, self.world.now + seconds):
            self._judge_tasks()
            raise ViolationError(f"{otherwise} within {seconds:g} s")

    def _start(self, process: Process, program: Any) -> asyncio.Task[Any]:
        task = process.start(program)
        self._tasks.append((process, task))
        return task

    def _judge_tasks(self) -> None:
        """Raises the exception of a program or of its event loop, if a program has failed."""
        for process, task in self._tasks:
            if not process.is_dead and task.done() and not task.cancelled():
                error = task.exception()
                if error is not None:
                    raise error
            for context in process.loop.failures:
                error = context.get("exception")
                if error is not None:
                    raise error
                raise ViolationError(f"{process.name}: {context.get('message')}")

    def _watch(self) -> None:
        """Checks the state of the brokers, and schedules the next check."""
        if self._several:
            self.watch.look()
        else:
            for host in self.hosts:
                seen = host.program, host.program.high_watermarks()
                if seen == self._seen_last:
                    continue
                self._seen_last = seen
                for key, offset in seen[1].items():
                    self.history.high_watermark(host.program, key, offset)
        self._judge_tasks()
        self.world.after(0.05, self._watch)

    # --- programs ----------------------------------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self._names}"

    def _new_writer(self) -> None:
        process = Process(self.world, self._network, self._name("writer"))
        writer = Writer(process, self.history, self._bootstrap, TOPIC, PARTITIONS)
        self._writers.append(writer)
        self._start(process, writer.run())

    def _new_member(self) -> None:
        process = Process(self.world, self._network, self._name("member"))
        member = SimulatedMember(process, self.history, self._bootstrap, TOPIC)
        self._members.append(member)
        self._start(process, member.run())

    def _excuse(self, host: BrokerHost, began: float) -> str | None:
        """Returns the reason why a broker that began to start at the time `began` may fail. Returns None if it must
        not fail."""
        return "without the tree" if began <= max(self._tree_gone_until, host.is_cut_off_until) else None

    def _start_tree(self, data: Path) -> None:
        process = Process(self.world, self._network, f"tree.{self._tree_incarnation}")
        self._tree = TreeProgram(process, data, self.watch.tree_is if self._several else None)
        self._start(process, self._tree.run())

    def _tree_is_ready(self) -> bool:
        return self._tree is not None and self._tree.is_ready

    @property
    def has_tree_apart(self) -> bool:
        """Returns True if the metadata tree has its own server program, even while it is down."""
        return self._tree_apart

    @property
    def tree(self) -> TreeProgram | None:
        """Returns the program of the tree's server, if it is running. Otherwise returns None."""
        return self._tree if self._tree_is_ready() else None

    @property
    def directory(self) -> Path:
        """Returns the directory with all files of the simulation."""
        return self._directory

    def replace_tree(self, data: Path) -> None:
        """Ends the tree's server, and starts a new server on another directory."""
        assert self._tree is not None
        self._tree.process.end()
        self._tree_incarnation += 1
        self._tree_is_gone_for(0.0)
        self._start_tree(data)

    @property
    def churns(self) -> bool:
        """Returns True if a topic is repeatedly created and deleted in this seed."""
        return self._churner is not None

    @property
    def compacts(self) -> bool:
        """Returns True if topics are compacted in this seed."""
        return self._compacts

    def make_topic(self, name: str) -> asyncio.Task[None]:
        """Acts as an operator who creates a topic with a replica on each broker. Repeats the request until the topic
        exists."""
        process = Process(self.world, self._network, self._name("operator"))
        return self._start(process, create_topic(process, self._bootstrap, name, 1, len(self.hosts), {}))

    # --- faults ------------------------------------------------------------------------------------------------------

    def _struck(self) -> None:
        if not self.disasters.holds_all:
            self._fault()

    def _fault(self) -> None:
        if self._several and self.world.random.random() < 0.5:
            self.combined.strike()
        else:
            self.simple_fault()

    def simple_fault(self) -> None:
        """Applies one random single fault."""
        kinds: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._stop,
            self._cut,
            self._cut,
            self._slow_disk,
            self._full_disk,
            self._set_clock,
            self._member_gone,
            self._cut_off,
        ]
        if self.is_synced or self._several:
            kinds += [self._power_loss] * 3
        if self._tree_apart:
            kinds += [self._tree_killed] * 3 + [self._tree_cut_off] * 3
        if self._several:
            kinds += [self._kill] * 2 + [self._stop] + [self._pause] * 4 + [self._partition] * 4
        self.world.random.choice(kinds)()

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """Calls `what`, a later part of a fault, after `seconds`. If the faults have ended by then, `what` is not
        called."""

        def happen() -> None:
            if not (self._is_over or self.disasters.holds_all):
                what()

        self.world.after(seconds, happen)

    @property
    def controller(self) -> BrokerHost | None:
        """Returns the broker that is the controller according to the metadata tree. Returns None if there is no
        controller or if the broker is not up."""
        number = self.watch.controller_id
        return self.hosts[number] if number >= 0 and self.hosts[number].is_up else None

    def _one(self) -> BrokerHost:
        if not self._several:
            return self.hosts[0]
        watch, random = self.watch, self.world.random
        aims = (
            watch.controller_id,
            watch.leader_of(watch.offsets_partition),
            watch.leader_of(random.choice(self.topic_partitions)),
            -1,
            -1,
            -1,
        )
        number = random.choice(aims)
        if number >= 0 and self.may_be_hit(self.hosts[number]):
            return self.hosts[number]
        return random.choice([host for host in self.hosts if self.may_be_hit(host)])

    def may_be_hit(self, host: BrokerHost) -> bool:
        return host is not self._spared or self.world.now >= self._spared_until

    def _tell(self, host: BrokerHost, what: str) -> None:
        self.world.tell("fault", what.format(host.name if self._several else "the broker"))

    def met(self, host: BrokerHost, fault: str) -> None:
        """Counts the states in which the broker is when this fault hits it (`coverage`)."""
        if self._several:
            self.coverage.met(self.watch.states_of(host), fault)

    def is_calm(self) -> bool:
        """Returns True if all replicas are in sync, and no broker is about to leave an ISR."""
        return self._is_in_sync() and self.world.now > max(self._trouble_until, self._tree_gone_until)

    def _trouble(self, seconds: float) -> None:
        self._trouble_until = max(self._trouble_until, self.world.now + seconds)

    # Faults of one broker. Each method returns True if the fault was applied.

    def kill(self, host: BrokerHost) -> bool:
        if not self.may_be_hit(host):
            return False
        self.met(host, "killed")
        self._tell(host, "{} is killed")
        host.kill()
        return True

    def _kill(self) -> None:
        self.kill(self._one())

    def lose_power(self, host: BrokerHost, back_after: float | None = None) -> bool:
        """Takes the power from a broker. If replicas are out of sync, kills the broker instead: if two machines lost
        unsynced data, acknowledged records could be lost."""
        if self._several and not (self.may_be_hit(host) and self.is_calm()):
            self.kill(host)
            return False
        self.met(host, "power loss")
        self._tell(host, "{}'s machine loses its power")
        if self._several:
            self.spare(self.world.random.choice([other for other in self.hosts if other is not host]))
        else:
            self.history.power_was_lost()
        host.lose_power(back_after)
        return True

    def spare(self, host: BrokerHost) -> None:
        """Protects a broker from faults for a while."""
        self._spared = host
        self._spared_until = self.world.now + _SPARED_SECONDS

    def _power_loss(self) -> None:
        self.lose_power(self._one())

    def is_left_alone(self, host: BrokerHost) -> bool:
        """Returns True if a broker is the only in-sync replica of a partition, and must lose no acknowledged record if
        it loses its power now. The broker has synced the acknowledged records of each such partition: before it shrank
        the ISR itself, or a moment after a controller shrank it. In all other partitions another broker, which can be
        protected, is also in sync."""
        if self.watch.min_in_sync < 2 or not (host.is_up and self.may_be_hit(host)):
            return False
        if host.program.process.is_paused or host.program.process.is_slow:
            self._known_alone.clear()
            return False
        held = [(name, state) for name, state in self.watch.states.items() if host.number in state.isr]
        alone = [(name, state) for name, state in held if state.isr == (host.number,)]
        have_synced = [self._has_synced(host, name, state) for name, state in alone]
        if not alone or not all(have_synced):
            return False
        shared = [state for _, state in held if len(state.isr) > 1]
        self._to_spare = [
            other
            for other in self.hosts
            if other is not host and all(other.number in state.isr for state in shared) and self._stays(other)
        ]
        return not shared or bool(self._to_spare)

    def _has_synced(self, host: BrokerHost, name: TopicPartition, state: PartitionStateNode) -> bool:
        if state.leader != host.number:
            return False
        if name in self.watch.shrunk_by_leader:
            return True
        key = name, host.number, state.leader_epoch
        if key not in self._known_alone and self.watch.knows_state(host, name, state):
            self._known_alone[key] = self.world.now
        return self.world.now >= self._known_alone.get(key, self.world.now) + _SYNC_SECONDS

    def _stays(self, host: BrokerHost) -> bool:
        """Returns True if no fault in effect will end the broker's session soon."""
        return (
            host.is_up
            and not host.program.process.is_paused
            and self.world.now > max(host.is_cut_off_until, self._tree_gone_until)
        )

    def lose_power_alone(self, host: BrokerHost, back_after: float) -> bool:
        """Takes the power from a broker that is the only in-sync replica of a partition. `is_left_alone` must be
        True."""
        self.met(host, "power loss")
        self._tell(host, "{}'s machine loses its power, and nobody else is in sync")
        if self._to_spare:
            self.spare(self.world.random.choice(self._to_spare))
        host.lose_power(back_after)
        return True

    def stop(self, host: BrokerHost) -> bool:
        if not host.is_up or not self.may_be_hit(host):
            return False
        self.met(host, "stopped")
        self._tell(host, "{} is stopped in order")
        host.stop()
        return True

    def _stop(self) -> None:
        self.stop(self._one())

    def pause(self, host: BrokerHost, seconds: float) -> bool:
        if not self.may_be_hit(host):
            return False
        self.met(host, "pause")
        self._tell(host, f"{{}} stands still for {seconds:.3f} s")
        self._trouble(seconds)
        # A broker that is about to start may lose its session during the pause.
        host.is_cut_off_until = max(host.is_cut_off_until, self.world.now + seconds + _TREE_BACK_SECONDS)
        host.pause(seconds)
        return True

    def _pause(self) -> None:
        self.pause(self._one(), self.world.random.uniform(0.5, 10.0))

    def cut_between(self, host: BrokerHost, other: BrokerHost, seconds: float) -> bool:
        if not (self.may_be_hit(host) and self.may_be_hit(other)):
            return False
        for one in (host, other):
            self.met(one, "partition")
        self._tell(host, f"{{}} and {other.name} do not reach each other for {seconds:.1f} s")
        self._cut_until_end(seconds)
        self._network.cut_between(host.program.process, other.program.process, seconds)
        return True

    def hold_back(self, host: BrokerHost, other: BrokerHost, seconds: float) -> bool:
        """Delays the bytes that one broker sends to another."""
        if not (self.may_be_hit(host) and self.may_be_hit(other)):
            return False
        for one in (host, other):
            self.met(one, "partition")
        self._tell(host, f"what {{}} sends {other.name} is held back for {seconds:.3f} s")
        self._cut_until_end(seconds)
        self._network.hold_back(host.program.process, other.program.process, seconds)
        return True

    def cut_from_tree(self, host: BrokerHost, seconds: float) -> bool:
        if self._tree is None or not self.may_be_hit(host):
            return False
        self.met(host, "partition")
        self._tell(host, f"{{}} and the tree do not reach each other for {seconds:.1f} s")
        self._cut_until_end(seconds)
        host.is_cut_off_until = self.world.now + seconds + _TREE_BACK_SECONDS
        self._network.cut_between(host.program.process, self._tree.process, seconds)
        return True

    def _cut_until_end(self, seconds: float) -> None:
        """Schedules frequent checks for the end of a network fault, when all held bytes arrive at once."""
        self._trouble(seconds)
        self.world.after(seconds - 0.001, self.watch.look_often)

    def _partition(self) -> None:
        host, seconds, kind = self._one(), self.world.random.uniform(0.5, 12.0), self.world.random.randrange(5)
        if kind == 0:
            self.cut_between(host, self.world.random.choice([one for one in self.hosts if one is not host]), seconds)
            return
        if kind == 4:
            self.cut_from_tree(host, seconds)
            return
        reaches = ("nothing reaches {}", "nothing comes from {}", "{} is cut off")[kind - 1]
        self.met(host, "partition")
        self._tell(host, f"{reaches} for {seconds:.1f} s")
        self._cut_until_end(seconds)
        host.is_cut_off_until = self.world.now + seconds + _TREE_BACK_SECONDS
        self._network.cut_off(host.program.process, seconds, sends=kind != 1, receives=kind != 2)

    def slow_down(self, host: BrokerHost, times: float, seconds: float) -> bool:
        if not self.may_be_hit(host):
            return False
        self.met(host, "slow disk")
        self._tell(host, f"the disk of {{}} takes {times:g} times as long")
        self._trouble(seconds)
        host.slow_down(times, seconds)
        return True

    def reset_clients(self, host: BrokerHost) -> None:
        """Breaks the connections of clients to the broker."""
        clients = {process.name for process in self._clients()}
        ends = [sock for sock in self._network.live() if sock.peer is not None]
        chosen = [
            sock
            for sock in ends
            if sock.process.name in clients and sock.peer is not None and sock.peer.process is host.program.process
        ]
        self.met(host, "cut")
        self._tell(host, f"{len(chosen)} connections of clients to {{}} are cut")
        for sock in chosen:
            self._network.reset(sock)

    def take_controllers_place(self, gone: BrokerHost, pause_seconds: float) -> None:
        """Acts as an operator who deletes ZooKeeper's node of the controller. This is done after the node of the
        broker `gone` has disappeared."""
        process = Process(self.world, self._network, self._name("operator"))
        self._start(process, take_controllers_place(process, f"{TREE_HOST}:{TREE_PORT}", gone.number, pause_seconds))

    def _cut(self) -> None:
        live = self._network.live()
        for host in self.hosts:
            self.met(host, "cut")
            if not host.is_up:
                # The connection to the tree's server may break before the broker has a session.
                host.is_cut_off_until = max(host.is_cut_off_until, self.world.now)
        chosen = (
            live if self.world.random.random() < 0.3 else [sock for sock in live if self.world.random.random() < 0.5]
        )
        self.world.tell("fault", f"{len(chosen)} of {len(live)} connections are cut")
        for sock in chosen:
            self._network.reset(sock)

    def _slow_disk(self) -> None:
        host, times = self._one(), self.world.random.choice((100.0, 1000.0))
        self.slow_down(host, times, self.world.random.uniform(1.0, 5.0))

    def hit(self, host: BrokerHost) -> None:
        """Applies a random single fault to this broker, in any state."""
        if not self.may_be_hit(host):
            return
        uniform, choice = self.world.random.uniform, self.world.random.choice
        others = [one for one in self.hosts if one is not host]
        kinds: list[Callable[[], object]] = [
            lambda: self.kill(host),
            lambda: self.kill(host),
            lambda: self.stop(host) or self.kill(host),
            lambda: self.pause(host, uniform(0.5, 8.0)),
            lambda: self.slow_down(host, choice((100.0, 1000.0)), uniform(1.0, 5.0)),
            lambda: self.cut_from_tree(host, uniform(0.5, 6.0)),
            lambda: self.cut_between(host, choice(others), uniform(0.5, 8.0)),
            self._cut,
            lambda: self._fill_disk(host),
            lambda: self._change_clock(host),
        ]
        choice(kinds)()

    def _full_disk(self) -> None:
        self._fill_disk(self._one())

    def _fill_disk(self, host: BrokerHost) -> None:
        self.met(host, "full disk")
        host.files.is_full = True
        self._tell(host, "the disk of {} is full")
        self.world.after(self.world.random.uniform(0.5, 4.0), lambda: self._make_room(host))

    def _make_room(self, host: BrokerHost) -> None:
        host.files.is_full = False
        self._tell(host, "there is room on the disk of {} again")

    def _set_clock(self) -> None:
        self._change_clock(self._one())

    def _change_clock(self, host: BrokerHost) -> None:
        change_ms = self.world.random.choice((-3_600_000, -1000, 1000, 60_000))
        self._clocks_were_set = self._clocks_were_set or change_ms > 1000
        self.met(host, "clock")
        host.set_clock(change_ms)
        self._tell(host, f"the clock of {{}} is set by {change_ms / 1000:g} s")

    def _member_gone(self) -> None:
        alive = [member for member in self._members if not member.process.is_dead]
        gone = self.world.random.choice(alive)
        self.world.tell("fault", f"{gone.process.name} is killed")
        gone.process.end()
        self._new_member()

    def _clients(self) -> list[Process]:
        return [
            process
            for process in (*(one.process for one in self._writers), *(one.process for one in self._members))
            if not process.is_dead
        ]

    def _cut_off(self) -> None:
        chosen, seconds = self.world.random.choice(self._clients()), self.world.random.uniform(1.0, 12.0)
        self.world.tell("fault", f"{chosen.name} is cut off for {seconds:.1f} s")
        self._network.cut_off(chosen, seconds)

    def _tree_killed(self) -> None:
        tree = self._tree
        if tree is None or not tree.is_ready:
            return
        for host in self.hosts:
            self.met(host, "tree killed")
        self.world.tell("fault", "the tree is killed")
        self._tree_incarnation += 1
        target = self._directory / f"tree-{self._tree_incarnation}"
        tree.killed(target)
        seconds = self.world.random.uniform(0.1, 8.0)
        self._tree_is_gone_for(seconds)
        self.world.after(seconds, lambda: self._start_tree(target))

    def _tree_is_gone_for(self, seconds: float) -> None:
        self._tree_gone_until = max(self._tree_gone_until, self.world.now + seconds + _TREE_BACK_SECONDS)

    def _tree_cut_off(self) -> None:
        if self._tree is None or not self._tree.is_ready:
            return
        seconds = self.world.random.uniform(0.5, 12.0)
        for host in self.hosts:
            self.met(host, "tree cut off")
        self.world.tell("fault", f"the tree is cut off for {seconds:.1f} s")
        self._tree_is_gone_for(seconds)
        self._network.cut_off(self._tree.process, seconds)

    def _heal(self) -> None:
        for host in self.hosts:
            host.heal()


@contextmanager
def _garbage_left_lying() -> Iterator[None]:
    """Switches garbage collection off in the `with` block. Collecting is not needed: objects of a simulation are
    either used until its end, or soon freed by their reference counts."""
    was_looked_for = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_looked_for:
            gc.enable()


@contextmanager
def simulation(
    seed: int,
    *,
    seconds: float = SECONDS,
    faults: int = FAULTS,
    tree_apart: bool = False,
    brokers: int = 1,
    is_synced: bool | None = None,
    min_in_sync: int | None = None,
    kind: type[Simulation] = Simulation,
) -> Iterator[Simulation]:
    """Gives the `with` block a simulation of the class `kind`. It uses a directory of its own, which is removed
    afterwards. `is_synced` (responses wait for a sync) and `min_in_sync` (min.insync.replicas) are chosen by the seed
    if they are None."""
    directory = Path(
        tempfile.mkdtemp(prefix="jesenska-simulation-", dir=_IN_MEMORY if Path(_IN_MEMORY).is_dir() else None)
    )
    with _garbage_left_lying():
        made = kind(
            seed,
            directory,
            seconds=seconds,
            faults=faults,
            tree_apart=tree_apart,
            brokers=brokers,
            is_synced=is_synced,
            min_in_sync=min_in_sync,
        )
        try:
            yield made
        finally:
            made.close()
            shutil.rmtree(directory, ignore_errors=True)
