"""DescribeProducers (key 61), version 0: returns the active producers of a partition's log (KIP-664)."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DescribeProducersRequestTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


class DescribeProducersRequest(Message, key=61, kind=REQUEST, versions=(0, 0), flexible=0):
    topics: list[DescribeProducersRequestTopic] = field(Array(DescribeProducersRequestTopic))


class DescribeProducersResponseProducer(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


class DescribeProducersResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    active_producers: list[DescribeProducersResponseProducer] = field(Array(DescribeProducersResponseProducer))


class DescribeProducersResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeProducersResponsePartition] = field(Array(DescribeProducersResponsePartition))


class DescribeProducersResponse(Message, key=61, kind=RESPONSE, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    topics: list[DescribeProducersResponseTopic] = field(Array(DescribeProducersResponseTopic))
