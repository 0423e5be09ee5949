"""kafka-topics against a broker of ours: Kafka's output, its exit codes, and one sentence for each error."""

from __future__ import annotations

import json
import re

import pytest

from jesenska.cli.kafka.topics.kafka_topics import main
from tests.processes.cli.conftest import Tool


def test_create_says_so_and_describe_shows_kafkas_lines(at: Tool) -> None:
    assert at(main, "--create", "--topic", "shown", "--partitions", "2", "--config", "retention.ms=-1").lines == [
        "Created topic shown."
    ]
    described = at(main, "--describe", "--topic", "shown")
    assert described.code == 0
    head, *partitions = described.lines
    assert re.fullmatch(
        r"Topic: shown\tTopicId: [A-Za-z0-9_-]{22}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention\.ms=-1",
        head,
    )
    assert partitions == [
        f"\tTopic: shown\tPartition: {number}\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
        for number in (0, 1)
    ]


def test_json_holds_what_the_text_says(at: Tool) -> None:
    at(main, "--create", "--topic", "as-json", "--partitions", "1", "--config", "cleanup.policy=compact")
    (topic,) = json.loads(at(main, "--describe", "--topic", "as-json", "--output", "json").out)
    assert topic["topic"] == "as-json"
    assert topic["configs"] == {"cleanup.policy": "compact"}
    assert topic["partitions"] == [
        {"partition": 0, "leader": 1, "replicas": [1], "isr": [1], "elr": [], "lastKnownElr": []}
    ]


def test_topic_is_described_by_its_id(at: Tool) -> None:
    at(main, "--create", "--topic", "by-id")
    identifier = json.loads(at(main, "--describe", "--topic", "by-id", "--output", "json").out)[0]["topicId"]
    assert at(main, "--describe", "--topic-id", identifier).out.startswith("Topic: by-id\t")
    assert "does not exist" in at(main, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAg").err
    assert "22 characters" in at(main, "--describe", "--topic-id", "xyz").err


def test_list_takes_patterns_and_a_comma_for_several(at: Tool) -> None:
    for name in ("list-a", "list-b", "list-c1"):
        at(main, "--create", "--topic", name)
    assert at(main, "--list", "--topic", "list-[ab]").lines == ["list-a", "list-b"]
    assert at(main, "--list", "--topic", "list-a,list-c.*").lines == ["list-a", "list-c1"]
    assert {"list-a", "list-b", "list-c1"} <= set(at(main, "--list").lines)
    assert json.loads(at(main, "--list", "--topic", "list-c.*", "--output", "json").out) == ["list-c1"]


def test_list_without_a_match_prints_an_empty_line_as_kafkas_tool_does(at: Tool) -> None:
    result = at(main, "--list", "--topic", "there-is-none-of-this-name")
    assert (result.code, result.out) == (0, "\n")


def test_a_second_create_fails_unless_told_that_the_topic_may_exist(at: Tool) -> None:
    at(main, "--create", "--topic", "twice")
    again = at(main, "--create", "--topic", "twice")
    assert (again.code, again.out, again.err) == (1, "", "kafka-topics: Topic 'twice' already exists.\n")
    allowed = at(main, "--create", "--topic", "twice", "--if-not-exists")
    assert (allowed.code, allowed.out, allowed.err) == (0, "", "")


def test_create_with_a_replica_assignment_sets_partitions_and_replicas(at: Tool) -> None:
    assert at(main, "--create", "--topic", "assigned", "--replica-assignment", "1,1,1").code == 0
    assert "PartitionCount: 3\tReplicationFactor: 1" in at(main, "--describe", "--topic", "assigned").out


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("1,1:2", "Partition 1 has different replication factor"),
        ("x", "not a list of broker ids"),
        ("1:1", "duplicate entries"),
        ("", "not a list"),
    ],
)
def test_a_wrong_replica_assignment_is_explained(at: Tool, assignment: str, says: str) -> None:
    result = at(main, "--create", "--topic", "misassigned", "--replica-assignment=" + (assignment or ","))
    assert (result.code, says in result.err) == (1, True)


def test_alter_raises_partitions_and_refuses_fewer(at: Tool) -> None:
    at(main, "--create", "--topic", "grows", "--partitions", "2")
    grown = at(main, "--alter", "--topic", "grows", "--partitions", "4")
    assert (grown.code, grown.out) == (0, "")
    assert "PartitionCount: 4" in at(main, "--describe", "--topic", "grows").out
    shrunk = at(main, "--alter", "--topic", "grows", "--partitions", "3")
    assert (shrunk.code, shrunk.err) == (
        1,
        "kafka-topics: The topic grows currently has 4 partition(s); 3 would not be an increase.\n",
    )


