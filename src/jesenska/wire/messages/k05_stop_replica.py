"""StopReplica (key 5): the controller tells a broker to stop some of its replicas, and optionally to delete them.
Kafka 4 has removed this API."""

from __future__ import annotations

from jesenska.wire.language import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    REQUEST,
    RESPONSE,
    STRING,
    Array,
    Message,
    Struct,
    field,
)


class StopReplicaRequestUngroupedPartition(Struct):
    topic_name: str = field(STRING, until=0)
    partition_index: int = field(INT32, until=0)


class StopReplicaRequestTopic(Struct):
    name: str = field(STRING, since=1, until=2)
    partition_indexes: list[int] = field(Array(INT32), since=1, until=2)


class StopReplicaRequestPartitionState(Struct):
    partition_index: int = field(INT32, since=3)
    leader_epoch: int = field(INT32, since=3, default=-1)
    delete_partition: bool = field(BOOLEAN, since=3)


class StopReplicaRequestTopicState(Struct):
    topic_name: str = field(STRING, since=3)
    partition_states: list[StopReplicaRequestPartitionState] = field(Array(StopReplicaRequestPartitionState), since=3)


class StopReplicaRequest(Message, key=5, kind=REQUEST, versions=(0, 4), flexible=2):
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOLEAN, since=4)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=1, default=-1, ignorable=True)
    delete_partitions: bool = field(BOOLEAN, until=2)
    ungrouped_partitions: list[StopReplicaRequestUngroupedPartition] = field(
        Array(StopReplicaRequestUngroupedPartition), until=0
    )
    topics: list[StopReplicaRequestTopic] = field(Array(StopReplicaRequestTopic), since=1, until=2)
    topic_states: list[StopReplicaRequestTopicState] = field(Array(StopReplicaRequestTopicState), since=3)


class StopReplicaResponsePartitionError(Struct):
    topic_name: str = field(STRING)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class StopReplicaResponse(Message, key=5, kind=RESPONSE, versions=(0, 4), flexible=2):
    error_code: int = field(INT16)
    partition_errors: list[StopReplicaResponsePartitionError] = field(Array(StopReplicaResponsePartitionError))
