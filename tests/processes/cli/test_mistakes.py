"""Every tool prints one sentence with the remedy, and ends with an exit code other than 0: for wrong flags, an
unreachable broker, and a topic that does not exist."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool
from tests.tool_modules import module_of_tool

#: The arguments of each tool for a topic. @ is replaced by the broker, & by a file that names the topic.
ASKS = {
    "kafka_topics": "--bootstrap-server @ --describe --topic {}",
    "kafka_configs": "--bootstrap-server @ --describe --entity-type topics --entity-name {}",
    "kafka_console_consumer": "--bootstrap-server @ --topic {} --from-beginning --timeout-ms 100",
    "kafka_consumer_groups": "--bootstrap-server @ --describe --group {}",
    "kafka_get_offsets": "--bootstrap-server @ --topic {}",
    "kafka_delete_records": "--bootstrap-server @ --offset-json-file &",
    "kafka_leader_election": "--bootstrap-server @ --election-type preferred --topic {} --partition 0",
    "kafka_preferred_replica_election": "--bootstrap-server @ --path-to-json-file &",
    "kafka_replica_verification": "--bootstrap-server @ --topics-include {} --reports 1",
    "kafka_reassign_partitions": "--bootstrap-server @ --execute --reassignment-json-file &",
    "kafka_log_dirs": "--bootstrap-server @ --describe --topic-list {}",
    "kafka_streams_application_reset": "--bootstrap-server @ --application-id mistakes --input-topics {}",
    "kafka_features": "--bootstrap-server @ describe",
    "kafka_transactions": "--bootstrap-server @ describe-producers --topic {} --partition 0",
    "kafka_consumer_perf_test": "--bootstrap-server @ --topic {} --messages 1 --timeout 100",
    "kafka_verifiable_consumer": "--bootstrap-server @ --topic {} --group-id mistakes",
    "kafka_broker_api_versions": "--bootstrap-server @",
    "kafka_producer_perf_test": "--topic {} --num-records 1 --record-size 10 --throughput -1 --producer-props bootstrap.servers=@",  # noqa: E501
    "kafka_console_producer": "--bootstrap-server @ --topic {}",
}
#: These make the topic, wait for it, or ask for none.
WITHOUT_A_TOPIC = {
    "kafka_console_consumer",
    "kafka_features",
    "kafka_verifiable_consumer",
    "kafka_broker_api_versions",
    "kafka_log_dirs",
    "kafka_producer_perf_test",
    "kafka_console_producer",
}
OTHERS = (
    "kafka_server_start",
    "kafka_server_stop",
    "kafka_dump_log",
    "kafka_verifiable_producer",
    "zookeeper_server_start",
    "zookeeper_server_stop",
    "jesenska",
)


def main_of(name: str) -> Callable[[Sequence[str] | None], int]:
    found: Callable[[Sequence[str] | None], int] = importlib.import_module(module_of_tool(name)).main
    return found


def words(name: str, bootstrap: str, directory: Path) -> list[str]:
    file = directory / "offsets.json"
    file.write_text(
        json.dumps({"partitions": [{"topic": "never-was", "partition": 0, "offset": 1, "replicas": [0]}], "version": 1})
    )
    return [
        word.replace("@", bootstrap).replace("&", str(file)).replace("{}", "never-was") for word in ASKS[name].split()
    ]


def sentence(said: str) -> str:
    """The last line, which must begin with a name (Kafka's own tool for groups prints Error) and end with a full
    stop."""
    assert "Traceback" not in said
    line = said.strip().splitlines()[-1]
    name, colon, text = line.partition(": ")
    assert colon
    assert name.startswith(("kafka-", "Error"))
    assert text.endswith(".")
    return text


@pytest.mark.parametrize("name", [*ASKS, *OTHERS])
def test_a_flag_that_there_is_not(tool: Tool, name: str) -> None:
    result = tool(main_of(name), *(["up"] if name == "jesenska" else []), "--nonsense")
    assert result.code == 1
    assert "Traceback" not in result.err
    assert "--help lists the options" in result.err


@pytest.mark.parametrize("name", ASKS)
def test_a_broker_that_is_not_there(tool: Tool, tmp_path: Path, name: str) -> None:
    result = tool(main_of(name), *words(name, "127.0.0.1:1", tmp_path))
    assert result.code == 1
    said = sentence(result.err)
    assert "No broker answers at 127.0.0.1:1" in said
    assert "start one there, or name another with" in said


@pytest.mark.parametrize("name", [name for name in ASKS if name not in WITHOUT_A_TOPIC])
def test_a_topic_that_is_not_there(tool: Tool, broker: BrokerProcess, tmp_path: Path, name: str) -> None:
    result = tool(main_of(name), *words(name, broker.bootstrap, tmp_path))
    assert result.code == 1
    said = sentence(result.err)
    assert "never-was" in said or "kafka-topics --describe shows those that exist" in said
