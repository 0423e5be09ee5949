"""kafka-streams-application-reset: the offsets that it sets, the topics and members that it deletes and removes, and
the rest, which stays as it is."""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path

import pytest

from jesenska.cli.kafka.groups import kafka_consumer_groups, kafka_streams_application_reset
from jesenska.cli.kafka.records import kafka_console_producer
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool, tool_process

RESET = kafka_streams_application_reset.main
INTERNAL = (
    "-s-changelog",
    "-x-repartition",
    "-j-subscription-response-topic",
    "-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
)


@pytest.fixture
def application(at: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An application id. There are a topic `<id>.in` of two partitions with ten records, internal topics and a topic
    of the user."""
    name: str = request.node.name.partition("[")[0].replace("_", "-")[:60]
    for topic in (
        f"{name}.in",
        f"{name}-of-the-user",
        f"other-{name}-x-repartition",
        *(name + ending for ending in INTERNAL),
    ):
        at(kafka_topics.main, "--create", "--topic", topic, "--partitions", "2")
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\t{number}\n" for number in range(10)))
    with file.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert at(kafka_console_producer.main, "--topic", f"{name}.in", "--property", "parse.key=true").code == 0
    return name


def committed(at: Tool, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of the group, by partition."""
    rows = [line.split() for line in at(kafka_consumer_groups.main, "--describe", "--group", group, "--offsets").lines]
    return {int(row[2]): int(row[3]) for row in rows if row[1:2] == [topic]}


def topics_of(at: Tool, name: str) -> set[str]:
    return {topic for topic in at(kafka_topics.main, "--list").lines if name in topic}


def test_internal_topics_go_and_all_others_stay(at: Tool, application: str) -> None:
    before = topics_of(at, application)
    tried = at(RESET, "--application-id", application, "--dry-run")
    assert (tried.code, tried.lines[0]) == (
        0,
        "----Dry run displays the actions which will be performed when running Streams Reset Tool----",
    )
    assert topics_of(at, application) == before
    done = at(RESET, "--application-id", application)
    internal = sorted(application + ending for ending in INTERNAL)
    assert done.lines == [
        "No input or intermediate topics specified. Skipping seek.",
        f"Deleting inferred internal topics [{', '.join(internal)}]",
        "Done.",
    ]
    assert "--state-dir" in done.err
    assert before - topics_of(at, application) == set(internal)


def test_only_the_internal_topics_that_are_named_go(at: Tool, application: str) -> None:
    before = topics_of(at, application)
    refused = at(RESET, "--application-id", application, "--internal-topics", f"{application}-of-the-user")
    assert (refused.code, refused.out) == (1, "")
    assert f"{application}-s-changelog" in refused.err
    assert at(RESET, "--application-id", application, "--internal-topics", f"{application}-s-changelog").code == 0
    assert before - topics_of(at, application) == {f"{application}-s-changelog"}


def test_input_topics_begin_where_it_is_said_and_intermediate_topics_end(
    at: Tool, application: str, tmp_path: Path
) -> None:
    topic, flags = f"{application}.in", ("--application-id", application, "--input-topics", f"{application}.in")
    assert at(RESET, "--application-id", application, "--intermediate-topics", topic).code == 0
    ends = committed(at, application, topic)
    assert sum(ends.values()) == 10
    assert at(RESET, *flags).code == 0
    assert committed(at, application, topic) == {0: 0, 1: 0}
    assert at(RESET, *flags, "--to-offset", "2").code == 0
    assert committed(at, application, topic) == {number: min(2, end) for number, end in ends.items()}
    assert at(RESET, *flags, "--shift-by", "1").code == 0
    assert committed(at, application, topic) == {number: min(3, end) for number, end in ends.items()}
    assert at(RESET, *flags, "--to-latest").code == 0
    assert committed(at, application, topic) == ends
    file = tmp_path / "offsets"
    file.write_text(f"{topic},1,1\n")
    assert at(RESET, *flags, "--from-file", str(file), "--dry-run", "--output", "json").lines == [
        json.dumps(
            {
                "dryRun": True,
                "offsets": [{"topic": topic, "partition": 1, "offset": 1}],
                "deletedTopics": [],
                "missingTopics": [],
                "removedState": False,
            },
            separators=(",", ":"),
        )
    ]
    assert at(RESET, *flags, "--from-file", str(file)).code == 0
    assert committed(at, application, topic) == {**ends, 1: 1}


def test_an_unknown_topic_is_named_and_the_rest_is_done(at: Tool, application: str) -> None:
    done = at(RESET, "--application-id", application, "--input-topics", f"nowhere,{application}.in")
    assert done.code == 1
    assert done.lines[1:3] == ["Following input topics are not found, skipping them", "Topic: nowhere"]
    assert committed(at, application, f"{application}.in") == {0: 0, 1: 0}


def test_a_running_application_is_left_alone_unless_its_members_are_removed_by_force(
    tool: Tool, fast_broker: BrokerProcess
) -> None:
    def at(*arguments: str) -> tuple[int, str, str]:
        result = tool(RESET, "--bootstrap-server", fast_broker.bootstrap, *arguments)
        return result.code, result.out, result.err

    topic = "reset.busy"
    tool(kafka_topics.main, "--bootstrap-server", fast_broker.bootstrap, "--create", "--topic", topic)
    tool(kafka_topics.main, "--bootstrap-server", fast_broker.bootstrap, "--create", "--topic", "busy-x-repartition")
    with tool_process(fast_broker, "kafka_verifiable_consumer", "--topic", topic, "--group-id", "busy") as member:
        assert member.stdout is not None
        assert any(b"partitions_assigned" in line for line in iter(member.stdout.readline, b""))
        code, out, err = at("--application-id", "busy", "--input-topics", topic)
        assert (code, out) == (1, "")
        assert "--force" in err
        code, out, _ = at("--application-id", "busy", "--force", "--dry-run")
        assert (code, out.splitlines()[1]) == (0, "Force deleting all active members in the group: busy")
        assert at("--application-id", "busy")[0] == 1
        member.kill()
        member.wait()
        assert at("--application-id", "busy", "--input-topics", topic, "--force")[0] == 0
    assert (
        "busy-x-repartition" not in tool(kafka_topics.main, "--bootstrap-server", fast_broker.bootstrap, "--list").lines
    )


def test_state_goes_with_state_dir_but_not_while_the_application_runs(
    at: Tool, application: str, tmp_path: Path
) -> None:
    flags = ("--application-id", application, "--state-dir", str(tmp_path))
    state = tmp_path / application
    assert at(RESET, *flags, "--internal-topics", f"{application}-s-changelog").lines[1] == "There is none."
    (state / "0" / "stores").mkdir(parents=True)
    (state / "0" / "stores" / "0.state").write_bytes(b"state")
    (state / "topology").write_text("Topologies:")
    strange = at(RESET, *flags)
    assert (strange.code, state.exists()) == (1, True)
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = at(RESET, *flags)
        assert (refused.code, "uses the state in" in refused.err, state.exists()) == (1, True, True)
        assert f"{application}-x-repartition" in topics_of(at, application)
    assert at(RESET, *flags, "--dry-run").code == 0
    assert state.exists()
    assert at(RESET, *flags).lines[:2] == [f"Removing the state in {state}", "Done."]
    assert list(tmp_path.glob(f"{application}*")) == []
    assert f"{application}-x-repartition" not in topics_of(at, application)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--application-id"),
        (["--application-id", "../up"], "not the id"),
        (["--application-id", "a", "--to-latest", "--to-offset", "1"], "can't be used"),
        (["--application-id", "a", "--input-topics", "b", "--to-offset", "x"], "not an offset"),
    ],
)
def test_a_mistake_is_one_sentence(at: Tool, arguments: list[str], said: str) -> None:
    result = at(RESET, *arguments)
    assert (result.code, result.out) == (1, "")
    assert said in result.err
    assert len(result.err.splitlines()) == 1
