"""confluent-kafka (librdkafka) against the broker: topics, every codec, offsets by time, settings, deletion."""

from __future__ import annotations

import importlib
import time
from typing import Any

import pytest

from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import WRITTEN, need_modules
from tests.conformance.disk import batches, codecs

pytestmark = pytest.mark.conformance

need_modules("confluent_kafka")

# Partly typed: as Any it is the same for everyone.
_client: Any = importlib.import_module("confluent_kafka")
_admin: Any = importlib.import_module("confluent_kafka.admin")
Consumer, KafkaException, Producer, TopicPartition = (
    _client.Consumer,
    _client.KafkaException,
    _client.Producer,
    _client.TopicPartition,
)
AdminClient, NewPartitions, NewTopic, OffsetSpec = (
    _admin.AdminClient,
    _admin.NewPartitions,
    _admin.NewTopic,
    _admin.OffsetSpec,
)
AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType = (
    _admin.AlterConfigOpType,
    _admin.ConfigEntry,
    _admin.ConfigResource,
    _admin.ResourceType,
)

_TIMEOUT = 30


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Any:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def _create(admin: Any, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(_TIMEOUT)


def _read(broker: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        found: list[Any] = []
        deadline = time.monotonic() + _TIMEOUT
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.consume(count - len(found), 1.0)
        assert [message.error() for message in found] == [None] * count
        return found
    finally:
        consumer.close()


def _write(broker: BrokerProcess, topic: str, records: list[tuple[bytes, bytes]], **settings: Any) -> list[Any]:
    """The delivery reports, in order."""
    delivered: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, **{name.replace("_", "."): value for name, value in settings.items()}}
    )
    for number, (key, value) in enumerate(records):
        producer.produce(
            topic,
            value,
            key,
            0,
            on_delivery=lambda error, message: delivered.append((error, message)),
            timestamp=1_000 + number,
        )
        producer.poll(0)
    assert producer.flush(_TIMEOUT) == 0
    assert [error for error, _ in delivered] == [None] * len(records)
    return [message for _, message in delivered]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_written_in_each_codec_stand_so_on_disk_and_are_read_back(
    broker: BrokerProcess, admin: Any, codec: Codec, idempotent: bool
) -> None:
    topic = f"confluent-{codec.name.lower()}-{idempotent}"
    _create(admin, topic, retention_ms="-1")
    # All leave at once, when flushed: a record alone does not become smaller and would not be compressed.
    written = _write(
        broker, topic, WRITTEN, compression_type=codec.name.lower(), enable_idempotence=idempotent, linger_ms=60_000
    )
    assert [message.offset() for message in written] == list(range(len(WRITTEN)))
    assert codecs(broker.data, topic) == {codec}
    assert all(header.has_producer_id == idempotent for header in batches(broker.data, topic))
    found = _read(broker, topic, len(WRITTEN))
    assert [(message.key(), message.value()) for message in found] == WRITTEN
    assert [message.timestamp()[1] for message in found] == list(range(1_000, 1_000 + len(WRITTEN)))


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_our_client_writes_is_read(broker: BrokerProcess, written_by_us: dict[Codec, str], codec: Codec) -> None:
    found = _read(broker, written_by_us[codec], len(WRITTEN))
    assert [(message.key(), message.value(), message.headers()) for message in found] == [
        (key, value, [("number", b"%d" % number)]) for number, (key, value) in enumerate(WRITTEN)
    ]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acknowledgement(broker: BrokerProcess, admin: Any, acks: int) -> None:
    topic = f"confluent-acks-{acks}"
    _create(admin, topic)
    _write(broker, topic, WRITTEN[:50], acks=acks)
    assert [message.value() for message in _read(broker, topic, 50)] == [value for _, value in WRITTEN[:50]]


