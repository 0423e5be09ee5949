"""Kerberos with others: their clients at this broker, and our client at Apache Kafka, which knows the same user by the
same rules."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from jesenska.base.errors import SaslAuthenticationFailedError
from jesenska.cli.kafka.records.kafka_console_consumer import main as kafka_console_consumer
from jesenska.cli.kafka.topics.kafka_topics import main as kafka_topics
from jesenska.client.administration.admin import Admin
from jesenska.client.client_config import client_config
from jesenska.client.cluster import Cluster
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need, need_modules
from tests.peers.apache_kafka import ApacheKafka, free_port, tool_command
from tests.processes.broker.kdc import HOST, REALM, SERVICE, Kdc, need_kdc
from tests.processes.broker.test_kerberos import by_cache, by_key_tab, client

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240)]

_HOUR = pytest.mark.hour("src/jesenska/security")
_TOPIC = "secured"
#: The rules of a listener, by its name.
_RULES = {
    "PLAIN_RULES": "DEFAULT",
    "LOUD": "RULE:[1:$1]/U,DEFAULT",
    "ODD": "RULE:[2:$2-$1@$0](.*@SHOP[.]EXAMPLE)s/([a-z]+)-([a-z]+)@.*/$2_of_$1/,RULE:[1:$1](a.*)s/n/N/g,DEFAULT",
    "FEW": "RULE:[1:$1](anna)",
}
#: The user that a principal is at each listener.
_USERS = {
    "anna": {"PLAIN_RULES": "anna", "LOUD": "ANNA", "ODD": "aNNa"},
    "ben/admin": {"PLAIN_RULES": "ben", "LOUD": "ben", "ODD": "ben_of_admin"},
    "Carl.X": {"PLAIN_RULES": "Carl.X", "LOUD": "CARL.X", "ODD": "Carl.X"},
    f"{SERVICE}/{HOST}": {"PLAIN_RULES": "kafka", "LOUD": "kafka", "ODD": "kafka_of_localhost"},
}


@dataclass
class Place:
    """The Kerberos server, and a broker's addresses by listener."""

    kdc: Kdc
    key_tabs: dict[str, Path]
    ports: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in ("PLAINTEXT", *_RULES)})

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def login(self, principal: str) -> dict[str, str]:
        return {"security.protocol": "SASL_PLAINTEXT", **client(by_key_tab(self.key_tabs[principal], principal))}

    def settings(self) -> dict[str, str]:
        """The settings of the broker, ours or Apache Kafka."""
        names = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **dict.fromkeys(_RULES, "SASL_PLAINTEXT")}
        opened = ",".join(f"{name}://{self.address(name)}" for name in self.ports)
        return {
            "listeners": opened,
            "advertised.listeners": opened,
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in names.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": SERVICE,
            "delegation.token.secret.key": "token-sEcret",
            "super.users": "User:ANONYMOUS;User:ANNA",
            **{f"listener.name.{name.lower()}.sasl.kerberos.principal.to.local.rules": _RULES[name] for name in _RULES},
            **{
                f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": by_key_tab(
                    self.key_tabs[f"{SERVICE}/{HOST}"], f"{SERVICE}/{HOST}@{REALM}"
                )
                for name in _RULES
            },
        }


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kdc, dict[str, Path]]]:
    need_kdc()
    with Kdc(tmp_path_factory.mktemp("kdc")) as kdc, pytest.MonkeyPatch.context() as patch:
        java = f"{os.environ.get('PEERS_JAVA_OPTIONS', '')} -Djava.security.krb5.conf={kdc.configuration}"
        for name, value in {**kdc.environment, "PEERS_JAVA_OPTIONS": java}.items():
            patch.setenv(name, value)
        yield kdc, {principal: kdc.key_tab(principal) for principal in _USERS}


@contextmanager
def _broker(release: str, directory: Path, realm: tuple[Kdc, dict[str, Path]]) -> Iterator[Place]:
    """This broker, or Apache Kafka."""
    place = Place(*realm)
    authorizers = {"4": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    settings = place.settings()
    settings["authorizer.class.name"] = authorizers.get(release[0], "kafka.security.authorizer.AclAuthorizer")
    if release == "ours":
        with BrokerProcess(directory / release, settings=settings):
            yield place
        return
    need("java", "mvn")
    quorum = free_port()
    if release >= "4":
        settings["listeners"] += f",CONTROLLER://127.0.0.1:{quorum}"
    kafka = ApacheKafka(release, directory / release, zookeeper=release < "4", settings=settings)
    kafka.ports, kafka.quorum = [place.ports["PLAINTEXT"]], [quorum]
    try:
        kafka.start()
        yield place
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, realm: tuple[Kdc, dict[str, Path]]) -> Iterator[Place]:
    with _broker("ours", tmp_path_factory.mktemp("ours"), realm) as made:
        assert kafka_topics(["--bootstrap-server", made.address("PLAINTEXT"), "--create", "--topic", _TOPIC]) == 0
        yield made


async def _user(place: Place, listener: str, principal: str) -> str:
    """The user that a broker knows our client as: the owner of the token that the client asks for."""
    cluster = Cluster(place.address(listener), client_config(ADMIN_SETTINGS, place.login(principal)))
    try:
        return str((await Admin(cluster).create_delegation_token()).token.owner)
    finally:
        await cluster.close()


