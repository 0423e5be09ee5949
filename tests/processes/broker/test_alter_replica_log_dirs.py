"""AlterReplicaLogDirs against a running broker. Replicas move under load, and wrong requests get the answers of Apache
Kafka (tests/conformance/test_moves.py sends the same requests to it)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from jesenska.base.errors import ErrorCode, KafkaError, LogDirNotFoundError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.cluster.kafka_log_dirs import main as kafka_log_dirs
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, ConfigChange
from jesenska.client.administration.log_directory_administration import LogDirectory
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.testing import BrokerProcess
from jesenska.testing.faults import RecordedLoad, check, read_history
from jesenska.testing.faults.load import cluster_of
from jesenska.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from tests.raw_connection import RawConnection

pytestmark = pytest.mark.timeout(240)

_SECONDS = 60.0
_THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


def settings_of(path: Path, **more: str) -> dict[str, str]:
    return {
        "log.dirs": ",".join(str(path / name) for name in "abc"),
        "broker.id": "0",
        "log.segment.bytes": "100000",
        "log.segment.delete.delay.ms": "0",
        "num.partitions": "1",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, settings=settings_of(tmp_path), warm=True) as running:
        yield running


def asked(broker: BrokerProcess, work: Callable[[Admin], Awaitable[object]]) -> object:
    async def run() -> object:
        cluster = cluster_of(broker.bootstrap, "test")
        try:
            return await work(Admin(cluster))
        finally:
            await cluster.close()

    return asyncio.run(run())


def move(broker: BrokerProcess, topic: str, path: Path, partition: int = 0) -> KafkaError | None:
    key = TopicPartition(topic, partition)
    outcome = asked(broker, lambda admin: admin.alter_replica_log_dirs(0, {key: str(path)}))
    assert isinstance(outcome, dict)
    assert list(outcome) == [key]
    found = outcome[key]
    assert found is None or isinstance(found, KafkaError)
    return found


def described(broker: BrokerProcess) -> dict[str, LogDirectory]:
    found = asked(broker, lambda admin: admin.describe_log_dirs(0))
    assert isinstance(found, list)
    return {Path(item.path).name: item for item in found}


def home_of(broker: BrokerProcess, topic: str, partition: int = 0) -> str:
    """The directory of the replica that is not being moved."""
    key = TopicPartition(topic, partition)
    (name,) = (
        name for name, item in described(broker).items() if key in item.replicas and not item.replicas[key].is_future
    )
    return name


def until(is_true: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + _SECONDS
    while not is_true():
        assert time.monotonic() < ends, what
        time.sleep(0.02)


def alter(broker: BrokerProcess, **values: str) -> None:
    """Changes settings of the broker. They take effect a moment later."""
    changes = [ConfigChange(name.replace("_", "."), value) for name, value in values.items()]
    asked(broker, lambda admin: admin.alter_configs(BROKER, "0", changes))


def filled(broker: BrokerProcess, topic: str, records: int = 3000) -> None:
    assert asked(broker, lambda admin: admin.create_topics([NewTopic(topic, 1, 1)])) == {topic: None}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 20_000, "linger.ms": 2})
    for number in range(records):
        producer.produce(topic, str(number).encode().rjust(200, b"0"))
        producer.poll(0)
    assert producer.flush(_SECONDS) == 0


def delete(broker: BrokerProcess, topic: str) -> None:
    assert asked(broker, lambda admin: admin.delete_topics([topic])) == {topic: None}


def values_of(broker: BrokerProcess, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[int] = []
        ends = time.monotonic() + _SECONDS
        while len(found) < count and time.monotonic() < ends:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None
                found.append(int(message.value() or b""))
        return found
    finally:
        consumer.close()


def sub_directories(path: Path) -> dict[str, list[str]]:
    return {name: sorted(item.name.rpartition("-")[2] for item in (path / name).glob("t-0*")) for name in "abc"}


def test_replicas_go_round_three_directories_under_load_and_nobody_notices(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    load = RecordedLoad(broker.bootstrap, "t", tmp_path, partitions=3, replication_factor=1, members=1)
    load.start()
    load.wait_for(100)
    for round_number in range(4):
        for partition in range(3):
            home = home_of(broker, "t", partition)
            target = "abc"[("abc".index(home) + 1 + round_number % 2) % 3]
            assert move(broker, "t", tmp_path / target, partition) is None
        load.wait_for(60)
        until(
            lambda: all(
                not replica.is_future for item in described(broker).values() for replica in item.replicas.values()
            ),
            "moves end",
        )
    load.stop()
    assert check(read_history([load.path])) == []
    assert broker.log.count("has moved from") == 12
    assert "ERROR" not in broker.log
    assert "Traceback" not in broker.log


def test_a_copy_is_shown_while_it_is_on_its_way_and_throttled_while_running(
    tmp_path: Path, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(broker, "t")
    home = home_of(broker, "t")
    target = next(name for name in "abc" if name != home)
    alter(broker, **{_THROTTLE: "0"})
    assert move(broker, "t", tmp_path / target) is None
    key = TopicPartition("t", 0)
    replica, copy = described(broker)[home].replicas[key], described(broker)[target].replicas[key]
    assert (replica.is_future, replica.offset_lag, replica.size_bytes > 600_000) == (False, 0, True)
    assert (copy.is_future, copy.offset_lag, copy.size_bytes) == (True, 3000, 0)
    assert kafka_log_dirs(["--bootstrap-server", broker.bootstrap, "--describe"]) == 0
    assert '"offsetLag":3000,"isFuture":true' in capsys.readouterr().out
    os.kill(broker.pid, signal.SIGUSR1)
    until(lambda: "figures {" in broker.log, "figures")
    figures = json.loads(broker.log.rpartition("figures ")[2].splitlines()[0])
    moving = figures["moves"]["t-0"]
    assert (moving["state"], moving["from"], moving["to"], moving["offset_lag"]) == (
        "copying",
        str(tmp_path / home),
        str(tmp_path / target),
        3000,
    )
    alter(broker, **{_THROTTLE: "200000"})
    begun = time.monotonic()
    until(lambda: 0 < described(broker)[target].replicas[key].offset_lag < 3000, "the copy grows")
    until(lambda: not described(broker)[target].replicas[key].is_future, "the copy is the replica")
    assert time.monotonic() - begun > 2, "600 kB at 200 kB/s"
    assert values_of(broker, "t", 3000) == list(range(3000))
    until(lambda: sub_directories(tmp_path)[home] == [], "the old files are removed")


def test_so_many_replicas_are_copied_at_a_time_as_num_replica_alter_log_dirs_threads_says(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, **{"num.replica.alter.log.dirs.threads": "1", _THROTTLE: "0"})
    with BrokerProcess(tmp_path, settings=settings, warm=True) as broker:
        for topic in ("t", "u"):
            filled(broker, topic, 10)
        for topic in ("t", "u"):
            home = home_of(broker, topic)
            assert move(broker, topic, tmp_path / next(name for name in "abc" if name != home)) is None
        os.kill(broker.pid, signal.SIGUSR1)
        until(lambda: "figures {" in broker.log, "figures")
        figures = json.loads(broker.log.rpartition("figures ")[2].splitlines()[0])
        assert sorted(item["state"] for item in figures["moves"].values()) == ["copying", "waiting"]
        alter(broker, **{_THROTTLE: "100000000"})
        until(lambda: broker.log.count("has moved from") == 2, "one after the other")


@pytest.mark.crash
@pytest.mark.parametrize("killed", [True, False])
def test_a_start_goes_on_with_a_move(tmp_path: Path, broker: BrokerProcess, killed: bool) -> None:
    filled(broker, "t")
    home = home_of(broker, "t")
    target = next(name for name in "abc" if name != home)
    alter(broker, **{_THROTTLE: "300000"})
    assert move(broker, "t", tmp_path / target) is None
    key = TopicPartition("t", 0)
    until(lambda: described(broker)[target].replicas[key].size_bytes > 100_000, "the copy grows")
    if killed:
        broker.kill()
    else:
        assert broker.stop() == 0
    assert sub_directories(tmp_path)[target] == ["future"]
    broker.start()
    assert home_of(broker, "t") == home
    alter(broker, **{_THROTTLE: "100000000"})
    until(lambda: home_of(broker, "t") == target, "the move goes on")
    assert values_of(broker, "t", 3000) == list(range(3000))


def test_what_is_asked_for_wrongly_is_answered_partition_by_partition(tmp_path: Path, broker: BrokerProcess) -> None:
    long = "x" * 240
    for topic in ("t", long):
        filled(broker, topic, 1)
    wanted = [
        (str(tmp_path / "nope"), "t", 0),
        (str(tmp_path / "a") + "/", "t", 1),
        (str(tmp_path / "a"), "t", 7),
        (str(tmp_path / "a"), "t", -1),
        (str(tmp_path / "a"), "unknown", 0),
        (str(tmp_path / "a"), "", 0),
        (str(tmp_path / "a"), long, 0),
    ]
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequestDir(
                path=path, topics=[AlterReplicaLogDirsRequestTopic(name=name, partitions=[number])]
            )
            for path, name, number in wanted
        ]
    )
    for version in range(3):
        with RawConnection(broker.bootstrap) as connection:
            answer = connection.ask(request, version, AlterReplicaLogDirsResponse)
        found = {
            (topic.topic_name, item.partition_index): ErrorCode(item.error_code)
            for topic in answer.results
            for item in topic.partitions
        }
        assert found == {
            ("t", 0): ErrorCode.LOG_DIR_NOT_FOUND,
            ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (long, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
    assert isinstance(move(broker, "t", tmp_path / "nope"), LogDirNotFoundError)


def test_a_new_topic_is_made_where_it_was_wanted(tmp_path: Path, broker: BrokerProcess) -> None:
    for name in "cabcc":
        topic = f"made-{name}"
        assert move(broker, topic, tmp_path / name) is not None
        filled(broker, topic, 1)
        assert home_of(broker, topic) == name
        delete(broker, topic)


def test_a_topic_that_is_deleted_while_it_moves_is_gone_in_both_directories(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    filled(broker, "t", 100)
    home = home_of(broker, "t")
    target = next(name for name in "abc" if name != home)
    alter(broker, **{_THROTTLE: "0"})
    assert move(broker, "t", tmp_path / target) is None
    assert sub_directories(tmp_path)[target] == ["future"]
    delete(broker, "t")
    until(lambda: sub_directories(tmp_path) == {"a": [], "b": [], "c": []}, "everything is removed")


def test_nothing_comes_into_a_cordoned_directory(tmp_path: Path, broker: BrokerProcess) -> None:
    """The answers are those of Apache Kafka 4.3.1. The setting belongs to the broker, and changes while it runs."""
    filled(broker, "t", 1)
    alter(broker, **{"cordoned.log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"})
    until(
        lambda: {name for name, item in described(broker).items() if item.is_cordoned} == {"a", "b"},
        "they are cordoned",
    )
    for topic in ("u", "v", "w"):
        filled(broker, topic, 1)
        assert home_of(broker, topic) == "c"
    error = move(broker, "u", tmp_path / "a")
    assert error is not None
    assert error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    error = move(broker, "unknown", tmp_path / "a")
    assert error is not None
    assert error.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(
        KafkaError,
        match=r"All entries in cordoned\.log\.dirs must be present in log\.dirs or log\.dir\. Missing entries : /nope",
    ):
        alter(broker, **{"cordoned.log.dirs": "/nope"})
    alter(broker, **{"cordoned.log.dirs": "*"})
    until(lambda: all(item.is_cordoned for item in described(broker).values()), "all are cordoned")
    error = move(broker, "u", tmp_path / "c")
    assert error is not None
    alter(broker, **{"cordoned.log.dirs": ""})
    until(lambda: not any(item.is_cordoned for item in described(broker).values()), "none is cordoned")
    assert move(broker, "u", tmp_path / "a") is None
    until(lambda: home_of(broker, "u") == "a", "it moves")


def test_a_directory_that_goes_in_the_middle_takes_no_record_along(tmp_path: Path, broker: BrokerProcess) -> None:
    """The target disappears, and the replica stays in its directory. After the next start the target is back, and the
    move goes on."""
    filled(broker, "t")
    home = home_of(broker, "t")
    target = next(name for name in "abc" if name != home)
    alter(broker, **{_THROTTLE: "300000"})
    assert move(broker, "t", tmp_path / target) is None
    until(lambda: described(broker)[target].replicas[TopicPartition("t", 0)].size_bytes > 0, "the copy grows")
    (tmp_path / target).rename(tmp_path / "away")
    until(lambda: f"{tmp_path / target} is offline" in broker.log, "the directory is offline")
    assert home_of(broker, "t") == home
    assert values_of(broker, "t", 3000) == list(range(3000))
    error = move(broker, "t", tmp_path / target)
    assert error is not None
    assert error.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.stop() == 0
    shutil.move(tmp_path / "away", tmp_path / target)
    broker.start()
    alter(broker, **{_THROTTLE: "100000000"})
    until(lambda: home_of(broker, "t") == target, "the move goes on")
    assert values_of(broker, "t", 3000) == list(range(3000))
