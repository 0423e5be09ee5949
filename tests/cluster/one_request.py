"""One request to one broker, which is not looked for anew: what it answers is what a test wants to know."""

from __future__ import annotations

import time
from collections.abc import Mapping

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.config_administration import DELETE, SET
from jesenska.client.offsets import LATEST
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from jesenska.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from jesenska.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from jesenska.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from jesenska.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from tests.raw_connection import RawConnection

PRODUCE_VERSION = 9
#: The last version in which followers give consumers nothing.
FETCH_VERSION = 10
#: How much longer than a request may take is waited for its answer.
_LATE_SECONDS = 20.0


def produce_request(
    topic: str, value: bytes, *, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    """One record in a batch of its own."""
    batch = encode_batch([(int(time.time() * 1000), None, value, ())])
    data = [
        ProduceRequestTopic(
            name=topic, partition_data=[ProduceRequestPartition(index=partition, records=memoryview(batch))]
        )
    ]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=data)


def produced(answer: ProduceResponse) -> tuple[ErrorCode, int]:
    """The error, and the record's offset."""
    item = answer.responses[0].partition_responses[0]
    return ErrorCode(item.error_code), item.base_offset


def produce(
    address: str, topic: str, value: bytes = b"value", *, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000
) -> tuple[ErrorCode, int]:
    """The error, and the record's offset."""
    with RawConnection(address, timeout_ms / 1000 + _LATE_SECONDS) as connection:
        request = produce_request(topic, value, partition=partition, acks=acks, timeout_ms=timeout_ms)
        return produced(connection.ask(request, PRODUCE_VERSION, ProduceResponse))


def fetch(
    address: str, topic: str, offset: int = 0, *, partition: int = 0
) -> tuple[ErrorCode, int, list[bytes | None]]:
    """The error, the high watermark, and the values of committed records."""
    parts = [FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=parts)])
    with RawConnection(address) as connection:
        item = connection.ask(request, FETCH_VERSION, FetchResponse).responses[0].partitions[0]
    values = (
        [record.value for record in decode_batches(item.records, True, offset)]
        if isinstance(item.records, memoryview)
        else []
    )
    return ErrorCode(item.error_code), item.high_watermark, values


def list_offset(address: str, topic: str, timestamp: int = LATEST, *, partition: int = 0) -> tuple[ErrorCode, int]:
    parts = [ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequestTopic(name=topic, partitions=parts)])
    with RawConnection(address) as connection:
        item = connection.ask(request, 5, ListOffsetsResponse).topics[0].partitions[0]
    return ErrorCode(item.error_code), item.offset


def ask_for_topic(address: str, name: str) -> ErrorCode:
    """What a client that wants to write to a topic is told of it; it may be created."""
    with RawConnection(address) as connection:
        answer = connection.ask(
            MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True),
            12,
            MetadataResponse,
        )
    return ErrorCode(answer.topics[0].error_code)


def coordinator(address: str, group: str) -> tuple[ErrorCode, int]:
    with RawConnection(address) as connection:
        answer = connection.ask(FindCoordinatorRequest(key=group), 3, FindCoordinatorResponse)
    return ErrorCode(answer.error_code), answer.node_id


def alter(address: str, kind: int, name: str, changes: Mapping[str, str | None]) -> ErrorCode:
    """Sets what has a value, and takes back what has none."""
    items = [
        IncrementalAlterConfigsRequestConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in changes.items()
    ]
    resource = IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=items)
    with RawConnection(address) as connection:
        answer = connection.ask(
            IncrementalAlterConfigsRequest(resources=[resource]), 1, IncrementalAlterConfigsResponse
        )
    return ErrorCode(answer.responses[0].error_code)


def described(address: str, kind: int, name: str, key: str) -> tuple[ErrorCode, str | None, int]:
    """The error, and the value of one setting with Kafka's number for where it comes from."""
    resource = DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    with RawConnection(address) as connection:
        result = connection.ask(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse).results[0]
    if result.error_code != ErrorCode.NONE:
        return ErrorCode(result.error_code), None, -1
    (item,) = result.configs
    return ErrorCode.NONE, item.value, item.config_source
