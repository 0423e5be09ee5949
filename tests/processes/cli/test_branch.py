"""`jesenska branch`, and the setting with which every client can request a branch, against a broker of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode, InvalidConfigError, KafkaError, UnknownMemberIdError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli import jesenska
from jesenska.cli.kafka.topics import kafka_configs, kafka_topics
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.branched_offsets import within
from jesenska.client.administration.config_administration import TOPIC, ConfigChange
from jesenska.client.administration.group_administration import OffsetAndMetadata
from jesenska.client.administration.topic_administration import BRANCH_OF, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Result, Tool, tool_process
from tests.processes.cli.groups import ask, commit, committed, fill, until_shared

Branch = Callable[..., Result]


@pytest.fixture
def branch(tool: Tool, fast_broker: BrokerProcess) -> Branch:
    def run(*arguments: str) -> Result:
        return tool(jesenska.main, "branch", "--bootstrap-server", fast_broker.bootstrap, *arguments)

    return run


def values(broker: BrokerProcess, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
    async def work(cluster: Cluster) -> dict[int, list[bytes | None]]:
        keys = [TopicPartition(topic, number) for number in range(partitions)]
        ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
        found: dict[int, list[bytes | None]] = {number: [] for number in range(partitions)}
        async with Consumer(cluster) as consumer:
            await consumer.assign(dict.fromkeys(keys, 0))
            while any(len(found[key.partition]) < end.offset for key, end in ends.items()):
                for key, records in (await consumer.poll(0.2)).items():
                    found[key.partition] += [record.value for record in records]
        return found

    return ask(broker, work)


def settings_of(broker: BrokerProcess, topic: str) -> dict[str, str | None]:
    """The settings of the topic itself."""

    async def work(cluster: Cluster) -> dict[str, str | None]:
        return {
            entry.name: entry.value
            for entry in await Admin(cluster).describe_configs(TOPIC, topic)
            if entry.source == 1
        }

    return ask(broker, work)


def test_a_branch_has_partitions_settings_and_records_of_its_source(
    branch: Branch, tool: Tool, fast_broker: BrokerProcess
) -> None:
    at = ("--bootstrap-server", fast_broker.bootstrap)
    assert (
        tool(
            kafka_topics.main,
            *at,
            "--create",
            "--topic",
            "orders",
            "--partitions",
            "3",
            "--config",
            "retention.ms=-1",
            "--config",
            "segment.bytes=2000",
        ).code
        == 0
    )
    fill(fast_broker, "orders", 3, 600)
    told = values(fast_broker, "orders", 3)
    result = branch("orders", "trial", "--config", "segment.bytes=3000")
    assert (result.code, result.err) == (0, "")
    assert result.out == "trial is a branch of orders: 3 partition(s), 600 offset(s).\n"
    assert values(fast_broker, "trial", 3) == told
    assert settings_of(fast_broker, "trial") == {"retention.ms": "-1", "segment.bytes": "3000", BRANCH_OF: "orders"}
    assert settings_of(fast_broker, "orders") == {"retention.ms": "-1", "segment.bytes": "2000"}
    assert min(Path(fast_broker.data / "orders-1").glob("*.log")).stat().st_nlink == 2
    fill(fast_broker, "trial", 3, 3, start=600)
    fill(fast_broker, "orders", 3, 6, start=700)
    assert [len(records) for records in values(fast_broker, "trial", 3).values()] == [201] * 3
    assert [len(records) for records in values(fast_broker, "orders", 3).values()] == [202] * 3
    assert values(fast_broker, "trial", 3)[1][-1] == b"601"
    # The source is deleted, and the branch stays, also after a restart of the broker.
    assert tool(kafka_topics.main, *at, "--delete", "--topic", "orders").code == 0
    assert [len(records) for records in values(fast_broker, "trial", 3).values()] == [201] * 3


def test_any_client_can_ask_for_a_branch(tool: Tool, fast_broker: BrokerProcess) -> None:
    fill(fast_broker, "plain", 2, 10)
    at = ("--bootstrap-server", fast_broker.bootstrap)
    assert (
        tool(kafka_topics.main, *at, "--create", "--topic", "by-setting", "--config", "jesenska.branch.of=plain").code
        == 0
    )
    assert values(fast_broker, "by-setting", 2) == values(fast_broker, "plain", 2)
    described = tool(kafka_configs.main, *at, "--describe", "--topic", "by-setting").out
    assert "jesenska.branch.of=plain " in described


def refused(broker: BrokerProcess, topic: NewTopic) -> KafkaError | None:
    async def work(cluster: Cluster) -> KafkaError | None:
        return (await Admin(cluster).create_topics([topic]))[topic.name]

    return ask(broker, work)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("refused", configs={BRANCH_OF: "nobody"}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewTopic("refused", configs={BRANCH_OF: ""}), ErrorCode.INVALID_CONFIG),
        (NewTopic("refused", configs={BRANCH_OF: "__consumer_offsets"}), ErrorCode.INVALID_REQUEST),
        (NewTopic("refused", configs={BRANCH_OF: "source:1:AAAA"}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (NewTopic("__transaction_state", configs={BRANCH_OF: "source"}), ErrorCode.INVALID_REQUEST),
        (NewTopic("refused", 3, configs={BRANCH_OF: "source"}), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("refused", 2, 2, configs={BRANCH_OF: "source"}), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("refused", configs={BRANCH_OF: "source"}, assignment=[[0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("source", configs={BRANCH_OF: "source"}), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic("refused", configs={BRANCH_OF: "source", "retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("re fused", configs={BRANCH_OF: "source"}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_branched_is_refused(fast_broker: BrokerProcess, topic: NewTopic, code: ErrorCode) -> None:
    fill(fast_broker, "source", 2, 2)
    error = refused(fast_broker, topic)
    assert error is not None
    assert error.code == code, error


def test_numbers_that_are_those_of_the_source_are_taken(fast_broker: BrokerProcess) -> None:
    fill(fast_broker, "source", 2, 2)
    broker_id = ask(fast_broker, lambda cluster: Admin(cluster).topics())["source"].partitions[0].leader
    assert refused(fast_broker, NewTopic("same-numbers", 2, 1, configs={BRANCH_OF: "source"})) is None
    assert (
        refused(fast_broker, NewTopic("same-replicas", configs={BRANCH_OF: "source"}, assignment=[[broker_id]] * 2))
        is None
    )


def test_where_a_branch_comes_from_cannot_be_changed(fast_broker: BrokerProcess) -> None:
    fill(fast_broker, "source", 2, 2)
    refused(fast_broker, NewTopic("kept", configs={BRANCH_OF: "source"}))

    async def alter(cluster: Cluster, topic: str) -> None:
        await Admin(cluster).alter_configs(TOPIC, topic, [ConfigChange(BRANCH_OF, "source")])

    for topic in ("kept", "source"):
        with pytest.raises(InvalidConfigError, match="when the topic is created"):
            ask(fast_broker, partial(alter, topic=topic))

    async def other(cluster: Cluster) -> None:
        await Admin(cluster).alter_configs(TOPIC, "kept", [ConfigChange("retention.ms", "7")])

    ask(fast_broker, other)
    assert settings_of(fast_broker, "kept") == {"retention.ms": "7", BRANCH_OF: "source"}


# --- the tool ---------------------------------------------------------------------------------------------------


def test_mistakes_are_one_sentence(branch: Branch, fast_broker: BrokerProcess, tool: Tool) -> None:
    fill(fast_broker, "source", 2, 2)
    missing = branch("nobody", "x")
    assert (missing.code, missing.out) == (1, "")
    assert (
        missing.err
        == "jesenska branch: There is no topic 'nobody': kafka-topics --list shows the topics that exist.\n".replace(
            "jesenska branch", "jesenska"
        )
    )
    there = branch("source", "source")
    assert (there.code, there.err.count("\n")) == (1, 1)
    assert "already" in there.err
    assert branch("source").code == 1
    assert branch("source", "x", "--config", "nonsense").code == 1
    nobody = tool(jesenska.main, "branch", "--bootstrap-server", "127.0.0.1:1", "a", "b")
    assert (nobody.code, nobody.err.count("\n")) == (1, 1)


def test_the_answer_as_json(branch: Branch, fast_broker: BrokerProcess) -> None:
    fill(fast_broker, "for-json", 2, 5)
    commit(fast_broker, "json-group", {TopicPartition("for-json", 1): 1})
    answer = json.loads(branch("for-json", "as-json", "--groups", "--output", "json").out)
    assert answer == {
        "source": "for-json",
        "topic": "as-json",
        "partitions": [
            {"partition": 0, "startOffset": 0, "endOffset": 3},
            {"partition": 1, "startOffset": 0, "endOffset": 2},
        ],
        "groups": [{"group": "json-group", "offsets": {"1": 1}}],
    }


# --- groups -----------------------------------------------------------------------------------------------------


def test_groups_stand_in_the_branch_where_they_stand_in_the_source(branch: Branch, fast_broker: BrokerProcess) -> None:
    fill(fast_broker, "read", 2, 20)
    commit(fast_broker, "reader-a", {TopicPartition("read", 0): 3, TopicPartition("read", 1): 10})
    commit(fast_broker, "reader-b", {TopicPartition("read", 1): 0})
    result = branch("read", "read-again", "--groups")
    assert (result.code, result.err) == (0, "")
    assert "Group reader-a has its offsets of 2 partition(s) in it." in result.lines
    assert committed(fast_broker, "reader-a") == {
        TopicPartition("read", 0): 3,
        TopicPartition("read", 1): 10,
        TopicPartition("read-again", 0): 3,
        TopicPartition("read-again", 1): 10,
    }
    assert committed(fast_broker, "reader-b") == {TopicPartition("read", 1): 0, TopicPartition("read-again", 1): 0}


def test_a_group_with_members_gets_its_offsets_in_a_branch_once_and_goes_on(
    branch: Branch, fast_broker: BrokerProcess
) -> None:
    fill(fast_broker, "in-use", 1, 20)
    commit(fast_broker, "at-work", {TopicPartition("in-use", 0): 7})
    with tool_process(
        fast_broker,
        "kafka_console_consumer",
        "--topic",
        "in-use",
        "--group",
        "at-work",
        "--consumer-property",
        "enable.auto.commit=false",
    ):
        until_shared(fast_broker, "at-work", 1, 1)
        assert branch("in-use", "beside", "--groups").code == 0
        assert committed(fast_broker, "at-work") == {TopicPartition("in-use", 0): 7, TopicPartition("beside", 0): 7}
        fill(fast_broker, "no-branch", 1, 1)

        async def alter(cluster: Cluster, topic: str) -> KafkaError | None:
            return (await Admin(cluster).alter_group_offsets("at-work", {TopicPartition(topic, 0): 1}))[
                TopicPartition(topic, 0)
            ]

        # Not a topic that it has already, not a topic that it reads, and not a topic that is not a branch.
        for topic in ("beside", "in-use", "no-branch"):
            assert isinstance(ask(fast_broker, partial(alter, topic=topic)), UnknownMemberIdError), topic
        until_shared(fast_broker, "at-work", 1, 1)


def test_a_group_that_reads_the_branch_itself_is_told_apart(branch: Branch, fast_broker: BrokerProcess) -> None:
    fill(fast_broker, "first", 1, 5)
    assert branch("first", "second").code == 0
    commit(fast_broker, "of-both", {TopicPartition("second", 0): 2})
    with tool_process(
        fast_broker,
        "kafka_console_consumer",
        "--include",
        "second|nothing",
        "--group",
        "of-both",
        "--consumer-property",
        "enable.auto.commit=false",
    ):
        until_shared(fast_broker, "of-both", 1, 1)

        async def alter(cluster: Cluster) -> KafkaError | None:
            return (await Admin(cluster).alter_group_offsets("of-both", {TopicPartition("second", 0): 1}))[
                TopicPartition("second", 0)
            ]

        assert isinstance(ask(fast_broker, alter), UnknownMemberIdError)


def test_offsets_beyond_the_branch_become_its_end() -> None:
    assert within(OffsetAndMetadata(9, 4, "m"), 9) == OffsetAndMetadata(9, 4, "m")
    assert within(OffsetAndMetadata(10, 4, "m"), 9) == OffsetAndMetadata(9, -1, "m")


def test_an_unfinished_branch_is_made_after_a_crash_of_the_broker(tmp_path: Path) -> None:
    """Forty partitions are branched while the broker is killed. After a start the topic is complete, or does not
    exist."""
    seen = set()
    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        fill(broker, "orders", 40, 400)

        async def asked(cluster: Cluster, name: str, pause: float) -> None:
            asking = asyncio.ensure_future(Admin(cluster).branch_topic("orders", name))
            await asyncio.wait({asking}, timeout=pause)
            broker.kill()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

        for number, pause in enumerate([0.02, 0.06, 0.1, 0.2, 0.3]):
            name = f"trial-{number}"
            ask(broker, partial(asked, name=name, pause=pause))
            broker.start()
            topics = ask(broker, lambda cluster: Admin(cluster).topics())
            if name in topics:
                assert {number: len(found) for number, found in values(broker, name, 40).items()} == dict.fromkeys(
                    range(40), 10
                )
                assert settings_of(broker, name) == {BRANCH_OF: "orders"}
            seen.add(name in topics)
    assert True in seen
