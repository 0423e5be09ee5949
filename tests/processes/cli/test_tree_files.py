"""`jesenska tree`: a cluster whose tree is lost continues from a backup that was made under load, or from the data of
its brokers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.cli import jesenska
from jesenska.cli.kafka.topics import kafka_configs, kafka_topics
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.metadata.journal import METADATA_FILE
from jesenska.testing import BrokerProcess
from jesenska.testing.tree import TreeProcess
from tests.processes.cli.conftest import Tool
from tests.several_brokers import SECONDS, SeveralBrokers
from tests.values_and_offset import values_and_offset
from tests.watched_processes import watched

_PARTITIONS = 500
_KEY = TopicPartition("orders", 3)


async def _create(bootstrap: str, partitions: int) -> None:
    cluster = Cluster(bootstrap)
    topics = [
        NewTopic("orders", partitions - 8, 3, {"retention.ms": "123456789"}),
        NewTopic("accounts", 8, 3, {"cleanup.policy": "compact"}),
    ]
    await Admin(cluster).create_topics(topics)
    await cluster.close()


async def _write(bootstrap: str, numbers: range) -> None:
    """Writes a record for each number, all in partition 3 of orders. Then commits the group's offset after them."""
    cluster = Cluster(bootstrap)
    async with Producer(cluster) as producer:
        await asyncio.gather(
            *[await producer.send("orders", b"%d" % number, partition=_KEY.partition) for number in numbers]
        )
    await Admin(cluster).alter_group_offsets("readers", {_KEY: numbers.stop})
    await cluster.close()


def _holds(bootstrap: str, count: int) -> None:
    """Checks that partition 3 of orders has every value up to this number, and that the group's offset is after
    them."""
    values, committed = asyncio.run(values_and_offset(bootstrap, _KEY, "readers", count))
    assert (values, committed) == ([b"%d" % number for number in range(count)], count)


def _settings(tool: Tool, bootstrap: str, topic: str) -> str:
    """The settings of a topic."""
    return tool(
        kafka_configs.main,
        "--bootstrap-server",
        bootstrap,
        "--entity-type",
        "topics",
        "--entity-name",
        topic,
        "--describe",
    ).out


@pytest.mark.timeout(600)
def test_a_cluster_whose_tree_is_lost_goes_on_with_what_its_brokers_hold(tmp_path: Path, tool: Tool) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with SeveralBrokers(data, 3) as brokers:
        asyncio.run(_create(brokers.bootstrap, _PARTITIONS))
        asyncio.run(_write(brokers.bootstrap, range(500)))

        async def back_up_under_load() -> int:
            writing = asyncio.create_task(_write(brokers.bootstrap, range(500, 1000)))
            code = await asyncio.to_thread(jesenska.main, ["tree", "backup", str(backup), "--data", str(data)])
            await writing
            return code

        assert asyncio.run(back_up_under_load()) == 0
        tool(
            kafka_topics.main,
            "--bootstrap-server",
            brokers.bootstrap,
            "--create",
            "--topic",
            "later",
            "--partitions",
            "2",
            "--replication-factor",
            "3",
        )
        asyncio.run(_write(brokers.bootstrap, range(1000, 1200)))
        brokers.stop()

        shutil.rmtree(data / "tree")
        inventories = []
        for broker in (1, 2, 3):
            inventories.append(tmp_path / f"{broker}.json")
            inventories[-1].write_text(tool(jesenska.main, "tree", "inventory", str(data / f"broker-{broker}")).out)
        built = tool(
            jesenska.main,
            "tree",
            "rebuild",
            *map(str, inventories),
            "--data",
            str(data),
            "--backup",
            str(backup),
            "--output",
            "json",
        )
        assert built.code == 0, built.err
        said = json.loads(built.out)
        # Beside the topics that were made: 50 partitions of groups' offsets.
        assert (said["topics"], said["partitions"], said["brokers"]) == (4, _PARTITIONS + 2 + 50, [1, 2, 3])
        assert [note for note in said["notes"] if "The settings of later are not known:" in note] == said["notes"]
        brokers.start()
        _holds(brokers.bootstrap, 1200)
        assert "retention.ms=123456789" in _settings(tool, brokers.bootstrap, "orders")
        assert "cleanup.policy=compact" in _settings(tool, brokers.bootstrap, "accounts")
        asyncio.run(_write(brokers.bootstrap, range(1200, 1300)))

        # Everything dies at once, and no backup is there.
        processes = brokers.processes().values()
        with watched(*processes, seconds=SECONDS) as have_ended:
            for process in (brokers.pid, *processes):
                os.kill(process, signal.SIGKILL)
            brokers.kill()
            assert have_ended()
        shutil.rmtree(data / "tree")
        built = tool(
            jesenska.main,
            "tree",
            "rebuild",
            *(str(data / f"broker-{broker}") for broker in (1, 2, 3)),
            "--data",
            str(data),
        )
        assert built.code == 0, built.err
        brokers.start()
        _holds(brokers.bootstrap, 1300)
        assert "retention.ms=-1" in _settings(tool, brokers.bootstrap, "orders")
        assert "cleanup.policy=compact" in _settings(tool, brokers.bootstrap, "__consumer_offsets")
        asyncio.run(_write(brokers.bootstrap, range(1300, 1400)))