async def _refusal(place: Place) -> str:
    """The sentence that our client gets when it asks for a service that no ticket is for."""
    login = place.login("anna") | {"sasl.kerberos.service.name": "web"}
    cluster = Cluster(place.address("LOUD"), client_config(ADMIN_SETTINGS, login))
    try:
        with pytest.raises(SaslAuthenticationFailedError) as caught:
            await cluster.topics()
        return str(caught.value)
    finally:
        await cluster.close()


@pytest.mark.parametrize("release", ["ours", pytest.param("3.9.1", marks=_HOUR), pytest.param("4.3.1", marks=_HOUR)])
def test_our_client_is_the_same_user_at_each_broker(
    tmp_path: Path, realm: tuple[Kdc, dict[str, Path]], release: str
) -> None:
    async def users(place: Place) -> dict[str, dict[str, str]]:
        return {
            principal: {listener: await _user(place, listener, principal) for listener in names}
            for principal, names in _USERS.items()
        }

    with _broker(release, tmp_path, realm) as place:
        found = asyncio.run(users(place))
        assert "web/localhost" in asyncio.run(_refusal(place))
    assert found == {
        principal: {listener: f"User:{user}" for listener, user in names.items()} for principal, names in _USERS.items()
    }


def _topics_of_java(release: str, place: Place, listener: str, directory: Path, settings: dict[str, str]) -> str:
    """The words of kafka-topics --list."""
    need("java", "mvn")
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    where = ("--bootstrap-server", place.address(listener), "--command-config", str(file))
    done = subprocess.run(
        tool_command(release, "kafka-topics", *where, "--list"), capture_output=True, text=True, timeout=90
    )
    return done.stdout + done.stderr


_JAVA = pytest.mark.parametrize("release", [pytest.param(name, marks=_HOUR) for name in ("3.9.1", "4.3.1")])


@_JAVA
def test_a_java_client_logs_in_with_a_key_tab_and_is_the_user_of_the_rules(
    place: Place, tmp_path: Path, release: str
) -> None:
    """Only User:ANNA may see the topic."""
    assert _TOPIC in _topics_of_java(release, place, "LOUD", tmp_path, place.login("anna"))
    others = _topics_of_java(release, place, "PLAIN_RULES", tmp_path, place.login("anna"))
    assert _TOPIC not in others
    assert "xception" not in others


@_JAVA
def test_a_java_client_logs_in_with_a_ticket_cache(place: Place, tmp_path: Path, release: str) -> None:
    cache = place.kdc.cache("anna", place.key_tabs["anna"])
    # Java asks no one for a password.
    login = by_cache(cache).rstrip(";") + " doNotPrompt=true;"
    settings = place.login("anna") | {"sasl.jaas.config": login}
    assert _TOPIC in _topics_of_java(release, place, "LOUD", tmp_path, settings)


@_JAVA
def test_a_java_client_without_a_rule_is_told_that_its_login_failed(place: Place, tmp_path: Path, release: str) -> None:
    said = _topics_of_java(release, place, "FEW", tmp_path, place.login("ben/admin"))
    assert "SaslAuthenticationException" in said
    assert "SASL mechanism GSSAPI" in said


@pytest.mark.parametrize("release", [pytest.param(name, marks=_HOUR) for name in ("0.9.0.1", "0.10.2.2", "1.0.2")])
def test_an_old_java_producer_logs_in(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], release: str
) -> None:
    """0.9 begins with a token, 0.10 with SaslHandshake version 0; their messages have no headers."""
    need("java", "mvn")
    jaas, file = tmp_path / "jaas.conf", tmp_path / "client.properties"
    jaas.write_text(f"KafkaClient {{\n{by_key_tab(place.key_tabs['anna'], f'anna@{REALM}')}\n}};\n")
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.kerberos.service.name={SERVICE}\n")
    inside = "java.security.jgss/sun.security.krb5=ALL-UNNAMED"
    options = f" -Djava.security.auth.login.config={jaas} --add-opens {inside} --add-exports {inside}"
    monkeypatch.setenv("PEERS_JAVA_OPTIONS", os.environ["PEERS_JAVA_OPTIONS"] + options)
    where = ("--broker-list", place.address("LOUD"), "--topic", _TOPIC, "--producer.config", str(file))
    done = subprocess.run(
        tool_command(release, "kafka-console-producer", *where),
        input=f"of {release}\n",
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    capfd.readouterr()
    plain = ["--bootstrap-server", place.address("PLAINTEXT"), "--topic", _TOPIC, "--from-beginning"]
    assert kafka_console_consumer([*plain, "--timeout-ms", "2000"]) == 0
    assert f"of {release}" in capfd.readouterr().out.split("\n")


@pytest.mark.parametrize("name", ["confluent_kafka", "kafka", "aiokafka"])
def test_a_python_client_logs_in_with_a_ticket_cache(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """librdkafka's wheel has no Kerberos, and the two others need the package gssapi."""
    need_modules(name)
    if name != "confluent_kafka":
        pytest.importorskip("gssapi", reason="the package gssapi is not installed")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{place.kdc.cache('anna', place.key_tabs['anna'])}")
    done = subprocess.run(
        [sys.executable, "-m", "tests.peers.python.kerberos_client", name, place.address("LOUD"), SERVICE],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "No provider for SASL mechanism GSSAPI" in done.stderr:
        pytest.skip("confluent-kafka's wheel is built without GSSAPI")
    assert _TOPIC in done.stdout, done.stdout + done.stderr
