"""SaslAuthenticate (key 36): carries one message of a SASL exchange between client and broker (KIP-152).

Versions: 1 returns the lifetime of the session (KIP-368), 2 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import BYTES, INT16, INT64, REQUEST, RESPONSE, STRING, Message, field


class SaslAuthenticateRequest(Message, key=36, kind=REQUEST, versions=(0, 2), flexible=2):
    auth_bytes: memoryview | bytes = field(BYTES)


class SaslAuthenticateResponse(Message, key=36, kind=RESPONSE, versions=(0, 2), flexible=2):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    auth_bytes: memoryview | bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, since=1, ignorable=True)
