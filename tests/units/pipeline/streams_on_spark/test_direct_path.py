"""The direct path has the results of the engine, and leaves the same state."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from jesenska.pipeline.streams import (
    Serdes,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    Suppressed,
    TimeWindows,
    Topology,
    key,
    log_and_continue,
    value,
)
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams_on_spark.direct.direct_path import DirectPath
from jesenska.pipeline.streams_on_spark.queries.spark_task import output_rows, raw_records
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work, process
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

STRINGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


def rows(records: Sequence[RawRecord]) -> pa.Table:
    """Rows in the form of the source."""
    return pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": pa.array([record.topic for record in records], pa.string()),
            "partition": pa.array([record.partition for record in records], pa.int32()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": pa.array([record.timestamp * 1000 for record in records], pa.timestamp("us", tz="UTC")),
            "headers": pa.array(
                [[{"key": name, "value": data} for name, data in record.headers] for record in records], HEADERS
            ),
        }
    )


def plain(batches: Sequence[pa.RecordBatch]) -> dict[str, list[dict[str, Any]]]:
    """Returns the records for each topic, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            found.setdefault(row.pop("topic"), []).append(row)
    return found


def simple_steps() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("a", **STRINGS).filter(value.is_not_null()).filter_not(lambda k, v: v == "skip")
    one, two = (
        stream.flat_map_values(lambda text: text.split())
        .map(lambda k, v: (v, k))
        .branch(lambda k, v: k > "m", lambda k, v: True)
    )
    one.merge(two.map_values(lambda text: text and text.upper())).select_key(lambda k, v: k[:1]).to("out")
    stream.peek(lambda k, v: None).map_values(value.length()).to("lengths", value=Serdes.long())
    stream.flat_map(lambda k, v: [(k, v), (v, k)]).to("both", key=Serdes.json(), value=Serdes.json())
    stream.foreach(lambda k, v: None)
    return builder.build()


def counts() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).group_by_key().count(store="kept").to_stream().map_values(lambda n: n * 10).to(
        "out", value=Serdes.long()
    )
    return builder.build()


def reduced() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).group_by_key().reduce(
        lambda one, two: None if two == "skip" else max(one, two), store="kept"
    ).to_stream().to("out")
    return builder.build()


def collected() -> Topology:
    """The aggregate is a list that the function changes."""
    builder = StreamsBuilder()

    def add(k: str, v: str, sofar: list[str]) -> list[str]:
        sofar.append(v)
        return sofar

    table = builder.stream("a", **STRINGS).group_by_key().aggregate([], add, store="kept", value=Serdes.json())
    table.to_stream().to("out", value=Serdes.json())
    return builder.build()


def repartitioned() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).select_key(key).repartition(name="again").to("out")
    return builder.build()


def stream_and_table() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("b", **STRINGS)
    builder.stream("a", **STRINGS).join(table, lambda left, right: f"{left}+{right}").to("inner")
    builder.stream("c", **STRINGS).left_join(table, lambda k, left, right: f"{k}:{left}+{right}").to("left")
    table.to_stream().to("table")
    return builder.build()


def stream_and_counts() -> Topology:
    builder = StreamsBuilder()
    lists = (
        builder.stream("b", **STRINGS)
        .group_by_key()
        .aggregate([], lambda k, v, sofar: [*sofar, v], store="kept", value=Serdes.json())
    )
    builder.stream("a", **STRINGS).join(lists, lambda left, right: [left, right.pop(), right]).to(
        "out", value=Serdes.json()
    )
    return builder.build()


def given(seed: int, count: int, first: int = 0, topics: str = "a") -> list[RawRecord]:
    chance = Random(seed)
    found = []
    for offset in range(first, first + count):
        topic = chance.choice(topics)
        name = chance.choice([b"x", b"y", b"z", None])
        text = chance.choice([b"one two", b"skip", b"zebra", None, b"\xc3\xa4 m"])
        headers = (("h", b"1"), ("empty", None)) if chance.random() < 0.2 else ()
        found.append(RawRecord(topic, offset, name, text, chance.randrange(20 if len(topics) > 1 else 1000), headers))
    return found


