"""ListPartitionReassignments (key 46), version 0: returns the partition reassignments that are in progress
(KIP-455)."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class ListPartitionReassignmentsRequestTopic(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(Array(INT32))


class ListPartitionReassignmentsRequest(Message, key=46, kind=REQUEST, versions=(0, 0), flexible=0):
    timeout_ms: int = field(INT32, default=60000)
    topics: list[ListPartitionReassignmentsRequestTopic] | None = field(
        Array(ListPartitionReassignmentsRequestTopic), nullable=0, default=None
    )


class ListPartitionReassignmentsResponsePartition(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] = field(Array(INT32))
    adding_replicas: list[int] = field(Array(INT32))
    removing_replicas: list[int] = field(Array(INT32))


class ListPartitionReassignmentsResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListPartitionReassignmentsResponsePartition] = field(
        Array(ListPartitionReassignmentsResponsePartition)
    )


class ListPartitionReassignmentsResponse(Message, key=46, kind=RESPONSE, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    topics: list[ListPartitionReassignmentsResponseTopic] = field(Array(ListPartitionReassignmentsResponseTopic))
