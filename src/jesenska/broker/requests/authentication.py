"""Authenticates connections, by the security protocol of their listener.

    PLAINTEXT         every user is User:ANONYMOUS
    SSL               the user is the name in the client's certificate, mapped by ssl.principal.mapping.rules;
                      ANONYMOUS without a certificate
    SASL_PLAINTEXT    the user is the name that the client has proved in a SASL exchange
    SASL_SSL          the user is the name that the client has proved in a SASL exchange, over TLS. Client
                      certificates are requested only if the listener's own ssl.client.auth asks for them

The states of a SASL connection, and what each request does in them (KIP-43, KIP-152, KIP-368). A token is a message of
the SASL mechanism in a frame without a header:

  state        ApiVersions    SaslHandshake 0    SaslHandshake 1    SaslAuthenticate    a token    other requests
  HANDSHAKE    answered       -> TOKENS          -> MESSAGES        refused             -> TOKENS  refused
  MESSAGES     answered       refused            refused            next step           -          refused
  TOKENS       -              -                  -                  -                   next step  -
  DONE         answered       illegal            -> AGAIN (*)       illegal             -          served
  AGAIN        answered       refused            refused            next step           -          refused
  FAILED       refused        refused            refused            refused             -          refused

A client of Kafka 0.9 sends no SaslHandshake: its first frame is the first token of GSSAPI. No request begins with the
first byte of such a token. Only a listener with GSSAPI accepts this frame.

"Refused" means that the connection is closed; "illegal" means that the answer is ILLEGAL_SASL_STATE. (*) Only if the
session has a limited lifetime, and not within a second of the last such SaslHandshake; else illegal. The step that
completes the authentication leads to DONE. In AGAIN the client must authenticate with the same user and the same
mechanism; otherwise the connection is closed. Before DONE, requests must be small, and are handled one at a time. A
failed authentication is answered after connection.failed.authentication.delay.ms, with the same message for all
causes. The connection is closed a moment later, when the client has read the answer. When the lifetime of a session
has passed (connections.max.reauth.ms), only requests of a new authentication are served."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from jesenska.base.errors import ErrorCode
from jesenska.security.principal import ANONYMOUS, USER, MappingRule, NoMappingError, Principal, mapped_name
from jesenska.security.sasl import SaslError

if TYPE_CHECKING:
    # Imported only for type checking, because a broker without secured listeners does not need these modules.
    from jesenska.net.tls_transport import HandshakeTurns
    from jesenska.net.transport import TransportFor
    from jesenska.security.mechanisms import MechanismServer, ServerOf
    from jesenska.security.tls import TlsContexts

logger = logging.getLogger(__name__)

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
_GSSAPI: Final = "GSSAPI"
#: The shortest time between the beginnings of two new authentications of one connection.
_RENEWED_SECONDS_MIN: Final = 1.0
#: The first byte of the first GSSAPI token (RFC 2743, 3.1). A request with this first byte would have an API key of at
#: least 24,576, which does not exist.
_TOKEN_TAG: Final = 0x60


class ListenerSecurity:
    """The security settings of one listener: TLS, SASL mechanisms and the settings of the mechanisms. `mechanisms` is
    None for a listener without SASL."""

    def __init__(
        self,
        protocol: str,
        contexts: TlsContexts | None = None,
        turns: HandshakeTurns | None = None,
        rules: tuple[MappingRule, ...] = (),
        mechanisms: Mapping[str, ServerOf] | None = None,
        reauthenticate_ms: Mapping[str, int] | None = None,
        token_max_bytes: int = 524_288,
        failure_delay_ms: int = 100,
        looks: tuple[Callable[[], None], ...] = (),
    ) -> None:
        self.protocol = protocol
        self.contexts = contexts
        self._turns = turns
        self._rules = rules
        self.mechanisms = mechanisms
        #: The value of connections.max.reauth.ms for each mechanism; 0 means no limit.
        self.reauthenticate_ms = reauthenticate_ms or {}
        self.token_max_bytes = token_max_bytes
        self.failure_delay_ms = failure_delay_ms
        self._looks = looks

    def transport_for(self, on_secured: Callable[[bytes | None], None]) -> TransportFor | None:
        """Returns the function that creates the TLS transport of a connection, or None for a listener without TLS."""
        if self.contexts is None or self._turns is None:
            return None
        from jesenska.net.tls_transport import tls_server

        return tls_server(self.contexts.current, self._turns, on_secured)

    def look(self) -> None:
        """Loads the certificates, and the keys that verify OAuth tokens, again if they have changed. They apply to new
        connections."""
        for look in self._looks:
            look()
        if self.contexts is not None and self.contexts.look():
            logger.info("the certificate of %s was changed: new connections get it", self.contexts.settings)

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Returns the user for a client certificate in DER, or ANONYMOUS for None. Raises NoMappingError if no mapping
        rule matches."""
        if certificate is None:
            return ANONYMOUS
        from jesenska.security.x500 import DerError, subject_name

        try:
            return Principal(USER, mapped_name(subject_name(certificate), self._rules))
        except DerError as error:
            raise NoMappingError(str(error)) from error


#: The security of a listener without TLS and SASL: all its users are anonymous.
PLAINTEXT: Final = ListenerSecurity("PLAINTEXT")