def test_delete_takes_every_topic_that_the_pattern_matches(at: Tool) -> None:
    for name in ("gone-1", "gone-2", "gone-stays"):
        at(main, "--create", "--topic", name)
    assert at(main, "--delete", "--topic", r"gone-\d").code == 0
    assert at(main, "--list", "--topic", "gone-.*").lines == ["gone-stays"]


@pytest.mark.parametrize("action", [["--describe"], ["--delete"], ["--alter", "--partitions", "3"]])
def test_a_missing_topic_fails_unless_if_exists_is_given(at: Tool, action: list[str]) -> None:
    result = at(main, *action, "--topic", "missing-topic")
    assert result.code == 1
    assert (
        result.err
        == "kafka-topics: Topic 'missing-topic' does not exist as expected: kafka-topics --list shows those that do.\n"
    )
    assert at(main, *action, "--topic", "missing-topic", "--if-exists").code == 0


def test_filters_of_partitions_show_those_lines_only(at: Tool) -> None:
    at(main, "--create", "--topic", "filtered", "--config", "min.insync.replicas=2")
    at(main, "--create", "--topic", "filtered-plain")
    line = "\tTopic: filtered\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    assert at(main, "--describe", "--topic", "filtered.*", "--under-min-isr-partitions").lines == [line]
    assert at(main, "--describe", "--topic", "filtered.*", "--at-min-isr-partitions").lines == [
        line.replace("filtered", "filtered-plain")
    ]
    assert at(main, "--describe", "--topic", "filtered.*", "--under-replicated-partitions").out == ""
    assert at(main, "--describe", "--topic", "filtered.*", "--unavailable-partitions").out == ""
    overridden = at(main, "--describe", "--topic", "filtered.*", "--topics-with-overrides")
    assert len(overridden.lines) == 1
    assert overridden.out.startswith("Topic: filtered\t")


def test_a_name_that_could_collide_in_metrics_is_warned_about(at: Tool) -> None:
    warning, created = at(main, "--create", "--topic", "with.period").lines
    assert warning.startswith("WARNING: Due to limitations in metric names")
    assert created == "Created topic with.period."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--create", "--topic", "bad topic"], "bad topic"),
        (["--create", "--topic", "t", "--replication-factor", "3"], "replication factor of 3"),
        (["--create", "--topic", "t", "--config", "foo=bar"], "Unknown topic config name: foo"),
        (
            ["--create", "--topic", "t", "--config", "retention.ms=bar"],
            "Invalid value bar for configuration retention.ms",
        ),
        (["--create", "--topic", "t", "--config", "foo"], "write name=value"),
        (["--create", "--topic", "t", "--partitions", "0"], "greater than 0"),
        (["--create", "--topic", "t", "--replication-factor", "0"], "between 1 and 32767"),
        (["--create", "--topic", "t", "--partitions", "2", "--replica-assignment", "1"], "can't be used with"),
        (["--create", "--topic", "t", "--if-exists"], "can't be used with --create"),
        (["--alter", "--topic", "t", "--partitions", "2", "--config", "a=b"], "kafka-configs"),
        (["--alter", "--topic", "t"], "--partitions"),
        (["--delete"], "--topic"),
        (["--create"], "--topic"),
        (["--list", "--create"], "exactly one action"),
        (["--list", "--nonsense"], "--nonsense"),
        (["--list", "--topic", "("], "not a regular expression"),
        (["--describe", "--at-min-isr-partitions", "--unavailable-partitions"], "at a time"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_1(at: Tool, arguments: list[str], says: str) -> None:
    result = at(main, *arguments)
    assert (result.code, result.out) == (1, "")
    assert says in result.err
    assert result.err.count("\n") == 1
    assert at(main, "--list", "--topic", "t").out == "\n"


def test_without_arguments_the_options_are_printed(tool: Tool) -> None:
    result = tool(main)
    assert (result.code, "--under-replicated-partitions" in result.err) == (1, True)


def test_no_broker_named_and_a_dead_one_say_what_to_do(tool: Tool) -> None:
    assert "--bootstrap-server" in tool(main, "--list").err
    dead = tool(main, "--list", "--bootstrap-server", "127.0.0.1:1")
    assert (dead.code, dead.err.count("\n")) == (1, 1)
    assert "127.0.0.1:1" in dead.err


def test_a_large_topic_is_described_in_pages(at: Tool) -> None:
    at(main, "--create", "--topic", "paged", "--partitions", "7")
    described = at(main, "--describe", "--topic", "paged", "--partition-size-limit-per-response", "2")
    assert len(described.lines) == 8
    assert "N/A" not in described.out
