"""Many partitions on three brokers, each with two replicas: created, one broker lost (kill -9) and back.

    python -m bench.many_partitions_several [--rounds 1] [--sides jesenska,kafka] [--scale 0.1] [--output json]

    create       topics of 100 partitions: until every broker tells of a leader of each; how many each broker leads
    a record     to each partition, acks=all
    quiet        nothing happens for ten seconds
    metadata     everything is asked for, of each broker in turn
    kill         kill -9 of a broker that is not the controller, then of the one that is: until those that are left
                 tell that one of them leads each partition
    back         it is started again: until all tell that all replicas are in sync
    preferred    ElectLeaders for all: until all tell that the first replica leads each partition

With each of them how late the loop of jesenska's brokers was meanwhile: p99 and the longest of the broker that was
latest. What is asked meanwhile is one topic at a time, so that asking is not what is measured. jesenska's brokers are
started each by itself, beside their tree; all have the settings that they have by themselves, but for those of the
internal topics. The data are best in memory: --dir /dev/shm.

`--profile cprofile` writes what jesenska's loops did in each row (`--profiles`); figures are then worth nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.cluster.view import PartitionView, view_of
from tests.peers.apache_kafka import ApacheKafka, java_command, wait_for_port
from tests.raw_connection import ClosedByBrokerError, RawConnection

from bench import options as common
from bench.brokers import KAFKA
from bench.figures import Figures, cpu, resident_mb
from bench.machine import end_in_order
from bench.needs import kafka, require
from bench.raw_clients import PRODUCE_VERSION
from bench.unfinished import Unfinished
from jesenska.base.errors import ErrorCode
from jesenska.records.encode import encode_batch
from jesenska.testing import BrokerProcess
from jesenska.testing.tree import TreeProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse

BROKERS, REPLICAS = 3, 2
PARTITIONS, _PARTITIONS_OF_TOPIC, _TOPICS_AT_ONCE = 15_500, 100, 10
ROWS = ("create", "a record", "quiet", "metadata", "kill", "kill controller", "preferred")
_METADATA_VERSION, _CREATE_VERSION, _ELECT_VERSION = 12, 5, 2
_ANSWER_SECONDS, _WAIT_SECONDS, _LOOK_SECONDS, _QUIET_SECONDS = 120.0, 180.0, 0.05, 10.0


# --- clusters --------------------------------------------------------------------------------------------------------


class Side(Protocol):
    """A cluster of three brokers, by number."""

    addresses: dict[int, str]

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def pid_of(self, number: int) -> int: ...

    def kill_one(self, number: int) -> None:
        """kill -9."""
        ...

    def start_one(self, number: int) -> None:
        """Starts a killed broker again; returns when clients can connect."""
        ...

    def lateness_ms(self, number: int) -> tuple[float, float] | None:
        """The lateness of the broker's loop since the last call or its start: p99, the longest; None without such a
        figure."""
        ...

    def turn_profiles(self, numbers: list[int], row: str) -> None:
        """Begins profiles of these brokers, or ends them if they were begun."""
        ...


class Ours:
    """jesenska's brokers beside a tree."""

    def __init__(self, directory: Path, profiles: Path | None) -> None:
        self._directory, self._profiles = directory, profiles
        traced = {"JESENSKA_PROFILE": str(directory / "profile-tree")}
        self._tree = TreeProcess(directory, {"tickTime": "2000"}, module=_module("tree", profiles), environment=traced)
        self._brokers: dict[int, BrokerProcess] = {}
        self._in_profile: dict[int, BrokerProcess] = {}
        self.addresses: dict[int, str] = {}

    def start(self) -> None:
        self._tree.start()
        settings = {"zookeeper.connect": self._tree.address, "offsets.topic.replication.factor": str(BROKERS)}
        for number in range(1, BROKERS + 1):
            self._brokers[number] = BrokerProcess(
                self._directory / f"data-{number}",
                settings={**settings, "broker.id": str(number)},
                environment={"JESENSKA_PROFILE": str(self._raw(number))},
                module=_module("broker", self._profiles),
            )
        with ThreadPoolExecutor(BROKERS) as starting:
            list(starting.map(lambda broker: broker.start(), self._brokers.values()))
        self.addresses = {number: broker.address for number, broker in self._brokers.items()}

    def stop(self) -> None:
        for process in (*self._brokers.values(), self._tree):
            process.stop()

    def pid_of(self, number: int) -> int:
        return self._brokers[number].pid

    def kill_one(self, number: int) -> None:
        self._brokers[number].kill()

    def start_one(self, number: int) -> None:
        self._brokers[number].start()

    def lateness_ms(self, number: int) -> tuple[float, float] | None:
        broker = self._brokers[number]
        told = broker.log.count("\nfigures {")
        os.kill(broker.pid, signal.SIGUSR1)
        while broker.log.count("\nfigures {") == told:
            time.sleep(0.005)
        lag = json.loads(broker.log.rpartition("\nfigures ")[2].partition("\n")[0])["loop_lag_ms"]
        return lag["p99"], lag["max"]

    def turn_profiles(self, numbers: list[int], row: str) -> None:
        if self._profiles is None:
            return
        ends = bool(self._in_profile)
        for number in list(self._in_profile) or numbers:
            self._raw(number).unlink(missing_ok=True)
            self._in_profile[number] = self._brokers[number]
            os.kill(self.pid_of(number), signal.SIGUSR2)
        if not ends:
            return
        for number in self._in_profile:
            while not self._raw(number).exists():
                time.sleep(0.01)
            shutil.move(self._raw(number), self._profiles / f"{re.sub(r'[^a-z]+', '-', row)}-{number}.txt")
        self._in_profile.clear()

    def _raw(self, number: int) -> Path:
        return self._directory / f"profile-{number}"


