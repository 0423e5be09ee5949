"""EndTxn (key 26): a transaction is committed or aborted.

Versions: 2 PRODUCER_FENCED, 3 compact, 4 TRANSACTION_ABORTABLE, 5 answers the id and epoch of the next transaction
(KIP-890)."""

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
