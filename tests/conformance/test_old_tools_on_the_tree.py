"""Tools of Apache Kafka that write in the tree (`--zookeeper`), against our broker: its tree served by itself, or on a real ZooKeeper.

0.8.2.2 knows nothing but ZooKeeper: its consumer finds brokers, topics and offsets there. What is expected is what they print beside a broker of their own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jesenska.cli.config_listing import settings_of_topics
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need
from tests.peers.apache_kafka import free_port
from tests.peers.tools import Outcome, Tools
from tests.peers.zookeeper import ZooKeeper

pytestmark = pytest.mark.conformance


@contextlib.contextmanager
def broker_and_tree(directory: Path, tree: str) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker, and where its tree answers ZooKeeper's clients."""
    with contextlib.ExitStack() as stack:
        if tree == "ours":
            address = f"127.0.0.1:{free_port()}"
            settings = {"jesenska.zookeeper.listener": address}
        else:
            address = f"127.0.0.1:{stack.enter_context(ZooKeeper(directory)).port}"
            settings = {"zookeeper.connect": address}
        broker = stack.enter_context(BrokerProcess(directory / "data", settings=settings | {"broker.id": "0", "num.partitions": "1"}))
        yield broker, address


def until_setting(bootstrap: str, topic: str, name: str, value: str | None) -> None:
    """Returns when the broker has that as the topic's own setting; None: when it has none of its own."""

    async def look() -> None:
        cluster = Cluster(bootstrap)
        try:
            async with asyncio.timeout(30):
                while {item.name: item.value for item in (await settings_of_topics(cluster, [topic]))[topic] if not item.is_default}.get(name) != value:
                    pass
        finally:
            await cluster.close()

    asyncio.run(look())


@pytest.mark.parametrize(("release", "tree"), [("0.8.2.2", "ours"), ("0.8.2.2", "ZooKeeper"), ("0.10.2.2", "ours"), ("1.0.2", "ours"), ("1.0.2", "ZooKeeper")])
def test_topics_are_made_changed_read_and_deleted_through_the_tree(tmp_path: Path, release: str, tree: str) -> None:
    need("java", "mvn")
    with broker_and_tree(tmp_path, tree) as (broker, address), Tools(release) as tools:

        def topics(*words: object) -> Outcome:
            return tools.run("kafka-topics", "--zookeeper", address, *words)

        def until(said: Callable[[Outcome], bool], *words: object) -> str:
            """The tool says it as soon as the broker has done what the tree asks of it."""
            while not said(outcome := topics(*words)):
                pass
            return outcome.output

        assert 'Created topic "test".' in topics("--create", "--topic", "test", "--partitions", 1, "--replication-factor", 1).output
        assert "already exists" in topics("--create", "--topic", "test", "--partitions", 1, "--replication-factor", 1).output
        assert "larger than available brokers: 1" in topics("--create", "--topic", "much", "--partitions", 1, "--replication-factor", 3).output
        assert "Created topic" in topics("--create", "--topic", "placed", "--replica-assignment", "0,0", "--config", "retention.ms=1000000").output
        assert topics("--list").lines == ["placed", "test"]
        assert until(lambda outcome: outcome.output.count("Leader: 0") == 3, "--describe").splitlines() == [
            "Topic:placed\tPartitionCount:2\tReplicationFactor:1\tConfigs:retention.ms=1000000",
            "\tTopic: placed\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0",
            "\tTopic: placed\tPartition: 1\tLeader: 0\tReplicas: 0\tIsr: 0",
            "Topic:test\tPartitionCount:1\tReplicationFactor:1\tConfigs:",
            "\tTopic: test\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0",
        ]
        assert topics("--describe", "--unavailable-partitions").output.strip() == ""

        assert "Adding partitions succeeded!" in topics("--alter", "--topic", "test", "--partitions", 3).output
        assert 'Updated config for topic "test".' in topics("--alter", "--topic", "test", "--config", "max.message.bytes=50").output
        until(lambda outcome: outcome.output.count("Leader: 0") == 3, "--describe", "--topic", "test")
        until_setting(broker.bootstrap, "test", "max.message.bytes", "50")
        assert 'Updated config for topic "test".' in topics("--alter", "--topic", "test", "--delete-config", "max.message.bytes").output
        until_setting(broker.bootstrap, "test", "max.message.bytes", None)

        sent = ["This is a message", "This is another message"]
        assert "ERROR" not in tools.run("kafka-console-producer", "--broker-list", broker.bootstrap, "--topic", "placed", given="\n".join([*sent, ""])).errors
        read = tools.run("kafka-console-consumer", "--zookeeper", address, "--topic", "placed", "--from-beginning", "--max-messages", 2)
        assert sorted(read.lines) == sent

        assert "is marked for deletion" in topics("--delete", "--topic", "placed").output
        until(lambda outcome: outcome.lines == ["test"], "--list")
        assert not list((tmp_path / "data").glob("placed-?"))


def test_a_group_of_0_8_reads_on_where_it_was(tmp_path: Path) -> None:
    """The high-level consumer of 0.8.2.2 keeps its offsets in the tree: another member goes on behind them, after a restart of the broker too."""
    need("java", "mvn")
    with broker_and_tree(tmp_path, "ours") as (broker, address), Tools("0.8.2.2") as tools:
        group = tmp_path / "group.properties"
        group.write_text("group.id=old\nauto.commit.interval.ms=100\nzookeeper.session.timeout.ms=4000\n")

        def send(*lines: str) -> None:
            sent = tools.run("kafka-console-producer", "--broker-list", broker.bootstrap, "--topic", "t", given="".join(f"{line}\n" for line in lines))
            assert "ERROR" not in sent.errors

        def read(*flags: str) -> list[str]:
            return tools.run("kafka-console-consumer", "--zookeeper", address, "--topic", "t", "--consumer.config", group, "--max-messages", 2, *flags).lines

        tools.run("kafka-topics", "--zookeeper", address, "--create", "--topic", "t", "--partitions", 1, "--replication-factor", 1)
        send("one", "two", "three")
        assert read("--from-beginning") == ["one", "two"]
        broker.stop()
        broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port}"
        broker.start()
        send("four")
        assert read() == ["three", "four"]
