"""Tables key by key: the results of changes and deletions. The expected records are Apache Kafka Streams 3.9.1's."""

from __future__ import annotations

from typing import Any

import pytest

from jesenska.pipeline.streams import Serdes, StreamsBuilder, StreamsError, ValueTransformerWithKey, value
from tests.units.pipeline.streams.running import LONG, S, driver_of, outcome, pipe, read

ROWS = [
    ("in", "a", "x", 10),
    ("in", "a", "xxx", 12),
    ("in", "a", "y", 13),
    ("in", "b", None, 14),
    ("in", None, "xxx", 15),
]


def _table(**options: Any) -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    return builder, builder.table("in", **S, **options)


def test_a_table_has_the_last_record_of_a_key_whatever_its_time() -> None:
    builder, table = _table(store="kept")
    table.to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, [("in", "a", "1", 10), ("in", "a", "2", 5), ("in", "a", None, 3), ("in", "a", "4", 1)])
        assert read(driver) == [("a", "1", 10), ("a", "2", 5), ("a", None, 3), ("a", "4", 1)]
        assert driver.get_timestamped_key_value_store("kept").get("a") == ("4", 1)


def test_a_record_without_a_key_is_dropped_from_a_table() -> None:
    builder, table = _table()
    table.to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert len(read(driver)) == 4
        assert driver.dropped_records == 1


@pytest.mark.parametrize("store", [None, "kept"])
def test_a_filtered_table_gives_deletions_for_what_the_predicate_does_not_take(store: str | None) -> None:
    builder, table = _table()
    table.filter(value.length() > 1, store=store).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert read(driver) == [("a", None, 10), ("a", "xxx", 12), ("a", None, 13), ("b", None, 14)]
        if store:
            assert driver.get_key_value_store("kept").all() == []


def test_a_filter_that_knows_old_values_leaves_out_changes_from_nothing_to_nothing() -> None:
    builder, table = _table(store="source")
    table.filter(value.length() > 1).to_stream().to("out")
    assert outcome(builder, ROWS) == [("a", "xxx", 12), ("a", None, 13)]


def test_filter_not_is_the_other_half() -> None:
    builder, table = _table(store="source")
    table.filter_not(value.length() > 1, name="short").to_stream().to("out")
    assert outcome(builder, ROWS) == [("a", "x", 10), ("a", None, 12), ("a", "y", 13)]


def test_map_values_of_a_table_does_not_see_deletions() -> None:
    builder, table = _table()
    table.map_values(len, store="lengths", value=LONG).to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert read(driver, value=LONG) == [("a", 1, 10), ("a", 3, 12), ("a", 1, 13), ("b", None, 14)]
        assert driver.get_key_value_store("lengths").all() == [("a", 1)]


class _Described(ValueTransformerWithKey):
    def transform(self, key: Any, value: Any) -> Any:
        return f"{key}={value}"


def test_transform_values_of_a_table_sees_key_and_deletions() -> None:
    builder, table = _table()
    table.transform_values(_Described, store="described", value=Serdes.string()).to_stream().to("out")
    assert outcome(builder, ROWS[2:4]) == [("a", "a=y", 13), ("b", "b=None", 14)]


def test_a_transformed_table_that_is_not_kept_is_looked_up_through_its_transformer() -> None:
    builder, table = _table()
    builder.stream("s", **S).left_join(table.transform_values(_Described), lambda left, right: f"{left} {right}").to(
        "out", **S
    )
    assert outcome(builder, [("in", "a", "x", 1), ("s", "a", "1", 2), ("s", "b", "2", 3)]) == [
        ("a", "1 a=x", 2),
        ("b", "2 b=None", 3),
    ]


def test_to_table_keeps_the_last_record_and_reads_new_keys_through_an_internal_topic() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in", **S).select_key(value, key=Serdes.string()).to_table(store="kept")
    table.to_stream().to("out")
    with driver_of(builder) as driver:
        pipe(driver, ROWS)
        assert read(driver) == [("x", "x", 10), ("xxx", "xxx", 12), ("y", "y", 13), ("xxx", "xxx", 15)]
        assert "test-KSTREAM-TOTABLE-0000000002-repartition" in driver.produced_topic_names()
        assert driver.get_key_value_store("kept").get("xxx") == "xxx"


def test_to_stream_takes_a_function_for_new_keys() -> None:
    builder, table = _table()
    table.to_stream(lambda key, value: f"{key}{value}", key=Serdes.string()).to("out")
    assert outcome(builder, ROWS[:1]) == [("ax", "x", 10)]


def test_a_store_name_that_is_used_twice_is_refused() -> None:
    builder, table = _table(store="twice")
    table.filter(value == "x", store="twice")
    with pytest.raises(StreamsError, match="there are two stores of the name twice"):
        builder.build()


def test_the_name_of_the_store_is_known_where_the_program_gave_it() -> None:
    _, table = _table(store="kept")
    assert table.queryable_store_name == "kept"
    assert table.filter(value == "x").queryable_store_name is None
