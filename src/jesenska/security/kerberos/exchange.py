"""Both sides of an exchange of GSSAPI with Kerberos (RFC 4752).

    client    sends a token with a ticket
    server    sends its own token, if the client asks the server to prove its identity; the client answers with an
              empty message
    server    sends a wrapped message: the byte 1 (no security layer is supported), then 0 0 0 (the maximum size of
              messages)
    client    sends a wrapped message: the byte 1 (no security layer is wanted), then 0 0 0, then an authorization id
    server    sends an empty message

If the client does not ask the server to prove its identity (Java's client does not), the server's first answer is the
wrapped message. As in Kafka, the authorization id is ignored: clients send different values, and the user is always
the principal of the ticket. A session continues when its ticket expires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from jesenska.security.kerberos.gssapi_library import GssapiError
from jesenska.security.principal import USER, NoMappingError, Principal
from jesenska.security.sasl import SaslError

#: The byte for "no security layer", in the server's list of layers and in the client's choice.
_NO_LAYER: Final = 1
_OFFER: Final = bytes((_NO_LAYER, 0, 0, 0))
#: The maximum number of tokens that a client may send. Kerberos needs one token, or two tokens in the old style of
#: DCE.
_TOKENS_MAX: Final = 4


class Context(Protocol):
    """The interface of a GSSAPI security context. Every method raises GssapiError if the peer's bytes are refused."""

    is_established: bool

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, token: bytes) -> bytes: ...


class AcceptingContext(Context, Protocol):
    """The server's side of a security context. `peer` is the client's principal when the context is established, None
    before."""

    peer: str | None

    def step(self, token: bytes) -> bytes: ...


class InitiatingContext(Context, Protocol):
    """The client's side of a security context."""

    def step(self, token: bytes | None) -> bytes: ...


class GssapiServer:
    """The server's side of one GSSAPI exchange. `user_of` returns the user for a client's principal, or raises
    NoMappingError."""

    def __init__(self, context: AcceptingContext, user_of: Callable[[str], str]) -> None:
        self._context = context
        self._user_of = user_of
        self._tokens = 0
        self._has_offered = False
        self.principal: Principal | None = None
        self.is_token = False
        self.lifetime_ms: int | None = None
        self.failure: str | None = None

    def step(self, message: bytes) -> bytes | None:
        if self.principal is not None:
            raise SaslError("a message after the last one")
        try:
            if not self._context.is_established:
                return self._accepted(message)
            if not self._has_offered:
                if message:
                    raise SaslError("a message where an empty one is expected")
                return self._offer()
            self._finish(message)
        except GssapiError as error:
            raise SaslError(str(error)) from error
        return None

    def _accepted(self, token: bytes) -> bytes:
        if not token:
            raise SaslError("an empty message in place of a token")
        self._tokens += 1
        if self._tokens > _TOKENS_MAX:
            raise SaslError("too many tokens")
        answer = self._context.step(token)
        return self._offer() if self._context.is_established and not answer else answer

    def _offer(self) -> bytes:
        self._has_offered = True
        return self._context.wrap(_OFFER)

    def _finish(self, token: bytes) -> None:
        choice = self._context.unwrap(token)
        if len(choice) < len(_OFFER) or choice[0] != _NO_LAYER:
            raise SaslError("a security layer that is not served")
        assert self._context.peer is not None
        try:
            self.principal = Principal(USER, self._user_of(self._context.peer))
        except NoMappingError as error:
            raise SaslError(str(error)) from error


class GssapiClient:
    """The client's side of one GSSAPI exchange."""

    def __init__(self, context: InitiatingContext) -> None:
        self._context = context
        self._has_chosen = False

    def step(self, challenge: bytes | None) -> bytes | None:
        try:
            if not self._context.is_established:
                return self._context.step(challenge)
            if not self._has_chosen:
                return self._choice(challenge or b"")
        except GssapiError as error:
            raise SaslError(str(error)) from error
        if challenge:
            raise SaslError("a message of the server after the last one")
        return None

    def _choice(self, token: bytes) -> bytes:
        offer = self._context.unwrap(token)
        if len(offer) < len(_OFFER) or not offer[0] & _NO_LAYER:
            raise SaslError("the server demands a security layer, which is not there")
        self._has_chosen = True
        return self._context.wrap(_OFFER)
