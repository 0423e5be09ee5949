"""Topologies and their inputs. First those that are written down here one by one, so that every call, every join with
each null and each order of arrival, and every window with late records is there; then random ones of two to five
stages. All of it follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from tests.units.pipeline.streams.sketch import Node, Sketch
from tests.units.pipeline.streams.topology_spec import JOINS, WINDOWS, Json

_KEYS = ("a", "b", "c", "d")
CONTINUE = {
    "default.deserialization.exception.handler": "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler"
}
#: Their order as bytes is not that of their letters.
_FURTHER_KEYS = ("B", "é", "žluť", "中", "a b", "aa")
_VALUES = ("x", "yy", "zzz", "one two", "b", "c cc", "xx", "w", "")
NULLS = ("no null", "null left key", "null left value", "null right key", "null right value")
ORDERS = ("left first", "right first", "same time", "right out of order", "left out of order")


def topologies(count: int, seed: int = 0) -> list[Json]:
    """This number of descriptions, each with a name of its own. The same seed gives the same descriptions for every
    count."""
    return list(islice(_all(seed), count))


def named(name: str, seed: int = 0) -> Json:
    """Returns the description of that name; KeyError if it is neither a written one nor one of the first 100,000
    random ones."""
    number = name.removeprefix("random ")
    if name.startswith("random ") and number.isdigit():
        return random_topology(seed, int(number))
    for description in _written_down(seed):
        if description["name"] == name:
            return description
    raise KeyError(name)


def _all(seed: int) -> Iterator[Json]:
    yield from _written_down(seed)
    number = 0
    while True:
        yield random_topology(seed, number)
        number += 1


def _written_down(seed: int) -> Iterator[Json]:
    parts = (_calls, _joins, _windowed, _suppressions, _table_aggregates, _programs, _mistakes)
    for number, description in enumerate(description for make in parts for description in make(seed)):
        yield _with_headers(description) if number % 4 == 2 else description
    yield _empty_foreign_values(seed)


def _with_headers(description: Json) -> Json:
    """Gives every record of the input a header with its number."""
    records = [
        record if "advance_ms" in record else {**record, "headers": [["number", str(number)]]}
        for number, record in enumerate(description["input"])
    ]
    return {**description, "headers": True, "input": records}


# ---- input ----


def _record(topic: str, key: str | None, value: str | int | None, timestamp: int) -> Json:
    return {"topic": topic, "key": key, "value": value, "timestamp": timestamp}


def some_input(chance: random.Random, topics: dict[str, str], count: int = 24, *, clock: bool = False) -> list[Json]:
    """Records for each topic, with nulls, late records and jumps in time. Half of the inputs end with a record that
    closes every window."""
    names = list(topics)
    now, records = 5, []
    for _ in range(count):
        value: str | int | None
        now += chance.choice((0, 0, 1, 1, 2, 4, 4, 7, 30 if chance.random() < 0.2 else 3))
        timestamp = now if chance.random() < 0.75 else max(0, now - chance.choice((1, 2, 5, 10, 12, 25, 60)))
        key = None if chance.random() < 0.06 else chance.choice(_KEYS[: chance.choice((2, 3, 4))])
        if key is not None and chance.random() < 0.08:
            key = chance.choice(_FURTHER_KEYS)
        topic = chance.choice(names)
        value = None if chance.random() < 0.15 else chance.choice(_VALUES)
        if value is not None and topics[topic] == "long" and chance.random() < 0.9:
            value = chance.choice((0, 1, 2, 7, -3, 2**40))
        records.append(_record(topic, key, value, timestamp))
        if clock and chance.random() < 0.15:
            records.append({"advance_ms": chance.choice((1, 5, 10, 25, 1000))})
    if chance.random() < 0.5:
        records += [_record(name, "z", "end" if topics[name] == "string" else 9, now + 1000) for name in names]
    return records


def _chance(seed: int, name: str) -> random.Random:
    return random.Random(f"{seed} {name}")


def _plain(
    seed: int, name: str, write: Callable[[Sketch, random.Random], None], count: int = 24, *, clock: bool = False
) -> Json:
    sketch, chance = Sketch(name), _chance(seed, name)
    write(sketch, chance)
    return sketch.description(_without_empty_values(sketch, some_input(chance, sketch.topics, count, clock=clock)))


# ---- every call ----


def _calls(seed: int) -> Iterator[Json]:
    for call, functions in _STREAM_CALLS.items():
        for function, value in functions:
            name = f"{call} of a stream: {function}"
            yield _plain(
                seed, name, partial(_called, call=call, function=function, value=value, store=None, source="stream")
            )
    for call, functions in _TABLE_CALLS.items():
        for function, value in functions:
            for store in (None, "kept"):
                name = f"{call} of a table{' with a store' if store else ''}: {function}"
                yield _plain(
                    seed, name, partial(_called, call=call, function=function, value=value, store=store, source="table")
                )
    for name, write in _SINGLE.items():
        yield _plain(seed, name, write, 80 if "joins" in name else 24, clock="transform" in name)
    for name, write in _SINGLE.items():
        if name == "topics of numbers":
            yield {**_plain(seed, f"{name}, unreadable ones left out", write, 40), "settings": CONTINUE}


def _called(
    sketch: Sketch, chance: random.Random, *, call: str, function: str, value: str, store: str | None, source: str
) -> None:
    of = sketch.stream("left") if source == "stream" else sketch.table("left")
    argument = {"predicate" if call.startswith("filter") else "function": function}
    sketch.end(sketch.step(call, of, value, store=store, **argument), "out")


_STREAM_CALLS = {
    "filter": [("long value", "string"), ("key is there", "string")],
    "filter_not": [("odd length", "string")],
    "map_values": [("upper", "string"), ("length", "long"), ("with key", "string")],
    "map": [("swap", "string"), ("key and length", "long")],
    "flat_map": [("letters", "string"), ("twice", "string")],
    "flat_map_values": [("words", "string")],
    "select_key": [("first letter", "string"), ("null key if even", "string")],
}
_TABLE_CALLS = {
    "filter": [("long value", "string")],
    "filter_not": [("odd length", "string")],
    "map_values": [("null if even", "string"), ("length", "long")],
}


def _merge(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.merge(sketch.stream("left"), sketch.stream("right")), "out")


def _peek(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.step("peek", sketch.stream("left")), "out")


def _foreach(sketch: Sketch, chance: random.Random) -> None:
    sketch.foreach(sketch.stream("left"))


def _several_topics(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.stream("left", "right"), "out")


def _split(sketch: Sketch, chance: random.Random) -> None:
    for number, node in enumerate(sketch.split(sketch.stream("left"), ["long value", "odd length"], True)):
        sketch.to(node, f"out-{number}")


def _split_without_default(sketch: Sketch, chance: random.Random) -> None:
    for number, node in enumerate(sketch.split(sketch.stream("left"), ["key is not b", "odd length"], False)):
        sketch.to(node, f"out-{number}")


def _branch(sketch: Sketch, chance: random.Random) -> None:
    for number, node in enumerate(sketch.branch(sketch.stream("left"), ["long value", "value is there"])):
        sketch.to(node, f"out-{number}")


def _through(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.step("through", sketch.stream("left"), topic="between"), "out")


def _repartition(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.step("repartition", sketch.step("select_key", sketch.stream("left"), function="value")), "out")


def _repartition_with_name(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.step("repartition", sketch.stream("left"), name="by-key"), "out")


def _two_repartitions(sketch: Sketch, chance: random.Random) -> None:
    first = sketch.step("repartition", sketch.step("select_key", sketch.stream("left"), function="value"), name="one")
    second = sketch.step("repartition", sketch.step("map", first, function="swap"), name="two")
    sketch.to(sketch.merge(second, first), "out")


def _to_table(sketch: Sketch, chance: random.Random) -> None:
    sketch.end(sketch.step("to_table", sketch.stream("left"), kind="table", store="latest"), "out")


def _to_table_after_new_key(sketch: Sketch, chance: random.Random) -> None:
    keyed = sketch.step("select_key", sketch.stream("left"), function="first letter")
    sketch.end(sketch.step("to_table", keyed, kind="table"), "out")


def _to_stream_with_new_key(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.step("to_stream", sketch.table("left"), kind="stream", function="value"), "out")


def _table_with_store(sketch: Sketch, chance: random.Random) -> None:
    sketch.end(sketch.table("left", "latest"), "out")


def _transform_values(sketch: Sketch, chance: random.Random) -> None:
    sketch.end(sketch.step("transform_values", sketch.table("left"), store="described"), "out")


def _transform_values_with_store(sketch: Sketch, chance: random.Random) -> None:
    store = sketch.add_store("seen", value="long")
    sketch.end(sketch.step("transform_values", sketch.table("left"), stores=[store]), "out")


def _grouped_by(call: str, function: str | None, aggregate: str) -> Callable[[Sketch, random.Random], None]:
    def write(sketch: Sketch, chance: random.Random) -> None:
        grouped = sketch.step(call, sketch.stream("left"), kind="grouped stream", function=function)
        sketch.end(_aggregate(sketch, grouped, aggregate, store="kept"), "out")

    return write


def _group_by_key_after_new_key(sketch: Sketch, chance: random.Random) -> None:
    keyed = sketch.step("select_key", sketch.stream("left"), function="first letter")
    sketch.end(
        _aggregate(sketch, sketch.step("group_by_key", keyed, kind="grouped stream", name="by-letter"), "append"), "out"
    )


def _word_count(sketch: Sketch, chance: random.Random) -> None:
    words = sketch.step(
        "flat_map_values", sketch.step("map_values", sketch.stream("left"), function="upper"), function="words"
    )
    grouped = sketch.step("group_by", words, kind="grouped stream", function="value")
    sketch.end(sketch.aggregated("count", grouped, "long", store="counts"), "out")


def _cogroup(sketch: Sketch, chance: random.Random) -> None:
    grouped = [sketch.step("group_by_key", sketch.stream(topic), kind="grouped stream") for topic in ("left", "right")]
    sketch.end(
        sketch.aggregated("aggregate", sketch.cogroup(grouped, ["append", "cut"]), initial="", store="both"), "out"
    )


def _cogroup_in_windows(sketch: Sketch, chance: random.Random) -> None:
    grouped = [sketch.step("group_by_key", sketch.stream(topic), kind="grouped stream") for topic in ("left", "right")]
    windowed = sketch.windowed_by(
        sketch.cogroup(grouped, ["append", "cut"]), {"kind": "tumbling", "size_ms": 10, "grace_ms": 5}
    )
    sketch.end(sketch.aggregated("aggregate", windowed, initial="", store="both"), "out")


def _cogroup_after_new_keys(sketch: Sketch, chance: random.Random) -> None:
    keyed = sketch.step("map", sketch.stream("left"), function="first letter and value")
    one = sketch.step("group_by_key", keyed, kind="grouped stream", name="one")
    other = sketch.step("group_by", sketch.stream("right"), kind="grouped stream", function="value")
    third = sketch.step("group_by_key", sketch.stream("third"), kind="grouped stream")
    cogrouped = sketch.cogroup([one, other, third], ["append", "cut", "merge"])
    windowed = sketch.windowed_by(cogrouped, {"kind": "sliding", "difference_ms": 8, "grace_ms": 4})
    sketch.end(sketch.aggregated("aggregate", windowed, initial=""), "out")


def _cogroup_in_sessions(sketch: Sketch, chance: random.Random) -> None:
    grouped = [sketch.step("group_by_key", sketch.stream(topic), kind="grouped stream") for topic in ("left", "right")]
    windowed = sketch.windowed_by(
        sketch.cogroup(grouped, ["append", "cut"]), {"kind": "session", "gap_ms": 5, "grace_ms": 5}
    )
    sketch.end(sketch.aggregated("aggregate", windowed, initial="", merger="merge"), "out")


def _named_streams(sketch: Sketch, chance: random.Random) -> None:
    stream = sketch.step(
        "filter", sketch.stream("left", named="reads-left"), predicate="value is there", named="only-values"
    )
    stream = sketch.step(
        "map", sketch.step("peek", stream, named="looks"), function="first letter and value", named="by-letter"
    )
    words = sketch.step(
        "flat_map_values",
        sketch.step("map_values", stream, function="upper", named="loud"),
        function="words",
        named="words",
    )
    one, other = sketch.split(
        sketch.step("select_key", words, function="value", named="by-word"), ["long value"], True, named="parts-"
    )
    both = sketch.merge(one, sketch.step("flat_map", other, function="letters", named="spelt"), named="together")
    grouped = sketch.step("group_by_key", both, kind="grouped stream", name="group")
    counts = sketch.aggregated("count", grouped, "long", named="counting")
    sketch.to(sketch.step("to_stream", counts, kind="stream", named="changes"), "out", named="writes")
    sketch.end(sketch.step("to_table", other, kind="table", store="others", named="keeps"), "out-1")
    store = sketch.add_store("seen", value="long")
    sketch.to(sketch.step("process", both, processor="count seen", stores=[store], named="program"), "out-2")


def _named_joins(sketch: Sketch, chance: random.Random) -> None:
    left, right = sketch.stream("left"), sketch.stream("right")
    keyed = sketch.step("select_key", right, function="first letter")
    windows = {"before_ms": 5, "after_ms": 5, "grace_ms": 2}
    joined = sketch.join("outer", left, keyed, windows=windows, named="pairs", store="kept-pairs")
    sketch.to(
        sketch.join(
            "left",
            sketch.step("select_key", joined, function="key"),
            sketch.table("third", named="reads-third"),
            named="looked-up",
        ),
        "out",
    )
    sketch.to(sketch.join("left", left, right, windows=windows, named="more-pairs"), "out-1")


def _named_tables(sketch: Sketch, chance: random.Random) -> None:
    left = sketch.table("left", "lefts", named="reads-left")
    kept = sketch.step("filter", left, predicate="value is there", named="only-values")
    loud = sketch.step("map_values", kept, function="upper", store="loud", named="louder")
    described = sketch.step("transform_values", loud, named="described", store="described")
    right = sketch.step(
        "filter_not",
        sketch.table("right", named="reads-right"),
        predicate="odd length",
        store="even",
        named="only-even",
    )
    joined = sketch.join("outer", described, right, named="both", store="both-kept")
    foreign = sketch.join("left", left, right, foreign_key="first letter", named="by-letter", store="foreign")
    grouped = sketch.step("group_by", foreign, kind="grouped table", function="constant and value", name="all")
    counts = sketch.aggregated("count", grouped, "long", named="counting")
    for number, table in enumerate((joined, foreign, counts)):
        sketch.to(
            sketch.step("to_stream", table, kind="stream", named=f"changes-{number}"),
            f"out-{number}",
            named=f"writes-{number}",
        )


def _named_windows(sketch: Sketch, chance: random.Random) -> None:
    grouped = sketch.step(
        "group_by", sketch.stream("left"), kind="grouped stream", function="first letter", name="letters"
    )
    for number, kind in enumerate(WINDOWS):
        windowed = sketch.windowed_by(grouped, windows_of(kind, 5))
        sketch.end(
            sketch.aggregated(
                "count", windowed, "long", named=f"counting-{kind}", store="kept" if number == 1 else None
            ),
            f"out-{number}",
        )


def _two_aggregates(sketch: Sketch, chance: random.Random) -> None:
    grouped = sketch.step("group_by", sketch.stream("left"), kind="grouped stream", function="first letter")
    sketch.end(_aggregate(sketch, grouped, "count"), "out")
    sketch.end(_aggregate(sketch, grouped, "append"), "out-1")


def _joined_with_itself(sketch: Sketch, chance: random.Random) -> None:
    stream = sketch.stream("left")
    sketch.to(sketch.join("outer", stream, stream, windows=_JOIN_WINDOWS[1]), "out")


def _tables_joined_with_themselves(sketch: Sketch, chance: random.Random) -> None:
    table = sketch.table("left")
    sketch.end(sketch.join("left", table, table, store="joined"), "out")
    sketch.end(sketch.join("left", table, table, foreign_key="first letter"), "out-1")


def _windows_joined(sketch: Sketch, chance: random.Random) -> None:
    counts = [
        _aggregate(
            sketch,
            sketch.windowed_by(
                sketch.step("group_by_key", sketch.stream(topic), kind="grouped stream"), windows_of("tumbling", 5)
            ),
            what,
        )
        for topic, what in (("left", "count"), ("right", "append"))
    ]
    sketch.end(sketch.join("outer", counts[0], counts[1]), "out")


def _join_of_joins(sketch: Sketch, chance: random.Random) -> None:
    """Only the sources are stored: a join computes its look-ups from them."""
    left, right, third = (sketch.table(topic) for topic in ("left", "right", "third"))
    pairs = sketch.join(
        "outer", sketch.step("filter", left, predicate="odd length"), sketch.step("map_values", right, function="upper")
    )
    sketch.end(sketch.join("outer", pairs, third), "out")
    sketch.end(sketch.join("left", sketch.step("transform_values", third), pairs), "out-1")
    sketch.to(sketch.join("left", sketch.stream("fourth"), pairs), "out-2")


def _numbers(sketch: Sketch, chance: random.Random) -> None:
    stream = sketch.stream("left", value="long")
    sketch.to(sketch.step("map_values", stream, "string", function="text"), "out")
    sketch.end(sketch.step("filter", sketch.table("right", "numbers", value="long"), predicate="even number"), "out-1")


def _topics_by_function(sketch: Sketch, chance: random.Random) -> None:
    sketch.to_topics(sketch.stream("left"), "topic by length", ["out-even", "out-odd"])


def _written_and_read(sketch: Sketch, chance: random.Random) -> None:
    """A topic of tables is fed by the topology itself."""
    sketch.to(sketch.step("map", sketch.stream("left"), function="first letter and value"), "between")
    table = sketch.table("between", "between-kept")
    sketch.to(sketch.join("left", sketch.stream("right"), table), "out")
    sketch.end(table, "out-1")


def _transform(sketch: Sketch, chance: random.Random) -> None:
    store = sketch.add_store("seen", value="long")
    made = sketch.step(
        "transform", sketch.stream("left"), stores=[store], every_ms=10, time="stream", named="old-program"
    )
    sketch.end(_aggregate(sketch, sketch.step("group_by_key", made, kind="grouped stream"), "count"), "out")
    sketch.to(made, "out-1")


def _flat_transform(sketch: Sketch, chance: random.Random) -> None:
    store = sketch.add_store("seen", value="long")
    sketch.to(
        sketch.step("flat_transform", sketch.stream("left"), stores=[store], every_ms=7, time="wall clock"), "out"
    )


def _transform_values_of_a_stream(sketch: Sketch, chance: random.Random) -> None:
    store = sketch.add_store("seen", value="long")
    made = sketch.step("transform_values", sketch.stream("left"), stores=[store], named="described")
    sketch.to(sketch.step("flat_transform_values", made, stores=[store]), "out")


def _named_suppress(sketch: Sketch, chance: random.Random) -> None:
    sketch.end(
        sketch.step(
            "suppress", sketch.table("left", "kept", "reads-left"), until="time limit", time_limit_ms=5, named="held"
        ),
        "out",
    )


_SINGLE: dict[str, Callable[[Sketch, random.Random], None]] = {
    "names of what a stream goes through": _named_streams,
    "names of joins": _named_joins,
    "a name of suppress": _named_suppress,
    "names of tables": _named_tables,
    "names of windowed counts": _named_windows,
    "two aggregates of a group": _two_aggregates,
    "a stream joined with itself": _joined_with_itself,
    "tables joined with themselves": _tables_joined_with_themselves,
    "windowed tables joined": _windows_joined,
    "a join of joins": _join_of_joins,
    "topics of numbers": _numbers,
    "topics by a function": _topics_by_function,
    "a topic that is written and read by a table": _written_and_read,
    "transform": _transform,
    "flat_transform": _flat_transform,
    "transform_values of a stream": _transform_values_of_a_stream,
    "merge": _merge,
    "peek": _peek,
    "foreach": _foreach,
    "a stream of several topics": _several_topics,
    "split with default": _split,
    "split without default": _split_without_default,
    "branch": _branch,
    "through": _through,
    "repartition after a new key": _repartition,
    "repartition with a name": _repartition_with_name,
    "two repartitions": _two_repartitions,
    "to_table": _to_table,
    "to_table after a new key": _to_table_after_new_key,
    "to_stream with a new key": _to_stream_with_new_key,
    "table with a store": _table_with_store,
    "transform_values": _transform_values,
    "transform_values with a store": _transform_values_with_store,
    "group_by_key and count": _grouped_by("group_by_key", None, "count"),
    "group_by_key and reduce": _grouped_by("group_by_key", None, "reduce"),
    "group_by_key and reduce to null": _grouped_by("group_by_key", None, "reduce to null"),
    "group_by_key and aggregate": _grouped_by("group_by_key", None, "append"),
    "group_by_key and aggregate to null": _grouped_by("group_by_key", None, "aggregate to null"),
    "group_by_key and aggregate from null": _grouped_by("group_by_key", None, "from null"),
    "group_by_key and aggregate numbers": _grouped_by("group_by_key", None, "lengths"),
    "group_by and count": _grouped_by("group_by", "first letter", "count"),
    "group_by and reduce": _grouped_by("group_by", "value", "reduce"),
    "group_by and aggregate": _grouped_by("group_by", "constant", "append"),
    "group_by_key after a new key": _group_by_key_after_new_key,
    "word count": _word_count,
    "cogroup": _cogroup,
    "cogroup in windows": _cogroup_in_windows,
    "cogroup in sessions": _cogroup_in_sessions,
    "cogroup after new keys": _cogroup_after_new_keys,
}


def _aggregate(sketch: Sketch, of: Node, what: str, store: str | None = None) -> Node:
    """An aggregate of a grouped stream, with or without windows, of strings but for `count`."""
    merger = "merge" if of.key == "session" else None
    match what:
        case "count":
            return sketch.aggregated("count", of, "long", store=store)
        case "reduce":
            return sketch.aggregated("reduce", of, adder="append", store=store)
        case "reduce to null":
            return sketch.aggregated("reduce", of, adder="null if longer than five", store=store)
        case "aggregate to null":
            return sketch.aggregated(
                "aggregate", of, initial="", adder="null if longer than five", merger=merger, store=store
            )
        case "from null":
            return sketch.aggregated(
                "aggregate", of, "string", initial=None, adder="append", merger=merger, store=store
            )
        case "lengths":
            return sketch.aggregated(
                "aggregate", of, "long", initial=0, adder="add length", merger="sum" if merger else None, store=store
            )
        case _:
            return sketch.aggregated("aggregate", of, "string", initial="", adder="append", merger=merger, store=store)


# ---- every join ----

_JOIN_WINDOWS = (
    {"before_ms": 5, "after_ms": 5, "grace_ms": 0},
    {"before_ms": 5, "after_ms": 5, "grace_ms": 10},
    {"before_ms": 0, "after_ms": 8, "grace_ms": 3},
    {"before_ms": 8, "after_ms": 0, "grace_ms": 3},
    {"before_ms": 0, "after_ms": 0, "grace_ms": 5},
)


def _joins(seed: int) -> Iterator[Json]:
    for left, right, how in JOINS:
        for number, null in enumerate(NULLS):
            name = f"{left}-{right} {how} join, {null}"
            sketch, chance = Sketch(name), _chance(seed, name)
            store = "joined" if left == "table" and number % 2 == 0 else None
            joined = _joined(sketch, left, right, how, _JOIN_WINDOWS[number], store)
            if null == "no null":
                joined = sketch.step("filter", joined, predicate="always")
            sketch.end(joined, "out")
            yield sketch.description(_join_input(chance, null, right))


def _joined(sketch: Sketch, left: str, right: str, how: str, windows: Json, store: str | None) -> Node:
    one = sketch.stream("left") if left == "stream" else sketch.table("left")
    match right:
        case "stream":
            return sketch.join(how, one, sketch.stream("right"), windows=windows)
        case "global":
            return sketch.join(how, one, sketch.global_table("right"), function="key")
        case "foreign":
            return sketch.join(how, one, sketch.table("right"), foreign_key="first letter", store=store)
        case _:
            return sketch.join(how, one, sketch.table("right"), store=store)


def _join_input(chance: random.Random, null: str, right: str) -> list[Json]:
    """Each key gets its own order of arrival, then the null of this case, then more of both sides, some of it late.
    Foreign keys are first letters of the left values."""
    records = []
    keys = dict(zip("pqrst", ORDERS, strict=True))
    for at, (key, order) in enumerate(keys.items()):
        start = 10 + 20 * at
        left = _record("left", f"{key}{key}" if right == "foreign" else key, f"{key}1", start)
        other = _record("right", key, f"{key}R", start)
        if order == "left first":
            other["timestamp"] += 3
            records += [left, other]
        elif order == "right first":
            left["timestamp"] += 3
            records += [other, left]
        elif order == "same time":
            records += [left, other] if chance.random() < 0.5 else [other, left]
        elif order == "right out of order":
            left["timestamp"] += 4
            records += [left, other]
        else:
            other["timestamp"] += 4
            records += [other, left]
        records += _nulls(chance, null, key, start, right)
        if chance.random() < 0.7:
            records.append({**left, "value": f"{key}2", "timestamp": start + chance.choice((-8, 0, 5, 6, 11))})
        if chance.random() < 0.7:
            records.append({**other, "value": f"{key}S", "timestamp": start + chance.choice((-8, 0, 5, 6, 11))})
        if chance.random() < 0.4:
            records.append(_record("left", left["key"], f"{chance.choice('pqrst')}3", start + 7))
    records += [
        _record("left", "z", "zz", 1000),
        _record("right", "z", "zz", 1000),
        _record("left", "p", "late", 12),
        _record("right", "p", "late", 14),
    ]
    return records


def _nulls(chance: random.Random, null: str, key: str, start: int, right: str) -> list[Json]:
    if null == "no null":
        return []
    _, side, what = null.split()
    name = f"{key}{key}" if right == "foreign" and side == "left" else key
    times = [start + 4] + ([start + chance.choice((0, 6, 9))] if chance.random() < 0.5 else [])
    return [
        _record(side, None if what == "key" else name, f"{key}n" if what == "key" else None, time) for time in times
    ]


def _empty_foreign_values(seed: int) -> Json:
    """A table's value under a foreign key may be empty, or missing."""
    sketch = Sketch("foreign values that are empty")
    sketch.end(_joined(sketch, "table", "foreign", "left", {}, "joined"), "out")
    rights = [_record("right", "a", "", 1), _record("right", "b", "B", 1)]
    return sketch.description(
        [*rights, *(_record("left", key, f"{key}1", 2) for key in "abc"), _record("right", "b", "", 3)]
    )


