"""kafka-leader-election against a broker of ours."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError
from jesenska.cli.kafka.cluster import kafka_leader_election
from jesenska.cli.shared.java_names import java_text
from jesenska.cli.shared.json_files import read_partitions
from jesenska.testing import BrokerProcess
from tests.processes.broker.test_elections import HERE, state, write_topic
from tests.processes.broker.test_shared_tree import broker_on, on
from tests.processes.broker.test_shared_tree import tool as tree_tool
from tests.processes.cli.conftest import Result, Tool
from tests.processes.cli.groups import fill
from tests.served_tree import served


def elect(at: Tool, kind: str, *arguments: str) -> Result:
    return at(kafka_leader_election.main, "--election-type", kind, *arguments)


def file_of(directory: Path, content: Any) -> str:
    file = directory / "partitions.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


@pytest.mark.parametrize("kind", ["preferred", "unclean", "PREFERRED"])
def test_partitions_that_are_led_need_no_election(at: Tool, broker: BrokerProcess, tmp_path: Path, kind: str) -> None:
    topic = f"elections-{kind}"
    fill(broker, topic, 3, 0)
    assert elect(at, kind, "--topic", topic, "--partition", "1") == Result(
        0, f"Valid replica already elected for partitions {topic}-1\n", ""
    )
    named = file_of(tmp_path, {"partitions": [{"topic": topic, "partition": number} for number in (2, 0)]})
    assert elect(at, kind, "--path-to-json-file", named).lines == [
        f"Valid replica already elected for partitions {topic}-0, {topic}-2"
    ]
    assert elect(at, kind, "--all-topic-partitions") == Result(0, "", "")
    answer = elect(at, kind, "--topic", topic, "--partition", "1", "--output", "json")
    assert json.loads(answer.out) == [{"topic": topic, "partition": 1, "elected": False, "needed": False}]


def test_a_partition_that_does_not_exist_is_told_as_kafkas_tool_tells_it(
    at: Tool, broker: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker, "elections", 1, 0)
    named = file_of(
        tmp_path,
        {
            "partitions": [
                {"topic": topic, "partition": number}
                for topic, number in (("elections", 0), ("elections", 7), ("nope", 0))
            ]
        },
    )
    result = elect(at, "preferred", "--path-to-json-file", named)
    unknown = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"
    assert result.code == 1
    assert result.lines == [
        "Valid replica already elected for partitions elections-0",
        (
            f"Error completing leader election (PREFERRED) for partition: elections-7: {unknown}: No such partition as "
            f"elections-7"
        ),
        f"Error completing leader election (PREFERRED) for partition: nope-0: {unknown}: No such topic as nope",
    ]
    assert (
        result.err
        == "kafka-leader-election: 2 replica(s) could not be elected (elections-7: No such partition as elections-7).\n"
    )
    answer = json.loads(elect(at, "preferred", "--path-to-json-file", named, "--output", "json").out)
    assert answer[2] == {
        "topic": "nope",
        "partition": 0,
        "elected": False,
        "needed": True,
        "error": unknown,
        "message": "No such topic as nope.",
    }


def test_an_unclean_election_gives_a_leader_to_a_partition_that_has_none(tool: Tool, tmp_path: Path) -> None:
    """The tree has a topic whose in-sync replica is on a broker that does not return."""

    async def main() -> None:
        async with served() as server, tree_tool(f"127.0.0.1:{server.port}") as store:
            await write_topic(store, (5, HERE), (5,))
            async with broker_on(tmp_path, on(server)) as broker:
                host, port = broker.endpoint_for("PLAINTEXT")

                async def ask(kind: str) -> Result:
                    arguments = [
                        "--bootstrap-server",
                        f"{host}:{port}",
                        "--election-type",
                        kind,
                        "--all-topic-partitions",
                    ]
                    return await asyncio.to_thread(tool, kafka_leader_election.main, *arguments)

                refused = await ask("preferred")
                assert refused.code == 1
                assert refused.lines == [
                    "Error completing leader election (PREFERRED) for partition: t-0: org.apache.kafka.common.errors."
                    "PreferredLeaderNotAvailableException: The preferred leader was not available."
                ]
                assert (await state(store))[0] == -1
                assert await ask("unclean") == Result(
                    0, "Successfully completed leader election (UNCLEAN) for partitions t-0\n", ""
                )
                assert (await state(store))[0] == HERE
                assert await ask("unclean") == Result(0, "", "")

    asyncio.run(main())


_ONE = ["--topic", "t", "--partition", "0"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (_ONE, "Missing required option(s): --election-type"),
        (["--election-type", "sideways", *_ONE], "invalid choice: 'sideways'"),
        (["--election-type", "preferred"], "One and only one of the following options is required"),
        (
            ["--election-type", "preferred", *_ONE, "--all-topic-partitions"],
            "One and only one of the following options is required",
        ),
        (["--election-type", "preferred", "--topic", "t"], "Missing required option(s): --partition"),
        (
            ["--election-type", "preferred", "--all-topic-partitions", "--partition", "0"],
            "--partition is only allowed if --topic is used",
        ),
        (
            ["--election-type", "preferred", "--topic", "t", "--partition", "-1"],
            "--partition -1 is not the number of a partition",
        ),
        (
            ["--election-type", "preferred", "--topic", "t", "--partition", "2147483648"],
            "is not the number of a partition",
        ),
        (
            ["--election-type", "preferred", *_ONE, "--admin.config", "a", "--command-config", "b"],
            "--admin.config can't be used with --command-config",
        ),
        (["--election-type", "preferred", *_ONE, "--admin.config", "/nowhere"], "The file /nowhere cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(at: Tool, arguments: list[str], says: str) -> None:
    result = at(kafka_leader_election.main, *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "data is not JSON"),
        ("", "data is not JSON"),
        ("[" * 100_000, "data is not JSON"),
        ("[]", 'data is missing "partitions" field'),
        ("{}", 'data is missing "partitions" field'),
        ('{"partitions": 3}', "data has no list of partitions"),
        ('{"partitions": [{"topic": "t"}]}', "is not of the form"),
        ('{"partitions": [{"topic": "t", "partition": "0"}]}', "is not of the form"),
        ('{"partitions": [{"topic": "t", "partition": -1}]}', "is not of the form"),
        (
            '{"partitions": [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 1}]}',
            "data contains duplicate partitions: t-1",
        ),
    ],
)
def test_a_file_that_says_nothing_clear_is_refused(at: Tool, tmp_path: Path, content: str, says: str) -> None:
    result = elect(at, "preferred", "--path-to-json-file", file_of(tmp_path, content))
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["topic", "partition", "partitions", "version"]), inner)
    ),
)


@given(document=_JSON)
def test_any_json_is_either_partitions_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, document: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps(document))
    try:
        found = read_partitions(str(file), "Data")
    except JesenskaError as error:
        assert "any.json" in str(error)
    else:
        assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "ClusterAuthorizationException"),
        (ErrorCode.KAFKA_STORAGE_ERROR, "KafkaStorageException"),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, "InvalidTopicException"),
        (ErrorCode.REQUEST_TIMED_OUT, "TimeoutException"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UnknownServerException"),
    ],
)
def test_errors_have_javas_names(code: ErrorCode, name: str) -> None:
    assert java_text(KafkaError.of(code, "why")) == f"org.apache.kafka.common.errors.{name}: why"
    assert java_text(KafkaError.of(code)) == f"org.apache.kafka.common.errors.{name}"
