"""A broker that cannot start prints one sentence and ends. It changes nothing in its directories."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.base.clock import ManualClock
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import METADATA_FILE
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from tests.raw_connection import RawConnection


def refused(data: Path, *arguments: str) -> str:
    """The one sentence of a broker that must not start on this directory."""
    return refused_with("--data", str(data), *(arguments or ("--port", "0")))


def refused_with(*arguments: str) -> str:
    """The one sentence of a broker that must not start with these words."""
    done = subprocess.run(
        [sys.executable, "-m", "jesenska", "up", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if " WARNING " not in line]
    assert line.startswith(("jesenska: ", "jesenska up: "))
    assert line.endswith(".")
    return line.partition(": ")[2]


def contents(data: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A directory of a broker that was stopped in order."""
    data = tmp_path / "data"
    with BrokerProcess(data):
        pass
    return data


def test_a_taken_port_is_named_with_three_ways_out(tmp_path: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        said = refused(tmp_path / "data", "--port", str(port))
        assert said.startswith(f"Port {port} is taken by another process")
        assert "--port" in said
        assert "--any-port" in said
    assert not (tmp_path / "data" / "meta.properties").exists()


@pytest.mark.parametrize("more", [[], ["--any-port"]])
def test_a_taken_port_for_zookeepers_clients_is_told_as_theirs(tmp_path: Path, more: list[str]) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        said = refused(tmp_path / "data", "--port", "0", "--zookeeper-port", str(port), *more)
    assert (
        said
        == f"Port {port} is taken by another process: stop that process, or choose another port for 127.0.0.1:{port}."
    )


def test_a_second_broker_on_the_same_data_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as first:
        said = refused(tmp_path / "data")
        assert f"is in use by process {first.pid}" in said
        with socket.create_connection((first.host, first.port), 10):
            pass
        assert first.stop() == 0


def test_a_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert f"The log directory {tmp_path / 'data'} cannot be created" in refused(tmp_path / "data")
    assert (tmp_path / "data").read_text() == "a file"


@pytest.mark.parametrize("other", ["one", "two/../one", "link"])
def test_a_directory_that_is_named_twice_is_refused(tmp_path: Path, other: str) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to("one")
    first, second = f"{tmp_path}/one", f"{tmp_path}/{other}"
    also = "" if first == second else f", also as {first}"
    said = refused_with("--port", "0", "--override", f"log.dirs={first},{tmp_path}/three,{second}")
    assert said == f"log.dirs names {second} twice{also}: name each directory once."


def test_an_empty_name_is_no_directory() -> None:
    assert (
        refused_with("--port", "0", "--data", "")
        == "argument --data: '' names no directory: write its path; jesenska up --help lists the options."
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    said = refused(tmp_path / "data")
    assert "cannot be written" in said


def test_data_of_another_cluster_are_refused(used: Path) -> None:
    """The logs of one cluster are in the same directory as the metadata of another."""
    properties = used / "meta.properties"
    lines = [
        "cluster.id=BkqKvcOWQuuOhwNvbYx_og" if line.startswith("cluster.id=") else line
        for line in properties.read_text().splitlines()
    ]
    properties.write_text("\n".join(lines) + "\n")
    before = contents(used)
    said = refused(used)
    assert "belongs to cluster BkqKvcOWQuuOhwNvbYx_og, but this broker is of cluster" in said
    assert {name: data for name, data in contents(used).items() if name.endswith(".properties")} == {
        "meta.properties": before["meta.properties"]
    }


def test_data_of_another_broker_are_refused(used: Path) -> None:
    said = refused(used, "--port", "0", "--override", "broker.id=7")
    assert "belongs to broker 1, but this broker's id is 7" in said
    assert "broker.id=1" in said


@pytest.mark.parametrize("trace", ["version=1", "__cluster_metadata-0"])
def test_data_of_a_kraft_node_are_refused(tmp_path: Path, trace: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    if trace == "version=1":
        (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=BkqKvcOWQuuOhwNvbYx_og\n")
    else:
        (data / trace).mkdir()
    before = contents(data)
    assert "KRaft mode, which this broker cannot serve as they are" in refused(data)
    assert contents(data) == before


def test_a_meta_properties_that_makes_no_sense_is_refused(used: Path) -> None:
    (used / "meta.properties").write_text("version=zero\nbroker.id=1\n")
    assert "meta.properties cannot be read" in refused(used)


def test_after_a_refusal_the_directory_can_be_used(used: Path) -> None:
    refused(used, "--port", "0", "--override", "broker.id=7")
    with BrokerProcess(used) as broker:
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("is_empty", "words"), [(True, "has partitions (such as precious-0)"), (False, "knows no cluster")]
)
def test_partitions_beside_metadata_that_know_no_cluster_are_refused(
    tmp_path: Path, is_empty: bool, words: str
) -> None:
    """A full disk or a broken copy leaves an empty file. The other case is a tree in which a broker has never
    registered."""
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, RawConnection(broker.bootstrap) as connection:
        connection.ask(
            CreateTopicsRequest(
                topics=[CreateTopicsRequestTopic(name="precious", num_partitions=1, replication_factor=1)]
            ),
            0,
            CreateTopicsResponse,
        )
        broker.stop()
    (data / METADATA_FILE).unlink()
    if is_empty:
        (data / METADATA_FILE).write_bytes(b"")
    else:
        asyncio.run(_tree_without_cluster(data))
    before = contents(data)
    assert words in refused(data)
    assert {name: content for name, content in contents(data).items() if METADATA_FILE not in name} == {
        name: content for name, content in before.items() if METADATA_FILE not in name
    }


def test_metadata_that_are_older_than_the_logs_are_refused_and_the_newest_are_taken_again(tmp_path: Path) -> None:
    """The metadata were restored from a copy. The partition's leader epoch has risen since, when the broker ended."""
    data, old, newest = tmp_path / "data", tmp_path / "old", tmp_path / "newest"
    with BrokerProcess(data) as broker:
        asyncio.run(_write_to_precious(broker))
        broker.stop()
    _move_metadata(data, old)
    for file in old.iterdir():
        shutil.copy(file, data)
    with BrokerProcess(data) as broker:
        broker.kill()
    with BrokerProcess(data) as broker:
        broker.stop()
    _move_metadata(data, newest)
    _move_metadata(old, data)
    said = refused(data)
    assert said.startswith(
        f"The log directory {data} is newer than the metadata file {METADATA_FILE} of the first of them: precious-0 "
        "has leader epoch"
    )
    assert "jesenska tree rebuild" in said
    _move_metadata(data, old)
    _move_metadata(newest, data)
    with BrokerProcess(data) as broker:
        assert broker.stop() == 0


async def _write_to_precious(broker: BrokerProcess) -> None:
    cluster = Cluster(broker.bootstrap)
    (error,) = (await Admin(cluster).create_topics([NewTopic("precious", 1, 1)])).values()
    assert error is None
    async with Producer(cluster) as producer:
        await (await producer.send("precious", b"one"))
    await cluster.close()


def _move_metadata(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for file in list(source.glob(f"{METADATA_FILE}*")):
        file.rename(target / file.name)


async def _tree_without_cluster(data: Path) -> None:
    tree = await EmbeddedTree.open(data / METADATA_FILE, ManualClock())
    await (await tree.session()).create("/somebody")
    await tree.close()
