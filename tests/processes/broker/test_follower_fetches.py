"""The leader's side of replication: a broker in whose tree a topic also names another broker. The tests act as that
other broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import SystemClock
from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.config.listeners import Endpoint
from jesenska.config.replica_selectors import LEADER, RACK_AWARE
from jesenska.log.log_config import LogConfig
from jesenska.metadata import nodes, paths
from jesenska.metadata.store import Store
from jesenska.net.channel import Channel, open_channel
from jesenska.net.connection import ReadBuffer
from jesenska.replication.follower.link import FollowerLink, LinkSettings
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from tests.on_a_loop import on_a_loop
from tests.processes.broker.test_shared_tree import broker_on, on, tool, until
from tests.served_tree import served
from tests.units.log.log_harness import LogHarness, make_batch
from tests.units.replication.test_follower_link import content_of

FOLLOWER = 9
VERSIONS = [4, 11, 12, 13, 15, 18]


class Led:
    """A broker that leads a topic of two partitions with a follower, and the requests of that follower."""

    def __init__(self, broker: Broker, store: Store, channel: Channel) -> None:
        self.broker = broker
        self.store = store
        self.channel = channel
        self.topic = broker.view.topics["t"]

    @property
    def partition(self) -> Partition:
        return self.topic.partitions[0]

    async def state(self) -> nodes.PartitionStateNode:
        return nodes.PartitionStateNode.decode((await self.store.get(paths.partition_state("t", 0)))[0])

    async def fetch(
        self,
        *offsets: int | None,
        version: int = 18,
        epoch: int = -1,
        last_epoch: int = -1,
        replica: int = FOLLOWER,
        session: tuple[int, int] = (0, -1),
        forget: tuple[int, ...] = (),
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        log_start: int = 0,
        rack: str = "",
    ) -> FetchResponse:
        """Fetches the partitions from these offsets on. Partitions whose offset is None are not named."""
        parts = [
            FetchRequestPartition(
                partition=number,
                fetch_offset=offset,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
                log_start_offset=log_start,
                partition_max_bytes=max_bytes,
            )
            for number, offset in enumerate(offsets)
            if offset is not None
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            rack_id=rack,
        )
        if parts:
            request.topics = [FetchRequestTopic(topic="t", topic_id=self.topic.topic_id, partitions=parts)]
        if forget:
            request.forgotten_topics_data = [
                FetchRequestForgottenTopicsData(topic="t", topic_id=self.topic.topic_id, partitions=list(forget))
            ]
        if version >= 15:
            request.replica_state = FetchRequestReplicaState(replica_id=replica)
        else:
            request.replica_id = replica
        return await self.channel.request(request, FetchResponse, timeout_seconds=30, at_most=version)

    async def first(self, *offsets: int | None, **options: Any) -> FetchResponsePartition:
        """The answer for the first partition in the response."""
        return (await self.fetch(*offsets, **options)).responses[0].partitions[0]

    async def produce(self, acks: int = 1, partition: int = 0, timeout_ms: int = 30_000) -> int:
        """Writes one record; its offset."""
        data = [
            ProduceRequestTopic(
                name="t", partition_data=[ProduceRequestPartition(index=partition, records=make_batch())]
            )
        ]
        channel = await _channel(self.broker)
        try:
            answer = await channel.request(
                ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data),
                ProduceResponse,
                timeout_seconds=30,
                at_most=9,
            )
        finally:
            channel.close()
        (found,) = answer.responses[0].partition_responses
        assert found.error_code == ErrorCode.NONE
        return found.base_offset

    async def offset(self, version: int, timestamp: int, replica: int = -1) -> tuple[ErrorCode, int]:
        """The answer of ListOffsets for the first partition."""
        asked = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsRequestTopic(name="t", partitions=[asked])])
        answer = await self.channel.request(request, ListOffsetsResponse, timeout_seconds=30, at_most=version)
        found = answer.topics[0].partitions[0]
        return ErrorCode(found.error_code), found.offset

    async def in_sync(self) -> None:
        """Fetches from both high watermarks, and waits until the follower is in sync for both partitions."""
        await self.fetch(self.topic.partitions[0].high_watermark, self.topic.partitions[1].high_watermark)
        await until(lambda: all(partition.isr == (0, FOLLOWER) for partition in self.topic.partitions))


async def _channel(broker: Broker) -> Channel:
    host, port = broker.endpoint_for("PLAINTEXT")
    return await open_channel(host, port, "follower", ReadBuffer(1 << 24), software_version="test")


@contextlib.asynccontextmanager
async def led(directory: Path, **settings: str) -> AsyncIterator[Led]:
    # When it stops, there is no other broker that could take over.
    given = {"controlled.shutdown.enable": "false"} | {
        name.replace("_", "."): value for name, value in settings.items()
    }
    async with (
        served() as server,
        broker_on(directory, on(server) | given) as broker,
        tool(f"127.0.0.1:{server.port}") as store,
    ):
        await store.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[0,9],"1":[0,9]}}')
        await until(lambda: "t" in broker.view.topics)
        # The follower is registered, but it does not listen at this port.
        node = nodes.BrokerRegistration((Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1),), 0, rack="b")
        await store.create(paths.broker(FOLLOWER), node.encode(), ephemeral=True)
        await until(lambda: FOLLOWER in broker.view.brokers)
        channel = await _channel(broker)
        try:
            yield Led(broker, store, channel)
        finally:
            channel.close()


@pytest.mark.parametrize("version", VERSIONS)
@on_a_loop
async def test_a_follower_comes_into_sync_and_what_it_has_is_committed(tmp_path: Path, version: int) -> None:
    async with led(tmp_path) as one:
        assert await one.produce() == 0
        found = await one.first(0, version=version)
        assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 1)
        assert found.records is not None
        assert len(found.records) == len(make_batch())
        assert one.partition.isr == (0,)
        await one.fetch(1, version=version)
        await until(lambda: one.partition.isr == (0, FOLLOWER))
        assert (await one.state()).isr == (0, FOLLOWER)

        writing = asyncio.ensure_future(one.produce(acks=-1))
        await until(lambda: one.partition.leader_log().log_end_offset == 2)
        found = await one.first(1, version=version)
        assert (found.high_watermark, bool(found.records)) == (1, True)  # it gets records that are not committed yet
        assert not writing.done()
        assert one.partition.high_watermark == 1
        await one.fetch(2, version=version)
        assert await writing == 1
        assert one.partition.high_watermark == 2


@on_a_loop
async def test_consumers_get_nothing_that_is_not_committed(tmp_path: Path) -> None:
    async with led(tmp_path) as one:
        await one.in_sync()
        await one.produce()
        found = await one.first(0, replica=-1)
        assert (found.high_watermark, bool(found.records)) == (0, False)
        assert (await one.first(0)).records
        await one.fetch(1)
        assert (await one.first(0, replica=-1)).records


@pytest.mark.parametrize("version", VERSIONS)
@on_a_loop
async def test_a_broker_without_a_replica_is_told_to_look_elsewhere(tmp_path: Path, version: int) -> None:
    async with led(tmp_path) as one:
        assert (await one.first(0, version=version, replica=5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= 9:
            assert (
                await one.first(0, version=version, replica=5, epoch=0)
            ).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await one.first(0, version=version, epoch=7)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await one.first(0, version=version, epoch=0)).error_code == ErrorCode.NONE


@on_a_loop
async def test_a_log_that_is_another_one_from_some_offset_on_is_told_where_and_counts_for_nothing(
    tmp_path: Path,
) -> None:
    async with led(tmp_path) as one:
        await one.produce()
        await one.produce()
        one.partition.led_by(0, 5, (0,), 7)
        await one.produce()
        # Its last batch is of an epoch between the two, and of one that ended sooner than its log.
        for offset, last_epoch in ((3, 3), (3, 0), (4, 5)):
            found = await one.first(offset, epoch=5, last_epoch=last_epoch, max_wait_ms=30_000)
            assert found.error_code == ErrorCode.NONE
            assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (
                (0, 2) if last_epoch < 5 else (5, 3)
            )
            assert not found.records
        assert one.partition.isr == (0,)
        # One that this leader has never heard of.
        assert (await one.first(3, epoch=5, last_epoch=8)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await one.first(9, epoch=5, last_epoch=-1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        found = await one.first(2, epoch=5, last_epoch=0)
        assert (found.diverging_epoch.epoch, bool(found.records)) == (-1, True)


@on_a_loop
async def test_in_a_session_only_what_is_new_is_said_and_what_is_named_is_noted(tmp_path: Path) -> None:
    async with led(tmp_path) as one:
        await one.produce()
        begun = await one.fetch(0, session=(0, 0))
        session = begun.session_id
        assert session > 0
        # A partition joins, and the other one is named again: the session notes both.
        answer = await one.fetch(1, 0, session=(session, 1))
        assert [part.partition_index for topic in answer.responses for part in topic.partitions] == [1]
        await until(lambda: all(partition.isr == (0, FOLLOWER) for partition in one.topic.partitions))
        # The request names nothing and nothing is new, so it waits until a record arrives.
        waiting = asyncio.ensure_future(one.fetch(session=(session, 2), max_wait_ms=30_000))
        await until(lambda: len(one.broker.waiting) == 1)
        await one.produce(partition=1)
        (topic,) = (await waiting).responses
        assert [(part.partition_index, bool(part.records)) for part in topic.partitions] == [(1, True)]
        # The next answer contains the new high watermark.
        answer = await one.fetch(None, 1, session=(session, 3))
        assert [
            (part.partition_index, part.high_watermark) for topic in answer.responses for part in topic.partitions
        ] == [(1, 1)]
        # A forgotten partition is not read any more.
        await one.produce()
        assert (await one.fetch(session=(session, 4), forget=(0,))).responses == []


@on_a_loop
async def test_in_a_session_a_log_that_is_another_one_is_told_though_no_offset_has_moved(tmp_path: Path) -> None:
    async with led(tmp_path) as one:
        await one.produce()
        begun = await one.fetch(1, session=(0, 0), epoch=0, last_epoch=0)
        one.partition.led_by(0, 5, (0,), 7)
        found = await one.first(2, session=(begun.session_id, 1), epoch=5, last_epoch=0, max_wait_ms=30_000)
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (0, 1)


@on_a_loop
async def test_a_partition_that_is_cut_short_by_the_limit_stays_to_be_read(tmp_path: Path) -> None:
    async with led(tmp_path) as one:
        await one.in_sync()
        for partition in (0, 1):
            await one.produce(partition=partition)
        begun = await one.fetch(0, 0, session=(0, 0), max_bytes=len(make_batch()))
        assert [bool(part.records) for part in begun.responses[0].partitions] == [True, False]
        answer = await one.fetch(1, session=(begun.session_id, 1), max_wait_ms=30_000)
        assert [
            (part.partition_index, bool(part.records))
            for topic in answer.responses
            for part in topic.partitions
            if part.records
        ] == [(1, True)]


@on_a_loop
async def test_who_does_not_fetch_any_more_leaves_the_isr_and_holds_nobody_back(tmp_path: Path) -> None:
    async with led(tmp_path, replica_lag_time_max_ms="300") as one:
        await one.in_sync()
        assert await one.produce(acks=-1) == 0  # it is answered when the follower is out
        assert one.partition.isr == (0,)
        assert (await one.state()).isr == (0,)
        assert one.topic.partitions[1].isr == (0, FOLLOWER)  # it has all of the other one


@pytest.mark.parametrize("version", [1, 4, 5, 11])
@on_a_loop
async def test_offsets_are_told_when_they_can_be_relied_on(tmp_path: Path, version: int) -> None:
    """KIP-207. A follower gets the end of the log."""
    async with led(tmp_path) as one:
        await one.in_sync()
        await one.produce()
        assert await one.offset(version, -1) == (ErrorCode.NONE, 0)
        assert await one.offset(version, -1, replica=FOLLOWER) == (ErrorCode.NONE, 1)
        one.partition.led_by(0, 3, (0, FOLLOWER), 5)
        not_yet = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
        assert await one.offset(version, -1) == (not_yet, -1)
        assert await one.offset(version, 0) == (not_yet, -1)
        assert await one.offset(version, -2) == (ErrorCode.NONE, 0)
        assert await one.offset(version, -1, replica=FOLLOWER) == (ErrorCode.NONE, 1)
        await one.fetch(1)
        assert await one.offset(version, -1) == (ErrorCode.NONE, 1)
        assert await one.offset(version, 0) == (ErrorCode.NONE, 0)


@on_a_loop
async def test_every_client_is_told_of_the_isr(tmp_path: Path) -> None:
    async with led(tmp_path) as one:
        await one.in_sync()
        await until(lambda: one.broker.control.controller.facts.topics["t"].partitions[0].state.isr == (0, FOLLOWER))
        async with asyncio.timeout(20):
            while (await one.store.children(paths.ISR_CHANGES))[0]:
                await asyncio.sleep(0.005)


@on_a_loop
async def test_a_follower_of_ours_has_the_same_log_byte_for_byte(tmp_path: Path) -> None:
    async with led(tmp_path / "leader") as one:
        harnesses = [LogHarness(tmp_path / f"follower-{number}", LogConfig(segment_bytes=1000)) for number in (0, 1)]
        settings = LinkSettings(FOLLOWER, wait_max_ms=100, backoff_ms=10)
        link = FollowerLink(0, lambda: _channel(one.broker), SystemClock(), settings, lambda key: None)
        try:
            for number, harness in enumerate(harnesses):
                link.follow(TopicPartition("t", number), harness.log, one.topic.topic_id, 0)
            await until(lambda: all(partition.isr == (0, FOLLOWER) for partition in one.topic.partitions))
            for offset in range(20):
                assert await one.produce(acks=-1, partition=offset % 2) == offset // 2
            one.partition.led_by(0, 4, (0, FOLLOWER), 9)
            link.follow(TopicPartition("t", 0), harnesses[0].log, one.topic.topic_id, 4)
            assert await one.produce(acks=-1) == 10
            for partition, harness in zip(one.topic.partitions, harnesses, strict=True):
                log = partition.leader_log()
                await until(_same(harness.log, log))
                assert content_of(harness.log) == content_of(log)
            assert harnesses[0].log.leader_epochs.entries() == [(0, 0), (4, 10)]
        finally:
            link.close()


def _same(ours: Any, theirs: Any) -> Callable[[], bool]:
    return lambda: (ours.log_end_offset, ours.high_watermark) == (theirs.log_end_offset, theirs.high_watermark)


# --- consumers that are sent to the follower -------------------------------------------------------------------------

_BY_RACK = {"replica_selector_class": RACK_AWARE, "broker_rack": "a"}


def _preferred(answer: FetchResponse) -> list[tuple[int, int, int]]:
    """The partition, the nearer replica and the high watermark of everything in the answer. There are no records."""
    parts = [part for topic in answer.responses for part in topic.partitions]
    assert not any(part.records for part in parts if part.preferred_read_replica != -1)
    return [(part.partition_index, part.preferred_read_replica, part.high_watermark) for part in parts]


@pytest.mark.parametrize("version", [11, 12, 13, 17])
@on_a_loop
async def test_a_consumer_in_the_followers_rack_is_sent_there_when_it_is_in_sync(tmp_path: Path, version: int) -> None:
    async with led(tmp_path, **_BY_RACK) as one:
        await one.produce()
        consumer: dict[str, Any] = {"replica": -1, "version": version, "rack": "b"}
        found = await one.first(0, **consumer)
        assert (found.preferred_read_replica, bool(found.records)) == (-1, True)
        await one.in_sync()
        await one.fetch(1)
        # It does not wait, though it asks for more than there is.
        found = await one.first(0, **consumer, max_wait_ms=30_000)
        assert (found.preferred_read_replica, found.records, found.aborted_transactions) == (FOLLOWER, b"", None)
        assert (found.error_code, found.high_watermark, found.last_stable_offset, found.log_start_offset) == (
            ErrorCode.NONE,
            1,
            1,
            0,
        )
        assert (await one.first(1, **consumer, max_wait_ms=30_000)).preferred_read_replica == FOLLOWER
        for rack in ("a", "c", ""):
            found = await one.first(0, **(consumer | {"rack": rack}))
            assert (found.preferred_read_replica, bool(found.records)) == (-1, True)
        # Errors take precedence over the nearer replica.
        assert (await one.first(0, **consumer, epoch=7)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await one.first(2, **consumer)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@on_a_loop
async def test_nobody_is_sent_to_a_follower_that_lacks_the_offset(tmp_path: Path) -> None:
    async with led(tmp_path, **_BY_RACK) as one:
        await one.in_sync()
        for _ in range(3):
            await one.produce()
        await one.fetch(2, log_start=1)
        found = [(await one.first(offset, replica=-1, rack="b")).preferred_read_replica for offset in range(4)]
        assert found == [-1, FOLLOWER, FOLLOWER, -1]
        await one.fetch(3, log_start=3)
        found = [(await one.first(offset, replica=-1, rack="b")).preferred_read_replica for offset in range(4)]
        assert found == [-1, -1, -1, FOLLOWER]


@pytest.mark.parametrize("selector", [LEADER, ""])
@on_a_loop
async def test_without_the_selector_of_racks_the_leader_is_read(tmp_path: Path, selector: str) -> None:
    async with led(tmp_path, replica_selector_class=selector, broker_rack="a") as one:
        await one.in_sync()
        await one.produce()
        await one.fetch(1)
        found = await one.first(0, replica=-1, rack="b")
        assert (found.preferred_read_replica, bool(found.records)) == (-1, True)


@on_a_loop
async def test_in_a_session_a_consumer_is_sent_to_the_follower_again_and_again(tmp_path: Path) -> None:
    async with led(tmp_path, **_BY_RACK) as one:
        await one.in_sync()
        await one.produce()
        await one.fetch(1)
        consumer: dict[str, Any] = {"replica": -1, "rack": "b", "max_wait_ms": 30_000}
        begun = await one.fetch(1, None, session=(0, 0), **consumer)
        assert _preferred(begun) == [(0, FOLLOWER, 1)]
        for epoch in (1, 2):
            assert _preferred(await one.fetch(session=(begun.session_id, epoch), **consumer)) == [(0, FOLLOWER, 1)]
        # A partition that it forgets is not in the answer any more. A consumer in the leader's rack gets records from
        # the leader.
        answer = await one.fetch(None, 0, session=(begun.session_id, 3), forget=(0,), **consumer)
        assert _preferred(answer) == [(1, FOLLOWER, 0)]
        await one.produce(partition=1)
        found = await one.fetch(session=(begun.session_id, 4), replica=-1, rack="a")
        assert _preferred(found) == [(1, -1, 0)] or found.responses == []


@on_a_loop
async def test_a_consumer_that_waits_at_the_leader_is_sent_away_when_the_follower_is_in_sync(tmp_path: Path) -> None:
    async with led(tmp_path, **_BY_RACK) as one:
        begun = await one.fetch(0, session=(0, 0), replica=-1, rack="b")
        assert _preferred(begun) == [(0, -1, 0)]
        waiting = asyncio.ensure_future(
            one.fetch(session=(begun.session_id, 1), replica=-1, rack="b", max_wait_ms=30_000)
        )
        await until(lambda: len(one.broker.waiting) == 1)
        other = await _channel(one.broker)
        try:
            await Led(one.broker, one.store, other).in_sync()
        finally:
            other.close()
        assert _preferred(await waiting) == [(0, FOLLOWER, 0)]


@pytest.mark.parametrize("selector", [RACK_AWARE, LEADER, ""])
@on_a_loop
async def test_where_consumers_are_sent_to_followers_they_are_told_at_once_what_is_committed(
    tmp_path: Path, selector: str
) -> None:
    async with led(tmp_path, replica_selector_class=selector) as one:
        await one.in_sync()
        begun = await one.fetch(0, None, session=(0, 0))
        await one.produce()
        assert (await one.first(session=(begun.session_id, 1))).high_watermark == 0
        # The follower has the record now, which commits it. The answer states this, or waits for records.
        waiting = asyncio.ensure_future(one.fetch(1, session=(begun.session_id, 2), max_wait_ms=30_000))
        if selector != RACK_AWARE:
            await until(lambda: len(one.broker.waiting) == 1)
            await one.produce()
        (topic,) = (await waiting).responses
        assert [(part.high_watermark, bool(part.records)) for part in topic.partitions] == [(1, selector != RACK_AWARE)]