def test_offsets_are_found_by_time(broker: BrokerProcess, admin: Any) -> None:
    _create(admin, "confluent-times", retention_ms="-1")
    _write(broker, "confluent-times", WRITTEN[:100])  # timestamps 1000 to 1099
    for spec, expected in [
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 100),
        (OffsetSpec.for_timestamp(1_042), 42),
        (OffsetSpec.for_timestamp(5), 0),
        (OffsetSpec.for_timestamp(1_100), -1),
        (OffsetSpec.max_timestamp(), 99),
    ]:
        (future,) = admin.list_offsets({TopicPartition("confluent-times", 0): spec}).values()
        assert future.result(_TIMEOUT).offset == expected, spec
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none"})
    try:
        assert [
            item.offset for item in consumer.offsets_for_times([TopicPartition("confluent-times", 0, 1_050)], _TIMEOUT)
        ] == [50]
        assert consumer.get_watermark_offsets(TopicPartition("confluent-times", 0), _TIMEOUT) == (0, 100)
    finally:
        consumer.close()


def _settings(admin: Any, resource: Any) -> dict[str, Any]:
    (future,) = admin.describe_configs([resource]).values()
    return dict(future.result(_TIMEOUT))


def _alter(admin: Any, kind: Any, name: str, **changes: str | None) -> None:
    entries = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in changes.items()
    ]
    (future,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
    future.result(_TIMEOUT)


def test_settings_of_topics_and_brokers_are_changed(admin: Any) -> None:
    _create(admin, "confluent-configs", retention_ms="60000")
    topic, broker_1 = ConfigResource(ResourceType.TOPIC, "confluent-configs"), ConfigResource(ResourceType.BROKER, "1")
    assert _settings(admin, topic)["retention.ms"].value == "60000"
    _alter(admin, ResourceType.TOPIC, "confluent-configs", retention_ms="70000", segment_bytes="1048576")
    assert {name: _settings(admin, topic)[name].value for name in ("retention.ms", "segment.bytes")} == {
        "retention.ms": "70000",
        "segment.bytes": "1048576",
    }
    _alter(admin, ResourceType.TOPIC, "confluent-configs", retention_ms=None)
    assert _settings(admin, topic)["retention.ms"].value == "604800000"
    _alter(admin, ResourceType.BROKER, "1", message_max_bytes="2000000")
    assert _settings(admin, broker_1)["message.max.bytes"].value == "2000000"
    assert _settings(admin, topic)["max.message.bytes"].value == "2000000"
    _alter(admin, ResourceType.BROKER, "1", message_max_bytes=None)
    assert _settings(admin, topic)["max.message.bytes"].value == "1048588"
    # The older request replaces everything that was set.
    with pytest.warns(DeprecationWarning):
        (future,) = admin.alter_configs(
            [ConfigResource(ResourceType.TOPIC, "confluent-configs", set_config={"retention.ms": "80000"})]
        ).values()
    future.result(_TIMEOUT)
    assert _settings(admin, topic)["retention.ms"].value == "80000"
    assert _settings(admin, topic)["segment.bytes"].value == "1073741824"


def test_records_partitions_and_topics_are_deleted_and_added(broker: BrokerProcess, admin: Any) -> None:
    _create(admin, "confluent-deleted")
    _write(broker, "confluent-deleted", WRITTEN[:100])
    (future,) = admin.delete_records([TopicPartition("confluent-deleted", 0, 60)]).values()
    assert future.result(_TIMEOUT).low_watermark == 60
    assert [message.offset() for message in _read(broker, "confluent-deleted", 40, 60)] == list(range(60, 100))
    admin.create_partitions([NewPartitions("confluent-deleted", 4)])["confluent-deleted"].result(_TIMEOUT)
    assert sorted(admin.list_topics("confluent-deleted", _TIMEOUT).topics["confluent-deleted"].partitions) == [
        0,
        1,
        2,
        3,
    ]
    admin.delete_topics(["confluent-deleted"])["confluent-deleted"].result(_TIMEOUT)
    assert "confluent-deleted" not in admin.list_topics(timeout=_TIMEOUT).topics
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        admin.delete_topics(["confluent-deleted"])["confluent-deleted"].result(_TIMEOUT)


def test_the_cluster_describes_itself(broker: BrokerProcess, admin: Any) -> None:
    described = admin.describe_cluster().result(_TIMEOUT)
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap]
    assert described.controller.id == 1
    assert described.cluster_id
