"""Decides who may use a served tree. Names in quotes are ZooKeeper's settings.

    users          the names and passwords of logins by SASL (the entry Server of the JAAS file); without users no
                   client can log in
    required       the schemes one of which a client's identities must have ("enforce.auth.schemes"): any request
                   before that, except a login or an identity, is refused and ends the connection. Empty: everybody
                   is admitted
    superusers     the identities that may do everything, whatever the ACLs of nodes say ("superUser",
                   "DigestAuthenticationProvider.superDigest", "X509AuthenticationProvider.superUser")

A client that is not admitted yet is a stranger. Its requests are short, it has `login_seconds` to become known, and
the session that it has opened ends with its connection. There are at most `strangers_max` of them: the oldest gives
way to the newest."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from jesenska.metadata.acl import SUPER, Identity
from jesenska.security.digest_md5 import NONCE_BYTES, DigestMd5Server

#: Bytes of one request of a stranger.
STRANGERS_REQUEST_MAX_BYTES: Final = 16 * 1024
STRANGERS_MAX: Final = 200
LOGIN_SECONDS: Final = 10.0


class Guard:
    """The rules of one server. `Guard()` admits everybody."""

    def __init__(
        self,
        users: Mapping[str, str] | None = None,
        *,
        required: frozenset[str] = frozenset(),
        superusers: frozenset[Identity] = frozenset(),
        login_seconds: float = LOGIN_SECONDS,
        strangers_max: int = STRANGERS_MAX,
        secret_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._users = dict(users or {})
        self._unknown = secret_bytes(NONCE_BYTES).hex()
        self._secret_bytes = secret_bytes
        self.required = required
        self.superusers = superusers
        self.login_seconds = login_seconds
        self.strangers_max = strangers_max

    def __repr__(self) -> str:
        return f"Guard({len(self._users)} users, required={sorted(self.required)})"

    def exchange(self) -> DigestMd5Server | None:
        """Returns a new exchange of a login, or None if there are no logins."""
        if not self._users:
            return None
        return DigestMd5Server(self._users, self._secret_bytes(NONCE_BYTES).hex(), self._unknown)

    def admits(self, identities: frozenset[Identity]) -> bool:
        """Returns True if a client with these identities may use the tree."""
        return not self.required or any(identity.scheme in self.required for identity in identities)

    def completed(self, identities: frozenset[Identity]) -> frozenset[Identity]:
        """Returns the identities, and the identity SUPER if one of them is a superuser's."""
        return identities if self.superusers.isdisjoint(identities) else identities | {SUPER}
