"""Apache Kafka 1.0.2 and 3.9.1 in ZooKeeper mode with our server as their ZooKeeper: each registers, elects, makes and deletes topics, and leaves its data."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from jesenska.client.admin import Admin, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.metadata.zookeeper.server import ServerConfig
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.served_tree import ServedTree

pytestmark = pytest.mark.conformance


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("release", ["1.0.2", "3.9.1"])
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

        with ApacheKafka(release, tmp_path / "kafka", heap="400m", zookeeper_connect=f"{served.address}/kafka") as kafka:
            # 1.0 answers on its port before it has registered.
            asyncio.run(until(lambda: tree.children("/kafka/brokers/ids")[0] == ["0"] and tree.exists("/kafka/controller") is not None))
            assert tree.get("/kafka/brokers/ids/0")[1].ephemeral_owner == tree.get("/kafka/controller")[1].ephemeral_owner
            asyncio.run(asyncio.wait_for(use(kafka.bootstrap), 60))
        # It closed its session: its ephemeral nodes are gone, what it knows is not.
        assert tree.children("/kafka/brokers/ids")[0] == []
        assert tree.exists("/kafka/controller") is None
        assert tree.children("/kafka/brokers/topics")[0] == ["kept"]
