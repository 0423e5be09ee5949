"""Tools of Apache Kafka that write in the tree (`--zookeeper`), against our broker: its tree served by itself, or on a
real ZooKeeper.

0.8.2.2 knows nothing but ZooKeeper: its consumer finds brokers, topics and offsets there. What is expected is what
they print beside a broker of their own."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jesenska.cli.kafka.groups import kafka_consumer_groups
from jesenska.cli.kafka.topics.config_listing import settings_of_topics
from jesenska.client.cluster import Cluster
from jesenska.metadata.tree_operations import NoNodeError
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need
from tests.peers.apache_kafka import free_port, java_command, tool_class
from tests.peers.tools import Outcome, Tools
from tests.peers.zookeeper import ZooKeeper
from tests.processes.cli.groups import fill

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
        broker = stack.enter_context(
            BrokerProcess(directory / "data", settings=settings | {"broker.id": "0", "num.partitions": "1"})
        )
        yield broker, address


def until_setting(bootstrap: str, topic: str, name: str, value: str | None) -> None:
    """Returns when the broker has that as the topic's own setting; None: when it has none of its own."""

    async def look() -> None:
        cluster = Cluster(bootstrap)
        try:
            async with asyncio.timeout(30):
                while {
                    item.name: item.value
                    for item in (await settings_of_topics(cluster, [topic]))[topic]
                    if not item.is_default
                }.get(name) != value:
                    pass
        finally:
            await cluster.close()

    asyncio.run(look())


@pytest.mark.parametrize(
    ("release", "tree"),
    [("0.8.2.2", "ours"), ("0.8.2.2", "ZooKeeper"), ("0.10.2.2", "ours"), ("1.0.2", "ours"), ("1.0.2", "ZooKeeper")],
)
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

        assert (
            'Created topic "test".'
            in topics("--create", "--topic", "test", "--partitions", 1, "--replication-factor", 1).output
        )
        assert (
            "already exists"
            in topics("--create", "--topic", "test", "--partitions", 1, "--replication-factor", 1).output
        )
        assert (
            "larger than available brokers: 1"
            in topics("--create", "--topic", "much", "--partitions", 1, "--replication-factor", 3).output
        )
        assert (
            "Created topic"
            in topics(
                "--create", "--topic", "placed", "--replica-assignment", "0,0", "--config", "retention.ms=1000000"
            ).output
        )
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
        assert (
            'Updated config for topic "test".'
            in topics("--alter", "--topic", "test", "--config", "max.message.bytes=50").output
        )
        until(lambda outcome: outcome.output.count("Leader: 0") == 3, "--describe", "--topic", "test")
        until_setting(broker.bootstrap, "test", "max.message.bytes", "50")
        assert (
            'Updated config for topic "test".'
            in topics("--alter", "--topic", "test", "--delete-config", "max.message.bytes").output
        )
        until_setting(broker.bootstrap, "test", "max.message.bytes", None)

        sent = ["This is a message", "This is another message"]
        assert (
            "ERROR"
            not in tools.run(
                "kafka-console-producer",
                "--broker-list",
                broker.bootstrap,
                "--topic",
                "placed",
                given="\n".join([*sent, ""]),
            ).errors
        )
        read = tools.run(
            "kafka-console-consumer",
            "--zookeeper",
            address,
            "--topic",
            "placed",
            "--from-beginning",
            "--max-messages",
            2,
        )
        assert sorted(read.lines) == sent

        assert "is marked for deletion" in topics("--delete", "--topic", "placed").output
        until(lambda outcome: outcome.lines == ["test"], "--list")
        assert not list((tmp_path / "data").glob("placed-?"))


def test_a_group_of_0_8_reads_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The high-level consumer of 0.8.2.2 keeps its offsets in the tree: another member goes on behind them, after a
    restart of the broker too; 1.0.2's tool and ours show them alike."""
    need("java", "mvn")
    with broker_and_tree(tmp_path, "ours") as (broker, address), Tools("0.8.2.2") as tools, Tools("1.0.2") as newer:
        group = tmp_path / "group.properties"
        group.write_text("group.id=old\nauto.commit.interval.ms=100\nzookeeper.session.timeout.ms=4000\n")

        def send(*lines: str) -> None:
            sent = tools.run(
                "kafka-console-producer",
                "--broker-list",
                broker.bootstrap,
                "--topic",
                "t",
                given="".join(f"{line}\n" for line in lines),
            )
            assert "ERROR" not in sent.errors

        def read(*flags: str) -> list[str]:
            return tools.run(
                "kafka-console-consumer",
                "--zookeeper",
                address,
                "--topic",
                "t",
                "--consumer.config",
                group,
                "--max-messages",
                2,
                *flags,
            ).lines

        tools.run(
            "kafka-topics",
            "--zookeeper",
            address,
            "--create",
            "--topic",
            "t",
            "--partitions",
            1,
            "--replication-factor",
            1,
        )
        send("one", "two", "three")
        assert read("--from-beginning") == ["one", "two"]
        for words in (["--list"], ["--describe", "--group", "old"]):
            theirs = newer.run("kafka-consumer-groups", "--zookeeper", address, *words)
            assert kafka_consumer_groups.main(["--zookeeper", address, *words]) == 0
            assert capsys.readouterr().out == theirs.output != ""
        broker.stop()
        broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port}"
        broker.start()
        send("four")
        assert read() == ["three", "four"]


def test_two_consumers_of_0_8_share_a_topic_and_one_takes_over_from_the_other(tmp_path: Path) -> None:
    """They agree in the tree: who is there, who owns which partition. One that is killed is missed when its session
    ends."""
    need("java", "mvn")
    settings = tmp_path / "group.properties"
    settings.write_text(
        "group.id=pair\nauto.commit.interval.ms=100\nzookeeper.session.timeout.ms=4000\nrebalance.backoff.ms=200\n"
    )
    with broker_and_tree(tmp_path, "ours") as (broker, address), contextlib.ExitStack() as running:
        fill(broker, "t", 4, 0)
        asyncio.run(begin_at_the_beginning(address))
        command = java_command("0.8.2.2", tool_class("0.8.2.2", "kafka-console-consumer"), heap="128m")
        command += ["--zookeeper", address, "--topic", "t", "--consumer.config", str(settings)]
        files = [tmp_path / "first", tmp_path / "second"]
        consumers = []
        for file in files:
            output = running.enter_context(file.open("wb"))
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL)
            running.callback(process.wait)
            running.callback(process.kill)
            consumers.append(process)
        asyncio.run(until_owned(address, by=2))
        fill(broker, "t", 4, 80)
        until_read(files, 80)
        assert all(file.stat().st_size > 0 for file in files), "both have partitions"
        asyncio.run(until_committed_in_the_tree(address, 20))
        consumers[0].kill()
        asyncio.run(until_owned(address, by=1))
        fill(broker, "t", 4, 40, start=80)
        until_read(files, 120)


async def begin_at_the_beginning(address: str) -> None:
    """The console consumer of 0.8 begins a group without offsets at the end of the log, wherever that is by then."""
    store = await connect(address, session_timeout_ms=4000)
    try:
        for path in ("/consumers/pair", "/consumers/pair/offsets", "/consumers/pair/offsets/t"):
            await store.create(path)
        for number in range(4):
            await store.create(f"/consumers/pair/offsets/t/{number}", b"0")
    finally:
        await store.close()


async def until_committed_in_the_tree(address: str, offset: int) -> None:
    store = await connect(address, session_timeout_ms=4000)
    try:
        async with asyncio.timeout(60):
            for number in range(4):
                while int((await store.get(f"/consumers/pair/offsets/t/{number}"))[0]) != offset:
                    pass
    finally:
        await store.close()


async def until_owned(address: str, by: int) -> None:
    """Every partition of `t` has an owner, and there are so many of them."""
    store = await connect(address, session_timeout_ms=4000)
    try:
        async with asyncio.timeout(60):
            while True:
                owners = []
                for number in range(4):
                    with contextlib.suppress(NoNodeError):
                        owners.append((await store.get(f"/consumers/pair/owners/t/{number}"))[0])
                if len(owners) == 4 and len({owner.rpartition(b"-")[0] for owner in owners}) == by:
                    return
    finally:
        await store.close()


def until_read(files: list[Path], count: int) -> None:
    """Every number below `count` stands in one of the files: each at least once, as 0.8 promises it."""
    ends = time.monotonic() + 60
    while {int(line) for file in files for line in file.read_text().splitlines()} != set(range(count)):
        assert time.monotonic() < ends, "not all were read"
