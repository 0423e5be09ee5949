"""SaslHandshake (key 17), versions 0-1: selects the SASL mechanism of a connection (`broker.requests.authentication`).

  0    the mechanism's messages follow as frames without a header
  1    the mechanism's messages follow in SaslAuthenticate requests (key 36)

If the listener does not have the mechanism, the answer lists the listener's mechanisms, and the connection is closed.
A listener without SASL answers ILLEGAL_SASL_STATE, and the connection stays open."""

from __future__ import annotations

import asyncio

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: SaslHandshakeRequest, context: Context) -> Outcome:
    authentication = context.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    error = authentication.handshake(request.mechanism, context.version)
    if error is ErrorCode.ILLEGAL_SASL_STATE:
        return SaslHandshakeResponse(error_code=error)
    if error:
        asyncio.get_running_loop().call_soon(context.close, f"SaslHandshake: {error.name}")
    return SaslHandshakeResponse(error_code=error, mechanisms=list(authentication.listener.mechanisms or ()))
