"""The columns path has the results of the direct path and the engine, and leaves the same state."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jesenska.pipeline.streams import (
    JoinWindows,
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    aggregate,
    coalesce,
    concat,
    if_else,
    key,
    left,
    right,
    struct,
    value,
)
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.processor_topology import SourceNode
from jesenska.pipeline.streams_on_spark.columns import stream_joins
from jesenska.pipeline.streams_on_spark.columns.columns_path import ColumnsPath
from jesenska.pipeline.streams_on_spark.direct.direct_path import DirectPath
from jesenska.pipeline.streams_on_spark.queries.spark_task import output_rows
from jesenska.pipeline.streams_on_spark.stores import state_tables_in_memory
from jesenska.pipeline.streams_on_spark.stores.state_file import HIGHEST, LOWEST, ReadOnlyStateFile
from jesenska.pipeline.streams_on_spark.tasks.partition_task import FACTS, Work, process
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError
from tests.profiles import examples
from tests.units.pipeline.streams_on_spark.test_direct_path import STRINGS, plain, rows

Make = Callable[[StreamsBuilder], Any]
LONGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.long()}


# --- stateless -------------------------------------------------------------------------------------------------------


def stateless(builder: StreamsBuilder) -> None:
    stream = builder.stream("a", **STRINGS).filter(value.is_not_null()).filter_not(value == "skip")
    stream.map((value, key)).to("swapped", **STRINGS)
    stream.map_values(value.length(), value=Serdes.int()).to("lengths", value=Serdes.int())
    stream.map_values(value.cast("double"), value=Serdes.double()).to("numbers", value=Serdes.double())
    stream.select_key(value.cast("bytes"), key=Serdes.bytes()).repartition(name="again").to("bytes")


def branched_and_merged(builder: StreamsBuilder) -> None:
    """Records are merged in the order in which single records would be: flat maps and branches do not change it."""
    words = builder.stream("a", **STRINGS).flat_map_values(value.lower().split(" "))
    one, two, rest = words.branch(value.startswith("o"), value > "p", value.is_not_null())
    doubled = two.flat_map_values(concat(value, "/", value).split("/"))
    merged = one.merge(doubled.merge(words.map_values(concat("all ", value))))
    merged.merge(rest.select_key(value)).to("out", **STRINGS)


def merged_with_itself(builder: StreamsBuilder) -> None:
    stream = builder.stream("a", **STRINGS)
    stream.merge(stream).map_values(value).to("out", **STRINGS)


def json_values(builder: StreamsBuilder) -> None:
    stream = builder.stream("a", key=Serdes.string(), value=Serdes.json())
    stream.filter(value["n"] > 1).map_values(struct(twice=value["n"] * 2, who=key, first=value["list"][0])).to(
        "out", key=Serdes.string(), value=Serdes.json()
    )
    stream.flat_map_values(value["list"]).to("elements", key=Serdes.string(), value=Serdes.json())


def python_functions(builder: StreamsBuilder) -> None:
    stream = builder.stream("a", **STRINGS).filter(lambda k, v: v).map(lambda k, v: (k and k.upper(), v), **STRINGS)
    words = stream.flat_map_values(lambda text: text.split()).select_key(lambda k, v: v[:1], key=Serdes.string())
    short, long = words.branch(lambda k, v: len(v) < 2, lambda k, v: v != "skip")
    long.map_values(lambda k, v: [k, v]).to("lists", key=Serdes.string(), value=Serdes.json())
    short.flat_map(lambda k, v: [(v, k), (k, None)] if v > "o" else []).to("out", **STRINGS)


def functions_of_json(builder: StreamsBuilder) -> None:
    """Functions that change their argument: not as columns."""
    stream = builder.stream("a", key=Serdes.string(), value=Serdes.json())
    stream.map_values(value["list"]).to("before", key=Serdes.string(), value=Serdes.json())
    stream.map_values(lambda one: one.update(list=None) or one).to("after", key=Serdes.string(), value=Serdes.json())


# --- aggregates ------------------------------------------------------------------------------------------------------


def counts(builder: StreamsBuilder) -> None:
    table = builder.stream("a", **STRINGS).group_by_key(**STRINGS).count(store="kept")
    table.to_stream().map_values(value * 10).to("out", **LONGS)


def sums(builder: StreamsBuilder) -> None:
    lengths = builder.stream("a", **STRINGS).map_values(value.length(), value=Serdes.long())
    lengths.group_by_key(**LONGS).aggregate(100, value + aggregate, store="kept", value=Serdes.long()).to_stream().to(
        "out", **LONGS
    )


def reduced_sums(builder: StreamsBuilder) -> None:
    lengths = builder.stream("a", **STRINGS).map_values(value.length() - 4, value=Serdes.long())
    lengths.group_by_key(**LONGS).reduce(aggregate + value, store="kept").to_stream().to("out", **LONGS)


def averages(builder: StreamsBuilder) -> None:
    lengths = builder.stream("a", **STRINGS).map_values(value.length() / 3, value=Serdes.double())
    table = lengths.group_by_key(key=Serdes.string(), value=Serdes.double()).aggregate(
        0, aggregate * 0.5 + value, store="kept", value=Serdes.double()
    )
    table.to_stream().to("out", key=Serdes.string(), value=Serdes.double())


def longest(builder: StreamsBuilder) -> None:
    grouped = builder.stream("a", **STRINGS).group_by_key(**STRINGS)
    grouped.reduce(if_else(value.length() > aggregate.length(), value, aggregate), store="kept").to_stream().to(
        "out", **STRINGS
    )


def structs(builder: StreamsBuilder) -> None:
    grouped = builder.stream("a", **STRINGS).group_by_key(**STRINGS)
    step = struct(last=value, before=if_else(aggregate == "none", "nothing", aggregate["last"]))
    made = grouped.aggregate(
        "none", if_else(aggregate == "none", struct(last=value), step), store="kept", value=Serdes.json()
    )
    made.to_stream().to("out", key=Serdes.string(), value=Serdes.json())


def vanishing(builder: StreamsBuilder) -> None:
    """The aggregate is sometimes None, which deletes the key."""
    grouped = builder.stream("a", **STRINGS).group_by_key(**STRINGS)
    grouped.reduce(if_else(value == "skip", None, value), store="kept").to_stream().to("out", **STRINGS)


# --- tables ----------------------------------------------------------------------------------------------------------


def stream_and_table(builder: StreamsBuilder) -> None:
    table = builder.table("b", **STRINGS)
    builder.stream("a", **STRINGS).join(table, concat(left, "+", right), value=Serdes.string()).to("inner", **STRINGS)
    builder.stream("c", **STRINGS).left_join(table, coalesce(concat(key, left, right), left), value=Serdes.string()).to(
        "left", **STRINGS
    )
    table.to_stream().to("table", **STRINGS)


def stream_and_its_own_table(builder: StreamsBuilder) -> None:
    """A record is in the table before or after its own look-up, depending on the program."""
    stream = builder.stream("a", **STRINGS)
    early = stream.to_table(store="early", **STRINGS)
    stream.join(early, concat(left, "+", right), value=Serdes.string()).to("early", **STRINGS)
    words = stream.flat_map_values(value.split(" "))
    table = words.filter(value != "o").to_table(store="late", **STRINGS)
    words.merge(stream).left_join(table, coalesce(concat(left, "+", right), "none"), value=Serdes.string()).to(
        "words", **STRINGS
    )


def stream_and_counts(builder: StreamsBuilder) -> None:
    numbers = builder.stream("b", **STRINGS).group_by_key(**STRINGS).count(store="kept")
    builder.stream("a", **STRINGS).join(numbers, concat(left, "+", right.cast("string")), value=Serdes.string()).to(
        "out", **STRINGS
    )


def table_operations(builder: StreamsBuilder) -> None:
    table = builder.table("a", **STRINGS)
    table.filter(value.length() > 2).map_values(value.length(), value=Serdes.long()).to_stream().to("out", **LONGS)
    table.filter_not(value == "skip").to_stream().to("others", **STRINGS)
    builder.table("b", store="kept", **STRINGS).map_values(value.upper()).to_stream().to("upper", **STRINGS)


def doubles(builder: StreamsBuilder) -> None:
    """Integers in a store of doubles come back as doubles."""
    table = (
        builder.stream("b", **STRINGS)
        .map_values(value.length())
        .to_table(store="kept", key=Serdes.string(), value=Serdes.double())
    )
    builder.stream("a", **STRINGS).join(table, right.cast("string"), value=Serdes.string()).to("out", **STRINGS)


# --- windows ---------------------------------------------------------------------------------------------------------


def windowed(windows: TimeWindows) -> Make:
    def make(builder: StreamsBuilder) -> None:
        grouped = builder.stream("a", **STRINGS).group_by_key(**STRINGS).windowed_by(windows)
        counted = grouped.count(store="kept").to_stream()
        counted.to("out", key=Serdes.time_windowed(Serdes.string(), windows.size_ms), value=Serdes.long())
        counted.filter(value > 1).map_values(value * 10).to(
            "more", key=Serdes.time_windowed(Serdes.string(), windows.size_ms), value=Serdes.long()
        )

    make.__name__ = f"windowed by {windows}"
    return make


tumbling, hopping = windowed(TimeWindows(20, grace=15)), windowed(TimeWindows(20, grace=5).advance_by(7))


def windowed_sums(builder: StreamsBuilder) -> None:
    """The key of the window is dropped after it; windows are kept longer than necessary."""
    lengths = builder.stream("a", **STRINGS).map_values(coalesce(value.length(), 0), value=Serdes.long())
    windows = lengths.group_by_key(**LONGS).windowed_by(TimeWindows(10))
    sums_ = windows.aggregate(5, aggregate + value, store="kept", value=Serdes.long(), retention=70)
    sums_.to_stream().select_key(value.cast("string"), key=Serdes.string()).to("out", **LONGS)
    windows.reduce(if_else(value > aggregate, value, aggregate), store="largest").to_stream().to(
        "largest", value=Serdes.long(), key=Serdes.time_windowed(Serdes.string(), 10)
    )


def join_of_streams(windows: JoinWindows) -> Make:
    def make(builder: StreamsBuilder) -> None:
        one, other = builder.stream("a", **STRINGS), builder.stream("b", **STRINGS)
        one.join(other, concat(coalesce(key, "?"), ":", left, "+", right), windows, value=Serdes.string()).to(
            "out", **STRINGS
        )

    make.__name__ = f"join within {windows}"
    return make


def outer_join_of_streams(kind: str, windows: JoinWindows) -> Make:
    def make(builder: StreamsBuilder) -> None:
        one, other = builder.stream("a", **STRINGS), builder.stream("b", **STRINGS)
        joiner = concat(coalesce(key, "?"), ":", coalesce(left, "-"), "+", coalesce(right, "-"))
        (one.left_join if kind == "left" else one.outer_join)(other, joiner, windows, value=Serdes.string()).to(
            "out", **STRINGS
        )

    make.__name__ = f"{kind} join within {windows}"
    return make


left_near, outer_near = (outer_join_of_streams(kind, JoinWindows(6, grace=3)) for kind in ("left", "outer"))
left_far, outer_far = (
    outer_join_of_streams(kind, JoinWindows(20, grace=10).before(3).after(15)) for kind in ("left", "outer")
)
outer_late = outer_join_of_streams("outer", JoinWindows(0))
near, one_sided = join_of_streams(JoinWindows(10, grace=25)), join_of_streams(JoinWindows(30).before(5).after(12))


def joins_of_one_stream(builder: StreamsBuilder) -> None:
    """A stream that is joined with itself and with its words."""
    stream = builder.stream("a", **STRINGS)
    words = stream.flat_map_values(value.split(" "))
    own = stream.join(
        stream.map_values(value.upper()),
        concat(left, "+", right),
        JoinWindows(5),
        value=Serdes.string(),
        name="own",
        store="own",
    )
    own.merge(words.join(stream, concat(left, "*", right), JoinWindows(3, grace=30), value=Serdes.string())).to(
        "out", **STRINGS
    )


def joins_of_functions(builder: StreamsBuilder) -> None:
    stream, other = builder.stream("a", **STRINGS), builder.stream("b", **STRINGS)
    table = other.to_table(store="kept", **STRINGS)
    stream.left_join(table, lambda k, left, right: f"{k}{left}{right}", value=Serdes.string()).to("table", **STRINGS)
    stream.join(other, lambda left, right: f"{left}{right}", JoinWindows(10), value=Serdes.string()).to(
        "streams", **STRINGS
    )
    windows = (
        stream.group_by_key(**STRINGS)
        .windowed_by(TimeWindows(10, grace=5))
        .aggregate(lambda: "", lambda k, v, sofar: f"{sofar}{v}", store="w")
    )
    windows.to_stream().map(lambda windowed, v: (f"{windowed.key}@{windowed.window.start}", v)).to("windows", **STRINGS)


JOINS: list[Make] = [
    near,
    one_sided,
    joins_of_one_stream,
    joins_of_functions,
    left_near,
    outer_near,
    left_far,
    outer_far,
    outer_late,
]
WINDOWS: list[Make] = [tumbling, hopping, windowed_sums]
TABLES: list[Make] = [stream_and_table, stream_and_its_own_table, stream_and_counts, table_operations, doubles]


def python_aggregates(builder: StreamsBuilder) -> None:
    grouped = builder.stream("a", **STRINGS).group_by_key(**STRINGS)

    def add(k: str, v: str, sofar: list[str]) -> list[str]:
        sofar.append(v)
        return sofar

    grouped.aggregate([], add, store="kept", value=Serdes.json()).to_stream().to(
        "out", key=Serdes.string(), value=Serdes.json()
    )
    grouped.reduce(lambda one, two: max(one, two), store="largest").to_stream().to("largest", **STRINGS)
    means = grouped.aggregate(lambda: 0, lambda k, v, sofar: sofar / 2 + len(v), store="means", value=Serdes.double())
    means.to_stream().to("means", key=Serdes.string(), value=Serdes.double())


STATELESS: list[Make] = [stateless, merged_with_itself, branched_and_merged, json_values, python_functions]
AGGREGATES: list[Make] = [python_aggregates, counts, sums, reduced_sums, averages, longest, structs, vanishing]


# --- the comparison --------------------------------------------------------------------------------------------------

TEXTS = [b"one two", b"skip", b"Zebra o p", None, b"", b"\xc3\x84 m", b"12", b"-1.5"]
JSONS = [
    json.dumps(one).encode()
    for one in (
        {"n": 2, "list": [1, "a"]},
        {"n": 1.5, "list": []},
        {"n": None},
        {"list": None},
        {"n": 9, "list": ["x"]},
        {},
    )
]


@some.composite
def micro_batches(
    draw: Any, topics: Sequence[str], values: Sequence[bytes | None], late_ms: int = 30
) -> list[list[RawRecord]]:
    """Returns some micro-batches, each with the records of all topics in the order of their offsets. Time advances,
    with late records."""
    made: list[list[RawRecord]] = []
    offset, now = 0, 0
    for _ in range(draw(some.integers(2, 4))):
        records = []
        for _ in range(draw(some.integers(1, 16))):
            now += draw(some.sampled_from([0, 0, 1, 3, 40]))
            at = max(0, now - draw(some.sampled_from([0, 0, 0, 1, late_ms, 3 * late_ms])))
            headers = draw(some.sampled_from([(), (), (("h", b"1"), ("empty", None))]))
            name = draw(some.sampled_from([b"x", b"y", b"", None]))
            records.append(
                RawRecord(draw(some.sampled_from(topics)), offset, name, draw(some.sampled_from(values)), at, headers)
            )
            offset += 1
        made.append(records)
    return made


def work_of(make: Make, cache_bytes: int = 0) -> Work:
    builder = StreamsBuilder()
    make(builder)
    settings_ = {
        "application.id": "app",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "statestore.cache.max.bytes": cache_bytes,
    }
    return Work.of(builder.build(), 0, StreamsConfig(settings_), {})


def topics_of(make: Make) -> list[str]:
    work = work_of(make)
    read = [node for name in work.names if isinstance(node := work.processors.nodes[name], SourceNode)]
    return [topic for node in read for topic in node.topics]


class Ways:
    """Runs micro-batches of one sub-topology by each way. A way that cannot do one leaves it to the next."""

    def __init__(self, work: Work, directory: Path) -> None:
        self.work = work
        self.directory = directory
        self.columns = ColumnsPath(work)
        try:
            self.direct: DirectPath | None = DirectPath(work)
        except OtherWayError:
            self.direct = None
        self.went_as_columns = 0

    def engine(self, version: int, records: list[RawRecord], name: str) -> list[pa.RecordBatch]:
        ordered = sorted(records, key=lambda record: (record.topic, record.offset))
        return list(output_rows(process(self.work, 0, version, ordered, self.directory / name, 0)))

    def by_direct_path(self, version: int, records: list[RawRecord], name: str) -> list[pa.RecordBatch]:
        if self.direct is None:
            return self.engine(version, records, name)
        return self.direct.run(rows(records), 0, version, self.directory / name)

    def by_columns(self, version: int, records: list[RawRecord], name: str) -> list[pa.RecordBatch]:
        try:
            found = self.columns.run(rows(records), 0, version, self.directory / name)
        except OtherWayError:
            return self.engine(version, records, name)
        self.went_as_columns += 1
        return found

    def state(self, name: str) -> Any:
        """All rows of all stores, and the facts. For one side of a join, all rows that it still has, in the table or
        not."""
        path, stores = self.directory / name / "0.state", self.work.processors.stores
        with closing(sqlite3.connect(path)) as connection:
            (facts,) = connection.execute("SELECT value FROM meta WHERE name = ?", (FACTS,)).fetchone()
            names = [
                table
                for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                if table in stores
            ]
            found = {
                table: connection.execute(f'SELECT a, n, m, value, at FROM "{table}" ORDER BY a, n, m').fetchall()
                for table in names
            }
        known = json.loads(facts)
        with closing(ReadOnlyStateFile(path)) as file:
            for table in names:
                segments = file.segments(table) if stores[table].retain_duplicates else None
                parts = [] if segments is None else segments.tables(LOWEST, HIGHEST)
                rows_ = [*found[table], *(tuple(row.values()) for part in parts for row in part.to_pylist())]
                if stores[table].retain_duplicates:
                    found[table] = sorted(
                        row for row in rows_ if row[1] > known["stores"][table][0] - (stores[table].retention_ms or 0)
                    )
        return found, known


def compare(make: Make, batches: list[list[RawRecord]], *, always: bool = True, cache_bytes: int = 0) -> None:
    """Each path has the same outputs and the same state, also if the paths alternate, and if a micro-batch is run
    again. `always`: every micro-batch goes as columns."""
    work = work_of(make, cache_bytes)
    with TemporaryDirectory() as directory:
        ways = Ways(work, Path(directory))
        in_turn = [ways.by_columns, ways.engine, ways.by_columns, ways.by_direct_path]
        for version, records in enumerate(batches):
            expected = plain(ways.engine(version, records, "engine"))
            assert plain(ways.by_direct_path(version, records, "direct")) == expected
            assert plain(ways.by_columns(version, records, "columns")) == expected
            assert plain(ways.by_columns(version, records, "columns")) == expected
            assert plain(in_turn[version % len(in_turn)](version, records, "mixed")) == expected
            if ways.columns.has_state:
                state = ways.state("engine")
                assert [ways.state(name) for name in ("columns", "mixed", "direct")] == [state] * 3
        assert ways.went_as_columns >= 2 * len(batches) or not always


@pytest.mark.parametrize("make", [*STATELESS, *AGGREGATES, *TABLES, *WINDOWS, *JOINS])
def test_the_columns_path_gives_what_the_other_ways_give(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tables are also looked up in memory, and tables larger than the request in the file."""
    monkeypatch.setattr(state_tables_in_memory, "_KEYS_MIN", 0)

    @settings(max_examples=examples(0.04), deadline=None)
    @given(micro_batches(topics_of(make), JSONS if make is json_values else TEXTS))
    def check(batches: list[list[RawRecord]]) -> None:
        compare(make, batches, always=make is not vanishing)

    check()