def _without_empty_values(sketch: Sketch, records: list[Json]) -> list[Json]:
    """Replaces empty values under a foreign key: they are a known difference, whose effects are hard to find in a
    large topology."""
    if not any("foreign_key" in step for step in sketch.steps):
        return records
    return [{**record, "value": "e"} if record.get("value") == "" else record for record in records]


# ---- every window ----


def windows_of(kind: str, grace_ms: int, number: int = 0) -> Json:
    match kind:
        case "tumbling":
            return {"kind": kind, "size_ms": (10, 7)[number % 2], "grace_ms": grace_ms}
        case "hopping":
            return {
                "kind": kind,
                **(
                    {"size_ms": 10, "advance_ms": 5},
                    {"size_ms": 10, "advance_ms": 4},
                    {"size_ms": 12, "advance_ms": 3},
                )[number % 3],
                "grace_ms": grace_ms,
            }
        case "sliding":
            return {"kind": kind, "difference_ms": (10, 4)[number % 2], "grace_ms": grace_ms}
        case _:
            return {"kind": kind, "gap_ms": (5, 3)[number % 2], "grace_ms": grace_ms}


def _windowed(seed: int) -> Iterator[Json]:
    for kind in WINDOWS:
        for number, (aggregate, grace_ms) in enumerate(
            (what, grace) for what in ("count", "reduce", "append", "aggregate to null") for grace in (0, 15)
        ):
            name = f"{aggregate} in {kind} windows, grace {grace_ms}"
            sketch, chance = Sketch(name), _chance(seed, name)
            stream = sketch.stream("left")
            grouped = (
                sketch.step("group_by_key", stream, kind="grouped stream") if number % 3 else _by_letter(sketch, stream)
            )
            table = _aggregate(
                sketch,
                sketch.windowed_by(grouped, windows_of(kind, grace_ms, number)),
                aggregate,
                "kept" if number % 2 else None,
            )
            if number % 4 == 3:
                stream = sketch.step("to_stream", table, kind="stream", key="string", function="window text")
                sketch.to(stream, "out")
            else:
                sketch.end(table, "out")
            yield sketch.description(_late_input(chance))
        for number, grace_ms in enumerate((0, 15)):
            name = f"{kind} windows give results when closed, grace {grace_ms}"
            sketch, chance = Sketch(name), _chance(seed, name)
            grouped = sketch.step("group_by_key", sketch.stream("left"), kind="grouped stream")
            table = _aggregate(
                sketch,
                sketch.windowed_by(grouped, {**windows_of(kind, grace_ms, number), "emit": "when closed"}),
                "append",
            )
            sketch.end(table, "out")
            # Kafka's stores in memory forget windows at the moment when they close, and final results are lost.
            yield sketch.description(_late_input(chance), on_disk=True)
        name = f"{kind} windows give results when closed, time without jumps"
        sketch, chance = Sketch(name), _chance(seed, name)
        grouped = sketch.step("group_by_key", sketch.stream("left"), kind="grouped stream")
        sketch.end(
            _aggregate(sketch, sketch.windowed_by(grouped, {**windows_of(kind, 7), "emit": "when closed"}), "append"),
            "out",
        )
        yield sketch.description(_dense_input(chance), on_disk=True)
        name = f"{kind} windows in a store with a longer retention"
        sketch, chance = Sketch(name), _chance(seed, name)
        grouped = sketch.step("group_by_key", sketch.stream("left"), kind="grouped stream")
        sketch.end(
            sketch.aggregated(
                "count", sketch.windowed_by(grouped, windows_of(kind, 5)), "long", store="kept", retention_ms=60
            ),
            "out",
        )
        yield sketch.description(_late_input(chance)[:-2])


