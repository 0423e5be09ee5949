"""kafka-verifiable-producer and -consumer against a broker of ours. The conformance tests compare their lines with
those of Apache Kafka's tools."""

from __future__ import annotations

import json
import signal
import socket
from typing import Any

import pytest

from jesenska.cli.kafka.records import kafka_verifiable_consumer, kafka_verifiable_producer
from jesenska.cli.kafka.topics import kafka_get_offsets, kafka_topics
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Main, Result, Tool, process_of, tool_process


@pytest.fixture
def at(tool: Tool, fast_broker: BrokerProcess) -> Tool:
    """Tools for a broker whose groups start at once."""

    def run(main: Main, *arguments: str) -> Result:
        return tool(main, "--bootstrap-server", fast_broker.bootstrap, *arguments)

    return run


@pytest.fixture
def topic(at: Tool, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.partition("[")[0].replace("_", "-")[:100]
    at(kafka_topics.main, "--create", "--topic", name, "--partitions", "2")
    return name


def events(result: Result) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.lines]
    times = [event.pop("timestamp") for event in found]
    assert times == sorted(times)
    return found


def test_each_number_is_acknowledged_and_read_back(at: Tool, topic: str) -> None:
    produced = at(
        kafka_verifiable_producer.main,
        "--topic",
        topic,
        "--max-messages",
        "1000",
        "--repeating-keys",
        "7",
        "--value-prefix",
        "3",
    )
    assert produced.code == 0
    first, *sent, last, data = events(produced)
    assert [first, last] == [{"name": "startup_complete"}, {"name": "shutdown_complete"}]
    assert {event["name"] for event in sent} == {"producer_send_success"}
    assert sorted(event["value"] for event in sent) == sorted(f"3.{number}" for number in range(1000))
    assert {event["key"] for event in sent} == {str(number) for number in range(7)}
    assert data["avg_throughput"] > 0
    assert data | {"avg_throughput": 0} == {
        "name": "tool_data",
        "sent": 1000,
        "acked": 1000,
        "target_throughput": -1,
        "avg_throughput": 0,
    }

    group = ["--topic", topic, "--group-id", topic, "--verbose"]
    rows = []
    for count in (300, 700):
        read = at(kafka_verifiable_consumer.main, *group, "--max-messages", str(count))
        assert read.code == 0
        names = [event["name"] for event in events(read)]
        assert (names[0], names[1], names[-2], names[-1]) == (
            "startup_complete",
            "partitions_assigned",
            "partitions_revoked",
            "shutdown_complete",
        )
        rows += [event for event in events(read) if event["name"] == "record_data"]
        consumed = [event for event in events(read) if event["name"] == "records_consumed"]
        assert (
            sum(event["count"] for event in consumed)
            == count
            == sum(part["count"] for event in consumed for part in event["partitions"])
        )
        committed = [event for event in events(read) if event["name"] == "offsets_committed"]
        assert len(committed) == len(consumed)
        assert all(event["success"] for event in committed)
    assert sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in rows) == sorted(
        (event["partition"], event["offset"], event["key"], event["value"]) for event in sent
    )


def test_creation_times_begin_where_they_were_told_to(at: Tool, topic: str) -> None:
    assert (
        at(
            kafka_verifiable_producer.main,
            "--topic",
            topic,
            "--max-messages",
            "3",
            "--message-create-time",
            "1000",
            "--throughput",
            "1000",
        ).code
        == 0
    )
    early = at(kafka_get_offsets.main, "--topic", topic, "--time", "1000").lines
    late = at(kafka_get_offsets.main, "--topic", topic, "--time", "1700000000000").lines
    assert early
    assert not late


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_both_in_order(fast_broker: BrokerProcess, topic: str, number: signal.Signals) -> None:
    for name, more, wanted, last in (
        (
            "kafka_verifiable_producer",
            ["--throughput", "100"],
            "producer_send_success",
            ["shutdown_complete", "tool_data"],
        ),
        (
            "kafka_verifiable_consumer",
            ["--group-id", f"{topic}-{number}"],
            "offsets_committed",
            ["shutdown_requested", "partitions_revoked", "shutdown_complete"],
        ),
    ):
        with tool_process(fast_broker, name, "--topic", topic, *more) as running:
            assert running.stdout is not None
            names: list[str] = []
            for line in running.stdout:
                names.append(json.loads(line)["name"])
                if names[-1] == wanted and names.count(wanted) == 1:
                    running.send_signal(number)
            assert running.wait() == 128 + number
        assert names[-len(last) :] == last


def test_a_signal_ends_a_producer_that_waits_for_a_broker() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{nobody.getsockname()[1]}"
        with process_of(
            "kafka_verifiable_producer", "--bootstrap-server", bootstrap, "--topic", "never", "--max-messages", "1"
        ) as running:
            assert running.stdout is not None
            said = [json.loads(running.stdout.readline())]
            running.send_signal(signal.SIGTERM)
            said += [json.loads(line) for line in running.stdout]
            assert running.wait() == 128 + signal.SIGTERM
    assert [line["name"] for line in said] == ["startup_complete", "shutdown_complete", "tool_data"]
    assert said[-1]["sent"] == 0


def test_a_missing_topic_is_created_or_said_to_be_missing(at: Tool) -> None:
    made = at(kafka_verifiable_producer.main, "--topic", "bad name", "--max-messages", "1")
    assert made.code == 1
    assert [event["name"] for event in events(made)] == [
        "startup_complete",
        "producer_send_error",
        "shutdown_complete",
        "tool_data",
    ]


@pytest.mark.parametrize(
    "arguments", [["--group-protocol", "consumer"], ["--assignment-strategy", "nonsense"], ["--session-timeout", "1"]]
)
def test_what_cannot_be_is_one_sentence(at: Tool, topic: str, arguments: list[str]) -> None:
    refused = at(kafka_verifiable_consumer.main, "--topic", topic, "--group-id", "g", *arguments)
    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1
