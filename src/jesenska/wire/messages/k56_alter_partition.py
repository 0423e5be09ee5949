"""AlterPartition (key 56): the leader of a partition asks the controller to change the in-sync replicas (KIP-497)."""

from __future__ import annotations

import uuid

from jesenska.wire.language import (
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


class AlterPartitionRequestBrokerState(Struct):
    broker_id: int = field(INT32, since=3)
    broker_epoch: int = field(INT64, since=3, default=-1)


class AlterPartitionRequestPartition(Struct):
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(Array(INT32), until=2)
    new_isr_with_epochs: list[AlterPartitionRequestBrokerState] = field(
        Array(AlterPartitionRequestBrokerState), since=3
    )
    leader_recovery_state: int = field(INT8, since=1)
    partition_epoch: int = field(INT32)


class AlterPartitionRequestTopic(Struct):
    topic_name: str = field(STRING, until=1, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=2, ignorable=True)
    partitions: list[AlterPartitionRequestPartition] = field(Array(AlterPartitionRequestPartition))


class AlterPartitionRequest(Message, key=56, kind=REQUEST, versions=(0, 3), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    topics: list[AlterPartitionRequestTopic] = field(Array(AlterPartitionRequestTopic))


class AlterPartitionResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    leader_recovery_state: int = field(INT8, since=1, ignorable=True)
    partition_epoch: int = field(INT32)


class AlterPartitionResponseTopic(Struct):
    topic_name: str = field(STRING, until=1, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=2, ignorable=True)
    partitions: list[AlterPartitionResponsePartition] = field(Array(AlterPartitionResponsePartition))


class AlterPartitionResponse(Message, key=56, kind=RESPONSE, versions=(0, 3), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[AlterPartitionResponseTopic] = field(Array(AlterPartitionResponseTopic))
