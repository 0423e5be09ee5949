"""The secrets of a broker under attack, and what a client makes of them: the right messages of every mechanism, from
which hostile ones are made."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import time
from functools import cache
from typing import Any, Final, NamedTuple

from jesenska.security.oauthbearer.messages import first_message
from jesenska.security.sasl import plain_message
from jesenska.security.scram import MECHANISMS, salted_password
from tests.units.security.test_oauthbearer import OTHER_RSA_KEY, RSA_KEY, signed

#: The users, with their passwords. An attacker has the password of `mallory` alone.
PASSWORDS: Final = {"anna": "anna-sEcret", "ben": "ben-sEcret", "mallory": "mallory-sEcret"}
ADMIN_PASSWORD: Final = "admin-sEcret"
NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"
_DAY: Final = 86_400


class Token(NamedTuple):
    """A delegation token, as its owner knows it."""

    token_id: str
    mac: bytes

    @property
    def password(self) -> str:
        return base64.b64encode(self.mac).decode()


class Target(NamedTuple):
    """A broker: its addresses by listener, delegation tokens, and what a client needs for TLS."""

    plain: tuple[str, int]
    secured: tuple[str, int]
    mutual: tuple[str, int]
    token: Token
    ended_token: Token
    other_token: Token
    trusting: ssl.SSLContext
    known: ssl.SSLContext
    strange: ssl.SSLContext


def scram_first(user: str, *, is_token: bool = False) -> str:
    """The client's first message without its head `n,,`."""
    return f"n={user},r={NONCE}" + (",tokenauth=true" if is_token else "")


class Proof(NamedTuple):
    """The client's last message of SCRAM in its parts."""

    channel: str
    nonce: str
    proof: bytes

    def message(self) -> bytes:
        return f"c={self.channel},r={self.nonce},p={base64.b64encode(self.proof).decode()}".encode()


@cache
def _salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return salted_password(mechanism, password, salt, iterations)


def scram_proof(mechanism: str, first: str, challenge: bytes, password: str) -> Proof | None:
    """The proof of a password; None if the challenge is none."""
    try:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt, iterations, nonce = base64.b64decode(fields["s"]), int(fields["i"]), fields["r"]
    except (ValueError, KeyError):
        return None
    algorithm = MECHANISMS[mechanism]
    key = hmac.digest(_salted(mechanism, password, salt, iterations), b"Client Key", algorithm)
    about = f"{first},{challenge.decode()},c=biws,r={nonce}".encode()
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), about, algorithm)
    return Proof("biws", nonce, bytes(a ^ b for a, b in zip(key, signature, strict=True)))


def plain_login(user: str, password: str) -> bytes:
    return plain_message(user, password)


def _claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    return {"sub": "anna", "iat": now - 10, "exp": now + _DAY, "scope": "read"} | more


@cache
def right_token() -> str:
    """A token that the broker takes."""
    return signed(_claims())


def _part(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


@cache
def forged_tokens() -> tuple[str, ...]:
    """Tokens that the broker must not take, whatever it makes of them."""
    head, claims, signature = right_token().split(".")
    other = _part(_claims(sub="ben"))
    public = json.dumps({"n": RSA_KEY.public_key().public_numbers().n}).encode()
    by_public_key = f"{_part({'alg': 'HS256', 'kid': 'r'})}.{claims}"
    mac = base64.urlsafe_b64encode(hmac.digest(public, by_public_key.encode(), "sha256")).decode().rstrip("=")
    return (
        signed(_claims(), OTHER_RSA_KEY),
        signed(_claims(), OTHER_RSA_KEY, kid=None),
        signed(_claims(exp=int(time.time()) - _DAY)),
        signed(_claims(nbf=int(time.time()) + _DAY)),
        signed(_claims(aud="somebody else")),
        signed(_claims(sub="")),
        f"{head}.{other}.{signature}",
        f"{head}.{claims}.",
        f"{_part({'alg': 'none'})}.{claims}.",
        f"{_part({'alg': 'none', 'kid': 'r'})}.{claims}.{signature}",
        f"{by_public_key}.{mac}",
        f"{_part({'alg': 'RS256', 'kid': 'e'})}.{claims}.{signature}",
        f"{_part({'alg': 'PS256', 'kid': 'r'})}.{claims}.{signature}",
        f"{_part({'alg': 'RS256', 'kid': 'r', 'b64': False, 'crit': ['b64']})}.{claims}.{signature}",
        f"{_part({'alg': ['RS256'], 'kid': {}})}.{claims}.{signature}",
    )


def token_message(token: str) -> bytes:
    return first_message(token, {})


def with_other_signature(token: str, place: int, bit: int) -> str:
    """The token with one bit of its signature changed."""
    head, claims, signature = token.split(".")
    changed = bytearray(base64.urlsafe_b64decode(signature + "=="))
    changed[place % len(changed)] ^= 1 << bit
    return f"{head}.{claims}.{base64.urlsafe_b64encode(changed).decode().rstrip('=')}"
