"""Requests leave no cycles of references: the collector of cycles would stop the broker for them, and their memory
would stay until it runs."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from jesenska.broker.server import Broker
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.config.layers import BrokerConfig
from jesenska.net.channel import open_channel
from jesenska.net.connection import ReadBuffer
from jesenska.wire.language import Message
from jesenska.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.units.log.log_harness import make_batch

_TOPIC = "t"
_REQUESTS = 200


def _produce() -> Message:
    return ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            ProduceRequestTopic(name=_TOPIC, partition_data=[ProduceRequestPartition(index=0, records=make_batch())])
        ],
    )


def _fetch() -> Message:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[
            FetchRequestTopic(
                topic=_TOPIC, partitions=[FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
            )
        ],
    )


def _metadata() -> Message:
    return MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)])


@pytest.mark.parametrize(
    ("make", "version"), [(_produce, 9), (_fetch, 11), (_metadata, 9)], ids=["produce", "fetch", "metadata"]
)
def test_what_a_request_made_goes_with_its_answer(tmp_path: Path, make: object, version: int) -> None:
    async def main() -> int:
        assert callable(make)
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}))
        await broker.start()
        host, port = broker.view.brokers[broker.broker_id].endpoints["PLAINTEXT"]
        cluster = Cluster(f"{host}:{port}")
        await Admin(cluster).create_topics([NewTopic(_TOPIC, 1, 1)])
        channel = await open_channel(host, port, "garbage", ReadBuffer(), software_version="1")
        for _ in range(20):
            await channel.send(make(), version)
        gc.collect()
        gc.disable()
        try:
            for _ in range(_REQUESTS):
                await channel.send(make(), version)
            return gc.collect()
        finally:
            gc.enable()
            channel.close()
            await cluster.close()
            await broker.stop()

    assert asyncio.run(main()) < _REQUESTS
