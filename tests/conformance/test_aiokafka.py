"""aiokafka against the broker: every codec, both ways, offsets by time, topics and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import WRITTEN, need_modules
from tests.conformance.disk import batches, codecs

pytestmark = pytest.mark.conformance

need_modules("aiokafka", "async_timeout")

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # noqa: E402
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete  # noqa: E402
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # noqa: E402


def _with_admin(broker: BrokerProcess, work: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await work(admin)
        finally:
            await admin.close()

    asyncio.run(main())


async def _read(broker: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=None, check_crcs=True, auto_offset_reset="none"
    )
    await consumer.start()
    try:
        key = TopicPartition(topic, 0)
        consumer.assign([key])
        consumer.seek(key, offset)
        found: list[Any] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    found += records
        return found
    finally:
        await consumer.stop()


async def _write(broker: BrokerProcess, topic: str, records: list[tuple[bytes, bytes]], **settings: Any) -> list[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    await producer.start()
    try:
        futures = [
            await producer.send(topic, value, key, partition=0, timestamp_ms=1_000 + number)
            for number, (key, value) in enumerate(records)
        ]
        return list(await asyncio.gather(*futures))
    finally:
        await producer.stop()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_written_in_each_codec_stand_so_on_disk_and_are_read_back(
    broker: BrokerProcess, codec: Codec, idempotent: bool
) -> None:
    topic = f"aiokafka-{codec.name.lower()}-{idempotent}"

    async def work(admin: Any) -> None:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "-1"})])
        name = None if codec == Codec.NONE else codec.name.lower()
        written = await _write(broker, topic, WRITTEN, compression_type=name, enable_idempotence=idempotent)
        assert [metadata.offset for metadata in written] == list(range(len(WRITTEN)))
        assert [(record.key, record.value) for record in await _read(broker, topic, len(WRITTEN))] == WRITTEN

    _with_admin(broker, work)
    assert codecs(broker.data, topic) == {codec}
    assert all(header.has_producer_id == idempotent for header in batches(broker.data, topic))


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_what_our_client_writes_is_read(broker: BrokerProcess, written_by_us: dict[Codec, str], codec: Codec) -> None:
    found = asyncio.run(_read(broker, written_by_us[codec], len(WRITTEN)))
    assert [(record.key, record.value, list(record.headers)) for record in found] == [
        (key, value, [("number", b"%d" % number)]) for number, (key, value) in enumerate(WRITTEN)
    ]


def test_offsets_are_found_by_time(broker: BrokerProcess) -> None:
    async def work(admin: Any) -> None:
        await admin.create_topics([NewTopic("aiokafka-times", 1, 1, topic_configs={"retention.ms": "-1"})])
        await _write(broker, "aiokafka-times", WRITTEN[:100])
        key = TopicPartition("aiokafka-times", 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
        await consumer.start()
        try:
            assert (await consumer.offsets_for_times({key: 1_042}))[key].offset == 42
            assert (await consumer.offsets_for_times({key: 1_100}))[key] is None
            assert await consumer.beginning_offsets([key]) == {key: 0}
            assert await consumer.end_offsets([key]) == {key: 100}
        finally:
            await consumer.stop()

    _with_admin(broker, work)


def test_topics_settings_and_records_are_administered(broker: BrokerProcess) -> None:
    topic = "aiokafka-admin"

    async def value(admin: Any, setting: str) -> str:
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {setting: ""})])
        ((_, _, _, _, found),) = answer.resources
        return str(found[0][1])

    async def work(admin: Any) -> None:
        await admin.create_topics([NewTopic(topic, 1, 1)])
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "70000"})])
        assert await value(admin, "retention.ms") == "70000"
        await _write(broker, topic, WRITTEN[:100])
        key = TopicPartition(topic, 0)
        assert await admin.delete_records({key: RecordsToDelete(60)}) == {key: 60}
        assert [record.offset for record in await _read(broker, topic, 40, 60)] == list(range(60, 100))
        await admin.create_partitions({topic: NewPartitions(3)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()

    _with_admin(broker, work)
