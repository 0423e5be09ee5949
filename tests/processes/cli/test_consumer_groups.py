"""kafka-consumer-groups against a broker of ours. The output was compared with that of Kafka 4.3.1's tool by hand. The
columns are in these tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.groups import kafka_consumer_groups
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Result, Tool, tool_process
from tests.processes.cli.groups import commit, committed, fill, until_shared

Groups = Callable[..., Result]


@pytest.fixture
def groups(tool: Tool, fast_broker: BrokerProcess) -> Groups:
    def run(*arguments: str) -> Result:
        return tool(kafka_consumer_groups.main, "--bootstrap-server", fast_broker.bootstrap, *arguments)

    return run


def keys(topic: str, *offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, number): offset for number, offset in enumerate(offsets)}


@contextmanager
def active(broker: BrokerProcess, group: str, topic: str, partitions: int, *arguments: str) -> Iterator[None]:
    """A consumer that is a member of the group during the block."""
    with tool_process(
        broker, "kafka_console_consumer", "--topic", topic, "--group", group, "--from-beginning", *arguments
    ):
        until_shared(broker, group, 1, partitions)
        yield


# --- list ------------------------------------------------------------------------------------------------------------


def test_groups_are_listed_with_state_and_type(fast_broker: BrokerProcess, groups: Groups) -> None:
    fill(fast_broker, "listed", 1, 1)
    commit(fast_broker, "listed-b", keys("listed", 1))
    commit(fast_broker, "listed-a", keys("listed", 1))
    plain = [line for line in groups("--list").lines if line.startswith("listed-")]
    assert plain == ["listed-a", "listed-b"]
    full = groups("--list", "--state", "--type").lines
    # The columns are as wide as the longest name, which is another test's.
    width = full[0].index("TYPE")
    assert full[0] == f"{'GROUP':{width}}{'TYPE':21}{'STATE':20}"
    assert f"{'listed-a':{width}}{'Classic':21}{'Empty':20}" in full
    assert groups("--list", "--state").lines[0] == f"{'GROUP':{width}}{'STATE':20}"
    stable = json.loads(groups("--list", "--state", "stable", "--output", "json").out)
    assert all(item["state"] == "Stable" for item in stable)
    empty = json.loads(groups("--list", "--state=Empty,dead", "--type", "classic", "--output", "json").out)
    assert {"group": "listed-a", "type": "Classic", "state": "Empty"} in empty


# --- describe --------------------------------------------------------------------------------------------------------


def test_a_group_without_members_shows_its_offsets_and_how_far_they_lie_behind(
    fast_broker: BrokerProcess, groups: Groups
) -> None:
    fill(fast_broker, "behind", 2, 20)
    commit(fast_broker, "behind", keys("behind", 4, 10))
    result = groups("--describe", "--group", "behind")
    assert result.lines == [
        "",
        (
            "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "  # noqa: E501
            "HOST            CLIENT-ID"
        ),
        (
            "behind          behind          0          4               10              6               -               "  # noqa: E501
            "-               -"
        ),
        (
            "behind          behind          1          10              10              0               -               "  # noqa: E501
            "-               -"
        ),
    ]
    assert (result.code, result.err) == (0, "\nConsumer group 'behind' has no active members.\n")
    verbose = groups("--describe", "--group", "behind", "--verbose").lines
    assert verbose[1].split()[:5] == ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET"]
    assert verbose[2].split()[:5] == ["behind", "behind", "0", "-", "4"]


def test_a_group_with_members_shows_who_reads_what(fast_broker: BrokerProcess, groups: Groups) -> None:
    topic = "members-of-a-group"
    fill(fast_broker, topic, 3, 9)
    commit(fast_broker, topic, keys(topic, 3, 3))
    with active(
        fast_broker,
        topic,
        topic,
        3,
        "--consumer-property",
        "client.id=reader",
        "--consumer-property",
        "group.instance.id=static-1",
    ):
        offsets = groups("--describe", "--group", topic)
        members = groups("--describe", "--group", topic, "--members", "--verbose")
        state = groups("--describe", "--group", topic, "--state")
        documents = [
            json.loads(groups("--describe", "--group", topic, *view, "--output", "json").out)[0]
            for view in ([], ["--members"], ["--state"])
        ]
    rows = [line.split() for line in offsets.lines[2:]]
    assert [row[1:6] for row in rows] == [
        [topic, "0", "3", "3", "0"],
        [topic, "1", "3", "3", "0"],
        [topic, "2", "-", "3", "-"],
    ]
    assert all(row[6].startswith("static-1-") and row[7:] == ["/127.0.0.1", "reader"] for row in rows)
    assert "GROUP-INSTANCE-ID" in members.lines[1]
    assert members.lines[2].split()[2:] == ["static-1", "/127.0.0.1", "reader", "3", "-", f"{topic}:0,1,2", "-", "-"]
    assert (
        state.lines[1]
        == "GROUP              COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS"
    )
    assert state.lines[2].split() == [topic, fast_broker.bootstrap, "(1)", "range", "Stable", "1"]
    assert (offsets.err, members.err, state.err) == ("", "", "")
    assert [item["lag"] for item in documents[0]["offsets"]] == [0, 0, None]
    assert documents[1]["members"][0]["groupInstanceId"] == "static-1"
    assert (documents[2]["state"], documents[2]["memberCount"], documents[2]["coordinator"]["id"]) == ("Stable", 1, 1)


def test_the_members_of_a_group_without_any_are_headings_only(fast_broker: BrokerProcess, groups: Groups) -> None:
    fill(fast_broker, "no-members", 1, 1)
    commit(fast_broker, "no-members", keys("no-members", 1))
    assert groups("--describe", "--group", "no-members", "--members").lines == [
        "",
        "GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ",
    ]
    state = groups("--describe", "--group", "no-members", "--state", "--verbose").lines
    assert state[2].split() == ["no-members", fast_broker.bootstrap, "(1)", "-", "Empty", "-", "-", "0"]


def test_offsets_of_a_topic_that_is_gone_have_no_end(fast_broker: BrokerProcess, tool: Tool, groups: Groups) -> None:
    for topic in ("stays", "goes"):
        fill(fast_broker, topic, 1, 3)
    commit(fast_broker, "half-gone", keys("stays", 1) | keys("goes", 1))
    assert tool(kafka_topics.main, "--bootstrap-server", fast_broker.bootstrap, "--delete", "--topic", "goes").code == 0
    result = groups("--describe", "--group", "half-gone")
    assert result.code == 0
    assert ["half-gone", "stays", "0", "1", "3", "2", "-", "-", "-"] in [line.split() for line in result.lines]


def test_all_groups_are_described_and_one_that_is_not_there_fails_beside_the_others(
    fast_broker: BrokerProcess, groups: Groups
) -> None:
    fill(fast_broker, "several", 1, 1)
    commit(fast_broker, "several-1", keys("several", 1))
    commit(fast_broker, "several-2", keys("several", 0))
    everything = groups("--describe", "--all-groups")
    assert everything.code == 0
    assert {"several-1", "several-2"} <= {line.split()[0] for line in everything.lines if line}
    mixed = groups("--describe", "--group", "nobody", "--group", "several-1")
    assert (mixed.code, mixed.err.count("\nError: Consumer group 'nobody' does not exist.\n")) == (1, 1)
    assert [line.split()[0] for line in mixed.lines if line] == ["GROUP", "several-1"]


# --- delete ----------------------------------------------------------------------------------------------------------


def test_a_group_is_deleted_unless_it_has_members(fast_broker: BrokerProcess, groups: Groups) -> None:
    fill(fast_broker, "deleted", 1, 1)
    commit(fast_broker, "deleted-1", keys("deleted", 1))
    commit(fast_broker, "deleted-2", keys("deleted", 1))
    assert (
        groups("--delete", "--group", "deleted-1").out
        == "Deletion of requested consumer groups ('deleted-1') was successful.\n"
    )
    assert committed(fast_broker, "deleted-1") == {}
    with active(fast_broker, "deleted-active", "deleted", 1):
        result = groups("--delete", "--group", "deleted-active", "--group", "deleted-2", "--group", "deleted-1")
    assert result.code == 1
    assert result.out == "\nThese consumer groups were deleted successfully: 'deleted-2'\n"
    assert result.err.splitlines() == [
        "",
        "Error: Deletion of some consumer groups failed:",
        "* Group 'deleted-active' could not be deleted due to: The group is not empty.",
        "* Group 'deleted-1' could not be deleted due to: The group id does not exist.",
    ]


def test_offsets_of_partitions_are_deleted_unless_a_member_reads_the_topic(
    fast_broker: BrokerProcess, groups: Groups
) -> None:
    fill(fast_broker, "forgotten", 3, 3)
    commit(fast_broker, "forgetful", keys("forgotten", 1, 1, 1))
    result = groups("--delete-offsets", "--group", "forgetful", "--topic", "forgotten:0,2")
    assert result.lines == [
        "Request succeeded for deleting offsets from group forgetful.",
        "",
        "TOPIC           PARTITION  STATUS         ",
        "forgotten       0          Successful     ",
        "forgotten       2          Successful     ",
    ]
    assert committed(fast_broker, "forgetful") == {TopicPartition("forgotten", 1): 1}
    with active(fast_broker, "forgetful", "forgotten", 3):
        refused = groups("--delete-offsets", "--group", "forgetful", "--topic", "forgotten:1")
    assert refused.code == 1
    assert (
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it" in refused.out
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--group", "forget-errors", "--topic", "there-is-none"], "This server does not host this topic-partition"),
        (["--group", "forget-errors", "--topic", "forget-errors:9"], "This server does not host this topic-partition"),
        (["--group", "nobody-at-all", "--topic", "forget-errors"], "The group id does not exist"),
    ],
)
def test_offsets_that_cannot_be_deleted_say_why(
    fast_broker: BrokerProcess, groups: Groups, arguments: list[str], says: str
) -> None:
    fill(fast_broker, "forget-errors", 1, 1)
    commit(fast_broker, "forget-errors", keys("forget-errors", 1))
    result = groups("--delete-offsets", *arguments)
    assert result.code == 1
    assert says in result.out
    assert committed(fast_broker, "forget-errors") == keys("forget-errors", 1)


# --- reset -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dated_topic(fast_broker: BrokerProcess) -> str:
    """A topic of two partitions with five records each, all from the first moment of 2020."""
    fill(fast_broker, "dated", 2, 10, timestamp_ms=1_577_836_800_000)
    commit(fast_broker, "dated-mark", keys("dated", 1))
    return "dated"


@pytest.fixture
def dated(fast_broker: BrokerProcess, dated_topic: str) -> str:
    """The dated topic, and a group of the same name that has committed 4 and 2."""
    commit(fast_broker, dated_topic, keys(dated_topic, 4, 2))
    return dated_topic


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to-earliest"], (0, 0)),
        (["--to-latest"], (5, 5)),
        (["--to-current"], (4, 2)),
        (["--to-offset", "3"], (3, 3)),
        (["--to-offset", "99"], (5, 5)),
        (["--to-offset", "-1"], (0, 0)),
        (["--shift-by", "2"], (5, 4)),
        (["--shift-by", "-3"], (1, 0)),
        (["--to-datetime", "2019-12-31T23:59:59.999"], (0, 0)),
        (["--to-datetime", "2020-01-01T00:00:00.001"], (5, 5)),
        (["--to-datetime", "2020-01-01T01:00:00.001+02:00"], (0, 0)),
        (["--by-duration", "P1D"], (5, 5)),
        (["--by-duration", "P99999D"], (0, 0)),
    ],
)
def test_offsets_go_where_the_flag_says(
    fast_broker: BrokerProcess, groups: Groups, dated: str, where: list[str], expected: tuple[int, int]
) -> None:
    planned = groups("--reset-offsets", "--group", dated, "--all-topics", *where, "--dry-run")
    assert planned.lines == [
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
        f"dated           dated           0          {expected[0]}",
        f"dated           dated           1          {expected[1]}",
    ]
    assert committed(fast_broker, dated) == keys(dated, 4, 2)
    done = groups("--reset-offsets", "--group", dated, "--topic", dated, *where, "--execute")
    assert (done.code, done.out) == (0, planned.out)
    assert committed(fast_broker, dated) == keys(dated, *expected)


def test_without_execute_nothing_is_changed_and_a_warning_says_so(
    fast_broker: BrokerProcess, groups: Groups, dated: str
) -> None:
    result = groups("--reset-offsets", "--group", dated, "--topic", dated, "--to-earliest")
    assert (
        result.code,
        result.err.startswith("WARN: No action will be performed as the --execute option is missing."),
    ) == (0, True)
    assert committed(fast_broker, dated) == keys(dated, 4, 2)


def test_single_partitions_can_be_named(fast_broker: BrokerProcess, groups: Groups, dated: str) -> None:
    assert groups("--reset-offsets", "--group", dated, "--topic", f"{dated}:1", "--to-latest", "--execute").code == 0
    assert committed(fast_broker, dated) == keys(dated, 4, 5)


def test_a_group_that_was_never_there_gets_offsets(fast_broker: BrokerProcess, groups: Groups, dated: str) -> None:
    assert (
        groups("--reset-offsets", "--group", "made-by-reset", "--topic", dated, "--to-current", "--execute").code == 0
    )
    assert committed(fast_broker, "made-by-reset") == keys(dated, 5, 5)
    shifted = groups("--reset-offsets", "--group", "made-by-nothing", "--topic", dated, "--shift-by", "1", "--execute")
    assert (shifted.code, "there is no current committed offset" in shifted.err) == (1, True)


def test_what_was_exported_can_be_read_back(
    fast_broker: BrokerProcess, groups: Groups, dated: str, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.csv"
    exported = groups("--reset-offsets", "--group", dated, "--all-topics", "--to-current", "--export", "--dry-run")
    assert exported.out == "dated,0,4\ndated,1,2\n"
    file.write_text(exported.out)
    commit(fast_broker, dated, keys(dated, 0, 0))
    assert groups("--reset-offsets", "--group", dated, "--from-file", str(file), "--execute").code == 0
    assert committed(fast_broker, dated) == keys(dated, 4, 2)
    both = groups(
        "--reset-offsets",
        "--group",
        dated,
        "--group",
        "dated-mark",
        "--all-topics",
        "--to-current",
        "--export",
        "--dry-run",
    )
    assert both.lines == ["dated,dated,0,4", "dated,dated,1,2", "dated-mark,dated,0,1"]
    file.write_text(both.out)
    again = groups(
        "--reset-offsets",
        "--group",
        dated,
        "--group",
        "dated-mark",
        "--from-file",
        str(file),
        "--dry-run",
        "--output",
        "json",
    )
    assert [(item["group"], item["partition"], item["newOffset"]) for item in json.loads(again.out)] == [
        ("dated", 0, 4),
        ("dated", 1, 2),
        ("dated-mark", 0, 1),
    ]


@pytest.mark.parametrize("flag", ["--dry-run", "--execute"])
def test_a_group_with_members_is_refused_and_others_are_not(
    fast_broker: BrokerProcess, groups: Groups, flag: str
) -> None:
    group = f"reset-active{flag}"
    fill(fast_broker, "reset-active", 1, 4)
    commit(fast_broker, group, keys("reset-active", 2))
    commit(fast_broker, f"{group}-other", keys("reset-active", 2))
    with active(fast_broker, group, "reset-active", 1, "--consumer-property", "enable.auto.commit=false"):
        result = groups(
            "--reset-offsets",
            "--group",
            group,
            "--group",
            f"{group}-other",
            "--topic",
            "reset-active",
            "--to-earliest",
            flag,
        )
    assert (
        result.err
        == f"\nError: Assignments can only be reset if the group '{group}' is inactive, but the current state is "
        f"Stable.\n"
    )
    assert (result.code, len(result.lines)) == (1, 3)
    assert committed(fast_broker, group) == keys("reset-active", 2)
    assert committed(fast_broker, f"{group}-other") == keys("reset-active", 0 if flag == "--execute" else 2)


def test_a_mistake_about_one_topic_changes_nothing_of_the_others(
    fast_broker: BrokerProcess, groups: Groups, dated: str
) -> None:
    result = groups(
        "--reset-offsets", "--group", dated, "--topic", dated, "--topic", "there-is-none", "--to-earliest", "--execute"
    )
    assert (result.code, result.out, "there-is-none does not exist" in result.err) == (1, "", True)
    assert committed(fast_broker, dated) == keys(dated, 4, 2)


# --- mistakes --------------------------------------------------------------------------------------------------------

_RESET = ["--reset-offsets", "--group", "g", "--dry-run"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--output", "json"], "Command must include exactly one action"),
        (["--list", "--describe"], "Command must include exactly one action"),
        (["--list", "--group", "g"], '"[group]" can\'t be used with option "[list]"'),
        (["--list", "--members"], '"[members]" can\'t be used with option "[list]"'),
        (["--list", "--state", "bla"], "Invalid state list 'bla'. Valid states are: CompletingRebalance, Empty"),
        (["--list", "--type", "bla"], "Invalid types list 'bla'. Valid types are: Consumer, Classic"),
        (["--describe"], "Option [describe] takes one of these options"),
        (["--describe", "--group", ""], "needs a name"),
        (["--describe", "--group", "g", "--all-groups"], '"[group]" can\'t be used with option "[all-groups]"'),
        (["--describe", "--group", "g", "--members", "--state"], "at most one of these options"),
        (["--describe", "--group", "g", "--execute"], '"[execute]" can\'t be used with option "[describe]"'),
        (["--describe", "--group", "g", "--timeout", "0"], "--timeout must be positive"),
        (["--delete"], "Option [delete] takes one of these options"),
        (["--delete", "--group", "g", "--topic", "t"], "does not support topic-specific offset deletion"),
        (["--delete-offsets", "--group", "g"], "Option [delete-offsets] takes the following options"),
        (["--delete-offsets", "--group", "g", "--group", "h", "--topic", "t"], "takes one --group"),
        (["--delete-offsets", "--group", "g", "--topic", "t:x"], "Invalid partition 'x' specified in topic arg 't:x'"),
        (["--reset-offsets", "--topic", "t", "--to-earliest"], "Option [reset-offsets] takes one of these options"),
        ([*_RESET, "--to-earliest"], "One of the reset scopes should be defined"),
        ([*_RESET, "--topic", "t"], "requires one of the following scenarios"),
        (
            [*_RESET, "--topic", "t", "--to-earliest", "--to-latest"],
            '"[to-earliest]" can\'t be used with option "[to-latest]"',
        ),
        ([*_RESET, "--topic", "t", "--to-earliest", "--execute"], "only accepts one of [execute] and [dry-run]"),
        ([*_RESET, "--topic", "t", "--to-offset", "many"], "'many' is not an offset"),
        ([*_RESET, "--topic", "t", "--shift-by", "1.5"], "'1.5' is not an offset"),
        ([*_RESET, "--topic", "t", "--by-duration", "1h"], "'1h' is not a duration"),
        ([*_RESET, "--topic", "t", "--to-datetime", "noon"], "'noon' is not a time"),
        ([*_RESET, "--topic", "there-is-none", "--to-earliest"], "there-is-none does not exist"),
        ([*_RESET, "--topic", "mistakes:7", "--to-earliest"], 'The partitions "mistakes-7" do not exist'),
        (
            [*_RESET, "--topic", "mistakes:0,b", "--to-earliest"],
            "Invalid partition 'b' specified in topic arg 'mistakes:0,b'",
        ),
        ([*_RESET, "--from-file", "there/is/none.csv"], "cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(
    fast_broker: BrokerProcess, groups: Groups, arguments: list[str], says: str
) -> None:
    fill(fast_broker, "mistakes", 1, 1)
    result = groups(*arguments)
    assert (result.code, result.out) == (1, "")
    assert says in result.err


def test_a_dead_broker_is_one_sentence(tool: Tool) -> None:
    result = tool(kafka_consumer_groups.main, "--bootstrap-server", "127.0.0.1:1", "--list")
    assert (result.code, result.out, "No broker answers at 127.0.0.1:1" in result.err) == (1, "", True)
