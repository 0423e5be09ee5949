"""Leader epochs that a consumer asks for: OffsetForLeaderEpoch knows every epoch that ListOffsets returns, also after
restarts and other events."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess
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
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)
from tests.raw_connection import RawConnection
from tests.units.log.log_harness import make_batch

LATEST, EARLIEST = -1, -2


def create(broker: BrokerProcess, topic: str) -> None:
    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        await Admin(cluster).create_topics([NewTopic(topic, 1, 1)])
        await cluster.close()

    asyncio.run(work())


def append(connection: RawConnection, topic: str) -> None:
    data = [ProduceRequestPartition(index=0, records=make_batch(3))]
    connection.ask(
        ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[ProduceRequestTopic(name=topic, partition_data=data)]),
        9,
        ProduceResponse,
    )


def offset_and_epoch(connection: RawConnection, topic: str, time: int) -> tuple[int, int]:
    asked = [ListOffsetsRequestPartition(partition_index=0, timestamp=time)]
    answer = connection.ask(
        ListOffsetsRequest(topics=[ListOffsetsRequestTopic(name=topic, partitions=asked)]), 6, ListOffsetsResponse
    )
    found = answer.topics[0].partitions[0]
    return found.offset, found.leader_epoch


def end_of(connection: RawConnection, topic: str, epoch: int) -> tuple[int, int]:
    asked = [OffsetForLeaderEpochRequestPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequestTopic(topic=topic, partitions=asked)])
    found = connection.ask(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0]
    return found.leader_epoch, found.end_offset


@pytest.mark.crash
def test_an_epoch_that_a_client_was_told_is_known_after_two_crashes_without_a_record_in_between(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create(broker, "t")
        with RawConnection(broker.bootstrap) as connection:
            append(connection, "t")
        for _ in range(2):
            broker.kill()
            broker.start()
            with RawConnection(broker.bootstrap) as connection:
                offset, epoch = offset_and_epoch(connection, "t", LATEST)
                assert offset == 3
                assert end_of(connection, "t", epoch) == (epoch, 3)
        told = epoch
        broker.kill()
        broker.start()
        with RawConnection(broker.bootstrap) as connection:
            known, end_offset = end_of(connection, "t", told)
            assert known >= 0
            assert end_offset == 3


def test_an_empty_topic_begins_and_ends_in_its_first_epoch(broker: BrokerProcess) -> None:
    """As in Apache Kafka, (0, 0) enters the table when the partition gets its leader."""
    create(broker, "epochs-of-an-empty-topic")
    with RawConnection(broker.bootstrap) as connection:
        assert offset_and_epoch(connection, "epochs-of-an-empty-topic", EARLIEST) == (0, 0)
        assert offset_and_epoch(connection, "epochs-of-an-empty-topic", LATEST) == (0, 0)
        assert end_of(connection, "epochs-of-an-empty-topic", 0) == (0, 0)