def _by_letter(sketch: Sketch, stream: Node) -> Node:
    return sketch.step("group_by", stream, kind="grouped stream", function="first letter")


def _late_input(chance: random.Random) -> list[Json]:
    """Returns records of few keys whose time advances and falls back, to the edge of windows and of their grace and
    beyond."""
    records, now = [], 0
    for _ in range(30):
        now += chance.choice((0, 1, 1, 2, 3, 5, 10))
        back = chance.choice((0, 0, 0, 0, 1, 4, 5, 9, 10, 11, 14, 15, 16, 24, 25, 26, 40))
        key = None if chance.random() < 0.04 else chance.choice("ab")
        value = None if chance.random() < 0.08 else chance.choice(_VALUES)
        records.append(_record("left", key, value, max(0, now - back)))
    return [*records, _record("left", "a", "far", now + 500), _record("left", "a", "late", now)]


def _dense_input(chance: random.Random) -> list[Json]:
    """Records at every millisecond, and late ones among them."""
    records = []
    for now in range(60):
        records.append(_record("left", chance.choice("ab"), chance.choice(_VALUES), now))
        if chance.random() < 0.4:
            records.append(
                _record(
                    "left", chance.choice("ab"), chance.choice(_VALUES), max(0, now - chance.choice((1, 3, 6, 9, 20)))
                )
            )
    return records


