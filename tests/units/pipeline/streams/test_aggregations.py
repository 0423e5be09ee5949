"""Aggregations without windows. The expected records are Apache Kafka Streams 3.9.1's."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.pipeline.streams import (
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    aggregate,
    concat,
    key,
    value,
)
from tests.units.pipeline.streams.running import LONG, STRING, S, append, driver_of, outcome, pipe, read


def _grouped() -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    return builder, builder.stream("in", **S).group_by_key()


def test_count_leaves_out_null_keys_and_null_values() -> None:
    builder, grouped = _grouped()
    grouped.count(store="counts").to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(
            driver,
            [("in", "a", "x", 1), ("in", None, "x", 2), ("in", "a", None, 3), ("in", "b", "y", 4), ("in", "a", "z", 0)],
        )
        assert read(driver, value=LONG) == [("a", 1, 1), ("b", 1, 4), ("a", 2, 1)]
        assert driver.get_key_value_store("counts").all() == [("a", 2), ("b", 1)]
        assert driver.dropped_records == 2


def test_reduce_begins_with_the_first_value_and_has_the_largest_time() -> None:
    builder, grouped = _grouped()
    grouped.reduce(lambda aggregate, value: f"{aggregate}+{value}").to_stream().to("out")
    rows = [("in", "a", "x", 10), ("in", "a", "y", 2), ("in", "a", "z", 3)]
    assert outcome(builder, rows) == [("a", "x", 10), ("a", "x+y", 10), ("a", "x+y+z", 10)]


def test_aggregate_takes_expressions() -> None:
    builder, grouped = _grouped()
    grouped.aggregate("", concat(aggregate, key, value), value=Serdes.string()).to_stream().to("out")
    assert outcome(builder, [("in", "a", "x", 1), ("in", "a", "y", 2)]) == [("a", "ax", 1), ("a", "axay", 2)]


def test_an_aggregate_of_none_deletes_the_key() -> None:
    builder, grouped = _grouped()
    grouped.aggregate(
        "",
        lambda key, value, aggregate: None if value == "yyy" else f"{aggregate}+{value}",
        store="kept",
        value=Serdes.string(),
    ).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "xxx", 1), ("in", "a", "yyy", 2), ("in", "a", "z", 3)])
        assert read(driver) == [("a", "+xxx", 1), ("a", None, 2), ("a", "+z", 3)]
        assert driver.get_key_value_store("kept").all() == [("a", "+z")]


def test_an_aggregate_that_a_function_changes_in_its_place_is_not_shared() -> None:
    builder, grouped = _grouped()

    def put(key: Any, value: Any, aggregate: Any) -> Any:
        aggregate.append(value)
        return aggregate

    grouped.aggregate([], put, value=Serdes.json()).to_stream().to("out")
    rows = [("in", "a", "x", 1), ("in", "b", "y", 2), ("in", "a", "z", 3)]
    assert outcome(builder, rows, value=Serdes.json()) == [("a", ["x"], 1), ("b", ["y"], 2), ("a", ["x", "z"], 3)]


def test_a_named_repartition_serves_all_aggregations_of_a_group() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", **S).group_by(value, name="grouped", **S)
    grouped.count().to_stream().to("out")
    grouped.reduce(lambda aggregate, value: value).to_stream().to("last")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "x", 1)])
        assert read(driver, value=LONG) == [("x", 1, 1)]
        assert read(driver, "last") == [("x", "x", 1)]
        assert read(driver, "test-grouped-repartition") == [("x", "x", 1)]


# Several streams in one aggregate


def test_cogrouped_streams_share_one_aggregate() -> None:
    builder = StreamsBuilder()
    purchases, returns = (
        builder.stream("in", **S).group_by_key(),
        builder.stream("back", **S).group_by(value, name="returns", **S),
    )
    together = purchases.cogroup(append).cogroup(returns, lambda key, value, aggregate: f"{aggregate}-{value}")
    together.aggregate("", store="kept", value=Serdes.string()).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(
            driver,
            [
                ("in", "a", "x", 5),
                ("back", "k", "a", 3),
                ("in", "a", "y", 7),
                ("in", None, "z", 8),
                ("back", "k", "b", 9),
            ],
        )
        assert read(driver) == [("a", "+x", 5), ("a", "+x-a", 5), ("a", "+x-a+y", 7), ("b", "-b", 9)]
        assert driver.get_key_value_store("kept").all() == [("a", "+x-a+y"), ("b", "-b")]
        assert driver.dropped_records == 1


def test_cogrouped_streams_are_aggregated_by_windows_and_sessions() -> None:
    rows = [("in", "a", "x", 1), ("back", "a", "y", 3), ("in", "a", "z", 12)]
    windowed = Serdes.time_windowed(STRING, 10)

    def cogrouped() -> tuple[StreamsBuilder, Any]:
        builder = StreamsBuilder()
        one, other = builder.stream("in", **S).group_by_key(), builder.stream("back", **S).group_by_key()
        return builder, one.cogroup(append).cogroup(other, append)

    builder, together = cogrouped()
    together.windowed_by(TimeWindows(10)).aggregate("", value=STRING).to_stream().to("out")
    assert outcome(builder, rows, key=windowed) == [
        (("a", 0, 10), "+x", 1),
        (("a", 0, 10), "+x+y", 3),
        (("a", 10, 20), "+z", 12),
    ]
    builder, together = cogrouped()
    together.windowed_by(SlidingWindows(10, grace=20)).aggregate("", value=STRING).to_stream().to("out")
    assert {key[1]: value for key, value, _ in outcome(builder, rows, key=windowed)} == {0: "+x+y", 2: "+y+z", 4: "+z"}
    builder, together = cogrouped()
    together.windowed_by(SessionWindows(5)).aggregate(
        "", lambda key, left, right: left + right, value=STRING
    ).to_stream().to("out")
    assert outcome(builder, rows, key=Serdes.session_windowed(STRING)) == [
        (("a", 1, 1), "+x", 1),
        (("a", 1, 1), None, 1),
        (("a", 1, 3), "+x+y", 3),
        (("a", 12, 12), "+z", 12),
    ]


def test_cogroup_takes_grouped_streams() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **S)
    with pytest.raises(TopologyError, match="cogroup takes a grouped stream, and not <KStream"):
        stream.group_by_key().cogroup(append).cogroup(stream, append)


# Aggregations of tables

TABLE_ROWS = [
    ("in", "k", None, 1),
    ("in", "k", "xa", 2),
    ("in", "k", "xb", 5),
    ("in", "k", "yc", 4),
    ("in", "j", "y", 9),
    ("in", "k", None, 7),
    ("in", "j", "", 10),
]


def _by_first_letter() -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    return builder, builder.table("in", **S).group_by(
        lambda key, value: (value[0], value) if value else (None, value), **S
    )


def test_an_aggregation_of_a_table_takes_the_old_value_out_and_puts_the_new_one_in() -> None:
    builder, grouped = _by_first_letter()
    grouped.aggregate(
        "", append, lambda key, value, aggregate: f"{aggregate}-{value}", store="kept", value=Serdes.string()
    ).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, TABLE_ROWS)
        assert read(driver) == [
            ("x", "+xa", 2),
            ("x", "+xa-xa+xb", 5),
            ("x", "+xa-xa+xb-xb", 5),
            ("y", "+yc", 4),
            ("y", "+yc+y", 9),
            ("y", "+yc+y-yc", 9),
            ("y", "+yc+y-yc-y", 10),
        ]
        assert driver.get_key_value_store("kept").all() == [("x", "+xa-xa+xb-xb"), ("y", "+yc+y-yc-y")]


def test_a_count_of_a_table_goes_down_to_zero() -> None:
    builder, grouped = _by_first_letter()
    grouped.count().to_stream().to("out")
    assert outcome(builder, TABLE_ROWS, value=LONG) == [
        ("x", 1, 2),
        ("x", 1, 5),
        ("x", 0, 5),
        ("y", 1, 4),
        ("y", 2, 9),
        ("y", 1, 9),
        ("y", 0, 10),
    ]


def test_a_reduction_of_a_table_begins_with_the_first_value_and_subtracts_by_its_function() -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("in", **S).map_values(value.cast("long"), value=LONG).to_table()
    grouped = numbers.group_by(lambda key, value: ("all", value), key=Serdes.string(), value=LONG)
    grouped.reduce(aggregate + value, aggregate - value).to_stream().to("out")
    rows = [("in", "a", "3", 1), ("in", "b", "4", 2), ("in", "a", "5", 3), ("in", "b", None, 4)]
    assert outcome(builder, rows, value=LONG) == [("all", 3, 1), ("all", 7, 2), ("all", 9, 3), ("all", 5, 4)]


def test_a_subtraction_that_gives_none_deletes_the_group() -> None:
    builder, grouped = _by_first_letter()
    grouped.aggregate(
        "",
        append,
        lambda key, value, aggregate: None if aggregate.count("+") == 1 else f"{aggregate}-{value}",
        value=Serdes.string(),
    ).to_stream().to("out")
    assert outcome(builder, TABLE_ROWS[:4]) == [("x", "+xa", 2), ("x", "+xb", 5), ("x", None, 5), ("y", "+yc", 4)]
