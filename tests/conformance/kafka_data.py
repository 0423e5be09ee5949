"""What a broker holds, as clients see it: written into a real Apache Kafka, and read from any broker to be
compared."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

from jesenska.records import codec as records_codec  # noqa: F401 - the codec is chosen before others are read
from jesenska.records.header import Codec
from tests.old_requests import create, produce
from tests.raw_connection import RawConnection
from tests.units.records.old_messages import OLD_CODECS, Row, message_set

_client: Any = importlib.import_module("confluent_kafka")
_admin: Any = importlib.import_module("confluent_kafka.admin")

SECONDS = 30
_NOW_MS = int(time.time() * 1000) - 60_000
_ROWS: list[Row] = [(_NOW_MS + index, None if index % 3 == 0 else b"k%d" % index, b"v" * index) for index in range(7)]
_KEYS = 5
#: A release before 1.1 does not say where a value comes from, only whether it is a default.
_OWN_SOURCES = (_admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value, _admin.ConfigSource.UNKNOWN_CONFIG.value)


def fill(bootstrap: str, codecs: list[str], *, old_formats: bool = False, segment_bytes: int = 3000) -> None:
    """Every codec, formats of before 0.11 where the release keeps them, a compacted topic, transactions of each end
    and one without, groups' offsets."""
    admin = _admin.AdminClient({"bootstrap.servers": bootstrap})
    small = {"segment.bytes": str(segment_bytes), "index.interval.bytes": "300"}
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "10000",
        "delete.retention.ms": "0",
    }
    topics = [_admin.NewTopic(f"codec-{codec}", 2, 1, config=small) for codec in codecs]
    topics += [
        _admin.NewTopic("compacted", 1, 1, config=compacted),
        _admin.NewTopic("transactions", 1, 1, config=small),
        _admin.NewTopic("empty", 3, 1),
    ]
    for future in admin.create_topics(topics).values():
        future.result(SECONDS)
    for codec in codecs:
        producer = _client.Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "batch.num.messages": 20}
        )
        for number in range(120):
            producer.produce(
                f"codec-{codec}",
                b"value %d " % number * 5,
                b"key %d" % number,
                number % 2,
                headers=[("h", b"%d" % number)],
            )
        producer.flush(SECONDS)
    _transactions(bootstrap)
    _compact(bootstrap)
    if old_formats:
        _old_formats(bootstrap)
    for group, offsets in (("readers", {0: 7, 1: 9}), ("others", {1: 3})):
        consumer = _client.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        consumer.commit(
            offsets=[_client.TopicPartition(f"codec-{codecs[0]}", at, offset) for at, offset in offsets.items()],
            asynchronous=False,
        )
        consumer.close()


def _transactions(bootstrap: str) -> None:
    producer = _client.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "writer", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(SECONDS)
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.produce("transactions", b"%d of transaction %d" % (index, number), partition=0)
        producer.flush(SECONDS)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(SECONDS)
    producer.begin_transaction()
    producer.produce("transactions", b"never decided", partition=0)
    producer.flush(SECONDS)


def _compact(bootstrap: str) -> None:
    producer = _client.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(40):
        producer.produce(
            "compacted",
            None if number == 20 else b"value %d" % number,
            b"key %d" % (number % _KEYS),
            0,
            timestamp=_NOW_MS - 1_000_000 + 10_000 * number,
        )
        producer.flush(SECONDS)


def _old_formats(bootstrap: str) -> None:
    with RawConnection(bootstrap) as connection:
        for magic, release in ((0, "0.9.0"), (1, "0.10.2")):
            for codec in OLD_CODECS:
                topic = create(connection, f"format-{magic}-{codec.name.lower()}", message_format_version=release)
                for _ in range(3):
                    assert produce(connection, topic, 2 * magic, message_set(_ROWS, magic, codec)).error_code == 0
        topic = create(
            connection, "format-1-append", message_format_version="0.10.2", message_timestamp_type="LogAppendTime"
        )
        for codec in (Codec.NONE, Codec.GZIP, Codec.NONE):
            assert produce(connection, topic, 2, message_set(_ROWS, 1, codec)).error_code == 0


