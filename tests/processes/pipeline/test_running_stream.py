"""Changes of topics while a query runs: new partitions and topics, deleted topics, and the lag of the query."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jesenska.pipeline import PartitionLag, lag
from tests.processes.pipeline.conftest import Reading, Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Running:
    """A query that runs until the test ends, and the offsets that it has read of each partition, in order of
    arrival."""

    def __init__(self, frame: Any, state: Path) -> None:
        self.found: dict[tuple[str, int], list[int]] = {}
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(state))
        self.query = writer.trigger(processingTime="50 milliseconds").start()

    def _take(self, rows: Any, number: int) -> None:
        for key, offsets in Reading.offsets(rows).items():
            self.found.setdefault(key, []).extend(offsets)

    def until(self, wanted: dict[tuple[str, int], list[int]]) -> None:
        """Waits until the query has read these offsets. The limit is the time limit of the test."""
        while any(len(self.found.get(key, [])) < len(offsets) for key, offsets in wanted.items()):
            self.query.processAllAvailable()  # raises the error of the query
        assert self.found == wanted


@contextlib.contextmanager
def running(frame: Any, state: Path) -> Iterator[Running]:
    made = Running(frame, state)
    try:
        yield made
    finally:
        made.query.stop()


def test_partitions_that_are_added_are_read_from_their_beginning(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 2)
    with running(reading.stream(subscribe=topic, startingOffsets="earliest"), tmp_path) as stream:
        stream.until({(topic, 0): [0, 1]})
        topics.add_partitions(topic, 3)
        topics.send(topic, [b"x"] * 3, 2)
        topics.send(topic, [b"x"], 0)
        stream.until({(topic, 0): [0, 1, 2], (topic, 2): [0, 1, 2]})


def test_topics_that_begin_to_match_the_pattern_are_read_and_others_are_not(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    first = topics.create()
    topics.send(first, [b"x"])
    with running(reading.stream(subscribePattern=first + "(-[ab])?", startingOffsets="earliest"), tmp_path) as stream:
        stream.until({(first, 0): [0]})
        second, other = topics.create(name=first + "-b"), topics.create(name=first + "-c")
        topics.send(other, [b"x"] * 5)
        topics.send(second, [b"x"] * 2)
        topics.send(first, [b"x"])
        stream.until({(first, 0): [0, 1], (second, 0): [0, 1]})


def test_a_topic_that_goes_stops_the_query_and_is_named(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    first, second = topics.create(), topics.create()
    for topic in (first, second):
        topics.send(topic, [b"x"] * 2)
    with running(reading.stream(subscribe=f"{first},{second}", startingOffsets="earliest"), tmp_path) as stream:
        stream.until({(first, 0): [0, 1], (second, 0): [0, 1]})
        topics.delete(second)
        with pytest.raises(
            Exception,
            match=f"{second}-0 does not exist any more; the stream was at its offset 2. To go on",
        ):
            while True:
                stream.query.processAllAvailable()


def test_a_topic_that_is_taken_out_of_subscribe_is_told_from_one_that_is_gone(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    first, second = topics.create(), topics.create()
    topics.send(second, [b"x"])
    reading.run(reading.stream(subscribe=f"{first},{second}", startingOffsets="earliest"), tmp_path)
    with pytest.raises(
        Exception,
        match=f"{second}-0 is in the stream's checkpoint, but not in the option subscribe; the stream was at its "
        f"offset 1. To go on",
    ):
        reading.run(reading.stream(subscribe=first, startingOffsets="earliest"), tmp_path)


def test_without_fail_on_data_loss_the_query_goes_on_and_reads_the_topic_anew_when_it_comes_back(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    first, second = topics.create(), topics.create()
    for topic in (first, second):
        topics.send(topic, [b"x"] * 2)
    with running(
        reading.stream(subscribe=f"{first},{second}", startingOffsets="earliest", failOnDataLoss=False), tmp_path
    ) as stream:
        stream.until({(first, 0): [0, 1], (second, 0): [0, 1]})
        topics.delete(second)
        topics.send(first, [b"x"])
        stream.until({(first, 0): [0, 1, 2], (second, 0): [0, 1]})
        topics.create(name=second)
        topics.send(second, [b"y"] * 3)
        stream.until({(first, 0): [0, 1, 2], (second, 0): [0, 1, 0, 1, 2]})


def test_an_added_partition_that_has_lost_its_first_records_is_data_loss(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    strict = reading.stream(subscribe=topic, startingOffsets="earliest")
    topics.send(topic, [b"x"])
    assert reading.run(strict, tmp_path) == {(topic, 0): [0]}
    topics.add_partitions(topic, 2)
    topics.send(topic, [b"x"] * 3, 1)
    topics.delete_records(topic, 2, 1)
    with pytest.raises(Exception, match=f"{topic}-1 was added while the stream ran and begins at offset 2"):
        reading.run(strict, tmp_path)
    lenient = reading.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=False)
    assert reading.run(lenient, tmp_path) == {(topic, 0): [0], (topic, 1): [2]}


def test_a_stream_begins_at_a_time_of_each_partition(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.send(topic, [(b"x", None, None, 1000 * number) for number in range(1, 6)], partition, linger_seconds=0)
    times = json.dumps({topic: {"0": 3000, "1": 6000}})
    with pytest.raises(Exception, match=f"{topic}-1 has no record at or after the time 6000"):
        reading.run(reading.stream(subscribe=topic, startingOffsetsByTimestamp=times), tmp_path / "error")
    frame = reading.stream(
        subscribe=topic, startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="latest"
    )
    assert reading.run(frame, tmp_path / "latest") == {(topic, 0): [2, 3, 4]}
    topics.send(topic, [b"x"], 1)
    assert reading.run(frame, tmp_path / "latest") == {(topic, 0): [2, 3, 4], (topic, 1): [5]}


def test_a_progress_tells_how_far_the_query_is_behind(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"x"] * 20, 0)
    topics.send(topic, [b"x"] * 10, 1)
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=15)
    query = (
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    first, second = [report for report in query.recentProgress if report["numInputRows"]]
    assert lag(first) == [PartitionLag(0, topic, 0, 10, 20), PartitionLag(0, topic, 1, 5, 10)]
    assert [item.lag for item in lag(first)] == [10, 5]
    assert lag(first.json) == lag(first)
    assert lag(json.loads(first.json)) == lag(first)
    assert [(item.end_offset, item.lag) for item in lag(second)] == [(20, 0), (10, 0)]
    assert lag(query.lastProgress)[-1].lag == 0


def test_a_stream_commits_how_far_it_has_read_to_the_group_that_is_named(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    topic, group = topics.create(2), f"group-of-{tmp_path.name}"
    topics.send(topic, [b"x"] * 4, 0)
    topics.send(topic, [b"x"] * 2, 1)
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", kafka__group__id=group, maxOffsetsPerTrigger=3)
    reading.run(frame, tmp_path)
    assert topics.committed(group) == {(topic, 0): 4, (topic, 1): 2}
