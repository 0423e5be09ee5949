"""UpdateMetadata (key 6): the controller sends a broker the state of the cluster's partitions and brokers. Kafka 4 has
removed this API."""

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


class UpdateMetadataRequestUngroupedPartitionState(Struct):
    topic_name: str = field(STRING, until=4, ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    zk_version: int = field(INT32)
    replicas: list[int] = field(Array(INT32))
    offline_replicas: list[int] = field(Array(INT32), since=4, ignorable=True)


class UpdateMetadataRequestPartitionState(Struct):
    topic_name: str = field(STRING, until=4, ignorable=True)
    partition_index: int = field(INT32)
    controller_epoch: int = field(INT32)
    leader: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(Array(INT32))
    zk_version: int = field(INT32)
    replicas: list[int] = field(Array(INT32))
    offline_replicas: list[int] = field(Array(INT32), since=4, ignorable=True)


class UpdateMetadataRequestTopicState(Struct):
    topic_name: str = field(STRING, since=5)
    topic_id: uuid.UUID = field(UUID, since=7, ignorable=True)
    partition_states: list[UpdateMetadataRequestPartitionState] = field(
        Array(UpdateMetadataRequestPartitionState), since=5
    )


class UpdateMetadataRequestEndpoint(Struct):
    port: int = field(INT32, since=1)
    host: str = field(STRING, since=1)
    listener: str = field(STRING, since=3, ignorable=True)
    security_protocol: int = field(INT16, since=1)


class UpdateMetadataRequestLiveBroker(Struct):
    id: int = field(INT32)
    v0_host: str = field(STRING, until=0, ignorable=True)
    v0_port: int = field(INT32, until=0, ignorable=True)
    endpoints: list[UpdateMetadataRequestEndpoint] = field(
        Array(UpdateMetadataRequestEndpoint), since=1, ignorable=True
    )
    rack: str | None = field(STRING, since=2, nullable=0, ignorable=True)


class UpdateMetadataRequest(Message, key=6, kind=REQUEST, versions=(0, 8), flexible=6):
    controller_id: int = field(INT32)
    is_k_raft_controller: bool = field(BOOLEAN, since=8)
    type: int = field(INT8, since=8, tag=0)
    controller_epoch: int = field(INT32)
    broker_epoch: int = field(INT64, since=5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataRequestUngroupedPartitionState] = field(
        Array(UpdateMetadataRequestUngroupedPartitionState), until=4
    )
    topic_states: list[UpdateMetadataRequestTopicState] = field(Array(UpdateMetadataRequestTopicState), since=5)
    live_brokers: list[UpdateMetadataRequestLiveBroker] = field(Array(UpdateMetadataRequestLiveBroker))


class UpdateMetadataResponse(Message, key=6, kind=RESPONSE, versions=(0, 8), flexible=6):
    error_code: int = field(INT16)
