"""ExpireDelegationToken (key 40), versions 0-2: sets the time at which a delegation token expires, or removes the
token at once (KIP-48)."""

from __future__ import annotations

from jesenska.wire.language import BYTES, INT16, INT32, INT64, REQUEST, RESPONSE, Message, field


class ExpireDelegationTokenRequest(Message, key=40, kind=REQUEST, versions=(0, 2), flexible=2):
    hmac: memoryview | bytes = field(BYTES)
    expiry_time_period_ms: int = field(INT64)


class ExpireDelegationTokenResponse(Message, key=40, kind=RESPONSE, versions=(0, 2), flexible=2):
    error_code: int = field(INT16)
    expiry_timestamp_ms: int = field(INT64)
    throttle_time_ms: int = field(INT32)