# ---- suppression ----


def _suppressions(seed: int) -> Iterator[Json]:
    for kind in WINDOWS:
        for grace_ms in (0, 15):
            name = f"suppress until {kind} windows close, grace {grace_ms}"
            sketch, chance = Sketch(name), _chance(seed, name)
            windowed = sketch.windowed_by(
                sketch.step("group_by_key", sketch.stream("left"), kind="grouped stream"), windows_of(kind, grace_ms)
            )
            table = _aggregate(sketch, windowed, "count" if grace_ms else "append")
            sketch.end(sketch.step("suppress", table, until="window closes"), "out")
            yield sketch.description(_late_input(chance))
    limits: tuple[Json, ...] = (
        {"until": "time limit", "time_limit_ms": 10},
        {"until": "time limit", "time_limit_ms": 0},
        {"until": "time limit", "time_limit_ms": 20, "max_records": 2, "when_full": "emit early"},
        {"until": "time limit", "time_limit_ms": 50, "max_records": 1, "when_full": "shut down"},
    )
    for number, limit in enumerate([*limits, *_BYTE_LIMITS]):
        for source in ("counts", "a table"):
            name = f"suppress {source} until a time limit {number}"
            sketch, chance = Sketch(name), _chance(seed, name)
            if source == "counts":
                table = sketch.aggregated(
                    "count", sketch.step("group_by_key", sketch.stream("left"), kind="grouped stream"), "long"
                )
            else:
                table = sketch.table("left")
            sketch.end(sketch.step("suppress", table, **limit), "out")
            yield sketch.description(_late_input(chance) if number % 2 else some_input(chance, sketch.topics))
    name = "suppress windows with a bound"
    sketch, chance = Sketch(name), _chance(seed, name)
    windowed = sketch.windowed_by(
        sketch.step("group_by_key", sketch.stream("left"), kind="grouped stream"), windows_of("hopping", 5)
    )
    table = sketch.step(
        "suppress", _aggregate(sketch, windowed, "count"), until="window closes", max_records=3, when_full="shut down"
    )
    sketch.end(table, "out")
    yield sketch.description(_late_input(chance))


