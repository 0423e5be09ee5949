"""OAUTHBEARER: messages, the checks of tokens, the keys that verify them, and a client's tokens."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.backoff import Backoff
from jesenska.base.clock import ManualClock
from jesenska.base.errors import InvalidConfigError
from jesenska.broker.requests.signing_keys import SigningKeys
from jesenska.broker.stages.listener_mechanisms import (
    UNSECURED,
    JaasFile,
    ListenerMechanisms,
    ListenerSettings,
    Sources,
)
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import listeners_of
from jesenska.security.jaas import parse_login
from jesenska.security.oauthbearer.claims import Expected, Token, TokenError, check
from jesenska.security.oauthbearer.documents import Address, Credentials, DocumentError, parse_address, read
from jesenska.security.oauthbearer.logins import TokenLogin, token_login, unsecured_token
from jesenska.security.oauthbearer.messages import (
    OAuthBearerClient,
    OAuthBearerServer,
    first_message,
    parse_first_message,
)
from jesenska.security.oauthbearer.validators import KeySet, SignedTokens, UnsecuredTokens, parse_keys
from jesenska.security.sasl import SaslError

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
CLAIMS: dict[str, Any] = {"sub": "anna", "iat": NOW - 10, "exp": NOW + 100, "scope": "read write"}


def jwks(*keys: tuple[str | None, Any, dict[str, str]]) -> bytes:
    """A JWKS document of private keys' public parts, each with its id and further fields."""
    listed = []
    for name, key, more in keys:
        kind: Any = {
            rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
            ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
            ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
        }[
            next(
                kind
                for kind in (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)
                if isinstance(key, kind)
            )
        ]
        fields = json.loads(kind.to_jwk(key.public_key()))
        fields.pop("key_ops", None)
        listed.append(fields | ({} if name is None else {"kid": name}) | more)
    return json.dumps({"keys": listed}).encode()


KEYS = jwks(("r", RSA_KEY, {}), ("e", EC_KEY, {"alg": "ES256"}), ("d", ED_KEY, {}))


def signed(claims: dict[str, Any], key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "r") -> str:
    return jwt.encode(claims, key, algorithm, headers=None if kid is None else {"kid": kid})


def validator(document: bytes = KEYS, **expected: Any) -> SignedTokens:
    return SignedTokens(parse_keys(document), Expected(**expected), lambda: NOW_MS)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA_KEY, "RS256", "r"), (RSA_KEY, "PS512", "r"), (EC_KEY, "ES256", "e"), (ED_KEY, "EdDSA", "d")],
)
def test_a_token_with_a_right_signature_names_the_user(key: Any, algorithm: str, kid: str) -> None:
    assert validator()(signed(CLAIMS, key, algorithm, kid)) == Token(
        "anna", frozenset({"read", "write"}), (NOW + 100) * 1000
    )


def test_a_token_without_a_key_id_is_checked_with_each_key_of_its_algorithm() -> None:
    assert validator(jwks((None, RSA_KEY, {})))(signed(CLAIMS, kid=None)).user == "anna"
    two = jwks(("other", OTHER_RSA_KEY, {}), ("r", RSA_KEY, {}))
    assert validator(two)(signed(CLAIMS, kid=None)).user == "anna"
    with pytest.raises(TokenError, match="wrong signature"):
        validator(jwks(("other", OTHER_RSA_KEY, {})))(signed(CLAIMS, kid=None))


@pytest.mark.parametrize(
    ("token", "cause"),
    [
        (signed(CLAIMS, OTHER_RSA_KEY), "wrong signature"),
        (signed(CLAIMS, kid="x"), "unknown key"),
        (signed(CLAIMS, RSA_KEY, kid="e"), "another algorithm"),
        (signed(CLAIMS, EC_KEY, "ES256", "r"), "another algorithm"),
        (unsecured_token(CLAIMS), "unknown key"),
        ("a.b", "three parts"),
        ("....", "three parts"),
        ("!.!.!", "base64url"),
        ("", "three parts"),
    ],
)
def test_a_token_of_somebody_else_is_refused(token: str, cause: str) -> None:
    with pytest.raises(TokenError, match=cause):
        validator()(token)


def test_an_unsecured_token_that_names_a_key_is_refused() -> None:
    header = urlsafe_b64encode(json.dumps({"alg": "none", "kid": "r"}).encode()).decode().rstrip("=")
    _, claims, _ = unsecured_token(CLAIMS).split(".")
    with pytest.raises(TokenError, match="another algorithm"):
        validator()(f"{header}.{claims}.")


