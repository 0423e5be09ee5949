"""Clients of others on listeners with TLS and logins: a record goes in and out, and a wrong login is named as such."""

from __future__ import annotations

import subprocess
import sys
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

_EVA_SECRET = "eva-sEcret"
_TOPIC = "secured"
_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGINS = {"PLAIN": ("anna", ANNA_SECRET), "SCRAM-SHA-256": ("eva", _EVA_SECRET), "SCRAM-SHA-512": ("eva", _EVA_SECRET)}


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
    def client(self) -> str:
        """A key with its certificate."""
        return str(self.directory / "client.pem")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("secured")
    ports = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    (directory / "ca.pem").write_text(AUTHORITY.pem)
    (directory / "client.pem").write_text(certificate("client"))
    listeners = ",".join(f"{name}://localhost:{port}" for name, port in ports.items())
    with BrokerProcess(directory / "data", settings=broker_settings(directory, listeners=listeners)):
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
    return [("SSL", None), *((protocol, name) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for name in _SASL)]


def _java(place: Place, release: str, protocol: str, mechanism: str | None, secret: str | None) -> tuple[bool, str]:
    need("java", "mvn")
    lines = {"security.protocol": protocol}
    if protocol != "SASL_PLAINTEXT":
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": place.trusted}
        if protocol == "SSL":
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": place.client}
    if mechanism is not None:
        user, right = _LOGINS[mechanism]
        lines |= login(user, secret or right, mechanism)
    file = place.directory / f"{release}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    done = subprocess.run(
        tool_command(
            release,
            "kafka-topics",
            *("--bootstrap-server", place.address(protocol), "--command-config", str(file), "--list"),
        ),
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
@pytest.mark.parametrize("mechanism", _SASL)
def test_a_client_with_a_wrong_password_is_told_so(place: Place, client: str, mechanism: str) -> None:
    gets_in, said = _CLIENTS[client](place, "SASL_SSL", mechanism, "wrong")
    assert not gets_in
    assert "uthentication" in said
