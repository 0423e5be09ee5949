"""ListTransactions (key 66): returns the transactions that this broker coordinates (KIP-664).

Versions: 1 can filter by duration (KIP-994), 2 by a pattern of transactional ids (KIP-1152)."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class ListTransactionsRequest(Message, key=66, kind=REQUEST, versions=(0, 2), flexible=0):
    state_filters: list[str] = field(Array(STRING))
    producer_id_filters: list[int] = field(Array(INT64))
    duration_filter: int = field(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = field(STRING, since=2, nullable=2, default=None)


class ListTransactionsResponseTransaction(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Message, key=66, kind=RESPONSE, versions=(0, 2), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(Array(STRING))
    transaction_states: list[ListTransactionsResponseTransaction] = field(Array(ListTransactionsResponseTransaction))
