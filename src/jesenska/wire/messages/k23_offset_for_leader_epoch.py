"""OffsetForLeaderEpoch (key 23): returns the end offset of a leader epoch in the leader's log (KIP-101, KIP-320).

Versions: 1 also returns the leader epoch to which the end offset belongs. 2 adds the current leader epoch to the
request, 3 the replica id, 4 the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class OffsetForLeaderEpochRequestPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=2, default=-1, ignorable=True)
    leader_epoch: int = field(INT32)


class OffsetForLeaderEpochRequestTopic(Struct):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderEpochRequestPartition] = field(Array(OffsetForLeaderEpochRequestPartition))


class OffsetForLeaderEpochRequest(Message, key=23, kind=REQUEST, versions=(0, 4), flexible=4):
    replica_id: int = field(INT32, since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderEpochRequestTopic] = field(Array(OffsetForLeaderEpochRequestTopic))


class OffsetForLeaderEpochResponsePartition(Struct):
    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, since=1, default=-1, ignorable=True)
    end_offset: int = field(INT64, default=-1)


class OffsetForLeaderEpochResponseTopic(Struct):
    topic: str = field(STRING)
    partitions: list[OffsetForLeaderEpochResponsePartition] = field(Array(OffsetForLeaderEpochResponsePartition))


class OffsetForLeaderEpochResponse(Message, key=23, kind=RESPONSE, versions=(0, 4), flexible=4):
    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    topics: list[OffsetForLeaderEpochResponseTopic] = field(Array(OffsetForLeaderEpochResponseTopic))
