"""Tools with --zookeeper, against a broker that serves its tree; `jesenska init`; zookeeper-server-stop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.cli import jesenska
from jesenska.cli.kafka.groups import kafka_consumer_groups
from jesenska.cli.kafka.records import kafka_console_consumer
from jesenska.cli.kafka.topics import kafka_configs, kafka_topics
from jesenska.cli.zookeeper import zookeeper_server_stop, zookeeper_shell
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing import BrokerProcess
from tests.peers.apache_kafka import free_port
from tests.processes.cli.conftest import Main, Result, Tool


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker, and the address of its tree."""
    address = f"127.0.0.1:{free_port()}"
    with BrokerProcess(
        tmp_path_factory.mktemp("tree") / "data", settings={"jesenska.zookeeper.listener": address}
    ) as broker:
        yield broker, address


def produce(broker: BrokerProcess, topic: str, *values: bytes) -> None:
    async def main() -> None:
        cluster = Cluster(broker.bootstrap)
        try:
            async with Producer(cluster) as producer:
                for value in values:
                    await (await producer.send(topic, value, partition=0))
        finally:
            await cluster.close()

    asyncio.run(main())


def test_topics_in_the_tree(tool: Tool, served: tuple[BrokerProcess, str]) -> None:
    broker, address = served

    def topics(*words: str, code: int = 0) -> str:
        result = tool(kafka_topics.main, "--zookeeper", address, *words)
        assert result.code == code, result.err
        return result.out if code == 0 else result.err

    def until(topic: str, count: int) -> str:
        """Waits until the broker has seen it: every partition has a leader."""
        while (said := topics("--describe", "--topic", topic)).count("Leader: 1") < count:
            pass
        return said

    assert (
        topics(
            "--create",
            "--topic",
            "t",
            "--partitions",
            "2",
            "--replication-factor",
            "1",
            "--config",
            "retention.ms=1000000",
        )
        == 'Created topic "t".\n'
    )
    assert until("t", 2).splitlines() == [
        "Topic:t\tPartitionCount:2\tReplicationFactor:1\tConfigs:retention.ms=1000000",
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1",
        "\tTopic: t\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1",
    ]
    assert topics("--list").splitlines() == ["t"]
    assert (
        topics("--describe", "--unavailable-partitions") == topics("--describe", "--under-replicated-partitions") == ""
    )
    assert json.loads(topics("--describe", "--output", "json"))[0]["configs"] == {"retention.ms": "1000000"}
    assert (
        topics("--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1", code=1)
        == "kafka-topics: Topic 't' already exists.\n"
    )
    topics("--create", "--topic", "t", "--partitions", "2", "--replication-factor", "1", "--if-not-exists")
    assert "--partitions" in topics("--create", "--topic", "u", code=1)
    assert "only 1 broker(s) are registered" in topics(
        "--create", "--topic", "u", "--partitions", "1", "--replication-factor", "2", code=1
    )
    assert "Unknown topic config name" in topics(
        "--create", "--topic", "u", "--partitions", "1", "--replication-factor", "1", "--config", "nonsense=1", code=1
    )

    assert "Adding partitions succeeded!" in topics("--alter", "--topic", "t", "--partitions", "3")
    assert "would not be an increase" in topics("--alter", "--topic", "t", "--partitions", "2", code=1)
    until("t", 3)
    assert (
        topics("--alter", "--topic", "t", "--config", "segment.bytes=2000", "--delete-config", "retention.ms")
        == 'Updated config for topic "t".\n'
    )
    assert (
        topics("--describe", "--topics-with-overrides")
        == "Topic:t\tPartitionCount:3\tReplicationFactor:1\tConfigs:segment.bytes=2000\n"
    )
    assert "does not exist on ZK path" in topics("--alter", "--topic", "nope", "--partitions", "2", code=1)

    # Other tools find the brokers there.
    produce(broker, "t", b"one", b"two")
    result = tool(
        kafka_console_consumer.main, "--zookeeper", address, "--topic", "t", "--from-beginning", "--max-messages", "2"
    )
    assert result.lines == ["one", "two"]
    assert "segment.bytes=2000" in tool(kafka_configs.main, "--zookeeper", address, "--describe", "--topic", "t").out

    assert topics("--delete", "--topic", "t").startswith("Topic t is marked for deletion.\n")
    while "t\n" in topics("--list"):
        pass
    assert "does not exist" in topics("--delete", "--topic", "t", code=1)


