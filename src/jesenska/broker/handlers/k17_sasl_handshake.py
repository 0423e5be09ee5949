"""SaslHandshake (key 17), versions 0-1: ILLEGAL_SASL_STATE, since no listener here asks for SASL. The connection stays
open, as Kafka's does on a listener without SASL. No mechanisms are named."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: SaslHandshakeRequest, context: Context) -> Outcome:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