def test_a_tree_that_was_backed_up_is_put_back(tmp_path: Path, tool: Tool) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with BrokerProcess(data) as broker:
        tool(
            kafka_topics.main,
            "--bootstrap-server",
            broker.bootstrap,
            "--create",
            "--topic",
            "orders",
            "--partitions",
            "5",
        )
        asyncio.run(_write(broker.bootstrap, range(100)))
        refused = tool(jesenska.main, "tree", "backup", str(backup), "--data", str(data))
        assert (refused.code, refused.out) == (1, "")
        assert (
            "is in use by a broker that keeps its tree in its own process: stop the broker, or start it with "
            "--zookeeper-port" in refused.err
        )
        broker.stop()
        done = tool(jesenska.main, "tree", "backup", str(backup), "--data", str(data))
        assert (done.code, done.err) == (0, "")
        again = tool(jesenska.main, "tree", "backup", str(backup), "--data", str(data))
        assert (again.code, "is there already: name another file" in again.err) == (1, True)
        there = tool(jesenska.main, "tree", "restore", str(backup), "--data", str(data))
        assert (there.code, "has a tree already" in there.err) == (1, True)
        (data / METADATA_FILE).unlink()
        backup.chmod(0o444)
        put = tool(jesenska.main, "tree", "restore", str(backup), "--data", str(data))
        assert put.code == 0, put.err
        broker.start()
        _holds(broker.bootstrap, 100)
        asyncio.run(_write(broker.bootstrap, range(100, 120)))


def test_a_tree_goes_from_one_zookeeper_to_another(tmp_path: Path, tool: Tool) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with TreeProcess(tmp_path / "one") as first, TreeProcess(tmp_path / "two") as second:
        first_data = str(tmp_path / "one" / "data")
        with BrokerProcess(tmp_path / "data", settings={"zookeeper.connect": f"{first.address}/kafka"}) as broker:
            tool(
                kafka_topics.main,
                "--bootstrap-server",
                broker.bootstrap,
                "--create",
                "--topic",
                "orders",
                "--partitions",
                "5",
            )
            done = tool(
                jesenska.main, "tree", "backup", str(tmp_path / "backup"), "--zookeeper", f"{first.address}/kafka"
            )
            assert done.code == 0, done.err
            by_directory = tool(jesenska.main, "tree", "backup", str(tmp_path / "other"), "--data", first_data)
            assert (
                by_directory.code,
                "holds no cluster: correct the directory or the path (--chroot with --data)" in by_directory.err,
            ) == (1, True)
            by_directory = tool(
                jesenska.main, "tree", "backup", str(tmp_path / "other"), "--data", first_data, "--chroot", "/kafka"
            )
            assert by_directory.code == 0, by_directory.err
        put = tool(
            jesenska.main, "tree", "restore", str(tmp_path / "backup"), "--zookeeper", f"{second.address}/else/where"
        )
        assert put.code == 0, put.err
        again = tool(
            jesenska.main, "tree", "restore", str(tmp_path / "backup"), "--zookeeper", f"{second.address}/else/where"
        )
        assert (again.code, "already has metadata of Kafka" in again.err) == (1, True)
        with BrokerProcess(tmp_path / "data", settings={"zookeeper.connect": f"{second.address}/else/where"}) as broker:
            assert tool(kafka_topics.main, "--bootstrap-server", broker.bootstrap, "--list").lines == ["orders"]


