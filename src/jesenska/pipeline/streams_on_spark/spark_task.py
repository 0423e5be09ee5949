"""What runs in Spark's tasks: rows of topics in, the sub-topology's processors, records out.

Rows come as Arrow batches with the columns of the source `jesenska`. All rows of one partition number are in one task.
With `sink` the task writes its output itself, and gives a row that counts it. Without, it gives the output as rows
that the sink takes, for whoever writes them in a transaction.

    topic string | partition int | key binary | value binary | timestamp timestamp | headers array<struct<…>>
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.base.clock import SystemClock
from jesenska.pipeline.cluster_thread import connect
from jesenska.pipeline.options import SinkOptions, SourceOptions
from jesenska.pipeline.packing import Task as ReadTask
from jesenska.pipeline.planning import OffsetRange
from jesenska.pipeline.sentences import plainly
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Plan
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology
from jesenska.pipeline.streams_on_spark.column_expressions import NoColumnsError
from jesenska.pipeline.streams_on_spark.columns_path import ColumnsPath
from jesenska.pipeline.streams_on_spark.direct_path import DirectPath, NotDirectError
from jesenska.pipeline.streams_on_spark.global_tables import GlobalTables, Place
from jesenska.pipeline.streams_on_spark.partition_task import Output, Work, process

if TYPE_CHECKING:
    import pyarrow as pa

WRITTEN_SCHEMA = "records long"
OUTPUT_SCHEMA = "topic string, partition int, key binary, value binary, timestamp timestamp, headers array<struct<key: string, value: binary>>"
#: Columns of the source that a task needs.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Program:
    """A topology on its way to the tasks: the plan and the settings, pickled with the functions of the program."""

    pickled: bytes
    number: int
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GlobalEnds:
    """How far global topics are read in this micro-batch."""

    places: tuple[Place, ...]
    source: SourceOptions


@dataclass(frozen=True, slots=True)
class SparkTask:
    """The function of mapInArrow."""

    program: Program
    directory: str
    version: int
    sink: SinkOptions | None
    ends: GlobalEnds | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with plainly("topic"):
            outputs = self._outputs(batches)
            if self.sink is None:
                yield from outputs
                return
            from jesenska.pipeline.sink import write_rows

            written = sum(write_rows(self.sink, iter(outputs)).values()) if outputs else 0
            yield pa.RecordBatch.from_pydict({"records": [written]}, schema=pa.schema([("records", pa.int64())]))

    def _outputs(self, batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        given = [batch for batch in batches if batch.num_rows]
        if not given:
            return []
        rows = pa.Table.from_batches(given)
        outputs: list[pa.RecordBatch] = []
        for partition in sorted(pc.unique(rows.column("partition")).to_pylist()):
            outputs += self._partition(partition, rows.filter(pc.equal(rows.column("partition"), partition)))
        return outputs

    def _partition(self, partition: int, rows: pa.Table) -> list[pa.RecordBatch]:
        directory = Path(self.directory)
        if not (directory.parent.parent / "topology").exists():
            raise StreamsError(f"the directory {directory.parent.parent} is not on this machine: set state.dir to one that all executors share.")
        columns, direct = _columns_path(self.program), _direct_path(self.program)
        if columns is not None:
            try:
                return columns.run(rows, partition, self.version, directory)
            except NoColumnsError:
                pass  # the direct path or the engine does it
        if direct is not None:
            try:
                return direct.run(rows, partition, self.version, directory)
            except NotDirectError:
                pass  # the engine does it
        # A row without a topic says only that the partition is there.
        records = [record for batch in rows.to_batches() for record in raw_records(batch) if record.topic]
        records.sort(key=lambda record: (record.topic, record.offset))
        now_ms = SystemClock().now_ms()
        return list(output_rows(process(_work(self.program), partition, self.version, records, directory, now_ms, self._global_stores())))

    def _global_stores(self) -> Mapping[str, Any]:
        if self.ends is None:
            return {}
        tables = _global_tables(self.program)
        tables.read_to(self.ends.places, partial(read_ranges, self.ends.source))
        return tables.stores


def read_ranges(source: SourceOptions, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> Iterator[RawRecord]:
    """The records of these ranges of topics."""
    from jesenska.pipeline.columns import RowMaker
    from jesenska.pipeline.fetching import chunks

    maker = RowMaker(source.columns, source.check_crcs)
    task = ReadTask(tuple(OffsetRange(topic, partition, start, end) for (topic, partition), (start, end) in ranges.items()))
    for chunk in chunks(connect(source.client), task.ranges, source):
        for batch in maker.rows(chunk):
            yield from raw_records(batch)


@lru_cache(maxsize=16)
def _work(program: Program) -> Work:
    return work_of(*unpickled(program.pickled), program)


@lru_cache(maxsize=16)
def _columns_path(program: Program) -> ColumnsPath | None:
    try:
        return ColumnsPath(_work(program))
    except NoColumnsError:
        return None


@lru_cache(maxsize=16)
def _direct_path(program: Program) -> DirectPath | None:
    try:
        return DirectPath(_work(program))
    except NotDirectError:
        return None


@lru_cache(maxsize=4)
def _global_tables(program: Program) -> GlobalTables:
    return GlobalTables(_work(program))


def unpickled(pickled: bytes) -> tuple[Plan, StreamsConfig]:
    found: tuple[Plan, StreamsConfig] = pickle.loads(pickled)  # noqa: S301  what the program itself has sent
    return found


def work_of(plan: Plan, config: StreamsConfig, program: Program) -> Work:
    return Work.of(Topology.of_plan(plan), program.number, config, dict(program.partitions))


def raw_records(batch: pa.RecordBatch) -> Iterator[RawRecord]:
    """The rows as records."""
    import pyarrow as pa

    names = batch.schema.names
    columns = {name: batch.column(name) for name in names}
    times = columns["timestamp"].cast(pa.int64()).to_pylist()
    headers: Iterable[Any] = columns["headers"].to_pylist() if "headers" in columns else [None] * batch.num_rows
    plain = [columns[name].to_pylist() for name in ("topic", "offset", "key", "value", "partition")]
    for topic, offset, key, value, partition, at, given in zip(*plain, times, headers, strict=True):
        kept = tuple((one["key"], one["value"]) for one in given) if given else ()
        yield RawRecord(topic, offset, key, value, -1 if at is None else at // 1000, kept, partition)


def output_rows(outputs: Sequence[Output]) -> Iterator[pa.RecordBatch]:
    """The records as rows that the sink takes."""
    for start in range(0, len(outputs), _ROWS):
        yield _rows(outputs[start : start + _ROWS])


def _rows(outputs: Sequence[Output]) -> pa.RecordBatch:
    import pyarrow as pa

    headers = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
    kinds = [pa.string(), pa.int32(), pa.binary(), pa.binary(), pa.timestamp("us", tz="UTC"), headers]
    topics, partitions, keys, values, times, given = zip(*outputs, strict=True)
    columns = [
        topics,
        partitions,
        keys,
        values,
        [at * 1000 for at in times],
        [[{"key": name, "value": value} for name, value in pairs] for pairs in given],
    ]
    names = ["topic", "partition", "key", "value", "timestamp", "headers"]
    return pa.RecordBatch.from_arrays([pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=names)


def failed_in_a_task(text: str) -> str | None:
    """The sentence of an error of ours that a task has raised, out of what Spark says of it; None if it is another."""
    import re

    found = re.search(r"(?:jesenska[\w.]*\.)?(?:\w+Error): (.+?)(?:\s+SQLSTATE:|\n\n|\nTraceback|\n\tat |\Z)", text, re.DOTALL)
    return " ".join(found[1].split()) if found else None
