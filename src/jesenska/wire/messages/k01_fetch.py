"""Fetch (key 1): reads records of partitions from an offset on.

Versions: 0-3 return message sets v0 and v1, and 3 limits the size of the whole response. 4 adds isolation levels and
batches v2, 7 fetch sessions (KIP-227), 9 leader epochs, 11 the consumer's rack (KIP-392). 12 uses the compact
encoding, 13 topic ids. 15 has the follower's broker id and epoch in a tagged field, 16 returns the new leader after a
leader change. 17 adds directory ids, 18 the follower's high watermark."""

from __future__ import annotations

import uuid

from jesenska.wire.language import (
    INT8,
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


class FetchRequestReplicaState(Struct):
    replica_id: int = field(INT32, since=15, default=-1)
    replica_epoch: int = field(INT64, since=15, default=-1)


class FetchRequestPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: uuid.UUID = field(UUID, since=17, tag=0, ignorable=True)
    high_watermark: int = field(INT64, since=18, tag=1, default=9223372036854775807, ignorable=True)


class FetchRequestTopic(Struct):
    topic: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partitions: list[FetchRequestPartition] = field(Array(FetchRequestPartition))


class FetchRequestForgottenTopicsData(Struct):
    topic: str = field(STRING, since=7, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partitions: list[int] = field(Array(INT32), since=7)


class FetchRequest(Message, key=1, kind=REQUEST, versions=(0, 18), flexible=12):
    cluster_id: str | None = field(STRING, since=12, nullable=12, tag=0, default=None, ignorable=True)
    replica_id: int = field(INT32, until=14, default=-1)
    replica_state: FetchRequestReplicaState = field(FetchRequestReplicaState, since=15, tag=1)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, since=3, default=2147483647, ignorable=True)
    isolation_level: int = field(INT8, since=4, ignorable=True)
    session_id: int = field(INT32, since=7, ignorable=True)
    session_epoch: int = field(INT32, since=7, default=-1, ignorable=True)
    topics: list[FetchRequestTopic] = field(Array(FetchRequestTopic))
    forgotten_topics_data: list[FetchRequestForgottenTopicsData] = field(
        Array(FetchRequestForgottenTopicsData), since=7
    )
    rack_id: str = field(STRING, since=11, ignorable=True)


class FetchResponseDivergingEpoch(Struct):
    epoch: int = field(INT32, since=12, default=-1)
    end_offset: int = field(INT64, since=12, default=-1)


class FetchResponseCurrentLeader(Struct):
    leader_id: int = field(INT32, since=12, default=-1)
    leader_epoch: int = field(INT32, since=12, default=-1)


class FetchResponseSnapshotId(Struct):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class FetchResponseAbortedTransaction(Struct):
    producer_id: int = field(INT64, since=4)
    first_offset: int = field(INT64, since=4)


class FetchResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, since=4, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, since=5, default=-1, ignorable=True)
    diverging_epoch: FetchResponseDivergingEpoch = field(FetchResponseDivergingEpoch, since=12, tag=0)
    current_leader: FetchResponseCurrentLeader = field(FetchResponseCurrentLeader, since=12, tag=1)
    snapshot_id: FetchResponseSnapshotId = field(FetchResponseSnapshotId, since=12, tag=2)
    aborted_transactions: list[FetchResponseAbortedTransaction] | None = field(
        Array(FetchResponseAbortedTransaction), since=4, nullable=4, ignorable=True
    )
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    records: Records = field(RECORDS, nullable=0)


class FetchResponseTopic(Struct):
    topic: str = field(STRING, until=12, ignorable=True)
    topic_id: uuid.UUID = field(UUID, since=13, ignorable=True)
    partitions: list[FetchResponsePartition] = field(Array(FetchResponsePartition))


class FetchResponseNodeEndpoint(Struct):
    node_id: int = field(INT32, since=16)
    host: str = field(STRING, since=16)
    port: int = field(INT32, since=16)
    rack: str | None = field(STRING, since=16, nullable=16, default=None)


class FetchResponse(Message, key=1, kind=RESPONSE, versions=(0, 18), flexible=12):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16, since=7, ignorable=True)
    session_id: int = field(INT32, since=7)
    responses: list[FetchResponseTopic] = field(Array(FetchResponseTopic))
    node_endpoints: list[FetchResponseNodeEndpoint] = field(Array(FetchResponseNodeEndpoint), since=16, tag=0)
