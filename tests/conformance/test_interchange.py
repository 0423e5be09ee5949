"""A data directory goes from Apache Kafka to our broker and back: every record, group and setting is there each
time, as clients see them."""

from __future__ import annotations

import asyncio
import importlib
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jesenska.cli.jesenska import main
from jesenska.interchange.journal_file import read_tree
from jesenska.interchange.nodes import FoundTree, Node
from jesenska.interchange.old_segments import has_old_formats
from jesenska.interchange.zookeeper_copy import read_store
from jesenska.interchange.zookeeper_files import read_data_directory
from jesenska.metadata.nodes import ProducerIdBlock, decode_config
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.zookeeper import ZooKeeper

need_modules("confluent_kafka")

from tests.conformance import kafka_data  # noqa: E402 - reads the module that may be missing

_admin: Any = importlib.import_module("confluent_kafka.admin")

pytestmark = pytest.mark.conformance

_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "10000000",
    "log.retention.hours": "-1",
}


def _tree(servers: str) -> FoundTree:
    async def read() -> FoundTree:
        store = await connect(servers)
        try:
            return await read_store(store)
        finally:
            await store.close()

    return asyncio.run(read())


def _stop_brokers(kafka: ApacheKafka) -> None:
    """Its ZooKeeper goes on."""
    for broker in kafka.brokers:
        broker.terminate()
    for broker in kafka.brokers:
        broker.wait(60)


