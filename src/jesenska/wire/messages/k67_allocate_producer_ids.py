"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730)."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, INT64, REQUEST, RESPONSE, Message, field


class AllocateProducerIdsRequest(Message, key=67, kind=REQUEST, versions=(0, 0), flexible=0):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)


class AllocateProducerIdsResponse(Message, key=67, kind=RESPONSE, versions=(0, 0), flexible=0):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id_start: int = field(INT64)
    producer_id_len: int = field(INT32)
