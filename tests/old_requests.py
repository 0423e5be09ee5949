"""Requests of the old days to any broker, as raw messages: topics, produce, fetch, offsets."""

from __future__ import annotations

import time

from jesenska.base.errors import ErrorCode
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from jesenska.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
)
from jesenska.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from tests.raw_connection import RawConnection

_NO_BROKER_YET = ErrorCode.INVALID_REPLICATION_FACTOR
_WITHIN_SECONDS = 30


def create(connection: RawConnection, name: str, **configs: str) -> str:
    """A topic of one partition, unless it is there; returns when records can be written to it. Underscores in names of
    settings stand for dots. Old records stay, unless `retention_ms` says how long: a broker looks for those that are
    too old while a test is at work."""
    wanted = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1)
    kept = {"retention_ms": "-1"} | configs
    wanted.configs = [CreateTopicsRequestConfig(name=key.replace("_", "."), value=value) for key, value in kept.items()]
    deadline = time.monotonic() + _WITHIN_SECONDS
    code: int = _NO_BROKER_YET
    while code == _NO_BROKER_YET and time.monotonic() < deadline:
        code = (
            connection.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=20_000), 2, CreateTopicsResponse)
            .topics[0]
            .error_code
        )
    assert code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), ErrorCode(code)
    while fetch(connection, name, 4).error_code != ErrorCode.NONE:
        assert time.monotonic() < deadline, f"{name} is not there"
    return name


def produce(
    connection: RawConnection, topic: str, version: int, records: bytes | bytearray, acks: int = 1
) -> ProduceResponsePartition:
    data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=0, records=bytes(records))])
    answer = connection.ask(ProduceRequest(acks=acks, timeout_ms=20_000, topic_data=[data]), version, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def fetch(
    connection: RawConnection, topic: str, version: int, offset: int = 0, max_bytes: int = 1 << 20
) -> FetchResponsePartition:
    part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=[part])])
    return connection.ask(request, version, FetchResponse).responses[0].partitions[0]


def list_offsets(connection: RawConnection, topic: str, version: int, timestamp: int) -> ListOffsetsResponsePartition:
    part = ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)
    if not version:
        part.max_num_offsets = 5
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequestTopic(name=topic, partitions=[part])])
    return connection.ask(request, version, ListOffsetsResponse).topics[0].partitions[0]
