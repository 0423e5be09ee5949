"""The stream's reader by itself, as Spark's helper process calls it: when a trigger waits, how ranges become tasks, how often look-ups are tried again."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from jesenska.base.clock import ManualClock
from jesenska.base.errors import NetworkException
from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline import planning
from jesenska.pipeline.options import source_options
from jesenska.pipeline.source import JesenskaReader, JesenskaStreamReader
from tests.pipeline.conftest import Topics

pytestmark = pytest.mark.spark


def _reader(bootstrap: str, clock: ManualClock | None = None, **options: Any) -> JesenskaStreamReader:
    texts = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", **{name.replace("__", "."): str(text) for name, text in options.items()}}
    return JesenskaStreamReader(source_options(texts, streaming=True), clock)


def test_a_trigger_waits_for_enough_records_but_not_longer_than_the_delay(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 2)
    clock = ManualClock()
    reader = _reader(bootstrap, clock, subscribe=topic, minOffsetsPerTrigger=10, maxTriggerDelay="30s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert first == {topic: {"0": 2}}  # the first trigger does not wait
    topics.send(topic, [b"x"] * 3)
    assert reader.latestOffset(first, limit) == first
    assert reader.reportLatestOffset() == {topic: {"0": 5}}
    clock.advance(29_900)
    assert reader.latestOffset(first, limit) == first
    clock.advance(200)
    second = reader.latestOffset(first, limit)
    assert second == {topic: {"0": 5}}  # the delay is over
    topics.send(topic, [b"x"] * 10)
    assert reader.latestOffset(second, limit) == {topic: {"0": 15}}  # enough of them


def test_both_limits_together_wait_for_the_lower_and_take_no_more_than_the_upper(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    reader = _reader(bootstrap, ManualClock(), subscribe=topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=8)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    start = reader.latestOffset(reader.initialOffset(), limit)
    topics.send(topic, [b"x"] * 4)
    assert reader.latestOffset(start, limit) == start
    topics.send(topic, [b"x"] * 6)
    assert reader.latestOffset(start, limit) == {topic: {"0": 8}}
    assert reader.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 10}}


def test_a_query_that_ends_by_itself_never_waits(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 2)
    reader = _reader(bootstrap, ManualClock(), subscribe=topic, minOffsetsPerTrigger=100)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {topic: {"0": 2}}


@pytest.mark.parametrize(
    ("options", "sizes"), [({}, [60, 40]), ({"minPartitions": 5}, [20, 20, 20, 20, 20]), ({"maxRecordsPerPartition": 30}, [30, 30, 20, 20])]
)
def test_a_micro_batch_is_cut_into_tasks(bootstrap: str, topics: Topics, options: dict[str, Any], sizes: list[int]) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"x"] * 60, 0)
    topics.send(topic, [b"x"] * 40, 1)
    reader = _reader(bootstrap, subscribe=topic, **options)
    start = reader.initialOffset()
    pieces = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert [piece.value.size for piece in pieces] == sizes


def test_a_topic_that_goes_between_two_look_ups_is_simply_gone(bootstrap: str, topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    stays, goes = topics.create(), topics.create()
    for topic in (stays, goes):
        topics.send(topic, [b"x"])
    reader = _reader(bootstrap, subscribe=f"{stays},{goes}", failOnDataLoss="false")
    start = reader.initialOffset()
    known = reader.latestOffset(start, reader.getDefaultReadLimit())
    seen = [TopicPartition(stays, 0), TopicPartition(goes, 0)]
    ask = planning.partitions_of

    def outdated_once() -> None:
        answers = [seen]

        async def partitions(*arguments: Any, **options: Any) -> list[TopicPartition]:
            return answers.pop() if answers else await ask(*arguments, **options)

        monkeypatch.setattr(planning, "partitions_of", partitions)

    topics.delete(goes)
    topics.send(stays, [b"x"])
    outdated_once()
    assert reader.latestOffset(known, reader.getDefaultReadLimit()) == {stays: {"0": 2}}
    outdated_once()
    assert [piece.value.size for piece in reader.partitions(start, known)] == [1]
    outdated_once()
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(known, reader.getDefaultReadLimit()) == {stays: {"0": 2}}


def test_look_ups_of_offsets_are_tried_again_as_often_as_the_option_says(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    async def gone(*_: object, **__: object) -> Any:
        nonlocal asked
        asked += 1
        raise NetworkException("gone")

    monkeypatch.setattr(planning, "partitions_of", gone)
    reader = _reader(bootstrap, subscribe="a", fetchOffset__numRetries=2, fetchOffset__retryIntervalMs=0)
    with pytest.raises(NetworkException):
        reader.initialOffset()
    assert asked == 3
    with pytest.raises(NetworkException):
        JesenskaReader(reader.options).partitions()
    assert asked == 6
