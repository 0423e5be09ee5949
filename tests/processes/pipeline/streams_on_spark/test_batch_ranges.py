"""The ranges of offsets that the tasks of a micro-batch read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jesenska.pipeline.connector.options import source_options
from jesenska.pipeline.connector.planning import OffsetRange
from jesenska.pipeline.streams import StreamsError
from jesenska.pipeline.streams_on_spark.queries.batch_ranges import BatchRanges, shares
from tests.processes.pipeline.conftest import Topics


def test_all_topics_of_a_partition_number_are_one_tasks() -> None:
    ranges = [OffsetRange(topic, number, 0, 10) for topic in ("a", "b") for number in range(5)]
    dealt = shares(ranges, 2)
    assert len(dealt) == 2
    assert sorted(number for share in dealt for number, _ in share) == [0, 1, 2, 3, 4]
    assert all(
        {item.topic for item in members} == {"a", "b"} and {item.partition for item in members} == {number}
        for share in dealt
        for number, members in share
    )


def test_large_partitions_are_apart_and_many_offsets_are_for_more_tasks() -> None:
    sizes = {0: 90_000, 1: 10, 2: 10, 3: 10, 4: 80_000}
    ranges = [OffsetRange("a", number, 0, size) for number, size in sizes.items()]
    dealt = shares(ranges, 2)
    assert len(dealt) == 4
    alone = [share for share in dealt if any(number in (0, 4) for number, _ in share)]
    assert [len(share) for share in alone] == [1, 1]


def test_partitions_without_records_are_there_where_they_are_asked_for() -> None:
    assert shares([], 2) == []
    assert sorted(shares([OffsetRange("a", 1, 3, 4)], 4, every=range(2))) == [
        ((0, ()),),
        ((1, (OffsetRange("a", 1, 3, 4),)),),
    ]


def _write(checkpoint: Path, number: int, *lines: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))


def test_a_micro_batch_goes_from_the_end_of_the_one_before_to_its_own(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    for number in range(2):
        topics.send(topic, [(b"v", None, None, at) for at in range(5)], number)
    _write(tmp_path, 0, "v1", "{}", json.dumps({topic: {"0": 2, "1": 3}}))
    _write(tmp_path, 1, "v1", "{}", "17", json.dumps({topic: {"0": 5, "1": 3}}))  # another source is the first
    ranges = BatchRanges(
        source_options(
            {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, "startingOffsets": "earliest"},
            streaming=True,
        ),
        tmp_path,
    )
    assert ranges.of(0) == [OffsetRange(topic, 0, 0, 2), OffsetRange(topic, 1, 0, 3)]
    assert ranges.of(1) == [OffsetRange(topic, 0, 2, 5)]


@pytest.mark.parametrize("lines", [("v9", "{}", "{}"), ("v1", "{}", "7"), ("v1",)])
def test_a_checkpoint_that_is_not_understood_is_told(tmp_path: Path, lines: tuple[str, ...]) -> None:
    _write(tmp_path, 3, *lines)
    _write(tmp_path, 4, *lines)
    ranges = BatchRanges(
        source_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, streaming=True), tmp_path
    )
    with pytest.raises(StreamsError, match=r"Spark's checkpoint .*offsets/3 cannot be read"):
        ranges.of(4)
