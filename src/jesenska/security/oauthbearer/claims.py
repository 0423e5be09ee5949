"""The claims of a JSON Web Token (RFC 7519), and the checks of a broker on them.

    HEADER.CLAIMS.SIGNATURE     each in base64url; the signature is empty in an unsecured token (alg none)

A broker requires the claim exp, and the claim iat in signed tokens. It compares exp and nbf with its clock, with a
tolerance for the difference of clocks. If an issuer is expected, the token must name this issuer. If audiences are
expected, the token must name at least one of them. As in Kafka, a token that names an audience is refused when no
audience is expected."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

#: The maximum length of a token; usual tokens have a few kilobytes. It equals the default of
#: sasl.server.max.receive.size, the limit of the message that contains the token.
MAX_TOKEN_CHARACTERS: Final = 524_288


class TokenError(Exception):
    """Raised when a token is not valid. The message is for the log; `answer` is the content of the broker's answer to
    the client."""

    def __init__(self, text: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(text)
        self._status = status
        self._scope = scope

    def answer(self) -> dict[str, str]:
        """Returns the fields of the JSON text that the broker sends to a client with an invalid token."""
        return {"status": self._status} | ({} if self._scope is None else {"scope": self._scope})


class Token(NamedTuple):
    """A token that was found valid. `expires_at_ms` is the claim exp, in ms since the Unix epoch."""

    user: str
    scope: frozenset[str]
    expires_at_ms: int


class Expected(NamedTuple):
    """The claims that a token must have, from the settings of a broker."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    clock_skew_seconds: int = 30
    user_claim: str = "sub"
    scope_claim: str = "scope"
    needs_issue_time: bool = True
    checks_audience: bool = True


def parts_of(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Returns the header, the claims and the signature of a token, without verifying them. Raises TokenError if the
    token is malformed."""
    pieces = token.split(".")
    if len(pieces) != 3 or len(token) > MAX_TOKEN_CHARACTERS:
        raise TokenError("a token without three parts")
    return _json(pieces[0]), _json(pieces[1]), pieces[2]


def check(claims: Mapping[str, Any], expected: Expected, now_ms: int) -> Token:
    """Returns the token with these claims. Raises TokenError if a claim is missing or malformed, or differs from the
    expected value."""
    skew_ms = expected.clock_skew_seconds * 1000
    expires_at_ms = _time_ms(claims, "exp")
    if expires_at_ms is None:
        raise TokenError("a token without exp")
    if now_ms - skew_ms >= expires_at_ms:
        raise TokenError("an expired token")
    issued_at_ms, valid_from_ms = _time_ms(claims, "iat"), _time_ms(claims, "nbf")
    if issued_at_ms is None and expected.needs_issue_time:
        raise TokenError("a token without iat")
    if valid_from_ms is not None and now_ms + skew_ms < valid_from_ms:
        raise TokenError("a token that is not valid yet")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise TokenError("a token of another issuer")
    if expected.checks_audience:
        _check_audience(claims, expected.audiences)
    user = claims.get(expected.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise TokenError(f"a token without the claim {expected.user_claim}")
    return Token(user.strip(), _scope(claims.get(expected.scope_claim)), expires_at_ms)


def expiry_ms(token: str) -> int:
    """Returns the time at which a token expires, in ms since the Unix epoch. The signature is not checked. Raises
    TokenError if the token has no claim exp."""
    found = _time_ms(parts_of(token)[1], "exp")
    if found is None:
        raise TokenError("a token without exp")
    return found


def _check_audience(claims: Mapping[str, Any], expected: tuple[str, ...]) -> None:
    named = claims.get("aud")
    audiences = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if named is not None and not any(audience in expected for audience in audiences):
        raise TokenError("a token for another audience")
    if named is None and expected:
        raise TokenError("a token without aud")


def _scope(value: object) -> frozenset[str]:
    """Returns the names in the value of a scope claim, which is a text of names separated by spaces, or a list of
    names."""
    if isinstance(value, str):
        value = value.split() or [""]
    names = value if isinstance(value, list) else []
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise TokenError("a token with a malformed scope")
    return frozenset(name.strip() for name in names)


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """Returns the time in a claim, converted from seconds to ms; None if the token does not have the claim."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise TokenError(f"a token whose {name} is not a time")
    return int(value * 1000)


def _json(piece: str) -> dict[str, Any]:
    try:
        found = json.loads(base64.b64decode(piece + "=" * (-len(piece) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise TokenError("a token that is not JSON in base64url") from error
    if not isinstance(found, dict):
        raise TokenError("a token whose part is not a JSON object")
    return found
