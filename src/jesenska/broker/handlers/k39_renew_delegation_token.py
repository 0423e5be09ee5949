"""RenewDelegationToken (key 39), versions 0-2: moves the time at which a delegation token expires (KIP-48). Every
broker accepts this request. Each line is what a version adds:

    1    no change
    2    compact encoding

The token expires after the requested period, or after delegation.token.expiry.time.ms if the period is negative. It
expires at the latest at its maximum time, which was set when the token was created. Only the owner and the renewers of
a token may renew it. Other users get DELEGATION_TOKEN_OWNER_MISMATCH."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.token_requests import NO_TIME_MS, token_to_change
from jesenska.wire.messages.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RenewDelegationTokenRequest, SecurityFamily)
async def handle(uses: SecurityFamily, request: RenewDelegationTokenRequest, context: Context) -> Outcome:
    now_ms = 0 if uses.tokens is None else uses.tokens.now_ms()
    found = token_to_change(uses.tokens, bytes(request.hmac), context, now_ms)
    if isinstance(found, ErrorCode):
        return RenewDelegationTokenResponse(error_code=found, expiry_timestamp_ms=NO_TIME_MS)
    assert uses.tokens is not None
    expires_at_ms = uses.tokens.tokens.renewed_until(found, request.renew_period_ms, now_ms)
    try:
        await uses.tokens.set_expiry(found.token_id, expires_at_ms)
    except Exception as error:
        return RenewDelegationTokenResponse(error_code=as_kafka_error(error).code, expiry_timestamp_ms=NO_TIME_MS)
    log_change(context, f"delegation token {found.token_id} of {found.owner} was renewed")
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
