"""kafka-broker-api-versions against a broker of ours. The conformance tests compare its output with Apache Kafka's
tool."""

from __future__ import annotations

import json
import socket

from jesenska.cli.kafka.cluster import kafka_broker_api_versions
from jesenska.wire.registry import APIS
from tests.processes.cli.conftest import Tool


def test_each_api_has_its_line(at: Tool) -> None:
    found = at(kafka_broker_api_versions.main)
    assert found.code == 0
    assert found.lines[0].endswith(" (id: 1 rack: null isFenced: false) -> (")
    assert "\tProduce(0): 0 to 13 [usable: 13]," in found.lines
    assert "\tOffsetDelete(47): 0 [usable: 0]," in found.lines
    assert "\tSaslHandshake(17): 0 to 1 [usable: 1]," in found.lines
    assert "\tSaslAuthenticate(36): 0 to 2 [usable: 2]," in found.lines
    assert "\tGetTelemetrySubscriptions(71): UNSUPPORTED," in found.lines
    assert found.lines[-2] == ")"


def test_json_has_what_a_program_needs(at: Tool) -> None:
    (broker,) = json.loads(at(kafka_broker_api_versions.main, "--output", "json").out)
    assert broker["id"] == 1
    apis = {api["key"]: api for api in broker["apis"]}
    assert apis[1] == {"key": 1, "name": "Fetch", "min": 0, "max": APIS[1].max_version, "usable": APIS[1].max_version}


def test_a_dead_broker_is_one_sentence(tool: Tool) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        found = tool(kafka_broker_api_versions.main, "--bootstrap-server", f"127.0.0.1:{bound.getsockname()[1]}")
    assert found.code == 1
    assert not found.out
    assert len(found.err.splitlines()) == 1
