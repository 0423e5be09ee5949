"""The broker as a process, through our own client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from jesenska.base.errors import (
    ErrorCode,
    InvalidConfigError,
    InvalidTopicException,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import BROKER, DELETE, TOPIC, ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets
from jesenska.client.producer import Producer
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess

T = TypeVar("T")


def run(broker: BrokerProcess, work: Callable[[Cluster], Awaitable[T]]) -> T:
    async def main() -> T:
        cluster = Cluster(broker.bootstrap)
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    return asyncio.run(main())


async def read_all(
    cluster: Cluster, topic: str, partition: int = 0, count: int = -1
) -> list[tuple[bytes | None, bytes | None]]:
    key = TopicPartition(topic, partition)
    end = (await list_offsets(cluster, {key: LATEST}))[key].offset
    found: list[tuple[bytes | None, bytes | None]] = []
    async with Consumer(cluster) as consumer:
        await consumer.assign({key: EARLIEST})
        while consumer.position(key) < end:
            for records in (await consumer.poll(5, 10_000)).values():
                found += [(record.key, record.value) for record in records]
    return found


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_is_produced_is_consumed_in_order(broker: BrokerProcess, codec: Codec, idempotent: bool) -> None:
    topic = f"order-{codec.name}-{idempotent}"
    sent = [(b"k%d" % number, os.urandom(number % 700)) for number in range(2000)]

    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, compression=codec, enable_idempotence=idempotent, batch_size=8000) as producer:
            futures = [await producer.send(topic, value, key, 0) for key, value in sent]
            await producer.flush()
            assert [future.result().offset for future in futures] == list(range(2000))
        assert await read_all(cluster, topic) == sent

    run(broker, work)


def test_a_fetch_waits_for_records_and_is_woken_by_a_produce(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).create_topics([NewTopic("woken", 1, 1)])
        async with Consumer(cluster, max_wait_seconds=30) as consumer, Producer(cluster, linger_seconds=0) as producer:
            await consumer.assign([TopicPartition("woken", 0)])
            waiting = asyncio.create_task(consumer.poll(30))
            for _ in range(20):
                await asyncio.sleep(0)
            await (await producer.send("woken", b"now"))
            records = await asyncio.wait_for(waiting, 10)
            assert [record.value for record in records[TopicPartition("woken", 0)]] == [b"now"]

    run(broker, work)


def test_offsets_are_found_by_time(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).create_topics([NewTopic("times", 1, 1, {"retention.ms": "-1"})])
        key = TopicPartition("times", 0)
        async with Producer(cluster, batch_size=300) as producer:
            for number in range(100):
                await producer.send("times", b"x" * 50, timestamp_ms=1_000_000 + number * 10)
        for asked, expected in [
            (0, 0),
            (1_000_000, 0),
            (1_000_501, 51),
            (1_000_990, 99),
            (1_000_991, -1),
            (EARLIEST, 0),
            (LATEST, 100),
            (MAX_TIMESTAMP, 99),
        ]:
            assert (await list_offsets(cluster, {key: asked}))[key].offset == expected, asked

    run(broker, work)


def test_topics_are_created_described_expanded_and_deleted(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        assert await admin.create_topics([NewTopic("life", 3, 1, {"segment.bytes": "1048576"})]) == {"life": None}
        assert len((await cluster.topic("life")).partitions) == 3
        assert isinstance((await admin.create_topics([NewTopic("life")]))["life"], TopicAlreadyExistsError)
        assert isinstance((await admin.create_topics([NewTopic("bad name")]))["bad name"], InvalidTopicException)
        assert isinstance(
            (await admin.create_topics([NewTopic("odd", configs={"no.such": "1"})]))["odd"], InvalidConfigError
        )
        assert (await admin.create_partitions({"life": 5}))["life"] is None
        assert len((await cluster.topic("life")).partitions) == 5
        assert await admin.delete_topics(["life"]) == {"life": None}
        with pytest.raises(UnknownTopicOrPartitionError):
            await cluster.topic("life")
        assert isinstance((await admin.delete_topics(["life"]))["life"], UnknownTopicOrPartitionError)
        assert await admin.create_topics([NewTopic("life", 1, 1)]) == {"life": None}
        assert await read_all(cluster, "life") == []

    run(broker, work)


def test_settings_change_while_running_and_take_effect(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topics([NewTopic("tuned", 1, 1)])
        async with Producer(cluster, linger_seconds=0) as producer:
            await admin.alter_configs(TOPIC, "tuned", [ConfigChange("max.message.bytes", "200")])
            future = await producer.send("tuned", bytes(500), partition=0)
            await producer.flush()
            assert isinstance(future.exception(), KafkaError)
            assert future.exception().code == ErrorCode.MESSAGE_TOO_LARGE  # type: ignore[union-attr]
            await admin.alter_configs(
                TOPIC,
                "tuned",
                [ConfigChange("max.message.bytes", None, DELETE), ConfigChange("min.insync.replicas", "2")],
            )
            # For a topic with one replica, one in-sync replica is enough for any value of the setting, as in Apache
            # Kafka 3.9.1 and 4.3.1 (1.0.2 refuses the records).
            future = await producer.send("tuned", bytes(500), partition=0)
            await producer.flush()
            assert future.exception() is None
        entries = {item.name: item for item in await admin.describe_configs(TOPIC, "tuned")}
        assert (entries["min.insync.replicas"].value, entries["min.insync.replicas"].source) == ("2", 1)
        assert entries["max.message.bytes"].source == 5
        await admin.alter_configs(BROKER, "", [ConfigChange("log.retention.ms", "12345")])
        entries = {item.name: item for item in await admin.describe_configs(TOPIC, "tuned")}
        assert (entries["retention.ms"].value, entries["retention.ms"].source) == ("12345", 3)
        await admin.alter_configs(BROKER, "", [ConfigChange("log.retention.ms", None, DELETE)])
        with pytest.raises(KafkaError, match="Cannot update these configs dynamically"):
            await admin.alter_configs(BROKER, "1", [ConfigChange("log.dirs", "/elsewhere")])

    run(broker, work)


def test_deleted_records_are_gone_and_offsets_outside_the_log_are_refused(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        key = TopicPartition("shrunk", 0)
        async with Producer(cluster) as producer:
            for number in range(10):
                await producer.send("shrunk", b"%d" % number, partition=0)
        admin = Admin(cluster)
        assert await admin.delete_records({key: 4}) == {key: 4}
        assert [value for _, value in await read_all(cluster, "shrunk")] == [b"%d" % number for number in range(4, 10)]
        assert isinstance((await admin.delete_records({key: 11}))[key], OffsetOutOfRangeError)
        assert await admin.delete_records({key: -1}) == {key: 10}
        async with Consumer(cluster, auto_offset_reset="none") as consumer:
            await consumer.assign({key: 3})
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.poll(10)

    run(broker, work)


def test_a_stopped_broker_starts_again_with_everything(tmp_path: Path) -> None:
    running = BrokerProcess(tmp_path / "data")
    with running:

        async def write(cluster: Cluster) -> str | None:
            await Admin(cluster).create_topics([NewTopic("kept", 2, 1, {"retention.ms": "-1"})])
            async with Producer(cluster) as producer:
                for number in range(100):
                    await producer.send("kept", b"%d" % number, partition=number % 2)
            return (await Admin(cluster).describe_cluster()).cluster_id

        cluster_id = run(running, write)
        assert running.stop() == 0
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        running.start()

        async def check(cluster: Cluster) -> None:
            assert (await Admin(cluster).describe_cluster()).cluster_id == cluster_id
            assert [value for _, value in await read_all(cluster, "kept", 1)] == [
                b"%d" % number for number in range(1, 100, 2)
            ]
            info = await cluster.topic("kept")
            assert [item.leader_epoch for item in info.partitions] == [0, 0]
            configs = {item.name: item.value for item in await Admin(cluster).describe_configs(TOPIC, "kept")}
            assert configs["retention.ms"] == "-1"

        run(running, check)
        running.kill()
        running.start()

        async def after_crash(cluster: Cluster) -> None:
            assert [value for _, value in await read_all(cluster, "kept")] == [
                b"%d" % number for number in range(0, 100, 2)
            ]
            assert [item.leader_epoch for item in (await cluster.topic("kept")).partitions] == [1, 1]

        run(running, after_crash)


def test_a_producer_id_is_never_given_twice_even_after_a_crash(tmp_path: Path) -> None:
    seen: list[int] = []

    async def take(cluster: Cluster) -> None:
        for _ in range(3):
            async with Producer(cluster) as producer:
                await producer.send("ids", b"x")
                await producer.flush()
                seen.append(producer.producer_id)

    with BrokerProcess(tmp_path / "data") as running:
        for _ in range(3):
            run(running, take)
            running.kill()
            running.start()
    assert len(set(seen)) == len(seen) == 9


def test_a_fetch_that_waits_on_a_topic_is_answered_when_the_topic_is_deleted(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        admin = Admin(cluster)
        await admin.create_topics([NewTopic("vanishing", 1, 1)])
        async with Consumer(cluster, max_wait_seconds=60) as consumer:
            await consumer.assign({TopicPartition("vanishing", 0): 0})
            waiting = asyncio.create_task(consumer.poll(20))
            for _ in range(20):
                await asyncio.sleep(0)
            await admin.delete_topics(["vanishing"])
            with pytest.raises(UnknownTopicOrPartitionError):
                await asyncio.wait_for(waiting, 15)

    run(broker, work)
