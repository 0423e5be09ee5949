"""The common parts of all SASL mechanisms, and the mechanism PLAIN (RFC 4616).

    PLAIN    AUTHORIZATION_ID NUL USER NUL PASSWORD, in one message; the answer is empty

An authorization id that differs from the user is refused, as in Kafka."""

from __future__ import annotations

from typing import NamedTuple


class SaslError(Exception):
    """Raised when a SASL exchange has failed. The message is for the log, and is never sent to the peer."""


class PlainLogin(NamedTuple):
    """The user and password that a client of PLAIN has sent."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainLogin(user={self.user!r})"


def plain_message(user: str, password: str) -> bytes:
    """Returns the only message that a client of PLAIN sends."""
    return f"\0{user}\0{password}".encode()


def parse_plain(message: bytes) -> PlainLogin:
    """Returns the user and password in a PLAIN message. Raises SaslError if the message is malformed."""
    try:
        authorization_id, user, password = message.decode().split("\0")
    except (UnicodeDecodeError, ValueError) as error:
        raise SaslError("a malformed message") from error
    if not user or not password:
        raise SaslError("no user or no password")
    if authorization_id not in ("", user):
        raise SaslError("another authorization id than the user")
    return PlainLogin(user, password)
