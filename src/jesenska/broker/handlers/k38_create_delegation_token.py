"""CreateDelegationToken (key 38), versions 0-3: makes a delegation token (KIP-48). Every broker accepts this request.
Each line is what a version adds:

    1    no change
    2    compact encoding
    3    a token for another owner (KIP-373), which needs CREATE_TOKENS on that user

A client that has not logged in, or that has logged in with a token, gets DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. A
broker without delegation.token.secret.key answers DELEGATION_TOKEN_AUTH_DISABLED. A renewer whose principal type is
not User is answered INVALID_PRINCIPAL_TYPE."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import uuid_to_text
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.token_requests import NO_TIME_MS, may_ask
from jesenska.security.acls import AclOperation, ResourceType
from jesenska.security.principal import USER, Principal
from jesenska.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

#: The first version whose answer contains the requester: the user that has requested the token.
_WITH_REQUESTER = 3


@handles(CreateDelegationTokenRequest, SecurityFamily)
async def handle(uses: SecurityFamily, request: CreateDelegationTokenRequest, context: Context) -> Outcome:
    requester = context.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    renewers = tuple(Principal(item.principal_type, item.principal_name) for item in request.renewers)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=NO_TIME_MS,
        expiry_timestamp_ms=NO_TIME_MS,
        max_timestamp_ms=NO_TIME_MS,
    )
    if context.version >= _WITH_REQUESTER:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    response.error_code = _refusal(uses, context, owner, renewers)
    if response.error_code:
        return response
    assert uses.tokens is not None
    tokens = uses.tokens.tokens
    token = tokens.new(
        uuid_to_text(uses.tokens.new_uuid()), owner, requester, renewers, request.max_lifetime_ms, uses.tokens.now_ms()
    )
    try:
        await uses.tokens.create(token)
    except Exception as error:
        response.error_code = as_kafka_error(error).code
        return response
    log_change(context, f"delegation token {token.token_id} of {owner} was made")
    response.issue_timestamp_ms = token.issued_at_ms
    response.expiry_timestamp_ms = token.expires_at_ms
    response.max_timestamp_ms = token.max_at_ms
    response.token_id = token.token_id
    response.hmac = tokens.hmac_of(token.token_id)
    return response


def _refusal(uses: SecurityFamily, context: Context, owner: Principal, renewers: tuple[Principal, ...]) -> ErrorCode:
    """Returns the error of a refused request, or NONE if the user may create the token."""
    if not may_ask(context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    access = context.access
    is_for_another = owner != context.principal
    if is_for_another and access and not access.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(renewer.type != USER for renewer in renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED if uses.tokens is None else ErrorCode.NONE
