"""Partitions that a fetch is refused for."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.client.admin import Admin, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from tests.raw_connection import RawConnection


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> object:
    with BrokerProcess(tmp_path_factory.mktemp("fetch") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def topic_id(broker: BrokerProcess) -> uuid.UUID:
    async def work() -> uuid.UUID:
        cluster = Cluster(broker.bootstrap)
        try:
            await Admin(cluster).create_topics([NewTopic("t", 1, 1)])
            return (await cluster.topic("t")).topic_id
        finally:
            await cluster.close()

    return asyncio.run(work())


_CASES = [
    (FetchRequestPartition(partition=0, fetch_offset=1000, partition_max_bytes=1000), 4, ErrorCode.OFFSET_OUT_OF_RANGE),
    (FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=1000), 9, ErrorCode.UNKNOWN_LEADER_EPOCH),
    (FetchRequestPartition(partition=7, fetch_offset=0, partition_max_bytes=1000), 4, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
]


@pytest.mark.parametrize(
    ("version", "partition", "code"),
    [(version, partition, code) for partition, first, code in _CASES for version in (4, 9, 11, 12, 13, 16) if version >= first],
)
def test_refused_partition_has_empty_records_and_not_none(
    broker: BrokerProcess, topic_id: uuid.UUID, version: int, partition: FetchRequestPartition, code: ErrorCode
) -> None:
    """As in Kafka: librdkafka takes records of length -1 for a damaged answer, does not see the error, and asks the same again and again."""
    topic = FetchRequestTopic(topic="t", topic_id=topic_id, partitions=[partition])
    with RawConnection(broker.bootstrap) as connection:
        answer = connection.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic]), version, FetchResponse)
    found = answer.responses[0].partitions[0]
    assert found.error_code == code
    assert found.records is not None and len(found.records) == 0
