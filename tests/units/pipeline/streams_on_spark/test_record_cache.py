"""Tables that send on only the last update of each key in a micro-batch, as Kafka Streams with its record cache does
at each commit. The expected updates are those of Apache Kafka Streams 3.9.1 with a cache, whose test driver commits
after each record; there one record had the content of a micro-batch here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.pipeline.streams import (
    KStream,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
)
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work, process
from tests.units.pipeline.streams_on_spark.test_direct_path import STRINGS

Update = tuple[str, Any, int]


def hopping(stream: KStream) -> None:
    windows = stream.group_by_key(**STRINGS).windowed_by(TimeWindows(10, 5, 1000)).count().to_stream()
    windows.map(lambda windowed, n: (f"{windowed.key}@{windowed.window.start}", str(n))).to("out", **STRINGS)


def counts(stream: KStream) -> None:
    stream.group_by_key(**STRINGS).count().to_stream().map_values(str).to("out", **STRINGS)


def vanishing(stream: KStream) -> None:
    stream.group_by_key(**STRINGS).reduce(lambda one, two: None if two == "x" else two).to_stream().to("out", **STRINGS)


def tables(stream: KStream) -> None:
    stream.to_table(store="t", **STRINGS).to_stream().to("out", **STRINGS)


def filtered(stream: KStream) -> None:
    """Its output depends on the old values."""
    stream.to_table(store="t", **STRINGS).filter(lambda key, value: value < "m").to_stream().to("out", **STRINGS)


def sessions(stream: KStream) -> None:
    merged = stream.group_by_key(**STRINGS).windowed_by(SessionWindows(5, 1000)).count().to_stream()
    merged.map(lambda windowed, n: (f"{windowed.window.start}-{windowed.window.end}", n and str(n))).to(
        "out", **STRINGS
    )


def joined(stream: KStream) -> None:
    """A join finds each update, sent on or not."""
    table = stream.group_by_key(**STRINGS).count()
    stream.join(table, lambda left, right: f"{left}{right}").to("out", **STRINGS)


def final_results(stream: KStream) -> None:
    windows = (
        stream.group_by_key(**STRINGS)
        .windowed_by(TimeWindows(10))
        .count()
        .suppress(Suppressed.until_window_closes())
        .to_stream()
    )
    windows.map(lambda windowed, n: (f"{windowed.key}@{windowed.window.start}", str(n))).to("out", **STRINGS)


@pytest.mark.parametrize(
    ("make", "micro_batches"),
    [
        (
            hopping,
            {"k=a@12 k=b@7": "k@10=1@12 k@0=1@7 k@5=2@12", "k=a@3 k=b@12 k=c@8 k=d@3": "k@10=2@12 k@5=4@12 k@0=4@8"},
        ),
        (counts, {"k=a@5 k=b@3 k=c@4": "k=3@5", "k=a@1": "k=4@5"}),
        (vanishing, {"k=a@5 k=x@6": "", "k=b@5": "k=b@5", "k=x@7": "k=-@7", "k=b@5 k=x@6 k=c@7": "k=c@7"}),
        (tables, {"k=a@5 k=b@3": "k=b@3", "k=c@5 k=-@6": "k=-@6", "j=c@5 j=-@6": "", "j=-@4": ""}),
        (filtered, {"k=a@5 k=b@3": "k=b@3", "k=c@5 k=z@6": "k=-@6", "j=z@5": "", "k=z@6 k=a@7": "k=a@7"}),
        (
            sessions,
            {
                "k=a@5 k=b@7": "5-7=2@7",
                "k=c@10": "5-7=-@7 5-10=3@10",
                "k=d@30 k=e@34 k=f@12 k=g@20 k=h@16": "30-34=2@34 5-10=-@10 5-20=6@20",
            },
        ),
        (joined, {"k=a@5 k=b@6": "k=a1@5 k=b2@6"}),
        (final_results, {"k=a@5 k=b@7 k=c@12 k=d@35": "k@0=2@7 k@10=1@12", "k=e@50": "k@30=1@35"}),
    ],
)
def test_the_engine_sends_on_what_kafka_streams_does(
    make: Callable[[KStream], None], micro_batches: dict[str, str], tmp_path: Path
) -> None:
    builder = StreamsBuilder()
    make(builder.stream("a", **STRINGS))
    work = Work.of(builder.build(), 0, StreamsConfig({"statestore.cache.max.bytes": 10_485_760}), {})
    offset = 0
    for version, (given, expected) in enumerate(micro_batches.items()):
        records = []
        for text in given.split():
            name, value, at = _parsed(text)
            records.append(RawRecord("a", offset, name, value, at))
            offset += 1
        for _ in range(2):  # the second time as after a crash
            made = process(work, 0, version, records, tmp_path, 0)
            assert [(output.key, output.value, output.timestamp) for output in made] == [
                _parsed(text) for text in expected.split()
            ]


def _parsed(text: str) -> tuple[bytes, bytes | None, int]:
    pair, at = text.rsplit("@", 1)
    name, value = pair.split("=")
    return name.encode(), None if value == "-" else value.encode(), int(at)


def test_tables_behind_tables_are_told_once_as_well(tmp_path: Path) -> None:
    """The regrouped table gets the change from its value before the micro-batch to the one at its end."""
    builder = StreamsBuilder()
    letters = builder.stream("a", **STRINGS).group_by_key(**STRINGS).reduce(lambda one, two: two)
    grouped = letters.group_by(lambda key, value: ("g", value), **STRINGS)
    grouped.aggregate(
        "",
        lambda key, value, all_: f"{all_}+{value}",
        lambda key, value, all_: f"{all_}-{value}",
        value=Serdes.string(),
    ).to_stream().to("out")
    config = StreamsConfig(
        {
            "cache.max.bytes.buffering": 1,
            "application.id": "app",
            "default.key.serde": "string",
            "default.value.serde": "string",
        }
    )
    topology = builder.build()
    first, second = (Work.of(topology, number, config, {}) for number in (0, 1))
    told = []
    for version, values in enumerate([[b"a", b"b"], [b"c", b"d"]]):
        records = [RawRecord("a", 10 * version + number, b"k", value, 5) for number, value in enumerate(values)]
        changes = process(first, 0, version, records, tmp_path / "0", 0)
        again = [
            RawRecord(change.topic, 10 * version + number, change.key, change.value, change.timestamp)
            for number, change in enumerate(changes)
        ]
        told += [output.value for output in process(second, 0, version, again, tmp_path / "1", 0)]
    assert told == [b"+b", b"+b-b+d"]
