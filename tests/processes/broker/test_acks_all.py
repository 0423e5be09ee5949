"""A producer with acks=all, where one of the in-sync replicas does not follow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jesenska.base.errors import ErrorCode
from jesenska.broker.server import Broker
from jesenska.config.layers import BrokerConfig
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from tests.raw_connection import RawConnection
from tests.units.log.log_harness import make_batch

FOLLOWER = 9
_LONG_MS = 60_000


class Produced:
    """The answer to a produce request of one record to a partition. A thread of its own waits for it."""

    def __init__(self, broker: Broker, timeout_ms: int) -> None:
        host, port = broker.endpoint_for("PLAINTEXT")
        self._bootstrap, self._timeout_ms = f"{host}:{port}", timeout_ms
        self.answers: list[tuple[ErrorCode, int]] = []

    def ask(self, times: int = 1) -> None:
        data = [ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(records=make_batch())])]
        with RawConnection(self._bootstrap) as connection:
            for _ in range(times):
                answer = connection.ask(
                    ProduceRequest(acks=-1, timeout_ms=self._timeout_ms, topic_data=data), 9, ProduceResponse
                )
                (partition,) = answer.responses[0].partition_responses
                self.answers.append((ErrorCode(partition.error_code), partition.base_offset))


@contextmanager
def asked(produced: Produced, times: int = 1) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=produced.ask, args=(times,))
    thread.start()
    try:
        yield thread
    finally:
        thread.join(20)
        assert not thread.is_alive()


async def led_with_a_follower(directory: Path) -> Broker:
    broker = Broker(
        BrokerConfig({"log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", "num.partitions": "1"})
    )
    await broker.start()
    await broker.control.controller.create_automatically("t")
    partition = broker.view.topics["t"].partitions[0]
    partition.assign((broker.broker_id, FOLLOWER))
    partition.led_by(broker.broker_id, 1, (broker.broker_id, FOLLOWER), 1)
    return broker


def test_a_producer_is_told_when_its_replicas_take_longer_than_it_allows_and_what_it_wrote_may_be_committed_later(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        broker = await led_with_a_follower(tmp_path)
        try:
            produced = Produced(broker, 50)
            with asked(produced, times=2):
                while len(produced.answers) < 2:
                    await asyncio.sleep(0.001)
            assert produced.answers == [(ErrorCode.REQUEST_TIMED_OUT, -1)] * 2
            partition = broker.view.topics["t"].partitions[0]
            assert partition.high_watermark == 0
            partition.follower_fetched(FOLLOWER, 2, 2)
            assert partition.high_watermark == 2
        finally:
            await broker.stop()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_producer_is_answered_once_its_replicas_have_what_it_wrote(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await led_with_a_follower(tmp_path)
        try:
            produced = Produced(broker, _LONG_MS)
            partition = broker.view.topics["t"].partitions[0]
            with asked(produced):
                while partition.leader_log().log_end_offset < 1:
                    await asyncio.sleep(0.001)
                assert produced.answers == []
                assert len(broker.waiting) == 1
                partition.follower_fetched(FOLLOWER, 1, 1)
                while not produced.answers:
                    await asyncio.sleep(0.001)
            assert produced.answers == [(ErrorCode.NONE, 0)]
            assert len(broker.waiting) == 0
        finally:
            await broker.stop()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_producer_that_goes_away_leaves_nothing_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await led_with_a_follower(tmp_path)
        try:
            host, port = broker.endpoint_for("PLAINTEXT")
            data = [ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(records=make_batch())])]
            with RawConnection(f"{host}:{port}") as connection:
                connection.send_frame(
                    connection.frame(ProduceRequest(acks=-1, timeout_ms=_LONG_MS, topic_data=data), 9)
                )
                while not len(broker.waiting):
                    await asyncio.sleep(0.001)
            while len(broker.waiting):
                await asyncio.sleep(0.001)
        finally:
            await broker.stop()

    asyncio.run(asyncio.wait_for(main(), 30))
