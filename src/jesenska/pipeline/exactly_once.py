"""Each micro-batch of a stream in one transaction, once and no more:

    write = ExactlyOnce("invoices", {"kafka.bootstrap.servers": "…", "topic": "invoices"})
    rows.writeStream.foreachBatch(write).option("checkpointLocation", "…").start()

    driver    1  takes the transactional id of the query's name: whoever had it is fenced, what was open is aborted
              2  reads the marker: the number of the last micro-batch that is committed. Is it this one or a later one,
                 nothing is written
    tasks     3  write their rows with the driver's producer id and epoch, each partition from one task, numbers from 0
    driver    4  writes the marker of this micro-batch in the same transaction
              5  commits. That is the one point at which all of it counts

What a crash leaves, by the point at which it comes:

    before 5, wherever it is  the transaction is open. The next attempt fences its producer and aborts it (1): readers
                              of committed records see nothing of it. The marker is not there: it is written again
    in 5, answered or not     the coordinator has the decision, or has not. 1 waits until what was decided is carried
                              out, so 2 reads a marker that is committed or none
    after 5                   the marker is committed: the micro-batch is skipped (2)
    a task is run again       its second attempt cannot know what the first has written, and refuses. The driver
                              begins at 1 again: what the first attempt still sends has an older epoch and is refused
                              by the brokers
    two tasks at once         of one partition (speculation): the second is refused in the same way

So as a reader of committed records sees it, each micro-batch is there as a whole, once, in the order of the
micro-batches, for as long as Spark gives the same rows under the same number, as it does by its checkpoint. A query
that is started on another checkpoint needs another name.

The marker is a record of the topic `jesenska-spark-batches` (compacted; the option `batches.topic` names another): key
the query's name, value the number. It is read up to the high watermark, not only as far as all is decided: open
transactions of other queries would hide it. Whether it is committed is told by the marker of its own producer that
follows it.

A micro-batch must be committed within `transaction.timeout.ms` (option `kafka.transaction.timeout.ms`, 15 minutes if
it is not given, the most that brokers allow by default), or the coordinator aborts it and it is tried again for ever:
a warning says so where a micro-batch takes more than half of that.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jesenska.base.clock import Clock, SystemClock
from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError, ProducerFencedError, RequestTimedOutError, TopicAlreadyExistsError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.admin import Admin, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import LATEST, list_offsets
from jesenska.client.partitioner import partition_of_key
from jesenska.client.producer import Producer
from jesenska.client.transactions import Transactions
from jesenska.pipeline.cluster_thread import ClusterThread, connect
from jesenska.pipeline.options import SinkOptions, sink_options
from jesenska.pipeline.sentences import plainly
from jesenska.pipeline.sink import check_columns, write_rows
from jesenska.pipeline.spark import quiet_about_pandas
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlType, decode_batch, read_marker
from jesenska.records.header import BatchHeader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

#: Where the numbers of committed micro-batches are kept, if the options do not say otherwise.
BATCHES_TOPIC = "jesenska-spark-batches"
_BATCHES_PARTITIONS = 8
_ID_PREFIX = "jesenska-spark-"
_DEFAULT_TIMEOUT_MS = 900_000
_TIMEOUT_OPTION, _TOPIC_OPTION = "kafka.transaction.timeout.ms", "batches.topic"
#: How often a micro-batch is begun anew by itself before the query fails.
_ATTEMPTS = 3
_PARTITION_COLUMN = "__jesenska_partition"
_WRITTEN = "topic string, partition int, records long"
_NOT_ALIGNED = "leave aligned out, so that the rows are shuffled by their partitions."
_READ_SECONDS = 30.0
_LOOK_SECONDS = 0.005


class RepeatedTaskError(JesenskaError):
    """A task was run a second time: the transaction cannot be completed."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a task needs to write into the driver's transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_version_2: bool


