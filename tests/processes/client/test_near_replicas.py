"""A leader names a replica that is nearer to the consumer: the replica from which the consumer reads, and when this
ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.wire.language import Message
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchResponse, FetchResponsePartition, FetchResponseTopic
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.on_a_loop import on_a_loop
from tests.processes.client.scripted_broker import ScriptedBroker
from tests.units.log.log_harness import make_batch

_KEY = TopicPartition("t", 0)
_LEADER, _NEAR = 0, 1
#: A broker's answer for the partition at this offset.
Says = Callable[[int], FetchResponsePartition]


def _record(offset: int) -> FetchResponsePartition:
    """One record."""
    batch = make_batch()
    batch[:8] = offset.to_bytes(8, "big")
    return FetchResponsePartition(high_watermark=offset + 1, records=bytes(batch))


def _sends_to_near(offset: int) -> FetchResponsePartition:
    return FetchResponsePartition(high_watermark=99, preferred_read_replica=_NEAR, records=b"")


def _error(code: ErrorCode) -> Says:
    return lambda offset: FetchResponsePartition(error_code=code, high_watermark=-1, records=b"")


class Script:
    """Two brokers, of which the first leads, the answers of each, and the requests as broker and offset, in order."""

    def __init__(self) -> None:
        self.says: dict[int, Says] = {_LEADER: _sends_to_near, _NEAR: _record}
        self.ports: dict[int, int] = {}
        self.asked: list[tuple[int, int]] = []
        self.racks: set[str] = set()
        self.brokers: dict[int, ScriptedBroker] = {}
        self.consumer: Consumer

    def _metadata(self, request: Message) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=port) for number, port in self.ports.items()
        ]
        partition = MetadataResponsePartition(leader_id=_LEADER, leader_epoch=0, replica_nodes=[0, 1], isr_nodes=[0, 1])
        return MetadataResponse(brokers=brokers, topics=[MetadataResponseTopic(name="t", partitions=[partition])])

    def broker(self, number: int) -> ScriptedBroker:
        def fetch(request: Message) -> FetchResponse:
            assert isinstance(request, FetchRequest)
            self.racks.add(request.rack_id)
            if not request.topics:
                return FetchResponse()
            offset = request.topics[0].partitions[0].fetch_offset
            self.asked.append((number, offset))
            return FetchResponse(responses=[FetchResponseTopic(topic="t", partitions=[self.says[number](offset)])])

        self.brokers[number] = ScriptedBroker({MetadataRequest: self._metadata, FetchRequest: fetch})
        return self.brokers[number]

    async def read(self, count: int) -> list[int]:
        """The next offsets that the consumer returns."""
        found: list[int] = []
        while len(found) < count:
            found += [record.offset for records in (await self.consumer.poll(20, 1)).values() for record in records]
        return found


@contextlib.asynccontextmanager
async def scripted(max_age_seconds: float = 300.0, rack: str = "b") -> AsyncIterator[Script]:
    script = Script()
    async with asyncio.timeout(30), script.broker(_LEADER) as leader, script.broker(_NEAR) as near:
        script.ports = {_LEADER: leader.port, _NEAR: near.port}
        cluster = Cluster(
            f"127.0.0.1:{leader.port}",
            ClientConfig(
                retry_backoff_seconds=0.01, reconnect_backoff_seconds=0.01, metadata_max_age_seconds=max_age_seconds
            ),
        )
        async with Consumer(cluster, rack=rack, auto_offset_reset="none") as script.consumer:
            await script.consumer.assign({_KEY: 0})
            yield script
        await cluster.close()


@on_a_loop
async def test_the_replica_that_the_leader_names_is_read() -> None:
    async with scripted() as script:
        assert await script.read(3) == [0, 1, 2]
        assert script.asked[:4] == [(_LEADER, 0), (_NEAR, 0), (_NEAR, 1), (_NEAR, 2)]
        assert script.racks == {"b"}


@on_a_loop
async def test_the_leader_is_asked_again_after_the_age_of_the_metadata() -> None:
    async with scripted(max_age_seconds=0.05) as script:
        offset = 0
        while sum(number == _LEADER for number, _ in script.asked) < 3:
            assert await script.read(1) == [offset]
            offset += 1
        assert {number for number, _ in script.asked} == {_LEADER, _NEAR}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
@on_a_loop
async def test_where_the_replica_refuses_the_leader_is_asked_from_where_reading_was(code: ErrorCode) -> None:
    async with scripted() as script:
        assert await script.read(2) == [0, 1]
        script.says = {_LEADER: _record, _NEAR: _error(code)}
        begun = len(script.asked)
        assert await script.read(3) == [2, 3, 4]
        # One record may have been fetched ahead.
        later = script.asked[begun:]
        (refused,) = [offset for number, offset in later if number == _NEAR and (_LEADER, offset) in later]
        assert (_LEADER, refused) in later


@on_a_loop
async def test_where_the_replica_is_gone_the_leader_is_asked() -> None:
    async with scripted() as script:
        assert await script.read(2) == [0, 1]
        script.says[_LEADER] = _record
        await script.brokers[_NEAR].stop()
        assert await script.read(3) == [2, 3, 4]
        assert script.asked[-1][0] == _LEADER


@on_a_loop
async def test_a_replica_that_the_metadata_did_not_know_is_looked_up() -> None:
    async with scripted() as script:
        near = script.ports.pop(_NEAR)
        told = 0

        def says(offset: int) -> FetchResponsePartition:
            nonlocal told
            told += 1
            script.ports[_NEAR] = near
            return _sends_to_near(offset)

        script.says[_LEADER] = says
        assert await script.read(2) == [0, 1]
        assert script.asked[-1][0] == _NEAR
        assert told <= 2