def _module(kind: str, profiles: Path | None) -> str:
    plain = {"tree": "jesenska.cli.zookeeper.zookeeper_server_start", "broker": "jesenska"}
    return {"tree": "bench.profiled_tree", "broker": "bench.profiled"}[kind] if profiles is not None else plain[kind]


class Theirs:
    """Apache Kafka's brokers, each a controller, too."""

    def __init__(self, directory: Path, profiles: Path | None) -> None:
        self._kafka = ApacheKafka(KAFKA, directory, nodes=BROKERS)
        self.addresses: dict[int, str] = {}

    def start(self) -> None:
        self._kafka.start()
        first = min(view_of(self._kafka.bootstrap.split(",")[0]).brokers)
        self.addresses = dict(enumerate(self._kafka.bootstrap.split(","), first))
        self._first = first

    def stop(self) -> None:
        self._kafka.stop()

    def pid_of(self, number: int) -> int:
        return self._kafka.pids[number - self._first]

    def kill_one(self, number: int) -> None:
        self._kafka.brokers[number - self._first].kill()

    def start_one(self, number: int) -> None:
        index = number - self._first
        self._kafka.brokers[index].wait(_WAIT_SECONDS)
        log = self._kafka.directory / f"broker-{index}.log"
        command = java_command(KAFKA, "kafka.Kafka", str(self._kafka.directory / f"broker-{index}.properties"))
        self._kafka.brokers[index] = self._kafka._spawn(f"broker-{index}", command)
        wait_for_port(self._kafka.ports[index], self._kafka.brokers[index], log)

    def lateness_ms(self, number: int) -> tuple[float, float] | None:
        return None

    def turn_profiles(self, numbers: list[int], row: str) -> None:
        pass


SIDES: Mapping[str, Callable[[Path, Path | None], Side]] = {"jesenska": Ours, "kafka": Theirs}


# --- answers of brokers
# ------------------------------------------------------------------------------------------------


