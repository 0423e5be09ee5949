"""TxnOffsetCommit (key 28): stores offsets of a group that take effect when the transaction is committed.

Versions: 2 adds leader epochs, 3 the compact encoding and the group's generation and member (KIP-447), 4 the error
TRANSACTION_ABORTABLE. In 5 the coordinator adds the group to the transaction (KIP-890)."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=2, default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable=0)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = field(Array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Message, key=28, kind=REQUEST, versions=(0, 5), flexible=3):
    transactional_id: str = field(STRING)
    group_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    generation_id: int = field(INT32, since=3, default=-1)
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = field(Array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Message, key=28, kind=RESPONSE, versions=(0, 5), flexible=3):
    throttle_time_ms: int = field(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = field(Array(TxnOffsetCommitResponseTopic))