_BYTE_LIMITS: tuple[Json, ...] = tuple(
    {"until": "time limit", "time_limit_ms": 50, "max_bytes": size, "when_full": what}
    for size, what in (
        (150, "emit early"),
        (260, "emit early"),
        (330, "emit early"),
        (150, "shut down"),
        (420, "shut down"),
    )
)


# ---- aggregates of tables ----

_OF_TABLES: dict[str, tuple[str, str | None, Json]] = {
    "count": ("count", "long", {}),
    "aggregate": ("aggregate", "string", {"initial": "", "adder": "append", "subtractor": "cut"}),
    "aggregate numbers": ("aggregate", "long", {"initial": 0, "adder": "add length", "subtractor": "cut length"}),
    "aggregate to null": (
        "aggregate",
        "string",
        {"initial": "", "adder": "null if longer than five", "subtractor": "cut"},
    ),
    "reduce": ("reduce", None, {"adder": "append", "subtractor": "cut"}),
    "reduce to null": ("reduce", None, {"adder": "null if longer than five", "subtractor": "newest"}),
}


def _table_aggregates(seed: int) -> Iterator[Json]:
    for function in ("first letter and value", "constant and value", "swap"):
        for what in _OF_TABLES:
            name = f"{what} of a table grouped by {function}"
            description = _plain(seed, name, partial(_grouped_table, function=function, what=what), 30)
            description["input"].insert(0, _record("left", "a", None, 3))
            yield description


