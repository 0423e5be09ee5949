"""ExpireDelegationToken (key 40), versions 0-2: ends a delegation token (KIP-48). Every broker accepts this request.
Each line is what a version adds:

    1    no change
    2    compact encoding

A negative period removes the token at once. With any other period (in milliseconds) the token expires after this
period, at the latest at its maximum time. Only the owner and the renewers of a token may send this request. Other
users get DELEGATION_TOKEN_OWNER_MISMATCH."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.token_requests import NO_TIME_MS, token_to_change
from jesenska.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest, SecurityFamily)
async def handle(uses: SecurityFamily, request: ExpireDelegationTokenRequest, context: Context) -> Outcome:
    now_ms = 0 if uses.tokens is None else uses.tokens.now_ms()
    found = token_to_change(uses.tokens, bytes(request.hmac), context, now_ms)
    if isinstance(found, ErrorCode):
        return ExpireDelegationTokenResponse(error_code=found, expiry_timestamp_ms=NO_TIME_MS)
    assert uses.tokens is not None
    period_ms = request.expiry_time_period_ms
    expires_at_ms = now_ms if period_ms < 0 else min(found.max_at_ms, now_ms + period_ms)
    try:
        await uses.tokens.set_expiry(found.token_id, None if period_ms < 0 else expires_at_ms)
    except Exception as error:
        return ExpireDelegationTokenResponse(error_code=as_kafka_error(error).code, expiry_timestamp_ms=NO_TIME_MS)
    log_change(context, f"delegation token {found.token_id} of {found.owner} was expired")
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
