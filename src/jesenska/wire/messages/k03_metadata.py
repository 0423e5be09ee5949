"""Metadata (key 3): returns brokers, topics, partitions and their leaders.

Versions: a request for all topics has an empty list in version 0, and null from version 1 on. 4 may forbid automatic
topic creation. 5 returns offline replicas, 7 leader epochs, 8 authorised operations. 9 uses the compact encoding, 10
returns topic ids, 12 takes topic ids in the request, 13 has an error for the whole response."""

from __future__ import annotations

import uuid

from jesenska.wire.language import BOOLEAN, INT16, INT32, REQUEST, RESPONSE, STRING, UUID, Array, Message, Struct, field


class MetadataRequestTopic(Struct):
    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    name: str | None = field(STRING, nullable=10)


class MetadataRequest(Message, key=3, kind=REQUEST, versions=(0, 13), flexible=9):
    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable=1)
    allow_auto_topic_creation: bool = field(BOOLEAN, since=4, default=True)
    include_cluster_authorized_operations: bool = field(BOOLEAN, since=8, until=10)
    include_topic_authorized_operations: bool = field(BOOLEAN, since=8)


class MetadataResponseBroker(Struct):
    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, since=1, nullable=1, default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = field(Array(INT32))
    isr_nodes: list[int] = field(Array(INT32))
    offline_replicas: list[int] = field(Array(INT32), since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable=12)
    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    is_internal: bool = field(BOOLEAN, since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition))
    topic_authorized_operations: int = field(INT32, since=8, default=-2147483648)


class MetadataResponse(Message, key=3, kind=RESPONSE, versions=(0, 13), flexible=9):
    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker))
    cluster_id: str | None = field(STRING, since=2, nullable=2, default=None, ignorable=True)
    controller_id: int = field(INT32, since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(INT32, since=8, until=10, default=-2147483648)
    error_code: int = field(INT16, since=13, ignorable=True)
