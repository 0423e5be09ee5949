"""InitProducerId (key 22): returns an id and an epoch for an idempotent or transactional producer.

Versions: 2 uses the compact encoding. In 3 a producer may send its id and epoch, and gets a higher epoch (KIP-360). 4
adds the error PRODUCER_FENCED, 5 the error TRANSACTION_ABORTABLE."""

from __future__ import annotations

from jesenska.wire.language import BOOLEAN, INT16, INT32, INT64, REQUEST, RESPONSE, STRING, Message, field


class InitProducerIdRequest(Message, key=22, kind=REQUEST, versions=(0, 5), flexible=2):
    transactional_id: str | None = field(STRING, nullable=0)
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, since=3, default=-1)
    producer_epoch: int = field(INT16, since=3, default=-1)
    enable2_pc: bool = field(BOOLEAN, since=6)
    keep_prepared_txn: bool = field(BOOLEAN, since=6)


class InitProducerIdResponse(Message, key=22, kind=RESPONSE, versions=(0, 5), flexible=2):
    throttle_time_ms: int = field(INT32, ignorable=True)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)
    ongoing_txn_producer_id: int = field(INT64, since=6, default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, since=6, default=-1)