class Cluster:
    """A side with its topics. `up`: numbers of the brokers that are up."""

    def __init__(self, side: Side, figures: Figures, scale: float) -> None:
        self.side, self.figures = side, figures
        count = max(1, round(PARTITIONS * scale / _PARTITIONS_OF_TOPIC))
        self.topics = [f"topic-{number}" for number in range(count)]
        self.up = list(side.addresses)

    @property
    def partitions(self) -> int:
        return len(self.topics) * _PARTITIONS_OF_TOPIC

    def until(self, is_so: Callable[[PartitionView], bool]) -> None:
        """Returns when each broker that is up reports a view of each partition for which `is_so`."""
        with ThreadPoolExecutor(BROKERS) as asking:
            list(asking.map(lambda number: self._until_told(number, is_so), self.up))

    def _until_told(self, number: int, is_so: Callable[[PartitionView], bool]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        with RawConnection(self.side.addresses[number], _ANSWER_SECONDS) as connection:
            for topic in self.topics:
                while not _holds(found := _told(connection, topic), is_so):
                    if time.monotonic() > deadline:
                        raise SystemExit(
                            f"after {_WAIT_SECONDS:g} s broker {number} tells of {topic}: "
                            f"{[view for view in found if not is_so(view)][:3]}"
                        )
                    time.sleep(_LOOK_SECONDS)

    def until_in_sync(self) -> None:
        self.until(lambda view: view.is_whole)

    def controller(self) -> int:
        with RawConnection(self.side.addresses[self.up[0]], _ANSWER_SECONDS) as connection:
            return connection.ask(MetadataRequest(topics=[]), _METADATA_VERSION, MetadataResponse).controller_id

    def add(self, row: str, unit: str, value: float) -> None:
        self.figures.add(f"{self.partitions:,} partitions: {row}", unit, value)

    @contextmanager
    def measured(self, row: str) -> Iterator[None]:
        """Measures the block: seconds, CPU time, and the lateness of the loops of brokers that are up before and after
        it."""
        for number in self.up:
            self.side.lateness_ms(number)
        before = {number: cpu(self.side.pid_of(number)).total for number in self.up}
        self.side.turn_profiles(self.up, row)
        begun = time.monotonic()
        yield
        seconds = time.monotonic() - begun
        self.side.turn_profiles([], row)
        self.add(row, "s", seconds)
        self.add(
            row,
            "brokers' CPU s",
            sum(cpu(self.side.pid_of(number)).total - before.get(number, 0.0) for number in self.up),
        )
        late = [found for number in self.up if (found := self.side.lateness_ms(number)) is not None]
        if late:
            self.add(row, "loop late p99 ms", max(p99 for p99, _ in late))
            self.add(row, "loop late max ms", max(longest for _, longest in late))

    def memory(self, row: str) -> None:
        self.add(row, "MB of the largest broker", max(resident_mb(self.side.pid_of(number)) for number in self.up))


def _told(connection: RawConnection, topic: str) -> list[PartitionView]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer = connection.ask(request, _METADATA_VERSION, MetadataResponse)
    return [
        PartitionView(item.leader_id, item.leader_epoch, tuple(item.replica_nodes), tuple(sorted(item.isr_nodes)))
        for item in sorted(answer.topics[0].partitions, key=lambda item: item.partition_index)
    ]


def _holds(views: list[PartitionView], is_so: Callable[[PartitionView], bool]) -> bool:
    return len(views) == _PARTITIONS_OF_TOPIC and all(map(is_so, views))


# --- rows ------------------------------------------------------------------------------------------------------------


def create(cluster: Cluster) -> None:
    cluster.memory("at the beginning")
    with (
        cluster.measured("create"),
        RawConnection(cluster.side.addresses[cluster.controller()], _ANSWER_SECONDS) as connection,
    ):
        for start in range(0, len(cluster.topics), _TOPICS_AT_ONCE):
            wanted = [
                CreateTopicsRequestTopic(name=name, num_partitions=_PARTITIONS_OF_TOPIC, replication_factor=REPLICAS)
                for name in cluster.topics[start : start + _TOPICS_AT_ONCE]
            ]
            answer = connection.ask(
                CreateTopicsRequest(topics=wanted, timeout_ms=100_000), _CREATE_VERSION, CreateTopicsResponse
            )
            if codes := {topic.error_code for topic in answer.topics if topic.error_code}:
                raise SystemExit(f"the topics are refused: {codes}")
        cluster.until_in_sync()
    cluster.memory("create")
    _evenness(cluster, "create")


def _evenness(cluster: Cluster, row: str) -> None:
    led = dict.fromkeys(cluster.side.addresses, 0) | _leaders(cluster)
    cluster.add(row, "leaders: most - fewest", max(led.values()) - min(led.values()))


def _leaders(cluster: Cluster) -> Counter[int]:
    with RawConnection(cluster.side.addresses[cluster.up[0]], _ANSWER_SECONDS) as connection:
        return Counter(view.leader for topic in cluster.topics for view in _told(connection, topic))


def a_record(cluster: Cluster) -> None:
    batch = encode_batch([(int(time.time() * 1000), None, bytes(100), ())])
    with RawConnection(cluster.side.addresses[cluster.up[0]], _ANSWER_SECONDS) as connection:
        led = {topic: [view.leader for view in _told(connection, topic)] for topic in cluster.topics}

    def write(number: int) -> None:
        with RawConnection(cluster.side.addresses[number], _ANSWER_SECONDS) as connection:
            for topic, leaders in led.items():
                parts = [
                    ProduceRequestPartition(index=index, records=batch)
                    for index, leader in enumerate(leaders)
                    if leader == number
                ]
                request = ProduceRequest(
                    acks=-1, timeout_ms=60_000, topic_data=[ProduceRequestTopic(name=topic, partition_data=parts)]
                )
                answer = connection.ask(request, PRODUCE_VERSION, ProduceResponse)
                if codes := {item.error_code for item in answer.responses[0].partition_responses if item.error_code}:
                    raise SystemExit(f"records are refused: {codes}")

    with cluster.measured("a record to each"), ThreadPoolExecutor(BROKERS) as writing:
        list(writing.map(write, cluster.up))


def quiet(cluster: Cluster) -> None:
    with cluster.measured("quiet"):
        time.sleep(_QUIET_SECONDS)


def metadata(cluster: Cluster) -> None:
    with cluster.measured("all metadata, of each broker"):
        for number in cluster.up:
            view_of(cluster.side.addresses[number], _ANSWER_SECONDS)


def kill(cluster: Cluster, *, controls: bool = False) -> None:
    who = "the controller" if controls else "a broker"
    controller = cluster.controller()
    number = controller if controls else next(one for one in cluster.up if one != controller)
    cluster.up.remove(number)
    with cluster.measured(f"kill -9 of {who}"):
        cluster.side.kill_one(number)
        cluster.until(lambda view: view.leader in cluster.up)
    cluster.memory(f"kill -9 of {who}")
    with cluster.measured(f"{who} is back"):
        cluster.side.start_one(number)
        _wait_until_known(cluster, number)
        cluster.up.append(number)
        cluster.up.sort()
        cluster.until_in_sync()
    cluster.memory(f"{who} is back")


def _wait_until_known(cluster: Cluster, number: int) -> None:
    """Waits until the started broker answers."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            with RawConnection(cluster.side.addresses[number], _ANSWER_SECONDS) as connection:
                connection.ask(MetadataRequest(topics=[]), _METADATA_VERSION, MetadataResponse)
            return
        except (OSError, ClosedByBrokerError):
            time.sleep(_LOOK_SECONDS)
    raise SystemExit(f"broker {number} does not answer")


def preferred(cluster: Cluster) -> None:
    with cluster.measured("preferred leaders"):
        with RawConnection(cluster.side.addresses[cluster.controller()], _ANSWER_SECONDS) as connection:
            request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=100_000)
            answer = connection.ask(request, _ELECT_VERSION, ElectLeadersResponse)
            if answer.error_code != ErrorCode.NONE:
                raise SystemExit(f"no election: {answer.error_code}")
        cluster.until(lambda view: view.leader == view.replicas[0])
    _evenness(cluster, "preferred leaders")


_DO: Mapping[str, Callable[[Cluster], None]] = {
    "create": create,
    "a record": a_record,
    "quiet": quiet,
    "metadata": metadata,
    "kill": kill,
    "kill controller": lambda cluster: kill(cluster, controls=True),
    "preferred": preferred,
}


def run(side: Side, figures: Figures, rows: list[str], scale: float) -> None:
    """One round. The topics are created in any case."""
    try:
        side.start()
        cluster = Cluster(side, figures, scale)
        for row in ROWS:
            if row in rows or row == "create":
                _DO[row](cluster)
    finally:
        side.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = common.parser_of(str(__doc__), list(SIDES), rounds=1)
    common.add_broker_options(parser)
    parser.set_defaults(sides="jesenska")
    options = parser.parse_args(arguments)
    end_in_order()
    words = [word for word in options.rows.split(";") if word]
    rows = [row for row in ROWS if not words or any(word in row for word in words)]
    if common.only_lists(options, rows):
        return 0
    names = options.sides.split(",")
    require("many_partitions_several", [*(kafka(KAFKA) if "kafka" in names else ()), *common.needs_of_profile(options)])
    unfinished = Unfinished("many_partitions_several")
    gathered = {name: Figures() for name in names}
    for number in range(options.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            with (
                unfinished.part(f"{name}, round {number + 1}"),
                tempfile.TemporaryDirectory(prefix="jesenska-partitions-bench-", dir=options.dir) as directory,
            ):
                run(
                    SIDES[name](Path(directory), options.profiles if options.profile else None),
                    gathered[name],
                    rows,
                    options.scale,
                )
    common.show(
        gathered,
        options,
        f"Apache Kafka {KAFKA}",
        f", {BROKERS} brokers, replication factor {REPLICAS}, scale {options.scale:g}",
    )
    return unfinished.exit_code()


if __name__ == "__main__":
    raise SystemExit(main())
