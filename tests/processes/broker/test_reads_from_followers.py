"""Consumers that read from a follower: two brokers on one loop and one tree, of which the first leads. The follower
fetches so rarely that no test waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster as ClientCluster
from jesenska.client.consumer import Consumer
from jesenska.config.replica_selectors import RACK_AWARE
from jesenska.controller.effects import TopicPartitions
from jesenska.controller.orders.requests import Stop
from jesenska.controller.plans.topics import TopicCreation
from jesenska.net.channel import Channel
from jesenska.replication.partition import Partition
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from tests.on_a_loop import on_a_loop
from tests.processes.broker.test_follower_fetches import _channel
from tests.processes.broker.test_several_brokers import Cluster, cluster
from tests.processes.broker.test_shared_tree import until
from tests.units.log.log_harness import make_batch

_SETTINGS = {
    "replica.selector.class": RACK_AWARE,
    "replica.fetch.wait.max.ms": "25000",
    "replica.fetch.backoff.ms": "20",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
}
_KEY = TopicPartition("t", 0)


class Followed:
    """A partition that one broker leads and the other follows, with records, and a consumer at the follower."""

    def __init__(self, brokers: Cluster, leader: Broker, follower: Broker, channel: Channel) -> None:
        self.brokers, self.leader, self.follower, self._channel = brokers, leader, follower, channel
        self.session = 0, -1

    @property
    def partition(self) -> Partition:
        """The partition at the follower."""
        return self.follower.view.topics["t"].partitions[0]

    async def produce(self, broker: Broker | None = None) -> None:
        data = [ProduceRequestTopic(name="t", partition_data=[ProduceRequestPartition(index=0, records=make_batch())])]
        channel = await _channel(broker or self.leader)
        try:
            answer = await channel.request(
                ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), ProduceResponse, timeout_seconds=30, at_most=9
            )
        finally:
            channel.close()
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    async def fetch(
        self,
        offset: int | None,
        *,
        epoch: int = -1,
        version: int = 12,
        max_wait_ms: int = 30_000,
        session: tuple[int, int] = (0, -1),
    ) -> FetchResponse:
        """Fetches from the follower. Without an offset the request names no partition."""
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_id=session[0], session_epoch=session[1])
        if offset is not None:
            part = FetchRequestPartition(fetch_offset=offset, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
            request.topics = [
                FetchRequestTopic(topic="t", topic_id=self.follower.view.topics["t"].topic_id, partitions=[part])
            ]
        return await self._channel.request(request, FetchResponse, timeout_seconds=60, at_most=version)

    async def first(self, offset: int | None, **options: Any) -> FetchResponsePartition:
        return (await self.fetch(offset, **options)).responses[0].partitions[0]

    async def waiting(
        self, offset: int, *, in_session: bool = False, epoch: int = -1
    ) -> asyncio.Future[FetchResponsePartition]:
        """Starts a fetch that waits at the follower."""
        if in_session:
            begun = await self.fetch(offset, epoch=epoch, max_wait_ms=0, session=(0, 0))
            answer = asyncio.ensure_future(self.first(None, session=(begun.session_id, 1)))
        else:
            answer = asyncio.ensure_future(self.first(offset, epoch=epoch))
        await until(lambda: len(self.follower.waiting) == 1)
        return answer


@contextlib.asynccontextmanager
async def followed(data: Path, **settings: str) -> AsyncIterator[Followed]:
    async with asyncio.timeout(60), cluster(data, 0, _SETTINGS | settings) as brokers:
        await brokers.start(1, **{"broker.rack": "a"})
        await brokers.start(2, **{"broker.rack": "b"})
        await brokers.controller.control.controller.create(TopicCreation("t", 1, 2))
        await until(lambda: all("t" in broker.view.topics for broker in brokers.brokers.values()))
        leader = brokers.brokers[brokers.leaders(brokers.controller)[0]]
        follower = brokers.brokers[3 - leader.broker_id]
        channel = await _channel(follower)
        one = Followed(brokers, leader, follower, channel)
        try:
            await one.produce()
            await until(lambda: one.partition.high_watermark == 1)
            yield one
        finally:
            channel.close()


@pytest.mark.parametrize("in_session", [False, True])
@on_a_loop
async def test_a_consumer_that_waits_at_a_follower_is_told_of_what_is_committed(
    tmp_path: Path, in_session: bool
) -> None:
    async with followed(tmp_path) as one:
        for offset in (1, 2):
            answer = await one.waiting(offset, in_session=in_session)
            await one.produce()
            found = await answer
            assert (found.error_code, bool(found.records), found.high_watermark) == (ErrorCode.NONE, True, offset + 1)


@pytest.mark.parametrize("in_session", [False, True])
@on_a_loop
async def test_a_consumer_that_waits_at_a_follower_is_answered_when_that_leads(
    tmp_path: Path, in_session: bool
) -> None:
    async with followed(tmp_path) as one:
        answer = await one.waiting(1, in_session=in_session, epoch=0)
        await one.brokers.stop(one.leader.broker_id)
        assert (await answer).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await one.first(0, epoch=1)).records
        # A consumer that names no epoch continues to read.
        answer = await one.waiting(1, in_session=in_session)
        await one.produce(one.follower)
        assert (await answer).records


@pytest.mark.parametrize("in_session", [False, True])
@on_a_loop
async def test_a_consumer_that_waits_at_a_follower_is_sent_away_when_that_gives_up_its_replica(
    tmp_path: Path, in_session: bool
) -> None:
    async with followed(tmp_path) as one:
        answer = await one.waiting(1, in_session=in_session)
        # As a controller orders it of a broker that is about to stop.
        assert not await one.follower.replication.replicas.stop([Stop(_KEY, 0, False)])
        assert (await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # It is ordered to follow again.
        await one.follower.replication.replicas.lead_and_follow(
            [TopicPartitions(one.brokers.controller.control.controller.facts.topics["t"], (0,))]
        )
        answer = await one.waiting(1, in_session=in_session)
        await one.brokers.controller.control.controller.delete("t")
        assert (await answer).error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@on_a_loop
async def test_followers_answer_consumers_without_a_setting(tmp_path: Path) -> None:
    async with followed(tmp_path, **{"replica.selector.class": "", "replica.fetch.wait.max.ms": "20"}) as one:
        for version in (4, 10, 11, 17):
            found = await one.first(0, version=version)
            assert (found.error_code, bool(found.records)) == (
                (ErrorCode.NONE, True) if version >= 11 else (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)
            )


@on_a_loop
async def test_our_client_reads_from_the_follower_of_its_rack_and_from_the_leader_when_that_is_gone(
    tmp_path: Path,
) -> None:
    async with followed(tmp_path) as one:
        host, port = one.leader.endpoint_for("PLAINTEXT")
        client = ClientCluster(
            f"{host}:{port}", ClientConfig(retry_backoff_seconds=0.01, reconnect_backoff_seconds=0.01)
        )
        rack = one.follower.view.brokers[one.follower.broker_id].rack
        assert rack is not None
        async with Consumer(client, rack=rack) as consumer:
            await consumer.assign({_KEY: 0})
            read = [record.offset for records in (await consumer.poll(20)).values() for record in records]
            assert read == [0]
            await until(lambda: len(one.follower.waiting) == 1)  # the consumer: no broker follows this one
            await one.brokers.stop(one.follower.broker_id)
            await one.produce()
            while len(read) < 2:
                read += [record.offset for records in (await consumer.poll(20)).values() for record in records]
            assert read == [0, 1]
        await client.close()
