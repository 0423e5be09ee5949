"""The server's side of each SASL mechanism. All mechanisms have the same interface:

    step(message) -> answer      called until `principal` is set; if it raises SaslError, the exchange has failed

    PLAIN                        one message; passwords are the JAAS login's options user_NAME
    SCRAM-SHA-256, -512          two messages; credentials are looked up
    OAUTHBEARER                  one message; the token is checked (`security.oauthbearer`)
    GSSAPI                       two or three messages; a ticket of Kerberos (`security.kerberos`)

For an unknown user the SCRAM exchange continues as for a known user, so that it does not reveal which users exist."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from jesenska.security.delegation_tokens import TokenCredential
from jesenska.security.principal import USER, Principal
from jesenska.security.sasl import SaslError, parse_plain
from jesenska.security.scram import MECHANISMS as SCRAM_MECHANISMS
from jesenska.security.scram import MIN_ITERATIONS, ScramCredential, ScramServer, credential_of


class MechanismServer(Protocol):
    """The server's side of one SASL exchange. `principal` is None until the exchange has ended successfully."""

    principal: Principal | None
    #: True if the client has authenticated with a delegation token.
    is_token: bool
    #: The time in milliseconds until the credential expires; None if the credential does not expire, or the exchange
    #: has not ended.
    lifetime_ms: int | None
    #: The error text that the client gets when the exchange has failed; None means the general error text.
    failure: str | None

    def step(self, message: bytes) -> bytes | None:
        """Returns the answer to the client's next message. None means an empty answer, which is not
        sent to a client whose messages have no headers. Raises SaslError if the message is refused."""


#: A function that makes the server's side of a new exchange.
ServerOf = Callable[[], MechanismServer]
#: A function that returns the SCRAM credential for a mechanism and a user; None if the user has none.
CredentialOf = Callable[[str, str], ScramCredential | None]


def is_one_of(passwords: Mapping[str, str], user: str, password: str) -> bool:
    """Returns True if the password is the password of the user. The check takes the same time for an unknown user."""
    known = passwords.get(user)
    same = hmac.compare_digest((password if known is None else known).encode(), password.encode())
    return same and known is not None


#: A function that returns the credential of a delegation token for a mechanism; None if the token is unknown or has
#: expired.
TokenCredentialOf = Callable[[str, str], TokenCredential | None]


class PlainServer:
    """The server's side of SASL PLAIN. `check` returns True for the right password of a user."""

    def __init__(self, check: Callable[[str, str], bool]) -> None:
        self._check = check
        self.principal: Principal | None = None
        self.is_token = False
        self.lifetime_ms: int | None = None
        self.failure: str | None = None

    def step(self, message: bytes) -> bytes:
        login = parse_plain(message)
        if not self._check(login.user, login.password):
            raise SaslError("a wrong user or password")
        self.principal = Principal(USER, login.user)
        return b""


class ScramExchange:
    """The server's side of a SCRAM mechanism. `secret` is used to invent credentials for unknown users and tokens.
    `now_ms` returns the time of the wall clock."""

    def __init__(
        self,
        mechanism: str,
        nonce: str,
        credential_of_user: CredentialOf,
        credential_of_token: TokenCredentialOf,
        secret: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        self._mechanism = mechanism
        self._server = ScramServer(mechanism, nonce)
        self._credential_of_user = credential_of_user
        self._credential_of_token = credential_of_token
        self._now_ms = now_ms
        self._token: TokenCredential | None = None
        self._secret = secret
        self._is_asked = False
        self._is_known = False
        self.principal: Principal | None = None
        self.is_token = False
        self.lifetime_ms: int | None = None
        self.failure: str | None = None

    def step(self, message: bytes) -> bytes:
        if not self._is_asked:
            user = self._server.first(message)
            self._is_asked = True
            credential = self._credential(user)
            self._is_known = credential is not None
            return self._server.challenge(credential or self._made_up(user))
        answer = self._server.final(message)
        if not self._is_known or self.principal is not None:
            raise SaslError("a wrong user or password")
        if self._token is None:
            self.principal = Principal(USER, self._server.user)
        else:
            self.principal, self.is_token = self._token.owner, True
            self.lifetime_ms = max(0, self._token.expires_at_ms - self._now_ms())
        return answer

    def _credential(self, user: str) -> ScramCredential | None:
        """Returns the credential of a user, or of a delegation token if the client has named the token's id as
        user."""
        if not self._server.is_token:
            return self._credential_of_user(self._mechanism, user)
        self._token = self._credential_of_token(self._mechanism, user)
        return None if self._token is None else self._token.credential

    def _made_up(self, user: str) -> ScramCredential:
        """Returns an invented credential for an unknown user. The credential is the same each time, and no password
        matches it."""
        salt = hmac.digest(self._secret, user.encode(), "sha256")
        algorithm = SCRAM_MECHANISMS[self._mechanism]
        salted = hmac.digest(self._secret, salt, algorithm)[: hashlib.new(algorithm).digest_size]
        return credential_of(self._mechanism, salted, salt[:20], MIN_ITERATIONS)


OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
SERVED: Final = ("PLAIN", *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