class ExactlyOnce:
    """For `foreachBatch`. `query` is a name that this query alone has, and keeps from start to start. `options` are
    those of the sink. `aligned`: the rows of one target partition are in one partition of the data frame already, so
    nothing is shuffled; where they are not, the micro-batch fails."""

    def __init__(self, query: str, options: Mapping[str, str], *, aligned: bool = False, clock: Clock | None = None) -> None:
        if not query:
            raise JesenskaError("A query that writes exactly once needs a name of its own, which it keeps: ExactlyOnce(query=...).")
        given = dict(options)
        self.query = query
        self.batches_topic = given.pop(_TOPIC_OPTION, BATCHES_TOPIC)
        self.timeout_ms = _timeout_of(given.pop(_TIMEOUT_OPTION, None))
        self.options = sink_options(given)
        self.aligned = aligned
        if self.options.acks != -1 or self.options.enable_idempotence is False:
            raise JesenskaError("Writing exactly once needs idempotence and acks=all: leave kafka.acks and kafka.enable.idempotence out.")
        self.options = replace(self.options, enable_idempotence=True)
        self._clock = clock or SystemClock()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Writes a micro-batch, if it is not written yet. JesenskaError with one sentence where that fails."""
        check_columns(rows.schema, self.options.topic)
        with plainly("topic"):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._write_once(rows, batch_id)
                    return
                except _AgainError as error:
                    if attempt == _ATTEMPTS:
                        raise JesenskaError(f"Micro-batch {batch_id} of the query {self.query} could not be written in {attempt} attempts: {error}") from error
                    logger.warning("Micro-batch %d of the query %s is begun anew: %s", batch_id, self.query, error)

    def _write_once(self, rows: DataFrame, batch_id: int) -> None:
        connection = connect(self.options.client)
        begun = self._clock.monotonic()
        writing = connection.run(_begin(connection, self))
        is_committed = False
        try:
            last = connection.run(writing.last_batch())
            if last >= batch_id:
                logger.info("Micro-batch %d of the query %s is written already (the last one is %d).", batch_id, self.query, last)
                return
            written = self._run_tasks(rows, writing.ticket)
            connection.run(writing.commit(batch_id))
            is_committed = True
        except KafkaError as error:
            if isinstance(error, ProducerFencedError):
                raise JesenskaError(f"Another run of the query {self.query} has begun: this one has ended.") from error
            raise _AgainError(str(error)) from error
        finally:
            connection.run(writing.close(is_committed))
        took_ms = (self._clock.monotonic() - begun) * 1000
        if took_ms > self.timeout_ms / 2:
            logger.warning(
                "Micro-batch %d of the query %s took %.0f s, and may take %.0f s: read less at once (maxOffsetsPerTrigger), or raise %s.",
                batch_id, self.query, took_ms / 1000, self.timeout_ms / 1000, _TIMEOUT_OPTION,
            )  # fmt: skip
        logger.debug("Micro-batch %d of the query %s: %d records", batch_id, self.query, sum(written.values()))

    def _run_tasks(self, rows: DataFrame, ticket: Ticket) -> dict[TopicPartition, int]:
        """Records by partition. Each partition must have been written by one task."""
        options = self.options

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _task(options, ticket, batches)

        with quiet_about_pandas():
            placed = rows if self.aligned else _by_target(rows, options)
            writing = placed.mapInArrow(work, _WRITTEN)
        jobs = _Jobs(rows)
        try:
            found = writing.collect()
        except Exception as error:
            if RepeatedTaskError.__name__ in str(error):
                raise _AgainError("Spark has run a task a second time") from error
            if self.aligned and ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name in str(error):
                raise JesenskaError(f"Two tasks have written to one partition: {_NOT_ALIGNED}") from error
            raise
        if jobs.have_repeated_stages():
            raise _AgainError("Spark has run a stage a second time")
        written: dict[TopicPartition, int] = {}
        for row in found:
            key = TopicPartition(row["topic"], row["partition"])
            if key in written:
                raise JesenskaError(f"Two tasks have written to {key}: {_NOT_ALIGNED}")
            written[key] = row["records"]
        return written


def write_exactly_once(rows: DataFrame, batch_id: int, query: str, options: Mapping[str, str], *, aligned: bool = False) -> None:
    """As `ExactlyOnce`, for a function of one's own in foreachBatch."""
    ExactlyOnce(query, options, aligned=aligned)(rows, batch_id)


class _AgainError(Exception):
    """The transaction came to nothing, and a new one may not."""


def _timeout_of(text: str | None) -> int:
    if text is None:
        return _DEFAULT_TIMEOUT_MS
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise JesenskaError(f"{_TIMEOUT_OPTION} expects milliseconds, but is {text!r}: set for example {_DEFAULT_TIMEOUT_MS}.")
    return int(text)


