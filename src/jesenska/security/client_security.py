"""Makes the security of a client's connections from the settings `security.protocol`, `ssl.*` and `sasl.*`.

    security.protocol   PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    sasl.mechanism      PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    sasl.jaas.config    the login: PlainLoginModule or ScramLoginModule with username and password

All connections of a client share one TLS context."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, Protocol

from jesenska.base.errors import InvalidConfigError
from jesenska.security.jaas import Login, parse_login
from jesenska.security.mechanisms import SERVED
from jesenska.security.sasl import plain_message
from jesenska.security.scram import ScramClient
from jesenska.security.tls import TlsSettings, client_context, tls_settings

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class SaslClient(Protocol):
    """The client's side of one SASL exchange."""

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the client's next message. `challenge` is the server's last message, None at first. Returns None if
        the exchange has ended successfully. Raises SaslError if the server cannot be trusted."""


class PlainClient:
    """The client's side of SASL PLAIN: sends one message."""

    def __init__(self, user: str, password: str) -> None:
        self._message: bytes | None = plain_message(user, password)

    def step(self, challenge: bytes | None) -> bytes | None:
        message, self._message = self._message, None
        return message


class ScramSteps:
    """The client's side of SASL SCRAM: sends two messages, then checks the server's signature."""

    def __init__(self, client: ScramClient) -> None:
        self._client = client
        self._steps = 0

    def step(self, challenge: bytes | None) -> bytes | None:
        self._steps += 1
        if challenge is None:
            return self._client.first()
        if self._steps == 2:
            return self._client.final(challenge)
        self._client.finished(challenge)
        return None


class ClientSecurity:
    """The security of a client's connections: the TLS context and the SASL login. Without SASL, `mechanism` is
    None."""

    def __init__(
        self,
        protocol: str,
        tls: TlsSettings | None = None,
        mechanism: str | None = None,
        login: Login | None = None,
        secret_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self.protocol = protocol
        self.mechanism = mechanism
        self.context: ssl.SSLContext | None = None
        self._secret_bytes = secret_bytes
        if protocol in ("SSL", "SASL_SSL"):
            self.context = client_context(tls or TlsSettings())
        self._user, self._password, self._is_token = "", "", False
        if mechanism is not None:
            if login is None:
                raise InvalidConfigError(
                    f"sasl.mechanism={mechanism} needs a login: set sasl.jaas.config to one with username and password."
                )
            self._user, self._password = login.required("username"), login.required("password")
            self._is_token = login.options.get("tokenauth", "").lower() == "true"

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}, {self.mechanism})"

    def exchange(self) -> SaslClient:
        """Returns a new SASL exchange of the mechanism."""
        assert self.mechanism is not None and self._secret_bytes is not None
        if self.mechanism == "PLAIN":
            return PlainClient(self._user, self._password)
        nonce = self._secret_bytes(18).hex()
        return ScramSteps(ScramClient(self.mechanism, self._user, self._password, nonce, is_token=self._is_token))


def client_security(
    get: Callable[[str], object], secret_bytes: Callable[[int], bytes], *, login: Login | None = None
) -> ClientSecurity | None:
    """Returns the security that the settings require; None for PLAINTEXT. `get` returns the value of a setting by its
    name. Raises InvalidConfigError with one sentence if the settings cannot be used."""
    protocol = str(get("security.protocol") or "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidConfigError(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}.")
    if protocol == "PLAINTEXT":
        return None
    tls = tls_settings(get)
    if not protocol.startswith("SASL_"):
        return ClientSecurity(protocol, tls)
    mechanism = str(get("sasl.mechanism") or "GSSAPI")
    if mechanism not in SERVED:
        raise InvalidConfigError(f"sasl.mechanism={mechanism} cannot be used: set it to one of {', '.join(SERVED)}.")
    text = get("sasl.jaas.config")
    return ClientSecurity(protocol, tls, mechanism, login if text is None else parse_login(str(text)), secret_bytes)
