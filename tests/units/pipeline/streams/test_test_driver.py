"""TopologyTestDriver itself: topics, order, time, records that cannot be read, and the messages for wrong calls."""

from __future__ import annotations

import logging

import pytest

from jesenska.pipeline.streams import (
    Decision,
    DeserializationFailure,
    Record,
    Serdes,
    SettingError,
    StreamsBuilder,
    StreamsError,
    TopologyTestDriver,
    dead_letter_topic,
    log_and_continue,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    value,
)
from jesenska.pipeline.streams.engine.queues import RawRecord, ReadRecord, TopicHeap, TopicQueue
from jesenska.pipeline.streams.records import RecordMetadata
from tests.units.pipeline.streams.running import LONG, STRING, S, driver_of, pipe, read


def _copying() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", **S).to("out")
    return builder


def test_an_input_topic_gives_times_of_its_own() -> None:
    with driver_of(_copying()) as driver:
        topic = driver.create_input_topic("in", start_timestamp=100, auto_advance=10, **S)
        topic.pipe_key_values([("a", "1"), ("b", "2")])
        topic.advance_time(5)
        topic.pipe_values(["3"])
        topic.pipe_records([Record("c", "4", 7, (("h", None),))])
        out = driver.create_output_topic("out", **S)
        assert out.queue_size == 4
        assert out.read_key_value() == ("a", "1")
        assert out.read_record() == Record("b", "2", 110)
        assert out.read_record() == Record(None, "3", 125)
        assert out.read_record() == Record("c", "4", 7, (("h", None),))
        assert out.is_empty()


def test_an_output_topic_is_read_as_a_list_or_as_a_map() -> None:
    with driver_of(_copying()) as driver:
        topic, out = driver.create_input_topic("in", **S), driver.create_output_topic("out", **S)
        topic.pipe_key_values([("a", "1"), ("b", "2"), ("a", "3")])
        assert out.read_key_values_to_map() == {"a": "3", "b": "2"}
        topic.pipe_key_values([("a", "4")])
        assert out.read_values_to_list() == ["4"]
        assert out.read_key_values_to_list() == []


def test_what_is_written_to_a_topic_that_is_read_is_read_again() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **S).map_values(value.upper(), value=STRING).to("between")
    builder.stream("between", **S).to("out")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "x", 1)])
        assert read(driver) == [("a", "X", 1)]


def test_internal_topics_take_the_earliest_record_first() -> None:
    builder = StreamsBuilder()
    several = builder.stream("in", **S).flat_map_values(value.split(" "), value=STRING)
    several.group_by(lambda key, value: value, name="by-value", **S).count().to_stream().to("counts")
    several.to("out")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "x y x", 5)])
        assert read(driver, "counts", value=LONG) == [("x", 1, 5), ("y", 1, 5), ("x", 2, 5)]


def test_topics_whose_next_records_are_of_one_time_come_in_the_order_of_javas_queue() -> None:
    heap = TopicHeap()
    for name, timestamp in (("a", 5), ("b", 5), ("c", 5), ("d", 5), ("e", 5), ("f", 4)):
        metadata = RecordMetadata(name, 0, 0)
        queue = TopicQueue(
            lambda raw, partition_time, metadata=metadata: ReadRecord("s", metadata, Record(None, None, raw.timestamp)),  # type: ignore[misc]
            lambda raw, metadata=metadata: ReadRecord("s", metadata, None),  # type: ignore[misc]
        )
        queue.add(RawRecord(name, 0, None, None, timestamp))
        heap.push(queue)
    # As java.util.PriorityQueue gives them.
    assert "".join(heap.pop().take().metadata.topic for _ in range(6)) == "fcedab"


def test_reading_where_nothing_is_says_where_something_is() -> None:
    with driver_of(_copying()) as driver:
        with pytest.raises(StreamsError, match="there is no record in else to read: the topology writes to out"):
            driver.create_output_topic("else", **S).read_value()
        with pytest.raises(StreamsError, match="the topology does not read the topic else: pipe into in"):
            driver.create_input_topic("else", **S).pipe_input("a", "x", 1)
        with pytest.raises(StreamsError, match="there is no store counts: the topology has none"):
            driver.get_key_value_store("counts")


def test_a_store_of_another_kind_is_told_so() -> None:
    builder = StreamsBuilder()
    builder.table("in", store="kept", **S)
    with (
        driver_of(builder) as driver,
        pytest.raises(StreamsError, match="the store kept is not a window store: ask for a key-value store"),
    ):
        driver.get_window_store("kept")


def test_a_closed_driver_takes_nothing_more() -> None:
    driver = driver_of(_copying())
    pipe(driver, [("in", "a", "x", 1)])
    driver.close()
    assert read(driver) == [("a", "x", 1)]
    with pytest.raises(StreamsError, match="the driver is closed"):
        pipe(driver, [("in", "a", "x", 1)])


# Records that cannot be read: default.deserialization.exception.handler


def _numbers() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).to("out")
    return builder


def test_a_record_that_cannot_be_read_stops_the_application_and_is_named() -> None:
    with driver_of(_numbers()) as driver:
        pipe_raw = driver.create_input_topic("in").pipe_raw
        pipe_raw(b"a", b"\0" * 8, 1)
        with pytest.raises(StreamsError) as failed:
            pipe_raw(b"a", b"1234", 2)
        text = str(failed.value)
        assert text.startswith(f"{__file__}, line ")
        assert (
            "the record at in-0, offset 1, cannot be read: b'1234' in in cannot be read as long: it has 4 bytes and "
            "not 8" in text
        )
        assert read(driver, value=LONG) == [("a", 0, 1)]


