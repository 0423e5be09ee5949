"""Delegation tokens (KIP-48, KIP-373): a user gets a token from a broker and gives it to programs. The programs log in
with the token by SCRAM: the token's id is the user name, the token's HMAC is the password.

    HMAC                 HmacSHA512(delegation.token.secret.key, token id); every broker has the same key
    owner                the user as which a client is logged in with the token
    requester            the user that has requested the token; the requester may differ from the owner
    renewers             the users that may renew and expire the token, in addition to the owner
    expires_at_ms        the token is not valid after this time. Renewing the token moves this time, at most to
                         max_at_ms

The metadata tree (ZooKeeper's nodes) stores all fields of a token except its HMAC (`metadata.token_nodes`)."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Final, NamedTuple

from jesenska.security.principal import Principal
from jesenska.security.scram import MIN_ITERATIONS, ScramCredential, make_credential

_SALT_BYTES: Final = 20


class DelegationToken(NamedTuple):
    """A delegation token. Times are in ms since the Unix epoch."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Returns True if the user may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def belongs_to(self, principal: Principal) -> bool:
        """Returns True if the user is the owner, the requester or a renewer of the token. Such a user may describe the
        token without an ACL."""
        return principal == self.requester or self.may_be_renewed_by(principal)

    def has_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms < now_ms or self.max_at_ms < now_ms


class Lifetimes(NamedTuple):
    """How long tokens are valid, in ms: the time without a renewal, and the maximum time with renewals."""

    expiry_ms: int = 86_400_000
    max_ms: int = 604_800_000


class TokenCredential(NamedTuple):
    """The SCRAM credential of a token, the user as which a client is logged in with the token, and the time at which
    the token expires."""

    credential: ScramCredential
    owner: Principal
    expires_at_ms: int


class DelegationTokens:
    """The tokens that one broker knows. `secret` is delegation.token.secret.key, `random_bytes` returns random bytes
    that cannot be guessed."""

    def __init__(self, secret: str, lifetimes: Lifetimes, random_bytes: Callable[[int], bytes]) -> None:
        self._secret = secret.encode()
        self.lifetimes = lifetimes
        self._random_bytes = random_bytes
        self._tokens: dict[str, DelegationToken] = {}
        #: The token ids, by a digest of the HMAC. So the time of a look-up does not depend on how many bytes of a
        #: guessed HMAC are right.
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

    def put(self, token: DelegationToken) -> None:
        """Adds or replaces a token."""
        if token.token_id not in self._tokens:
            self._ids[_digest(self.hmac_of(token.token_id))] = token.token_id
        self._tokens[token.token_id] = token

    def remove(self, token_id: str) -> None:
        """Removes a token. Does nothing if the token is unknown."""
        if self._tokens.pop(token_id, None) is not None:
            del self._ids[_digest(self.hmac_of(token_id))]
            for key in [key for key in self._credentials if key[1] == token_id]:
                del self._credentials[key]

    def tokens(self) -> list[DelegationToken]:
        """Returns all tokens, including expired tokens that are not removed yet."""
        return list(self._tokens.values())

    def of_hmac(self, mac: bytes) -> DelegationToken | None:
        """Returns the token with this HMAC; None if there is no such token."""
        token_id = self._ids.get(_digest(mac))
        return None if token_id is None else self._tokens[token_id]

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret, token_id.encode(), "sha512")

    def credential(self, mechanism: str, token_id: str, now_ms: int) -> TokenCredential | None:
        """Returns the SCRAM credential of a token; None if the token is unknown or has expired."""
        token = self._tokens.get(token_id)
        if token is None or token.has_expired(now_ms):
            return None
        found = self._credentials.get((mechanism, token_id))
        if found is None:
            password = base64.b64encode(self.hmac_of(token_id)).decode()
            found = make_credential(mechanism, password, self._random_bytes(_SALT_BYTES), MIN_ITERATIONS)
            self._credentials[mechanism, token_id] = found
        return TokenCredential(found, token.owner, min(token.expires_at_ms, token.max_at_ms))

    def new(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: tuple[Principal, ...],
        max_lifetime_ms: int,
        now_ms: int,
    ) -> DelegationToken:
        """Returns a token that begins now. `max_lifetime_ms` is the maximum lifetime that the requester wants, limited
        to the broker's maximum. 0 or less means the broker's maximum."""
        limit_ms = self.lifetimes.max_ms
        max_at_ms = now_ms + (min(max_lifetime_ms, limit_ms) if max_lifetime_ms > 0 else limit_ms)
        expires_at_ms = min(max_at_ms, now_ms + self.lifetimes.expiry_ms)
        return DelegationToken(token_id, owner, requester, renewers, now_ms, expires_at_ms, max_at_ms)

    def renewed_until(self, token: DelegationToken, period_ms: int, now_ms: int) -> int:
        """Returns the time at which a token expires if it is renewed now for `period_ms`. A negative `period_ms` means
        the broker's default period."""
        return min(token.max_at_ms, now_ms + (period_ms if period_ms >= 0 else self.lifetimes.expiry_ms))


def _digest(mac: bytes) -> bytes:
    return hashlib.sha256(mac).digest()
