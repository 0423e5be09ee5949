"""A secured Apache Kafka is taken over: this broker on its ZooKeeper, and with its imported tree, does the same with
every user, access rule, quota and delegation token that Kafka's tools have made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from jesenska.cli.jesenska import main
from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need
from tests.conformance.secured import world
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.tools import Tools
from tests.peers.zookeeper import ZooKeeper

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

_USERS = ("--describe", "--entity-type", "users")


def _described(tools: Tools, address: str, directory: Path) -> list[str]:
    """The lines that Kafka's tool prints about users."""
    config = world.command_config(directory, "admin")
    done = tools.run("kafka-configs", "--bootstrap-server", address, "--command-config", str(config), *_USERS)
    assert done.code == 0, done
    for secret in ("salt", "stored_key", "server_key"):
        assert secret not in done.output
    return sorted(done.lines)


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {"ours": str(ours.get(name)), "theirs": str(theirs.get(name))}
        for name in {**ours, **theirs}
        if ours.get(name) != theirs.get(name)
    }


def _check(told: Mapping[str, Any]) -> None:
    """Some of the facts, so that the comparison is not one of failures."""
    assert told["anna by SCRAM-SHA-256 with 'anna-sEcret'"] == "NONE"
    assert told["anna by SCRAM-SHA-512 with 'wrong'"] == "SASL_AUTHENTICATION_FAILED"
    assert told["ben by SCRAM-SHA-256 with 'ben-sEcret'"] == "SASL_AUTHENTICATION_FAILED"
    assert told["anna: produce to ordinary"] == "NONE"
    assert told["ben: produce to orders"] == "TOPIC_AUTHORIZATION_FAILED"
    assert told["ben: fetch from secret"] == "TOPIC_AUTHORIZATION_FAILED"
    assert told[f"{world.ODD}: fetch from hosts"] == "NONE"
    assert told["anna: fetch from hosts"] == "TOPIC_AUTHORIZATION_FAILED"
    assert told["anna: offsets of g-denied"] == "NONE", "a denied Read does not deny Describe"
    assert told["anna: producer id of tx-1"] == "NONE"
    assert told["token 0 by SCRAM-SHA-256"] == "NONE"
    assert told["token 1 by SCRAM-SHA-512"] == "refused", "it has expired"
    assert told["token 2 by SCRAM-SHA-512"] == "NONE"
    assert told["anna is slowed down"] is True


def test_a_secured_cluster_is_taken_over(tmp_path: Path) -> None:
    need("java", "mvn")
    ports = world.Ports()
    address = ports.address
    with ZooKeeper(tmp_path) as zookeeper, Tools("3.9.1") as tools:
        where = f"127.0.0.1:{zookeeper.port}"
        settings = world.settings(ports)
        world.make_broker_user(tools, where)
        kafka = ApacheKafka(
            "3.9.1", tmp_path / "kafka", heap="400m", zookeeper_connect=where, first_id=1, settings=settings
        )
        kafka.ports = [ports.plain]
        with kafka:
            world.make(tools, address, tmp_path)
            kept = world.kept(address)
            told = world.observe(address, kept["tokens"])
            described = _described(tools, address, tmp_path)
            _check(told)
        data = tmp_path / "kafka" / "data-0"
        settings |= {"broker.id": "1", "offsets.topic.replication.factor": "1"}
        settings |= {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
        found: dict[str, Any] = {}

        def compare(side: str) -> None:
            for name, ours, theirs in (
                ("kept", world.kept(address), kept),
                ("told", world.observe(address, kept["tokens"]), told),
                ("described", dict.fromkeys(_described(tools, address, tmp_path)), dict.fromkeys(described)),
            ):
                if different := _differences(ours, theirs):
                    found[f"{side}, {name}"] = different

        with BrokerProcess(data, settings=settings | {"zookeeper.connect": where}):
            compare("on ZooKeeper")
        assert main(["import", str(data), "--zookeeper", where]) == 0
        with BrokerProcess(data, settings=settings):
            compare("imported")
    assert not found, json.dumps(found, indent=1, ensure_ascii=False)
