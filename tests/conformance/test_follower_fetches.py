"""What a leader answers its followers: the same raw requests to jesenska and to Apache Kafka 3.9.1, each of which
leads a topic that names another broker, which is not there. So nobody is taken into the ISR."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.metadata import paths
from jesenska.metadata.zookeeper.client.client import connect
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
)
from tests.conformance.conftest import need
from tests.old_requests import produce
from tests.peers.apache_kafka import ApacheKafka
from tests.raw_connection import RawConnection
from tests.served_tree import ServedTree
from tests.units.log.log_harness import make_batch

pytestmark = pytest.mark.conformance

_FOLLOWER, _STRANGER = 9, 5
_SECONDS = 60
_RECORDS = 3


class Side:
    """A broker with the topic, and a connection to it."""

    def __init__(self, bootstrap: str, tree: str) -> None:
        asyncio.run(_write_topic(tree))
        self.connection = RawConnection(bootstrap)
        self.topic_id = self._led()
        for _ in range(_RECORDS):
            assert produce(self.connection, "t", 3, make_batch()).error_code == ErrorCode.NONE

    def _led(self) -> Any:
        """The topic's id, when it is led."""
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            answer = self.connection.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
                10,
                MetadataResponse,
            )
            (topic,) = answer.topics
            if topic.error_code == ErrorCode.NONE and topic.partitions and topic.partitions[0].leader_id == 0:
                return topic.topic_id
        raise AssertionError("nobody leads the topic")

    def fetch(self, version: int, offset: int, epoch: int, last_epoch: int, replica: int) -> tuple[object, ...]:
        # What the version cannot say.
        epoch, last_epoch = epoch if version >= 9 else -1, last_epoch if version >= 12 else -1
        part = FetchRequestPartition(
            partition=0,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=1 << 20,
            log_start_offset=0,
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1)
        request.topics = [FetchRequestTopic(topic="t", topic_id=self.topic_id, partitions=[part])]
        if version >= 15:
            request.replica_state = FetchRequestReplicaState(replica_id=replica)
        else:
            request.replica_id = replica
        found = self.connection.ask(request, version, FetchResponse).responses[0].partitions[0]
        assert found.records is None or isinstance(found.records, memoryview)
        diverging = found.diverging_epoch
        return (
            ErrorCode(found.error_code), found.high_watermark, found.last_stable_offset, found.log_start_offset,
            (diverging.epoch, diverging.end_offset), bytes(found.records or b""),
        )  # fmt: skip

    def offset(self, version: int, timestamp: int, replica: int) -> tuple[object, ...]:
        asked = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsRequestTopic(name="t", partitions=[asked])])
        found = self.connection.ask(request, version, ListOffsetsResponse).topics[0].partitions[0]
        return ErrorCode(found.error_code), found.offset, found.leader_epoch

    def epoch_end(self, epoch: int, replica: int) -> tuple[object, ...]:
        asked = OffsetForLeaderEpochRequestPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=replica, topics=[OffsetForLeaderEpochRequestTopic(topic="t", partitions=[asked])]
        )
        found = self.connection.ask(request, 4, OffsetForLeaderEpochResponse).topics[0].partitions[0]
        return ErrorCode(found.error_code), found.leader_epoch, found.end_offset


async def _write_topic(tree: str) -> None:
    store = await connect(tree)
    try:
        await store.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[0,9]}}')
    finally:
        await store.close()


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    need("java", "mvn")
    directory: Path = tmp_path_factory.mktemp("followers")
    with ExitStack() as stack:
        kafka = stack.enter_context(ApacheKafka("3.9.1", directory / "kafka", zookeeper=True, heap="384m"))
        tree = stack.enter_context(ServedTree())
        ours = stack.enter_context(
            BrokerProcess(directory / "ours", settings={"broker.id": "0", "zookeeper.connect": tree.address})
        )
        assert kafka.zookeeper_connect is not None
        made = Side(ours.bootstrap, tree.address), Side(kafka.bootstrap, kafka.zookeeper_connect)
        yield made
        for side in made:
            side.connection.socket.close()


#: Offset, current leader epoch, epoch of the follower's last batch.
_ASKED = [
    (0, -1, -1), (0, 0, -1), (1, 0, 0), (2, 0, 0), (2, -1, 0),
    # Beyond the end, and below the start.
    (4, 0, -1), (4, 0, 0), (1000, -1, 0), (-1, 0, -1), (-1, 0, 0),
    # Epochs that the leader does not have.
    (1, 0, 5), (1, 7, -1), (1, 7, 0), (0, 0, 3),
]  # fmt: skip


@pytest.mark.parametrize("replica", [_FOLLOWER, _STRANGER])
@pytest.mark.parametrize("version", [4, 9, 11, 12, 13, 15, 17])
def test_a_follower_is_answered_as_by_kafka(sides: tuple[Side, Side], version: int, replica: int) -> None:
    for asked in _ASKED:
        ours, theirs = (side.fetch(version, *asked, replica) for side in sides)
        assert ours == theirs, asked


@pytest.mark.parametrize("replica", [-1, -2, _FOLLOWER, _STRANGER])
@pytest.mark.parametrize("version", [1, 4, 5, 9])
def test_a_follower_is_told_offsets_as_by_kafka(sides: tuple[Side, Side], version: int, replica: int) -> None:
    for timestamp in (-1, -2):
        ours, theirs = (side.offset(version, timestamp, replica) for side in sides)
        assert ours == theirs, timestamp


@pytest.mark.parametrize("replica", [-2, _FOLLOWER, _STRANGER])
def test_a_follower_is_told_where_epochs_end_as_by_kafka(sides: tuple[Side, Side], replica: int) -> None:
    for epoch in (-1, 0, 1, 5):
        ours, theirs = (side.epoch_end(epoch, replica) for side in sides)
        assert ours == theirs, epoch
