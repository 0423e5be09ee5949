"""The data source `jesenska`: what Spark reads of topics, in batch queries and in streams, and the way to the sink.

    spark.read.format("jesenska").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "flights").load()

Options are Spark's own for Kafka (options.py), rows have its schema (columns.py). Where things run:

    planner process    the options are read, partitions and offsets are planned (once per batch query)
    driver's helper    one process per stream: `JesenskaStreamReader` lives there from the query's start to its end
    tasks              `read` of one range; nothing is kept in the reader, the connection belongs to the process (connection.py)

A stream's offsets are {"topic": {"partition": offset}}, each the offset of the next record. Spark writes them to its checkpoint before a
micro-batch and reads the same range again after a crash, so the rows of a micro-batch are the same each time (as long as retention leaves them).
Partitions and topics that appear while a stream runs are read from their earliest record.

Left out: the filters that Spark could push down (offset, timestamp, partition), columns that the query does not use, continuous processing
(Spark has neither of the last two for Python data sources).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, DataSourceStreamArrowWriter, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from jesenska.base.clock import Clock, SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.pipeline import planning
from jesenska.pipeline.columns import RowMaker, row_schema
from jesenska.pipeline.connection import Connection, connect
from jesenska.pipeline.fetching import chunks
from jesenska.pipeline.options import SourceOptions, sink_options, source_options
from jesenska.pipeline.planning import OffsetRange, Offsets
from jesenska.pipeline.sink import JesenskaStreamWriter, JesenskaWriter

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

#: A batch query's first word with the brokers: whoever mistyped the address need not wait a minute to hear of it.
_FIRST_CONTACT_MS = 10_000

Tree = dict[str, dict[str, int]]
T = TypeVar("T")


class JesenskaDataSource(DataSource):
    """Found by Spark under the name `jesenska` (the top-level module pyspark_jesenska names it)."""

    @classmethod
    def name(cls) -> str:
        return "jesenska"

    def schema(self) -> StructType:
        headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return row_schema(headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, streaming=False)
        _refuse_other_schema(schema, options)
        return JesenskaReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = source_options(self.options, streaming=True)
        _refuse_other_schema(schema, options)
        return JesenskaStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise JesenskaError('A topic cannot be overwritten, only appended to: write with mode("append").')
        return JesenskaWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        # Spark's "complete" mode asks to overwrite; as in its own sink, each micro-batch's rows are appended.
        return JesenskaStreamWriter(sink_options(self.options), schema)


def _refuse_other_schema(schema: StructType, options: SourceOptions) -> None:
    expected = row_schema(options.include_headers)
    if [(item.name, item.dataType) for item in schema.fields] != [(item.name, item.dataType) for item in expected.fields]:
        raise JesenskaError(f"The rows of topics have a schema of their own, {expected.simpleString()}: leave out schema(...) and select from these columns.")


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    wanted = partition.value
    if wanted is None:  # what Spark makes of a plan without tasks
        return
    assert isinstance(wanted, OffsetRange)
    maker = RowMaker(options.include_headers, options.check_crcs)
    for chunk in chunks(connect(options.client), wanted, options):
        try:
            yield from maker.rows(chunk)
        except JesenskaError as error:
            raise JesenskaError(f"Reading {wanted} failed between the offsets {chunk.start} and {chunk.end}: {error}") from error


def _look_up(connection: Connection, options: SourceOptions, work: Callable[[], Awaitable[T]], timeout_ms: int | None) -> T:
    """Partitions and offsets, asked again after errors that pass: as often as fetchOffset.numRetries says, else for some time."""
    return connection.persist(work, timeout_ms, retries=options.offset_retries, interval_ms=options.offset_retry_interval_ms)


class JesenskaReader(DataSourceReader):
    """A batch query: planned once, then read range by range."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        connection = connect(self.options.client)
        ranges = _look_up(connection, self.options, lambda: planning.plan_batch(connection.cluster, self.options), _FIRST_CONTACT_MS)
        return [InputPartition(item) for item in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)


class JesenskaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream's source: says what is new, within the limits, and reads it.

    `_target` holds the offsets at which a query with the trigger availableNow ends."""

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self.options = options
        self._clock: Clock = clock or SystemClock()
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._last_trigger_ms: int | None = None
        self._contacted = False

    # --- offsets ------------------------------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Tree:
        return planning.to_tree(self._ask(self._initial))

    async def _initial(self, connection: Connection) -> Offsets:
        options = self.options
        partitions = await planning.partitions_of(connection.cluster, options.subscription)
        bounds = await planning.bounds_of(connection.cluster, partitions, read_committed=options.read_committed)
        start = await planning.resolve(connection.cluster, options.start, partitions, bounds, options)
        for key, offset in start.items():
            found = planning.within(OffsetRange(key.topic, key.partition, offset, bounds.latest[key]), bounds, options.fail_on_data_loss)
            start[key] = found.start
        return start

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> Tree:
        known = planning.from_tree(start)
        begin, latest = self._ask(lambda connection: self._news(connection, known))
        self._latest = latest
        end = latest
        if self._target is not None:
            end = {key: min(latest[key], offset) for key, offset in self._target.items() if key in latest}
            begin = {key: begin[key] for key in end}
        if self._must_wait(begin, end, limit):
            return planning.to_tree(known)
        if isinstance(limit, ReadMaxRows):
            end = planning.share(limit.max_rows, begin, end)
        self._last_trigger_ms = self._clock.now_ms()
        return planning.to_tree(end)

    def _must_wait(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """True where fewer records than minOffsetsPerTrigger have come, and the last trigger is not too long ago. As in Spark's own source, a query's first
        trigger takes what is there. An availableNow query never waits."""
        minimum = limit.min_rows if isinstance(limit, ReadMinRows) else self.options.min_offsets_per_trigger if isinstance(limit, ReadMaxRows) else None
        if minimum is None or self._target is not None:
            return False
        if sum(max(0, end[key] - begin[key]) for key in end) >= minimum:
            return False
        return self._last_trigger_ms is not None and self._clock.now_ms() - self._last_trigger_ms < self.options.max_trigger_delay_ms

    async def _news(self, connection: Connection, known: Offsets) -> tuple[Offsets, Offsets]:
        """Where each partition is read from and where its log ends. Partitions that are gone, and logs that end before where the stream stands,
        are data loss."""
        options, fail = self.options, self.options.fail_on_data_loss
        bounds = await planning.present(connection.cluster, options.subscription, read_committed=options.read_committed)
        for key in sorted(known.keys() - bounds.latest.keys()):
            planning.data_loss(f"{key} does not exist any more; the stream stood at its offset {known[key]}.", fail, "the stream goes on without it")
        begin = {}
        for key, latest in bounds.latest.items():
            begin[key] = known.get(key, bounds.earliest[key])
            if begin[key] > latest:
                begin[key] = bounds.earliest[key]
                planning.data_loss(
                    f"{key} ends at offset {latest}, but the stream stands at offset {known[key]}: records are gone, or the topic was created anew.", fail
                )
        return begin, bounds.latest

    def reportLatestOffset(self) -> Tree | None:
        return None if self._latest is None else planning.to_tree(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        async def latest(connection: Connection) -> Offsets:
            return (await planning.present(connection.cluster, self.options.subscription, read_committed=self.options.read_committed)).latest

        self._target = self._ask(latest)

    # --- records ------------------------------------------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]) -> Sequence[InputPartition]:
        ranges = self._ask(lambda connection: self._plan(connection, planning.from_tree(start), planning.from_tree(end)))
        return [InputPartition(item) for item in ranges]

    async def _plan(self, connection: Connection, start: Offsets, end: Offsets) -> list[OffsetRange]:
        options = self.options
        changed = [key for key, offset in end.items() if start.get(key) != offset]
        bounds = await planning.present(connection.cluster, options.subscription, set(changed), read_committed=options.read_committed)
        for key in [key for key in changed if key not in bounds.latest]:
            planning.data_loss(f"{key} does not exist any more; its offsets from {start.get(key, 0)} to {end[key]} are to be read.", options.fail_on_data_loss)
        ranges = []
        for key in [key for key in changed if key in bounds.latest]:
            begin = start.get(key, bounds.earliest[key])
            if key not in start and begin > 0:
                sentence = f"{key} was added while the stream ran and begins at offset {begin}: the records before it are gone."
                planning.data_loss(sentence, options.fail_on_data_loss)
            if begin > end[key]:  # the log was cut or created anew, and failOnDataLoss is false
                begin = bounds.earliest[key]
            ranges.append(planning.within(OffsetRange(key.topic, key.partition, begin, max(begin, end[key])), bounds, options.fail_on_data_loss))
        return planning.cut(ranges, options.min_partitions, options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """Nothing to do: the checkpoint holds the offsets."""

    def _ask(self, work: Any) -> Any:
        connection = connect(self.options.client)
        result = _look_up(connection, self.options, lambda: work(connection), None if self._contacted else _FIRST_CONTACT_MS)
        self._contacted = True
        return result
