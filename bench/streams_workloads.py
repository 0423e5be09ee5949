"""The workloads of `bench/streams_bench.py`: their input, their topology, and the comparison of their output.

    filter and map        filter, map to another key and value                                         in -> out
    word count            four words a line, 10,000 words, some much more frequent than others         in -> out
    windowed count        tumbling windows of a minute, 1,000 keys                                     in -> out
    stream-table join     a tenth of the records are the table's, each of a key of its own      in, table -> out
    stream-stream join    each record of one stream meets one of the other, within a minute     in, right -> out

Values have 100 bytes (a line of words 99), keys are strings. Timestamps go on by a millisecond with each record of a
topic. The table is there, and processed, before the stream comes: the second phase of that workload.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams import (
    JoinWindows,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    Topology,
    concat,
    key,
    left,
    right,
    value,
)

PARTITIONS: Final = 4
_CHUNK: Final = 250_000
_VALUE_BYTES: Final = 100
_WORDS, _WORDS_A_LINE, _WORD_BYTES = 10_000, 4, 24
_WINDOWED_KEYS: Final = 1_000
#: A prime.
_STEP: Final = 7_368_787
_WINDOW_MS, _GRACE_MS = 60_000, 600_000
_STRINGS: Final[dict[str, Any]] = {"key": Serdes.string(), "value": Serdes.string()}

Numbers = np.ndarray[Any, Any]
Make = Callable[[Numbers, int, np.random.Generator], tuple[pa.Array, pa.Array]]
"""Keys and values of the records with these numbers, of so many."""


@dataclass(frozen=True, slots=True)
class Filling:
    """A topic's input: `share` of all records, made by `make`."""

    topic: str
    share: float
    make: Make


@dataclass(frozen=True, slots=True)
class Workload:
    """`phases`: the input before the first run, before the second, and so on. `processed`: the number of records that
    Kafka Streams processes for each input record, including those of repartition topics. `is_table`: the last value of
    each key counts; otherwise all records do."""

    name: str
    phases: tuple[tuple[Filling, ...], ...]
    processed: int
    is_table: bool
    has_state: bool
    topology: Callable[[], Topology]

    @property
    def topics(self) -> list[str]:
        return [filling.topic for phase in self.phases for filling in phase]

    def counts(self, records: int) -> list[int]:
        """The records of each phase."""
        return [sum(int(filling.share * records) for filling in phase) for phase in self.phases]


def rows_of(filling: Filling, records: int, first_ms: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """A topic's records as rows for the sink; the same for the same arguments."""
    chance, count = np.random.default_rng(seed), int(filling.share * records)
    for start in range(0, count, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, count))
        keys, values = filling.make(numbers, count, chance)
        times = pa.array((first_ms + numbers) * 1000).view(pa.timestamp("us", tz="UTC"))
        yield pa.RecordBatch.from_arrays(
            [keys.cast(pa.binary()), values.cast(pa.binary()), times], names=["key", "value", "timestamp"]
        )


def first_timestamp_ms() -> int:
    """Two hours ago, at the beginning of an hour: brokers keep such records."""
    return (int(time.time()) // 3600 - 2) * 3_600_000


def _texts(prefix: str, numbers: Numbers) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def _padded(numbers: Numbers) -> pa.Array:
    return pc.utf8_rpad(_texts("", numbers), _VALUE_BYTES, "x")


def _numbered(prefix: str, numbers: Numbers, count: int, chance: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    return _texts(prefix, numbers), _padded(numbers)


def _lines(numbers: Numbers, count: int, chance: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    columns = []
    for _ in range(_WORDS_A_LINE):
        words = (_WORDS * chance.random(len(numbers)) ** 3).astype(np.int64)
        columns.append(pc.utf8_rpad(_texts("word-", words), _WORD_BYTES, "w"))
    return _texts("line-", numbers), pc.binary_join_element_wise(*columns, " ")


def _of_few_keys(keys: int, numbers: Numbers, count: int, chance: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    return _texts("key-", chance.integers(0, keys, len(numbers))), _padded(numbers)


def _each_once(numbers: Numbers, count: int, chance: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """Every key once, in random order."""
    assert count % _STEP
    return _texts("key-", numbers * _STEP % count), _padded(numbers)


def _of_the_table(numbers: Numbers, count: int, chance: np.random.Generator) -> tuple[pa.Array, pa.Array]:
    """Any of the table's keys: about nine records for each."""
    return _texts("key-", chance.integers(0, max(1, count // 9), len(numbers))), _padded(numbers)


def _filter_and_map() -> Topology:
    builder = StreamsBuilder()
    kept = builder.stream("in", **_STRINGS).filter(~value.startswith("1"))
    kept.map((concat("k-", key), value.upper()), **_STRINGS).to("out")
    return builder.build()


def _word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", **_STRINGS).flat_map_values(value.split(" "), value=Serdes.string())
    words.group_by(value, **_STRINGS).count().to_stream().to("out", value=Serdes.long())
    return builder.build()


def _key_count() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", **_STRINGS).group_by_key(**_STRINGS).count(store="counts").to_stream().to(
        "out", value=Serdes.long()
    )
    return builder.build()


def _windowed_count() -> Topology:
    builder = StreamsBuilder()
    windows = (
        builder.stream("in", **_STRINGS).group_by_key(**_STRINGS).windowed_by(TimeWindows(_WINDOW_MS, grace=_GRACE_MS))
    )
    windows.count().to_stream().to("out", key=Serdes.time_windowed(Serdes.string(), _WINDOW_MS), value=Serdes.long())
    return builder.build()


def _table_join() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", **_STRINGS)
    builder.stream("in", **_STRINGS).join(table, concat(left, right), value=Serdes.string()).to("out", **_STRINGS)
    return builder.build()


def _stream_join() -> Topology:
    builder = StreamsBuilder()
    one, other = builder.stream("in", **_STRINGS), builder.stream("right", **_STRINGS)
    windows = JoinWindows(_WINDOW_MS, grace=_GRACE_MS)
    one.join(other, concat(left, right), windows, value=Serdes.string()).to("out", **_STRINGS)
    return builder.build()


_KEYED = partial(_numbered, "key-")
WORKLOADS: Final = (
    Workload("filter and map", ((Filling("in", 1.0, _KEYED),),), 1, False, False, _filter_and_map),
    Workload("word count", ((Filling("in", 1.0, _lines),),), 1 + _WORDS_A_LINE, True, True, _word_count),
    Workload(
        "windowed count",
        ((Filling("in", 1.0, partial(_of_few_keys, _WINDOWED_KEYS)),),),
        1,
        True,
        True,
        _windowed_count,
    ),
    Workload(
        "stream-table join",
        ((Filling("table", 0.1, _KEYED),), (Filling("in", 0.9, _of_the_table),)),
        1,
        False,
        True,
        _table_join,
    ),
    Workload(
        "stream-stream join",
        ((Filling("in", 0.5, _KEYED), Filling("right", 0.5, _KEYED)),),
        1,
        False,
        True,
        _stream_join,
    ),
)
#: For streams_state_bench.py: a count of as many keys as there are records.
MANY_KEYS: Final = Workload("many keys", ((Filling("in", 1.0, _each_once),),), 1, True, True, _key_count)


def again(keys: int) -> Filling:
    """Further records for MANY_KEYS, of any of its keys."""
    return Filling("in", 1.0, partial(_of_few_keys, keys))
