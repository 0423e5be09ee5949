"""kafka-console-consumer as a member of a group."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.records import kafka_console_consumer
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Result, Tool, tool_process
from tests.processes.cli.groups import committed, fill, group_state, until_committed, until_shared

Read = Callable[..., Result]


@pytest.fixture
def read(tool: Tool, fast_broker: BrokerProcess) -> Read:
    def run(topic: str, group: str, count: int, *arguments: str) -> Result:
        return tool(
            kafka_console_consumer.main,
            "--bootstrap-server",
            fast_broker.bootstrap,
            "--topic",
            topic,
            "--group",
            group,
            "--max-messages",
            str(count),
            "--timeout-ms",
            "20000",
            *arguments,
        )

    return run


def test_a_group_goes_on_behind_the_last_record_that_was_printed(fast_broker: BrokerProcess, read: Read) -> None:
    fill(fast_broker, "console-on", 3, 30)
    printed = [read("console-on", "on", count, "--from-beginning").lines for count in (7, 1, 22)]
    assert [len(lines) for lines in printed] == [7, 1, 22]
    assert sorted(int(line) for lines in printed for line in lines) == list(range(30))
    assert committed(fast_broker, "on") == {TopicPartition("console-on", number): 10 for number in range(3)}


def test_the_member_leaves_its_group_at_the_end(fast_broker: BrokerProcess, read: Read) -> None:
    fill(fast_broker, "console-leave", 1, 1)
    assert read("console-leave", "leavers", 1, "--from-beginning").code == 0
    assert group_state(fast_broker, "leavers") == "Empty"


def test_without_from_beginning_a_new_group_reads_what_comes_and_an_old_one_goes_on(
    fast_broker: BrokerProcess, read: Read
) -> None:
    fill(fast_broker, "console-new", 1, 10)
    flags = ("--topic", "console-new", "--group", "newcomers", "--consumer-property", "auto.commit.interval.ms=50")
    with tool_process(fast_broker, "kafka_console_consumer", *flags) as newcomer:
        until_committed(fast_broker, "newcomers", {TopicPartition("console-new", 0): 10})
        newcomer.send_signal(signal.SIGINT)
        printed, _ = newcomer.communicate(timeout=30)
    assert printed == b""
    fill(fast_broker, "console-new", 1, 2, 10)
    assert read("console-new", "newcomers", 2, "--from-beginning").lines == ["10", "11"]


def test_without_automatic_commits_nothing_is_committed(fast_broker: BrokerProcess, read: Read, tmp_path: Path) -> None:
    fill(fast_broker, "console-off", 1, 3)
    config = tmp_path / "consumer.properties"
    config.write_text("group.id=off\nenable.auto.commit=false\nauto.offset.reset=earliest\n")
    for _ in range(2):
        assert read("console-off", "off", 3, "--consumer.config", str(config)).lines == ["0", "1", "2"]
    assert committed(fast_broker, "off") == {}


def test_the_group_may_stand_in_a_property_and_its_topics_match_a_pattern(
    fast_broker: BrokerProcess, tool: Tool
) -> None:
    for name in ("console-pattern-a", "console-pattern-b"):
        fill(fast_broker, name, 2, 4)
    result = tool(
        kafka_console_consumer.main,
        "--bootstrap-server",
        fast_broker.bootstrap,
        "--include",
        "console-pattern-.",
        "--max-messages",
        "8",
        "--timeout-ms",
        "20000",
        "--consumer-property",
        "group.id=matching",
        "--from-beginning",
    )
    assert sorted(map(int, result.lines)) == sorted([*range(4), *range(4)])
    assert set(committed(fast_broker, "matching").values()) == {2}


@pytest.mark.parametrize("strategy", ["org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "roundrobin"])
def test_two_consumers_of_a_group_share_the_records(fast_broker: BrokerProcess, strategy: str) -> None:
    topic = f"console-share-{strategy.rpartition('.')[2].lower()}"
    fill(fast_broker, topic, 4, 40)
    flags = [
        "--topic",
        topic,
        "--group",
        topic,
        "--from-beginning",
        "--consumer-property",
        f"partition.assignment.strategy={strategy}",
    ]
    flags += ["--consumer-property", "heartbeat.interval.ms=50"]
    with tool_process(fast_broker, "kafka_console_consumer", *flags, "--max-messages", "60") as first:
        assert first.stdout is not None
        before = [first.stdout.readline() for _ in range(40)]
        with tool_process(fast_broker, "kafka_console_consumer", *flags, "--max-messages", "20") as second:
            until_shared(fast_broker, topic, 2, 4)
            fill(fast_broker, topic, 4, 40, 40)
            theirs, _ = second.communicate(timeout=30)
            ours, _ = first.communicate(timeout=30)
    assert sorted(map(int, before)) == list(range(40))
    assert (len(ours.split()), len(theirs.split())) == (20, 20)
    assert sorted(map(int, ours.split() + theirs.split())) == list(range(40, 80))
    assert set(committed(fast_broker, topic).values()) == {20}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_commits_what_was_printed_and_leaves(
    fast_broker: BrokerProcess, number: signal.Signals, code: int
) -> None:
    topic = f"console-signal-{number.name.lower()}"
    fill(fast_broker, topic, 1, 5)
    with tool_process(
        fast_broker, "kafka_console_consumer", "--topic", topic, "--group", topic, "--from-beginning"
    ) as consumer:
        assert consumer.stdout is not None
        assert [consumer.stdout.readline() for _ in range(5)] == [b"%d\n" % value for value in range(5)]
        consumer.send_signal(number)
        assert consumer.wait(30) == code
    assert committed(fast_broker, topic) == {TopicPartition(topic, 0): 5}
    assert group_state(fast_broker, topic) == "Empty"


@pytest.mark.parametrize("group", [("--group", "early"), ()], ids=["group", "alone"])
def test_a_topic_that_does_not_exist_is_waited_for(fast_broker: BrokerProcess, group: tuple[str, ...]) -> None:
    topic = f"console-early-{len(group)}"
    flags = (
        "--topic",
        topic,
        *group,
        "--from-beginning",
        "--max-messages",
        "3",
        "--consumer-property",
        "allow.auto.create.topics=false",
    )
    with tool_process(fast_broker, "kafka_console_consumer", *flags) as early:
        assert early.stderr is not None
        assert (
            early.stderr.readline()
            == f"The topic {topic} does not exist yet: waiting for it (Ctrl-C ends that).\n".encode()
        )
        fill(fast_broker, topic, 1, 3)
        printed, _ = early.communicate(timeout=60)
    assert (printed, early.returncode) == (b"0\n1\n2\n", 0)