class State(Enum):
    """The states of a SASL connection; the table at the top of this file describes them."""

    HANDSHAKE = "handshake"
    MESSAGES = "messages"
    TOKENS = "tokens"
    DONE = "done"
    AGAIN = "again"
    FAILED = "failed"


#: The API keys of the requests that are served in each state. DONE is missing, because all requests except
#: SaslAuthenticate are served in DONE.
_TAKES: Final[Mapping[State, frozenset[int]]] = {
    State.HANDSHAKE: frozenset({API_VERSIONS, SASL_HANDSHAKE}),
    State.MESSAGES: frozenset({API_VERSIONS, SASL_AUTHENTICATE}),
    State.AGAIN: frozenset({API_VERSIONS, SASL_AUTHENTICATE}),
    State.TOKENS: frozenset(),
    State.FAILED: frozenset(),
}


class Authentication:
    """The SASL authentication of one connection. `now` returns the time of a monotonic clock in seconds."""

    def __init__(self, listener: ListenerSecurity, now: Callable[[], float]) -> None:
        assert listener.mechanisms is not None
        self.listener = listener
        self._mechanisms = listener.mechanisms
        self._now = now
        self.state = State.HANDSHAKE
        self.mechanism = ""
        self.principal: Principal | None = None
        self._server: MechanismServer | None = None
        self._ends_at: float | None = None
        #: The lifetime of the session after its authentication, in ms; 0 if there is no limit, and before the
        #: authentication.
        self.session_lifetime_ms = 0
        self._renewed_at: float | None = None
        #: True if the client has authenticated with a delegation token.
        self.is_token = False
        self._failure: str | None = None

    @property
    def is_done(self) -> bool:
        return self.state is State.DONE

    def has_begun(self) -> bool:
        """Returns True while an authentication runs: from a SaslHandshake until the authentication has ended."""
        return self._server is not None

    def takes(self, key: int) -> bool:
        """Returns True if a request with this API key may be served in the present state."""
        if self.state is not State.DONE:
            return key in _TAKES[self.state]
        if self._ends_at is not None and key != SASL_HANDSHAKE and self._now() > self._ends_at:
            return key == API_VERSIONS
        return True

    def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """Begins an authentication with this SASL mechanism. Returns NONE, or the error if it cannot begin."""
        if self.state is State.DONE and not self._may_be_renewed(version):
            return ErrorCode.ILLEGAL_SASL_STATE
        make = self._mechanisms.get(mechanism)
        if make is None:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self.state is State.DONE and mechanism != self.mechanism:
            return ErrorCode.SASL_AUTHENTICATION_FAILED
        self._server = make()
        self.mechanism = mechanism
        self.session_lifetime_ms = 0
        if self.state is State.DONE:
            self.state = State.AGAIN
        else:
            self.state = State.MESSAGES if version else State.TOKENS
        return ErrorCode.NONE

    def _may_be_renewed(self, version: int) -> bool:
        """Returns True if a new authentication may begin on this connection: as in Kafka, only if the session's
        lifetime is limited, and at most once a second."""
        if version == 0 or self._ends_at is None:
            return False
        now = self._now()
        if self._renewed_at is not None and now - self._renewed_at < _RENEWED_SECONDS_MIN:
            return False
        self._renewed_at = now
        return True

    def begins_with(self, frame: memoryview) -> bool:
        """Returns True if a frame is the first token of GSSAPI, sent without a SaslHandshake. In this case the GSSAPI
        exchange begins."""
        if self.state is not State.HANDSHAKE or not frame or frame[0] != _TOKEN_TAG:
            return False
        return self.handshake(_GSSAPI, 0) is ErrorCode.NONE

    def step(self, message: bytes) -> bytes | None:
        """Returns the answer to the next message of the SASL mechanism. None means an empty answer, which is not sent
        to a client whose messages have no headers. Raises SaslError if the authentication has failed."""
        try:
            return self._next(message)
        except SaslError:
            self._failure = self._server.failure if self._server is not None else None
            self.state, self._server = State.FAILED, None
            raise

    def _next(self, message: bytes) -> bytes | None:
        server = self._server
        if server is None:
            raise SaslError("no exchange has begun")
        answer = server.step(message)
        if server.principal is not None:
            if self.principal is not None and server.principal != self.principal:
                raise SaslError("another user than before")
            self.principal, self.is_token = server.principal, server.is_token
            self._server = None
            self.state = State.DONE
            self._begin_session(server.lifetime_ms)
        return answer

    def _begin_session(self, credential_ms: int | None) -> None:
        """Sets the end of the session: after connections.max.reauth.ms, or when the credential expires, if that is
        earlier."""
        listeners_ms = self.listener.reauthenticate_ms.get(self.mechanism) or None
        limits = [limit for limit in (listeners_ms, credential_ms) if limit is not None]
        self.session_lifetime_ms = min(limits, default=0)
        self._ends_at = self._now() + self.session_lifetime_ms / 1000 if limits else None

    @property
    def failure(self) -> str:
        """Returns the error message for the client. It is the same for every cause of failure, except for mechanisms
        that have their own message."""
        return self._failure or (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )
