"""Creates the security (TLS and SASL) of a client's connections from the settings `security.protocol`, `ssl.*` and
`sasl.*`.

    security.protocol   PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
    sasl.mechanism      PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI
    sasl.jaas.config    the login: PlainLoginModule or ScramLoginModule with username and password,
                        OAuthBearerLoginModule with the options of `security.oauthbearer.logins`, or Krb5LoginModule
                        with the options of `security.kerberos.logins`

All connections of a client share one TLS context. A new connection to a broker resumes the client's last TLS session
with this broker."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final, Protocol

from jesenska.base.clock import SystemClock
from jesenska.base.errors import InvalidConfigError
from jesenska.security.jaas import Login, parse_login
from jesenska.security.mechanisms import GSSAPI, OAUTHBEARER, SERVED
from jesenska.security.sasl import plain_message
from jesenska.security.scram import ScramClient
from jesenska.security.tls import TlsSessions, TlsSettings, client_context, tls_settings

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class SaslClient(Protocol):
    """The client's side of one SASL exchange."""

    def step(self, challenge: bytes | None) -> bytes | None:
        """Returns the client's next message. `challenge` is the server's last message; it is None at the first call.
        Returns None if the exchange has ended successfully. Raises SaslError if the server cannot be trusted."""


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


class SaslLogin(Protocol):
    """The login of a client by one mechanism."""

    def exchange(self, host: str) -> SaslClient:
        """Returns a new SASL exchange with the broker at a host. Raises SaslError if the client has no valid
        credential."""


class PasswordLogin:
    """The login with a user and a password: PLAIN, and SCRAM with nonces from `secret_bytes`."""

    def __init__(self, mechanism: str, login: Login, secret_bytes: Callable[[int], bytes]) -> None:
        self._mechanism = mechanism
        self._secret_bytes = secret_bytes
        self._user, self._password = login.required("username"), login.required("password")
        self._is_token = login.options.get("tokenauth", "").lower() == "true"

    def exchange(self, host: str) -> SaslClient:
        if self._mechanism == "PLAIN":
            return PlainClient(self._user, self._password)
        nonce = self._secret_bytes(18).hex()
        return ScramSteps(ScramClient(self._mechanism, self._user, self._password, nonce, is_token=self._is_token))


class ClientSecurity:
    """The security of a client's connections: the TLS context and the SASL login. Without SASL, `mechanism` is None.
    `may_block` is True if the SASL exchange may wait for another server, such as an identity provider: it then runs on
    another thread."""

    def __init__(
        self,
        protocol: str,
        tls: TlsSettings | None = None,
        mechanism: str | None = None,
        login: SaslLogin | None = None,
        *,
        may_block: bool = False,
    ) -> None:
        self.protocol = protocol
        self.mechanism = mechanism
        self.may_block = may_block
        self.context: ssl.SSLContext | None = None
        #: The sessions of `context` that new connections resume.
        self.sessions = TlsSessions()
        self._login = login
        if protocol in ("SSL", "SASL_SSL"):
            self.context = client_context(tls or TlsSettings())

    def __repr__(self) -> str:
        return f"ClientSecurity({self.protocol}, {self.mechanism})"

    def exchange(self, host: str) -> SaslClient:
        """Returns a new exchange of the SASL mechanism with the broker at a host. Raises SaslError if the client has
        no valid credential."""
        assert self._login is not None
        return self._login.exchange(host)


def client_security(
    get: Callable[[str], object],
    secret_bytes: Callable[[int], bytes],
    *,
    login: Login | None = None,
    now_ms: Callable[[], int] | None = None,
) -> ClientSecurity | None:
    """Returns the security that the settings require; None for PLAINTEXT. `get` returns the value of a setting by its
    name. Raises InvalidConfigError with one sentence if the settings cannot be used."""
    protocol = str(get("security.protocol") or "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidConfigError(f"security.protocol={protocol} is not known: set it to one of {', '.join(PROTOCOLS)}.")
    if protocol == "PLAINTEXT":
        return None
    tls = tls_settings(get)
    if not protocol.startswith("SASL_"):
        return ClientSecurity(protocol, tls)
    mechanism = str(get("sasl.mechanism") or "GSSAPI")
    if mechanism not in SERVED:
        raise InvalidConfigError(f"sasl.mechanism={mechanism} cannot be used: set it to one of {', '.join(SERVED)}.")
    text = get("sasl.jaas.config")
    try:
        found = login if text is None else parse_login(str(text))
    except InvalidConfigError as error:
        raise InvalidConfigError(f"sasl.jaas.config: {error}") from error
    if found is None:
        raise InvalidConfigError(f"sasl.mechanism={mechanism} needs a login: set sasl.jaas.config to one.")
    if mechanism == OAUTHBEARER:
        # Imported here and not at the top, because few clients use OAUTHBEARER.
        from jesenska.security.oauthbearer.logins import token_login

        return ClientSecurity(
            protocol, tls, mechanism, token_login(found, get, now_ms or SystemClock().now_ms), may_block=True
        )
    if mechanism == GSSAPI:
        from jesenska.security.kerberos.logins import ticket_login

        login_with_tickets = ticket_login(found, get("sasl.kerberos.service.name"))
        return ClientSecurity(protocol, tls, mechanism, login_with_tickets, may_block=True)
    return ClientSecurity(protocol, tls, mechanism, PasswordLogin(mechanism, found, secret_bytes))
