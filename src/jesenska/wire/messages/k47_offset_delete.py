"""OffsetDelete (key 47), version 0: removes a group's committed offsets of single partitions."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(Array(OffsetDeleteRequestPartition))


class OffsetDeleteRequest(Message, key=47, kind=REQUEST, versions=(0, 0)):
    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(Array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetDeleteResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(Array(OffsetDeleteResponsePartition))


class OffsetDeleteResponse(Message, key=47, kind=RESPONSE, versions=(0, 0)):
    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(Array(OffsetDeleteResponseTopic))
