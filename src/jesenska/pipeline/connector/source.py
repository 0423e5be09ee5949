"""The Spark data source `jesenska`: reads topics in batch queries and in streams. It also creates the sink (sink.py).

    spark.read.format("jesenska").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe",
    "flights").load()

Options are those of Spark's own Kafka source (options.py), and rows have its schema (columns.py). The processes:

    planner process    the options are read, partitions and offsets are planned (once per batch query)
    driver's helper    one process per stream: `JesenskaStreamReader` lives there from the query's start to its end
    tasks              `read` runs for one range of offsets, or several small ones (packing.py). The reader stores
                       nothing; the connection belongs to the process (cluster_thread.py)

A stream's offsets are {"topic": {"partition": offset, "topicId": id}}, each the offset of the next record. Spark
writes the end of a micro-batch to its checkpoint before the micro-batch runs, and reads the same range again after a
crash. So a repeated micro-batch has the same rows (if retention has not deleted them). Spark does not store the start
of the first micro-batch. So if a query begins at the end of a log, its first micro-batch is empty: its end, which is
stored, equals its start. Partitions and topics that are added while a stream runs are read from their earliest record.
The offset of a missing partition stays in the stream's offsets: the partition is continued there if it appears again
with the same topic id.

Not supported: pushing down filters (offset, timestamp, partition). Spark has no continuous processing and no pushing
down of columns for Python data sources; the option `columns` chooses the columns.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from jesenska.base.clock import Clock, SystemClock
from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import DATA_SOURCE_LOOK_UPS_MAX
from jesenska.pipeline.connector import planning
from jesenska.pipeline.connector.cluster_thread import ClusterThread, connect
from jesenska.pipeline.connector.columns import RowMaker, row_schema, together
from jesenska.pipeline.connector.fetching import chunks, record_bytes
from jesenska.pipeline.connector.options import READ_BY_A_QUERY, SourceOptions, columns_of, sink_options, source_options
from jesenska.pipeline.connector.packing import Task, apart, pack
from jesenska.pipeline.connector.planning import Bounds, OffsetRange, Offsets, Place, Resolved, Tree
from jesenska.pipeline.connector.sink import JesenskaStreamWriter, JesenskaWriter
from jesenska.pipeline.connector.user_errors import plainly, say_if_slow
from jesenska.pipeline.spark.worker_garbage import leave_modules_out

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

#: The timeout of a query's first request to the brokers: a wrong address is reported within 10 s.
_FIRST_CONTACT_MS = 10_000

T = TypeVar("T")

#: The average size in bytes of a record in the log, by topic, for each connection.
_record_bytes: weakref.WeakKeyDictionary[ClusterThread, dict[str, float]] = weakref.WeakKeyDictionary()


class JesenskaDataSource(DataSource):
    """The data source that Spark finds under the name `jesenska`, by the top-level module pyspark_jesenska."""

    @classmethod
    def name(cls) -> str:
        return "jesenska"

    def schema(self) -> StructType:
        with plainly("subscribe"):
            return row_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with plainly("subscribe"):
            options = source_options(self.options, streaming=False)
            _refuse_other_schema(schema, options)
            return JesenskaReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            options = source_options(self.options, streaming=True)
            _refuse_other_schema(schema, options)
        except JesenskaError as error:
            return _Refused(error)
        return JesenskaStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        with plainly("topic"):
            if overwrite:
                raise JesenskaError('A topic cannot be overwritten, only appended to: write with mode("append").')
            return JesenskaWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        # Spark's "complete" mode asks to overwrite. As in Spark's own sink, the rows of each micro-batch are appended
        # instead.
        with plainly("topic"):
            return JesenskaStreamWriter(sink_options(self.options), schema)


def _refuse_other_schema(schema: StructType, options: SourceOptions) -> None:
    expected = row_schema(options.columns)
    if [(item.name, item.dataType) for item in schema.fields] != [
        (item.name, item.dataType) for item in expected.fields
    ]:
        raise JesenskaError(
            f"The rows of a topic always have the schema {expected.simpleString()}: leave out schema(...) and "
            "select from these columns."
        )


class _Refused(DataSourceStreamReader):
    """The reader of a stream with invalid options. Every method raises the error of the options. If the error were
    raised when the reader is made, Spark would print an additional error before it."""

    def __init__(self, error: JesenskaError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        with plainly("subscribe"):
            raise self._error

    def initialOffset(self) -> Tree:
        self._refuse()

    def latestOffset(self, start: Mapping[str, Mapping[str, int | str]], limit: ReadLimit) -> Tree:
        self._refuse()

    def partitions(
        self, start: Mapping[str, Mapping[str, int | str]], end: Mapping[str, Mapping[str, int | str]]
    ) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    task = partition.value
    if task is None:  # Spark's value for a plan without tasks
        return
    assert isinstance(task, Task)
    leave_modules_out()
    with plainly("subscribe"):
        yield from together(_rows(options, task))


def _rows(options: SourceOptions, task: Task) -> Iterator[pa.RecordBatch]:
    say_if_slow()
    maker = RowMaker(options.columns, options.check_crcs)
    for chunk in chunks(connect(options.client), task.ranges, options):
        try:
            yield from maker.rows(chunk)
        except JesenskaError as error:
            raise JesenskaError(
                f"Reading {chunk.topic_partition} failed between the offsets {chunk.start} and {chunk.end}: {error}"
            ) from error


async def _tasks(
    connection: ClusterThread, options: SourceOptions, ranges: Sequence[OffsetRange]
) -> list[InputPartition]:
    """Returns the ranges as Spark tasks. The ranges are cut if the options minPartitions or maxRecordsPerPartition ask
    for it. Otherwise, if there are more ranges than cores, small ranges share tasks. A topic's average record size is
    measured once, since it changes little."""
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        tasks = apart(planning.cut(ranges, options.min_partitions, options.max_records_per_partition))
    else:
        whole = planning.cut(ranges)
        cores = max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        if len(whole) <= cores:
            return [InputPartition(item) for item in apart(whole)]
        known = _record_bytes.setdefault(connection, {})
        new = [item for item in whole if item.topic not in known]
        if new:
            known.update(await record_bytes(connection.cluster, new, options))
        tasks = pack(whole, known, cores)
    return [InputPartition(item) for item in tasks]


def _look_up(
    connection: ClusterThread, options: SourceOptions, work: Callable[[], Awaitable[T]], timeout_ms: int | None
) -> T:
    """Returns the result of `work`, which looks up partitions and offsets. After a retriable error `work` is called
    again: as often as fetchOffset.numRetries says or, without this option, for `timeout_ms` milliseconds."""
    with plainly("subscribe"):
        return connection.persist(
            work, timeout_ms, retries=options.offset_retries, interval_ms=options.offset_retry_interval_ms
        )


class JesenskaReader(DataSourceReader):
    """The reader of a batch query. The query is planned once, and then its ranges of offsets are read."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        connection = connect(self.options.client)
        return _look_up(connection, self.options, lambda: self._plan(connection), _FIRST_CONTACT_MS)

    async def _plan(self, connection: ClusterThread) -> list[InputPartition]:
        return await _tasks(connection, self.options, await planning.plan_batch(connection.cluster, self.options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)


class JesenskaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream: reports new offsets within the limits of the trigger, and reads their records.

    `_start` contains the offsets at which a new query begins; they are resolved once. `_target` contains the offsets
    at which a query with the trigger availableNow ends. `_begun` is True as soon as a micro-batch has been planned."""

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self.options = options
        self._clock: Clock = clock or SystemClock()
        self._start: Resolved | None = None
        self._start_tree: Tree = {}
        self._begun = False
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._last_trigger_ms: int | None = None
        self._contacted = False
        self._missing: set[TopicPartition] = set()
        self._commit_failed = False
        self._reported: Offsets = {}

    # --- offsets -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> Tree:
        """Returns the offsets at which a new query begins. They are the same at every call, as Spark requires."""
        if self._start is None:
            self._start, ids = self._ask(self._initial)
            self._start_tree = planning.to_tree(self._start.offsets, ids)
        return self._start_tree

    async def _initial(self, connection: ClusterThread) -> tuple[Resolved, Mapping[str, str]]:
        options = self.options
        partitions = await planning.partitions_of(connection.cluster, options.subscription)
        bounds = await planning.bounds_of(connection.cluster, partitions, read_committed=options.read_committed)
        start = await planning.resolve(connection.cluster, options.start, partitions, bounds, options)
        for key, offset in start.offsets.items():
            found = planning.within(
                OffsetRange(key.topic, key.partition, offset, bounds.latest[key]), bounds, options.fail_on_data_loss
            )
            start.offsets[key] = found.start
        return start, bounds.ids

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Mapping[str, Mapping[str, int | str]], limit: ReadLimit) -> Tree:
        known = planning.from_tree(start)
        self._tell_group(known.offsets)
        begin, bounds = self._ask(lambda connection: self._news(connection, known))
        self._latest = bounds.latest
        end: Offsets = bounds.latest
        if self._target is not None:
            # A partition that was added after this query began is not in its target: the next query reads it.
            end = {
                key: max(begin[key], min(latest, self._target.get(key, 0)))
                for key, latest in end.items()
                if key in self._target or key in known.offsets
            }
        if self._start is not None and not self._begun and start == self._start_tree:
            # Spark stores the end of the first micro-batch, but not its start. After a crash, a start at the log's end
            # would be resolved again, to a later offset, and records would be skipped. So the first micro-batch reads
            # nothing from such a partition: its end, which is stored, equals its start.
            end = {key: begin[key] if key in self._start.moving else offset for key, offset in end.items()}
        begin = {key: begin[key] for key in end}
        if self._must_wait(begin, end, limit):
            return dict(start)  # type: ignore[arg-type]
        if isinstance(limit, ReadMaxRows):
            end = planning.share(limit.max_rows, begin, end)
        self._begun = True
        self._last_trigger_ms = self._clock.now_ms()
        gone = {
            key: offset
            for key, offset in known.offsets.items()
            if key not in bounds.latest and not known.is_another(key.topic, bounds.ids)
        }
        return planning.to_tree({**gone, **end}, {**known.ids, **bounds.ids})

    def _must_wait(self, begin: Offsets, end: Offsets, limit: ReadLimit) -> bool:
        """Returns True if the next micro-batch must wait: fewer than minOffsetsPerTrigger records have been written,
        and maxTriggerDelay since the last trigger has not passed. As in Spark's own source, a query's first trigger
        reads the present records. An availableNow query never waits."""
        minimum = (
            limit.min_rows
            if isinstance(limit, ReadMinRows)
            else self.options.min_offsets_per_trigger
            if isinstance(limit, ReadMaxRows)
            else None
        )
        if minimum is None or self._target is not None:
            return False
        if sum(max(0, end[key] - begin[key]) for key in end) >= minimum:
            return False
        return (
            self._last_trigger_ms is not None
            and self._clock.now_ms() - self._last_trigger_ms < self.options.max_trigger_delay_ms
        )

    async def _news(self, connection: ClusterThread, known: Place) -> tuple[Offsets, Bounds]:
        """Returns the offset at which each partition is read next, and the bounds of the logs. These cases are
        reported as data loss: a missing partition, a topic that was deleted and created again, and a log that ends
        before the stream's position."""
        fail = self.options.fail_on_data_loss
        bounds = await self._present(connection, known.offsets.keys())
        missing = known.offsets.keys() - bounds.latest.keys()
        for key in sorted(missing - self._missing):
            option, reason = "assign" if self.options.subscription.assigned else "subscribe", "does not exist any more"
            if not self.options.subscription.names(key):
                reason = f"is in the stream's checkpoint, but not in the option {option}"
            place = f"{key} {reason}; the stream was at its offset {known.offsets[key]}."
            planning.data_loss(
                place,
                fail,
                "the stream goes on without it, and keeps its place in case that the same topic is seen again",
            )
        self._missing = set(missing)
        begin = {}
        for key, latest in bounds.latest.items():
            earliest = bounds.earliest[key]
            begin[key] = known.offsets.get(key, earliest)
            if key in known.offsets and known.is_another(key.topic, bounds.ids):
                sentence = (
                    f"{key} was deleted and created again; the stream was at offset {begin[key]} of the "
                    f"topic that had its name "
                    f"before."
                )
                planning.data_loss(sentence, fail)
                begin[key] = earliest
            if begin[key] > latest:
                sentence = (
                    f"{key} ends at offset {latest}, but the stream is at offset {begin[key]}: records are gone, "
                    f"or the topic was deleted and created again."
                )
                planning.data_loss(sentence, fail)
                begin[key] = earliest
        return begin, bounds

    async def _present(
        self, connection: ClusterThread, known: Set[TopicPartition], only: Set[TopicPartition] | None = None
    ) -> Bounds:
        """Returns the bounds of the partitions that exist (only of the partitions in `only`, if given). With
        failOnDataLoss, if a partition in `known` is missing, the brokers are asked again: a broker that has just
        started may not know the partition yet."""
        options = self.options
        for _ in range(DATA_SOURCE_LOOK_UPS_MAX):
            bounds = await planning.present(
                connection.cluster, options.subscription, only, read_committed=options.read_committed
            )
            if known <= bounds.latest.keys() or not options.fail_on_data_loss:
                break
            await asyncio.sleep(connection.cluster.retry_backoff_seconds)
        return bounds

    def reportLatestOffset(self) -> Tree | None:
        return None if self._latest is None else planning.to_tree(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        async def latest(connection: ClusterThread) -> Offsets:
            return (
                await planning.present(
                    connection.cluster, self.options.subscription, read_committed=self.options.read_committed
                )
            ).latest

        self._target = self._ask(latest)

    # --- records -----------------------------------------------------------------------------------------------------

    def partitions(
        self, start: Mapping[str, Mapping[str, int | str]], end: Mapping[str, Mapping[str, int | str]]
    ) -> Sequence[InputPartition]:
        begin = planning.from_tree(start)
        if self._start is not None and not self._begun:
            begin = self._start_of_first(begin, planning.from_tree(end))
        self._begun = True
        return self._ask(lambda connection: self._plan(connection, begin, planning.from_tree(end)))  # type: ignore[no-any-return]

    def _start_of_first(self, start: Place, end: Place) -> Place:
        """Returns the start of the first micro-batch, after a query run that ended before this micro-batch was
        complete. `start` was resolved again since then, so in some partitions it may be later than the stored `end`.
        In these partitions `end` is returned as the start."""
        assert self._start is not None
        offsets = dict(start.offsets)
        for key, offset in end.offsets.items():
            if key in offsets and (key in self._start.moving or offsets[key] > offset):
                offsets[key] = offset
        return Place(offsets, start.ids)

    async def _plan(self, connection: ClusterThread, start: Place, end: Place) -> list[InputPartition]:
        options, fail = self.options, self.options.fail_on_data_loss
        changed = [
            key
            for key, offset in end.offsets.items()
            if start.offsets.get(key) != offset or start.is_another(key.topic, end.ids)
        ]
        bounds = await self._present(connection, set(changed), set(changed))
        ranges = []
        for key in changed:
            begin, last = start.offsets.get(key), end.offsets[key]
            if key not in bounds.latest:
                planning.data_loss(
                    f"{key} does not exist any more; its offsets from {begin or 0} to {last} are to be read.",
                    fail,
                    "they are left out",
                )
                continue
            if end.is_another(key.topic, bounds.ids):
                planning.data_loss(
                    f"{key} was deleted and created again; its offsets from {begin or 0} to {last} are to be read.",
                    fail,
                    "they are left out",
                )
                continue
            earliest = bounds.earliest[key]
            if begin is None:
                if earliest > 0:
                    planning.data_loss(
                        f"{key} was added while the stream ran and begins at offset {earliest}: the records before "
                        f"it are gone.",
                        fail,
                    )
                begin = earliest
            elif start.is_another(key.topic, end.ids):
                planning.data_loss(
                    f"{key} was deleted and created again; the stream was at offset {begin} of the "
                    f"topic that had its name "
                    f"before.",
                    fail,
                )
                begin = earliest
            elif begin > last:
                planning.data_loss(
                    f"{key} was truncated, or deleted and created again: the stream was at offset {begin}, "
                    f"and is to read up to {last}.",
                    fail,
                )
                begin = earliest
            ranges.append(planning.within(OffsetRange(key.topic, key.partition, begin, max(begin, last)), bounds, fail))
        return await _tasks(connection, options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)

    def commit(self, end: Mapping[str, Mapping[str, int | str]]) -> None:
        """Commits the offsets that were read to the consumer group of kafka.group.id. Spark calls this method when it
        plans the next micro-batch. Usually `latestOffset` has committed the same offsets before; then nothing is
        sent."""
        self._tell_group(planning.from_tree(end).offsets)

    def _tell_group(self, read: Offsets) -> None:
        """Commits the offsets `read` to the consumer group of kafka.group.id, if this option is set, for tools that
        show lag. A failed commit is logged and does not stop the query, since Spark continues from its checkpoint and
        not from the group's offsets."""
        group_id = self.options.group_id
        if group_id is None or read == self._reported:
            return
        connection = connect(self.options.client)
        try:
            connection.run(self._commit(connection, group_id, read))
        except (JesenskaError, TimeoutError) as error:
            if not self._commit_failed:
                reason = str(error) or "no answer came."
                logger.warning(
                    "Offsets could not be committed to the group %s, which shows a wrong lag until they are: %s",
                    group_id,
                    reason,
                )
            self._commit_failed = True
        else:
            self._commit_failed = False
            self._reported = read

    async def _commit(self, connection: ClusterThread, group_id: str, offsets: Offsets) -> None:
        # Imported here, since every process of a query would load it otherwise.
        from jesenska.client.administration.admin import Admin
        from jesenska.client.administration.group_administration import OffsetAndMetadata

        reported = {key: OffsetAndMetadata(offset, -1, READ_BY_A_QUERY) for key, offset in offsets.items()}
        async with asyncio.timeout(_FIRST_CONTACT_MS / 1000):
            results = await Admin(connection.cluster).alter_group_offsets(group_id, reported)
        for key, error in results.items():
            if error is not None and key not in self._missing:
                raise error

    def _ask(self, work: Any) -> Any:
        connection = connect(self.options.client)
        result = _look_up(
            connection, self.options, lambda: work(connection), None if self._contacted else _FIRST_CONTACT_MS
        )
        self._contacted = True
        return result