@pytest.mark.parametrize("make", [stateless, *AGGREGATES, *TABLES, *WINDOWS])
def test_with_a_record_cache_all_ways_send_on_the_same_updates(make: Make) -> None:
    @settings(max_examples=examples(0.02), deadline=None)
    @given(micro_batches(topics_of(make), TEXTS))
    def check(batches: list[list[RawRecord]]) -> None:
        compare(make, batches, always=make is not vanishing, cache_bytes=1)

    check()


def test_functions_that_may_change_what_they_get_are_called_record_by_record() -> None:
    @settings(max_examples=examples(0.03), deadline=None)
    @given(micro_batches(topics_of(functions_of_json), JSONS))
    def check(batches: list[list[RawRecord]]) -> None:
        compare(functions_of_json, batches, always=False)

    check()


def test_the_path_tells_which_functions_are_called_for_each_record() -> None:
    assert str(ColumnsPath(work_of(counts))) == "as columns, each step for all records of a micro-batch at once"
    assert str(ColumnsPath(work_of(python_aggregates))).endswith(
        "at once, Python functions for each record: KSTREAM-AGGREGATE-0000000001, KSTREAM-REDUCE-0000000004, "
        "KSTREAM-AGGREGATE-0000000007"
    )


def test_pairs_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_joins, "_PAIRS_AT_ONCE", 3)

    @settings(max_examples=examples(0.03), deadline=None)
    @given(micro_batches(topics_of(near), TEXTS))
    def check(batches: list[list[RawRecord]]) -> None:
        compare(near, batches)

    check()


def test_a_table_in_memory_is_read_again_when_somebody_has_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables_in_memory, "_KEYS_MIN", 0)
    ways = Ways(work_of(stream_and_table), tmp_path)
    offset = 0
    for version, way in enumerate(
        [ways.engine, ways.by_columns, ways.by_columns, ways.by_direct_path, ways.by_columns, ways.by_columns]
    ):
        records = [
            RawRecord("a", offset, b"x", b"?", 10 * version),
            RawRecord("b", offset + 1, b"x", b"%d" % version, 10 * version + 1),
        ]
        offset += 2
        for _ in range(2):  # the second time as after a crash
            found = plain(way(version, records, "state")).get("inner", [])
            assert [row["value"] for row in found] == ([b"?+%d" % (version - 1)] if version else [])
    assert ways.went_as_columns == 8
