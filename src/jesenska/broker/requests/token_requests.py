"""Checks that the handlers of the requests about delegation tokens (API keys 38 to 41) share."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.connection import Context
from jesenska.broker.settings.tokens_runtime import TokensRuntime
from jesenska.security.delegation_tokens import DelegationToken
from jesenska.security.principal import ANONYMOUS

#: The value of a time field in an answer without a time.
NO_TIME_MS = -1


def may_ask(context: Context) -> bool:
    """Returns True if the client has logged in, but not with a delegation token. Other clients may neither create nor
    see delegation tokens."""
    authentication = context.connection.authentication
    if authentication is not None and authentication.is_token:
        return False
    return context.principal != ANONYMOUS


def token_to_change(
    tokens: TokensRuntime | None, mac: bytes, context: Context, now_ms: int
) -> DelegationToken | ErrorCode:
    """Returns the token with this HMAC, or the error if the client may not renew or expire it."""
    if not may_ask(context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if tokens is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    token = tokens.tokens.of_hmac(mac)
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if not token.may_be_renewed_by(context.principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if token.has_expired(now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return token