def until_compacted(directory: Path) -> None:
    """Until Kafka's cleaner has been through the compacted topic once."""
    deadline = time.monotonic() + 60
    checkpoint = directory / "cleaner-offset-checkpoint"
    while not (checkpoint.exists() and "compacted 0 " in checkpoint.read_text()):
        assert time.monotonic() < deadline, "nothing was compacted"
        time.sleep(0.05)


def until_known(bootstrap: str, topics: int) -> None:
    """Until a broker that has started tells clients of so many topics."""
    admin = _admin.AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + SECONDS
    while len(admin.list_topics(timeout=SECONDS).topics) < topics:
        assert time.monotonic() < deadline, "the topics are not there"
        time.sleep(0.05)


def everything(bootstrap: str) -> dict[str, Any]:
    """Topics with their partitions, all records (of both isolation levels), the groups with their offsets, and the
    settings of each topic that are its own."""
    admin = _admin.AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.list_topics(timeout=SECONDS).topics
    partitions = {name: sorted(topic.partitions) for name, topic in topics.items()}
    shown = [name for name in partitions if not name.startswith("__")]
    told: dict[str, Any] = {"partitions": partitions}
    for isolation in ("read_uncommitted", "read_committed"):
        told[isolation] = _records(
            bootstrap, {(name, partition) for name in shown for partition in partitions[name]}, isolation
        )
    groups = sorted(group.group_id for group in admin.list_consumer_groups().result(SECONDS).valid)
    told["groups"] = {group: _offsets(bootstrap, group, {name: partitions[name] for name in shown}) for group in groups}
    resources = [_admin.ConfigResource("topic", name) for name in shown]
    told["settings"] = {
        resource.name: {
            entry.name: entry.value
            for entry in future.result(SECONDS).values()
            if entry.source in _OWN_SOURCES and not entry.is_default
        }
        for resource, future in admin.describe_configs(resources).items()
    }
    return told


def _records(bootstrap: str, partitions: set[tuple[str, int]], isolation: str) -> dict[tuple[str, int], list[Any]]:
    """All records by topic and partition. A record of the oldest format has no time, which brokers tell in two
    ways."""
    settings = {
        "group.id": "unused",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = _client.Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([_client.TopicPartition(*at, 0) for at in partitions])
    found: dict[tuple[str, int], list[Any]] = {at: [] for at in sorted(partitions)}
    left = set(partitions)
    deadline = time.monotonic() + SECONDS
    while left:
        assert time.monotonic() < deadline, left
        message = consumer.poll(1)
        if message is None:
            continue
        at = (message.topic(), message.partition())
        if message.error() is not None:
            assert message.error().code() == _client.KafkaError._PARTITION_EOF, message.error()
            left.discard(at)
            continue
        kind, timestamp_ms = message.timestamp()
        when = (kind, timestamp_ms) if kind and timestamp_ms >= 0 else None
        found[at].append((message.offset(), when, message.key(), message.value(), message.headers()))
    consumer.close()
    return found


def _offsets(bootstrap: str, group: str, topics: dict[str, list[int]]) -> dict[str, int]:
    consumer = _client.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [_client.TopicPartition(name, partition) for name, partitions in topics.items() for partition in partitions]
    found = {
        f"{item.topic}-{item.partition}": item.offset for item in consumer.committed(asked, SECONDS) if item.offset >= 0
    }
    consumer.close()
    return found


def add(bootstrap: str) -> None:
    """A topic, records and a group more."""
    admin = _admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([_admin.NewTopic("added", 2, 1, config={"retention.ms": "-1"})])["added"].result(SECONDS)
    producer = _client.Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4"})
    for number in range(50):
        producer.produce("added", b"value %d" % number, b"key", number % 2)
        producer.produce("codec-none", b"more %d" % number, b"key", number % 2)
    producer.flush(SECONDS)
    consumer = _client.Consumer({"bootstrap.servers": bootstrap, "group.id": "newcomers", "enable.auto.commit": False})
    consumer.commit(offsets=[_client.TopicPartition("added", 0, 11)], asynchronous=False)
    consumer.close()
