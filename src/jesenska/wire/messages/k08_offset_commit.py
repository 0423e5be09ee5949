"""OffsetCommit (key 8): stores the offsets up to which a group has read.

Versions: 0 stores offsets in ZooKeeper's nodes below /consumers, 1 in __consumer_offsets (with a timestamp per
partition). 2 has a retention time, which 5 has removed. 6 adds leader epochs, 7 static members, 8 the compact
encoding, 9 the new group protocol (KIP-848), 10 topic ids."""

from __future__ import annotations

import uuid

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, UUID, Array, Message, Struct, field


class OffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1, ignorable=True)
    commit_timestamp: int = field(INT64, since=1, until=1, default=-1)
    committed_metadata: str | None = field(STRING, nullable=0)


class OffsetCommitRequestTopic(Struct):
    name: str = field(STRING, until=9, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(Array(OffsetCommitRequestPartition))


class OffsetCommitRequest(Message, key=8, kind=REQUEST, versions=(0, 10), flexible=8):
    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, since=1, default=-1, ignorable=True)
    member_id: str = field(STRING, since=1, ignorable=True)
    group_instance_id: str | None = field(STRING, since=7, nullable=7, default=None)
    retention_time_ms: int = field(INT64, since=2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(Array(OffsetCommitRequestTopic))


class OffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetCommitResponseTopic(Struct):
    name: str = field(STRING, until=9, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=10, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(Array(OffsetCommitResponsePartition))


class OffsetCommitResponse(Message, key=8, kind=RESPONSE, versions=(0, 10), flexible=8):
    throttle_time_ms: int = field(INT32, since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(Array(OffsetCommitResponseTopic))
