"""Apache Kafka 1.0.2 and 3.9.1 in ZooKeeper mode with our server as their ZooKeeper: each registers, elects, makes and
deletes topics, and leaves its data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST
from jesenska.client.producer import Producer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.processes.cli.groups import fill
from tests.served_tree import ServedTree

pytestmark = pytest.mark.conformance


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "release", [pytest.param("1.0.2", marks=pytest.mark.hour("src/jesenska/metadata/zookeeper")), "3.9.1"]
)
def test_apache_kafka_runs_on_our_server(tmp_path: Path, release: str) -> None:
    need("java", "mvn")
    with ServedTree(tmp_path / "tree.db", ServerConfig(tick_ms=1000)) as served:
        tree = served.server.tree.tree

        async def use(bootstrap: str) -> None:
            cluster = Cluster(bootstrap)
            async with contextlib.AsyncExitStack() as stack:
                stack.push_async_callback(cluster.close)
                admin = Admin(cluster)
                await admin.create_topics([NewTopic("kept", 2, 1), NewTopic("gone", 1, 1)])
                await until(lambda: tree.exists("/kafka/brokers/topics/kept/partitions/1/state") is not None)
                async with Producer(cluster) as producer:
                    assert (await (await producer.send("kept", b"value", partition=0))).offset == 0
                await admin.delete_topics(["gone"])
                await until(lambda: tree.exists("/kafka/brokers/topics/gone") is None)

        with ApacheKafka(
            release, tmp_path / "kafka", heap="400m", zookeeper_connect=f"{served.address}/kafka"
        ) as kafka:
            # 1.0 answers on its port before it has registered.
            asyncio.run(
                until(
                    lambda: (
                        tree.exists("/kafka/brokers/ids/0") is not None and tree.exists("/kafka/controller") is not None
                    )
                )
            )
            assert tree.children("/kafka/brokers/ids")[0] == ["0"]
            assert (
                tree.get("/kafka/brokers/ids/0")[1].ephemeral_owner == tree.get("/kafka/controller")[1].ephemeral_owner
            )
            asyncio.run(asyncio.wait_for(use(kafka.bootstrap), 60))
        # It closed its session: its ephemeral nodes are gone, what it knows is not.
        assert tree.children("/kafka/brokers/ids")[0] == []
        assert tree.exists("/kafka/controller") is None
        assert tree.children("/kafka/brokers/topics")[0] == ["kept"]


def test_a_cluster_of_one_goes_from_apache_kafka_to_us_and_back_on_the_same_tree_and_data(tmp_path: Path) -> None:
    need("java", "mvn")

    async def numbers(bootstrap: str, count: int) -> None:
        """All that was written is there, as soon as the broker knows the topic."""
        keys = [TopicPartition("t", partition) for partition in range(2)]
        cluster = Cluster(bootstrap)
        found: list[int] = []
        try:
            async with asyncio.timeout(40), Consumer(cluster) as consumer:
                while "t" not in await cluster.topics():
                    pass  # Apache Kafka answers on its port before it knows its topics
                await consumer.assign(dict.fromkeys(keys, EARLIEST))
                while len(found) < count:
                    found += [
                        int(record.value or b"")
                        for records in (await consumer.poll(1, 1000)).values()
                        for record in records
                    ]
        finally:
            await cluster.close()
        assert sorted(found) == list(range(count))

    with ServedTree(tmp_path / "tree.db", ServerConfig(tick_ms=1000)) as served:
        connect = f"{served.address}/kafka"

        def kafka() -> ApacheKafka:
            return ApacheKafka("3.9.1", tmp_path / "kafka", heap="400m", zookeeper_connect=connect)

        with kafka() as theirs:
            fill(theirs, "t", 2, 10)
        ours = BrokerProcess(tmp_path / "kafka" / "data-0", settings={"zookeeper.connect": connect, "broker.id": "0"})
        with ours:
            asyncio.run(numbers(ours.bootstrap, 10))
            fill(ours, "t", 2, 10, start=10)
        with kafka() as theirs:
            asyncio.run(numbers(theirs.bootstrap, 20))
            fill(theirs, "t", 2, 10, start=20)
        with ours:
            asyncio.run(numbers(ours.bootstrap, 30))