def test_groups_in_the_tree(tool: Tool, served: tuple[BrokerProcess, str]) -> None:
    broker, address = served
    produce(broker, "clicks", b"1", b"2", b"3")

    async def write() -> None:
        store = await connect(address, session_timeout_ms=6000)
        for path, data in (
            ("/consumers/shop", b""), ("/consumers/shop/ids", b""), ("/consumers/shop/offsets", b""), ("/consumers/shop/offsets/clicks", b""),  # noqa: E501
            ("/consumers/shop/offsets/clicks/0", b"2"), ("/consumers/shop/owners", b""), ("/consumers/shop/owners/clicks", b""),  # noqa: E501
            ("/consumers/shop/owners/gone", b""), ("/consumers/shop/owners/gone/1", b"shop_host-1-0"),
        ):  # fmt: skip
            await store.create(path, data)
        await store.create("/consumers/live", b"")
        await store.create("/consumers/live/ids", b"")
        await store.create("/consumers/live/ids/live_host-1", b"{}")
        await store.close()

    asyncio.run(write())

    def groups(*words: str) -> Result:
        return tool(kafka_consumer_groups.main, "--zookeeper", address, *words)

    listed = groups("--list")
    assert (listed.code, listed.lines) == (0, ["live", "shop"])
    assert listed.err.startswith("Note: This will only show information about consumers that use ZooKeeper")
    assert [item["group"] for item in json.loads(groups("--list", "--output", "json").out)] == ["live", "shop"]

    shown = groups("--describe", "--group", "shop")
    assert shown.code == 0
    assert "Consumer group 'shop' has no active members." in shown.err
    assert shown.lines[0] == ""
    assert [line.split() for line in shown.lines[1:]] == [
        ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID"],
        ["clicks", "0", "2", "3", "1", "-"],
        ["gone", "1", "-", "-", "-", "shop_host-1"],
    ]
    (document,) = json.loads(groups("--describe", "--group", "shop", "--output", "json").out)
    assert document["offsets"][0] == {
        "topic": "clicks",
        "partition": 0,
        "currentOffset": 2,
        "logEndOffset": 3,
        "lag": 1,
        "consumerId": None,
    }

    missing = groups("--describe", "--group", "nobody")
    assert (missing.code, missing.lines) == (1, [])
    assert "'nobody' does not exist in ZooKeeper" in missing.err
    live = groups("--delete", "--group", "live")
    assert live.code == 1
    assert live.err == "Delete for group 'live' failed because its consumers are still active.\n"
    assert groups("--delete", "--topic", "gone").code == 1  # nothing of the live one
    assert "gone" not in groups("--describe", "--group", "shop").out
    assert groups("--delete", "--group", "shop").lines == [
        "Deleted all consumer group information for group 'shop' in zookeeper."
    ]
    assert groups("--list").lines == ["live"]
    refused = groups("--reset-offsets", "--group", "live", "--topic", "clicks", "--to-earliest", "--execute")
    assert refused.code == 1
    assert "--reset-offsets cannot be used with --zookeeper" in refused.err


def test_old_flags_of_the_console_consumer(tool: Tool, served: tuple[BrokerProcess, str]) -> None:
    broker, address = served
    for topic in ("wanted", "others"):
        tool(kafka_topics.main, "--bootstrap-server", broker.bootstrap, "--create", "--topic", topic)
        produce(broker, topic, f"of {topic}".encode())

    def consume(*words: str) -> list[str]:
        result = tool(
            kafka_console_consumer.main, "--zookeeper", address, "--from-beginning", "--max-messages", "1", *words
        )
        assert result.code == 0, result.err
        return result.lines

    assert consume("--blacklist", "others|clicks|t|__.*") == ["of wanted"]
    group = ("--topic", "wanted", "--consumer-property", "group.id=old-flags")
    assert consume(*group) == ["of wanted"]
    assert consume(*group, "--timeout-ms", "500") == []
    assert consume(*group, "--delete-consumer-offsets") == ["of wanted"]
    with_metrics = tool(
        kafka_console_consumer.main,
        "--zookeeper",
        address,
        "--topic",
        "wanted",
        "--max-messages",
        "0",
        "--metrics-dir",
        "metrics",
    )
    assert "--metrics-dir have no effect" in with_metrics.err


