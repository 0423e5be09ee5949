"""Lag from a progress: its forms, and values that are not one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.pipeline import PartitionLag, lag, offsets_behind_latest

TREE = {"b": {"0": 5}, "a": {"10": 7, "9": 3}}


def _progress(*sources: tuple[Any, Any]) -> dict[str, Any]:
    return {
        "id": "x",
        "sources": [{"description": "Python", "endOffset": end, "latestOffset": latest} for end, latest in sources],
    }


@pytest.mark.parametrize("form", [lambda tree: tree, json.dumps])
def test_partitions_come_in_order_whether_offsets_are_text_or_parsed(form: Any) -> None:
    latest = {"b": {"0": 9}, "a": {"10": 7, "9": 4}}
    found = lag(_progress((form(TREE), form(latest))))
    assert [(item.topic, item.partition, item.lag) for item in found] == [("a", 9, 1), ("a", 10, 0), ("b", 0, 4)]


def test_every_source_of_a_query_is_counted_by_itself() -> None:
    found = lag(_progress((TREE, TREE), ({"a": {"9": 1}}, {"a": {"9": 3}})))
    assert found[-1] == PartitionLag(1, "a", 9, 1, 3)
    assert [item.source for item in found] == [0, 0, 0, 1]


def test_a_partition_that_is_not_begun_counts_whole_and_one_that_is_gone_not_at_all() -> None:
    found = lag(_progress(({"a": {"0": 4}}, {"a": {"1": 6}})))
    assert found == [PartitionLag(0, "a", 1, None, 6)]
    assert found[0].lag == 6


def test_a_log_that_was_cut_behind_the_query_is_no_negative_lag() -> None:
    assert lag(_progress(({"a": {"0": 9}}, {"a": {"0": 4}})))[0].lag == 0


def test_no_progress_yet_and_sources_of_another_kind_give_none() -> None:
    assert lag(None) == []
    assert lag({"sources": []}) == []
    assert lag(_progress((None, None), ("17", "18"), ({"a": 3}, {"a": 4}), ({"a": {"0": 1}}, None))) == []


@pytest.mark.parametrize("wrong", ["", "[]", "{", {}, {"sources": 3}])
def test_what_is_no_progress_is_said_in_one_sentence(wrong: Any) -> None:
    with pytest.raises(JesenskaError, match="not the progress of a streaming query"):
        lag(wrong)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.integers(0, 99)),
        st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
        max_size=12,
    )
)
def test_every_partition_of_the_latest_offsets_is_there_with_its_difference(
    offsets: dict[tuple[str, int], tuple[int, int]],
) -> None:
    end: dict[str, dict[str, int]] = {}
    latest: dict[str, dict[str, int]] = {}
    for (topic, partition), (stands, behind) in offsets.items():
        end.setdefault(topic, {})[str(partition)] = stands
        latest.setdefault(topic, {})[str(partition)] = stands + behind
    found = lag(json.dumps(_progress((json.dumps(end), latest))))
    assert {(item.topic, item.partition): (item.end_offset, item.lag) for item in found} == offsets


def test_the_metrics_of_sparks_own_source_are_computed_for_each_source() -> None:
    found = offsets_behind_latest(
        _progress((TREE, {"b": {"0": 9}, "a": {"10": 7, "9": 4}}), ({"c": {"0": 1}}, {"c": {"0": 3}}))
    )
    assert found == [
        {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 4, "avgOffsetsBehindLatest": 5 / 3},
        {"minOffsetsBehindLatest": 2, "maxOffsetsBehindLatest": 2, "avgOffsetsBehindLatest": 2.0},
    ]
    assert offsets_behind_latest(None) == []


def test_the_id_of_a_topic_beside_its_offsets_is_no_partition() -> None:
    assert lag(_progress(({"a": {"0": 4, "topicId": "x"}}, {"a": {"0": 6}}))) == [PartitionLag(0, "a", 0, 4, 6)]
