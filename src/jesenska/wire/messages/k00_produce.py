"""Produce (key 0): appends records to partitions, as record batches or as message sets of the old formats.

Versions: 0-2 carry message sets v0 and v1, and 2 returns the append time. 3 carries batches v2 and transactional ids.
5 returns the log start offset, 7 allows zstd, 8 returns errors for single records, 9 uses the compact encoding, 10
returns the new leader after a leader change (KIP-951). 13 has topic ids instead of names (KIP-516)."""

from __future__ import annotations

import uuid

from jesenska.wire.language import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    REQUEST,
    RESPONSE,
    STRING,
    UUID,
    Array,
    Message,
    Records,
    Struct,
    field,
)


class ProduceRequestPartition(Struct):
    index: int = field(INT32)
    records: Records = field(RECORDS, nullable=0)


class ProduceRequestTopic(Struct):
    name: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partition_data: list[ProduceRequestPartition] = field(Array(ProduceRequestPartition))


class ProduceRequest(Message, key=0, kind=REQUEST, versions=(0, 13), flexible=9):
    transactional_id: str | None = field(STRING, since=3, nullable=3, default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[ProduceRequestTopic] = field(Array(ProduceRequestTopic))


class ProduceResponseRecordError(Struct):
    batch_index: int = field(INT32, since=8)
    batch_index_error_message: str | None = field(STRING, since=8, nullable=8, default=None)


class ProduceResponseCurrentLeader(Struct):
    leader_id: int = field(INT32, since=10, default=-1)
    leader_epoch: int = field(INT32, since=10, default=-1)


class ProduceResponsePartition(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, since=2, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    record_errors: list[ProduceResponseRecordError] = field(Array(ProduceResponseRecordError), since=8, ignorable=True)
    error_message: str | None = field(STRING, since=8, nullable=8, default=None, ignorable=True)
    current_leader: ProduceResponseCurrentLeader = field(ProduceResponseCurrentLeader, since=10, tag=0)


class ProduceResponseTopic(Struct):
    name: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partition_responses: list[ProduceResponsePartition] = field(Array(ProduceResponsePartition))


class ProduceResponseNodeEndpoint(Struct):
    node_id: int = field(INT32, since=10)
    host: str = field(STRING, since=10)
    port: int = field(INT32, since=10)
    rack: str | None = field(STRING, since=10, nullable=10, default=None)


class ProduceResponse(Message, key=0, kind=RESPONSE, versions=(0, 13), flexible=9):
    responses: list[ProduceResponseTopic] = field(Array(ProduceResponseTopic))
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    node_endpoints: list[ProduceResponseNodeEndpoint] = field(Array(ProduceResponseNodeEndpoint), since=10, tag=0)
