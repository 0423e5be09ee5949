"""The stream's reader alone, as Spark's helper process calls it: triggers that wait, tasks made from ranges, and
repeated look-ups."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from jesenska.base.clock import ManualClock
from jesenska.base.errors import NetworkException
from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.connector import planning
from jesenska.pipeline.connector.options import source_options
from jesenska.pipeline.connector.planning import DataLossError
from jesenska.pipeline.connector.source import JesenskaReader, JesenskaStreamReader
from tests.processes.pipeline.conftest import Topics

pytestmark = pytest.mark.spark


def _reader(bootstrap: str, clock: ManualClock | None = None, **options: Any) -> JesenskaStreamReader:
    texts = {
        "kafka.bootstrap.servers": bootstrap,
        "startingOffsets": "earliest",
        **{name.replace("__", "."): str(text) for name, text in options.items()},
    }
    return JesenskaStreamReader(source_options(texts, streaming=True), clock)


def _numbers(tree: Any) -> dict[str, dict[str, int]]:
    """The offsets without the ids of the topics."""
    return {
        topic: {name: number for name, number in partitions.items() if name != "topicId"}
        for topic, partitions in tree.items()
    }


def _read(reader: JesenskaStreamReader, start: Any, end: Any) -> list[tuple[str, int, int, int]]:
    return [
        (item.topic, item.partition, item.start, item.end)
        for piece in reader.partitions(start, end)
        for item in piece.value.ranges
    ]


def test_a_trigger_waits_for_enough_records_but_not_longer_than_the_delay(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 2)
    clock = ManualClock()
    reader = _reader(bootstrap, clock, subscribe=topic, minOffsetsPerTrigger=10, maxTriggerDelay="30s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = reader.initialOffset()
    first = reader.latestOffset(start, limit)
    assert _numbers(first) == {topic: {"0": 2}}  # the first trigger does not wait
    topics.send(topic, [b"x"] * 3)
    assert reader.latestOffset(first, limit) == first
    assert reader.reportLatestOffset() == {topic: {"0": 5}}
    clock.advance(29_900)
    assert reader.latestOffset(first, limit) == first
    clock.advance(200)
    second = reader.latestOffset(first, limit)
    assert _numbers(second) == {topic: {"0": 5}}  # the delay is over
    topics.send(topic, [b"x"] * 10)
    assert _numbers(reader.latestOffset(second, limit)) == {topic: {"0": 15}}  # enough of them


def test_both_limits_together_wait_for_the_lower_and_take_no_more_than_the_upper(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create()
    reader = _reader(bootstrap, ManualClock(), subscribe=topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=8)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    start = reader.latestOffset(reader.initialOffset(), limit)
    topics.send(topic, [b"x"] * 4)
    assert reader.latestOffset(start, limit) == start
    topics.send(topic, [b"x"] * 6)
    assert _numbers(reader.latestOffset(start, limit)) == {topic: {"0": 8}}
    assert _numbers(reader.latestOffset(start, ReadAllAvailable())) == {topic: {"0": 10}}


def test_a_query_that_ends_by_itself_never_waits(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 2)
    reader = _reader(bootstrap, ManualClock(), subscribe=topic, minOffsetsPerTrigger=100)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert _numbers(reader.latestOffset(start, reader.getDefaultReadLimit())) == {topic: {"0": 2}}


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({}, [60, 40]), ({"minPartitions": 5}, [20, 20, 20, 20, 20]), ({"maxRecordsPerPartition": 30}, [30, 30, 20, 20])],
)
def test_a_micro_batch_is_cut_into_tasks(
    bootstrap: str, topics: Topics, options: dict[str, Any], sizes: list[int]
) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"x"] * 60, 0)
    topics.send(topic, [b"x"] * 40, 1)
    reader = _reader(bootstrap, subscribe=topic, **options)
    start = reader.initialOffset()
    pieces = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert [piece.value.size for piece in pieces] == sizes


def test_a_topic_that_goes_between_two_look_ups_is_simply_gone(
    bootstrap: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # Its place is kept.
    assert _numbers(reader.latestOffset(known, reader.getDefaultReadLimit())) == {stays: {"0": 2}, goes: {"0": 1}}
    outdated_once()
    assert [piece.value.size for piece in reader.partitions(start, known)] == [1]
    outdated_once()
    reader.prepareForTriggerAvailableNow()
    assert _numbers(reader.latestOffset(known, reader.getDefaultReadLimit())) == {stays: {"0": 2}, goes: {"0": 1}}


def test_look_ups_of_offsets_are_tried_again_as_often_as_the_option_says(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# --- where a new query begins ----------------------------------------------------------------------------------------


def test_a_stream_from_the_end_of_a_busy_topic_reads_none_of_its_past(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * 10)
    reader = _reader(bootstrap, subscribe=topic, startingOffsets="latest")
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    topics.send(topic, [b"x"] * 2)
    end = reader.latestOffset(start, limit)
    topics.send(topic, [b"x"] * 3)
    again = reader.initialOffset()  # Spark asks a second time before it plans
    assert again == start
    assert _read(reader, again, end) == []
    following = reader.latestOffset(end, limit)
    assert _read(reader, end, following) == [(topic, 0, 10, 15)]


@pytest.mark.parametrize(
    "position",
    [{"startingOffsets": "latest"}, {"startingTimestamp": 2**41, "startingOffsetsByTimestampStrategy": "latest"}],
)
def test_a_first_micro_batch_that_is_run_again_by_a_new_process_reads_nothing_and_loses_nothing(
    bootstrap: str, topics: Topics, position: dict[str, Any]
) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * 10)
    first = _reader(bootstrap, subscribe=topic, **position)
    end = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())  # Spark keeps this
    topics.send(topic, [b"x"] * 4)
    second = _reader(bootstrap, subscribe=topic, **position)
    assert _read(second, second.initialOffset(), end) == []
    assert _read(second, end, second.latestOffset(end, second.getDefaultReadLimit())) == [(topic, 0, 10, 14)]


def test_a_first_micro_batch_from_the_beginning_is_not_empty_and_is_run_again_whole(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.send(topic, [b"x"] * 5, partition)
    mixed = json.dumps({topic: {"0": 1, "1": -1}})
    for _ in range(2):  # the second time in a new process, and with the end that the first one gave
        reader = _reader(bootstrap, subscribe=topic, startingOffsets=mixed)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        topics.send(topic, [b"x"], 1)
        again = _reader(bootstrap, subscribe=topic, startingOffsets=mixed)
        assert _read(again, again.initialOffset(), end) == [(topic, 0, 1, 5)]


def test_an_available_now_query_from_the_end_does_not_go_back_behind_its_start(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"old"] * 10)
    reader = _reader(bootstrap, subscribe=topic, startingOffsets="latest")
    reader.prepareForTriggerAvailableNow()
    topics.send(topic, [b"x"] * 2)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert _numbers(end) == {topic: {"0": 12}}
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end


# --- topics that were created again, or are missing for a moment -----------------------------------------------------


def _created_anew(topics: Topics, topic: str, records: int) -> None:
    topics.delete(topic)
    topics.create(name=topic)
    topics.send(topic, [b"new"] * records)


def test_a_topic_created_anew_that_is_longer_than_what_was_read_is_data_loss(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 2)
    strict, lenient = (_reader(bootstrap, subscribe=topic, failOnDataLoss=text) for text in ("true", "false"))
    known = strict.latestOffset(strict.initialOffset(), strict.getDefaultReadLimit())
    _created_anew(topics, topic, 5)
    with pytest.raises(DataLossError, match=f"{topic}-0 was deleted and created again; the stream was at offset 2"):
        strict.latestOffset(known, strict.getDefaultReadLimit())
    end = lenient.latestOffset(known, lenient.getDefaultReadLimit())
    assert _read(lenient, known, end) == [(topic, 0, 0, 5)]


def test_a_topic_created_anew_after_a_micro_batch_was_planned_is_data_loss(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 2)
    strict, lenient = (_reader(bootstrap, subscribe=topic, failOnDataLoss=text) for text in ("true", "false"))
    start = strict.initialOffset()
    end = strict.latestOffset(start, strict.getDefaultReadLimit())
    _created_anew(topics, topic, 5)
    with pytest.raises(
        DataLossError, match=f"{topic}-0 was deleted and created again; its offsets from 0 to 2 are to be read"
    ):
        strict.partitions(start, end)
    assert _read(lenient, start, end) == []
    assert _read(lenient, end, lenient.latestOffset(end, lenient.getDefaultReadLimit())) == [(topic, 0, 0, 5)]


def test_partitions_that_a_topic_created_anew_does_not_have_are_forgotten(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, [b"x"] * 2, 1)
    reader = _reader(bootstrap, subscribe=topic, failOnDataLoss="false")
    known = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    _created_anew(topics, topic, 1)
    known = reader.latestOffset(known, reader.getDefaultReadLimit())
    assert _numbers(known) == {topic: {"0": 1}}
    topics.add_partitions(topic, 2)
    topics.send(topic, [b"x"] * 3, 1)
    assert _read(reader, known, reader.latestOffset(known, reader.getDefaultReadLimit())) == [(topic, 1, 0, 3)]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_one_answer_leaves_out_is_read_on_where_the_stream_stood(
    bootstrap: str, topics: Topics, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 3)
    reader = _reader(bootstrap, subscribe=topic, failOnDataLoss=fail)
    known = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    ask = planning.partitions_of
    answers: list[list[TopicPartition]] = [[]]

    async def partitions(*arguments: Any, **options: Any) -> list[TopicPartition]:
        return answers.pop() if answers else await ask(*arguments, **options)

    monkeypatch.setattr(planning, "partitions_of", partitions)
    meanwhile = reader.latestOffset(known, reader.getDefaultReadLimit())
    assert meanwhile == known
    topics.send(topic, [b"x"] * 2)
    assert _read(reader, meanwhile, reader.latestOffset(meanwhile, reader.getDefaultReadLimit())) == [(topic, 0, 3, 5)]


def test_a_micro_batch_is_planned_although_one_answer_leaves_its_topic_out(
    bootstrap: str, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 3)
    reader = _reader(bootstrap, subscribe=topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    ask = planning.partitions_of
    answers: list[list[TopicPartition]] = [[], []]

    async def partitions(*arguments: Any, **options: Any) -> list[TopicPartition]:
        return answers.pop() if answers else await ask(*arguments, **options)

    monkeypatch.setattr(planning, "partitions_of", partitions)
    assert _read(reader, start, end) == [(topic, 0, 0, 3)]
    assert not answers


def test_a_checkpoint_without_topic_ids_goes_on(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, [b"x"] * 3)
    reader = _reader(bootstrap, subscribe=topic)
    known = {topic: {"0": 2}}
    assert _read(reader, known, reader.latestOffset(known, reader.getDefaultReadLimit())) == [(topic, 0, 2, 3)]


def test_a_commit_that_is_refused_is_said_once_and_does_not_stop_the_stream(
    bootstrap: str, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create()
    reader = _reader(bootstrap, subscribe=topic, kafka__group__id="refused")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            reader.commit({topic: {"0": 0, "7": 0}})  # a partition that does not exist
    assert caplog.text.count("Offsets could not be committed to the group refused") == 1
    reader.commit({topic: {"0": 0}})
    assert topics.committed("refused") == {(topic, 0): 0}
