"""DescribeTopicPartitions (key 75), version 0: returns the partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

import uuid

from jesenska.wire.language import BOOLEAN, INT16, INT32, REQUEST, RESPONSE, STRING, UUID, Array, Message, Struct, field


class DescribeTopicPartitionsRequestTopic(Struct):
    name: str = field(STRING)


class DescribeTopicPartitionsRequestCursor(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsRequest(Message, key=75, kind=REQUEST, versions=(0, 0), flexible=0):
    topics: list[DescribeTopicPartitionsRequestTopic] = field(Array(DescribeTopicPartitionsRequestTopic))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: DescribeTopicPartitionsRequestCursor | None = field(
        DescribeTopicPartitionsRequestCursor, nullable=0, default=None
    )


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(INT32))
    isr_nodes: list[int] = field(Array(INT32))
    eligible_leader_replicas: list[int] | None = field(Array(INT32), nullable=0, default=None)
    last_known_elr: list[int] | None = field(Array(INT32), nullable=0, default=None)
    offline_replicas: list[int] = field(Array(INT32), ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable=0)
    topic_id: uuid.UUID = field(UUID, ignorable=True)
    is_internal: bool = field(BOOLEAN, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(Array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = field(INT32, default=-2147483648)


class DescribeTopicPartitionsResponseNextCursor(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


class DescribeTopicPartitionsResponse(Message, key=75, kind=RESPONSE, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(Array(DescribeTopicPartitionsResponseTopic))
    next_cursor: DescribeTopicPartitionsResponseNextCursor | None = field(
        DescribeTopicPartitionsResponseNextCursor, nullable=0, default=None
    )