def _imported(
    kafka: ApacheKafka, zookeeper: Path, chroot: str, codecs: list[str], capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Has Kafka write, stops it and imports what it leaves; gives what clients were told. `zookeeper` is its
    ZooKeeper's dataDir."""
    directory = kafka.directory / "data-0"
    is_old = kafka.version == "1.0.2"
    with kafka:
        where = str(kafka.zookeeper_connect)
        kafka_data.fill(kafka.bootstrap, codecs, old_formats=is_old)
        kafka_data.until_compacted(directory)
        told = kafka_data.everything(kafka.bootstrap)
        _check(told, codecs)
        if not is_old:
            told["users"] = _users(kafka)
        assert main(["import", str(directory), "--zookeeper", where]) == 1
        assert "is in use by another process" in capsys.readouterr().err
        _stop_brokers(kafka)
        served = _tree(where)
        assert main(["import", str(directory), "--zookeeper", where, "--dry-run"]) == 0
    # What stands in ZooKeeper's files is what it has answered.
    assert read_data_directory(zookeeper, None, chroot).nodes == served.nodes
    old = {path.name for path in directory.iterdir() if path.is_dir() and has_old_formats(path)}
    assert all(name.startswith("format-") for name in old)
    assert len(old) == (9 if is_old else 0)
    assert main(["import", str(directory), "--zookeeper-data", str(zookeeper), "--chroot", chroot]) == 0
    assert not any(has_old_formats(path) for path in directory.iterdir() if path.is_dir())
    assert not list(directory.glob("*/*.cleaned"))
    return told


def _users(kafka: ApacheKafka) -> str:
    """Gives a user a password and a quota; what Kafka's tool tells of it."""
    wanted = _admin.UserScramCredentialUpsertion(
        "alice", _admin.ScramCredentialInfo(_admin.ScramMechanism.SCRAM_SHA_256, 4096), b"secret", b"salt"
    )
    admin = _admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.alter_user_scram_credentials([wanted])["alice"].result(30)
    arguments = [
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        "alice",
        "--add-config",
        "producer_byte_rate=1000",
    ]
    assert kafka.tool("kafka-configs", "--bootstrap-server", kafka.bootstrap, *arguments).returncode == 0
    described = _described_users(kafka)
    assert "producer_byte_rate=1000" in described
    assert "SCRAM-SHA-256=iterations=4096" in described
    return described


def _described_users(kafka: ApacheKafka) -> str:
    said = kafka.tool(
        "kafka-configs",
        "--bootstrap-server",
        kafka.bootstrap,
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "alice",
    )
    return str(said.stdout)


def test_what_1_0_wrote_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every format that it keeps; its ZooKeeper is 3.4.10."""
    need("java", "mvn")
    kafka = ApacheKafka("1.0.2", tmp_path, zookeeper=True, heap="400m", settings=_SETTINGS)
    told = _imported(kafka, tmp_path / "zookeeper", "", ["none", "gzip", "snappy", "lz4"], capsys)
    with BrokerProcess(tmp_path / "data-0", settings={"log.retention.hours": "-1"}) as broker:
        assert kafka_data.everything(broker.bootstrap) == told
        assert broker.stop() == 0


def test_from_3_9_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was written meanwhile goes back with the rest."""
    need("java", "mvn")
    directory = tmp_path / "data-0"
    with ZooKeeper(tmp_path) as zookeeper:
        where = f"127.0.0.1:{zookeeper.port}/kafka"
        kafka = ApacheKafka("3.9.1", tmp_path, zookeeper_connect=where, heap="400m", settings=_SETTINGS)
        told = _imported(kafka, tmp_path / "data", "/kafka", ["none", "gzip", "snappy", "lz4", "zstd"], capsys)
        users = told.pop("users")
        with BrokerProcess(directory, settings={"log.retention.hours": "-1"}) as broker:
            assert kafka_data.everything(broker.bootstrap) == told
            kafka_data.add(broker.bootstrap)
            told = kafka_data.everything(broker.bootstrap)
            assert {"added", "codec-none"} <= told["partitions"].keys()
            assert "newcomers" in told["groups"]
            assert broker.stop() == 0
        assert main(["export", str(directory), "--zookeeper", where]) == 1
        assert "already has metadata of Kafka" in capsys.readouterr().err
        assert main(["export", str(directory), "--zookeeper", where, "--replace"]) == 0
        with kafka:
            kafka_data.until_known(kafka.bootstrap, len(told["partitions"]))
            assert kafka_data.everything(kafka.bootstrap) == told
            assert _described_users(kafka) == users
            for tool, arguments, expected in (
                ("kafka-topics", ["--describe", "--topic", "added"], "PartitionCount: 2"),
                ("kafka-consumer-groups", ["--describe", "--group", "newcomers"], "added"),
            ):
                said = kafka.tool(tool, "--bootstrap-server", kafka.bootstrap, *arguments)
                assert expected in said.stdout, said


def _administer(kafka: ApacheKafka) -> None:
    """Everything that the metadata log has records of, and that clients can ask for."""
    admin = _admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([_admin.NewTopic("gone", 1, 1, config={"retention.ms": "5"})])["gone"].result(30)
    admin.delete_topics(["gone"])["gone"].result(30)
    admin.create_partitions([_admin.NewPartitions("empty", 5)])["empty"].result(30)
    rules = [
        ("empty", _admin.ResourcePatternType.LITERAL),
        ("em", _admin.ResourcePatternType.PREFIXED),
        ("a/b", _admin.ResourcePatternType.LITERAL),
    ]
    bindings = [
        _admin.AclBinding(
            _admin.ResourceType.TOPIC,
            name,
            kind,
            "User:x",
            "*",
            _admin.AclOperation.READ,
            _admin.AclPermissionType.ALLOW,
        )
        for name, kind in rules
    ]
    for future in admin.create_acls(bindings).values():
        future.result(30)
    for mechanism in (_admin.ScramMechanism.SCRAM_SHA_256, _admin.ScramMechanism.SCRAM_SHA_512):
        wanted = _admin.UserScramCredentialUpsertion(
            "al ice", _admin.ScramCredentialInfo(mechanism, 4096), b"secret", b"salt"
        )
        admin.alter_user_scram_credentials([wanted])["al ice"].result(30)
    for entity, setting in (
        (["--entity-type", "users", "--entity-name", "al ice"], "producer_byte_rate=1000"),
        (
            ["--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-name", "c"],
            "request_percentage=12.5",
        ),
        (["--entity-type", "ips", "--entity-name", "10.0.0.1"], "connection_creation_rate=3"),
        (["--entity-type", "brokers", "--entity-default"], "log.retention.ms=1000000000"),
    ):
        done = kafka.tool(
            "kafka-configs", "--bootstrap-server", kafka.bootstrap, "--alter", *entity, "--add-config", setting
        )
        assert done.returncode == 0, done


def _settings(nodes: Mapping[str, Node], *below: str) -> dict[str, dict[str, str]]:
    """The settings in the nodes below these."""
    return {
        path: decode_config(node.data)
        for path, node in nodes.items()
        if node.data and any(path.startswith(begin + "/") for begin in below)
    }


def test_what_4_3_wrote_in_kraft_mode_is_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From its metadata log, with snapshots."""
    need("java", "mvn")
    directory = tmp_path / "data-0"
    more = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "metadata.log.max.record.bytes.between.snapshots": "2000",
    }
    kafka = ApacheKafka("4.3.1", tmp_path, heap="400m", settings=_SETTINGS | more)
    with kafka:
        codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
        kafka_data.fill(kafka.bootstrap, codecs, segment_bytes=1 << 20)
        kafka_data.until_compacted(directory)
        _administer(kafka)
        told = kafka_data.everything(kafka.bootstrap)
        _check(told, codecs)
        assert main(["import", str(directory)]) == 1
        assert "is in use by another process" in capsys.readouterr().err
    assert list((directory / "__cluster_metadata-0").glob("*.checkpoint"))
    whole = {path.name for path in directory.iterdir()} | {".lock"}
    assert main(["import", str(directory), "--dry-run"]) == 0
    assert {path.name for path in directory.iterdir()} == whole
    assert "ACLs of a/b" in capsys.readouterr().err
    assert main(["import", str(directory), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["topics"] == len(told["partitions"])
    with tarfile.open(directory / "kraft-metadata.tar") as kept:
        assert {"meta.properties", "__cluster_metadata-0"} <= set(kept.getnames())
    with BrokerProcess(directory, settings={"log.retention.hours": "-1"}) as broker:
        assert kafka_data.everything(broker.bootstrap) == told
        assert broker.stop() == 0
    nodes = read_tree(directory)
    found = _settings(nodes, "/config/users", "/config/ips", "/config/brokers")
    credentials = found["/config/users/al%20ice"]
    assert credentials.keys() == {"producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert credentials["SCRAM-SHA-256"].startswith("salt=c2FsdA==,stored_key=")
    assert credentials["SCRAM-SHA-512"].endswith(",iterations=4096")
    assert credentials["producer_byte_rate"] == "1000"
    assert found["/config/users/<default>/clients/c"] == {"request_percentage": "12.5"}
    assert found["/config/ips/10.0.0.1"] == {"connection_creation_rate": "3"}
    assert found["/config/brokers/<default>"]["log.retention.ms"] == "1000000000"
    rule = {"principal": "User:x", "permissionType": "Allow", "operation": "Read", "host": "*"}
    for path in ("/kafka-acl/Topic/empty", "/kafka-acl-extended/prefixed/Topic/em"):
        assert json.loads(nodes[path].data or b"") == {"version": 1, "acls": [rule]}
    assert ProducerIdBlock.decode(nodes["/latest_producer_id_block"].data or b"").last >= 999


def _check(told: dict[str, Any], codecs: list[str]) -> None:
    """There is something to compare."""
    assert {f"codec-{codec}" for codec in codecs} <= told["partitions"].keys()
    assert told["groups"]["readers"] == {f"codec-{codecs[0]}-0": 7, f"codec-{codecs[0]}-1": 9}
    assert len(told["read_committed"]["transactions", 0]) == 9
    assert len(told["read_uncommitted"]["transactions", 0]) == 19
    assert len(told["read_committed"]["compacted", 0]) < 40
    assert told["settings"]["compacted"]["cleanup.policy"] == "compact"