@pytest.mark.parametrize(
    "make", [simple_steps, counts, reduced, collected, repartitioned, stream_and_table, stream_and_counts]
)
def test_the_direct_path_gives_what_the_engine_gives(make: Callable[[], Topology], tmp_path: Path) -> None:
    """Micro-batch by micro-batch; the two paths alternate, so that each continues from the other's state."""
    work = Work.of(
        make(),
        0,
        StreamsConfig({"application.id": "app", "default.key.serde": "string", "default.value.serde": "string"}),
        {},
    )
    direct = DirectPath(work)
    topics = "".join(topic for topic in "abc" if f"topics: [{topic}]" in make().describe())
    alone, mixed = tmp_path / "alone", tmp_path / "mixed"
    for version in range(4):
        records = sorted(given(version, 60, version * 60, topics), key=lambda record: record.topic)
        shuffled = sorted(records, key=lambda record: record.offset) if len(topics) > 1 else records
        expected = list(output_rows(process(work, 0, version, records, alone, 0)))
        if version % 2:
            found = list(output_rows(process(work, 0, version, records, mixed, 0)))
        else:
            found = direct.run(rows(shuffled), 0, version, mixed)
        assert plain(found) == plain(expected)
        assert expected


def test_rows_are_the_records_that_they_were_made_of() -> None:
    records = given(7, 20)
    assert [record for batch in rows(records).to_batches() for record in raw_records(batch)] == records


def test_what_is_unusual_is_left_to_the_engine(tmp_path: Path) -> None:
    """Nothing remains of the work that the direct path had begun."""
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).group_by_key().count(store="kept").to_stream().to("out", value=Serdes.long())
    settings = {
        "default.key.serde": "string",
        "default.value.serde": "string",
        "default.deserialization.exception.handler": log_and_continue,
    }
    work = Work.of(builder.build(), 0, StreamsConfig(settings), {})
    direct = DirectPath(work)
    good, bad = RawRecord("a", 0, b"x", b"1", 5), RawRecord("a", 1, b"x", b"\xff", 6)
    direct.run(rows([good]), 0, 0, tmp_path)
    for unusual in (bad, RawRecord("a", 1, b"x", b"1", -1)):
        with pytest.raises(OtherWayError):
            direct.run(rows([RawRecord("a", 1, b"x", b"1", 6), unusual]), 0, 1, tmp_path)
    made = process(work, 0, 1, [RawRecord("a", 1, b"x", b"1", 6), bad], tmp_path, 0)
    assert [(output.value, output.timestamp) for output in made] == [((2).to_bytes(8, "big"), 6)]


def test_a_function_that_raises_is_told_by_the_engine(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("a", **STRINGS).map_values(lambda text: str(int(text))).to("out")
    work = Work.of(builder.build(), 0, StreamsConfig(), {})
    records = [RawRecord("a", 0, b"x", b"one", 5)]
    with pytest.raises(OtherWayError):
        DirectPath(work).run(rows(records), 0, 0, tmp_path)
    with pytest.raises(StreamsError, match="raised ValueError"):
        process(work, 0, 0, records, tmp_path, 0)


def test_other_sub_topologies_are_the_engines() -> None:
    def a_pattern(builder: StreamsBuilder) -> None:
        builder.stream(re.compile("a|b"), **STRINGS).to("out")

    def a_table_of_windows(builder: StreamsBuilder) -> None:
        builder.stream("a", **STRINGS).group_by_key().windowed_by(TimeWindows(5)).count().to_stream().map(
            lambda k, v: (k.key, v)
        ).to("out")

    def held_back(builder: StreamsBuilder) -> None:
        builder.stream("a", **STRINGS).group_by_key().count().suppress(Suppressed.until_time_limit(5)).to_stream().to(
            "out"
        )

    def own_times(builder: StreamsBuilder) -> None:
        builder.stream("a", **STRINGS, timestamp_extractor=lambda record, time: 1).to("out")

    def a_named_topic(builder: StreamsBuilder) -> None:
        builder.stream("a", **STRINGS).to(lambda k, v: "out")

    for make in (a_pattern, a_table_of_windows, held_back, own_times, a_named_topic):
        builder = StreamsBuilder()
        make(builder)
        with pytest.raises(OtherWayError):
            DirectPath(Work.of(builder.build(), 0, StreamsConfig(), {}))
