"""A follower and its leader, on real logs, with the bytes of their requests and answers between them: whatever happens
to the connection and to leadership, the logs become the same."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import ManualClock, SystemClock
from jesenska.base.errors import ErrorCode, NetworkException, OffsetOutOfRangeError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.regions import FileRegion
from jesenska.log.disk.background import DirectoryWriter, inline_writer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.log_start import delete_records
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import read_log
from jesenska.records.batch import iter_headers
from jesenska.replication.follower.fetcher import FollowerState
from jesenska.replication.follower.link import FollowerLink, LinkSettings
from jesenska.wire.language import Message
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseDivergingEpoch,
    FetchResponsePartition,
    FetchResponseTopic,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from tests.on_a_loop import on_a_loop
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch
from tests.units.log.manual_background import ManualBackground
from tests.units.net.fake_channel import FakeChannel

TOPIC_ID = uuid.UUID(int=77)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = LinkSettings(1, wait_max_ms=20, backoff_ms=10)
VERSIONS = [12, 13, 15, 18]


class Leader:
    """A broker that leads these logs, all in one epoch. A fetch that finds nothing waits for `appended`."""

    def __init__(self, directory: Path, version: int = 18) -> None:
        self.version = version
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.leader_epoch = 1
        self.requests: list[FetchRequest] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self._directory = directory
        self._harnesses: list[LogHarness] = []
        self._session: dict[tuple[object, int], tuple[TopicPartition, FetchRequestPartition]] = {}
        self._news = asyncio.Event()

    def make(self, topic_partition: TopicPartition, *, name: str = "leader") -> PartitionLog:
        harness = LogHarness(self._directory / f"{name}-{topic_partition.partition}", LogConfig(segment_bytes=1000))
        self._harnesses.append(harness)
        self.logs[topic_partition] = harness.log
        harness.log.assign_leader_epoch(self.leader_epoch, harness.log.next_offset)
        return harness.log

    def append(self, topic_partition: TopicPartition, count: int = 1) -> None:
        log = self.logs[topic_partition]
        batch = memoryview(make_batch(count))
        append_at_once(log, batch, _headers(batch), self.leader_epoch, NOW_MS)
        log.move_high_watermark(log.log_end_offset)
        self._news.set()

    def lead_again(self, epoch: int) -> None:
        self.leader_epoch = epoch
        for log in self.logs.values():
            log.assign_leader_epoch(epoch, log.log_end_offset)

    async def answer(self, request: Message, version: int) -> Message:
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        assert isinstance(request, FetchRequest)
        self.requests.append(request)
        by_id = version >= 13
        assert (request.replica_id, request.replica_state.replica_id) == ((-1, 1) if version >= 15 else (1, -1))
        if request.session_epoch == 0:
            self._session = {}
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                del self._session[gone.topic_id if by_id else gone.topic, number]
        for topic in request.topics:
            assert (topic.topic_id == TOPIC_ID) if by_id else (topic.topic == "t")
            for part in topic.partitions:
                self._session[topic.topic_id if by_id else topic.topic, part.partition] = (
                    TopicPartition("t", part.partition),
                    part,
                )
        found = self._found()
        if not found:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), request.max_wait_ms / 1000)
            except TimeoutError:
                pass
            found = self._found()
        return FetchResponse(
            session_id=9,
            responses=[FetchResponseTopic(topic="t", topic_id=TOPIC_ID, partitions=found)] if found else [],
        )

    def _found(self) -> list[FetchResponsePartition]:
        found = []
        for key, wanted in self._session.values():
            answer = self._of(key, wanted)
            if answer.error_code or answer.records or answer.diverging_epoch.epoch >= 0:
                found.append(answer)
        return found

    def _of(self, key: TopicPartition, wanted: FetchRequestPartition) -> FetchResponsePartition:
        log = self.logs[key]
        answer = FetchResponsePartition(partition_index=key.partition, high_watermark=-1, records=b"")
        if key in self.errors or wanted.current_leader_epoch != self.leader_epoch:
            answer.error_code = self.errors.get(key, ErrorCode.FENCED_LEADER_EPOCH)
            return answer
        epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        answer.high_watermark, answer.log_start_offset = log.high_watermark, log.log_start_offset
        if epoch >= 0 and (epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset):
            answer.diverging_epoch = FetchResponseDivergingEpoch(epoch=epoch, end_offset=end_offset)
            return answer
        try:
            region = read_log(log, wanted.fetch_offset, 300).region
        except OffsetOutOfRangeError as error:
            answer.error_code = error.code
            return answer
        if region is not None:
            answer.records = _bytes_of(region)
        return answer

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        (part,) = topic.partitions
        log = self.logs[TopicPartition(topic.name, part.partition_index)]
        offset = log.log_start_offset if part.timestamp == -2 else log.log_end_offset
        partition = ListOffsetsResponsePartition(partition_index=part.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name=topic.name, partitions=[partition])])


class Pair:
    """A follower of a leader: its logs, and the link between the two."""

    def __init__(self, directory: Path, version: int = 18, clock: Any = None) -> None:
        self.leader = Leader(directory, version)
        self.channels: list[FakeChannel] = []
        self.refused = 0
        self.background = ManualBackground()
        self._directory = directory
        self._harnesses: dict[TopicPartition, LogHarness] = {}
        self._changed = asyncio.Event()
        connect: Callable[[], Awaitable[Any]] = self._connect
        self.link = FollowerLink(0, connect, clock or SystemClock(), SETTINGS, lambda key: self._changed.set())

    async def _connect(self) -> FakeChannel:
        if self.refused:
            self.refused -= 1
            raise NetworkException("nobody answers")
        self.channels.append(FakeChannel(self.leader.answer, {FetchRequest.api_key: self.leader.version}))
        return self.channels[-1]

    def follow(self, topic_partition: TopicPartition, writer: DirectoryWriter | None = None) -> PartitionLog:
        """Makes the logs on both sides, if they are not there."""
        if topic_partition not in self.leader.logs:
            self.leader.make(topic_partition)
        if topic_partition not in self._harnesses:
            directory = self._directory / f"follower-{topic_partition.partition}"
            self._harnesses[topic_partition] = LogHarness(
                directory, LogConfig(segment_bytes=1000), writer=writer or inline_writer()
            )
        log = self._harnesses[topic_partition].log
        self.link.follow(topic_partition, log, TOPIC_ID, self.leader.leader_epoch)
        return log

    def offsets(self, topic_partition: TopicPartition) -> list[int]:
        return self._harnesses[topic_partition].offsets()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.05)
                except TimeoutError:
                    pass

    async def until_same(self, *keys: TopicPartition) -> None:
        """Waits until the follower's logs are equal to the leader's, and the high watermark is known."""
        for key in keys:
            ours, theirs = self._harnesses[key].log, self.leader.logs[key]
            await self.until(lambda ours=ours, theirs=theirs: _ends(ours) == _ends(theirs))  # type: ignore[misc]
            assert content_of(ours) == content_of(theirs)
            assert ours.leader_epochs.epoch_for_offset(
                ours.log_end_offset - 1
            ) == theirs.leader_epochs.epoch_for_offset(theirs.log_end_offset - 1)


def _headers(buffer: memoryview) -> list[Any]:
    return [header for _, header in iter_headers(buffer)]


def _bytes_of(region: FileRegion) -> bytes:
    data = os.pread(region.file.fileno(), region.size_bytes, region.position)
    region.release()
    return data


def _ends(log: PartitionLog) -> tuple[int, int]:
    return log.log_end_offset, log.high_watermark


def content_of(log: PartitionLog) -> bytes:
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        region = read_log(log, offset, 10**9).region
        assert region is not None
        data = _bytes_of(region)
        found += data
        offset = _headers(memoryview(data))[-1].last_offset + 1
    return found


@pytest.mark.parametrize("version", VERSIONS)
@on_a_loop
async def test_logs_become_their_leaders_and_stay_so(tmp_path: Path, version: int) -> None:
    pair = Pair(tmp_path, version)
    for key in (FIRST, SECOND):
        pair.follow(key)
    for count in (1, 3, 5):
        pair.leader.append(FIRST, count)
        pair.leader.append(SECOND, 2)
        await pair.until_same(FIRST, SECOND)
    assert pair.offsets(FIRST) == list(range(9))
    assert len(pair.channels) == 1
    # After the first request only changes are sent.
    assert [request.session_epoch for request in pair.leader.requests] == list(range(len(pair.leader.requests)))
    pair.link.close()


@on_a_loop
async def test_a_leader_that_cannot_be_reached_or_goes_away_is_connected_to_again(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.refused = 2
    pair.follow(FIRST)
    for _ in range(3):
        pair.leader.append(FIRST)
        await pair.until_same(FIRST)
        pair.channels[-1].close()
    assert pair.refused == 0
    assert len(pair.channels) >= 3
    pair.link.close()


@on_a_loop
async def test_that_a_leader_cannot_be_reached_is_said_once_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jesenska.replication.follower.link")
    pair = Pair(tmp_path)
    pair.follow(FIRST)
    pair.leader.append(FIRST)
    await pair.until_same(FIRST)
    for _ in range(2):
        pair.refused = 3
        pair.channels[-1].close()
        pair.leader.append(FIRST)
        await pair.until_same(FIRST)
        assert pair.refused == 0
    said = [record.getMessage() for record in caplog.records]
    assert (
        said
        == ["broker 0 cannot be followed now, and is tried again: nobody answers", "broker 0 can be followed again"] * 2
    )
    pair.link.close()


@on_a_loop
async def test_what_another_leader_does_not_have_is_cut(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.follow(FIRST)
    pair.leader.append(FIRST, 2)
    await pair.until_same(FIRST)
    old = pair.leader.logs[FIRST]
    pair.leader.append(FIRST, 3)
    await pair.until_same(FIRST)
    # The next leader has the first two records, and others after them.
    pair.leader.leader_epoch = 1
    new = pair.leader.make(FIRST, name="next")
    batch = memoryview(make_batch(2))
    append_at_once(new, batch, _headers(batch), 1, NOW_MS)
    assert old.log_end_offset > new.log_end_offset
    pair.leader.lead_again(2)
    pair.leader.append(FIRST, 4)
    pair.follow(FIRST)
    await pair.until_same(FIRST)
    assert pair.offsets(FIRST) == list(range(6))
    pair.link.close()


@on_a_loop
async def test_a_log_that_the_leader_has_deleted_the_next_records_of_begins_anew(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    log = pair.leader.make(FIRST)
    for _ in range(4):
        pair.leader.append(FIRST, 5)
    delete_records(log, 12)
    pair.follow(FIRST)
    await pair.until_same(FIRST)
    assert pair.offsets(FIRST)[-1] == 19
    pair.link.close()


@on_a_loop
async def test_a_partition_that_the_leader_refuses_does_not_hold_up_others(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for key in (FIRST, SECOND):
        pair.follow(key)
    pair.leader.errors[FIRST] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    pair.leader.append(FIRST)
    for _ in range(5):
        pair.leader.append(SECOND)
        await pair.until_same(SECOND)
    assert pair.offsets(FIRST) == []
    del pair.leader.errors[FIRST]
    await pair.until_same(FIRST)
    pair.link.close()


@on_a_loop
async def test_a_log_that_takes_long_does_not_hold_up_others(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    slow = ManualBackground()
    log = pair.follow(FIRST, DirectoryWriter(slow, ManualBackground()))
    pair.follow(SECOND)
    log.hold()  # as if it were being cut
    log.release()
    pair.leader.append(FIRST)
    await pair.until_same(FIRST)
    log.flush()  # appended data now waits for the writer's thread
    pair.leader.append(FIRST)
    await pair.until(lambda: pair.link.state(FIRST) is FollowerState.WORKING)
    for _ in range(3):
        pair.leader.append(SECOND)
        await pair.until_same(SECOND)
    assert log.log_end_offset == 1
    slow.run_all()
    await pair.until_same(FIRST)
    pair.link.close()


@on_a_loop
async def test_a_partition_that_is_left_gets_nothing_more(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for key in (FIRST, SECOND):
        pair.follow(key)
        pair.leader.append(key)
    await pair.until_same(FIRST, SECOND)
    pair.link.leave(FIRST)
    for key in (FIRST, SECOND):
        pair.leader.append(key)
    await pair.until_same(SECOND)
    assert pair.offsets(FIRST) == [0]
    assert len(pair.link) == 1
    pair.link.close()


@on_a_loop
async def test_a_leader_that_does_not_answer_is_left_after_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    pair = Pair(tmp_path, clock=clock)
    pair.follow(FIRST)
    pair.leader.append(FIRST)
    await pair.until_same(FIRST)
    pair.channels[0].is_silent = True
    pair.leader.append(FIRST)
    await pair.until(lambda: len(pair.channels[0].sent) > 1 and not pair.channels[0].sent[-1].done())
    pair.link.look()
    assert [channel.closed for channel in pair.channels] == [False]
    clock.advance(SETTINGS.timeout_ms + 1)
    pair.link.look()
    assert [channel.closed for channel in pair.channels] == [True]
    await pair.until_same(FIRST)
    pair.link.close()


@on_a_loop
async def test_a_leader_that_is_too_old_to_say_where_logs_part_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pair = Pair(tmp_path, version=11)
    pair.follow(FIRST)
    pair.leader.append(FIRST)
    await pair.until(lambda: "cannot be followed, which needs version 12" in caplog.text)
    assert pair.leader.requests == []
    pair.link.close()


@on_a_loop
async def test_the_leader_is_told_where_the_followers_log_starts_by_now(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    log = pair.follow(FIRST)
    for _ in range(3):
        pair.leader.append(FIRST, 5)
    await pair.until_same(FIRST)
    log.move_log_start(5)  # as its own retention does
    pair.link.look()
    await pair.until(lambda: _told_starts(pair)[-1] == 5)
    told = len(_told_starts(pair))
    asked = len(pair.leader.requests)
    await pair.until(lambda: len(pair.leader.requests) >= asked + 3)
    assert len(_told_starts(pair)) == told, "said once"
    pair.link.close()


def _told_starts(pair: Pair) -> list[int]:
    return [
        part.log_start_offset
        for request in pair.leader.requests
        for topic in request.topics
        for part in topic.partitions
    ]
