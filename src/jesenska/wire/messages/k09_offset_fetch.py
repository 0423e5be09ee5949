"""OffsetFetch (key 9): returns the committed offsets of a group.

Versions: 0 reads offsets from ZooKeeper's nodes, 1 from __consumer_offsets. From 2 on, null in place of the topics
asks for every partition. 5 returns leader epochs, 6 uses the compact encoding, 7 can ask for stable offsets only, 8
takes several groups, 9 a member id and epoch, 10 topic ids."""

from __future__ import annotations

import uuid

from jesenska.wire.language import (
    BOOLEAN,
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


class OffsetFetchRequestTopic(Struct):
    name: str = field(STRING, until=7)
    partition_indexes: list[int] = field(Array(INT32), until=7)


class OffsetFetchRequestGroupTopic(Struct):
    name: str = field(STRING, since=8, until=9, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    partition_indexes: list[int] = field(Array(INT32), since=8)


class OffsetFetchRequestGroup(Struct):
    group_id: str = field(STRING, since=8)
    member_id: str | None = field(STRING, since=9, nullable=9, default=None, ignorable=True)
    member_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestGroupTopic] | None = field(Array(OffsetFetchRequestGroupTopic), since=8, nullable=8)


class OffsetFetchRequest(Message, key=9, kind=REQUEST, versions=(0, 10), flexible=6):
    group_id: str = field(STRING, until=7)
    topics: list[OffsetFetchRequestTopic] | None = field(Array(OffsetFetchRequestTopic), until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = field(Array(OffsetFetchRequestGroup), since=8)
    require_stable: bool = field(BOOLEAN, since=7)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = field(INT32, until=7)
    committed_offset: int = field(INT64, until=7)
    committed_leader_epoch: int = field(INT32, since=5, until=7, default=-1, ignorable=True)
    metadata: str | None = field(STRING, until=7, nullable=0)
    error_code: int = field(INT16, until=7)


class OffsetFetchResponseTopic(Struct):
    name: str = field(STRING, until=7)
    partitions: list[OffsetFetchResponsePartition] = field(Array(OffsetFetchResponsePartition), until=7)


class OffsetFetchResponseGroupTopicPartition(Struct):
    partition_index: int = field(INT32, since=8)
    committed_offset: int = field(INT64, since=8)
    committed_leader_epoch: int = field(INT32, since=8, default=-1, ignorable=True)
    metadata: str | None = field(STRING, since=8, nullable=8)
    error_code: int = field(INT16, since=8)


class OffsetFetchResponseGroupTopic(Struct):
    name: str = field(STRING, since=8, until=9, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    partitions: list[OffsetFetchResponseGroupTopicPartition] = field(
        Array(OffsetFetchResponseGroupTopicPartition), since=8
    )


class OffsetFetchResponseGroup(Struct):
    group_id: str = field(STRING, since=8)
    topics: list[OffsetFetchResponseGroupTopic] = field(Array(OffsetFetchResponseGroupTopic), since=8)
    error_code: int = field(INT16, since=8)


class OffsetFetchResponse(Message, key=9, kind=RESPONSE, versions=(0, 10), flexible=6):
    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(Array(OffsetFetchResponseTopic), until=7)
    error_code: int = field(INT16, since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(Array(OffsetFetchResponseGroup), since=8)
