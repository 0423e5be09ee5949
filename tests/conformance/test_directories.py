"""Log directories and Apache Kafka: its lock and ours exclude each other, and what Kafka 3.9.1 has written is read by
our log room."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_lock import DirectoryLock, LogDirectoryError
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.reading import read_log
from jesenska.metadata.registration import ensure_cluster_id, ensure_paths
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.records.decode import decode_batches
from jesenska.records.header import Codec
from jesenska.records.record import Record
from jesenska.testing import BrokerProcess
from jesenska.testing.process import ServerFailedError
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.judge import Judge
from tests.peers.tools import Tools
from tests.served_tree import ServedTree

pytestmark = pytest.mark.conformance

_NOW_MS = 1_800_000_000_000
_LINES = [f"line {number} {'again ' * 30}" for number in range(400)]


def test_kafkas_lock_keeps_us_out_and_ours_keeps_kafka_out(judge_4: Judge, tmp_path: Path) -> None:
    assert judge_4.ask("lock", tmp_path) == "locked"
    with pytest.raises(LogDirectoryError, match="is in use by another process"):
        DirectoryLock(tmp_path)
    assert judge_4.ask("unlock") == "unlocked"
    with BrokerProcess(tmp_path) as broker:
        assert judge_4.ask("lock", tmp_path) == "taken"
        assert broker.stop() == 0
    assert judge_4.ask("lock", tmp_path) == "locked"
    judge_4.ask("unlock")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, tools_3: Tools) -> Iterator[ApacheKafka]:
    """Kafka 3.9.1 in ZooKeeper mode with a topic in every codec, rolled often, stopped in order. Its ZooKeeper is
    stopped too."""
    need("java", "mvn")
    settings = {"log.segment.bytes": "20000", "log.index.interval.bytes": "500", "log.retention.ms": "-1"}
    peer = ApacheKafka("3.9.1", tmp_path_factory.mktemp("kafka"), zookeeper=True, heap="384m", settings=settings)
    with peer:
        where = ("--bootstrap-server", peer.bootstrap)
        for codec in Codec:
            topic = _topic(codec)
            assert (
                tools_3.run(
                    "kafka-topics", *where, "--create", "--topic", topic, "--partitions", 1, "--replication-factor", 1
                ).code
                == 0
            )
            said = tools_3.run(
                "kafka-console-producer",
                *where,
                "--topic",
                topic,
                "--compression-codec",
                codec.name.lower(),
                "--batch-size",
                2000,
                given="\n".join(_LINES),
            )
            assert said.code == 0, said
    yield peer


def _topic(codec: Codec) -> str:
    return f"theirs-{codec.name.lower()}"


@pytest.fixture
def copied(kafka: ApacheKafka, tmp_path: Path) -> Path:
    shutil.copytree(kafka.directory / "data-0", tmp_path / "data")
    return tmp_path / "data"


def _read(directories: LogDirectories, topic_partition: TopicPartition) -> list[Record]:
    log = directories.logs[topic_partition]
    log.high_watermark = log.log_end_offset
    found: list[Record] = []
    while len(found) < log.log_end_offset:
        region = read_log(log, len(found), 1 << 20).region
        assert region is not None
        try:
            data = os.pread(region.file.fileno(), region.size_bytes, region.position)
        finally:
            region.release()
        found += decode_batches(data, start_offset=len(found))
    return found


@pytest.mark.parametrize("clean", [True, False], ids=["after an orderly stop", "as after a crash"])
def test_our_log_room_reads_what_kafka_has_written_and_leaves_alone_what_is_unknown(
    copied: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    if not clean:
        (copied / ".kafka_cleanshutdown").unlink()
        (copied / "recovery-point-offset-checkpoint").unlink()
        for index in copied.glob("theirs-*/*.index"):
            index.unlink()
    unknown = {path: path.read_bytes() for path in (copied / "theirs-zstd-0").iterdir()}
    ids: dict[TopicPartition, UUID | None] = {}

    def known(topic_partition: TopicPartition, topic_id: UUID | None) -> LogConfig | None:
        ids[topic_partition] = topic_id
        return (
            None
            if topic_partition.topic == "theirs-zstd"
            else LogConfig(segment_bytes=20_000, index_interval_bytes=500, retention_ms=-1)
        )

    directories = LogDirectories([copied])
    (found,) = directories.lock()
    assert found is not None
    assert found.cluster_id is not None
    assert found.broker_id == 0
    directories.claim(found.cluster_id, 0)
    directories.load(known, _NOW_MS)
    try:
        assert directories.was_clean == clean
        for codec in Codec:
            topic_partition = TopicPartition(_topic(codec), 0)
            assert ids[topic_partition] is not None
            if codec == Codec.ZSTD:
                assert topic_partition not in directories.logs
                continue
            assert len(directories.logs[topic_partition].segments) > 1 or codec != Codec.NONE
            assert [record.value for record in _read(directories, topic_partition)] == [
                line.encode() for line in _LINES
            ]
    finally:
        directories.close()
    assert any("theirs-zstd-0" in message and "was not changed" in message for message in caplog.messages)
    assert {path: path.read_bytes() for path in (copied / "theirs-zstd-0").iterdir()} == unknown


async def _know(address: str, cluster_id: str) -> None:
    """Makes a tree that of a cluster, without any topic."""
    store = await ZooKeeperStore.connect(ConnectString.parse(address))
    await ensure_paths(store)
    assert await ensure_cluster_id(store, cluster_id) == cluster_id
    await store.close()


def test_our_broker_does_not_take_kafkas_partitions_for_strangers_but_by_a_tree_of_others(
    copied: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its own tree would be empty, and one that knows no cluster is not the one of these data. A shared one says what
    there is: what it does not know is named and left alone."""
    before = {path: path.read_bytes() for directory in copied.glob("theirs-*") for path in directory.iterdir()}
    with pytest.raises(ServerFailedError, match="run jesenska import first"):
        BrokerProcess(copied, settings={"broker.id": "0"}).start()
    with ServedTree(tmp_path_factory.mktemp("tree") / "tree.db") as served:
        settings = {"broker.id": "0", "zookeeper.connect": served.address}
        with pytest.raises(ServerFailedError, match="knows no cluster"):
            BrokerProcess(copied, settings=settings).start()
        found = re.search(r"cluster.id=(\S+)", (copied / "meta.properties").read_text())
        assert found is not None
        asyncio.run(_know(served.address, found[1]))
        with BrokerProcess(copied, settings=settings) as broker:
            for codec in Codec:
                broker.wait_until_said(f"{_topic(codec)}-0 is not known to the metadata")
            assert broker.stop() == 0
    assert {path: path.read_bytes() for directory in copied.glob("theirs-*") for path in directory.iterdir()} == before
    assert "broker.id=0" in (copied / "meta.properties").read_text()
