"""ListOffsets (key 2): finds offsets by timestamp.

Versions: 0 returns a list of segment base offsets, 1 one offset and its timestamp. 2 adds isolation levels, 4 leader
epochs, 6 the compact encoding, 10 a time-out.

A negative timestamp asks for a special offset:

- -1: the latest offset
- -2: the earliest offset
- -3: the offset of the record with the greatest timestamp (from version 7 on)
- -4: the earliest offset on the broker's own disk (from version 8 on)
- -5: the last offset in remote storage (from version 9 on)
- -6: the earliest offset that has not been copied to remote storage yet (from version 11 on)"""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class ListOffsetsRequestPartition(Struct):
    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1, ignorable=True)
    timestamp: int = field(INT64)
    max_num_offsets: int = field(INT32, until=0, default=1)


class ListOffsetsRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsRequestPartition] = field(Array(ListOffsetsRequestPartition))


class ListOffsetsRequest(Message, key=2, kind=REQUEST, versions=(0, 11), flexible=6):
    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, since=2)
    topics: list[ListOffsetsRequestTopic] = field(Array(ListOffsetsRequestTopic))
    timeout_ms: int = field(INT32, since=10, ignorable=True)


class ListOffsetsResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    old_style_offsets: list[int] = field(Array(INT64), until=0)
    timestamp: int = field(INT64, since=1, default=-1)
    offset: int = field(INT64, since=1, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


class ListOffsetsResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[ListOffsetsResponsePartition] = field(Array(ListOffsetsResponsePartition))


class ListOffsetsResponse(Message, key=2, kind=RESPONSE, versions=(0, 11), flexible=6):
    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    topics: list[ListOffsetsResponseTopic] = field(Array(ListOffsetsResponseTopic))
