"""Operations on streams that look at one record at a time."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.pipeline.streams import (
    ProcessorFailedError,
    Serdes,
    StreamsBuilder,
    StreamsError,
    TopologyError,
    concat,
    key,
    struct,
    value,
)
from tests.units.pipeline.streams.running import LONG, S, driver_of, outcome, pipe, read


def _stream() -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    return builder, builder.stream("in", **S)


ROWS = [("in", "a", "x", 1), ("in", None, "y", 2), ("in", "c", None, 3)]


@pytest.mark.parametrize("predicate", [lambda key, value: value == "x", value == "x"], ids=["function", "expression"])
def test_filter_keeps_what_the_predicate_takes_and_filter_not_the_rest(predicate: Any) -> None:
    builder, stream = _stream()
    stream.filter(predicate).to("out")
    assert outcome(builder, ROWS) == [("a", "x", 1)]
    builder, stream = _stream()
    stream.filter_not(predicate).to("out")
    assert outcome(builder, ROWS) == [(None, "y", 2), ("c", None, 3)]


def test_map_makes_keys_and_values_and_keeps_times() -> None:
    builder, stream = _stream()
    stream.map(lambda key, value: (value, key)).to("out", **S)
    assert outcome(builder, ROWS) == [("x", "a", 1), ("y", None, 2), (None, "c", 3)]


def test_map_takes_a_pair_of_expressions() -> None:
    builder, stream = _stream()
    stream.map((value, concat(key, "/", value))).to("out", **S)
    assert outcome(builder, ROWS) == [("x", "a/x", 1), ("y", None, 2), (None, None, 3)]


def test_map_values_calls_with_the_value_or_with_key_and_value() -> None:
    builder, stream = _stream()
    stream.map_values(lambda value: f"<{value}>", value=Serdes.string()).to("out")
    assert outcome(builder, ROWS) == [("a", "<x>", 1), (None, "<y>", 2), ("c", "<None>", 3)]
    builder, stream = _stream()
    stream.map_values(lambda key, value: f"{key}{value}", value=Serdes.string()).to("out")
    assert outcome(builder, ROWS[:1]) == [("a", "ax", 1)]


def test_flat_map_gives_any_number_of_records() -> None:
    builder, stream = _stream()
    stream.flat_map(lambda key, value: [(value, str(number)) for number in range(2)] if value else []).to("out", **S)
    assert outcome(builder, ROWS) == [("x", "0", 1), ("x", "1", 1), ("y", "0", 2), ("y", "1", 2)]


def test_flat_map_values_of_a_null_gives_nothing() -> None:
    builder, stream = _stream()
    stream.flat_map_values(value.split(" "), value=Serdes.string()).to("out")
    assert outcome(builder, [("in", "a", "one two", 1), ("in", "b", None, 2)]) == [("a", "one", 1), ("a", "two", 1)]


def test_select_key_keeps_values() -> None:
    builder, stream = _stream()
    stream.select_key(value, key=Serdes.string()).to("out")
    assert outcome(builder, ROWS) == [("x", "x", 1), ("y", "y", 2), (None, None, 3)]


def test_peek_and_foreach_see_every_record() -> None:
    seen: list[Any] = []
    builder, stream = _stream()
    stream.peek(lambda key, value: seen.append((key, value))).foreach(lambda key, value: seen.append(value))
    with driver_of(builder) as driver:
        pipe(driver, ROWS[:2])
    assert seen == [("a", "x"), "x", (None, "y"), "y"]


def test_print_shows_records(capsys: pytest.CaptureFixture[str]) -> None:
    builder, stream = _stream()
    stream.print("orders")
    with driver_of(builder) as driver:
        pipe(driver, ROWS[:1])
    assert capsys.readouterr().out == "[orders]: a, x\n"


def test_a_branch_gets_what_no_earlier_branch_took() -> None:
    builder, stream = _stream()
    first, second = stream.branch(value == "x", lambda key, value: value is not None)
    first.to("first")
    second.to("second")
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert read(driver, "first") == [("a", "x", 1)]
        assert read(driver, "second") == [(None, "y", 2)]


def test_split_gives_streams_by_their_names_and_the_rest_to_the_default() -> None:
    builder, stream = _stream()
    branches = (
        stream.split(name="by-")
        .branch(value == "x", name="x")
        .branch(value == "y", chain=lambda branch: branch.to("y"))
        .default_branch(name="rest")
    )
    assert sorted(branches) == ["by-rest", "by-x"]
    branches["by-x"].to("x")
    branches["by-rest"].to("rest")
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert (read(driver, "x"), read(driver, "y"), read(driver, "rest")) == (
            [("a", "x", 1)],
            [(None, "y", 2)],
            [("c", None, 3)],
        )


def test_without_a_default_branch_the_rest_is_dropped() -> None:
    builder, stream = _stream()
    (branch,) = stream.split().branch(value == "x").no_default_branch().values()
    branch.to("out")
    assert outcome(builder, ROWS) == [("a", "x", 1)]


def test_merge_has_the_records_of_both() -> None:
    builder = StreamsBuilder()
    builder.stream("one", **S).merge(builder.stream("two", **S)).to("out")
    assert outcome(builder, [("one", "a", "1", 1), ("two", "a", "2", 0), ("one", "b", "3", 5)]) == [
        ("a", "1", 1),
        ("a", "2", 0),
        ("b", "3", 5),
    ]


def test_to_writes_to_the_topic_that_a_function_names() -> None:
    builder, stream = _stream()
    stream.to(lambda key, value: f"of-{value}")
    with driver_of(builder) as driver:
        pipe(driver, ROWS[:2])
        assert (read(driver, "of-x"), read(driver, "of-y")) == ([("a", "x", 1)], [(None, "y", 2)])


def test_through_writes_to_a_topic_and_reads_it_again() -> None:
    builder, stream = _stream()
    stream.through("between").map_values(value.upper(), value=Serdes.string()).to("out")
    with driver_of(builder) as driver:
        pipe(driver, ROWS[:1])
        assert read(driver, "between") == [("a", "x", 1)]
        assert read(driver) == [("a", "X", 1)]


def test_repartition_goes_through_an_internal_topic_and_drops_null_keys() -> None:
    builder, stream = _stream()
    stream.repartition(name="spread", partitions=3).to("out")
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert read(driver) == [("a", "x", 1), ("c", None, 3)]
        assert read(driver, "test-spread-repartition") == [("a", "x", 1), ("c", None, 3)]


def test_an_aggregation_behind_new_keys_goes_through_an_internal_topic_and_one_behind_old_keys_does_not() -> None:
    builder, stream = _stream()
    stream.group_by_key().count(store="straight").to_stream().to("straight")
    stream.select_key(value, key=Serdes.string()).map_values(struct(v=value), value=Serdes.json()).group_by_key().count(
        store="moved"
    ).to_stream().to("moved")
    topology = builder.build()
    assert topology.internal_topics("shop") == {
        "shop-moved-repartition": "repartition",
        "shop-straight-changelog": "changelog",
        "shop-moved-changelog": "changelog",
    }
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert read(driver, "straight", value=LONG) == [("a", 1, 1)]
        assert read(driver, "moved", value=LONG) == [("x", 1, 1), ("y", 1, 2)]


def test_headers_stay_with_the_record() -> None:
    builder, stream = _stream()
    stream.map_values(value.upper(), value=Serdes.string()).filter(value != "").to("out")
    with driver_of(builder) as driver:
        driver.create_input_topic("in", **S).pipe_input("a", "x", 1, (("source", b"till"),))
        assert driver.create_output_topic("out", **S).read_record().headers == (("source", b"till"),)


def test_two_streams_of_one_topic_read_it_once() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **S).to("out")
    builder.stream("in", **S).map_values(value.upper(), value=Serdes.string()).to("out")
    assert builder.build().describe().count("Source:") == 1
    assert outcome(builder, ROWS[:1]) == [("a", "x", 1), ("a", "X", 1)]


def test_a_function_that_raises_is_named_with_its_line_and_its_record() -> None:
    builder, stream = _stream()
    stream.map_values(lambda value: value.upper(), value=Serdes.string()).to("out")
    with driver_of(builder) as driver, pytest.raises(ProcessorFailedError) as failed:
        pipe(driver, [("in", "c", None, 3)])
    assert isinstance(failed.value.__cause__, AttributeError)
    text = str(failed.value)
    assert f"{__file__}, line " in text
    assert "KSTREAM-MAPVALUES-0000000001 raised AttributeError" in text
    assert "in-0, offset 0" in text


def test_a_function_that_gives_no_pair_is_told_so() -> None:
    builder, stream = _stream()
    stream.map(lambda key, value: value).to("out", **S)
    with (
        driver_of(builder) as driver,
        pytest.raises(StreamsError, match="gave 'x': let it give a tuple of the key and the value"),
    ):
        pipe(driver, ROWS[:1])


def test_a_value_that_its_serde_cannot_write_is_told_with_the_sink() -> None:
    builder, stream = _stream()
    stream.map_values(len).to("out")
    with (
        driver_of(builder) as driver,
        pytest.raises(StreamsError, match="1 cannot be written to out as bytes: it is int and not bytes") as failed,
    ):
        pipe(driver, ROWS[:1])
    assert f"{__file__}, line " in str(failed.value)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda stream: stream.filter(lambda key: True),
            r"the function of filter takes 1 argument: it is called with \(key, value\)",
        ),
        (lambda stream: stream.filter("x"), "filter takes a function or an expression, and not 'x'"),
        (
            lambda stream: stream.map_values(lambda a, b, c: a),
            r"takes 3 arguments: it is called with \(key, value\) or \(value\)",
        ),
        (lambda stream: stream.branch(), "branch needs at least one predicate"),
        (lambda stream: stream.to("no topic!"), "'no topic!' cannot be a name"),
        (
            lambda stream: stream.merge(StreamsBuilder().stream("in")),
            "merge got <KStream",
        ),
        (
            lambda stream: stream.join(StreamsBuilder().table("other"), lambda left, right: left),
            "which another StreamsBuilder has made",
        ),
        (lambda stream: StreamsBuilder().stream(5), "5 is not a topic: give a name, a list of names, or a pattern"),  # type: ignore[arg-type]
        (lambda stream: stream.merge("other"), "merge takes a KStream, and not 'other'"),
        (lambda stream: stream.repartition(partitions=0), "a topic cannot have 0 partitions"),
        (lambda stream: stream.to("out", key=str), "is not a serde: write key=Serdes.string()"),
        (lambda stream: stream.join(stream, lambda left, right: left), "needs windows: give JoinWindows"),
        (lambda stream: stream.filter(value > 1 and value < 3), "write & for and, | for or, ~ for not"),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_line_of_the_program(build: Any, sentence: str) -> None:
    _, stream = _stream()
    with pytest.raises(TopologyError, match=sentence) as refused:
        build(stream)
    assert str(refused.value).startswith(f"{__file__}, line ")