def _grouped_table(sketch: Sketch, chance: random.Random, *, function: str, what: str) -> None:
    call, value, arguments = _OF_TABLES[what]
    grouped = sketch.step("group_by", sketch.table("left"), kind="grouped table", function=function)
    sketch.end(
        sketch.aggregated(call, grouped, value, store="kept" if function == "swap" else None, **arguments), "out"
    )


# ---- processors ----


def _programs(seed: int) -> Iterator[Json]:
    for processor in PROGRAMS:
        for number in range(2):
            name = f"process: {processor} {number}"
            sketch, chance = Sketch(name), _chance(seed, name)
            stream = program(sketch, sketch.stream("left"), processor, chance)
            sketch.to(stream, "out")
            yield sketch.description(
                some_input(
                    chance,
                    sketch.topics,
                    30,
                    clock="wall clock" in processor or "two ticks" in processor or number == 1,
                )
            )


PROGRAMS = (
    "count seen",
    "count seen values",
    "hold by stream time",
    "hold by wall clock",
    "changes",
    "recent",
    "look up",
    "later",
    "two ticks by stream time",
    "two ticks by wall clock",
    "stream time",
    "store calls",
    "window calls",
    "session calls",
    "metadata",
)


def program(sketch: Sketch, of: Node, processor: str, chance: random.Random) -> Node:
    """A step with one of PROGRAMS, on a stream of strings, and the stores that it needs."""
    store = sketch.fresh("store-")
    match processor:
        case "count seen" | "count seen values":
            sketch.add_store(store, value="long")
            return sketch.step(
                "process" if processor == "count seen" else "process_values",
                of,
                "string",
                processor="count seen",
                stores=[store],
            )
        case "hold by stream time" | "hold by wall clock":
            sketch.add_store(store)
            return sketch.step(
                "process",
                of,
                processor="hold",
                stores=[store],
                every_ms=chance.choice((7, 10, 25)),
                time=processor.removeprefix("hold by ").removesuffix(" time"),
            )
        case "two ticks by stream time" | "two ticks by wall clock":
            time = processor.removeprefix("two ticks by ").removesuffix(" time")
            return sketch.step("process", of, processor="two ticks", every_ms=chance.choice((7, 10)), time=time)
        case "changes":
            sketch.add_store(store)
            return sketch.step("process", of, processor=processor, stores=[store])
        case "store calls":
            sketch.add_store(store)
            return sketch.step("process", of, processor=processor, stores=[store])
        case "session calls":
            sketch.add_store(store, "session", retention_ms=40)
            return sketch.step("process", of, processor=processor, stores=[store])
        case "recent" | "window calls":
            sketch.add_store(store, "window", retention_ms=60, size_ms=10)
            return sketch.step("process", of, processor=processor, stores=[store])
        case "look up":
            sketch.table(sketch.fresh("looked-up-"), store)
            return sketch.step("process", of, processor=processor, stores=[store])
        case _:
            return sketch.step("process", of, processor=processor)


# ---- topologies that cannot be built, or not run ----


def _mistakes(seed: int) -> Iterator[Json]:
    for name, write in _MISTAKES.items():
        yield _plain(seed, f"mistake: {name}", write, 6)


def _two_stores_of_one_name(sketch: Sketch, chance: random.Random) -> None:
    sketch.end(sketch.table("left", "kept"), "out")
    sketch.end(sketch.table("right", "kept"), "out-1")


def _store_that_nobody_added(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.step("process", sketch.stream("left"), processor="changes", stores=["missing"]), "out")


def _topic_as_stream_and_table(sketch: Sketch, chance: random.Random) -> None:
    sketch.to(sketch.stream("left"), "out")
    sketch.end(sketch.table("left"), "out-1")


def _topic_as_two_streams(sketch: Sketch, chance: random.Random) -> None:
    """This topology can be built: both streams read from one source."""
    sketch.to(sketch.stream("left"), "out")
    sketch.to(sketch.step("map_values", sketch.stream("left"), function="upper"), "out-1")


def _topic_as_two_tables(sketch: Sketch, chance: random.Random) -> None:
    sketch.end(sketch.table("left", "one"), "out")
    sketch.end(sketch.table("left", "two"), "out-1")


def _final_results_without_windows(sketch: Sketch, chance: random.Random) -> None:
    sketch.end(sketch.step("suppress", sketch.table("left"), until="window closes"), "out")


def _two_sinks_on_a_source(sketch: Sketch, chance: random.Random) -> None:
    """This one can be built, and is a circle: written records are read again."""
    sketch.to(
        sketch.step(
            "filter",
            sketch.step("map_values", sketch.stream("left"), function="null if even"),
            predicate="value is there",
        ),
        "right",
    )
    sketch.to(sketch.stream("right"), "out")


_MISTAKES: dict[str, Callable[[Sketch, random.Random], None]] = {
    "two stores of one name": _two_stores_of_one_name,
    "a store that nobody added": _store_that_nobody_added,
    "a topic as stream and table": _topic_as_stream_and_table,
    "a topic as two streams": _topic_as_two_streams,
    "a topic as two tables": _topic_as_two_tables,
    "final results without windows": _final_results_without_windows,
    "a topic that is written and read": _two_sinks_on_a_source,
}


# ---- random ones ----


def random_topology(seed: int, number: int) -> Json:
    """A topology of two to five stages, each of which reads an earlier node."""
    name = f"random {number}"
    chance = _chance(seed, name)
    sketch = Sketch(name)
    nodes = [_source(sketch, chance) for _ in range(chance.choice((1, 1, 2)))]
    for _ in range(chance.randint(2, 5)):
        new = _stage(sketch, chance, nodes)
        nodes += new
    used = {
        name
        for step in sketch.steps
        for name in ([step["of"]] if isinstance(step.get("of"), str) else step.get("of", []))
    }
    leaves = [node for node in nodes if node.name not in used and node.kind in ("stream", "table")]
    for at, node in enumerate(leaves):
        _leaf(sketch, chance, node, f"out-{at}")
    description = sketch.description(
        _without_empty_values(
            sketch,
            some_input(
                chance, sketch.topics, chance.randint(12, 20) + 8 * len(sketch.topics), clock=chance.random() < 0.3
            ),
        )
    )
    return _with_headers(description) if number % 5 == 0 else description


def _leaf(sketch: Sketch, chance: random.Random, node: Node, topic: str) -> None:
    if node.is_windowed and chance.random() < 0.4:
        stream = sketch.step("to_stream", node, kind="stream") if node.kind == "table" else node
        sketch.to(sketch.step("select_key", stream, key="string", function="window text"), topic)
    else:
        sketch.end(node, topic)


def _source(sketch: Sketch, chance: random.Random) -> Node:
    topic = f"in-{len(sketch.topics)}"
    if chance.random() < 0.65:
        return sketch.stream(topic)
    return sketch.table(topic, sketch.fresh("store-") if chance.random() < 0.3 else None)


def _stage(sketch: Sketch, chance: random.Random, nodes: list[Node]) -> list[Node]:
    # The newer ones are chosen more often, so that stages follow one another.
    of = nodes[-1] if chance.random() < 0.7 else chance.choice(nodes)
    if of.kind == "table":
        return _table_stage(sketch, chance, nodes, of)
    if of.is_windowed:
        return [sketch.step("select_key", of, key="string", function="window text")]
    return _stream_stage(sketch, chance, nodes, of)


def _stream_stage(sketch: Sketch, chance: random.Random, nodes: list[Node], of: Node) -> list[Node]:
    is_text = of.value == "string"
    calls = [
        "filter",
        "filter_not",
        "map_values",
        "peek",
        "merge",
        "split",
        "branch",
        "through",
        "repartition",
        "to_table",
        "join",
        "join",
        "join",
    ]
    calls += ["aggregate"] * 5
    if is_text:
        calls += ["map", "flat_map", "flat_map_values", "select_key", "select_key", "program", "program", "transform"]
    match chance.choice(calls):
        case "filter" | "filter_not" as call:
            return [sketch.step(call, of, predicate=_predicate(chance, of))]
        case "map_values":
            return [_mapped(sketch, chance, of)]
        case "peek":
            return [sketch.step("peek", of)]
        case "merge":
            others = [
                node
                for node in nodes
                if (node.kind, node.key, node.value) == (of.kind, of.key, of.value) and node is not of
            ]
            other = (
                chance.choice(others)
                if others
                else sketch.step("map_values", of, function="reverse")
                if is_text
                else sketch.step("filter", of, predicate="even number")
            )
            return [sketch.merge(of, other)]
        case "split":
            return sketch.split(
                of, [_predicate(chance, of) for _ in range(chance.randint(1, 2))], chance.random() < 0.5
            )
        case "branch":
            return sketch.branch(of, [_predicate(chance, of) for _ in range(2)])
        case "through":
            return [sketch.step("through", of, topic=sketch.fresh("between-"))]
        case "repartition":
            return [sketch.step("repartition", of, name=sketch.fresh("part-") if chance.random() < 0.5 else None)]
        case "to_table":
            return [sketch.step("to_table", of, kind="table", store=_store(sketch, chance))]
        case "map":
            function, value = chance.choice(
                (
                    ("swap", "string"),
                    ("key and length", "long"),
                    ("first letter and value", "string"),
                    ("constant and value", "string"),
                )
            )
            return [sketch.step("map", of, value, function=function)]
        case "flat_map":
            return [sketch.step("flat_map", of, function=chance.choice(("letters", "twice")))]
        case "flat_map_values":
            return [sketch.step("flat_map_values", of, function=chance.choice(("words", "each letter")))]
        case "select_key":
            return [
                sketch.step(
                    "select_key", of, function=chance.choice(("first letter", "value", "constant", "null key if even"))
                )
            ]
        case "program":
            return [program(sketch, of, chance.choice(PROGRAMS), chance)]
        case "transform":
            store = sketch.add_store(sketch.fresh("store-"), value="long")
            return [
                sketch.step(
                    chance.choice(("transform", "flat_transform", "transform_values", "flat_transform_values")),
                    of,
                    stores=[store],
                )
            ]
        case "aggregate":
            return _random_aggregates(sketch, chance, of)
        case _:
            return [_random_join(sketch, chance, nodes, of)]


def _store(sketch: Sketch, chance: random.Random) -> str | None:
    return sketch.fresh("store-") if chance.random() < 0.4 else None


def _predicate(chance: random.Random, of: Node) -> str:
    if of.value == "long":
        return chance.choice(("even number", "above one", "value is there"))
    return chance.choice(("value is there", "key is not b", "long value", "odd length"))


