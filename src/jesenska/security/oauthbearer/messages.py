"""The messages of the SASL mechanism OAUTHBEARER (RFC 7628, KIP-255), and both sides of its exchange.

    client    n,[a=AUTHORIZATION_ID],^A auth=Bearer TOKEN ^A [NAME=VALUE ^A ...] ^A       ^A is the byte 1
    server    an empty message if the token is valid, else {"status":"invalid_token"}
    client    ^A, only after an invalid token; the server then refuses the login

The pairs NAME=VALUE are extensions: a broker checks their form and ignores them, as Kafka does by default."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from jesenska.security.oauthbearer.claims import Token, TokenError
from jesenska.security.principal import USER, Principal
from jesenska.security.sasl import SaslError

_CLIENT_FIRST = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_BEARER = re.compile(r"(?i:bearer) +([-_~+/.=a-zA-Z0-9]+)")
_AUTH: Final = "auth"
_REFUSED_BY_CLIENT: Final = b"\x01"

#: A function that checks the text of a token. It raises TokenError if the token is not valid.
Validate = Callable[[str], Token]


class FirstMessage(NamedTuple):
    """The content of a client's first OAUTHBEARER message."""

    authorization_id: str
    token: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"FirstMessage(authorization_id={self.authorization_id!r})"


def first_message(token: str, extensions: Mapping[str, str]) -> bytes:
    """Returns a client's first message."""
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return f"n,,\x01{_AUTH}=Bearer {token}\x01{pairs}\x01".encode()


def parse_first_message(message: bytes) -> FirstMessage:
    """Returns the content of a client's first message. Raises SaslError if the message is malformed."""
    try:
        found = _CLIENT_FIRST.fullmatch(message.decode())
    except UnicodeDecodeError as error:
        raise SaslError("a message that is not UTF-8") from error
    if found is None:
        raise SaslError("a malformed first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.pop(_AUTH, ""))
    if bearer is None:
        raise SaslError("a first message without a bearer token")
    return FirstMessage(found["authzid"] or "", bearer[1], pairs)


class OAuthBearerServer:
    """The server's side of one OAUTHBEARER exchange. `now_ms` returns the time of the wall clock."""

    def __init__(self, validate: Validate, now_ms: Callable[[], int]) -> None:
        self._validate = validate
        self._now_ms = now_ms
        self._refusal: TokenError | None = None
        self.principal: Principal | None = None
        self.is_token = False
        self.lifetime_ms: int | None = None
        self.failure: str | None = None

    def step(self, message: bytes) -> bytes:
        if self._refusal is not None:
            self.failure = self._status
            raise SaslError(str(self._refusal)) from self._refusal
        first = parse_first_message(message)
        try:
            token = self._validate(first.token)
        except TokenError as error:
            self._refusal = error
            return self._status.encode()
        if first.authorization_id not in ("", token.user):
            raise SaslError("another authorization id than the token's user")
        self.lifetime_ms = max(0, token.expires_at_ms - self._now_ms())
        self.principal = Principal(USER, token.user)
        return b""

    @property
    def _status(self) -> str:
        assert self._refusal is not None
        return json.dumps(self._refusal.answer(), separators=(",", ":"))


class OAuthBearerClient:
    """The client's side of one OAUTHBEARER exchange."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self._first: bytes | None = first_message(token, extensions)

    def step(self, challenge: bytes | None) -> bytes | None:
        message, self._first = self._first, None
        if message is not None:
            return message
        return _REFUSED_BY_CLIENT if challenge else None
