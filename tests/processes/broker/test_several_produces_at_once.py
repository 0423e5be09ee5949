"""A producer that sends several requests before the first is answered, with slow replicas. The requests are written
without waiting for one another, and are answered in their order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.limits import WAITING_PRODUCES_PER_CONNECTION
from jesenska.broker.server import Broker
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from tests.processes.broker.test_acks_all import FOLLOWER, led_with_a_follower
from tests.processes.broker.test_shared_tree import until
from tests.raw_connection import RawConnection, read_answer
from tests.units.log.log_harness import make_batch

_PRODUCE, _LIST_OFFSETS = 9, 5
_LATEST = -1


class _Client:
    """A connection that sends many requests and then reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: RawConnection) -> None:
        self._reader, self._writer, self._frames = reader, writer, frames
        self._answered = 0

    def send(self, *requests: tuple[Message, int]) -> None:
        """Sends all requests in one write."""
        framed = [self._frames.frame(request, version) for request, version in requests]
        self._writer.write(b"".join(len(frame).to_bytes(4, "big") + frame for frame in framed))

    async def answer(self, response: type[Message], version: int) -> Message:
        """The next answer, which belongs to the next request."""
        async with asyncio.timeout(20):
            frame = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))
        self._answered += 1
        correlation_id, found = read_answer(frame, version, response)
        assert correlation_id == self._answered
        return found

    async def produced(self) -> tuple[ErrorCode, int]:
        answer = await self.answer(ProduceResponse, _PRODUCE)
        assert isinstance(answer, ProduceResponse)
        (partition,) = answer.responses[0].partition_responses
        return ErrorCode(partition.error_code), partition.base_offset

    async def has_nothing(self) -> bool:
        """True if no answer has arrived after the brokers had time to work."""
        try:
            async with asyncio.timeout(0.05):
                await self._reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def _served(directory: Path) -> AsyncIterator[tuple[Broker, _Client]]:
    broker = await led_with_a_follower(directory)
    try:
        host, port = broker.endpoint_for("PLAINTEXT")
        with RawConnection(f"{host}:{port}") as frames:
            client = _Client(*await asyncio.open_connection(host, port), frames)
            try:
                yield broker, client
            finally:
                client.close()
    finally:
        await broker.stop()


def _produce(
    topic: str = "t", *, acks: int = -1, timeout_ms: int = 60_000, value_bytes: int = 10
) -> tuple[Message, int]:
    partition = ProduceRequestPartition(records=make_batch(value_bytes=value_bytes))
    return ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[ProduceRequestTopic(name=topic, partition_data=[partition])]
    ), _PRODUCE


def _list_offsets() -> tuple[Message, int]:
    wanted = ListOffsetsRequestPartition(partition_index=0, timestamp=_LATEST)
    return ListOffsetsRequest(topics=[ListOffsetsRequestTopic(name="t", partitions=[wanted])]), _LIST_OFFSETS


def _end(broker: Broker) -> int:
    return broker.view.topics["t"].partitions[0].leader_log().log_end_offset


def _followed_to(broker: Broker, offset: int) -> None:
    broker.view.topics["t"].partitions[0].follower_fetched(FOLLOWER, offset, _end(broker))


def test_requests_are_written_before_the_first_is_answered_and_another_kind_of_request_waits_for_all(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with _served(tmp_path) as (broker, client):
            client.send(_produce(), _produce(), _produce(), _list_offsets(), _produce())
            await until(lambda: _end(broker) == 3)
            assert await client.has_nothing()
            assert _end(broker) == 3
            _followed_to(broker, 3)
            assert [await client.produced() for _ in range(3)] == [
                (ErrorCode.NONE, 0),
                (ErrorCode.NONE, 1),
                (ErrorCode.NONE, 2),
            ]
            answer = await client.answer(ListOffsetsResponse, _LIST_OFFSETS)
            assert isinstance(answer, ListOffsetsResponse)
            assert answer.topics[0].partitions[0].offset == 3
            await until(lambda: _end(broker) == 4)
            _followed_to(broker, 4)
            assert await client.produced() == (ErrorCode.NONE, 3)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_answers_leave_in_the_order_of_the_requests(tmp_path: Path) -> None:
    async def main() -> None:
        async with _served(tmp_path) as (broker, client):
            client.send(_produce(), _produce("nowhere"), _produce(acks=1), _produce())
            await until(lambda: _end(broker) == 3)
            # The second is refused at once and the third is done, but neither is answered before the first.
            assert await client.has_nothing()
            _followed_to(broker, 1)
            found = [await client.produced() for _ in range(3)]
            assert found == [(ErrorCode.NONE, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), (ErrorCode.NONE, 1)]
            assert await client.has_nothing()
            _followed_to(broker, 3)
            assert await client.produced() == (ErrorCode.NONE, 2)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_request_whose_time_is_up_is_answered_in_its_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with _served(tmp_path) as (broker, client):
            client.send(_produce(), _produce(timeout_ms=1))
            await until(lambda: _end(broker) == 2 and len(broker.waiting) == 1)
            assert await client.has_nothing()
            _followed_to(broker, 2)
            assert [await client.produced() for _ in range(2)] == [
                (ErrorCode.NONE, 0),
                (ErrorCode.REQUEST_TIMED_OUT, -1),
            ]

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("are_sent_together", [True, False])
def test_a_connection_has_so_many_requests_that_wait_and_no_more(tmp_path: Path, are_sent_together: bool) -> None:
    async def main() -> None:
        async with _served(tmp_path) as (broker, client):
            count = WAITING_PRODUCES_PER_CONNECTION + 3
            if are_sent_together:
                client.send(*[_produce()] * count)
            else:
                for _ in range(count):
                    client.send(_produce())
                    await asyncio.sleep(0)
            await until(lambda: _end(broker) == WAITING_PRODUCES_PER_CONNECTION)
            assert await client.has_nothing()
            assert _end(broker) == WAITING_PRODUCES_PER_CONNECTION
            _followed_to(broker, 2)
            assert [await client.produced() for _ in range(2)] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]
            await until(lambda: _end(broker) == WAITING_PRODUCES_PER_CONNECTION + 2)
            _followed_to(broker, WAITING_PRODUCES_PER_CONNECTION + 2)
            await until(lambda: _end(broker) == count)
            _followed_to(broker, count)
            assert [(await client.produced())[1] for _ in range(count - 2)] == list(range(2, count))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_large_requests_that_wait_are_fewer(tmp_path: Path) -> None:
    async def main() -> None:
        async with _served(tmp_path) as (broker, client):
            # Five of them are the first to exceed four megabytes.
            client.send(*[_produce(value_bytes=1_000_000)] * 8)
            await until(lambda: _end(broker) == 5)
            assert await client.has_nothing()
            assert _end(broker) == 5
            _followed_to(broker, 5)
            await until(lambda: _end(broker) == 8)
            _followed_to(broker, 8)
            assert [(await client.produced())[1] for _ in range(8)] == list(range(8))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_producer_that_goes_away_leaves_none_of_its_requests_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with _served(tmp_path) as (broker, client):
            client.send(_produce(), _produce("nowhere"), _produce(), _list_offsets())
            await until(lambda: _end(broker) == 2 and len(broker.waiting) == 2)
            client.close()
            await until(lambda: not len(broker.waiting))
            _followed_to(broker, 2)

    asyncio.run(asyncio.wait_for(main(), 60))
