"""A disk that does not answer for a while. Requests for its data wait, and all other requests are served.

The file layer holds every call that may wait for the disk until the test releases it, and notes the calls from the
loop's own thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.broker.machine import Machine
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.log.disk.files import FileLayer
from jesenska.records.batch import iter_headers
from jesenska.records.encode import encode_batch
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from tests.raw_connection import ClosedByBrokerError, RawConnection

Answer = TypeVar("Answer", bound=Message)

_TOPIC = "slow"
_RECORD = b"v" * 400


class SlowFiles(FileLayer):
    """While it is `held`, calls of other threads wait. Calls of the loop's thread are noted, since there must be
    none."""

    __slots__ = ("_answers", "asked_by_the_loop", "held", "loop_thread", "waiting")

    def __init__(self) -> None:
        self.loop_thread = threading.get_ident()
        self._answers = threading.Event()
        self._answers.set()
        self.held = False
        self.waiting = 0
        self.asked_by_the_loop: list[str] = []

    def hold(self) -> None:
        self.held = True
        self._answers.clear()

    def let_go(self) -> None:
        self.held = False
        self._answers.set()

    def _disk(self, what: str) -> None:
        if not self.held:
            return
        if threading.get_ident() == self.loop_thread:
            self.asked_by_the_loop.append(what)
            return
        self.waiting += 1
        self._answers.wait()

    def open(self, path: Path, flags: int) -> int:
        self._disk(f"open {path.name}")
        return super().open(path, flags)

    def pread(self, descriptor: int, size_bytes: int, position: int) -> bytes:
        self._disk("pread")
        return super().pread(descriptor, size_bytes, position)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._disk("truncate")
        super().truncate(descriptor, size_bytes)

    def rename(self, source: Path, target: Path) -> None:
        self._disk(f"rename {source.name}")
        super().rename(source, target)

    def fsync(self, descriptor: int) -> None:
        self._disk("fsync")
        super().fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        self._disk("fsync directory")
        super().fsync_directory(path)


class Client:
    """A client that sends requests over a connection of its own, in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = RawConnection(bootstrap)

    async def ask(self, request: Message, version: int, response: type[Answer]) -> Answer:
        return await asyncio.to_thread(self.connection.ask, request, version, response)

    async def produce(self) -> ErrorCode:
        batch = bytes(encode_batch([(1_700_000_000_000, b"key", _RECORD, ())]))
        data = ProduceRequestTopic(name=_TOPIC, partition_data=[ProduceRequestPartition(index=0, records=batch)])
        answer = await self.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    async def fetch(self, offset: int) -> int:
        """The base offset of the first batch in the answer."""
        asked = FetchRequestTopic(
            topic=_TOPIC, partitions=[FetchRequestPartition(fetch_offset=offset, partition_max_bytes=1000)]
        )
        answer = await self.ask(
            FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[asked]), 12, FetchResponse
        )
        part = answer.responses[0].partitions[0]
        assert part.error_code == ErrorCode.NONE
        assert isinstance(part.records, memoryview)
        return next(header.base_offset for _, header in iter_headers(part.records))

    async def offset_at(self, timestamp_ms: int) -> int:
        asked = ListOffsetsRequestTopic(name=_TOPIC, partitions=[ListOffsetsRequestPartition(timestamp=timestamp_ms)])
        answer = await self.ask(ListOffsetsRequest(topics=[asked]), 4, ListOffsetsResponse)
        return answer.topics[0].partitions[0].offset


@asynccontextmanager
async def running(data: Path, files: FileLayer) -> AsyncIterator[Broker]:
    settings = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "broker.id": "0",
        "log.retention.ms": "-1",
    }
    broker = Broker(BrokerConfig(settings), Machine(files=files))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def bootstrap_of(broker: Broker) -> str:
    host, port = broker.endpoint_for(broker.first_listener_name)
    return f"127.0.0.1:{port}" if host else ""


def with_segments(tmp_path: Path, work: Callable[[Broker, SlowFiles, Client, Client], Awaitable[None]]) -> None:
    """Runs the work with a broker that has just started, with a topic of several segments, and two clients. Checks
    that the loop made no disk call while the disk was held."""

    async def main() -> None:
        async with running(tmp_path, FileLayer()) as broker:
            client = Client(bootstrap_of(broker))
            configs = [
                CreateTopicsRequestConfig(name=name, value=value)
                for name, value in (("segment.bytes", "2000"), ("index.interval.bytes", "400"))
            ]
            wanted = CreateTopicsRequestTopic(name=_TOPIC, num_partitions=1, replication_factor=1, configs=configs)
            assert (
                await client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 5, CreateTopicsResponse)
            ).topics[0].error_code == 0
            for _ in range(30):
                assert await client.produce() is ErrorCode.NONE
            client.connection.socket.close()
        files = SlowFiles()
        async with running(tmp_path, files) as broker:
            one, other = Client(bootstrap_of(broker)), Client(bootstrap_of(broker))
            try:
                await work(broker, files, one, other)
            finally:
                files.let_go()
                for each in (one, other):
                    each.connection.socket.close()
            assert files.asked_by_the_loop == []

    asyncio.run(main())


