"""AlterPartitionReassignments (key 45): starts or cancels the reassignment of partitions to other replicas (KIP-455).

Versions: 1 has a flag that forbids a change of the replication factor (KIP-860)."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class AlterPartitionReassignmentsRequestPartition(Struct):
    partition_index: int = field(INT32)
    replicas: list[int] | None = field(Array(INT32), nullable=0, default=None)


class AlterPartitionReassignmentsRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[AlterPartitionReassignmentsRequestPartition] = field(
        Array(AlterPartitionReassignmentsRequestPartition)
    )


class AlterPartitionReassignmentsRequest(Message, key=45, kind=REQUEST, versions=(0, 1), flexible=0):
    timeout_ms: int = field(INT32, default=60000)
    allow_replication_factor_change: bool = field(BOOLEAN, since=1, default=True)
    topics: list[AlterPartitionReassignmentsRequestTopic] = field(Array(AlterPartitionReassignmentsRequestTopic))


class AlterPartitionReassignmentsResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class AlterPartitionReassignmentsResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[AlterPartitionReassignmentsResponsePartition] = field(
        Array(AlterPartitionReassignmentsResponsePartition)
    )


class AlterPartitionReassignmentsResponse(Message, key=45, kind=RESPONSE, versions=(0, 1), flexible=0):
    throttle_time_ms: int = field(INT32)
    allow_replication_factor_change: bool = field(BOOLEAN, since=1, default=True, ignorable=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    responses: list[AlterPartitionReassignmentsResponseTopic] = field(Array(AlterPartitionReassignmentsResponseTopic))
