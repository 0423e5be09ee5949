"""Delegation tokens on this broker and on Apache Kafka: the same requests have the same outcomes, with and without
rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka, free_port
from tests.processes.broker.token_scenario import RIGHTS, SETTINGS, Outcome, outcomes, without_tokens

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(240), pytest.mark.hour("src/jesenska/security")]

_AUTHORIZERS = {
    "3.9.1": "kafka.security.authorizer.AclAuthorizer",
    "4.3.1": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "ours": "kafka.security.authorizer.AclAuthorizer",
}


@contextmanager
def _broker(name: str, directory: Path, settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The addresses of a broker's listeners: PLAINTEXT and SASL_PLAINTEXT."""
    plain, secured, quorum = free_port(), free_port(), free_port()
    opened = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}"
    settings = settings | {"listeners": opened}
    addresses = f"127.0.0.1:{plain}", f"127.0.0.1:{secured}"
    if name == "ours":
        with BrokerProcess(directory / name, settings=settings):
            yield addresses
        return
    settings |= {
        "advertised.listeners": opened,
        "listener.security.protocol.map": ",".join(
            ("PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT", "CONTROLLER:PLAINTEXT")
        ),
    }
    if name >= "4":
        settings["listeners"] += f",CONTROLLER://127.0.0.1:{quorum}"
    kafka = ApacheKafka(name, directory / name, zookeeper=name < "4", settings=settings)
    kafka.ports, kafka.quorum = [plain], [quorum]
    try:
        kafka.start()
        yield addresses
    finally:
        kafka.stop()


@pytest.mark.parametrize("has_rights", [False, True])
def test_tokens_have_the_same_outcomes(tmp_path: Path, has_rights: bool) -> None:
    need("java", "mvn")
    found: dict[str, list[Outcome]] = {}
    for name, authorizer in _AUTHORIZERS.items():
        settings = SETTINGS | (RIGHTS | {"authorizer.class.name": authorizer} if has_rights else {})
        with _broker(name, tmp_path, settings) as addresses:
            found[name] = list(outcomes(*addresses))
    _compare(found)


def test_a_broker_without_a_secret_refuses_tokens_alike(tmp_path: Path) -> None:
    need("java", "mvn")
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith("delegation.")}
    found: dict[str, list[Outcome]] = {}
    for name in _AUTHORIZERS:
        with _broker(name, tmp_path, settings) as addresses:
            found[name] = list(without_tokens(addresses[1]))
    _compare(found)


def _compare(found: dict[str, list[Outcome]]) -> None:
    """Fails for each outcome of ours that neither release has."""
    different = {
        ours.what: {"ours": ours.answer, "3.9.1": older.answer, "4.3.1": newer.answer}
        for ours, older, newer in zip(found["ours"], found["3.9.1"], found["4.3.1"], strict=True)
        if ours not in (older, newer)
    }
    assert not different, json.dumps(different, indent=1)
