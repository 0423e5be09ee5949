"""The plan that a compiler reads: its nodes, in a usable order, with the facts that each needs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from jesenska.pipeline.streams import (
    JoinWindows,
    Serdes,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    aggregate,
    value,
)
from jesenska.pipeline.streams import plan as plans
from tests.units.pipeline.streams.running import S, append, pair
from tests.units.pipeline.streams.test_description import PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_node_stands_behind_its_inputs_and_names_the_line_of_the_program(program: Any) -> None:
    builder = StreamsBuilder()
    program(builder)
    plan = builder.build().plan
    seen: set[str] = set()
    for node in plan:
        assert set(node.inputs) <= seen
        assert node.made_at.file == program.__code__.co_filename
        assert program.__code__.co_firstlineno < node.made_at.line < program.__code__.co_firstlineno + 40
        seen.add(node.name)
        assert plan[node.name] is node
    assert len({store.name for store in plan.stores()}) == len({id(store) for store in plan.stores()})


def test_expressions_and_callables_are_told_apart() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **S).filter(value["amount"] > 10).map_values(len).group_by_key().reduce(aggregate + value)
    kinds = {type(node): node for node in builder.build().plan}
    filtered, mapped, reduced = kinds[plans.Filter], kinds[plans.MapValues], kinds[plans.StreamAggregate]
    assert isinstance(filtered, plans.Filter) and str(filtered.predicate.expression) == "(value['amount'] > 10)"
    assert isinstance(mapped, plans.MapValues) and mapped.mapper.expression is None and mapped.mapper.source is len
    assert isinstance(reduced, plans.StreamAggregate) and reduced.reducer is not None and reduced.reducer.is_expression


def test_a_table_is_kept_only_where_something_needs_it() -> None:
    builder = StreamsBuilder()
    first, second, third = (builder.table(topic, **S) for topic in ("first", "second", "third"))
    first.filter(value == "x").to_stream().to("out")
    builder.stream("in", **S).join(second.map_values(value.upper()), pair)
    third.suppress(Suppressed.until_time_limit(5))
    tables = {node.topic: node for node in builder.build().plan if isinstance(node, plans.TableSource)}
    assert {topic: (node.materialized, node.sends_old_values) for topic, node in tables.items()} == {
        "first": (False, False),
        "second": (True, False),
        "third": (True, True),
    }


def test_stores_have_what_an_engine_needs_to_make_them() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in", **S).group_by_key().windowed_by(TimeWindows(10, grace=5))
    windowed.count(store="counts")
    windowed.aggregate("", append, store="longer", value=Serdes.string(), retention=100, logging=False)
    counts, longer = builder.build().plan.stores()
    assert (counts.kind, counts.window_size_ms, counts.retention_ms, counts.logging) == ("window", 10, 15, True)
    assert (counts.key, counts.value, counts.timestamped) == (Serdes.string(), Serdes.long(), True)
    assert (longer.retention_ms, longer.logging) == (100, False)


def test_topics_that_need_equally_many_partitions_are_known() -> None:
    builder = StreamsBuilder()
    stream, again, table = builder.stream("left", **S), builder.stream("left", **S), builder.table("table", **S)
    again.join(builder.stream(re.compile("log-.*"), **S), pair, JoinWindows(5))
    stream.select_key(value, name="moved").join(table, pair)
    table.join(builder.table("other", **S), pair, foreign_key=value)
    stream.group_by_key().cogroup(append).cogroup(builder.stream("two", **S).group_by_key(), append).aggregate("")
    groups = list(builder.build().plan.copartitioned_topics())
    assert [sorted(given) for given, _ in groups] == [
        ["left", "log-.*"],
        ["table"],
        ["other"],
        ["table"],
        ["left", "two"],
    ]
    assert [sorted(internal) for _, internal in groups[:2]] == [[], ["moved-repartition"]]
    assert all("FK-JOIN" in topic for _, internal in groups[2:] for topic in internal)


def test_functions_are_equal_to_themselves_alone() -> None:
    builder = StreamsBuilder()
    builder.stream("in", **S).filter(value == "x")
    builder.add_state_store(Stores.key_value_store("kept", **S))
    one, other = builder.build().plan, builder.build().plan
    assert one.nodes[1] == other.nodes[1]
    assert hash(one.nodes[1]) == hash(other.nodes[1])


@pytest.mark.parametrize(
    ("kind", "java", "ours"),
    [
        ("stream", "groupByKey", "group_by_key"),
        ("builder", "globalTable", "global_table"),
        ("table", "toStream", "to_stream"),
        ("group", "windowedBy", "windowed_by"),
    ],
)
def test_a_name_as_in_java_is_answered_with_ours(kind: str, java: str, ours: str) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", **S)
    thing: Any = {
        "stream": stream,
        "builder": builder,
        "table": builder.table("t", **S),
        "group": stream.group_by_key(),
    }[kind]
    with pytest.raises(AttributeError, match=f"has no {java}: it is written {ours} here"):
        getattr(thing, java)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        thing.nonsense  # noqa: B018