def test_a_public_key_is_no_secret_of_hmac() -> None:
    """The classic mistake: the key's own text signs a token with HS256."""
    import hashlib
    import hmac

    secret = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, claims = (
        urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "HS256", "kid": "r"}, CLAIMS)
    )
    mac = urlsafe_b64encode(hmac.digest(secret, f"{head}.{claims}".encode(), hashlib.sha256)).decode().rstrip("=")
    with pytest.raises(TokenError, match="another algorithm"):
        validator()(f"{head}.{claims}.{mac}")


def test_a_key_that_names_its_algorithm_takes_no_other() -> None:
    with pytest.raises(TokenError, match="another algorithm"):
        validator(jwks(("r", RSA_KEY, {"alg": "RS512"})))(signed(CLAIMS))


@pytest.mark.parametrize(
    "key", [{"kty": "oct", "k": "c2VjcmV0", "kid": "o"}, {"kty": "RSA", "kid": "r"}, {"kty": 1}, "x", None, []]
)
def test_keys_of_other_kinds_and_malformed_ones_are_left_out(key: object) -> None:
    assert len(parse_keys(json.dumps({"keys": [key, *json.loads(KEYS)["keys"]]}).encode())) == 3


def test_a_key_for_encryption_is_left_out() -> None:
    assert len(parse_keys(jwks(("r", RSA_KEY, {"use": "enc"})))) == 0


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"keys":1}', b"[" * 100_000, b'{"keys":[' + b"{}," * 1001 + b"{}]}"]
)
def test_a_document_that_is_no_set_of_keys_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError, match="document"):
        parse_keys(document)


@pytest.mark.parametrize(
    ("change", "expected", "cause"),
    [
        ({"exp": NOW - 30}, {}, "expired"),
        ({"exp": NOW - 29}, {}, None),
        ({"exp": NOW}, {"clock_skew_seconds": 0}, "expired"),
        ({"exp": None}, {}, "without exp"),
        ({"exp": "soon"}, {}, "not a time"),
        ({"exp": True}, {}, "not a time"),
        ({"exp": -1}, {}, "not a time"),
        ({"exp": 1e300}, {}, "not a time"),
        ({"iat": None}, {}, "without iat"),
        ({"iat": NOW + 1000}, {}, None),
        ({"nbf": NOW + 31}, {}, "not valid yet"),
        ({"nbf": NOW + 30}, {}, None),
        ({"sub": None}, {}, "claim sub"),
        ({"sub": " "}, {}, "claim sub"),
        ({"sub": 5}, {}, "claim sub"),
        ({"email": "a@b"}, {"user_claim": "email"}, None),
        ({"iss": "them"}, {}, None),
        ({"iss": "them"}, {"issuer": "us"}, "another issuer"),
        ({"iss": "us"}, {"issuer": "us"}, None),
        ({}, {"issuer": "us"}, "another issuer"),
        ({"aud": "kafka"}, {}, "another audience"),
        ({"aud": "kafka"}, {"audiences": ("a", "kafka")}, None),
        ({"aud": ["x", "kafka"]}, {"audiences": ("kafka",)}, None),
        ({"aud": ["x"]}, {"audiences": ("kafka",)}, "another audience"),
        ({}, {"audiences": ("kafka",)}, "without aud"),
        ({"scope": None}, {}, None),
        ({"scope": " "}, {}, "malformed scope"),
        ({"scope": ["a", "b"]}, {}, None),
        ({"scope": ["a", 1]}, {}, "malformed scope"),
    ],
)
def test_the_claims_of_a_token_decide(change: dict[str, Any], expected: dict[str, Any], cause: str | None) -> None:
    claims = {name: value for name, value in (CLAIMS | change).items() if value is not None}
    if cause is None:
        assert check(claims, Expected(**expected), NOW_MS).user
        return
    with pytest.raises(TokenError, match=cause):
        check(claims, Expected(**expected), NOW_MS)


def test_an_exchange_ends_with_the_user_and_the_life_of_the_token() -> None:
    server = OAuthBearerServer(validator(), lambda: NOW_MS)
    client = OAuthBearerClient(signed(CLAIMS), {"traceId": "7"})
    message = client.step(None)
    assert message is not None
    assert client.step(server.step(message)) is None
    assert str(server.principal) == "User:anna"
    assert server.lifetime_ms == 100_000


