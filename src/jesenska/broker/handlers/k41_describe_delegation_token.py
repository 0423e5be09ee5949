"""DescribeDelegationToken (key 41), versions 0-3: lists delegation tokens with their HMACs (KIP-48). Each line is what
a version adds:

    1    no change
    2    compact encoding
    3    the requester of each token: the user that has requested it (KIP-373)

If `owners` is null, all tokens that the user may see are answered. If the list is empty, no tokens are answered. A
user may see the tokens that it owns, has requested or may renew. Other tokens need the right DESCRIBE on the token, or
DESCRIBE_TOKENS on the token's owner. A named owner matches a token's owner and its renewers."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.token_requests import may_ask
from jesenska.security.acls import AclOperation, ResourceType
from jesenska.security.delegation_tokens import DelegationToken
from jesenska.security.principal import Principal
from jesenska.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeDelegationTokenResponseRenewer,
    DescribeDelegationTokenResponseToken,
)

#: The first version whose answer contains the requester: the user that has requested the token.
_WITH_REQUESTER = 3


@handles(DescribeDelegationTokenRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DescribeDelegationTokenRequest, context: Context) -> Outcome:
    if not may_ask(context):
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if uses.tokens is None:
        return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {Principal(item.principal_type, item.principal_name) for item in request.owners}
    tokens = uses.tokens.tokens
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, tokens.hmac_of(token.token_id), context.version)
            for token in tokens.tokens()
            if (owners is None or any(map(token.may_be_renewed_by, owners))) and _may_see(context, token)
        ]
    )


def _may_see(context: Context, token: DelegationToken) -> bool:
    """Returns True if the user of the request may see a token."""
    access = context.access
    return (
        access is None
        or token.belongs_to(context.principal)
        or access.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or access.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _described(token: DelegationToken, mac: bytes, version: int) -> DescribeDelegationTokenResponseToken:
    has_requester = version >= _WITH_REQUESTER
    return DescribeDelegationTokenResponseToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type if has_requester else "",
        token_requester_principal_name=token.requester.name if has_requester else "",
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.token_id,
        hmac=mac,
        renewers=[
            DescribeDelegationTokenResponseRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )
