"""DeleteRecords (key 21): raises the log start offset of partitions (KIP-107); offset -1 means the high watermark.

Versions: 2 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DeleteRecordsRequestPartition(Struct):
    partition_index: int = field(INT32)
    offset: int = field(INT64)


class DeleteRecordsRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsRequestPartition] = field(Array(DeleteRecordsRequestPartition))


class DeleteRecordsRequest(Message, key=21, kind=REQUEST, versions=(0, 2), flexible=2):
    topics: list[DeleteRecordsRequestTopic] = field(Array(DeleteRecordsRequestTopic))
    timeout_ms: int = field(INT32)


class DeleteRecordsResponsePartition(Struct):
    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


class DeleteRecordsResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[DeleteRecordsResponsePartition] = field(Array(DeleteRecordsResponsePartition))


class DeleteRecordsResponse(Message, key=21, kind=RESPONSE, versions=(0, 2), flexible=2):
    throttle_time_ms: int = field(INT32)
    topics: list[DeleteRecordsResponseTopic] = field(Array(DeleteRecordsResponseTopic))
