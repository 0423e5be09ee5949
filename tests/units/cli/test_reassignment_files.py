"""The files of kafka-reassign-partitions: what is read is what was written, and another form is refused with one
sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.cli.kafka.reassignment.reassignment_files import Target, as_items, read_targets, read_topics, text_of
from jesenska.cli.kafka.reassignment.replica_moves import wanted_moves

_BROKERS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5, unique=True)
_KEYS = st.builds(TopicPartition, st.text(min_size=1, max_size=8), st.integers(0, 2**31 - 1))
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["version", "partitions", "topics", "topic", "partition", "replicas", "log_dirs", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "plan.json"


def _read(file: Path, content: Any) -> dict[TopicPartition, Target]:
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_targets(str(file))


def _sentence(file: Path, content: Any) -> str:
    with pytest.raises(JesenskaError) as caught:
        _read(file, content)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    return text


@given(assignments=st.dictionaries(_KEYS, _BROKERS, min_size=1, max_size=5), data=st.data())
def test_what_is_written_is_read(file: Path, assignments: dict[TopicPartition, list[int]], data: st.DataObject) -> None:
    directories = {
        key: tuple(data.draw(st.sampled_from(["any", "/data/a"])) for _ in replicas)
        for key, replicas in assignments.items()
    }
    found = _read(file, text_of(assignments, directories))
    assert found == {key: Target(tuple(assignments[key]), directories[key]) for key in assignments}
    assert list(found) == sorted(assignments)
    assert wanted_moves(found) == {
        (key, broker_id): "/data/a"
        for key in assignments
        for broker_id, path in zip(assignments[key], directories[key], strict=True)
        if path != "any"
    }


@given(content=_ANYTHING)
def test_any_other_json_is_read_or_refused_with_a_sentence(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content))
    for read in (read_targets, read_topics):
        try:
            found = read(str(file))
        except JesenskaError as error:
            assert str(error).endswith(".")
            assert "\n" not in str(error)
        else:
            assert found


@given(content=st.text(max_size=20) | st.just("[" * 100_000))
def test_any_other_text_is_read_or_refused_with_a_sentence(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(JesenskaError):
        read_targets(str(file))


def test_the_version_and_the_directories_may_be_missing(file: Path) -> None:
    item = {"topic": "t", "partition": 1, "replicas": [2, 0]}
    assert _read(file, {"partitions": [item]}) == {TopicPartition("t", 1): Target((2, 0), ("any", "any"))}


@pytest.mark.parametrize(
    ("content", "begins"),
    [
        ({"version": 2, "partitions": []}, "Not supported version field value 2"),
        ({"version": True, "partitions": []}, "Not supported version field value true"),
        ({"version": 1, "partitions": []}, "Partition reassignment list cannot be empty"),
        ([], ""),
        ("{", "The reassignment is not JSON"),
    ],
)
def test_a_file_of_another_form_is_refused(file: Path, content: Any, begins: str) -> None:
    assert _sentence(file, content).startswith(begins)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"replicas": []}, "replica list cannot be empty"),
        ({"replicas": [1, 2, 1]}, "t-0 contains multiple entries for 1"),
        ({"replicas": [True]}, "is not an item of the form"),
        ({"replicas": [-1]}, "is not an item of the form"),
        ({"replicas": [2**31]}, "is not an item of the form"),
        ({"partition": 1.0}, "is not an item of the form"),
        ({"topic": None}, "is not an item of the form"),
        ({"log_dirs": ["any"]}, "different from size of log dirs list"),
        ({"log_dirs": "any"}, "not a list of paths"),
    ],
)
def test_an_item_of_another_form_is_refused(file: Path, changed: dict[str, Any], says: str) -> None:
    good = {"topic": "t", "partition": 0, "replicas": [1, 2]}
    assert says in _sentence(file, {"version": 1, "partitions": [good | changed]})


def test_a_partition_or_a_topic_that_is_named_twice_is_refused(file: Path) -> None:
    item = {"topic": "t", "partition": 0, "replicas": [1]}
    assert "duplicate topic partitions: t-0" in _sentence(file, {"partitions": [item, item]})
    file.write_text(json.dumps({"topics": [{"topic": "t"}, {"topic": "u"}]}))
    assert read_topics(str(file)) == ["t", "u"]
    file.write_text(json.dumps({"topics": [{"topic": "t"}, {"topic": "t"}]}))
    with pytest.raises(JesenskaError, match="duplicate entries: t stands"):
        read_topics(str(file))


def test_the_items_are_sorted_by_topic_and_number() -> None:
    assignments = {TopicPartition("t", 10): [1], TopicPartition("t", 9): [2], TopicPartition("a", 0): [3]}
    assert [(item["topic"], item["partition"]) for item in as_items(assignments)] == [("a", 0), ("t", 9), ("t", 10)]