def test_a_refused_token_is_answered_with_a_status_and_then_with_a_failure() -> None:
    server = OAuthBearerServer(validator(), lambda: NOW_MS)
    client = OAuthBearerClient(signed(CLAIMS, OTHER_RSA_KEY), {})
    message = client.step(None)
    assert message is not None
    answer = server.step(message)
    assert json.loads(answer) == {"status": "invalid_token"}
    assert server.principal is None
    last = client.step(answer)
    assert last == b"\x01"
    with pytest.raises(SaslError):
        server.step(last)
    assert server.failure == '{"status":"invalid_token"}'
    assert server.principal is None


def test_an_authorization_id_is_the_tokens_user() -> None:
    for name, is_taken in ((b"anna", True), (b"ben", False)):
        server = OAuthBearerServer(validator(), lambda: NOW_MS)
        message = first_message(signed(CLAIMS), {}).replace(b"n,,", b"n,a=" + name + b",")
        if is_taken:
            assert server.step(message) == b""
        else:
            with pytest.raises(SaslError):
                server.step(message)
        assert (server.principal is not None) is is_taken


@given(st.one_of(st.binary(max_size=200), st.text(alphabet="n,a=\x01auth=Bearer x.y", max_size=60).map(str.encode)))
def test_any_message_is_parsed_or_refused(message: bytes) -> None:
    try:
        found = parse_first_message(message)
    except SaslError:
        return
    assert found.token
    assert found.token not in repr(found)


def test_an_unsecured_token_is_taken_where_it_is_asked_for() -> None:
    tokens = UnsecuredTokens(Expected(), ["read"], lambda: NOW_MS)
    assert tokens(unsecured_token(CLAIMS)).user == "anna"
    with pytest.raises(TokenError) as caught:
        tokens(unsecured_token(CLAIMS | {"scope": "write"}))
    assert caught.value.answer() == {"status": "insufficient_scope", "scope": "read"}
    with pytest.raises(TokenError):
        tokens(signed(CLAIMS))
    with pytest.raises(TokenError):
        tokens(unsecured_token(CLAIMS) + "c2ln")


# --- keys of a server --------------------------------------------------------------------------------------------


