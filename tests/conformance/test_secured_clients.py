"""Clients of others on listeners with TLS and logins: a record goes in and out, and a wrong login is named as such."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jesenska.cli.kafka.topics.kafka_configs import main as kafka_configs
from jesenska.cli.kafka.topics.kafka_topics import main as kafka_topics
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import free_port, tool_command
from tests.processes.broker.secured import ADMIN_SECRET, ANNA_SECRET, AUTHORITY, broker_settings, certificate, login
from tests.units.security.test_oauthbearer import KEYS, OTHER_RSA_KEY, signed

_EVA_SECRET = "eva-sEcret"
_TOPIC = "secured"
_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TOKENS = "OAUTHBEARER"
_CLAIMS = {"sub": "anna", "iat": time.time(), "exp": time.time() + 3600}
_LOGINS = {
    "PLAIN": ("anna", ANNA_SECRET),
    "SCRAM-SHA-256": ("eva", _EVA_SECRET),
    "SCRAM-SHA-512": ("eva", _EVA_SECRET),
    _TOKENS: ("anna", signed(_CLAIMS)),
}
_WRONG = dict.fromkeys(_SASL, "wrong") | {_TOKENS: signed(_CLAIMS, OTHER_RSA_KEY)}


@dataclass(frozen=True)
class Place:
    """The broker's address by protocol, and the files of its clients."""

    directory: Path
    ports: dict[str, int]

    def address(self, protocol: str) -> str:
        return f"localhost:{self.ports[protocol]}"

    @property
    def trusted(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def token(self) -> Path:
        return self.directory / "token"

    @property
    def client(self) -> str:
        """A key with its certificate."""
        return str(self.directory / "client.pem")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("secured")
    ports = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    (directory / "ca.pem").write_text(AUTHORITY.pem)
    (directory / "client.pem").write_text(certificate("client"))
    keys = directory / "keys.json"
    keys.write_bytes(KEYS)
    tokens = {
        "sasl.enabled.mechanisms": ",".join((*_SASL, _TOKENS)),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    listeners = ",".join(f"{name}://localhost:{port}" for name, port in ports.items())
    with BrokerProcess(directory / "data", settings=broker_settings(directory, listeners=listeners) | tokens):
        made = Place(directory, ports)
        admin = directory / "admin.properties"
        admin.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            + "".join(f"{name}={value}\n" for name, value in login("admin", ADMIN_SECRET).items())
        )
        where = ["--bootstrap-server", made.address("SASL_PLAINTEXT"), "--command-config", str(admin)]
        passwords = ",".join(f"{name}=[iterations=4096,password={_EVA_SECRET}]" for name in _SASL[1:])
        user = ["--alter", "--entity-type", "users", "--entity-name", "eva", "--add-config", passwords]
        assert kafka_configs([*where, *user]) == 0
        assert kafka_topics([*where, "--create", "--topic", _TOPIC]) == 0
        yield made


def cases() -> list[tuple[str, str | None]]:
    pairs = [(protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in _SASL]
    return [("SSL", None), *pairs, ("SASL_SSL", _TOKENS)]


def _token_file(place: Place, release: str, token: str) -> dict[str, str]:
    """The settings of a Java client that reads its token from a file."""
    place.token.write_text(token)
    package = "org.apache.kafka.common.security.oauthbearer"
    return {
        "sasl.mechanism": _TOKENS,
        "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        "sasl.oauthbearer.token.endpoint.url": place.token.as_uri(),
        "sasl.login.callback.handler.class": f"{package}.{'' if release >= '4' else 'secured.'}"
        "OAuthBearerLoginCallbackHandler",
    }


def _java(place: Place, release: str, protocol: str, mechanism: str | None, secret: str | None) -> tuple[bool, str]:
    need("java", "mvn")
    lines = {"security.protocol": protocol}
    if protocol != "SASL_PLAINTEXT":
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": place.trusted}
        if protocol == "SSL":
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": place.client}
    if mechanism is not None:
        user, right = _LOGINS[mechanism]
        lines |= (
            _token_file(place, release, secret or right)
            if mechanism == _TOKENS
            else login(user, secret or right, mechanism)
        )
    file = place.directory / f"{release}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    java, *words = tool_command(
        release,
        "kafka-topics",
        *("--bootstrap-server", place.address(protocol), "--command-config", str(file), "--list"),
    )
    done = subprocess.run(
        [java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={place.token.as_uri()}", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )
    return _TOPIC in done.stdout, done.stdout + done.stderr


def _python(place: Place, client: str, protocol: str, mechanism: str | None, secret: str | None) -> tuple[bool, str]:
    """In a process of its own: some of these clients leave sockets open."""
    need_modules(client)
    user, right = _LOGINS.get(mechanism or "", ("", ""))
    words = [client, place.address(protocol), protocol, place.trusted, mechanism or "", user, secret or right, _TOPIC]
    done = subprocess.run(
        [sys.executable, "-m", "tests.peers.python.secured_client", *words], capture_output=True, text=True, timeout=60
    )
    return "written" in done.stdout, done.stdout + done.stderr


Talk = Callable[[Place, str, str | None, str | None], tuple[bool, str]]
_CLIENTS: dict[str, Talk] = {
    "java 4.3.1": lambda *case: _java(case[0], "4.3.1", *case[1:]),
    "java 3.9.1": lambda *case: _java(case[0], "3.9.1", *case[1:]),
    "confluent-kafka": lambda *case: _python(case[0], "confluent_kafka", *case[1:]),
    "kafka-python": lambda *case: _python(case[0], "kafka", *case[1:]),
    "aiokafka": lambda *case: _python(case[0], "aiokafka", *case[1:]),
}
_EVERY = pytest.mark.parametrize(
    "client",
    [
        pytest.param(name, marks=pytest.mark.hour("src/jesenska/security")) if "java" in name else name
        for name in _CLIENTS
    ],
)


@_EVERY
@pytest.mark.parametrize(("protocol", "mechanism"), cases())
def test_a_client_with_the_right_login_gets_in(place: Place, client: str, protocol: str, mechanism: str | None) -> None:
    assert _CLIENTS[client](place, protocol, mechanism, None)[0]


@_EVERY
@pytest.mark.parametrize("mechanism", [*_SASL, _TOKENS])
def test_a_client_with_a_wrong_password_is_told_so(place: Place, client: str, mechanism: str) -> None:
    gets_in, said = _CLIENTS[client](place, "SASL_SSL", mechanism, _WRONG[mechanism])
    assert not gets_in
    # aiokafka ignores the answer to a token, and finds the connection closed.
    if (client, mechanism) != ("aiokafka", _TOKENS):
        assert "uthentication" in said or "invalid_token" in said