def _mapped(sketch: Sketch, chance: random.Random, of: Node) -> Node:
    store = _store(sketch, chance) if of.kind == "table" else None
    if of.value == "long":
        function, value = chance.choice((("plus one", "long"), ("text", "string"), ("with key", "string")))
    else:
        names = ("upper", "reverse", "null if even", "with key", "or none")
        function, value = chance.choice((("length", "long"), *((name, "string") for name in names)))
    return sketch.step("map_values", of, value, function=function, store=store)


def _random_aggregates(sketch: Sketch, chance: random.Random, of: Node) -> list[Node]:
    """One aggregate of a group, or sometimes two."""
    name = sketch.fresh("group-") if chance.random() < 0.2 else None
    if chance.random() < 0.5:
        grouped = sketch.step("group_by_key", of, kind="grouped stream", name=name)
    else:
        function = (
            chance.choice(("first letter", "value", "constant"))
            if of.value == "string"
            else chance.choice(("constant", "key"))
        )
        grouped = sketch.step("group_by", of, kind="grouped stream", function=function, name=name)
    if name is None and of.value == "string" and chance.random() < 0.1:
        return [_random_cogroup(sketch, chance, grouped)]
    return [_random_aggregate(sketch, chance, grouped) for _ in range(2 if chance.random() < 0.15 else 1)]


def _random_cogroup(sketch: Sketch, chance: random.Random, grouped: Node) -> Node:
    other = sketch.step(
        "group_by",
        sketch.stream(f"in-{len(sketch.topics)}"),
        kind="grouped stream",
        function=chance.choice(("key", "first letter")),
    )
    together = sketch.cogroup([grouped, other], ["append", chance.choice(("append", "cut"))])
    if chance.random() < 0.6:
        together = sketch.windowed_by(
            together, windows_of(chance.choice(WINDOWS), chance.choice((0, 5)), chance.randrange(6))
        )
    merger = "merge" if together.key == "session" else None
    return sketch.aggregated("aggregate", together, initial="", merger=merger, store=_store(sketch, chance))


def _random_aggregate(sketch: Sketch, chance: random.Random, grouped: Node) -> Node:
    if chance.random() < 0.6:
        grouped = sketch.windowed_by(
            grouped, windows_of(chance.choice(WINDOWS), chance.choice((0, 5, 15)), chance.randrange(6))
        )
    if grouped.value == "long":
        what = chance.choice(("count", "append"))
    else:
        what = chance.choice(
            ("count", "reduce", "append", "lengths", "aggregate to null", "reduce to null", "from null")
        )
    table = _aggregate(sketch, grouped, what, _store(sketch, chance))
    if table.is_windowed and chance.random() < 0.3:
        return sketch.step("suppress", table, until="window closes")
    return table


def _random_join(sketch: Sketch, chance: random.Random, nodes: list[Node], of: Node) -> Node:
    joiner = chance.choice(("pair", "pair", "null if same"))
    others = [node for node in nodes if not node.is_windowed and (node is not of or chance.random() < 0.2)]
    right = chance.choice(("stream", "table", "global"))
    if right == "stream":
        streams = [node for node in others if node.kind == "stream"]
        other = (
            chance.choice(streams) if streams and chance.random() < 0.7 else sketch.stream(f"in-{len(sketch.topics)}")
        )
        return sketch.join(
            chance.choice(("inner", "left", "outer")), of, other, joiner, windows=chance.choice(_JOIN_WINDOWS)
        )
    if right == "table":
        tables = [node for node in others if node.kind == "table"]
        other = chance.choice(tables) if tables and chance.random() < 0.7 else sketch.table(f"in-{len(sketch.topics)}")
        return sketch.join(chance.choice(("inner", "left")), of, other, joiner)
    other = sketch.global_table(f"in-{len(sketch.topics)}", _store(sketch, chance))
    function = chance.choice(("key", "first letter", "value")) if of.value == "string" else "key"
    return sketch.join(chance.choice(("inner", "left")), of, other, joiner, function=function)


def _table_stage(sketch: Sketch, chance: random.Random, nodes: list[Node], of: Node) -> list[Node]:
    calls = ["filter", "filter_not", "map_values", "to_stream", "to_stream", "group", "group"]
    if not of.is_windowed:
        calls += ["join", "join", "foreign", "suppress", "transform_values"]
    match chance.choice(calls):
        case "filter" | "filter_not" as call:
            return [sketch.step(call, of, predicate=_predicate(chance, of), store=_store(sketch, chance))]
        case "map_values":
            return [_mapped(sketch, chance, of)]
        case "transform_values":
            return [sketch.step("transform_values", of, "string", store=_store(sketch, chance))]
        case "to_stream":
            return [sketch.step("to_stream", of, kind="stream")]
        case "suppress":
            return [sketch.step("suppress", of, until="time limit", time_limit_ms=chance.choice((0, 5, 20)))]
        case "group":
            return [_random_table_aggregate(sketch, chance, of)]
        case "foreign":
            return [_random_foreign_join(sketch, chance, nodes, of)]
        case _:
            tables = [
                node
                for node in nodes
                if node.kind == "table" and not node.is_windowed and (node is not of or chance.random() < 0.1)
            ]
            other = (
                chance.choice(tables) if tables and chance.random() < 0.6 else sketch.table(f"in-{len(sketch.topics)}")
            )
            joiner = chance.choice(("pair", "null if same"))
            return [
                sketch.join(chance.choice(("inner", "left", "outer")), of, other, joiner, store=_store(sketch, chance))
            ]


def _random_table_aggregate(sketch: Sketch, chance: random.Random, of: Node) -> Node:
    if of.value == "long" or of.is_windowed:
        function, value = "number and key", "string"
    else:
        function, value = chance.choice(("first letter and value", "constant and value", "swap")), "string"
    grouped = sketch.step("group_by", of, value, "string", "grouped table", function=function)
    call, result, arguments = chance.choice(list(_OF_TABLES.values()))
    return sketch.aggregated(call, grouped, result, store=_store(sketch, chance), **arguments)


def _random_foreign_join(sketch: Sketch, chance: random.Random, nodes: list[Node], of: Node) -> Node:
    if of.value == "long":
        of = sketch.step("map_values", of, "string", function="text")
    tables = [
        node
        for node in nodes
        if node.kind == "table" and not node.is_windowed and (node is not of or chance.random() < 0.1)
    ]
    other = chance.choice(tables) if tables and chance.random() < 0.5 else sketch.table(f"in-{len(sketch.topics)}")
    extract = chance.choice(("first letter", "value"))
    return sketch.join(chance.choice(("inner", "left")), of, other, foreign_key=extract, store=_store(sketch, chance))
