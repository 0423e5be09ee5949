"""The server's side of each SASL mechanism. All mechanisms have the same interface:

    step(message) -> answer      called until `principal` is set; SaslError ends the exchange

    PLAIN                        one message; passwords are the JAAS login's options user_NAME
    SCRAM-SHA-256, -512          two messages; stored credentials are looked up

For an unknown user the SCRAM exchange continues as for a known one, so that it does not reveal which users exist."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from jesenska.security.principal import USER, Principal
from jesenska.security.sasl import SaslError, is_password_of, parse_plain
from jesenska.security.scram import MECHANISMS as SCRAM_MECHANISMS
from jesenska.security.scram import MIN_ITERATIONS, ScramCredential, ScramServer, credential_of


class MechanismServer(Protocol):
    """The server's side of one SASL exchange. `principal` is None until the exchange has ended successfully."""

    principal: Principal | None

    def step(self, message: bytes) -> bytes:
        """Returns the answer to the client's next message. Raises SaslError if the message is refused."""


#: A function that makes the server's side of a new exchange.
ServerOf = Callable[[], MechanismServer]
#: A function that returns the SCRAM credential for a mechanism and a user; None if the user has none.
CredentialOf = Callable[[str, str], ScramCredential | None]


class PlainServer:
    """The server's side of PLAIN. `passwords` has the passwords by user."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.principal: Principal | None = None

    def step(self, message: bytes) -> bytes:
        login = parse_plain(message)
        if not is_password_of(login, self._passwords):
            raise SaslError("a wrong user or password")
        self.principal = Principal(USER, login.user)
        return b""


class ScramExchange:
    """The server's side of SCRAM. `secret` is the key from which credentials for unknown users are computed."""

    def __init__(self, mechanism: str, nonce: str, credential_of_user: CredentialOf, secret: bytes) -> None:
        self._mechanism = mechanism
        self._server = ScramServer(mechanism, nonce)
        self._credential_of_user = credential_of_user
        self._secret = secret
        self._is_asked = False
        self._is_known = False
        self.principal: Principal | None = None

    def step(self, message: bytes) -> bytes:
        if not self._is_asked:
            user = self._server.first(message)
            self._is_asked = True
            credential = None if self._server.is_token else self._credential_of_user(self._mechanism, user)
            self._is_known = credential is not None
            return self._server.challenge(credential or self._made_up(user))
        answer = self._server.final(message)
        if not self._is_known or self.principal is not None:
            raise SaslError("a wrong user or password")
        self.principal = Principal(USER, self._server.user)
        return answer

    def _made_up(self, user: str) -> ScramCredential:
        """Returns a credential for an unknown user. It is the same each time, and no password fits it."""
        salt = hmac.digest(self._secret, user.encode(), "sha256")
        algorithm = SCRAM_MECHANISMS[self._mechanism]
        salted = hmac.digest(self._secret, salt, algorithm)[: hashlib.new(algorithm).digest_size]
        return credential_of(self._mechanism, salted, salt[:20], MIN_ITERATIONS)


SERVED: Final = ("PLAIN", *SCRAM_MECHANISMS)
