"""Checks OAUTHBEARER tokens: signed tokens (JWS, RFC 7515) with the keys of a key set (JWKS, RFC 7517), and unsecured
tokens.

Only signatures of asymmetric keys are accepted (RSA, RSA-PSS, ECDSA, EdDSA). If a key names its algorithm, only this
algorithm is accepted, so that a token cannot choose a weaker algorithm. An unsecured token proves nothing: its
validator is for tests, and is used only if a setting names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from jesenska.base.errors import InvalidConfigError
from jesenska.security.oauthbearer.claims import Expected, Token, TokenError, check, parts_of

_OF_RSA: Final = frozenset(f"{family}{bits}" for family in ("RS", "PS") for bits in ("256", "384", "512"))
_ALGORITHMS: Final = _OF_RSA | frozenset({"ES256", "ES384", "ES512", "EdDSA"})
_KINDS: Final = frozenset({"RSA", "EC", "OKP"})
MAX_KEYS: Final = 1000
#: The maximum number of keys that are tried for a token that names no key.
_TRIED_KEYS: Final = 10


class Key(NamedTuple):
    """A public key, and the algorithms of the signatures that it verifies."""

    id: str | None
    algorithms: frozenset[str]
    #: The key as an object of the package PyJWT.
    public: Any


class Keys(Protocol):
    """The keys that verify signatures."""

    def of(self, key_id: str | None, algorithm: str) -> Sequence[Key]:
        """Returns the keys with this id that can verify signatures of this algorithm. If `key_id` is None, keys with
        any id are returned."""


class KeySet:
    """The keys of one JWKS document, by their ids. Symmetric keys, and keys for encryption, are left out."""

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._keys = list(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, key_id: str | None, algorithm: str) -> Sequence[Key]:
        return [key for key in self._keys if key_id in (None, key.id) and algorithm in key.algorithms]


def parse_keys(document: bytes) -> KeySet:
    """Returns the keys of a JWKS document. Raises ValueError with the cause if `document` is not a JWKS document."""
    try:
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError
    except ImportError as error:
        raise InvalidConfigError(
            "OAUTHBEARER needs the package PyJWT: install it with pip install 'jesenska[security]'."
        ) from error
    try:
        found = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise ValueError("the document is not JSON") from error
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise ValueError("the document is not a set of keys (JWKS)")
    if len(listed) > MAX_KEYS:
        raise ValueError(f"the document has more than {MAX_KEYS} keys")
    keys = []
    for item in listed:
        if not isinstance(item, dict) or item.get("kty") not in _KINDS or item.get("use", "sig") != "sig":
            continue
        try:
            key = PyJWK(item)
        except (PyJWTError, ValueError, TypeError, KeyError):
            continue
        is_free = "alg" not in item and key.key_type == "RSA"
        algorithms = _OF_RSA if is_free else _ALGORITHMS & {key.algorithm_name}
        if algorithms:
            keys.append(Key(key.key_id, algorithms, key.key))
    return KeySet(keys)


class SignedTokens:
    """The validator of signed tokens. `now_ms` returns the time of the wall clock."""

    def __init__(self, keys: Keys, expected: Expected, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._expected = expected
        self._now_ms = now_ms

    def __call__(self, token: str) -> Token:
        header, claims, _ = parts_of(token)
        key_id = header.get("kid")
        if not isinstance(key_id, str | None):
            raise TokenError("a token whose kid is not a text")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str):
            raise TokenError("a token whose alg is not a text")
        keys = self._keys.of(key_id, algorithm)[:_TRIED_KEYS]
        if not keys:
            raise TokenError("a token signed by an unknown key, or by another algorithm than its key's")
        if not any(_is_signed(token, key, algorithm) for key in keys):
            raise TokenError("a token with a wrong signature")
        return check(claims, self._expected, self._now_ms())


def _is_signed(token: str, key: Key, algorithm: str) -> bool:
    """Returns True if the signature of a token was made with this key."""
    from jwt import PyJWS
    from jwt.exceptions import PyJWTError

    try:
        PyJWS().decode(token, key.public, algorithms=[algorithm])
    except (PyJWTError, ValueError, TypeError):
        return False
    return True


class UnsecuredTokens:
    """The validator of unsecured tokens (alg none), for tests."""

    def __init__(self, expected: Expected, required_scope: Iterable[str], now_ms: Callable[[], int]) -> None:
        self._expected = expected._replace(needs_issue_time=False, checks_audience=False)
        self._required_scope = tuple(required_scope)
        self._now_ms = now_ms

    def __call__(self, token: str) -> Token:
        header, claims, signature = parts_of(token)
        if header.get("alg") != "none" or signature:
            raise TokenError("a signed token, where unsecured tokens are expected")
        found = check(claims, self._expected, self._now_ms())
        if not found.scope.issuperset(self._required_scope):
            raise TokenError("a token with too small a scope", "insufficient_scope", " ".join(self._required_scope))
        return found
