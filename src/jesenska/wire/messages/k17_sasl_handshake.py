"""SaslHandshake (key 17): a client names its SASL mechanism before it authenticates.

Versions: after 0 the client sends SASL tokens without a request around them, after 1 SaslAuthenticate requests
(KIP-152)."""

from __future__ import annotations

from jesenska.wire.language import INT16, REQUEST, RESPONSE, STRING, Array, Message, field


class SaslHandshakeRequest(Message, key=17, kind=REQUEST, versions=(0, 1)):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Message, key=17, kind=RESPONSE, versions=(0, 1)):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(Array(STRING))