async def held_up(files: SlowFiles, asking: asyncio.Task[object], others: Callable[[], Awaitable[object]]) -> None:
    """Waits until a thread waits for the disk. Meanwhile other requests are served, and the held request gets no
    answer."""
    async with asyncio.timeout(20):
        while not files.waiting:
            await asyncio.sleep(0)
            assert not asking.done(), asking
        await others()
    assert not asking.done()


async def ask_for_versions(client: Client) -> None:
    answer = await client.ask(
        ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3, ApiVersionsResponse
    )
    assert answer.error_code == ErrorCode.NONE


def test_a_fetch_of_old_records_waits_for_the_disk_and_nobody_else_does(tmp_path: Path) -> None:
    async def work(broker: Broker, files: SlowFiles, one: Client, other: Client) -> None:
        files.hold()
        asking: asyncio.Task[object] = asyncio.create_task(one.fetch(5))
        await held_up(files, asking, lambda: ask_for_versions(other))
        files.let_go()
        assert await asking == 5

    with_segments(tmp_path, work)


def test_a_look_up_by_time_waits_for_the_disk_and_nobody_else_does(tmp_path: Path) -> None:
    async def work(broker: Broker, files: SlowFiles, one: Client, other: Client) -> None:
        files.hold()
        asking: asyncio.Task[object] = asyncio.create_task(one.offset_at(1_700_000_000_000))
        await held_up(files, asking, lambda: ask_for_versions(other))
        files.let_go()
        assert await asking == 0

    with_segments(tmp_path, work)


def test_a_produce_that_rolls_waits_for_the_disk_and_nobody_else_does(tmp_path: Path) -> None:
    async def work(broker: Broker, files: SlowFiles, one: Client, other: Client) -> None:
        assert await one.produce() is ErrorCode.NONE  # the leader epoch is written down
        segments = len(broker.view.topics[_TOPIC].partitions[0].leader_log().segments)
        files.hold()
        while True:
            asking: asyncio.Task[object] = asyncio.create_task(one.produce())
            done, _ = await asyncio.wait({asking}, timeout=0.5)
            if not done:
                break
            assert asking.result() is ErrorCode.NONE
        await held_up(files, asking, lambda: ask_for_versions(other))
        await held_up(files, asking, lambda: other.fetch(30))
        files.let_go()
        assert await asking is ErrorCode.NONE
        log = broker.view.topics[_TOPIC].partitions[0].leader_log()
        assert len(log.segments) == segments + 1

    with_segments(tmp_path, work)


def test_a_broker_that_stops_while_a_log_rolls_stops_in_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(broker: Broker, files: SlowFiles, one: Client, other: Client) -> None:
        files.hold()
        while True:
            asking: asyncio.Task[object] = asyncio.create_task(one.produce())
            done, _ = await asyncio.wait({asking}, timeout=0.5)
            if not done:
                break
        stopping = asyncio.create_task(broker.stop())
        with pytest.raises(ClosedByBrokerError):
            await asking
        files.let_go()
        await stopping
        assert broker.directories.directories[0].marker.exists()

    with caplog.at_level(logging.WARNING):
        with_segments(tmp_path, work)
    assert caplog.messages == []


def test_a_connection_that_is_closed_while_its_fetch_waits_for_the_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    async def work(broker: Broker, files: SlowFiles, one: Client, other: Client) -> None:
        files.hold()
        asked = FetchRequestTopic(
            topic=_TOPIC, partitions=[FetchRequestPartition(fetch_offset=3, partition_max_bytes=1000)]
        )
        one.connection.send_frame(
            one.connection.frame(FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=[asked]), 12)
        )
        async with asyncio.timeout(20):
            while not files.waiting:
                await asyncio.sleep(0)
            one.connection.socket.close()
            files.let_go()
            while len(broker.dispatcher.connections) > 1:
                await asyncio.sleep(0)
        assert await other.fetch(3) == 3

    with_segments(tmp_path, work)
