"""The rows of the fetch table (`broker/fetching/fetch_states.py`) on a broker. The test decides when its pool works
and when data of its disk is in memory. At the end no answer holds a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode, RequestTimedOutError
from jesenska.base.regions import FileRegion
from jesenska.broker.fetching.fetch_states import WARM_UPS_MAX
from jesenska.broker.machine import Machine
from jesenska.broker.pool import Pool
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.log.disk.files import FileLayer, probe_cold
from jesenska.log.segments.segment_file import OpenFile
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.units.log.log_harness import make_batch

_BATCH = bytes(make_batch(1, value_bytes=1000))
_BATCHES = 3
#: Longer than a connection waits for its answer.
_LONG_MS = 60_000
_NEWEST, _WITH_MESSAGE_SETS = 12, 3
_VERSIONS = pytest.mark.parametrize("version", [_NEWEST, _WITH_MESSAGE_SETS])


class Files(FileLayer):
    """While it `is_cold`, a look-up of an offset would wait for the disk. While it `drops` pages, the pages that a
    look-up has read leave the page cache again."""

    __slots__ = ("drops", "is_cold", "logs", "looks")

    def __init__(self) -> None:
        self.is_cold = False
        self.drops = False
        self.looks = 0
        #: Descriptors of .log files.
        self.logs: set[int] = set()

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        if path.suffix == ".log":
            self.logs.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self.logs.discard(descriptor)
        super().close(descriptor)

    def pread_warm(self, descriptor: int, size_bytes: int, position: int) -> bytes | None:
        self.looks += 1
        if self.is_cold:
            return None
        found = super().pread(descriptor, size_bytes, position)
        if self.drops:
            drop_pages(descriptor)
        return found


class HeldPool(Pool):
    """While it `holds`, work waits for `run`. While it `is_full`, it takes no work."""

    holds = False
    is_full = False
    taken = 0

    def __init__(self, pool: Pool) -> None:
        super().__init__(asyncio.get_running_loop(), pool.executor)
        self.held: list[tuple[Callable[[], object], Callable[[], None]]] = []

    def submit(self, work: Callable[[], object], finished: Callable[[], None]) -> None:
        if self.is_full:
            raise RequestTimedOutError("full")
        self.taken += 1
        if self.holds:
            self.held.append((work, finished))
        else:
            super().submit(work, finished)

    async def run(self) -> None:
        """Waits for work, and does it."""
        await until(lambda: bool(self.held))
        work, finished = self.held.pop()
        work()
        finished()


class Room:
    """A broker that has just started, with three batches in its one partition, and a client that fetches them."""

    def __init__(self, broker: Broker, files: Files, pool: HeldPool) -> None:
        self.broker, self.files, self.pool = broker, files, pool
        self.connection = RawConnection(bootstrap_of(broker))

    def ask(self, version: int = _NEWEST, batches: int = 1, max_wait_ms: int = _LONG_MS) -> None:
        """Requests the bytes of this number of batches."""
        topics = [
            FetchRequestTopic(
                topic="t", partitions=[FetchRequestPartition(fetch_offset=0, partition_max_bytes=1 << 20)]
            )
        ]
        asked = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=batches * len(_BATCH), max_bytes=1 << 20, session_epoch=-1, topics=topics
        )
        self.connection.send_frame(self.connection.frame(asked, version))
        self.version = version

    def roll(self) -> None:
        """Starts a new segment of the partition."""
        for log in self.broker.directories.logs.values():
            log.roll(self.broker.clock.now_ms())

    async def answered(self) -> int:
        """The number of bytes of records in the answer."""
        answer = await asyncio.to_thread(self.connection.receive, self.version, FetchResponse)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.NONE
        return len(partition.records or b"")

    def leave(self) -> None:
        """Closes the connection in the broker, as if it had noticed that the client has gone."""
        for connection in list(self.broker.dispatcher.connections):
            connection.framed.close("the client has gone")

    async def waits(self) -> None:
        await until(lambda: len(self.broker.waiting) == 1)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.001)


def bootstrap_of(broker: Broker) -> str:
    host, port = broker.endpoint_for(broker.first_listener_name)
    return f"{host}:{port}"


async def produce(broker: Broker) -> None:
    topics = [ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(records=_BATCH)])]
    with RawConnection(bootstrap_of(broker)) as connection:
        answer = await asyncio.to_thread(connection.ask, ProduceRequest(acks=1, topic_data=topics), 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@asynccontextmanager
async def running(directory: Path, files: FileLayer) -> AsyncIterator[Broker]:
    settings = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "num.partitions": "1",
        "log.retention.ms": "-1",
    }
    broker = Broker(BrokerConfig(settings), Machine(files=files))
    broker.pool = HeldPool(broker.pool)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def in_a_room(directory: Path, play: Callable[[Room], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running(directory, FileLayer()) as broker:
            await broker.control.controller.create_automatically("t")
            for _ in range(_BATCHES):
                await produce(broker)
        files = Files()
        async with running(directory, files) as broker:
            for log in broker.directories.logs.values():
                for segment in log.segments:
                    segment.unchecked_bytes = 0  # as if it had been read before
            assert isinstance(broker.pool, HeldPool)
            broker.pool.holds, broker.pool.taken = True, 0
            room = Room(broker, files, broker.pool)
            try:
                await play(room)
            finally:
                room.connection.socket.close()
        assert not files.logs, "an answer holds a file"

    asyncio.run(main())


def drop_pages(descriptor: int) -> None:
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def pages_can_be_dropped(tmp_path: Path) -> None:
    if not hasattr(os, "RWF_NOWAIT") or not hasattr(os, "posix_fadvise"):
        pytest.skip("needs Linux")
    descriptor = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, bytes(4096))
    drop_pages(descriptor)
    opened = OpenFile(descriptor, FileLayer())
    region = FileRegion(opened, 0, 4096)
    is_cold = probe_cold(region)
    region.release()
    opened.release()
    if not is_cold:
        pytest.skip("this file system keeps its pages, or does not answer RWF_NOWAIT")


# --- WARMING ---------------------------------------------------------------------------------------------------------


def test_what_the_pool_has_warmed_up_is_read(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.is_cold = True
        room.ask()
        await until(lambda: bool(room.pool.held))
        room.files.is_cold = False
        await room.pool.run()
        assert await room.answered() == _BATCHES * len(_BATCH)
        assert room.pool.taken == 1

    in_a_room(tmp_path, play)


def test_after_warm_ups_in_vain_a_fetch_waits_for_the_disk(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.is_cold = True
        room.ask()
        for _ in range(WARM_UPS_MAX):
            await room.pool.run()
        assert await room.answered() == _BATCHES * len(_BATCH)
        assert (room.pool.taken, room.files.looks) == (WARM_UPS_MAX, WARM_UPS_MAX)

    in_a_room(tmp_path, play)


def test_where_the_pool_takes_no_warm_up_a_fetch_waits_for_the_disk(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.is_cold = room.pool.is_full = True
        room.ask()
        assert await room.answered() == _BATCHES * len(_BATCH)
        assert room.files.looks == 1

    in_a_room(tmp_path, play)


def test_a_fetch_whose_client_goes_during_its_warm_up_reads_no_more(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.is_cold = True
        room.ask()
        await until(lambda: bool(room.pool.held))
        room.leave()
        await room.pool.run()
        assert (room.files.looks, len(room.pool.held), len(room.broker.waiting)) == (1, 0, 0)

    in_a_room(tmp_path, play)


def test_what_was_warmed_up_and_is_too_little_waits_for_the_time_that_is_left(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.is_cold = True
        room.ask(batches=_BATCHES + 1, max_wait_ms=500)
        await until(lambda: bool(room.pool.held))
        room.files.is_cold = False
        await room.pool.run()
        assert len(room.broker.waiting) == 1
        assert await room.answered() == _BATCHES * len(_BATCH)
        assert room.files.looks == 3, "when it came, when it was warm and when its time was up"

    in_a_room(tmp_path, play)


def test_a_fetch_that_has_waited_is_warmed_up_anew(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.is_cold = True
        room.ask(batches=_BATCHES + 1)
        for _ in range(WARM_UPS_MAX - 1):
            await until(lambda: bool(room.pool.held))
            room.files.is_cold = room.pool.taken < WARM_UPS_MAX - 1
            await room.pool.run()
        assert len(room.broker.waiting) == 1
        room.files.is_cold = True
        await produce(room.broker)
        for _ in range(WARM_UPS_MAX):
            await room.pool.run()
        assert await room.answered() == (_BATCHES + 1) * len(_BATCH)
        assert room.pool.taken == 2 * WARM_UPS_MAX - 1

    in_a_room(tmp_path, play)


@pytest.mark.parametrize("message_format", ["3.0", "0.10.0"])
def test_at_a_follower_too_the_pool_warms_up_and_converts(tmp_path: Path, message_format: str) -> None:
    async def play(room: Room) -> None:
        await room.broker.control.controller.alter_topic(
            "t", {"message.format.version": message_format}, validate_only=False
        )
        (partition,) = room.broker.view.topics["t"].partitions
        partition.led_by(room.broker.broker_id + 1, 7, (room.broker.broker_id + 1,), 7)
        room.files.is_cold = True
        room.ask()
        await until(lambda: bool(room.pool.held))
        room.files.is_cold = room.pool.holds = False
        await room.pool.run()
        answered = await room.answered()
        assert (answered == _BATCHES * len(_BATCH)) == (message_format == "3.0")
        assert answered > _BATCHES * 1000
        room.ask(_WITH_MESSAGE_SETS)
        answer = await asyncio.to_thread(room.connection.receive, _WITH_MESSAGE_SETS, FetchResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    in_a_room(tmp_path, play)


# --- WAITING ---------------------------------------------------------------------------------------------------------


def test_a_fetch_waits_until_there_is_enough(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(batches=_BATCHES + 2)
        await room.waits()
        await produce(room.broker)
        await until(lambda: room.files.looks == 2)
        assert len(room.broker.waiting) == 1
        await produce(room.broker)
        assert await room.answered() == (_BATCHES + 2) * len(_BATCH)
        assert len(room.broker.waiting) == 0

    in_a_room(tmp_path, play)


def test_a_fetch_in_a_segment_that_has_ended_is_answered_with_what_is_left_of_it(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.roll()
        await produce(room.broker)
        room.ask(batches=_BATCHES + 1)
        assert await room.answered() == _BATCHES * len(_BATCH)
        assert room.files.looks == 1

    in_a_room(tmp_path, play)


def test_a_fetch_that_waits_is_answered_when_its_segment_has_ended(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(batches=_BATCHES + 2)
        await room.waits()
        room.roll()
        await produce(room.broker)
        assert await room.answered() == _BATCHES * len(_BATCH)
        assert len(room.broker.waiting) == 0

    in_a_room(tmp_path, play)


def test_news_that_would_wait_for_the_disk_are_warmed_up(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(batches=_BATCHES + 1)
        await room.waits()
        room.files.is_cold = True
        await produce(room.broker)
        await until(lambda: bool(room.pool.held))
        assert len(room.broker.waiting) == 0
        room.files.is_cold = False
        await room.pool.run()
        assert await room.answered() == (_BATCHES + 1) * len(_BATCH)

    in_a_room(tmp_path, play)


@_VERSIONS
def test_a_fetch_whose_time_is_up_is_answered_with_what_there_is(tmp_path: Path, version: int) -> None:
    async def play(room: Room) -> None:
        room.pool.holds = False
        room.ask(version, batches=_BATCHES + 1, max_wait_ms=20)
        assert 0 < await room.answered() <= _BATCHES * len(_BATCH)

    in_a_room(tmp_path, play)


def test_a_fetch_that_may_not_wait_is_answered_with_what_there_is(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(batches=_BATCHES + 1, max_wait_ms=0)
        assert await room.answered() == _BATCHES * len(_BATCH)
        assert room.files.looks == 1

    in_a_room(tmp_path, play)


def test_a_fetch_of_which_no_partition_is_known_is_answered_at_once(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        topics = [
            FetchRequestTopic(topic=name, partitions=[FetchRequestPartition(partition=index)])
            for name, index in (("t", 1), ("u", 0))
        ]
        asked = FetchRequest(max_wait_ms=_LONG_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        answer = await asyncio.to_thread(room.connection.ask, asked, _NEWEST, FetchResponse)
        assert {topic.partitions[0].error_code for topic in answer.responses} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        topics.append(
            FetchRequestTopic(
                topic="t", partitions=[FetchRequestPartition(partition=0, fetch_offset=_BATCHES, partition_max_bytes=1)]
            )
        )
        room.connection.send_frame(room.connection.frame(asked, _NEWEST))
        await room.waits()

    in_a_room(tmp_path, play)


def test_a_fetch_that_waits_when_the_broker_stops_is_answered_with_what_there_is(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(batches=_BATCHES + 1)
        await room.waits()
        await room.broker.stop()
        assert await room.answered() == _BATCHES * len(_BATCH)

    in_a_room(tmp_path, play)


def test_a_fetch_that_waits_is_forgotten_when_its_client_goes(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(batches=_BATCHES + 1)
        await room.waits()
        room.leave()
        assert len(room.broker.waiting) == 0
        await produce(room.broker)
        assert room.files.looks == 1

    in_a_room(tmp_path, play)


@pytest.mark.parametrize(("version", "tells"), [(15, False), (16, True)])
def test_who_knows_an_older_leader_is_told_of_the_new_one_and_where_it_is(
    tmp_path: Path, version: int, tells: bool
) -> None:
    async def play(room: Room) -> None:
        broker = room.broker
        topic = broker.view.topics["t"]
        topic.partitions[0].led_by(broker.broker_id, 7, (broker.broker_id,), 7)
        wanted = FetchRequestPartition(current_leader_epoch=6, partition_max_bytes=1)
        asked = FetchRequest(
            max_wait_ms=_LONG_MS,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchRequestTopic(topic_id=topic.topic_id, partitions=[wanted])],
        )
        answer = await asyncio.to_thread(room.connection.ask, asked, version, FetchResponse)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (
            (broker.broker_id, 7) if tells else (-1, -1)
        )
        assert [f"{node.host}:{node.port}" for node in answer.node_endpoints] == [bootstrap_of(broker)] * tells

    in_a_room(tmp_path, play)


# --- READING_AHEAD, CONVERTING ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("pages_can_be_dropped")
def test_records_that_are_not_in_memory_are_read_by_the_pool_before_they_are_sent(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.drops = True
        room.ask()
        await room.pool.run()
        assert await room.answered() == _BATCHES * len(_BATCH)

    in_a_room(tmp_path, play)


@pytest.mark.usefixtures("pages_can_be_dropped")
def test_records_that_the_pool_does_not_take_are_sent_all_the_same(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.drops = room.pool.is_full = True
        room.ask()
        assert await room.answered() == _BATCHES * len(_BATCH)

    in_a_room(tmp_path, play)


@pytest.mark.usefixtures("pages_can_be_dropped")
def test_records_that_were_read_for_a_client_that_has_gone_are_let_go_of(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.files.drops = True
        room.ask()
        await until(lambda: bool(room.pool.held))
        room.leave()
        await room.pool.run()

    in_a_room(tmp_path, play)


def test_records_are_converted_by_the_pool_and_their_memory_is_counted_until_they_have_left(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(_WITH_MESSAGE_SETS)
        await until(lambda: bool(room.pool.held))
        assert room.broker.dispatcher.lent_bytes == _BATCHES * len(_BATCH)
        await room.pool.run()
        assert _BATCHES * 1000 < await room.answered() < _BATCHES * len(_BATCH)
        assert room.broker.dispatcher.lent_bytes == 0

    in_a_room(tmp_path, play)


def test_a_connection_whose_records_the_pool_does_not_convert_is_closed(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.pool.is_full = True
        room.ask(_WITH_MESSAGE_SETS)
        with pytest.raises(ClosedByBrokerError):
            await room.answered()
        assert room.broker.dispatcher.lent_bytes == 0

    in_a_room(tmp_path, play)


def test_records_that_were_converted_for_a_client_that_has_gone_are_let_go_of(tmp_path: Path) -> None:
    async def play(room: Room) -> None:
        room.ask(_WITH_MESSAGE_SETS)
        await until(lambda: bool(room.pool.held))
        room.leave()
        await room.pool.run()
        assert room.broker.dispatcher.lent_bytes == 0

    in_a_room(tmp_path, play)
