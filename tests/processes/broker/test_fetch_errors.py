"""Partitions that a fetch is refused for."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
)
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
    (
        FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=1000),
        9,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ),
    (
        FetchRequestPartition(partition=7, fetch_offset=0, partition_max_bytes=1000),
        4,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
]


@pytest.mark.parametrize(
    ("version", "partition", "code"),
    [
        (version, partition, code)
        for partition, first, code in _CASES
        for version in (4, 9, 11, 12, 13, 16)
        if version >= first
    ],
)
def test_refused_partition_has_empty_records_and_not_none(
    broker: BrokerProcess, topic_id: uuid.UUID, version: int, partition: FetchRequestPartition, code: ErrorCode
) -> None:
    """As in Kafka: librdkafka considers records of length -1 a damaged answer, does not see the error, and repeats the
    request endlessly."""
    topic = FetchRequestTopic(topic="t", topic_id=topic_id, partitions=[partition])
    with RawConnection(broker.bootstrap) as connection:
        answer = connection.ask(
            FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic]), version, FetchResponse
        )
    found = answer.responses[0].partitions[0]
    assert found.error_code == code
    assert found.records is not None and len(found.records) == 0


def _ask(
    broker: BrokerProcess,
    topic_id: uuid.UUID,
    version: int,
    *partitions: FetchRequestPartition,
    follower: int = -1,
    isolation_level: int = 0,
) -> FetchResponse:
    topic = FetchRequestTopic(topic="t", topic_id=topic_id, partitions=list(partitions))
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, isolation_level=isolation_level, topics=[topic]
    )
    if version >= 15:
        request.replica_state = FetchRequestReplicaState(replica_id=follower)
    else:
        request.replica_id = follower
    with RawConnection(broker.bootstrap) as connection:
        return connection.ask(request, version, FetchResponse)


VERSIONS = (4, 7, 11, 12, 13, 17)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partition_that_is_named_twice_is_read_once_from_where_it_is_named_last(
    broker: BrokerProcess, topic_id: uuid.UUID, version: int
) -> None:
    first = FetchRequestPartition(partition=0, fetch_offset=1000, partition_max_bytes=1000)
    last = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    answer = _ask(broker, topic_id, version, first, FetchRequestPartition(partition=7), last)
    found = [(part.partition_index, part.error_code) for topic in answer.responses for part in topic.partitions]
    assert found == [(0, ErrorCode.NONE), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("follower", [0, 1])
def test_a_replica_that_is_none_is_told_to_look_elsewhere(
    broker: BrokerProcess, topic_id: uuid.UUID, version: int, follower: int
) -> None:
    answer = _ask(
        broker, topic_id, version, FetchRequestPartition(partition=0, partition_max_bytes=1000), follower=follower
    )
    part = answer.responses[0].partitions[0]
    assert (part.error_code, part.high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize("version", [9, 12, 17])
def test_a_replica_that_names_a_partition_twice_is_told_of_its_last_epoch(
    broker: BrokerProcess, topic_id: uuid.UUID, version: int
) -> None:
    for epochs, error in (((-1, 7), ErrorCode.UNKNOWN_LEADER_EPOCH), ((7, -1), ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        asked = [
            FetchRequestPartition(partition=0, partition_max_bytes=1000, current_leader_epoch=epoch) for epoch in epochs
        ]
        (part,) = _ask(broker, topic_id, version, *asked, follower=1).responses[0].partitions
        assert part.error_code == error


@pytest.mark.parametrize("version", VERSIONS)
def test_aborted_transactions_are_none_or_null_as_in_apache_kafka(
    broker: BrokerProcess, topic_id: uuid.UUID, version: int
) -> None:
    asked = [
        FetchRequestPartition(partition=0),
        FetchRequestPartition(partition=0, fetch_offset=99),
        FetchRequestPartition(partition=7),
    ]
    wanted: list[list[list[object] | None]] = [[None, None, []], [[], None, []]]
    for isolation_level, expected in enumerate(wanted):
        found = [
            _ask(broker, topic_id, version, part, isolation_level=isolation_level)
            .responses[0]
            .partitions[0]
            .aborted_transactions
            for part in asked
        ]
        assert found == expected
