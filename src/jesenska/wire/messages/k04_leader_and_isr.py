"""LeaderAndIsr (key 4): the controller tells a broker which partitions the broker has to lead, and which partitions it
has to follow. Kafka 4 has removed this API."""

from __future__ import annotations

import uuid

from jesenska.wire.language import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    REQUEST,
    RESPONSE,
    STRING,
    UUID,
    Array,
    Message,
    Struct,
    field,
)


class LeaderAndIsrRequestUngroupedPartitionState(Struct):
    topic_name: str = field(STRING, until=1, ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    partition_epoch: int = field(INT32)
    replicas: list[int] = field(Array(INT32))
    adding_replicas: list[int] = field(Array(INT32), since=3, ignorable=True)
    removing_replicas: list[int] = field(Array(INT32), since=3, ignorable=True)
    is_new: bool = field(BOOLEAN, since=1, ignorable=True)
    leader_recovery_state: int = field(INT8, since=6)


class LeaderAndIsrRequestPartitionState(Struct):
    topic_name: str = field(STRING, until=1, ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    partition_epoch: int = field(INT32)
    replicas: list[int] = field(Array(INT32))
    adding_replicas: list[int] = field(Array(INT32), since=3, ignorable=True)
    removing_replicas: list[int] = field(Array(INT32), since=3, ignorable=True)
    is_new: bool = field(BOOLEAN, since=1, ignorable=True)
    leader_recovery_state: int = field(INT8, since=6)


class LeaderAndIsrRequestTopicState(Struct):
    topic_name: str = field(STRING, since=2)
    topic_id: uuid.UUID = field(UUID, since=5, ignorable=True)
    partition_states: list[LeaderAndIsrRequestPartitionState] = field(Array(LeaderAndIsrRequestPartitionState), since=2)


class LeaderAndIsrRequestLiveLeader(Struct):
    broker_id: int = field(INT32)
    host_name: str = field(STRING)
    port: int = field(INT32)


class LeaderAndIsrRequest(Message, key=4, kind=REQUEST, versions=(0, 7), flexible=4):
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOLEAN, since=7)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=2, default=-1, ignorable=True)
    type: int = field(INT8, since=5)
    ungrouped_partition_states: list[LeaderAndIsrRequestUngroupedPartitionState] = field(
        Array(LeaderAndIsrRequestUngroupedPartitionState), until=1
    )
    topic_states: list[LeaderAndIsrRequestTopicState] = field(Array(LeaderAndIsrRequestTopicState), since=2)
    live_leaders: list[LeaderAndIsrRequestLiveLeader] = field(Array(LeaderAndIsrRequestLiveLeader))


class LeaderAndIsrResponsePartitionError(Struct):
    topic_name: str = field(STRING, until=4, ignorable=True)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class LeaderAndIsrResponseTopicPartitionError(Struct):
    topic_name: str = field(STRING, until=4, ignorable=True)
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class LeaderAndIsrResponseTopic(Struct):
    topic_id: uuid.UUID = field(UUID, since=5)
    partition_errors: list[LeaderAndIsrResponseTopicPartitionError] = field(
        Array(LeaderAndIsrResponseTopicPartitionError), since=5
    )


class LeaderAndIsrResponse(Message, key=4, kind=RESPONSE, versions=(0, 7), flexible=4):
    error_code: int = field(INT16)
    partition_errors: list[LeaderAndIsrResponsePartitionError] = field(
        Array(LeaderAndIsrResponsePartitionError), until=4
    )
    topics: list[LeaderAndIsrResponseTopic] = field(Array(LeaderAndIsrResponseTopic), since=5)
