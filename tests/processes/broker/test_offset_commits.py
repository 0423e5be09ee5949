"""Commits whose records cannot be written in time, or not to the requested number of replicas."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.groups.events import CommitOffsets, CommittedOffset, PartitionsAnswer, Response

_KEY = TopicPartition("t", 0)


def config(data: Path, **settings: str) -> BrokerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerConfig(
        {"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "1", **given}
    )


async def commit(broker: Broker, offset: int) -> ErrorCode:
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    offsets = ((_KEY, CommittedOffset(offset, -1, "", broker.clock.now_ms())),)
    broker.coordinators.groups.submit(
        "g", lambda token: CommitOffsets(token, "g", -1, "", None, offsets), answered.set_result
    )
    response = await asyncio.wait_for(answered, 20)
    assert isinstance(response, PartitionsAnswer)
    return response.partitions[_KEY]


def committed(broker: Broker) -> int | None:
    found = broker.coordinators.groups.coordinator_of("g").offsets.committed("g", [_KEY]).get(_KEY)
    return None if found is None else found.offset


def test_a_commit_behind_a_disk_that_does_not_answer_is_told_so_and_counts_later(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(config(tmp_path, offsets_commit_timeout_ms="50"))
        await broker.start()
        answers = threading.Event()
        try:
            await broker.coordinators.groups.ensure_topic()
            assert await commit(broker, 1) is ErrorCode.NONE
            writer = broker.directories.directories[0].writer
            written = asyncio.Event()
            writer.flushes_in_flight += 1
            writer.writer.submit(answers.wait, lambda _: None)
            assert await commit(broker, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert committed(broker) == 1
            writer.writer.submit(lambda: None, lambda _: written.set())
            writer.flushes_in_flight -= 1
            answers.set()
            await asyncio.wait_for(written.wait(), 20)
            assert committed(broker) == 2
            assert await commit(broker, 3) is ErrorCode.NONE
        finally:
            answers.set()
            await broker.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("acks", "answer"),
    [
        ("-1", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("2", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("1", ErrorCode.NONE),
        ("0", ErrorCode.NONE),
    ],
)
def test_commits_ask_for_as_many_replicas_as_they_are_told_to(tmp_path: Path, acks: str, answer: ErrorCode) -> None:
    async def main() -> None:
        broker = Broker(config(tmp_path, min_insync_replicas="2", offsets_commit_required_acks=acks))
        await broker.start()
        try:
            topic = await broker.coordinators.groups.ensure_topic()
            # A topic with one replica asks for one in sync.
            assert await commit(broker, 1) is ErrorCode.NONE
            for partition in topic.partitions:
                partition.assign((broker.broker_id, broker.broker_id + 1))
            assert await commit(broker, 2) is answer
        finally:
            await broker.stop()

    asyncio.run(main())
