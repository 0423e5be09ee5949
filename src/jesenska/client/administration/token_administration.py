"""Administers delegation tokens (KIP-48): makes, renews, expires and lists them. The requests may go to any broker.
The client must have authenticated by other means than a delegation token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.client.administration.administration import Administration, require
from jesenska.security.delegation_tokens import DelegationToken
from jesenska.security.principal import Principal
from jesenska.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenRequestRenewer,
    CreateDelegationTokenResponse,
)
from jesenska.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from jesenska.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from jesenska.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenRequestOwner,
    DescribeDelegationTokenResponse,
)

_SENTENCES: Final[Mapping[int, str]] = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "The broker serves no delegation tokens: set delegation.token.secret.key "
    "on every broker.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "The broker knows no delegation token with this HMAC: it was expired, or is "
    "of another cluster.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "Only the owner and the renewers of a delegation token may change it: "
    "log in as one of them.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "The broker serves delegation tokens to clients that have logged "
    "in, and not with a token: set security.protocol, sasl.mechanism and sasl.jaas.config.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "The user may not make tokens of another owner: it needs "
    "CreateTokens on that user.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired: make another one.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "Renewers are users: write them as User:NAME.",
}


def _require(code: int) -> None:
    """Raises the error for an error code in a broker's response. Does nothing for the code NONE."""
    require(code, _SENTENCES.get(code))


class TokenWithHmac(NamedTuple):
    """A delegation token and its HMAC. A client logs in with the token's id as user name and the HMAC as password, and
    then acts as the owner of the token."""

    token: DelegationToken
    hmac: bytes

    def __repr__(self) -> str:
        return f"TokenWithHmac({self.token!r})"


class TokenAdministration(Administration):
    """Methods for delegation tokens, of the class `Admin`."""

    async def create_delegation_token(
        self, renewers: Sequence[Principal] = (), *, owner: Principal | None = None, max_lifetime_ms: int = -1
    ) -> TokenWithHmac:
        """Makes a token for this client's user, or for the user `owner`, if this client's user may make tokens for
        that user. `max_lifetime_ms` is limited by the broker's setting; a negative value means that limit. Raises
        KafkaError if the broker refuses."""
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[
                CreateDelegationTokenRequestRenewer(principal_type=renewer.type, principal_name=renewer.name)
                for renewer in renewers
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        answer = await self.cluster.ask_any(request, CreateDelegationTokenResponse)
        _require(answer.error_code)
        made = Principal(answer.principal_type, answer.principal_name)
        requester = Principal(answer.token_requester_principal_type, answer.token_requester_principal_name)
        token = DelegationToken(
            answer.token_id,
            made,
            # A broker with an older version of the request makes tokens only for the requester.
            requester if requester.name else made,
            tuple(renewers),
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
        )
        return TokenWithHmac(token, bytes(answer.hmac))

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Renews a token for `period_ms`, or for the broker's default period if `period_ms` is negative. Returns the
        new time of expiry in ms since the Unix epoch. Raises KafkaError if the broker refuses."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        answer = await self.cluster.ask_any(request, RenewDelegationTokenResponse)
        _require(answer.error_code)
        return answer.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Lets a token expire after `period_ms`, or removes it at once if `period_ms` is negative. Returns the time of
        expiry in ms since the Unix epoch. Raises KafkaError if the broker refuses."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        answer = await self.cluster.ask_any(request, ExpireDelegationTokenResponse)
        _require(answer.error_code)
        return answer.expiry_timestamp_ms

    async def describe_delegation_tokens(self, owners: Sequence[Principal] | None = None) -> list[TokenWithHmac]:
        """Returns the tokens of these owners (None: of all owners) that this client's user may see. Raises KafkaError
        if the broker refuses."""
        wanted = None
        if owners is not None:
            wanted = [
                DescribeDelegationTokenRequestOwner(principal_type=owner.type, principal_name=owner.name)
                for owner in owners
            ]
        answer = await self.cluster.ask_any(
            DescribeDelegationTokenRequest(owners=wanted), DescribeDelegationTokenResponse
        )
        _require(answer.error_code)
        found = []
        for item in answer.tokens:
            owner = Principal(item.principal_type, item.principal_name)
            requester = Principal(item.token_requester_principal_type, item.token_requester_principal_name)
            token = DelegationToken(
                item.token_id,
                owner,
                requester if requester.name else owner,
                tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in item.renewers),
                item.issue_timestamp,
                item.expiry_timestamp,
                item.max_timestamp,
            )
            found.append(TokenWithHmac(token, bytes(item.hmac)))
        return found