def test_mistakes_are_one_sentence(
    tool: Tool, served: tuple[BrokerProcess, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, address = served
    monkeypatch.setattr("jesenska.cli.shared.zookeeper_option._CONNECT_MS", 100)
    for main, words, said in (
        (kafka_topics.main, ["--zookeeper", "127.0.0.1:1", "--list"], "No ZooKeeper answers at 127.0.0.1:1"),
        (kafka_topics.main, ["--zookeeper", "here:there", "--list"], "'here:there' is not an address"),
        (kafka_topics.main, ["--zookeeper", address, "--bootstrap-server", broker.bootstrap, "--list"], "only one of"),
        (
            kafka_topics.main,
            ["--bootstrap-server", broker.bootstrap, "--alter", "--topic", "t", "--delete-config", "a"],
            "--delete-config can't be used",
        ),
        (
            kafka_console_consumer.main,
            ["--zookeeper", f"{address}/elsewhere", "--topic", "t"],
            "No broker with a plaintext listener is registered",
        ),
        (
            kafka_console_consumer.main,
            ["--zookeeper", address, "--bootstrap-server", broker.bootstrap, "--topic", "t"],
            "were both given",
        ),
    ):
        result = tool(main, *words)
        assert result.code == 1
        assert said in result.err
        assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("main", "words"),
    [
        (kafka_topics.main, ["--list"]),
        (kafka_console_consumer.main, ["--topic", "t"]),
        (kafka_consumer_groups.main, ["--list"]),
    ],
)
def test_a_zookeeper_that_does_not_answer_is_waited_for_aloud(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, main: Main, words: list[str]
) -> None:
    monkeypatch.setattr("jesenska.cli.shared.zookeeper_option._CONNECT_MS", 300)
    monkeypatch.setattr("jesenska.cli.shared.tool.QUIET_SECONDS", 0.05)
    result = tool(main, "--zookeeper", "127.0.0.1:1", *words)
    assert result.code == 1
    assert result.err.startswith("Waiting for ZooKeeper (")


def test_a_layout_is_made_once(tool: Tool, tmp_path: Path) -> None:
    directory = tmp_path / "kafka"
    assert tool(jesenska.main, "init", str(directory)).err == ""
    topics = directory / "bin" / "kafka-topics.sh"
    assert subprocess.run([topics, "--version"], check=True, capture_output=True, text=True).stdout.startswith(
        "kafka-topics of jesenska "
    )
    (directory / "config" / "server.properties").write_text("mine")
    topics.unlink()
    made = json.loads(tool(jesenska.main, "init", str(directory), "--output", "json").out)
    assert made["made"] == [str(topics)]
    assert (directory / "config" / "server.properties").read_text() == "mine"
    (tmp_path / "file").write_text("")
    failed = tool(jesenska.main, "init", str(tmp_path / "file"))
    assert (failed.code, failed.err.count("\n")) == (1, 1)


def test_up_serves_its_tree_where_it_is_asked_to(tool: Tool, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "jesenska",
        "up",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
        "--zookeeper-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "zookeeper-shell" in line)
            words = line.split()
            assert words[2:] == ["ls", "/brokers/topics"]
            assert tool(zookeeper_shell.main, words[1], "ls", "/brokers/ids").lines == ["[1]"]
        finally:
            process.terminate()
            process.communicate()


def test_a_zookeeper_server_is_stopped_by_its_directory(tool: Tool, tmp_path: Path) -> None:
    properties = tmp_path / "zookeeper.properties"
    properties.write_text(f"dataDir={tmp_path / 'data'}\nclientPort=0\nclientPortAddress=127.0.0.1\n")
    command = [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_server_start", str(properties)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert "is up at" in process.stdout.readline()
            second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
            assert second.returncode == 1
            assert f"in use by process {process.pid}" in second.stderr
            stopped = tool(zookeeper_server_stop.main, str(properties), "--output", "json")
            assert json.loads(stopped.out) == [{"pid": process.pid, "directory": str(tmp_path / "data")}]
            assert process.wait(30) == 0
        finally:
            process.kill()
    again = tool(zookeeper_server_stop.main, "--data", str(tmp_path / "data"))
    assert again.code == 1
    assert "No ZooKeeper server of jesenska runs on" in again.err
    assert tool(zookeeper_server_stop.main).code == 1