# --- the driver ------------------------------------------------------------------------------------------------------


class _Writing:
    """One attempt at a micro-batch. All of it is called on the connection's loop."""

    def __init__(self, cluster: Cluster, producer: Producer, transactions: Transactions, sink: ExactlyOnce) -> None:
        self._cluster = cluster
        self._producer = producer
        self._transactions = transactions
        self._sink = sink
        self._key = sink.query.encode()
        self._marker = TopicPartition(sink.batches_topic, 0)
        assert transactions.producer is not None, "it is initialized"
        producer_id, epoch = transactions.producer
        self.ticket = Ticket(transactions.transactional_id, producer_id, epoch, transactions.is_version_2)

    async def last_batch(self) -> int:
        """The number of the last micro-batch that is committed; -1 without one."""
        topic = await self._cluster.topic(self._sink.batches_topic)
        self._marker = TopicPartition(topic.name, partition_of_key(self._key, len(topic.partitions)))
        return await _read_on(self._cluster, self._marker, self._key)

    async def commit(self, batch_id: int) -> None:
        self._transactions.note_written()
        await (await self._producer.send(self._marker.topic, b"%d" % batch_id, self._key, partition=self._marker.partition))
        await self._producer.commit_transaction()

    async def close(self, is_committed: bool) -> None:
        """What is not committed is aborted, if the brokers can be reached; else the next attempt does that."""
        try:
            if not is_committed and self._transactions.may_abort:
                self._transactions.note_written()
                await self._producer.abort_transaction()
        except KafkaError as error:
            logger.info("The transaction of the query %s is left to the next attempt: %s", self._sink.query, error)
        finally:
            await self._producer.close(flush=False)


async def _begin(connection: ClusterThread, sink: ExactlyOnce) -> _Writing:
    cluster = connection.cluster
    await connection.persistently(lambda: _make_batches_topic(cluster, sink.batches_topic))
    producer = Producer(
        cluster,
        transactional_id=_ID_PREFIX + sink.query,
        transaction_timeout_seconds=sink.timeout_ms / 1000,
        delivery_timeout_seconds=sink.options.delivery_timeout_ms / 1000,
    )
    await producer.init_transactions()
    producer.begin_transaction()
    assert producer.transactions is not None, "it has a transactional id"
    return _Writing(cluster, producer, producer.transactions, sink)


async def _make_batches_topic(cluster: Cluster, name: str) -> None:
    if name in await cluster.topics():
        return
    made = await Admin(cluster).create_topics([NewTopic(name, _BATCHES_PARTITIONS, -1, {"cleanup.policy": "compact"})])
    error = made[name]
    if error is not None and not isinstance(error, TopicAlreadyExistsError):
        raise error
    await cluster.topic(name, create=True)


@dataclass(slots=True)
class _Followed:
    """What this process has read of a query's numbers."""

    position: int = 0
    #: The last one that is committed; -1 without one.
    last: int = -1
    #: Numbers of transactions whose end has not been met, by producer id.
    undecided: dict[int, int] = field(default_factory=dict)

    def follow(self, data: memoryview, position: int, header: BatchHeader, name: bytes) -> None:
        """Takes one more batch."""
        if header.is_control:
            number = self.undecided.pop(header.producer_id, -1)
            marker = read_marker(data[position : position + header.size_bytes])
            if marker is not None and marker.type is ControlType.COMMIT:
                self.last = max(self.last, number)
            return
        for record in decode_batch(data, position, header=header):
            if record.key is not None and bytes(record.key) == name and record.value is not None:
                if not header.is_transactional:
                    raise JesenskaError(f"A record for the query {name.decode()} in the topic of micro-batches was written by no transaction: delete it.")
                self.undecided[header.producer_id] = int(bytes(record.value))


#: By cluster, partition and query.
_followed: weakref.WeakKeyDictionary[Cluster, dict[tuple[TopicPartition, bytes], _Followed]] = weakref.WeakKeyDictionary()


