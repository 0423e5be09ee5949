"""The machine's wall clock is set by an hour, back or ahead, while something waits in a broker: whatever waits ends
when its time has passed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from jesenska.base.clock import SystemClock
from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.machine import Machine
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.topics import TopicCreation
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    ErrorAnswer,
    Event,
    Heartbeat,
    Join,
    JoinAnswer,
    PartitionsAnswer,
    Response,
    Sync,
    SyncAnswer,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from tests.raw_connection import RawConnection

HOUR_MS = 3_600_000
SET = pytest.mark.parametrize("set_ms", [-HOUR_MS, HOUR_MS])
R = TypeVar("R")


class SetClock:
    """The machine's clocks, with a wall clock that a test sets."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return self._machine.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return self._machine.monotonic()


@asynccontextmanager
async def running(data: Path, clock: SetClock, **settings: str) -> Any:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    broker = Broker(
        BrokerConfig(
            {
                "log.dirs": str(data),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "offsets.topic.num.partitions": "1",
                **given,
            }
        ),
        Machine(clock=clock),
    )
    try:
        await broker.start()
        yield broker
    finally:
        await broker.stop()


async def ask(broker: Broker, make: Callable[[int], Event], kind: type[R]) -> R:
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    broker.coordinators.groups.submit("g", make, answered.set_result)
    response = await asyncio.wait_for(answered, 20)
    assert isinstance(response, kind)
    return response


def joining(session_ms: int, rebalance_ms: int = 60_000, member: str = "") -> Callable[[int], Event]:
    return lambda token: Join(
        token, "g", member, None, "c", "/127.0.0.1", session_ms, rebalance_ms, "consumer", (("range", b"m"),)
    )


def synced(answer: JoinAnswer) -> Callable[[int], Event]:
    return lambda token: Sync(token, "g", answer.generation_id, answer.member_id)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


@SET
def test_a_silent_member_is_expelled_and_a_live_one_is_not(tmp_path: Path, set_ms: int) -> None:
    async def main() -> None:
        clock = SetClock()
        async with running(
            tmp_path, clock, group_min_session_timeout_ms="1", group_initial_rebalance_delay_ms="0"
        ) as broker:
            await broker.coordinators.groups.ensure_topic()
            silent = await ask(broker, joining(200), JoinAnswer)
            second = asyncio.create_task(ask(broker, joining(60_000), JoinAnswer))
            await asyncio.sleep(0)
            clock.ahead_ms = set_ms
            live = await second  # the silent member does not join the rebalance, so its session ends it
            assert live.error is ErrorCode.NONE
            assert live.leader == live.member_id != silent.member_id
            assert (await ask(broker, synced(live), SyncAnswer)).error is ErrorCode.NONE
            third = asyncio.create_task(ask(broker, joining(300), JoinAnswer))
            await asyncio.sleep(0)
            rejoined = await ask(broker, joining(60_000, member=live.member_id), JoinAnswer)
            clock.ahead_ms = 2 * set_ms
            again = await third
            assert {again.error, rejoined.error} == {ErrorCode.NONE}
            # The third is silent, and when it is looked at the live one, which has minutes left, stays.
            coordinator = broker.coordinators.groups.coordinator_of("g")
            while again.member_id in coordinator.groups["g"].members:
                await asyncio.sleep(0.01)
            alive = await ask(
                broker, lambda token: Heartbeat(token, "g", rejoined.generation_id, live.member_id), ErrorAnswer
            )
            assert alive.error is ErrorCode.REBALANCE_IN_PROGRESS

    run(main)


@SET
def test_a_commit_behind_a_disk_that_hangs_is_answered(tmp_path: Path, set_ms: int) -> None:
    async def main() -> None:
        clock, released = SetClock(), threading.Event()
        async with running(tmp_path, clock, offsets_commit_timeout_ms="200") as broker:
            await broker.coordinators.groups.ensure_topic()
            writer = broker.directories.directories[0].writer
            writer.flushes_in_flight += 1
            writer.writer.submit(released.wait, lambda _: None)
            try:
                key = TopicPartition("t", 0)
                offsets = ((key, CommittedOffset(1, -1, "", clock.now_ms())),)
                waiting = asyncio.create_task(
                    ask(broker, lambda token: CommitOffsets(token, "g", -1, "", None, offsets), PartitionsAnswer)
                )
                await asyncio.sleep(0)
                clock.ahead_ms = set_ms
                assert (await waiting).partitions[key] is ErrorCode.COORDINATOR_NOT_AVAILABLE
            finally:
                released.set()
                writer.flushes_in_flight -= 1

    run(main)


def fetch(broker_at: str, topic: str) -> FetchResponse:
    request = FetchRequest(
        max_wait_ms=300,
        min_bytes=1,
        max_bytes=1000,
        topics=[
            FetchRequestTopic(
                topic=topic, partitions=[FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
            )
        ],
    )
    with RawConnection(broker_at) as connection:
        return connection.ask(request, 4, FetchResponse)


@SET
def test_a_fetch_an_idle_connection_and_a_deleted_topics_files_end_in_their_time(tmp_path: Path, set_ms: int) -> None:
    async def main() -> None:
        clock = SetClock()
        async with running(tmp_path, clock, connections_max_idle_ms="700", log_segment_delete_delay_ms="100") as broker:
            for name in ("kept", "gone"):
                await broker.control.controller.create(TopicCreation(name, 1, 1))
            host, port = broker.endpoint_for(broker.first_listener_name)
            address = f"{host}:{port}"
            idle = await asyncio.to_thread(RawConnection, address)
            waiting = asyncio.create_task(asyncio.to_thread(fetch, address, "kept"))
            await broker.control.controller.delete("gone")
            clock.ahead_ms = set_ms
            assert (await waiting).responses[0].partitions[0].error_code == ErrorCode.NONE
            with idle:
                assert await asyncio.to_thread(idle.is_closed)
            while list(tmp_path.glob("gone-0.*-delete")):
                await asyncio.sleep(0.01)

    run(main)