class Server:
    """A server of keys whose answers come when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.asked: list[Future[bytes]] = []
        self.keys = SigningKeys(
            parse_address("x", "https://keys/"),
            lambda: b"",
            self._in_thread,
            self.clock.monotonic,
            refresh_seconds=3600,
            backoff=Backoff(0.1, 10),
        )

    def _in_thread(self, read: Callable[[], bytes]) -> Future[bytes]:
        self.asked.append(Future())
        return self.asked[-1]

    def answer(self, document: bytes | Exception) -> None:
        if isinstance(document, bytes):
            self.asked[-1].set_result(document)
        else:
            self.asked[-1].set_exception(document)
        self.keys.look()


def test_keys_are_read_at_the_start_and_again_when_they_are_old() -> None:
    server = Server()
    assert len(server.asked) == 1
    assert not server.keys.of("r", "RS256")
    server.answer(KEYS)
    assert server.keys.of("r", "RS256")
    server.clock.advance(3_599_000)
    server.keys.look()
    assert len(server.asked) == 1
    server.clock.advance(1000)
    server.keys.look()
    assert len(server.asked) == 2
    server.answer(jwks(("new", RSA_KEY, {})))
    assert not server.keys.of("r", "RS256")
    assert server.keys.of("new", "RS256")


def test_an_unknown_key_causes_a_read_but_not_more_than_one_in_ten_seconds() -> None:
    server = Server()
    server.answer(KEYS)
    for _ in range(100):
        assert not server.keys.of("x", "RS256")
    assert len(server.asked) == 2
    server.answer(KEYS)
    server.clock.advance(9_900)
    server.keys.of("y", "RS256")
    assert len(server.asked) == 2
    server.clock.advance(100)
    server.keys.of("y", "RS256")
    assert len(server.asked) == 3


@pytest.mark.parametrize("failure", [DocumentError("cannot be reached"), b"not json"])
def test_old_keys_serve_while_the_server_fails_and_pauses_grow(failure: bytes | Exception) -> None:
    server = Server()
    server.answer(KEYS)
    server.clock.advance(3_600_000)
    server.keys.look()
    for seconds in (0.1, 0.2, 0.4):
        count = len(server.asked)
        server.answer(failure)
        assert server.keys.of("r", "RS256")
        server.clock.advance(seconds * 1000 - 1)
        server.keys.look()
        assert len(server.asked) == count
        server.clock.advance(1)
        server.keys.look()
        assert len(server.asked) == count + 1


def test_a_file_of_keys_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(KEYS)
    address = parse_address("x", path.as_uri())
    keys = SigningKeys(
        address,
        lambda: read(address),
        lambda _: Future(),
        ManualClock().monotonic,
        refresh_seconds=3600,
        backoff=Backoff(1, 1),
    )
    assert keys.of("r", "RS256")
    path.write_bytes(b"half a docu")
    keys.look()
    assert keys.of("r", "RS256")
    path.write_bytes(jwks(("new", RSA_KEY, {})))
    keys.look()
    assert not keys.of("r", "RS256")
    assert keys.of("new", "RS256")


def test_a_file_of_keys_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    address = parse_address("x", (tmp_path / "none.json").as_uri())
    with pytest.raises(InvalidConfigError, match="jwks"):
        SigningKeys(
            address,
            lambda: read(address),
            lambda _: Future(),
            ManualClock().monotonic,
            refresh_seconds=1,
            backoff=Backoff(1, 1),
        )


# --- a client's tokens -------------------------------------------------------------------------------------------


def test_a_client_keeps_its_token_until_most_of_its_life_is_over() -> None:
    clock = ManualClock(NOW_MS)
    fetched: list[str] = []

    def fetch() -> str:
        fetched.append(unsecured_token({"sub": "anna", "exp": clock.now_ms() / 1000 + 100}))
        return fetched[-1]

    login = TokenLogin(fetch, {}, clock.now_ms, 0.8)
    for milliseconds, count in ((0, 1), (79_000, 1), (1_000, 2), (79_999, 2)):
        clock.advance(milliseconds)
        message = login.exchange("localhost").step(None)
        assert message is not None
        assert parse_first_message(message).token == fetched[-1]
        assert len(fetched) == count


def test_an_old_token_serves_while_no_other_can_be_had_and_then_no_more() -> None:
    clock = ManualClock(NOW_MS)
    tokens: list[str] = [unsecured_token({"sub": "anna", "exp": NOW + 100})]

    def fetch() -> str:
        if not tokens:
            raise DocumentError("the provider is away")
        return tokens.pop()

    login = TokenLogin(fetch, {}, clock.now_ms, 0.8)
    login.exchange("localhost")
    clock.advance(99_000)
    assert login.exchange("localhost").step(None) is not None
    clock.advance(1_000)
    with pytest.raises(SaslError, match="the provider is away"):
        login.exchange("localhost")


_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def test_options_of_a_login_make_an_unsecured_token() -> None:
    login = token_login(
        parse_login(
            f'{_MODULE} unsecuredLoginStringClaim_sub="anna" unsecuredLoginListClaim_scope="|read|write" '
            'unsecuredLoginNumberClaim_n="5" unsecuredLoginExtension_traceId="7";'
        ),
        lambda _: None,
        lambda: NOW_MS,
    )
    message = login.exchange("localhost").step(None)
    assert message is not None
    found = parse_first_message(message)
    assert found.extensions == {"traceId": "7"}
    assert UnsecuredTokens(Expected(), ["read"], lambda: NOW_MS)(found.token) == Token(
        "anna", frozenset({"read", "write"}), NOW_MS + 3_600_000
    )


@pytest.mark.parametrize(
    ("options", "settings", "cause"),
    [
        ("", {}, r"sasl\.oauthbearer\.token\.endpoint\.url"),
        ('unsecuredLoginNumberClaim_n="x"', {}, "not a number"),
        ('unsecuredLoginStringClaim_name="anna"', {}, "unsecuredLoginStringClaim_sub"),
        ("", {"sasl.oauthbearer.token.endpoint.url": "https://x/"}, "clientId"),
        ("", {"sasl.oauthbearer.token.endpoint.url": "ftp://x/"}, "not an address"),
    ],
)
def test_a_login_that_cannot_be_used_says_what_to_set(options: str, settings: dict[str, str], cause: str) -> None:
    with pytest.raises(InvalidConfigError, match=cause):
        token_login(parse_login(f"{_MODULE} {options};"), settings.get, lambda: NOW_MS)


def test_a_token_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = unsecured_token({"sub": "anna", "exp": time.time() + 100})
    path.write_text(f"{token}\n")
    login = token_login(
        parse_login(f"{_MODULE};"), {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}.get, lambda: NOW_MS
    )
    message = login.exchange("localhost").step(None)
    assert message is not None
    assert parse_first_message(message).token == token


def test_an_empty_set_of_keys_knows_no_key() -> None:
    assert not KeySet().of(None, "RS256")
    assert not KeySet().of("r", "RS256")


# --- settings ----------------------------------------------------------------------------------------------------


def _listener(directory: Path, **settings: str) -> Callable[[str], Token]:
    """The check of tokens that a listener with these settings does."""
    keys = directory / "keys.json"
    keys.write_bytes(KEYS)
    config = BrokerConfig(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            **settings,
        }
    )
    endpoint = listeners_of(config).opened[0]
    sources = Sources(JaasFile({}), lambda *_: None, lambda *_: None, bytes, b"", ManualClock(NOW_MS))
    made = ListenerMechanisms(ListenerSettings(config, endpoint), sources)

    def log_in(token: str) -> Token:
        server = made.servers["OAUTHBEARER"]()
        if server.step(first_message(token, {})):
            raise TokenError("refused")
        assert server.principal is not None
        assert server.lifetime_ms is not None
        return Token(server.principal.name, frozenset(), server.lifetime_ms)

    return log_in


@pytest.mark.parametrize(
    ("settings", "claims", "user"),
    [
        ({}, {}, "anna"),
        ({"sasl.oauthbearer.expected.issuer": "us"}, {"iss": "us"}, "anna"),
        ({"sasl.oauthbearer.expected.issuer": "us"}, {}, None),
        ({"sasl.oauthbearer.expected.audience": "a,kafka"}, {"aud": "kafka"}, "anna"),
        ({"sasl.oauthbearer.expected.audience": "a,kafka"}, {"aud": "b"}, None),
        ({"sasl.oauthbearer.clock.skew.seconds": "5"}, {"exp": NOW - 6}, None),
        ({"sasl.oauthbearer.clock.skew.seconds": "60"}, {"exp": NOW - 6}, "anna"),
        ({"sasl.oauthbearer.sub.claim.name": "email"}, {"email": "a@b"}, "a@b"),
        ({"sasl.oauthbearer.scope.claim.name": "roles"}, {"roles": [1]}, None),
        ({"listener.name.sasl_plaintext.sasl.oauthbearer.expected.issuer": "us"}, {}, None),
    ],
)
def test_settings_of_a_listener_decide_which_tokens_are_taken(
    tmp_path: Path, settings: dict[str, str], claims: dict[str, Any], user: str | None
) -> None:
    log_in = _listener(tmp_path, **settings)
    if user is None:
        with pytest.raises(TokenError):
            log_in(signed(CLAIMS | claims))
    else:
        assert log_in(signed(CLAIMS | claims)).user == user


def test_the_times_at_which_keys_are_read_again_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[float, float, float]] = []

    class Keys(SigningKeys):
        def __init__(self, *parts: Any, refresh_seconds: float, backoff: Backoff) -> None:
            given.append((refresh_seconds, backoff.seconds(1), backoff.longest_seconds))
            super().__init__(*parts, refresh_seconds=refresh_seconds, backoff=backoff)

    monkeypatch.setattr("jesenska.broker.requests.signing_keys.SigningKeys", Keys)
    _listener(
        tmp_path,
        **{
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "7000",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "300",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "5000",
        },
    )
    assert given == [(7.0, 0.3, 5.0)]


def test_unsecured_tokens_are_taken_where_the_handler_of_the_listener_names_them(tmp_path: Path) -> None:
    handler = {"sasl.server.callback.handler.class": UNSECURED}
    assert _listener(tmp_path, **handler)(unsecured_token(CLAIMS)).user == "anna"
    with pytest.raises(TokenError):
        _listener(tmp_path)(unsecured_token(CLAIMS))


def test_a_handler_that_no_package_has_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="no_such_handler"):
        _listener(tmp_path, **{"sasl.server.callback.handler.class": "no_such_handler"})


def test_settings_of_a_client_make_the_request_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Credentials, float]] = []

    def ask(address: Address, credentials: Credentials, context: object, timeout_seconds: float) -> str:
        asked.append((address.url, credentials, timeout_seconds))
        return unsecured_token({"sub": "anna", "exp": clock.now_ms() / 1000 + 100})

    clock = ManualClock(NOW_MS)
    monkeypatch.setattr("jesenska.security.oauthbearer.logins.ask_for_token", ask)
    settings: dict[str, object] = {
        "sasl.oauthbearer.token.endpoint.url": "https://x/token",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "mine",
        "sasl.oauthbearer.scope": "read",
        "sasl.oauthbearer.header.urlencode": True,
        "sasl.login.read.timeout.ms": 2500,
        "sasl.login.refresh.window.factor": 0.5,
    }
    login = token_login(parse_login(f"{_MODULE};"), settings.get, clock.now_ms)
    login.exchange("localhost")
    assert asked == [("https://x/token", Credentials("me", "mine", "read", are_encoded=True), 2.5)]
    clock.advance(49_999)
    login.exchange("localhost")
    assert len(asked) == 1
    clock.advance(1)
    login.exchange("localhost")
    assert len(asked) == 2
