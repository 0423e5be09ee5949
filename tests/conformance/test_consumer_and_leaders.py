"""Our consumers read from Apache Kafka while its leaders change: everything once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from jesenska.base.errors import UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster, PartitionInfo
from jesenska.client.consumer import Consumer
from jesenska.client.group import GroupConsumer
from jesenska.client.producer import Producer
from jesenska.metadata import paths
from tests.conformance.conftest import need
from tests.peers.apache_kafka import SHORT_RUN, ApacheKafka
from tests.served_tree import ServedTree

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(120)]

KEY = TopicPartition("t", 0)
_RECORDS = 900
#: Nobody else is to think that a broker which is killed is still there.
_SETTINGS = {
    "zookeeper.session.timeout.ms": "1500",
    "zookeeper.connection.timeout.ms": "20000",
    "offsets.topic.num.partitions": "1",
    "controlled.shutdown.enable": "false",
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    need("java", "mvn")
    with ExitStack() as stack:
        yield stack


class Reading:
    """What one consumer has read."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.is_half_way = asyncio.Event()

    async def read(self, consumer: Consumer | GroupConsumer) -> None:
        while len(self.values) < _RECORDS:
            for records in (await consumer.poll(1)).values():
                self.values += [int(bytes(record.value or b"")) for record in records]
            if len(self.values) >= _RECORDS // 3:
                self.is_half_way.set()


async def _write(cluster: Cluster) -> None:
    """Goes on until somebody else leads, and after that."""
    async with Producer(cluster) as producer:
        for number in range(_RECORDS):
            await (await producer.send("t", b"%d" % number, partition=0))


async def _known_leader(cluster: Cluster) -> PartitionInfo:
    """Who leads; a broker of Kafka's may hear a moment later than others of a topic that was made."""
    while True:
        try:
            return await cluster.leader_of(KEY)
        except UnknownTopicOrPartitionError:
            await asyncio.sleep(0.02)


async def _read_through(
    bootstrap: str, replicas: int, goes: dict[int, ApacheKafka], tree: ServedTree, comes_back: bool
) -> None:
    async with asyncio.timeout(90):
        clusters = [Cluster(bootstrap, ClientConfig(request_timeout_seconds=20.0)) for _ in range(3)]
        try:
            await Admin(clusters[0]).create_topics([NewTopic("t", 1, replicas)])
            before = await _known_leader(clusters[0])
            await asyncio.gather(*(_known_leader(cluster) for cluster in clusters[1:]))
            kafka = goes[before.leader]
            alone, member = Reading(), Reading()
            async with (
                Consumer(clusters[1], auto_offset_reset="none", max_wait_seconds=0.1) as consumer,
                GroupConsumer(clusters[2], "g", ["t"], auto_offset_reset="earliest", max_wait_seconds=0.1) as group,
                asyncio.TaskGroup() as tasks,
            ):
                await consumer.assign({KEY: 0})
                tasks.create_task(_write(clusters[0]))
                for reading, reader in ((alone, consumer), (member, group)):
                    tasks.create_task(reading.read(reader))
                await asyncio.gather(alone.is_half_way.wait(), member.is_half_way.wait())
                os.kill(kafka.pids[0], signal.SIGKILL)
                if comes_back:
                    await asyncio.to_thread(kafka.kill)
                    while tree.server.tree.tree.exists(paths.broker(before.leader)) is not None:
                        await asyncio.sleep(0.02)  # Kafka 1.0.2 gives up where it finds its node
                    await asyncio.to_thread(kafka.start)
            assert alone.values == list(range(_RECORDS))
            assert member.values == list(range(_RECORDS))
        finally:
            for cluster in clusters:
                await cluster.close()


def test_everything_is_read_once_when_another_broker_leads(stack: ExitStack, tmp_path: Path) -> None:
    tree = stack.enter_context(ServedTree())
    settings = {**_SETTINGS, "offsets.topic.replication.factor": "2"}
    brokers = {
        number: ApacheKafka(
            "3.9.1",
            tmp_path / str(number),
            heap="256m",
            settings=settings,
            zookeeper_connect=tree.address,
            first_id=number,
            java_options=[SHORT_RUN],
        )
        for number in range(2)
    }
    with ThreadPoolExecutor(2) as threads:
        for started in [threads.submit(stack.enter_context, broker) for broker in brokers.values()]:
            started.result()
    bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
    asyncio.run(_read_through(bootstrap, 2, brokers, tree, comes_back=False))


def test_everything_is_read_once_from_a_broker_without_leader_epochs_that_comes_back(
    stack: ExitStack, tmp_path: Path
) -> None:
    tree = stack.enter_context(ServedTree())
    broker = stack.enter_context(
        ApacheKafka(
            "1.0.2",
            tmp_path / "0",
            heap="256m",
            settings=_SETTINGS,
            zookeeper_connect=tree.address,
            java_options=[SHORT_RUN],
        )
    )
    asyncio.run(_read_through(broker.bootstrap, 1, {0: broker}, tree, comes_back=True))
