"""EndTxn (key 26): commits or aborts a transaction.

Versions: 2 adds the error PRODUCER_FENCED, 3 the compact encoding, 4 the error TRANSACTION_ABORTABLE. 5 returns the
producer id and epoch of the next transaction (KIP-890)."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Message, field


class EndTxnRequest(Message, key=26, kind=REQUEST, versions=(0, 5), flexible=3):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOLEAN)


class EndTxnResponse(Message, key=26, kind=RESPONSE, versions=(0, 5), flexible=3):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, since=5, default=-1, ignorable=True)
    producer_epoch: int = field(INT16, since=5, default=-1, ignorable=True)
