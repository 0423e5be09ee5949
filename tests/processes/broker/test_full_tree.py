"""The disk of the tree is full. Changes are refused, clients are served, and all work goes on when there is room."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.metadata.tree_operations import ConnectionLossError
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing import BrokerProcess
from jesenska.testing.faults import NoSmallDiskError, SmallDisk
from jesenska.testing.tree import TreeProcess

_NODE_BYTES = 900_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    place = tmp_path / "small"
    place.mkdir()
    small = SmallDisk(place, 12 << 20)
    try:
        small.__enter__()
    except NoSmallDiskError as error:
        pytest.skip(str(error))
    try:
        yield small
    finally:
        small.__exit__(None, None, None)


async def _write_until_refused(address: str) -> str:
    """The text of the refusal of a node that has no room, and then of a small one."""
    store = await connect(address, session_timeout_ms=10_000)
    try:
        for size in (_NODE_BYTES, 4000, 10):
            with pytest.raises(ConnectionLossError) as refused:
                for number in range(10_000):
                    await store.create(f"/of-{size}-{number}", bytes(size))
        return refused.value.reason
    finally:
        await store.close()


async def _create(bootstrap: str, name: str) -> str | None:
    cluster = Cluster(bootstrap)
    try:
        error = (await Admin(cluster).create_topics([NewTopic(name, 1, 1)]))[name]
        return None if error is None else str(error)
    finally:
        await cluster.close()


async def _send(bootstrap: str) -> int:
    cluster = Cluster(bootstrap)
    try:
        async with Producer(cluster, enable_idempotence=False) as producer:
            return (await (await producer.send("before", b"value", partition=0))).offset
    finally:
        await cluster.close()


def _shell(address: str) -> str:
    command = [
        sys.executable,
        "-m",
        "jesenska.cli.zookeeper.zookeeper_shell",
        "--timeout-ms",
        "1000",
        address,
        "ls",
        "/",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else done.stderr


def test_a_full_disk_of_the_tree_refuses_changes_and_nothing_else(tmp_path: Path, disk: SmallDisk) -> None:
    with (
        TreeProcess(disk.path) as tree,
        BrokerProcess(tmp_path / "data", settings={"zookeeper.connect": tree.address}) as broker,
    ):
        assert asyncio.run(_create(broker.bootstrap, "before")) is None
        disk.fill()
        assert (
            asyncio.run(_write_until_refused(tree.address))
            == "the ZooKeeper server cannot write it, and its log says why"
        )
        tree.wait_until_said("make room", 20.0)
        lines = [line for line in tree.log.splitlines() if " ERROR " in line]
        assert len(lines) == 1
        assert (
            f"The disk is full, so the metadata file {disk.path}/data/jesenska-metadata.db cannot be written: make room"
            in lines[0]
        )

        said = asyncio.run(_create(broker.bootstrap, "meanwhile"))
        assert said is not None
        assert "the ZooKeeper server cannot write it, and its log says why" in said
        assert asyncio.run(_send(broker.bootstrap)) == 0
        assert "closes every connection. Either it is not a ZooKeeper, or its log says why" in _shell(tree.address)

        disk.free()
        assert asyncio.run(_create(broker.bootstrap, "after")) is None
        assert "brokers" in _shell(tree.address)
        assert broker.stop() == 0
        assert tree.stop() == 0


def test_a_tree_that_finds_no_room_for_its_file_says_so(disk: SmallDisk) -> None:
    (disk.path / "zookeeper.properties").write_text(
        f"dataDir={disk.path}/data\nclientPort=0\nclientPortAddress=127.0.0.1\n"
    )
    (disk.path / "data").mkdir()
    disk.fill()
    command = [
        sys.executable,
        "-m",
        "jesenska.cli.zookeeper.zookeeper_server_start",
        str(disk.path / "zookeeper.properties"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    sentence = (
        f"dataDir={disk.path}/data cannot be used, since it cannot be written (No space left on device): make room on "
        f"the disk."
    )
    assert done.stderr == f"zookeeper-server-start: {sentence}\n"

    # There is room for the lock, and for nothing else.
    disk.free()
    disk.fill(leaving_bytes=8192)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    sentence = (
        f"The disk is full, so the metadata file {disk.path}/data/jesenska-metadata.db cannot be written: make room; "
        f"the change was not made."
    )
    assert (done.returncode, done.stderr) == (1, f"zookeeper-server-start: {sentence}\n")


def test_a_broker_that_finds_no_room_names_its_directory(disk: SmallDisk) -> None:
    (disk.path / "data").mkdir()
    disk.fill()
    command = [sys.executable, "-m", "jesenska", "up", "--port", "0", "--data", str(disk.path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        f"The log directory {disk.path}/data cannot be written (No space left on device): make room on the disk."
        in done.stderr
    )
