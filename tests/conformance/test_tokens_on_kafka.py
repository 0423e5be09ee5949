"""Logins by OAUTHBEARER on this broker and on Apache Kafka, with the same tokens and the same keys: the same tokens
are taken, and the others get the same answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from jesenska.security.oauthbearer.logins import unsecured_token
from jesenska.security.oauthbearer.messages import first_message
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka, free_port
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.units.security.test_oauthbearer import CLAIMS, EC_KEY, KEYS, OTHER_RSA_KEY, RSA_KEY, signed

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240), pytest.mark.hour("src/jesenska/security")]

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_RELEASES = ("3.9.1", "4.3.1")


def _claims(**change: Any) -> dict[str, Any]:
    """The claims of a valid token, with some of them changed; None leaves a claim out."""
    now = int(time.time())
    base = CLAIMS | {"iat": now - 10, "exp": now + 3000, "iss": "us", "aud": "kafka"}
    return {name: value for name, value in (base | change).items() if value is not None}


def _tokens() -> dict[str, str]:
    now = int(time.time())
    changes: dict[str, dict[str, Any]] = {
        "valid": {},
        "expired": {"exp": now - 60},
        "expired within the tolerance": {"exp": now - 10},
        "without exp": {"exp": None},
        "without iat": {"iat": None},
        "iat in the future": {"iat": now + 3000},
        "nbf in the future": {"nbf": now + 3000},
        "nbf within the tolerance": {"nbf": now + 10},
        "without sub": {"sub": None},
        "an empty sub": {"sub": " "},
        "sub is a number": {"sub": 5},
        "another issuer": {"iss": "them"},
        "without an issuer": {"iss": None},
        "another audience": {"aud": "x"},
        "several audiences": {"aud": ["x", "kafka"]},
        "without an audience": {"aud": None},
        "without a scope": {"scope": None},
        "a list of scopes": {"scope": ["read", "write"]},
        "an empty scope": {"scope": ""},
        "a number as scope": {"scope": 5},
    }
    tokens = {name: signed(_claims(**change)) for name, change in changes.items()}
    return tokens | {
        "another key": signed(_claims(), OTHER_RSA_KEY),
        "an unknown key": signed(_claims(), kid="x"),
        "without a key id": signed(_claims(), kid=None),
        "elliptic": signed(_claims(), EC_KEY, "ES256", "e"),
        "RSA-PSS": signed(_claims(), RSA_KEY, "PS256"),
        "a longer hash": signed(_claims(), RSA_KEY, "RS512"),
        "unsecured": unsecured_token(_claims()),
        "two parts": "a.b",
        "not base64": "!.!.!",
        "a cut signature": signed(_claims())[:-10],
    }


class Place(NamedTuple):
    name: str
    address: str


_JWKS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.expected.issuer": "us",
    "sasl.oauthbearer.expected.audience": "kafka",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("tokens")
    keys = directory / "keys.json"
    keys.write_bytes(KEYS)
    found: list[Place] = []
    running: list[Any] = []
    try:
        for release in _RELEASES:
            handler = f"{_OAUTH}.{'' if release >= '4' else 'secured.'}OAuthBearerValidatorCallbackHandler"
            port, plain, quorum = free_port(), free_port(), free_port()
            settings = _JWKS | {
                "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
                "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": handler,
                "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{port}",
                "listener.security.protocol.map": ",".join(
                    ("PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT", "CONTROLLER:PLAINTEXT")
                ),
            }
            kafka = ApacheKafka(
                release,
                directory / release,
                zookeeper=release < "4",
                java_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"],
                settings=settings,
            )
            kafka.ports, kafka.quorum = [plain], [quorum]
            if release >= "4":
                kafka.settings["listeners"] += f",CONTROLLER://127.0.0.1:{quorum}"
            running.append(kafka)
            kafka.start()
            found.append(Place(release, f"127.0.0.1:{port}"))
        port = free_port()
        ours = BrokerProcess(
            directory / "ours",
            settings=_JWKS
            | {
                "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
                "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SASL_PLAINTEXT://127.0.0.1:{port}",
            },
        )
        running.append(ours)
        ours.start()
        found.append(Place("ours", f"127.0.0.1:{port}"))
        yield found
    finally:
        for process in running:
            process.stop()


def _answer(place: Place, message: bytes) -> dict[str, Any]:
    """The answers of a broker to a login with this first message."""
    try:
        return _answers(place, message)
    except ClosedByBrokerError:
        return {"closed": True}


def _answers(place: Place, message: bytes) -> dict[str, Any]:
    with RawConnection(place.address) as connection:
        connection.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1, SaslHandshakeResponse)
        first: SaslAuthenticateResponse = connection.ask(
            SaslAuthenticateRequest(auth_bytes=memoryview(message)), 1, SaslAuthenticateResponse
        )
        found: dict[str, Any] = {
            "error": first.error_code,
            "text": first.error_message,
            "bytes": bytes(first.auth_bytes).decode(),
            "lifetime": round(first.session_lifetime_ms / 100_000),
        }
        if first.error_code == 0 and first.auth_bytes:
            second: SaslAuthenticateResponse = connection.ask(
                SaslAuthenticateRequest(auth_bytes=memoryview(b"\x01")), 1, SaslAuthenticateResponse
            )
            found["then"] = (second.error_code, second.error_message)
        return found


def test_tokens_are_judged_alike(places: list[Place]) -> None:
    differences = {}
    for name, token in _tokens().items():
        answers = {place.name: _answer(place, first_message(token, {})) for place in places}
        if answers["ours"] not in (answers["3.9.1"], answers["4.3.1"]):
            differences[name] = answers
    assert not differences, json.dumps(differences, indent=1)


#: This broker's own answer: Kafka names the token's user to the client, or closes the connection without an answer.
_REFUSED = {
    "error": 58,
    "text": "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER",
    "bytes": "",
    "lifetime": 0,
}
_OURS = {"another authorization id": _REFUSED, "another scheme": _REFUSED}


def test_messages_are_judged_alike(places: list[Place]) -> None:
    token = signed(_claims())
    message = first_message(token, {})
    messages = {
        "with extensions": first_message(token, {"traceId": "7", "b": "c d"}),
        "a reserved extension": message.replace(b"auth=", b"auth=x\x01auth="),
        "an extension with a digit in its name": first_message(token, {"a1": "7"}),
        "its own authorization id": message.replace(b"n,,", b"n,a=anna,"),
        "another authorization id": message.replace(b"n,,", b"n,a=ben,"),
        "another scheme": message.replace(b"Bearer", b"Basic"),
        "bearer in lower case": message.replace(b"Bearer", b"bearer"),
        "no token": b"n,,\x01auth=Bearer \x01\x01",
        "no auth": b"n,,\x01\x01",
        "channel binding": message.replace(b"n,,", b"y,,"),
        "empty": b"",
    }
    differences = {}
    for name, content in messages.items():
        answers = {place.name: _answer(place, content) for place in places}
        if answers["ours"] not in ([_OURS[name]] if name in _OURS else (answers["3.9.1"], answers["4.3.1"])):
            differences[name] = answers
    assert not differences, json.dumps(differences, indent=1)
