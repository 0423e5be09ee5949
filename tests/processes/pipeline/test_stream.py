"""Streams over topics: the records of each micro-batch, restarts, limits, new and lost partitions."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.processes.pipeline.conftest import Reading, Topics

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def _run(frame: Any, state: Path, seen: list[int] | None = None) -> list[Any]:
    """Runs the stream on the available records. Returns its progress reports that have rows."""
    query = (
        frame.writeStream.foreachBatch(
            lambda rows, number: seen.append(rows.count()) if seen is not None else rows.count()
        )
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [report for report in query.recentProgress if report["numInputRows"]]


def test_a_restarted_stream_goes_on_where_it_stood(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    frame = reading.stream(subscribe=topic, startingOffsets="earliest")
    topics.send(topic, [b"x"] * 5, 0)
    assert reading.run(frame, tmp_path) == {(topic, 0): list(range(5))}
    topics.send(topic, [b"x"] * 3, 0)
    topics.send(topic, [b"x"] * 2, 1)
    assert reading.run(frame, tmp_path) == {(topic, 0): list(range(8)), (topic, 1): [0, 1]}
    assert reading.run(frame, tmp_path) == {(topic, 0): list(range(8)), (topic, 1): [0, 1]}


def test_a_stream_begins_at_the_end_unless_told_otherwise(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 5)
    frame = reading.stream(subscribe=topic)
    assert reading.run(frame, tmp_path) == {}
    topics.send(topic, [b"x"])
    assert reading.run(frame, tmp_path) == {(topic, 0): [5]}


class _Producer(threading.Thread):
    """Sends records, one after the other, until it is stopped."""

    def __init__(self, topics: Topics, topic: str) -> None:
        super().__init__()
        self._topics, self._topic, self._over = topics, topic, threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            self._topics.send(self._topic, [b"new"], linger_seconds=0)

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


@pytest.mark.parametrize("trigger", [{"processingTime": "100 milliseconds"}, {"once": True}])
def test_a_stream_of_a_busy_topic_begins_at_its_end_and_leaves_nothing_out(
    reading: Reading, topics: Topics, tmp_path: Path, trigger: dict[str, Any]
) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * 2000)
    found: list[int] = []
    writer = reading.stream(subscribe=topic).writeStream.option("checkpointLocation", str(tmp_path)).trigger(**trigger)
    with _Producer(topics, topic):
        while len(found) < 20:
            query = writer.foreachBatch(
                lambda rows, number: found.extend(sorted(row.offset for row in rows.select("offset").collect()))
            ).start()
            try:
                while not query.awaitTermination(1) and ("once" in trigger or len(found) < 20):
                    pass
            finally:
                query.stop()
    assert found[0] >= 2000
    assert found == list(range(found[0], found[0] + len(found)))


@pytest.mark.parametrize(
    "left",
    [["offsets", "commits"], ["offsets"], []],
    ids=["after the commit", "before the commit", "before the offsets"],
)
def test_a_crash_in_the_first_micro_batch_neither_replays_the_past_nor_loses_records(
    reading: Reading, topics: Topics, tmp_path: Path, left: list[str]
) -> None:
    """After the crash, the checkpoint contains everything that Spark had written by then."""
    topic = topics.create()
    topics.send(topic, [b"old"] * 10)
    frame = reading.stream(subscribe=topic)
    found: list[int] = []

    def run() -> None:
        writer = frame.writeStream.foreachBatch(
            lambda rows, number: found.extend(row.offset for row in rows.select("offset").collect())
        )
        writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()

    run()
    for name in {"offsets", "commits"} - set(left):
        for file in (tmp_path / name).iterdir():
            file.unlink()
    topics.send(topic, [b"x"] * 3)
    run()
    # A query without a recorded start is a new one, and starts at the end again.
    assert sorted(found) == ([10, 11, 12] if left else [])
    topics.send(topic, [b"x"])
    run()
    assert sorted(found) == ([10, 11, 12, 13] if left else [13])


def test_max_offsets_per_trigger_is_shared_out_in_proportion(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"x"] * 60, 0)
    topics.send(topic, [b"x"] * 30, 1)
    sizes: list[int] = []
    reports = _run(
        reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30), tmp_path, sizes
    )
    assert sizes == [30, 30, 30]
    end = reports[0]["sources"][0]["endOffset"]
    numbers = (json.loads(end) if isinstance(end, str) else end)[topic]
    assert (numbers["0"], numbers["1"]) == (20, 10)


def test_available_now_ends_although_records_keep_coming(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 10)
    sizes: list[int] = []

    def more(rows: Any, number: int) -> None:
        sizes.append(rows.count())
        topics.send(topic, [b"x"] * 10)

    frame = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    query = (
        frame.writeStream.foreachBatch(more)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sizes == [5, 5]


def test_min_offsets_per_trigger_waits_for_records(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=10)
    sizes: list[int] = []

    def count(rows: Any, number: int) -> None:
        found = rows.count()
        if found:  # Spark's first micro-batch runs with nothing in it
            sizes.append(found)

    topics.send(topic, [b"x"] * 2)  # a query's first trigger reads the available records
    query = (
        frame.writeStream.foreachBatch(count)
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        while not sizes:
            assert query.isActive
            query.processAllAvailable()
        topics.send(topic, [b"x"] * 4)
        query.processAllAvailable()
        assert sizes == [2]
        topics.send(topic, [b"x"] * 6)
        while len(sizes) < 2:
            assert query.isActive
            query.processAllAvailable()
    finally:
        query.stop()
    assert sizes == [2, 10]


def test_partitions_that_are_added_are_read_from_their_beginning(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    frame = reading.stream(subscribe=topic)
    assert reading.run(frame, tmp_path) == {}
    topics.add_partitions(topic, 2)
    topics.send(topic, [b"x"] * 3, 1)
    assert reading.run(frame, tmp_path) == {(topic, 1): [0, 1, 2]}


def test_topics_that_begin_to_match_are_read_from_their_beginning(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    first = topics.create()
    frame = reading.stream(subscribePattern=first + ".*")
    assert reading.run(frame, tmp_path) == {}
    second = topics.create(name=first + "-b")
    topics.send(second, [b"x"] * 2)
    assert reading.run(frame, tmp_path) == {(second, 0): [0, 1]}


def test_a_stream_begins_at_times(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, [(b"x", None, None, 1000 * number) for number in range(1, 6)], linger_seconds=0)
    frame = reading.stream(subscribe=topic, startingTimestamp=3000)
    assert reading.run(frame, tmp_path) == {(topic, 0): [2, 3, 4]}


def test_offsets_that_are_gone_stop_the_stream_or_are_passed_over(
    reading: Reading, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 5)
    strict = reading.stream(subscribe=topic, startingOffsets="earliest")
    assert reading.run(strict, tmp_path) == {(topic, 0): [0, 1, 2, 3, 4]}
    topics.send(topic, [b"x"] * 5)
    topics.delete_records(topic, 8)
    with pytest.raises(Exception, match=f"{topic}-0 begins at offset 8, but the query begins at offset 5"):
        reading.run(strict, tmp_path)
    lenient = reading.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=False)
    assert reading.run(lenient, tmp_path) == {(topic, 0): [0, 1, 2, 3, 4, 8, 9]}


def test_a_topic_created_anew_is_data_loss(reading: Reading, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 5)
    strict = reading.stream(subscribe=topic, startingOffsets="earliest")
    reading.run(strict, tmp_path)
    topics.delete(topic)
    topics.create(name=topic)
    topics.send(topic, [b"y"] * 2)
    with pytest.raises(Exception, match=f"{topic}-0 was deleted and created again; the stream was at offset 5"):
        reading.run(strict, tmp_path)
    lenient = reading.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=False)
    assert reading.run(lenient, tmp_path)[(topic, 0)] == [0, 0, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_refuses_an_end(reading: Reading, topics: Topics, tmp_path: Path, name: str) -> None:
    with pytest.raises(Exception, match=f"The option {name} does not go with a stream"):
        reading.run(reading.stream(subscribe=topics.create(), **{name: "latest"}), tmp_path)
