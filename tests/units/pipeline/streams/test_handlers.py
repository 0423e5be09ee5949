"""Records for which an operation fails, and those that cannot be written: the handlers, and the results."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.pipeline.streams import (
    Decision,
    ProcessingFailure,
    Processor,
    ProductionFailure,
    PunctuationType,
    Record,
    Serdes,
    SettingError,
    StreamsBuilder,
    StreamsError,
    TopologyTestDriver,
    dead_letter_topic,
    log_and_continue,
)
from tests.units.pipeline.streams.running import LONG, STRING, S, driver_of, pipe, read

PROCESSING = {"processing__exception__handler": log_and_continue}


def _dividing() -> StreamsBuilder:
    """A topology of two branches. The first one counts before it fails."""
    builder = StreamsBuilder()
    stream = builder.stream("in", **S)
    stream.map_values(lambda text: str(12 // int(text))).to("out", **S)
    stream.map_values(lambda text: f"seen {text}").to("seen", **S)
    return builder


def test_an_operation_that_raises_stops_the_application_unless_a_handler_goes_on() -> None:
    with driver_of(_dividing()) as driver, pytest.raises(StreamsError, match="raised ZeroDivisionError"):
        pipe(driver, [("in", "a", "0", 1)])
    with driver_of(_dividing(), **PROCESSING) as driver:
        pipe(driver, [("in", "a", "0", 1), ("in", "a", "4", 2)])
        assert read(driver) == [("a", "3", 2)]
        assert read(driver, "seen") == [("a", "seen 0", 1), ("a", "seen 4", 2)]  # the other branch continues
        assert driver.dropped_records == 1


def test_a_handler_gets_the_record_as_it_was_read_and_as_it_came_to_the_operation() -> None:
    told: list[ProcessingFailure] = []

    def handler(failure: ProcessingFailure) -> Decision:
        told.append(failure)
        return Decision.resume(("failed", Record(failure.key, b"failed", 7)))

    builder = StreamsBuilder()
    upper = builder.stream("in", **S).map_values(lambda text: text.upper())
    upper.map_values(lambda text: str(int(text)), name="to-number").map_values(lambda text: text + "!").to("out", **S)
    with driver_of(builder, processing__exception__handler=handler) as driver:
        pipe(driver, [("in", "a", "7", 1), ("in", "b", "x", 5)])
        (failed,) = driver.read_raw("failed")
        assert (failed.key, failed.value, failed.timestamp) == (b"b", b"failed", 7)
        assert read(driver) == [("a", "7!", 1)]
    (failure,) = told
    assert (failure.topic, failure.partition, failure.offset, failure.key, failure.value) == ("in", 0, 1, b"b", b"x")
    assert failure.node == "to-number" and failure.record == Record("b", "X", 5)
    assert "to-number raised ValueError" in str(failure.error)


def test_the_innermost_operation_asks_and_nobody_asks_again() -> None:
    asked: list[str] = []

    def handler(failure: ProcessingFailure) -> Decision:
        asked.append(failure.node)
        return Decision.fail()

    builder = StreamsBuilder()
    builder.stream("in", **S).map_values(str.upper, name="outer").map_values(int, name="inner").filter(
        lambda key, number: True
    ).to("out", value=LONG)
    with (
        driver_of(builder, processing__exception__handler=handler) as driver,
        pytest.raises(StreamsError, match="inner raised ValueError"),
    ):
        pipe(driver, [("in", "a", "x", 1)])
    assert asked == ["inner"]


def test_what_the_clock_calls_is_decided_about_as_well() -> None:
    told: list[Any] = []

    class Failing(Processor):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.fail)

        def process(self, record: Record) -> None:
            self.context.forward(record)

        def fail(self, now: int) -> None:
            raise ValueError("clock")

    def handler(failure: ProcessingFailure) -> Decision:
        told.append((failure.topic, failure.offset, failure.record))
        return Decision.resume()

    builder = StreamsBuilder()
    builder.stream("in", **S).process(Failing).to("out", **S)
    with driver_of(builder, processing__exception__handler=handler) as driver:
        driver.advance_wall_clock_time(10)
        pipe(driver, [("in", "a", "x", 1)])
        assert read(driver) == [("a", "x", 1)]
    assert told == [("", -1, None)]


def test_records_of_a_global_store_are_decided_about_where_the_settings_say_so() -> None:
    class Failing(Processor):
        def process(self, record: Record) -> None:
            raise ValueError("global")

    from jesenska.pipeline.streams import Stores

    def built() -> StreamsBuilder:
        builder = StreamsBuilder()
        builder.add_global_store(Stores.key_value_store("all", **S), "facts", Failing, **S)
        builder.stream("in", **S).to("out")
        return builder

    with driver_of(built(), **PROCESSING) as driver, pytest.raises(StreamsError, match="raised ValueError"):
        pipe(driver, [("facts", "a", "x", 1)])
    with driver_of(built(), **PROCESSING, processing__exception__handler__global__enabled="true") as driver:
        pipe(driver, [("facts", "a", "x", 1), ("in", "a", "x", 1)])
        assert read(driver) == [("a", "x", 1)]


def test_a_record_that_cannot_be_written_is_decided_about_by_another_handler() -> None:
    told: list[ProductionFailure] = []

    def handler(failure: ProductionFailure) -> Decision:
        told.append(failure)
        return Decision.resume()

    builder = StreamsBuilder()
    builder.stream("in", **S).map_values(lambda text: int(text) if text.isdigit() else text, name="numbers").to(
        "out", value=LONG
    )
    with (
        driver_of(builder, **PROCESSING) as driver,
        pytest.raises(StreamsError, match="cannot be written to out as long"),
    ):
        pipe(driver, [("in", "a", "x", 1)])
    with driver_of(builder, production__exception__handler=handler) as driver:
        pipe(driver, [("in", "a", "x", 1), ("in", "a", "7", 2)])
        assert read(driver, value=LONG) == [("a", 7, 2)]
        assert driver.dropped_records == 1
    (failure,) = told
    assert (failure.target, failure.record.value, failure.value) == ("out", "x", b"x")
    with driver_of(builder, default__production__exception__handler="log_and_continue") as driver:
        pipe(driver, [("in", "a", "x", 1)])


@pytest.mark.parametrize("kind", ["deserialization", "processing", "production"])
def test_dead_letters_go_to_the_topic_of_the_settings(kind: str) -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=STRING, value=LONG)
    numbers.map_values(lambda number: {1: "text", 2: 4 // (number - 2) if number != 1 else 0}.get(number, number)).to(
        "out", value=LONG
    )
    value = {"deserialization": b"odd", "processing": b"\0" * 7 + b"\2", "production": b"\0" * 7 + b"\1"}[kind]
    config: dict[str, Any] = {
        f"{kind}__exception__handler": "log_and_continue",
        "errors__dead__letter__queue__topic__name": "dead",
    }
    with driver_of(builder, **config) as driver:
        driver.pipe_raw("in", b"a", value, 3, (("h", b"1"),))
        (dead,) = driver.read_raw("dead")
    assert (dead.key, dead.value, dead.timestamp) == (b"a", value, 3)
    headers = dict(dead.headers)
    assert (headers["h"], headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (b"1", b"in", b"0")
    with driver_of(
        builder,
        **{f"{kind}__exception__handler": dead_letter_topic("mine")},
        errors__dead__letter__queue__topic__name="dead",
    ) as driver:
        driver.pipe_raw("in", b"a", value, 3)
        assert len(driver.read_raw("mine")) == 1 and not driver.read_raw("dead")
    with driver_of(builder, errors__dead__letter__queue__topic__name="dead") as driver, pytest.raises(StreamsError):
        driver.pipe_raw("in", b"a", value, 3)


def test_names_that_are_generated_are_refused_where_the_settings_want_none() -> None:
    config = {"ensure.explicit.internal.resource.naming": True}
    builder = StreamsBuilder()
    builder.stream("in", **S).group_by(lambda key, text: text, name="by-text", **S).count().to_stream().to(
        "out", value=Serdes.long()
    )
    with pytest.raises(
        SettingError,
        match=r"are generated ones: KSTREAM-AGGREGATE-STATE-STORE-\d{10}\. Give each of these operations",
    ):
        TopologyTestDriver(builder.build(), config)
    builder = StreamsBuilder()
    builder.stream("in", **S).group_by(lambda key, text: text, name="by-text", **S).count(
        store="counts"
    ).to_stream().to("out", value=Serdes.long())
    TopologyTestDriver(builder.build(), config).close()