def test_a_tree_below_a_path_is_built_anew_below_it(tmp_path: Path, tool: Tool) -> None:
    (tmp_path / "zookeeper").mkdir()
    tree_data, data = tmp_path / "zookeeper" / "data", tmp_path / "data"
    with (
        TreeProcess(tmp_path / "zookeeper") as tree,
        BrokerProcess(data, settings={"zookeeper.connect": f"{tree.address}/one/cluster"}) as broker,
    ):
        tool(
            kafka_topics.main,
            "--bootstrap-server",
            broker.bootstrap,
            "--create",
            "--topic",
            "orders",
            "--partitions",
            "5",
        )
        asyncio.run(_write(broker.bootstrap, range(10)))
        held = tool(jesenska.main, "tree", "rebuild", str(data), "--data", str(tree_data))
        assert (held.code, "stop" in held.err) == (1, True)
        broker.stop()
        held = tool(jesenska.main, "tree", "rebuild", str(data), "--data", str(tree_data), "--chroot", "/one/cluster")
        assert (
            held.code,
            f"in use by process {tree.pid}: stop that process with zookeeper-server-stop" in held.err,
        ) == (1, True)
        tree.stop()
        shutil.rmtree(tree_data)
        wrong = tool(jesenska.main, "tree", "rebuild", str(data), "--data", str(tree_data), "--chroot", "cluster")
        assert (wrong.code, "--chroot cluster is not a path" in wrong.err, tree_data.exists()) == (1, True, False)
        built = tool(jesenska.main, "tree", "rebuild", str(data), "--data", str(tree_data), "--chroot", "/one/cluster")
        assert built.code == 0, built.err
        tree.start()
        broker.start()
        _holds(broker.bootstrap, 10)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["backup", "{tmp}/new", "--data", "{tmp}/nothing"],
            "{tmp}/nothing holds no tree (jesenska-metadata.db): name the --data of jesenska up, or a dataDir.",
        ),
        (
            ["backup", "{tmp}/no/new", "--data", "{tmp}"],
            "There is no directory {tmp}/no: make this directory, or name a file in another directory.",
        ),
        (
            ["restore", "{tmp}/nothing", "--data", "{tmp}/new"],
            "There is no file {tmp}/nothing: name one that jesenska tree backup has made.",
        ),
        (["restore", "{tmp}/text", "--data", "{tmp}/new"], "{tmp}/text is not a backup of a tree, or is damaged"),
        (["inventory", "{tmp}/nothing"], "There is no directory {tmp}/nothing"),
        (
            ["rebuild", "{tmp}/nothing", "--data", "{tmp}/new"],
            "There is nothing at {tmp}/nothing: name a broker's directory, or a file",
        ),
        (
            ["rebuild", "{tmp}/text", "--data", "{tmp}/new"],
            "{tmp}/text is not an inventory: make one with jesenska tree inventory, or name a broker's directory.",
        ),
        (["rebuild", "{tmp}", "--data", "{tmp}/new"], "{tmp} does not name its broker (it has no meta.properties)"),
    ],
)
def test_mistakes_are_told_and_change_nothing(tmp_path: Path, tool: Tool, words: list[str], says: str) -> None:
    (tmp_path / "text").write_text("a text")
    done = tool(jesenska.main, "tree", *(word.format(tmp=tmp_path) for word in words))
    assert (done.code, done.out) == (1, "")
    assert says.format(tmp=tmp_path) in done.err
    assert not (tmp_path / "new").exists()
