"""SaslAuthenticate (key 36), versions 0-2: carries the next message of a SASL mechanism
(`broker.requests.authentication`). Version 1 adds:

  1    the answer says how long the session lasts in milliseconds (KIP-368); 0 means no limit

A failed authentication is answered with SASL_AUTHENTICATION_FAILED after connection.failed.authentication.delay.ms,
with the same message for all causes. Then the connection is closed. A listener without SASL answers
ILLEGAL_SASL_STATE."""

from __future__ import annotations

import asyncio

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.authentication import Authentication
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.security.sasl import SaslError
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

#: The connection is closed only after this time, because some clients do not read an answer if the connection ends at
#: the same moment.
_CLOSED_AFTER_SECONDS = 0.2
_NOT_HERE = "SaslAuthenticate request received after successful authentication"


@handles(SaslAuthenticateRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: SaslAuthenticateRequest, context: Context) -> Outcome:
    authentication = context.connection.authentication
    if authentication is None or not authentication.has_begun():
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_NOT_HERE)
    try:
        answer = authentication.step(bytes(request.auth_bytes))
    except SaslError as error:
        return _refused(authentication, context, error)
    if authentication.principal is not None and authentication.is_done:
        context.connection.authenticated(authentication.principal)
    return SaslAuthenticateResponse(auth_bytes=answer or b"", session_lifetime_ms=authentication.session_lifetime_ms)


async def _refused(authentication: Authentication, context: Context, error: SaslError) -> SaslAuthenticateResponse:
    await asyncio.sleep(authentication.listener.failure_delay_ms / 1000)
    context.connection.log_failed_login(error)
    asyncio.get_running_loop().call_later(_CLOSED_AFTER_SECONDS, context.close, "a failed authentication")
    return SaslAuthenticateResponse(
        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=authentication.failure
    )
