"""kafka-get-offsets and kafka-delete-records against a broker of ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.cli.kafka.records import kafka_console_producer
from jesenska.cli.kafka.topics import kafka_delete_records, kafka_get_offsets, kafka_topics
from jesenska.cli.kafka.topics.kafka_delete_records import read_offsets
from tests.processes.cli.conftest import Result, Tool


@pytest.fixture
def filled(at: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions with ten records in all."""
    name: str = request.node.name.partition("[")[0].replace("_", "-")[:100]
    at(kafka_topics.main, "--create", "--topic", name, "--partitions", "3")
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}\t{number}\n" for number in range(10)))
    with file.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert at(kafka_console_producer.main, "--topic", name, "--property", "parse.key=true").code == 0
    return name


def offsets_of(at: Tool, topic: str, *arguments: str) -> dict[int, int]:
    lines = at(kafka_get_offsets.main, "--topic", topic, *arguments).lines
    found = {
        int(partition): int(offset) for name, partition, offset in (line.split(":") for line in lines) if name == topic
    }
    assert len(found) == len(lines)
    return found


def test_ends_and_beginnings_of_all_partitions(at: Tool, filled: str) -> None:
    ends = offsets_of(at, filled)
    assert sorted(ends) == [0, 1, 2]
    assert sum(ends.values()) == 10
    for time in ("-2", "earliest", "0", "1"):
        assert offsets_of(at, filled, "--time", time) == {0: 0, 1: 0, 2: 0}
    assert offsets_of(at, filled, "--time", "-1") == offsets_of(at, filled, "--time", "latest") == ends


def test_a_partition_without_a_record_at_the_time_has_no_line(at: Tool, filled: str) -> None:
    assert offsets_of(at, filled, "--time", "99999999999999") == {}
    newest = offsets_of(at, filled, "--time", "max-timestamp")
    assert set(newest.values()) <= set(range(10))
    assert newest


def test_partitions_are_chosen_by_number_and_by_rule(at: Tool, filled: str) -> None:
    assert sorted(offsets_of(at, filled, "--partitions", "0,2")) == [0, 2]

    def ruled(rules: str) -> list[int]:
        return [
            item["partition"]
            for item in json.loads(at(kafka_get_offsets.main, "--topic-partitions", rules, "--output", "json").out)
        ]

    assert ruled(f"{filled}:1") == [1]
    assert ruled(f"{filled}:1-") == [1, 2]
    assert ruled(f"{filled}:-2") == [0, 1]
    assert ruled(f"{filled}:1-2") == [1]
    assert ruled(f"{filled}:0,{filled}:2") == [0, 2]
    assert ruled(f"{filled[:-1]}.") == [0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--topic", "there-is-none"], "Could not match any topic-partitions"),
        (["--time", "bla"], "Malformed time argument bla"),
        (["--time", "-9"], "Malformed time argument -9"),
        (["--topic", "x", "--topic-partitions", "x:0"], "cannot be used with"),
        (["--partitions", "0-1"], "numeric partition ids"),
        (["--topic-partitions", "x:y"], "Invalid rule"),
    ],
)
def test_what_cannot_be_looked_up_is_one_sentence_and_exit_code_1(at: Tool, arguments: list[str], says: str) -> None:
    result = at(kafka_get_offsets.main, *arguments)
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert says in result.err


def delete(at: Tool, tmp_path: Path, partitions: list[dict[str, Any]], *arguments: str) -> Result:
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": partitions, "version": 1}))
    return at(kafka_delete_records.main, "--offset-json-file", str(file), *arguments)


def test_records_before_the_offset_are_gone(at: Tool, tmp_path: Path, filled: str) -> None:
    ends = offsets_of(at, filled)
    full = max(ends, key=lambda partition: ends[partition])
    deleted = delete(at, tmp_path, [{"topic": filled, "partition": full, "offset": 2}])
    assert deleted.code == 0
    assert deleted.lines == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {filled}-{full}\tlow_watermark: 2",
    ]
    assert offsets_of(at, filled, "--time", "earliest")[full] == 2
    everything = delete(at, tmp_path, [{"topic": filled, "partition": full, "offset": -1}], "--output", "json")
    assert json.loads(everything.out) == [{"topic": filled, "partition": full, "lowWatermark": ends[full]}]


def test_a_partition_that_fails_does_not_keep_the_others_from_being_done(at: Tool, tmp_path: Path, filled: str) -> None:
    result = delete(
        at,
        tmp_path,
        [
            {"topic": filled, "partition": 0, "offset": 300},
            {"topic": "not-there", "partition": 0, "offset": 1},
            {"topic": filled, "partition": 1, "offset": -1},
        ],
    )
    assert result.code == 1
    assert result.lines[2:] == [
        (
            f"partition: {filled}-0\terror: {filled}-0: offset 300 is past the high watermark; -1 deletes everything up "  # noqa: E501
            f"to it."
        ),
        "partition: not-there-0\terror: not-there-0 does not exist: kafka-topics --describe shows what does.",
        f"partition: {filled}-1\tlow_watermark: {offsets_of(at, filled)[1]}",
    ]
    assert "offset 300 is past the high watermark" in result.err
    assert "not-there-0 does not exist" in result.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not a valid JSON"),
        ('{"version": 2, "partitions": []}', "version 1"),
        ("[]", "version 1"),
        ('{"version": 1}', "Missing partitions field"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "is not of the form"),
        ('{"partitions": [{"topic": "t", "partition": true, "offset": 1}]}', "is not of the form"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}', "is not of the form"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": '
            "2}]}",
            "duplicate topic partitions: t-0",
        ),
        ("[" * 100_000, "not a valid JSON"),
    ],
)
def test_a_file_that_says_nothing_clear_is_refused(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    with pytest.raises(JesenskaError, match=says):
        read_offsets(str(file))


def test_a_file_that_does_not_exist_is_named(at: Tool, tmp_path: Path) -> None:
    result = at(kafka_delete_records.main, "--offset-json-file", str(tmp_path / "none.json"))
    assert (result.code, result.out, "none.json cannot be read" in result.err) == (1, "", True)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["topic", "partition", "offset", "partitions", "version"]), inner)
    ),
)


@given(document=_JSON)
def test_any_json_is_either_offsets_or_one_sentence(tmp_path_factory: pytest.TempPathFactory, document: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps(document))
    try:
        found = read_offsets(str(file))
    except JesenskaError as error:
        assert "any.json" in str(error) or "duplicate" in str(error)
    else:
        assert all(offset >= -1 for offset in found.values())
