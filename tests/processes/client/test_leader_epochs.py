"""A consumer's behaviour when leaders change (KIP-320): the leader epochs that it names, the metadata that it
believes, and the offset from which it continues when the log differs from the one that it has read."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.positions import LogTruncationError, Position
from jesenska.records.batch import stamp_offsets
from jesenska.wire.language import Message
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from tests.on_a_loop import on_a_loop
from tests.processes.client.scripted_broker import ScriptedBroker
from tests.units.log.log_harness import make_batch

KEY = TopicPartition("t", 0)
TOPIC_ID, OTHER_ID = uuid.UUID(int=3), uuid.UUID(int=4)
_RESETS = ["earliest", "latest", "none"]


@dataclass
class Replica:
    """A broker: the leader epoch in which it believes that it leads, its log as the leader epochs of the records, the
    leader that it names (broker and epoch), and the requests that it received."""

    epoch: int
    log: list[int]
    tells: tuple[int, int]
    topic_id: uuid.UUID = TOPIC_ID
    #: Of requests for records, by offset.
    fetches: list[tuple[int, int]] = field(default_factory=list)
    look_ups: list[int] = field(default_factory=list)
    #: Epochs that it was to find, and under which.
    checks: list[tuple[int, int]] = field(default_factory=list)
    metadata: int = 0
    #: Called before each fetch is answered.
    before: Callable[[], None] = lambda: None
    #: How many records an answer may have.
    batches: int = 1
    #: The number of partitions, each of which has this log, and the partitions for which it returns no records.
    partitions: int = 1
    refused: frozenset[int] = frozenset()
    #: True if it checks the epochs of requests.
    fences: bool = True
    #: The replica that it sends consumers to.
    near: int = -1
    #: Partitions that have no leader.
    leaderless: frozenset[int] = frozenset()

    def refuses(self, current_leader_epoch: int) -> ErrorCode:
        if current_leader_epoch in (-1, self.epoch) or not self.fences:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if current_leader_epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def records(self, offset: int) -> bytes:
        """A batch for each record from an offset on."""
        data = bytearray()
        for at in range(offset, min(offset + self.batches, len(self.log))):
            batch = make_batch()
            stamp_offsets(batch, 0, at, self.log[at])
            data += batch
        return bytes(data)

    def fetch(self, request: Message) -> FetchResponse:
        assert isinstance(request, FetchRequest)
        if not request.topics:
            return FetchResponse()
        self.before()
        return FetchResponse(
            responses=[
                FetchResponseTopic(
                    topic="t", partitions=[self.fetched(asked) for asked in request.topics[0].partitions]
                )
            ]
        )

    def fetched(self, asked: FetchRequestPartition) -> FetchResponsePartition:
        self.fetches.append((asked.fetch_offset, asked.current_leader_epoch))
        error = (
            ErrorCode.FENCED_LEADER_EPOCH
            if asked.partition in self.refused
            else self.refuses(asked.current_leader_epoch)
        )
        if error == ErrorCode.NONE and asked.fetch_offset > len(self.log):
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        records = self.records(asked.fetch_offset) if error == ErrorCode.NONE and self.near < 0 else b""
        return FetchResponsePartition(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=len(self.log),
            preferred_read_replica=self.near,
            records=records,
        )

    def list_offsets(self, request: Message) -> ListOffsetsResponse:
        assert isinstance(request, ListOffsetsRequest)
        asked = request.topics[0].partitions[0]
        self.look_ups.append(asked.current_leader_epoch)
        answer = ListOffsetsResponsePartition(error_code=self.refuses(asked.current_leader_epoch))
        if answer.error_code == ErrorCode.NONE:
            answer.offset, answer.leader_epoch = (
                (0, self.log[0]) if asked.timestamp == EARLIEST else (len(self.log), self.epoch)
            )
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=[answer])])

    def check(self, request: Message) -> OffsetForLeaderEpochResponse:
        assert isinstance(request, OffsetForLeaderEpochRequest)
        assert request.replica_id == -1
        asked = request.topics[0].partitions[0]
        self.checks.append((asked.leader_epoch, asked.current_leader_epoch))
        answer = OffsetForLeaderEpochResponsePartition(error_code=self.refuses(asked.current_leader_epoch))
        known = [epoch for epoch in {*self.log, self.epoch} if epoch <= asked.leader_epoch]
        if answer.error_code == ErrorCode.NONE and asked.leader_epoch <= self.epoch and known:
            answer.leader_epoch = max(known)
            answer.end_offset = sum(epoch <= answer.leader_epoch for epoch in self.log)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderEpochResponseTopic(topic="t", partitions=[answer])])

    def broker(self, ports: list[int], at_most: dict[type[Message], int]) -> ScriptedBroker:
        def metadata(request: Message) -> MetadataResponse:
            self.metadata += 1
            brokers = [
                MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port) for number, port in enumerate(ports)
            ]
            leader, epoch = self.tells
            partitions = [
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=-1 if number in self.leaderless else leader,
                    leader_epoch=epoch,
                    replica_nodes=[0, 1],
                    isr_nodes=[0, 1],
                )
                for number in range(self.partitions)
            ]
            return MetadataResponse(
                brokers=brokers, topics=[MetadataResponseTopic(name="t", topic_id=self.topic_id, partitions=partitions)]
            )

        answers = {
            MetadataRequest: metadata,
            FetchRequest: self.fetch,
            ListOffsetsRequest: self.list_offsets,
            OffsetForLeaderEpochRequest: lambda request: self.check(request),
        }
        return ScriptedBroker(answers, at_most)


@contextlib.asynccontextmanager
async def consumer_of(
    *replicas: Replica,
    reset: str = "earliest",
    timeout_seconds: float = 60.0,
    at_most: dict[type[Message], int] | None = None,
) -> AsyncIterator[Consumer]:
    """A consumer that knows these brokers and asks the first one first."""
    ports: list[int] = []
    async with asyncio.timeout(20), contextlib.AsyncExitStack() as stack:
        for replica in replicas:
            ports.append((await stack.enter_async_context(replica.broker(ports, at_most or {}))).port)
        cluster = Cluster(
            [f"127.0.0.1:{port}" for port in ports],
            ClientConfig(
                retry_backoff_seconds=0.001, reconnect_backoff_seconds=0.001, request_timeout_seconds=timeout_seconds
            ),
        )
        stack.push_async_callback(cluster.close)
        yield await stack.enter_async_context(Consumer(cluster, auto_offset_reset=reset, max_wait_seconds=0.01))


async def read(consumer: Consumer, count: int) -> list[int]:
    """The next offsets that the consumer returns."""
    found: list[int] = []
    while len(found) < count:
        found += [record.offset for records in (await consumer.poll(20, 1)).values() for record in records]
    return found


async def moved(consumer: Consumer, goes: Callable[[], bool]) -> None:
    """Polls until a condition is true."""
    while not goes():
        assert await consumer.poll(0.01) == {}


def both_tell(replicas: Sequence[Replica], leader: int, epoch: int) -> None:
    for replica in replicas:
        replica.tells = leader, epoch


@on_a_loop
async def test_fetches_and_look_ups_of_offsets_name_the_leader_epoch_of_the_metadata() -> None:
    leader = Replica(epoch=7, log=[3, 7, 7], tells=(0, 7))
    async with consumer_of(leader) as consumer:
        assert (await list_offsets(consumer.cluster, {KEY: LATEST}))[KEY] == (3, -1, 7)
        await consumer.assign([KEY])
        assert await read(consumer, 3) == [0, 1, 2]
    assert leader.look_ups == [7, 7]
    assert {epoch for _, epoch in leader.fetches} == {7}


@on_a_loop
async def test_a_look_up_of_offsets_that_another_leader_epoch_refuses_asks_who_leads() -> None:
    leader = Replica(epoch=8, log=[3, 8], tells=(0, 7))
    async with consumer_of(leader) as consumer:
        await consumer.cluster.topic("t")
        leader.tells = 0, 8
        assert (await list_offsets(consumer.cluster, {KEY: LATEST}))[KEY].offset == 2
    assert leader.look_ups == [7, 8]


@pytest.mark.parametrize("known, led", [(4, 5), (6, 5)], ids=["fenced", "unknown"])
@on_a_loop
async def test_a_leader_that_refuses_the_epoch_is_asked_again_with_newer_metadata_and_nothing_is_read_twice(
    known: int, led: int
) -> None:
    """The epoch is unknown to the consumer or to the broker."""
    leader = Replica(epoch=4, log=[4, 4], tells=(0, 4))
    async with consumer_of(leader) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 2) == [0, 1]
        leader.epoch, leader.tells, leader.fetches, leader.log = led, (0, known), [], [4, 4, 4]
        consumer.cluster.forget_topic("t")
        asked = leader.metadata
        refused = leader.checks if known > led else leader.fetches
        await moved(consumer, lambda: len(refused) > 2 and leader.metadata > asked + 1)
        assert consumer.position(KEY) == 2
        leader.epoch, leader.tells = 6, (0, 6)
        assert await read(consumer, 1) == [2]
    assert leader.look_ups == []


@on_a_loop
async def test_the_position_is_checked_once_under_each_leader() -> None:
    leader, follower = Replica(epoch=1, log=[1, 1], tells=(0, 1)), Replica(epoch=2, log=[1, 1, 2, 2], tells=(1, 2))
    async with consumer_of(leader, follower) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 2) == [0, 1]
        assert leader.checks == []
        leader.epoch, leader.tells = 2, (1, 2)
        assert await read(consumer, 2) == [2, 3]
    assert follower.checks == [(1, 2)]
    assert follower.look_ups == []


@on_a_loop
async def test_the_leader_checks_a_position_that_is_read_on_from_at_a_near_replica() -> None:
    leader, near = Replica(epoch=1, log=[1, 1], tells=(0, 1), near=1), Replica(epoch=1, log=[1, 1], tells=(0, 1))
    async with consumer_of(leader, near) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 2) == [0, 1]
        for replica in (leader, near):
            # No broker refuses the fetch: only the metadata contain the new epoch.
            replica.epoch, replica.tells, replica.fences = 2, (0, 2), False
        consumer.cluster.forget_topic("t")
        await moved(consumer, lambda: bool(leader.checks or near.checks))
        leader.log, near.log = [1, 1, 2], [1, 1, 2]
        assert await read(consumer, 1) == [2]
    assert (leader.checks, near.checks) == ([(1, 2)], [])
    assert near.fetches[-1][0] >= 2


@pytest.mark.parametrize("reset", _RESETS)
@on_a_loop
async def test_where_the_new_leader_has_less_reading_goes_on_where_the_logs_part(reset: str) -> None:
    leader = Replica(epoch=1, log=[0, 0, 1, 1, 1], tells=(0, 1))
    follower = Replica(epoch=2, log=[0, 0, 1, 2, 2, 2, 2], tells=(1, 2))
    async with consumer_of(leader, follower, reset=reset) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]
        leader.epoch = 2
        both_tell([leader, follower], 1, 2)
        if reset == "none":
            for _ in range(2):
                with pytest.raises(
                    LogTruncationError, match="t-0 was read up to offset 5, but its log is another one from offset 3 on"
                ) as error:
                    await read(consumer, 1)
                assert (error.value.position, error.value.diverges_at) == (Position(5, 1), Position(3, 1))
            consumer.seek(KEY, Position(3, 1))
        assert await read(consumer, 4) == [3, 4, 5, 6]
    assert leader.look_ups == follower.look_ups == []


@pytest.mark.parametrize("reset, first", [("earliest", 0), ("latest", 2), ("none", None)])
@on_a_loop
async def test_where_the_leader_does_not_know_the_epoch_auto_offset_reset_holds(reset: str, first: int | None) -> None:
    leader = Replica(epoch=4, log=[3, 3], tells=(0, 4))
    async with consumer_of(leader, reset=reset) as consumer:
        await consumer.assign({KEY: Position(1, 2)})
        if first is None:
            with pytest.raises(LogTruncationError, match="knows nothing of leader epoch 2"):
                await read(consumer, 1)
            return

        def arrives() -> None:
            if leader.look_ups and len(leader.log) == 2:
                leader.log.append(4)

        leader.before = arrives
        assert await read(consumer, 1) == [first]
    assert leader.checks == [(2, 4)]


@on_a_loop
async def test_a_leader_before_the_one_that_was_read_does_not_throw_a_consumer_back() -> None:
    """A consumer has metadata of epoch 0 and continues to read while their leader leads again in epoch 2. Then a
    broker names the leader of epoch 1, which was paused and has fewer records."""
    between = Replica(epoch=1, log=[0, 0, 1], tells=(1, 0))
    leader = Replica(epoch=2, log=[0, 0, 2, 2, 2], tells=(1, 2), fences=False)
    async with consumer_of(between, leader) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]
        assert consumer.position_with_epoch(KEY) == Position(5, 2)
        between.tells, leader.fences = (0, 1), True
        leader.log += [2]
        assert await read(consumer, 1) == [5]
    assert (between.fetches, between.look_ups, between.checks, leader.look_ups) == ([], [], [], [])


@on_a_loop
async def test_a_member_that_begins_where_another_one_was_does_not_believe_a_leader_before_that() -> None:
    old, new = Replica(epoch=1, log=[1], tells=(0, 1)), Replica(epoch=2, log=[1, 2, 2, 2], tells=(1, 2))
    async with consumer_of(old, new, reset="none") as consumer:
        await consumer.assign({KEY: Position(3, 2)})
        assert await read(consumer, 1) == [3]
    assert old.fetches == old.checks == []
    assert new.checks == [(2, 2)]


@on_a_loop
async def test_metadata_that_stay_older_than_the_position_are_believed_after_the_time_of_a_request() -> None:
    """Another topic of that name was read before this one was created."""
    leader = Replica(epoch=1, log=[1, 1, 1], tells=(0, 1))
    async with consumer_of(leader, timeout_seconds=0.5) as consumer:
        await consumer.assign({KEY: Position(2, 9)})
        assert await read(consumer, 1) == [0]
    assert leader.metadata > 2
    assert leader.checks == [(9, 1)]


@on_a_loop
async def test_a_topic_that_was_made_anew_is_read_from_where_auto_offset_reset_says_without_a_wait() -> None:
    leader = Replica(epoch=5, log=[5, 5, 5], tells=(0, 5))
    async with consumer_of(leader) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 3) == [0, 1, 2]
        leader.epoch, leader.log, leader.tells, leader.topic_id = 0, [0, 0, 0, 0], (0, 0), OTHER_ID
        assert await read(consumer, 2) == [0, 1]
    assert leader.checks == [(5, 0)]


@on_a_loop
async def test_a_broker_that_tells_of_a_leader_before_is_not_believed_and_asked_after_the_others() -> None:
    old, new = Replica(epoch=4, log=[4], tells=(1, 5)), Replica(epoch=5, log=[4, 5, 5], tells=(1, 5))
    async with consumer_of(old, new) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 2) == [0, 1]
        assert (old.metadata, new.metadata) == (1, 0)
        old.tells = 0, 4
        for _ in range(2):
            consumer.cluster.forget_topic("t")
            found = await consumer.cluster.leader_of(KEY)
            assert (found.leader, found.leader_epoch) == (1, 5)
        assert (old.metadata, new.metadata) == (2, 1)
        assert await read(consumer, 1) == [2]
    assert old.fetches == []


@on_a_loop
async def test_a_partition_that_is_refused_does_not_hold_up_the_others_of_its_broker() -> None:
    leader = Replica(epoch=1, log=[1] * 5, tells=(0, 1), partitions=3, refused=frozenset({0, 2}))
    keys = [TopicPartition("t", number) for number in range(3)]
    async with consumer_of(leader) as consumer:
        await consumer.assign(dict.fromkeys(keys, 0))
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]
        assert [consumer.position(key) for key in keys] == [0, 5, 0]
        leader.refused = frozenset()
        assert sorted(await read(consumer, 10)) == sorted([*range(5)] * 2)


@on_a_loop
async def test_a_position_has_the_leader_epoch_of_the_record_before_it_also_within_what_was_fetched() -> None:
    leader = Replica(epoch=3, log=[1, 1, 2, 3, 3], tells=(0, 3), batches=5)
    async with consumer_of(leader) as consumer:
        await consumer.assign({KEY: 0})
        found = []
        for _ in range(5):
            await read(consumer, 1)
            found.append(consumer.position_with_epoch(KEY))
        assert found == [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)]
        consumer.seek(KEY, 2)
        assert consumer.position_with_epoch(KEY) == (2, -1)
        fetched = await consumer.poll_raw(20)
        assert (fetched[0].leader_epoch, consumer.position_with_epoch(KEY)) == (3, (5, 3))


@on_a_loop
async def test_brokers_before_2_4_are_sent_no_epoch_since_their_metadata_cannot_be_relied_on() -> None:
    leader = Replica(epoch=3, log=[3, 3], tells=(0, 1))
    async with consumer_of(leader, at_most={MetadataRequest: 8}) as consumer:
        await consumer.assign([KEY])
        assert await read(consumer, 2) == [0, 1]
        consumer.cluster.forget_topic("t")
        leader.tells, leader.log = (0, 0), [3, 3, 3]
        assert await read(consumer, 1) == [2]
    assert {epoch for _, epoch in leader.fetches} == {-1}
    assert leader.look_ups == [-1]
    assert leader.checks == []


@on_a_loop
async def test_a_broker_that_answers_no_consumer_of_epochs_is_read_on_from() -> None:
    leader, follower = Replica(epoch=1, log=[1], tells=(0, 1)), Replica(epoch=2, log=[1, 2], tells=(1, 2))
    async with consumer_of(leader, follower, at_most={OffsetForLeaderEpochRequest: 2}) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 1) == [0]
        leader.epoch, leader.tells = 2, (1, 2)
        assert await read(consumer, 1) == [1]
    assert follower.fetches[0] == (1, 2)
    assert follower.checks == []


@on_a_loop
async def test_a_topic_that_was_made_anew_and_has_less_is_not_taken_for_truncated() -> None:
    """Leader epochs start again, so the new topic has an epoch with the same number."""
    leader = Replica(epoch=0, log=[0] * 5, tells=(0, 0))
    async with consumer_of(leader) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]
        consumer.pause(KEY)
        while consumer._in_flight:
            assert await consumer.poll(0.01) == {}
        leader.log, leader.topic_id = [0, 0, 0], OTHER_ID
        consumer.cluster.forget_topic("t")
        consumer.resume(KEY)
        assert await read(consumer, 3) == [0, 1, 2]
    assert leader.checks == [(0, 0)]


@pytest.mark.parametrize(
    "position, leaderless", [(Position(2, 9), frozenset()), (Position(0), frozenset({0}))], ids=["behind", "leaderless"]
)
@on_a_loop
async def test_a_partition_without_a_leader_to_believe_costs_the_others_no_look_ups(
    position: Position, leaderless: frozenset[int]
) -> None:
    leader = Replica(epoch=1, log=[1] * 300, tells=(0, 1), partitions=2, leaderless=leaderless)
    async with consumer_of(leader) as consumer:
        await consumer.assign({KEY: position, TopicPartition("t", 1): 0})
        assert await read(consumer, 300) == [*range(300)]
        assert consumer.position(KEY) == position.offset
        assert leader.metadata < 30
        leader.leaderless, leader.epoch, leader.log = frozenset(), 9, [9] * 300
        both_tell([leader], 0, 9)
        assert await read(consumer, 1) == [position.offset]


@on_a_loop
async def test_what_was_sought_while_a_position_was_checked_is_checked_as_well() -> None:
    leader = Replica(epoch=2, log=[1, 1, 2, 2], tells=(0, 2))
    async with consumer_of(leader) as consumer:
        check = leader.check

        def seeks(request: Message) -> OffsetForLeaderEpochResponse:
            if not leader.checks:
                consumer.seek(KEY, Position(3, 1))
            return check(request)

        leader.check = seeks  # type: ignore[method-assign]
        await consumer.assign({KEY: Position(3, 2)})
        assert await read(consumer, 2) == [2, 3]
    assert leader.checks == [(2, 2), (1, 2)]


@on_a_loop
async def test_what_becomes_of_a_position_that_was_moved_meanwhile_is_nobodys_error() -> None:
    leader = Replica(epoch=2, log=[1, 2, 2], tells=(0, 2))
    async with consumer_of(leader, reset="none") as consumer:
        check = leader.check

        def seeks(request: Message) -> OffsetForLeaderEpochResponse:
            if not leader.checks:
                consumer.seek(KEY, 1)
            return check(request)

        leader.check = seeks  # type: ignore[method-assign]
        await consumer.assign({KEY: Position(3, 1)})
        assert await read(consumer, 2) == [1, 2]
        consumer.seek(KEY, 9)
        leader.before = lambda: consumer.seek(KEY, 2)
        assert await read(consumer, 1) == [2]


@on_a_loop
async def test_a_broker_that_knows_no_topic_ids_is_not_believed_a_leader_before_either() -> None:
    """One broker still has an older release, and it was cut off."""
    old, new = Replica(epoch=1, log=[1], tells=(1, 2)), Replica(epoch=2, log=[1, 2, 2], tells=(1, 2))
    async with consumer_of(old, new) as consumer:
        await consumer.assign({KEY: 0})
        assert await read(consumer, 3) == [0, 1, 2]
        old.tells, old.topic_id = (0, 1), NO_UUID
        consumer.pause(KEY)
        while consumer._in_flight:
            assert await consumer.poll(0.01) == {}
        consumer.cluster.forget_topic("t")
        consumer.resume(KEY)
        new.log.append(2)
        assert await read(consumer, 1) == [3]
    assert (old.fetches, old.checks) == ([], [])
