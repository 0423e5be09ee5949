"""SaslHandshake (key 17): a client names its SASL mechanism before it authenticates.

Versions: after a handshake of version 0 the client sends bare SASL tokens, which are in no request. After version 1 it
sends each token in a SaslAuthenticate request (KIP-152)."""

from __future__ import annotations

from jesenska.wire.language import INT16, REQUEST, RESPONSE, STRING, Array, Message, field


class SaslHandshakeRequest(Message, key=17, kind=REQUEST, versions=(0, 1)):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Message, key=17, kind=RESPONSE, versions=(0, 1)):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(Array(STRING))
