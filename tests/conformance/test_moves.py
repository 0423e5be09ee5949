"""Moves of replicas between log directories, of Apache Kafka 3.9.1 (and 4.3.1, for cordoned directories) and of ours:
the same raw requests get the same answers and leave the replicas in the same directories. Each goes on with what the
other has begun, and kafka-reassign-partitions works with ours."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, Producer

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.testing import BrokerProcess
from jesenska.testing.faults.load import cluster_of
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from jesenska.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.tools import Tools
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

Answer = TypeVar("Answer")

_SECONDS = 60.0
_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
_RECORDS = 1000
_LONG = "x" * 240


@dataclass
class Side:
    """A broker with the directories a, b and c."""

    bootstrap: str
    path: Path

    def asked(self, work: Callable[[Admin], Awaitable[Answer]]) -> Answer:
        async def run() -> Answer:
            cluster = cluster_of(self.bootstrap, "test")
            try:
                return await work(Admin(cluster))
            finally:
                await cluster.close()

        return asyncio.run(run())

    def create(self, topic: str) -> KafkaError | None:
        return self.asked(lambda admin: admin.create_topics([NewTopic(topic, 1, 1)]))[topic]

    def delete(self, topic: str) -> None:
        assert self.asked(lambda admin: admin.delete_topics([topic])) == {topic: None}

    def fill(self, topic: str, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "batch.size": 10_000})
        for number in range(records):
            producer.produce(topic, str(number).encode().rjust(500, b"0"))
        assert producer.flush(_SECONDS) == 0

    def read(self, topic: str, records: int) -> list[int]:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": f"{records}", "auto.offset.reset": "earliest"}
        )
        found: list[int] = []
        try:
            consumer.subscribe([topic])
            ends = time.monotonic() + _SECONDS
            while len(found) < records and time.monotonic() < ends:
                found.extend(int(message.value() or b"") for message in consumer.consume(500, 1.0))
        finally:
            consumer.close()
        return found

    def configure(self, name: str, value: str) -> str:
        """What is wrong with it."""
        try:
            self.asked(lambda admin: admin.alter_configs(BROKER, "0", [ConfigChange(name, value)]))
        except KafkaError as error:
            return error.message.removeprefix("requirement failed: ").removesuffix(".")
        return ""

    def move(self, *wanted: tuple[str, str, int], version: int = 2) -> dict[str, str]:
        """What is answered, by partition."""
        dirs = [
            AlterReplicaLogDirsRequestDir(
                path=path, topics=[AlterReplicaLogDirsRequestTopic(name=name, partitions=[number])]
            )
            for path, name, number in wanted
        ]
        with RawConnection(self.bootstrap) as connection:
            answer = connection.ask(AlterReplicaLogDirsRequest(dirs=dirs), version, AlterReplicaLogDirsResponse)
        return {
            f"{topic.topic_name}-{item.partition_index}": ErrorCode(item.error_code).name
            for topic in answer.results
            for item in topic.partitions
        }

    def homes(self, topic: str) -> dict[str, bool]:
        """The directories that have a replica of the topic, and whether it is on its way."""
        with RawConnection(self.bootstrap) as connection:
            answer = connection.ask(DescribeLogDirsRequest(topics=None), 1, DescribeLogDirsResponse)
        return {
            Path(result.log_dir).name: replica.is_future_key
            for result in answer.results
            for item in result.topics
            for replica in item.partitions
            if item.name == topic
        }

    def cordoned(self) -> set[str]:
        with RawConnection(self.bootstrap) as connection:
            answer = connection.ask(DescribeLogDirsRequest(topics=None), 5, DescribeLogDirsResponse)
        return {Path(result.log_dir).name for result in answer.results if result.is_cordoned}

    def until(self, is_true: Callable[[], bool]) -> None:
        ends = time.monotonic() + _SECONDS
        while not is_true():
            assert time.monotonic() < ends, "it does not come to that"
            time.sleep(0.05)

    def settle(self, topic: str) -> str:
        """Where the replica is once nothing of it is on its way."""
        self.until(lambda: list(self.homes(topic).values()) == [False])
        return next(iter(self.homes(topic)))


def _settings(path: Path) -> dict[str, str]:
    return {
        "log.dirs": ",".join(str(path / name) for name in "abc"),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
    }


@contextmanager
def _kafka(release: str, path: Path) -> Iterator[Side]:
    need("java", "mvn")
    with ApacheKafka(
        release, path / "kafka", zookeeper=release.startswith("3"), heap="384m", settings=_settings(path)
    ) as peer:
        yield Side(peer.bootstrap, path)


@contextmanager
def _ours(path: Path) -> Iterator[Side]:
    with BrokerProcess(path, settings={**_settings(path), "broker.id": "0"}, warm=True) as broker:
        yield Side(broker.bootstrap, path)


def _answers(side: Side) -> list[Any]:
    """Everything that is asked, and what is answered; directories are called as seen from where the replica is."""
    told: list[Any] = []
    for topic in ("t", "u", _LONG):
        assert side.create(topic) is None
    side.fill("t", _RECORDS)
    side.fill("u", 1)
    paths = {name: str(side.path / name) for name in "abc"}
    told.extend(side.move(("/nope", "t", 0), version=version) for version in (0, 1, 2))
    told.append(side.move((paths["a"] + "/", "t", 0)))
    told.append(side.move((paths["a"], "t", 7)))
    told.append(side.move((paths["a"], "t", -1)))
    told.append(side.move((paths["a"], "unknown", 0)))
    told.append(side.move((paths["a"], "a/b", 0), (paths["b"], "", 0)))
    told.append(side.move((paths["a"], _LONG, 0)))
    told.append(side.move(("/nope", _LONG, 0)))
    told.append(side.move(("/nope", "", 0), (paths["a"], "u", 0), (paths["b"], "u", 0)))
    told.append(side.settle("u"))
    told.append(side.move((paths["c"], "u", 0)))
    told.append(side.settle("u"))
    told.append(side.move())
    # One to each directory, one after the other, while nothing is copied but slowly.
    assert side.configure(_THROTTLE, "1") == ""
    home = side.settle("t")
    first, second = (name for name in "abc" if name != home)
    side.until(lambda: _is_slow(side, paths[first], first))
    here = {home: "home", first: "first", second: "second"}

    def look() -> dict[str, bool]:
        return {here[name]: is_future for name, is_future in side.homes("t").items()}

    told.append(look())
    told.append((side.move((paths[first], "t", 0)), look()))
    told.append((side.move((paths[second], "t", 0)), look()))
    told.append((side.move((paths[home], "t", 0)), look()))
    told.append((side.move((paths[home], "t", 0)), look()))
    told.append((side.move((paths[first], "t", 0)), look()))
    side.delete("t")
    side.until(lambda: side.homes("t") == {})
    for name in "cab":
        told.append(side.move((paths[name], f"new-{name}", 0)))
        assert side.create(f"new-{name}") is None
        told.append(side.settle(f"new-{name}"))
    return told


def _is_slow(side: Side, path: str, name: str) -> bool:
    """Apache Kafka applies its throttle a moment after it has been told; the first move may still be fast, and then it
    is back where it was."""
    home = side.settle("t")
    side.move((path, "t", 0))
    time.sleep(0.3)
    is_slow = len(side.homes("t")) == 2
    if not is_slow:
        side.settle("t")
    side.move((str(side.path / home), "t", 0))
    side.until(lambda: side.homes("t") == {home: False})
    return is_slow and home != name


def test_the_same_is_answered_and_done_as_by_apache_kafka(tmp_path: Path) -> None:
    with _ours(tmp_path / "ours") as side:
        ours = _answers(side)
    with _kafka("3.9.1", tmp_path / "theirs") as side:
        theirs = _answers(side)
    assert ours == theirs


def _cordoned_answers(side: Side) -> list[Any]:
    told: list[Any] = []
    paths = {name: str(side.path / name) for name in "abc"}
    assert side.create("t") is None
    home = side.settle("t")
    other = next(name for name in "abc" if name != home)
    told.append(side.configure("cordoned.log.dirs", "/nope,/neither"))
    assert side.configure("cordoned.log.dirs", f"{paths[home]},{paths[other]}") == ""
    side.until(lambda: side.cordoned() == {home, other})
    told.append([side.move((paths[name], "t", 0)) for name in (home, other)])
    told.append(side.move((paths[other], "unknown", 0)))
    (free,) = (name for name in "abc" if name not in (home, other))
    for topic in ("u", "v"):
        assert side.create(topic) is None
        assert side.settle(topic) == free
    told.append(side.move((paths[free], "t", 0)))
    assert side.settle("t") == free
    assert side.configure("cordoned.log.dirs", "*") == ""
    side.until(lambda: side.cordoned() == {"a", "b", "c"})
    told.append([side.move((paths[name], "t", 0)) for name in (free, home)])
    assert side.configure("cordoned.log.dirs", "") == ""
    side.until(lambda: not side.cordoned())
    told.append(side.move((paths[home], "t", 0)))
    assert side.settle("t") == home
    return told


def test_cordoned_directories_are_as_with_apache_kafka_4(tmp_path: Path) -> None:
    with _ours(tmp_path / "ours") as side:
        ours = _cordoned_answers(side)
    with _kafka("4.3.1", tmp_path / "theirs") as side:
        theirs = _cordoned_answers(side)
    assert ours == theirs


def test_each_goes_on_with_a_move_that_the_other_has_begun(tmp_path: Path) -> None:
    need("java", "mvn")
    (tmp_path / "tree").mkdir()
    settings = _settings(tmp_path)
    with ExitStack() as stack:
        tree = stack.enter_context(ServedTree(tmp_path / "tree" / "tree.db"))
        broker = BrokerProcess(
            tmp_path,
            settings={**settings, "broker.id": "0", "zookeeper.connect": tree.address, "log.segment.bytes": "100000"},
        )
        with broker:
            side = Side(broker.bootstrap, tmp_path)
            assert side.create("t") is None
            side.fill("t", _RECORDS)
            home = side.settle("t")
            target = next(name for name in "abc" if name != home)
            assert side.configure(_THROTTLE, "150000") == ""
            assert side.move((str(tmp_path / target), "t", 0)) == {"t-0": "NONE"}
            side.until(lambda: len(list((tmp_path / target).glob("t-0.*-future/*.log"))) > 1)
            assert side.configure(_THROTTLE, "0") == ""
            assert broker.stop() == 0
        assert [path.name.rpartition("-")[2] for path in (tmp_path / target).glob("t-0*")] == ["future"]
        settings |= {_THROTTLE: "100000000"}
        with ApacheKafka(
            "3.9.1", tmp_path / "kafka", zookeeper_connect=tree.address, first_id=0, heap="384m", settings=settings
        ) as peer:
            theirs = Side(peer.bootstrap, tmp_path)
            theirs.configure(_THROTTLE, "100000000")
            theirs.until(lambda: theirs.homes("t") == {target: False})
            assert theirs.read("t", _RECORDS) == list(range(_RECORDS))
            assert theirs.configure(_THROTTLE, "1000") == ""
            time.sleep(1.0)
            assert theirs.move((str(tmp_path / home), "t", 0)) == {"t-0": "NONE"}
            theirs.fill("t", 10)
        left = [path.name.rpartition("-")[2] for path in (tmp_path / home).glob("t-0.*-future")]
        with broker:
            side = Side(broker.bootstrap, tmp_path)
            side.configure(_THROTTLE, "100000000")
            side.until(lambda: side.homes("t") == {home: False})
            assert [int(value) for value in side.read("t", _RECORDS + 10)] == [*range(_RECORDS), *range(10)]
        assert left == ["future"], "Apache Kafka was stopped in the middle of its move"


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1"])
def test_kafka_reassign_partitions_moves_replicas_between_our_directories(tmp_path: Path, release: str) -> None:
    need("java", "mvn")
    with _ours(tmp_path / "ours") as side, Tools(release) as tools:
        assert side.create("t") is None
        side.fill("t", 100)
        home = side.settle("t")
        target = next(name for name in "abc" if name != home)
        plan = tmp_path / "plan.json"
        wanted = {"topic": "t", "partition": 0, "replicas": [0], "log_dirs": [str(side.path / target)]}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        arguments = ("--bootstrap-server", side.bootstrap, "--reassignment-json-file", plan)
        said = tools.run(
            "kafka-reassign-partitions", *arguments, "--execute", "--replica-alter-log-dirs-throttle", 50_000_000
        )
        assert f"to {side.path / target} for replica t-0 with broker 0" in said.output, said
        assert side.settle("t") == target
        said = tools.run("kafka-reassign-partitions", *arguments, "--verify")
        assert "Reassignment of replica t-0-0 completed successfully." in said.output, said
        assert side.read("t", 100) == list(range(100))
