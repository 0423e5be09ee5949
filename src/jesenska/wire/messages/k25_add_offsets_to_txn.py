"""AddOffsetsToTxn (key 25): adds a group's partition of __consumer_offsets to a transaction that is about to commit
offsets.

Versions: 2 adds the error PRODUCER_FENCED, 3 the compact encoding, 4 the error TRANSACTION_ABORTABLE."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Message, field


class AddOffsetsToTxnRequest(Message, key=25, kind=REQUEST, versions=(0, 4), flexible=3):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Message, key=25, kind=RESPONSE, versions=(0, 4), flexible=3):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
