"""One of a broker's log directories fails. Its partitions answer KAFKA_STORAGE_ERROR, the others go on, the other
brokers and the clients learn of it, and nothing is lost when the directory is mended."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.broker.machine import Machine
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.log.disk.files import FileLayer, type_buffer
from jesenska.testing import BrokerProcess
from jesenska.testing.faults import NoSmallDiskError, SmallDisk
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from jesenska.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse
from jesenska.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from jesenska.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.cluster.one_request import fetch, produce
from tests.raw_connection import RawConnection

_SECONDS = 30.0


class BreakingFiles(FileLayer):
    """A disk that can be broken: calls of one kind fail for files below `broken`."""

    def __init__(self) -> None:
        self.broken: Path | None = None
        self.calls: frozenset[str] = frozenset()
        self.number = errno.EIO
        self._paths: dict[int, Path] = {}

    def _check(self, call: str, path: Path | None) -> None:
        if call in self.calls and path is not None and self.broken is not None and path.is_relative_to(self.broken):
            raise OSError(self.number, os.strerror(self.number), str(path))

    def open(self, path: Path, flags: int) -> int:
        self._check("open", path)
        descriptor = super().open(path, flags)
        self._paths[descriptor] = path
        return descriptor

    def pwrite(self, descriptor: int, data: type_buffer, position: int) -> int:
        self._check("write", self._paths.get(descriptor))
        return super().pwrite(descriptor, data, position)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._check("write", self._paths.get(descriptor))
        super().truncate(descriptor, size_bytes)

    def fsync(self, descriptor: int) -> None:
        self._check("sync", self._paths.get(descriptor))
        super().fsync(descriptor)


class Running:
    """A broker in a thread of its own, so that tests may wait for its answers."""

    def __init__(self, directories: list[Path], files: FileLayer, **settings: str) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self._config = BrokerConfig({
            "log.dirs": ",".join(map(str, directories)), "listeners": "PLAINTEXT://127.0.0.1:0",
            "replica.high.watermark.checkpoint.interval.ms": "100", **given,
        })  # fmt: skip
        self._files = files
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self.broker: Broker

    def __enter__(self) -> Running:
        self._thread.start()

        async def begin() -> None:
            self.broker = Broker(self._config, Machine(files=self._files))
            try:
                await self.broker.start()
            except BaseException:
                await self.broker.stop()
                raise

        try:
            asyncio.run_coroutine_threadsafe(begin(), self._loop).result(_SECONDS)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.broker.stop(), self._loop).result(_SECONDS)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        (endpoint,) = self.broker.place.endpoints
        return f"127.0.0.1:{endpoint.port}"

    def until(self, is_so: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(_SECONDS):
                while not is_so():
                    await asyncio.sleep(0.01)

        asyncio.run_coroutine_threadsafe(wait(), self._loop).result(_SECONDS + 5)


def create(address: str, *names: str) -> list[int]:
    with RawConnection(address) as connection:
        wanted = [CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        answer = connection.ask(CreateTopicsRequest(topics=wanted, timeout_ms=20_000), 5, CreateTopicsResponse)
        return [item.error_code for item in answer.topics]


def delete(address: str, name: str) -> int:
    with RawConnection(address) as connection:
        answer = connection.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=500), 4, DeleteTopicsResponse)
        return answer.responses[0].error_code


def partition_of(address: str, name: str) -> MetadataResponsePartition:
    with RawConnection(address) as connection:
        answer = connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 7, MetadataResponse)
        return answer.topics[0].partitions[0]


def directories_of(address: str) -> dict[str, tuple[int, set[str]]]:
    """The error and the topics, by the name of the directory."""
    with RawConnection(address) as connection:
        answer = connection.ask(DescribeLogDirsRequest(topics=None), 4, DescribeLogDirsResponse)
        return {
            Path(item.log_dir).name: (item.error_code, {topic.name for topic in item.topics}) for item in answer.results
        }


def home_of(address: str, topic: str) -> str:
    (found,) = [name for name, (_, topics) in directories_of(address).items() if topic in topics]
    return found


def _until_offline(running: Running, topic: str) -> None:
    running.until(lambda: any(key.topic == topic for key in running.broker.directories.offline))
    running.until(lambda: running.broker.view.topics[topic].partitions[0].leader == -1)


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


@pytest.mark.parametrize(
    ("calls", "number"),
    [({"write"}, errno.EIO), ({"write", "open"}, errno.EROFS), ({"sync"}, errno.EIO), ({"sync"}, errno.ENOSPC)],
    ids=["broken at a write", "read-only", "broken at a sync", "full at a sync"],
)
def test_a_directory_that_fails_takes_only_its_partitions_offline(
    three: list[Path], calls: set[str], number: int
) -> None:
    files = BreakingFiles()
    names = ["a", "b", "c"]
    with Running(three, files, log_flush_interval_messages="1") as running:
        address = running.address
        assert create(address, *names) == [0, 0, 0]
        homes = {name: home_of(address, name) for name in names}
        assert len(set(homes.values())) == 3, "one partition in each directory"
        for name in names:
            assert produce(address, name, b"before") == (ErrorCode.NONE, 0)
        files.calls, files.number, files.broken = frozenset(calls), number, three[0].with_name(homes["b"])
        assert produce(address, "b", b"lost")[0] in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        _until_offline(running, "b")
        assert produce(address, "b", b"lost")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(address, "b")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        for name in ("a", "c"):
            assert produce(address, name, b"after") == (ErrorCode.NONE, 1)
            assert fetch(address, name)[2] == [b"before", b"after"]
        assert {name: code for name, (code, _) in directories_of(address).items()} == {
            home: ErrorCode.KAFKA_STORAGE_ERROR if home == homes["b"] else ErrorCode.NONE for home in homes.values()
        }
        told = partition_of(address, "b")
        assert (told.error_code, told.leader_id, told.offline_replicas) == (
            ErrorCode.LEADER_NOT_AVAILABLE,
            -1,
            [running.broker.broker_id],
        )
        assert create(address, "d", "e", "f") == [0, 0, 0]
        assert homes["b"] not in {home_of(address, name) for name in ("d", "e", "f")}
        assert produce(address, "d") == (ErrorCode.NONE, 0)
    files.broken = None
    assert not (three[0].with_name(homes["b"]) / ".kafka_cleanshutdown").exists(), "it is to be recovered"
    with Running(three, files) as running:
        address = running.address
        code, _, values = fetch(address, "b")
        assert (code, values[:1]) == (ErrorCode.NONE, [b"before"])
        assert produce(address, "b", b"again") == (ErrorCode.NONE, len(values))
        assert all(code == ErrorCode.NONE for code, _ in directories_of(address).values())


def test_a_directory_that_vanishes_under_load_is_noticed_and_loses_nothing_that_it_had(tmp_path: Path) -> None:
    three = [tmp_path / name for name in ("one", "two", "three")]
    with Running(three, FileLayer()) as running:
        address = running.address
        create(address, "a", "b", "c")
        home = three[0].with_name(home_of(address, "b"))
        counts = dict.fromkeys("abc", 0)
        home.rename(tmp_path / "away")
        while (written := produce(address, "b"))[0] == ErrorCode.NONE:
            counts["b"] += 1
            assert counts["b"] < 100_000, "nobody has noticed"
        assert written[0] in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        _until_offline(running, "b")
        for name in ("a", "c"):
            assert produce(address, name)[0] == ErrorCode.NONE
        assert not home.exists(), "nothing makes it anew"
    (tmp_path / "away").rename(home)
    with Running(three, FileLayer()) as running:
        assert len(fetch(running.address, "b")[2]) == counts["b"]


def test_the_directory_with_the_metadata_fails_and_the_others_go_on(three: list[Path]) -> None:
    """The tree cannot be changed then. Records are written and read as before."""
    files = BreakingFiles()
    with Running(three, files) as running:
        address = running.address
        create(address, "a", "b", "c")
        assert home_of(address, "a") == three[0].name
        files.calls, files.number, files.broken = frozenset({"write", "open", "sync"}), errno.EROFS, three[0]
        assert produce(address, "a")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        running.until(lambda: bool(running.broker.directories.offline))
        for _ in range(3):
            assert produce(address, "a")[0] == ErrorCode.KAFKA_STORAGE_ERROR
            assert produce(address, "b")[0] == produce(address, "c")[0] == ErrorCode.NONE
        assert fetch(address, "a")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(fetch(address, "b")[2]) == 3
    files.broken = None
    with Running(three, files) as running:
        assert produce(running.address, "a") == (ErrorCode.NONE, 0)
        assert len(fetch(running.address, "b")[2]) == 3


def test_a_topic_with_a_partition_that_is_offline_goes_when_the_directory_is_back(three: list[Path]) -> None:
    files = BreakingFiles()
    with Running(three, files) as running:
        address = running.address
        create(address, "a", "b", "c")
        home = home_of(address, "b")
        files.calls, files.broken = frozenset({"write", "open"}), three[0].with_name(home)
        produce(address, "b")
        _until_offline(running, "b")
        assert delete(address, "b") != ErrorCode.NONE
    files.broken = None
    with Running(three, files) as running:
        running.until(lambda: "b" not in running.broker.view.topics)
        assert "b" not in directories_of(running.address)[home][1]


def test_a_start_goes_on_without_a_directory_that_cannot_be_used(three: list[Path], tmp_path: Path) -> None:
    """The partitions that may be in that directory get no new logs in the others."""
    with Running(three, FileLayer()) as running:
        create(running.address, "a", "b", "c")
        produce(running.address, "b", b"kept")
        home = three[0].with_name(home_of(running.address, "b"))
    home.rename(tmp_path / "away")
    home.write_bytes(b"no directory")
    with Running(three, FileLayer()) as running:
        address = running.address
        assert produce(address, "b")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition_of(address, "b").offline_replicas == [running.broker.broker_id]
        assert produce(address, "a") == (ErrorCode.NONE, 0)
        assert directories_of(address)[home.name] == (ErrorCode.KAFKA_STORAGE_ERROR, set())
        assert not [path for path in three if path != home and (path / "b-0").exists()]
    home.unlink()
    (tmp_path / "away").rename(home)
    with Running(three, FileLayer()) as running:
        assert fetch(running.address, "b")[2] == [b"kept"]


def test_a_start_goes_on_without_a_directory_that_cannot_be_read(three: list[Path]) -> None:
    files = BreakingFiles()
    with Running(three, files) as running:
        create(running.address, "a", "b", "c")
        produce(running.address, "b", b"kept")
        home = three[0].with_name(home_of(running.address, "b"))
    files.calls, files.broken = frozenset({"open"}), home / "b-0"
    with Running(three, files) as running:
        assert produce(running.address, "b")[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(running.address, "a") == (ErrorCode.NONE, 0)
    files.broken = None
    with Running(three, files) as running:
        assert fetch(running.address, "b")[2] == [b"kept"]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[BrokerProcess]:
    two = [tmp_path / name for name in ("one", "two")]
    settings = {"log.dirs": ",".join(map(str, two)), "replica.high.watermark.checkpoint.interval.ms": "100"}
    with BrokerProcess(tmp_path / "one", settings=settings) as broker:
        yield broker


def test_a_broker_without_any_directory_left_stops_and_says_why(alone: BrokerProcess, tmp_path: Path) -> None:
    create(alone.bootstrap, "a", "b")
    for name in ("one", "two"):
        (tmp_path / name).rename(tmp_path / f"{name}-away")
    for topic in ("a", "b"):
        produce(alone.bootstrap, topic)
    alone.wait_until_said("every log directory has failed, so this broker stops")
    assert alone.stop() == 1


def test_a_full_disk_among_several_is_no_failure_and_takes_writes_again_with_room(tmp_path: Path) -> None:
    small, *others = (tmp_path / name for name in ("small", "one", "two"))
    small.mkdir()
    with ExitStack() as opened:
        try:
            disk = opened.enter_context(SmallDisk(small, 4 * 1024 * 1024))
        except NoSmallDiskError as error:
            pytest.skip(str(error))
        settings = {
            "log.dirs": ",".join(map(str, (others[0], small / "data", others[1]))),
            "replica.high.watermark.checkpoint.interval.ms": "100",
        }
        with BrokerProcess(others[0], settings=settings) as broker:
            address = broker.bootstrap
            assert create(address, "a", "b", "c") == [0, 0, 0]
            (full,) = directories_of(address)["data"][1]
            rest = sorted({"a", "b", "c"} - {full})
            assert produce(address, full, b"before") == (ErrorCode.NONE, 0)
            disk.fill()
            for _ in range(3):
                assert produce(address, full, bytes(100_000))[0] == ErrorCode.KAFKA_STORAGE_ERROR
                assert [produce(address, topic)[0] for topic in rest] == [ErrorCode.NONE, ErrorCode.NONE]
            assert fetch(address, full)[2] == [b"before"], "reads go on"
            assert directories_of(address)["data"] == (ErrorCode.NONE, {full})
            assert partition_of(address, full).leader_id == 1
            disk.free()
            assert produce(address, full, b"after") == (ErrorCode.NONE, 1)
            broker.wait_until_said("make room on the disk")
            assert "is offline" not in broker.log
            assert broker.stop() == 0
