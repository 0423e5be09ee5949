"""Ranges cut into tasks, and a trigger's limit shared out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.connector.planning import (
    Bounds,
    DataLossError,
    OffsetRange,
    Place,
    cut,
    from_tree,
    share,
    to_tree,
    within,
)

RANGES = st.lists(
    st.builds(
        lambda partition, start, size: OffsetRange("t", partition, start, start + size),
        st.integers(0, 9),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    max_size=8,
    unique_by=lambda item: item.partition,
)


@given(RANGES, st.none() | st.integers(1, 60), st.none() | st.integers(30_000, 10**7))
def test_pieces_make_up_the_ranges_again(ranges: list[OffsetRange], minimum: int | None, largest: int | None) -> None:
    pieces = cut(ranges, minimum, largest)
    assert all(piece.size > 0 for piece in pieces)
    for whole in ranges:
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert [offset for piece in mine for offset in (piece.start, piece.end)][1:-1:2] == [
            piece.start for piece in mine
        ][1:]
        if whole.size:
            assert (mine[0].start, mine[-1].end) == (whole.start, whole.end)
        else:
            assert mine == []
    if largest is not None:
        assert all(piece.size <= largest for piece in pieces)
    if minimum is not None:
        assert len(pieces) >= min(minimum, sum(item.size for item in ranges))


def test_more_tasks_go_to_larger_ranges() -> None:
    pieces = cut([OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 900)], 10)
    assert [sum(piece.partition == number for piece in pieces) for number in (0, 1)] == [1, 9]


def test_a_limit_that_makes_too_many_tasks_is_refused() -> None:
    with pytest.raises(JesenskaError, match="choose a larger number"):
        cut([OffsetRange("t", 0, 0, 10**9)], None, 1)


@given(
    st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8),
    st.integers(1, 5000),
)
def test_a_limit_is_used_up_and_never_passed(waiting: dict[int, tuple[int, int]], limit: int) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in waiting.items()}
    latest = {TopicPartition("t", number): begin + size for number, (begin, size) in waiting.items()}
    end = share(limit, start, latest)
    assert all(start[key] <= end[key] <= latest[key] for key in end)
    assert sum(end[key] - start[key] for key in end) == min(limit, sum(size for _, size in waiting.values()))


def test_a_small_partition_is_not_starved() -> None:
    small, large = TopicPartition("t", 0), TopicPartition("t", 1)
    assert share(10, {small: 0, large: 0}, {small: 1, large: 10**6})[small] == 1


@given(
    st.dictionaries(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 30)), st.integers(0, 2**63 - 1))
)
def test_offsets_survive_the_checkpoint_in_one_order(offsets: dict[TopicPartition, int]) -> None:
    tree = to_tree(offsets)
    assert from_tree(tree).offsets == offsets
    assert str(tree) == str(to_tree(dict(reversed(offsets.items()))))


def test_the_ids_of_topics_stand_beside_the_offsets() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b", 1): 7}
    tree = to_tree(offsets, {"a": "x", "c": "y"})
    assert tree == {"a": {"0": 5, "topicId": "x"}, "b": {"1": 7}}
    assert from_tree(tree) == Place(offsets, {"a": "x"})
    assert Place(offsets, {"a": "x"}).is_another("a", {"a": "z"})
    assert not any(
        Place(offsets, known).is_another("a", seen)
        for known, seen in (({"a": "x"}, {"a": "x"}), ({}, {"a": "x"}), ({"a": "x"}, {}))
    )


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [(10, 20, (10, 20)), (0, 20, (5, 20)), (10, 40, (10, 30)), (0, 3, (5, 5)), (50, 60, (5, 30)), (30, 30, (30, 30))],
)
def test_what_is_gone_is_passed_over_or_fails(start: int, end: int, kept: tuple[int, int]) -> None:
    key = TopicPartition("t", 0)
    bounds = Bounds({key: 5}, {key: 30})
    wanted = OffsetRange("t", 0, start, end)
    found = within(wanted, bounds, False)
    assert (found.start, found.end) == kept
    if found != wanted:
        with pytest.raises(DataLossError, match=r"t-0 .* offset .*failOnDataLoss"):
            within(wanted, bounds, True)
