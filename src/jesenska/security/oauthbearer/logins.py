"""Gets the tokens with which a client logs in by OAUTHBEARER, from one of these sources:

    sasl.oauthbearer.token.endpoint.url     a token from an identity provider (grant client_credentials), with the JAAS
                                            options clientId, clientSecret and scope, or the settings
                                            sasl.oauthbearer.client.credentials.client.id, .client.secret and
                                            sasl.oauthbearer.scope; or a file that contains a token
    unsecuredLoginStringClaim_sub="anna"    an unsecured token, for tests, from the JAAS options unsecuredLogin...

A client uses its token until the part sasl.login.refresh.window.factor of the token's lifetime has passed. The next
login then requests a new token. If no new token is available, the old token is used until it expires."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from jesenska.base.errors import InvalidConfigError
from jesenska.security.jaas import Login
from jesenska.security.oauthbearer.claims import TokenError, expiry_ms
from jesenska.security.oauthbearer.documents import Credentials, DocumentError, ask_for_token, parse_address, read
from jesenska.security.oauthbearer.messages import OAuthBearerClient
from jesenska.security.sasl import SaslError
from jesenska.security.tls import client_context, tls_settings

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_UNSECURED: Final = "unsecuredLogin"
_EXTENSIONS: Final = ("extension_", "unsecuredLoginExtension_")
_UNSECURED_SECONDS: Final = 3600.0


class _Held(NamedTuple):
    """A client's token, the time at which it was fetched, and the time at which it expires, in ms since the Unix
    epoch."""

    token: str
    fetched_at_ms: int
    expires_at_ms: int


class TokenLogin:
    """The OAUTHBEARER login of one client. `fetch` returns a new token. `fetch` and `exchange` may block."""

    def __init__(
        self, fetch: Callable[[], str], extensions: Mapping[str, str], now_ms: Callable[[], int], refresh_factor: float
    ) -> None:
        self._fetch = fetch
        self._extensions = extensions
        self._now_ms = now_ms
        self._refresh_factor = refresh_factor
        self._held: _Held | None = None
        self._lock = threading.Lock()

    def exchange(self, host: str) -> OAuthBearerClient:
        """Returns a new exchange with a valid token. Raises SaslError if there is no valid token."""
        with self._lock:
            return OAuthBearerClient(self._current(), self._extensions)

    def _current(self) -> str:
        held, now_ms = self._held, self._now_ms()
        if held is not None:
            life_ms = held.expires_at_ms - held.fetched_at_ms
            if now_ms < held.fetched_at_ms + life_ms * self._refresh_factor:
                return held.token
        try:
            token = self._fetch()
            self._held = _Held(token, now_ms, expiry_ms(token))
        except (DocumentError, TokenError) as error:
            if held is not None and now_ms < held.expires_at_ms:
                return held.token
            raise SaslError(f"no token: {error}") from error
        return token


def token_login(login: Login, get: Callable[[str], object], now_ms: Callable[[], int]) -> TokenLogin:
    """Returns the login that the settings and a JAAS login describe. Raises InvalidConfigError, with a message of one
    sentence, if they cannot be used."""
    options = login.options
    extensions = {
        name.removeprefix(prefix): value
        for name, value in options.items()
        for prefix in _EXTENSIONS
        if name.startswith(prefix)
    }
    url = get("sasl.oauthbearer.token.endpoint.url")
    if url:
        fetch = _from_endpoint(str(url), options, get)
    elif any(name.startswith(_UNSECURED) for name in options):
        fetch = _unsecured(options, now_ms)
    else:
        raise InvalidConfigError(
            f"sasl.mechanism=OAUTHBEARER needs a source of tokens: set {ENDPOINT} to the address of an identity "
            "provider, or to the file of a token."
        )
    factor = get("sasl.login.refresh.window.factor")
    return TokenLogin(fetch, extensions, now_ms, float(factor) if isinstance(factor, (int, float)) else 0.8)


def _from_endpoint(url: str, options: Mapping[str, str], get: Callable[[str], object]) -> Callable[[], str]:
    address = parse_address(ENDPOINT, url)
    if address.path is not None:
        return lambda: read(address).decode(errors="replace").strip()
    client_id = options.get("clientId") or get("sasl.oauthbearer.client.credentials.client.id")
    secret = options.get("clientSecret") or get("sasl.oauthbearer.client.credentials.client.secret")
    if not client_id or not secret:
        raise InvalidConfigError(
            f"{ENDPOINT} needs a client: set the options clientId and clientSecret in sasl.jaas.config."
        )
    scope = options.get("scope") or get("sasl.oauthbearer.scope")
    encoded = str(get("sasl.oauthbearer.header.urlencode")).lower() == "true"
    credentials = Credentials(str(client_id), str(secret), None if not scope else str(scope), encoded)
    timeout_ms = get("sasl.login.read.timeout.ms")
    seconds = timeout_ms / 1000 if isinstance(timeout_ms, int) and timeout_ms > 0 else 10.0
    context = context_of(options)
    return lambda: ask_for_token(address, credentials, context, seconds)


def context_of(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Returns the TLS context for an identity provider, from the JAAS options ssl.…. Returns None if there are no such
    options: the system's certificate authorities are then trusted."""
    if not any(name.startswith("ssl.") for name in options):
        return None
    return client_context(tls_settings(options.get))


def _unsecured(options: Mapping[str, str], now_ms: Callable[[], int]) -> Callable[[], str]:
    claims: dict[str, Any] = {}
    for name, value in options.items():
        kind, _, claim = name.removeprefix(_UNSECURED).partition("Claim_")
        if not claim or not name.startswith(_UNSECURED):
            continue
        if kind == "String":
            claims[claim] = value
        elif kind == "Number":
            claims[claim] = _number(name, value)
        elif kind == "List":
            # The first character of the value is the separator of the items, as in |one|two.
            claims[claim] = value[1:].split(value[0]) if value else []
    if not claims.get(options.get("unsecuredLoginPrincipalClaimName", "sub")):
        raise InvalidConfigError(
            "An unsecured token needs a user: set the option unsecuredLoginStringClaim_sub in sasl.jaas.config."
        )
    seconds = _number("unsecuredLoginLifetimeSeconds", options.get("unsecuredLoginLifetimeSeconds", _UNSECURED_SECONDS))

    def made() -> str:
        now = now_ms() / 1000
        return unsecured_token({"iat": now, "exp": now + seconds, **claims})

    return made


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """Returns an unsecured token with these claims."""
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, dict(claims)))
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def _number(name: str, value: object) -> float:
    try:
        return float(str(value))
    except ValueError as error:
        raise InvalidConfigError(f"The JAAS option {name} is not a number.") from error
