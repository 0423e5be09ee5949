"""The code that runs in Spark's tasks: it reads records from topics, processes them with the sub-topology, and writes
the results.

A task reads its ranges of offsets itself, partition by partition, as Arrow batches with the columns of the source
`jesenska`. With at_least_once, it writes its output itself (`SparkTask.write`). With exactly_once_v2, it returns the
output as rows, which are then written in a transaction (`SparkTask.__call__`). These rows have the columns:

    topic string | partition int | key binary | value binary | timestamp timestamp | headers array<struct<…>>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.base.clock import SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.pipeline.connector.cluster_thread import connect
from jesenska.pipeline.connector.columns import RowMaker
from jesenska.pipeline.connector.options import SinkOptions, SourceOptions
from jesenska.pipeline.connector.planning import OffsetRange
from jesenska.pipeline.connector.user_errors import plainly
from jesenska.pipeline.spark.worker_garbage import leave_modules_out
from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Plan
from jesenska.pipeline.streams.settings import StreamsConfig
from jesenska.pipeline.streams.topology import Topology
from jesenska.pipeline.streams_on_spark.changelogs import changes
from jesenska.pipeline.streams_on_spark.paths import Way, ways_of
from jesenska.pipeline.streams_on_spark.queries.batch_ranges import Share
from jesenska.pipeline.streams_on_spark.queries.sent_modules import unpickled
from jesenska.pipeline.streams_on_spark.stores.state_file import Binding, bound
from jesenska.pipeline.streams_on_spark.tasks.global_tables import GlobalTables, Place
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Output, Work, process
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

if TYPE_CHECKING:
    import pyarrow as pa

OUTPUT_SCHEMA = (
    "topic string, partition int, key binary, value binary, timestamp timestamp, headers array<struct<key: string, "
    "value: binary>>"
)
#: The columns of the source that a task reads.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Program:
    """A topology as it is sent to the tasks: the plan and the settings, pickled together with the functions of the
    program. `logged` names the stores that have a changelog topic."""

    pickled: bytes
    number: int
    partitions: tuple[tuple[str, int], ...]
    logged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GlobalEnds:
    """The end offsets up to which global topics are read in this micro-batch."""

    places: tuple[Place, ...]
    source: SourceOptions


@dataclass(frozen=True, slots=True)
class SparkTask:
    """Processes one micro-batch in Spark's tasks. Each Spark task gets some indices of `shares`. `bindings` contains,
    for each partition, the `Binding` that its state file must match."""

    program: Program
    directory: str
    version: int
    source: SourceOptions
    shares: tuple[Share, ...]
    sink: SinkOptions | None
    ends: GlobalEnds | None
    bindings: Mapping[int, Binding]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Processes the shares whose numbers are in the input rows, and yields the output records as rows. Called by
        Spark's mapInArrow."""
        leave_modules_out()
        with plainly("topic"):
            yield from self._outputs(number for batch in batches for number in batch.column(0).to_pylist())

    def write(self, shares: Iterable[int]) -> Iterator[int]:
        """Processes the shares with these numbers, writes the output records, and yields the number of records. Called
        by Spark's mapPartitions."""
        from jesenska.pipeline.connector.sink import write_rows

        assert self.sink is not None
        leave_modules_out()
        with plainly("topic"):
            yield sum(write_rows(self.sink, self._outputs(shares)).values())

    def _outputs(self, shares: Iterable[int]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        maker = RowMaker(self.source.columns, self.source.check_crcs)
        for share in shares:
            for partition, ranges in self.shares[share]:
                batches = _read(self.source, ranges, maker)
                with bound(Path(self.directory) / f"{partition}.state", self.bindings.get(partition)):
                    outputs = self._partition(partition, pa.Table.from_batches(batches, schema=maker.arrow_schema))
                yield from outputs
                if self.program.logged:
                    yield from output_rows(
                        changes(_work(self.program), self.program.logged, Path(self.directory), partition)
                    )

    def _partition(self, partition: int, rows: pa.Table) -> list[pa.RecordBatch]:
        directory = Path(self.directory)
        if not (directory.parent.parent / "topology").exists():
            raise StreamsError(
                f"the directory {directory.parent.parent} is not on this machine: set state.dir to one that all "
                f"executors share."
            )
        for way in _ways(self.program) if rows.num_rows else ():
            with suppress(OtherWayError):
                return way.run(rows, partition, self.version, directory)
        # No fast path could process the records, so the engine processes them.
        records = [record for batch in rows.to_batches() for record in raw_records(batch)]
        records.sort(key=lambda record: (record.topic, record.offset))
        now_ms = SystemClock().now_ms()
        return list(
            output_rows(
                process(_work(self.program), partition, self.version, records, directory, now_ms, self._global_stores())
            )
        )

    def _global_stores(self) -> Mapping[str, Any]:
        if self.ends is None:
            return {}
        tables = _global_tables(self.program)
        tables.read_to(self.ends.places, partial(read_ranges, self.ends.source))
        return tables.stores


def read_ranges(source: SourceOptions, ranges: Mapping[tuple[str, int], tuple[int, int]]) -> Iterator[RawRecord]:
    """Yields the records in these ranges of topic partitions."""
    maker = RowMaker(source.columns, source.check_crcs)
    for batch in _read(
        source,
        [OffsetRange(topic, partition, start, end) for (topic, partition), (start, end) in ranges.items()],
        maker,
    ):
        yield from raw_records(batch)


def _read(source: SourceOptions, ranges: Sequence[OffsetRange], maker: RowMaker) -> Iterator[pa.RecordBatch]:
    from jesenska.pipeline.connector.fetching import chunks

    for chunk in chunks(connect(source.client), ranges, source):
        try:
            yield from maker.rows(chunk)
        except JesenskaError as error:
            raise StreamsError(
                f"reading {chunk.topic_partition} failed between the offsets {chunk.start} and {chunk.end}: {error}"
            ) from error


@lru_cache(maxsize=16)
def _work(program: Program) -> Work:
    return work_of(*_unpickled(program.pickled), program)


@lru_cache(maxsize=16)
def _ways(program: Program) -> list[Way]:
    return ways_of(_work(program))[0]


@lru_cache(maxsize=4)
def _global_tables(program: Program) -> GlobalTables:
    return GlobalTables(_work(program))


def _unpickled(sent: bytes) -> tuple[Plan, StreamsConfig]:
    found: tuple[Plan, StreamsConfig] = unpickled(sent)
    return found


def work_of(plan: Plan, config: StreamsConfig, program: Program) -> Work:
    return Work.of(Topology.of_plan(plan), program.number, config, dict(program.partitions))


def raw_records(batch: pa.RecordBatch) -> Iterator[RawRecord]:
    """Yields the rows of the batch as records."""
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
    """Yields the records as rows for the sink, in batches."""
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
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=names
    )


def failed_in_a_task(text: str) -> str | None:
    """Returns the message of jesenska's own error that a task has raised, found in Spark's error text. Returns None if
    the text has another form."""
    import re

    found = re.search(
        r"(?:jesenska[\w.]*\.)?(?:\w+Error): (.+?)(?:\s+SQLSTATE:|\n\n|\nTraceback|\n\tat |\Z)", text, re.DOTALL
    )
    return " ".join(found[1].split()) if found else None
