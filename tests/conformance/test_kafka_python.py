"""kafka-python against the broker: topics, every codec it has, offsets by time, settings, deletion."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import WRITTEN, need_modules
from tests.conformance.disk import batches, codecs

pytestmark = pytest.mark.conformance

need_modules("kafka")

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 advises against.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, NewTopic, OffsetSpec
    from kafka.errors import OffsetOutOfRangeError, TopicAlreadyExistsError, UnknownTopicOrPartitionError


def _need(codec: Codec) -> None:
    """Snappy needs a package of its own there."""
    if codec == Codec.SNAPPY:
        need_modules("snappy")


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def _create(admin: Any, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])


def _read(broker: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=None,
        consumer_timeout_ms=20_000,
        check_crcs=True,
        auto_offset_reset="none",
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), offset)
        found: list[Any] = []
        for record in consumer:
            found.append(record)
            if len(found) == count:
                break
        return found
    finally:
        consumer.close()


def _write(broker: BrokerProcess, topic: str, records: list[tuple[bytes, bytes]], **settings: Any) -> list[Any]:
    """Where the records went, in order."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    try:
        futures = [
            producer.send(topic, value, key, partition=0, timestamp_ms=1_000 + number)
            for number, (key, value) in enumerate(records)
        ]
        producer.flush(30)
        return [future.get(30) for future in futures]
    finally:
        producer.close()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_written_in_each_codec_stand_so_on_disk_and_are_read_back(
    broker: BrokerProcess, admin: Any, codec: Codec, idempotent: bool
) -> None:
    _need(codec)
    topic = f"kafka-python-{codec.name.lower()}-{idempotent}"
    _create(admin, topic, retention_ms="-1")
    name = None if codec == Codec.NONE else codec.name.lower()
    written = _write(
        broker,
        topic,
        WRITTEN,
        compression_type=name,
        enable_idempotence=idempotent,
        acks="all" if idempotent else 1,
        linger_ms=60_000,
    )
    assert [metadata.offset for metadata in written] == list(range(len(WRITTEN)))
    assert codecs(broker.data, topic) == {codec}
    assert all(header.has_producer_id == idempotent for header in batches(broker.data, topic))
    found = _read(broker, topic, len(WRITTEN))
    assert [(record.key, record.value) for record in found] == WRITTEN
    assert [record.timestamp for record in found] == list(range(1_000, 1_000 + len(WRITTEN)))


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_our_client_writes_is_read(broker: BrokerProcess, written_by_us: dict[Codec, str], codec: Codec) -> None:
    _need(codec)
    found = _read(broker, written_by_us[codec], len(WRITTEN))
    assert [(record.key, record.value, [tuple(header) for header in record.headers]) for record in found] == [
        (key, value, [("number", b"%d" % number)]) for number, (key, value) in enumerate(WRITTEN)
    ]


def test_offsets_are_found_by_time(broker: BrokerProcess, admin: Any) -> None:
    _create(admin, "kafka-python-times", retention_ms="-1")
    _write(broker, "kafka-python-times", WRITTEN[:100])  # timestamps 1000 to 1099
    key = TopicPartition("kafka-python-times", 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
    try:
        assert consumer.offsets_for_times({key: 1_042})[key].offset == 42
        assert consumer.offsets_for_times({key: 1_100})[key] is None
        assert consumer.beginning_offsets([key]) == {key: 0}
        assert consumer.end_offsets([key]) == {key: 100}
    finally:
        consumer.close()
    for spec, expected in [
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 100),
        (OffsetSpec.MAX_TIMESTAMP, 99),
        (1_050, 50),
    ]:
        assert admin.list_partition_offsets({key: spec})[key].offset == expected, spec


def _value(admin: Any, kind: str, name: str, setting: str) -> str:
    described = admin.describe_configs([ConfigResource(kind, name, [setting])], config_filter="all")
    (found,) = (value for by_name in described.values() for value in by_name.values())
    return str(found[setting]["value"])


def test_settings_of_topics_and_brokers_are_changed(admin: Any) -> None:
    _create(admin, "kafka-python-configs", retention_ms="60000")
    assert _value(admin, "TOPIC", "kafka-python-configs", "retention.ms") == "60000"
    admin.alter_configs(
        [ConfigResource("TOPIC", "kafka-python-configs", {"retention.ms": "70000", "segment.bytes": "1048576"})]
    )
    assert _value(admin, "TOPIC", "kafka-python-configs", "retention.ms") == "70000"
    admin.alter_configs([ConfigResource("TOPIC", "kafka-python-configs", {"retention.ms": "80000"})], incremental=False)
    assert _value(admin, "TOPIC", "kafka-python-configs", "retention.ms") == "80000"
    # This client sends along what is set already.
    assert _value(admin, "TOPIC", "kafka-python-configs", "segment.bytes") == "1048576"
    admin.alter_configs([ConfigResource("BROKER", "1", {"log.cleaner.delete.retention.ms": "1234567"})])
    assert _value(admin, "BROKER", "1", "log.cleaner.delete.retention.ms") == "1234567"
    admin.alter_configs([ConfigResource("BROKER", "1", {"log.cleaner.delete.retention.ms": ("DELETE", None)})])
    assert _value(admin, "BROKER", "1", "log.cleaner.delete.retention.ms") == "86400000"
    refused = admin.alter_configs([ConfigResource("TOPIC", "kafka-python-configs", {"retention.ms": "long"})])
    assert "InvalidConfigurationError" in str(refused)
    assert _value(admin, "TOPIC", "kafka-python-configs", "retention.ms") == "80000"


def test_records_partitions_and_topics_are_deleted_and_added(broker: BrokerProcess, admin: Any) -> None:
    topic = "kafka-python-deleted"
    _create(admin, topic)
    with pytest.raises(TopicAlreadyExistsError):
        _create(admin, topic)
    _write(broker, topic, WRITTEN[:100])
    assert admin.delete_records({TopicPartition(topic, 0): 60})[TopicPartition(topic, 0)]["low_watermark"] == 60
    assert [record.offset for record in _read(broker, topic, 40, 60)] == list(range(60, 100))
    with pytest.raises(OffsetOutOfRangeError):
        _read(broker, topic, 1, 59)
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])