@pytest.mark.parametrize(
    "handler", [log_and_continue, "log_and_continue", "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler"]
)
def test_log_and_continue_drops_the_record(handler: object, caplog: pytest.LogCaptureFixture) -> None:
    with (
        driver_of(_numbers(), default__deserialization__exception__handler=handler) as driver,
        caplog.at_level(logging.WARNING),
    ):
        driver.create_input_topic("in").pipe_raw(b"a", b"1234", 2)
        driver.create_input_topic("in", key=STRING, value=LONG).pipe_input("a", 7, 3)
        assert read(driver, value=LONG) == [("a", 7, 3)]
        assert driver.dropped_records == 1
    (told,) = caplog.messages
    assert "in-0, offset 0: b'1234' in in cannot be read as long" in told
    assert told.endswith(".") and not told.endswith("..")


def test_a_dead_letter_topic_gets_the_record_as_it_was() -> None:
    with driver_of(_numbers(), default__deserialization__exception__handler=dead_letter_topic("dead")) as driver:
        driver.create_input_topic("in").pipe_raw(b"a", b"1234", 2, (("h", b"1"),))
        (dead,) = driver.read_raw("dead")
        assert (dead.key, dead.value, dead.timestamp) == (b"a", b"1234", 2)
        headers = dict(dead.headers)
        assert headers["h"] == b"1"
        assert headers["__streams.errors.topic"] == b"in"
        assert headers["__streams.errors.offset"] == b"0"
        assert b"it has 4 bytes and not 8" in (headers["__streams.errors.message"] or b"")


def test_a_handler_of_ones_own_decides_for_each_record() -> None:
    def handler(failure: DeserializationFailure) -> Decision:
        return Decision.fail() if failure.value == b"bad" else Decision.resume()

    with driver_of(_numbers(), default__deserialization__exception__handler=handler) as driver:
        driver.create_input_topic("in").pipe_raw(b"a", b"odd", 2)
        with pytest.raises(StreamsError, match="cannot be read"):
            driver.create_input_topic("in").pipe_raw(b"a", b"bad", 2)


# Times


def test_a_negative_timestamp_stops_the_application_unless_an_extractor_says_otherwise() -> None:
    with (
        driver_of(_copying()) as driver,
        pytest.raises(StreamsError, match="the record at in-0, offset 0, has the timestamp -1"),
    ):
        driver.pipe_raw("in", b"a", b"x", -1)
    with driver_of(_copying(), default__timestamp__extractor=log_and_skip_on_invalid_timestamp) as driver:
        driver.pipe_raw("in", b"a", b"x", -1)
        assert (read(driver), driver.dropped_records) == ([], 1)
    with driver_of(_copying(), default__timestamp__extractor=use_partition_time_on_invalid_timestamp) as driver:
        driver.pipe_raw("in", b"a", b"x", 7)
        driver.pipe_raw("in", b"a", b"y", -1)
        assert read(driver) == [("a", "x", 7), ("a", "y", 7)]


def test_an_extractor_takes_the_time_from_the_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=lambda record, partition_time: int(record.value), **S).to("out")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "42", 1)])
        assert read(driver) == [("a", "42", 42)]


def test_the_driver_needs_no_settings() -> None:
    with TopologyTestDriver(_copying().build()) as driver:
        pipe(driver, [("in", "a", "x", 1)])
        assert read(driver) == [("a", "x", 1)]


def test_a_pattern_reads_all_topics_that_it_matches() -> None:
    import re

    builder = StreamsBuilder()
    builder.stream(re.compile("in-[0-9]"), **S).to("out")
    with driver_of(builder) as driver:
        pipe(driver, [("in-1", "a", "x", 1), ("in-2", "a", "y", 2)])
        assert read(driver) == [("a", "x", 1), ("a", "y", 2)]
        with pytest.raises(StreamsError, match="pipe into topics that match"):
            pipe(driver, [("in-12", "a", "x", 1)])


def test_a_setting_that_cannot_be_is_refused_before_anything_runs() -> None:
    with pytest.raises(SettingError, match=r"the setting aplication\.id is not known: did you mean application\.id\?"):
        TopologyTestDriver(_copying().build(), {"aplication.id": "x"})


def test_changelogs_of_windows_and_sessions_have_kafkas_keys() -> None:
    from jesenska.pipeline.streams import SessionWindows, TimeWindows

    builder = StreamsBuilder()
    grouped = builder.stream("in", **S).group_by_key()
    grouped.windowed_by(TimeWindows(10)).count(store="windows")
    grouped.windowed_by(SessionWindows(10)).count(store="sessions")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "x", 12)])
        (window,) = driver.read_raw("test-windows-changelog")
        assert (window.key, window.value, window.timestamp) == (
            b"a" + (10).to_bytes(8, "big") + bytes(4),
            (1).to_bytes(8, "big"),
            12,
        )
        (session,) = driver.read_raw("test-sessions-changelog")
        assert session.key == b"a" + (12).to_bytes(8, "big") * 2
        assert Serdes.session_windowed(STRING).deserialize("", session.key).window.end == 12
