"""DescribeTransactions (key 65), version 0: returns the state of transactional ids, as their transaction coordinator
stores it (KIP-664)."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DescribeTransactionsRequest(Message, key=65, kind=REQUEST, versions=(0, 0), flexible=0):
    transactional_ids: list[str] = field(Array(STRING))


class DescribeTransactionsResponseTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class DescribeTransactionsResponseTransaction(Struct):
    error_code: int = field(INT16)
    transactional_id: str = field(STRING)
    transaction_state: str = field(STRING)
    transaction_timeout_ms: int = field(INT32)
    transaction_start_time_ms: int = field(INT64)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    topics: list[DescribeTransactionsResponseTopic] = field(Array(DescribeTransactionsResponseTopic))


class DescribeTransactionsResponse(Message, key=65, kind=RESPONSE, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    transaction_states: list[DescribeTransactionsResponseTransaction] = field(
        Array(DescribeTransactionsResponseTransaction)
    )
