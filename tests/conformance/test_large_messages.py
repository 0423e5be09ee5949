"""Messages near the limit over many partitions, read by clients with all their defaults and with small limits: each
answer holds whole batches only at the head of a partition's records, or clients stop with "no complete records"."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need_modules
from tests.peers.tools import Tools

pytestmark = pytest.mark.conformance

#: Topics by name: partitions, and bytes of the one message in each. The second's messages are larger than what a
#: client asks for in one partition.
_TOPICS = {"large-many": (60, 960_000), "large-few": (6, 2_000_000)}
_SMALL_PARTITION_BYTES, _SMALL_BYTES = 10_000, 1_500_000


@pytest.fixture(scope="session", autouse=True)
def written(broker: BrokerProcess) -> None:
    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        producer = Producer(cluster, max_request_size=3_000_000)
        try:
            new = [
                NewTopic(name, partitions, 1, {"max.message.bytes": "3000000"})
                for name, (partitions, _) in _TOPICS.items()
            ]
            await Admin(cluster).create_topics(new)
            for name, (partitions, size_bytes) in _TOPICS.items():
                for partition in range(partitions):
                    await (await producer.send(name, bytes(size_bytes), partition=partition))
        finally:
            await producer.close()
            await cluster.close()

    asyncio.run(work())


@pytest.mark.parametrize("topic", _TOPICS)
@pytest.mark.parametrize("limits", ["default", "small"])
def test_java_reads_every_partition(tools: Tools, broker: BrokerProcess, topic: str, limits: str) -> None:
    partitions, _ = _TOPICS[topic]
    settings = ["print.partition=true", "print.value=false"]
    by_release = "--property" if tools.release.startswith("3") else "--formatter-property"
    client = "--consumer-property" if tools.release.startswith("3") else "--command-property"
    small = (
        [f"max.partition.fetch.bytes={_SMALL_PARTITION_BYTES}", f"fetch.max.bytes={_SMALL_BYTES}"]
        if limits == "small"
        else []
    )
    outcome = tools.run(
        "kafka-console-consumer",
        *(
            "--bootstrap-server",
            broker.bootstrap,
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            partitions,
            "--timeout-ms",
            20_000,
        ),
        *(word for setting in settings for word in (by_release, setting)),
        *(word for setting in small for word in (client, setting)),
    )
    assert outcome.code == 0, outcome.errors[-2000:]
    assert sorted(outcome.lines) == sorted(f"Partition:{number}" for number in range(partitions))


@pytest.mark.parametrize("topic", _TOPICS)
@pytest.mark.parametrize("limits", ["default", "small"])
def test_kafka_python_reads_every_partition(broker: BrokerProcess, topic: str, limits: str) -> None:
    need_modules("kafka")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaConsumer
    partitions, _ = _TOPICS[topic]
    small = (
        {"max_partition_fetch_bytes": _SMALL_PARTITION_BYTES, "fetch_max_bytes": _SMALL_BYTES}
        if limits == "small"
        else {}
    )
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **small
    )
    try:
        seen = [next(consumer).partition for _ in range(partitions)]
    finally:
        consumer.close()
    assert sorted(number for number in seen if number is not None) == list(range(partitions))


@pytest.mark.parametrize("topic", _TOPICS)
@pytest.mark.parametrize("limits", ["default", "small"])
def test_confluent_kafka_reads_every_partition(broker: BrokerProcess, topic: str, limits: str) -> None:
    need_modules("confluent_kafka")
    from confluent_kafka import Consumer, TopicPartition

    partitions, _ = _TOPICS[topic]
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.auto.commit": False}
    if limits == "small":
        settings |= {
            "max.partition.fetch.bytes": _SMALL_PARTITION_BYTES,
            "fetch.max.bytes": _SMALL_BYTES,
            "message.max.bytes": _SMALL_BYTES,
        }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        seen: list[int | None] = []
        while len(seen) < partitions:
            message = consumer.poll(20)
            assert message is not None, seen
            assert message.error() is None, message.error()
            seen.append(message.partition())
    finally:
        consumer.close()
    assert sorted(number for number in seen if number is not None) == list(range(partitions))