async def _read_on(cluster: Cluster, key: TopicPartition, name: bytes) -> int:
    """The number in the newest committed record of a name: reads on from where this process has read to."""
    followed = _followed.setdefault(cluster, {}).setdefault((key, name), _Followed())
    end = (await list_offsets(cluster, {key: LATEST}))[key].offset
    if end < followed.position:
        raise JesenskaError(f"The topic of micro-batches {key.topic} has lost what it had: start the query anew, under another name, where it is to begin.")
    consumer = Consumer(cluster, auto_offset_reset="earliest")
    try:
        await consumer.assign({key: followed.position})
        deadline = cluster.clock.monotonic() + _READ_SECONDS
        while (position := consumer.position(key)) < end:
            fetched = await consumer.poll_raw(1.0)
            if not fetched and cluster.clock.monotonic() > deadline:
                raise RequestTimedOutError(f"The committed micro-batches in {key} could not be read from offset {position} to {end}.")
            for item in fetched:
                for place, header in iter_headers(item.data):
                    if header.last_offset >= followed.position:
                        followed.follow(item.data, place, header, name)
                followed.position = item.next_offset
    finally:
        await consumer.close()
    return followed.last


class _Jobs:
    """What Spark has run since this was made, for the thread's group of jobs. A stage that is run again, since an
    executor was lost with what it had written for it, has new tasks, which look like first ones to themselves."""

    def __init__(self, rows: DataFrame) -> None:
        context = rows.sparkSession.sparkContext
        self._group = context.getLocalProperty("spark.jobGroup.id")
        self._tracker = context.statusTracker()
        self._before = self._known()

    def _known(self) -> set[int]:
        return set(self._tracker.getJobIdsForGroup(self._group))

    def have_repeated_stages(self) -> bool:
        """Waits until Spark knows of itself that the jobs have ended: it hears of their stages before."""
        for job in self._known() - self._before:
            while True:
                info = self._tracker.getJobInfo(job)
                if info is None or info.status != "RUNNING":
                    break
                time.sleep(_LOOK_SECONDS)
            stages = [] if info is None else [self._tracker.getStageInfo(stage) for stage in info.stageIds]
            if any(stage is not None and stage.currentAttemptId > 0 for stage in stages):
                return True
        return False


# --- tasks -----------------------------------------------------------------------------------------------------------


def _by_target(rows: DataFrame, options: SinkOptions) -> DataFrame:
    """The rows such that all of a target partition are in one partition of the data frame."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    schema = rows.schema
    placed = StructType([*schema.fields, StructField(_PARTITION_COLUMN, IntegerType(), False)])

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _placed(options, batches)

    with_partition = rows.mapInArrow(place, placed)
    columns = [_PARTITION_COLUMN] if options.topic is not None else ["topic", _PARTITION_COLUMN]
    return with_partition.repartition(*columns)


def _placed(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Adds the target partition of each row; the column `partition` says the same where there is one."""
    import pyarrow as pa

    from jesenska.pipeline.sink import Placing

    with plainly("topic"):
        placing = Placing(connect(options.client), options)
        for batch in batches:
            if batch.num_rows:
                numbers = placing.partitions_of(batch)
                columns = [numbers if name == "partition" else column for name, column in zip(batch.schema.names, batch.columns, strict=True)]
                yield pa.RecordBatch.from_arrays([*columns, numbers], names=[*batch.schema.names, _PARTITION_COLUMN])


def _task(options: SinkOptions, ticket: Ticket, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Writes its rows into the driver's transaction; what it wrote."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise RepeatedTaskError(f"{RepeatedTaskError.__name__}: a task that writes exactly once is not run a second time; the micro-batch is begun anew.")

    async def made() -> Producer:
        cluster = connect(options.client).cluster
        transactions = Transactions.joined(cluster, ticket.transactional_id, (ticket.producer_id, ticket.producer_epoch), is_version_2=ticket.is_version_2)
        return Producer(
            cluster,
            transactions=transactions,
            max_request_size=options.max_request_size,
            buffer_memory=options.buffer_memory,
            delivery_timeout_seconds=options.delivery_timeout_ms / 1000,
        )

    written = write_rows(options, batches, partition_column=_PARTITION_COLUMN, producer=connect(options.client).run(made()))
    yield pa.RecordBatch.from_pydict(
        {"topic": [key.topic for key in written], "partition": [key.partition for key in written], "records": list(written.values())},
        schema=pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("records", pa.int64())]),
    )
