"""AddPartitionsToTxn (key 24): adds partitions to a transaction before the producer writes to them.

Versions: 3 uses the compact encoding. 4 takes several transactions, for brokers that verify a producer's writes
(KIP-890). 5 adds the error TRANSACTION_ABORTABLE."""

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


class AddPartitionsToTxnRequestTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class AddPartitionsToTxnRequestTransaction(Struct):
    transactional_id: str = field(STRING, since=4)
    producer_id: int = field(INT64, since=4)
    producer_epoch: int = field(INT16, since=4)
    verify_only: bool = field(BOOLEAN, since=4)
    topics: list[AddPartitionsToTxnRequestTopic] = field(Array(AddPartitionsToTxnRequestTopic), since=4)


class AddPartitionsToTxnRequest(Message, key=24, kind=REQUEST, versions=(0, 5), flexible=3):
    transactions: list[AddPartitionsToTxnRequestTransaction] = field(
        Array(AddPartitionsToTxnRequestTransaction), since=4
    )
    v3_and_below_transactional_id: str = field(STRING, until=3)
    v3_and_below_producer_id: int = field(INT64, until=3)
    v3_and_below_producer_epoch: int = field(INT16, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic] = field(Array(AddPartitionsToTxnRequestTopic), until=3)


class AddPartitionsToTxnResponsePartition(Struct):
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


class AddPartitionsToTxnResponseTopic(Struct):
    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnResponsePartition] = field(Array(AddPartitionsToTxnResponsePartition))


class AddPartitionsToTxnResponseTransaction(Struct):
    transactional_id: str = field(STRING, since=4)
    topic_results: list[AddPartitionsToTxnResponseTopic] = field(Array(AddPartitionsToTxnResponseTopic), since=4)


class AddPartitionsToTxnResponse(Message, key=24, kind=RESPONSE, versions=(0, 5), flexible=3):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResponseTransaction] = field(
        Array(AddPartitionsToTxnResponseTransaction), since=4
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopic] = field(
        Array(AddPartitionsToTxnResponseTopic), until=3
    )
