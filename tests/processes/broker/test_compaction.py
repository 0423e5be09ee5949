"""A broker compacts its topics while it runs: the offsets topic keeps the newest offset of each group and partition,
and does not grow; and a broker that compacts is stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.machine import Machine
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.controller.plans.topics import TopicCreation
from jesenska.groups.events import CommitOffsets, CommittedOffset, Response
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.records.decode import decode_batches
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.on_a_loop import on_a_loop
from tests.raw_connection import RawConnection

_OFFSETS = TopicPartition("__consumer_offsets", 0)
_COMMITS = 150


def broker_at(data: Path, **settings: str) -> Broker:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Broker(
        BrokerConfig(
            {
                "log.dirs": str(data),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "offsets.topic.num.partitions": "1",
                "offsets.topic.segment.bytes": "4000",
                "log.cleaner.backoff.ms": "0",
                **given,
            }
        ),
        Machine(),
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def commit(broker: Broker, offset: int) -> None:
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    offsets = ((TopicPartition("t", 0), CommittedOffset(offset, -1, "", broker.clock.now_ms())),)
    broker.coordinators.groups.submit(
        "g", lambda token: CommitOffsets(token, "g", -1, "", None, offsets), answered.set_result
    )
    await answered


def committed_offset(bootstrap: str) -> int:
    with RawConnection(bootstrap) as connection:
        request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
        while (
            answer := connection.ask(request, 5, OffsetFetchResponse)
        ).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        return answer.topics[0].partitions[0].committed_offset


def count(log: PartitionLog) -> int:
    return sum(1 for segment in log.segments for _ in decode_batches(segment.read_bytes(0, segment.size_bytes)))


@on_a_loop
async def test_the_offsets_topic_is_compacted_and_keeps_what_was_committed_last(tmp_path: Path) -> None:
    broker = broker_at(tmp_path)
    await broker.start()
    try:
        await broker.control.controller.create(TopicCreation("t", 1, 1))
        await broker.coordinators.groups.ensure_topic()
        for offset in range(_COMMITS):
            await commit(broker, offset)
        log = broker.directories.logs[_OFFSETS]
        await until(lambda: count(log) < _COMMITS / 4)
        assert broker.directories.cleaner is not None
        assert broker.directories.cleaner.uncleanable == {}
    finally:
        await broker.stop()
    broker = broker_at(tmp_path)
    await broker.start()
    try:
        host, port = broker.endpoint_for(broker.first_listener_name)
        assert await asyncio.to_thread(committed_offset, f"{host}:{port}") == _COMMITS - 1
    finally:
        await broker.stop()


@on_a_loop
async def test_a_broker_that_compacts_is_stopped_in_order(tmp_path: Path) -> None:
    """With its throttle, the compaction would take an hour."""
    broker = broker_at(tmp_path, log_cleaner_io_max_bytes_per_second="10")
    await broker.start()
    try:
        await broker.coordinators.groups.ensure_topic()
        for offset in range(_COMMITS):
            await commit(broker, offset)
        cleaner = broker.directories.cleaner
        assert cleaner is not None
        await until(lambda: cleaner.is_at_work)
    finally:
        async with asyncio.timeout(30):
            await broker.stop()
    again = broker_at(tmp_path)
    await again.start()
    try:
        assert again.directories.was_clean
        directory = again.directories.logs[_OFFSETS].directory
        assert not [path for path in directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    finally:
        await again.stop()
