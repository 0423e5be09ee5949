"""DescribeLogDirs (key 35): returns log directories with the sizes of their partitions (KIP-113).

Versions: 2 uses the compact encoding, 3 has an error for the whole response, 4 the total and usable bytes of the
volume (KIP-827), 5 the flag of cordoned directories."""

from __future__ import annotations

from jesenska.wire.language import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    REQUEST,
    RESPONSE,
    STRING,
    Array,
    Message,
    Struct,
    field,
)


class DescribeLogDirsRequestTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class DescribeLogDirsRequest(Message, key=35, kind=REQUEST, versions=(0, 5), flexible=2):
    topics: list[DescribeLogDirsRequestTopic] | None = field(Array(DescribeLogDirsRequestTopic), nullable=0)


class DescribeLogDirsResponsePartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOLEAN)


class DescribeLogDirsResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsResponsePartition] = field(Array(DescribeLogDirsResponsePartition))


class DescribeLogDirsResponseResult(Struct):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsResponseTopic] = field(Array(DescribeLogDirsResponseTopic))
    total_bytes: int = field(INT64, since=4, default=-1, ignorable=True)
    usable_bytes: int = field(INT64, since=4, default=-1, ignorable=True)
    is_cordoned: bool = field(BOOLEAN, since=5, ignorable=True)


class DescribeLogDirsResponse(Message, key=35, kind=RESPONSE, versions=(0, 5), flexible=2):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=3, ignorable=True)
    results: list[DescribeLogDirsResponseResult] = field(Array(DescribeLogDirsResponseResult))
