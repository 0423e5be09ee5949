"""Writes each micro-batch of a Spark stream to Kafka in one transaction, exactly once:

    write = ExactlyOnce("invoices", {"kafka.bootstrap.servers": "…", "topic": "invoices"})
    rows.writeStream.foreachBatch(write).option("checkpointLocation", "…").start()

    driver    0  reads, at the start of a query, the last committed micro-batch. If it belongs to another query, this
                 query fails here, and the other query continues
              1  initializes the transactional id of the query's name: this fences the id's earlier producer and aborts
                 the open transaction of that producer
              2  writes the number of this micro-batch in the transaction, with the query's id in Spark and the offsets
                 at which its sources end, acknowledged by all in-sync replicas
              3  reads the last committed micro-batch, up to the record that it wrote in 2. If the last committed
                 micro-batch is this one, the transaction is aborted, and nothing else is written. If it is of another
                 checkpoint, is a later one, or ended at other offsets than the checkpoint has, the query fails with
                 an error that names the reason
    tasks     4  write their rows with the driver's producer id and epoch. One task writes each partition, with
                 sequence numbers from 0
    driver    5  commits the transaction: the rows and the number become visible together

The result of each failure, by the step at which it happens:

    crash before 5            the transaction is open. The next attempt aborts it (1), so read_committed consumers see
                              none of its records. Its number is not committed: the micro-batch is written again
    crash in 5                the transaction coordinator has received the commit, or has not. Step 1 of the next
                              attempt waits until the transaction has ended, so 3 reads a committed number or none
    crash after 5             the number is committed: the micro-batch is skipped (3)
    a task is run again       its second attempt cannot know what the first wrote, and raises RepeatedTaskError. The
                              driver begins at 1 again: the brokers refuse later batches of the first attempt, whose
                              epoch is older
    a worker or shuffle       Spark fails the job (on one machine it runs no task again). The driver begins at 1 again
    files are lost
    two tasks at once         of one partition (speculation): the second also raises RepeatedTaskError

So a read_committed consumer sees each micro-batch as a whole, once, in the order of the micro-batches. This needs the
same rows under the same number, which Spark ensures by its checkpoint. A query that is started on another checkpoint
needs another name: under the old name it fails. A query whose checkpoint was restored from an old copy also fails.
Outside of a stream there is no checkpoint. Then only numbers are compared: a micro-batch is skipped if its number is
not above the number of the last committed micro-batch.

The number of a micro-batch is written as a record to the compacted topic `jesenska-spark-batches`. The option
`batches.topic` names another topic. The record's key is the query's name. The record is committed if the next
transaction marker of its producer is a commit marker. The driver reads up to its own record, not with read_committed,
for two reasons. With read_committed, open transactions of other queries would hide the records after them. And a
broker that is no longer the partition's leader, but does not know this yet, would return an older end of the
partition. Such a broker cannot acknowledge a record, so the driver's own record shows where the partition ends.

A micro-batch must be committed within `transaction.timeout.ms` (option `kafka.transaction.timeout.ms`, by default 15
minutes, the most that brokers allow by default). If it takes longer, the coordinator aborts the transaction, and the
query fails with an error that names the remedy. A warning is logged if a micro-batch takes more than half of that
time."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jesenska.base.clock import Clock, SystemClock
from jesenska.base.errors import ErrorCode, JesenskaError, KafkaError, ProducerFencedError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.producer import Producer
from jesenska.pipeline.connector.cluster_thread import ClusterThread, connect
from jesenska.pipeline.connector.options import SinkOptions, sink_options
from jesenska.pipeline.connector.sink import Packing, check_columns, sending, write_rows
from jesenska.pipeline.connector.user_errors import plainly
from jesenska.pipeline.micro_batches import (
    MicroBatch,
    MicroBatchTransaction,
    Query,
    Ticket,
    first_look,
    make_batches_topic,
)
from jesenska.pipeline.spark.session import quiet_about_pandas

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

#: The default topic in which the numbers of committed micro-batches are recorded.
BATCHES_TOPIC = "jesenska-spark-batches"
_DEFAULT_TIMEOUT_MS = 900_000
_TIMEOUT_OPTION, _TOPIC_OPTION = "kafka.transaction.timeout.ms", "batches.topic"
#: The number of times that a micro-batch is tried before the query fails.
_ATTEMPTS = 3
#: The columns of the rows that Spark shuffles. `size` is the uncompressed size in bytes of a batch that was compressed
#: for the shuffle, or 0 for an uncompressed batch.
_PACKED = "place int, topic string, partition int, size int, batch binary"
#: The codec for the shuffle. Compression costs less than copying uncompressed batches between Python, Java and the
#: disk.
_SHUFFLED_CODEC = "lz4_raw"
_WRITTEN = "topic string, partition int, records long"
_NOT_ALIGNED = "leave aligned out, so that the rows are shuffled by their partitions."
_LOOK_SECONDS = 0.005
#: The local property of Spark that contains, in the jobs of a stream, the id of the streaming query.
_QUERY_ID = "sql.streaming.queryId"
_PLACES = 2**31


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of a consumer group that are committed in the transaction of a micro-batch. `metadata` is stored with
    each offset."""

    group_id: str
    offsets: Mapping[TopicPartition, int]
    metadata: str = ""


class RepeatedTaskError(JesenskaError):
    """The error of a task that Spark has run a second time. The transaction cannot be completed, so the micro-batch is
    tried again."""


#: Texts that the error of a failed job contains if a new attempt may succeed, each with the reason to report. On one
#: machine Spark does not repeat a failed task by itself, so the driver repeats the micro-batch.
_MAY_SUCCEED = {
    RepeatedTaskError.__name__: "Spark has run a task a second time",
    "indeterminate output": "Spark has lost what was shuffled",
    "Python worker exited unexpectedly": "Spark has lost a Python worker",
}


class ExactlyOnce:
    """The function for Spark's `foreachBatch` that writes each micro-batch exactly once.

    `query` is the query's own name, the same at every start. `options` are the options of the sink. `aligned` says
    that all rows of a target partition are in one partition of the data frame, so nothing is shuffled. If the rows are
    not arranged in this way, the micro-batch fails. `offsets` are committed in each transaction.

    `counted_as` is the key under which micro-batch numbers are recorded; if it is empty, `query` is the key. The
    transactional id is always made from `query`. `is_allowed` is called after fencing and before the first write, and
    raises an error if the query must end."""

    def __init__(
        self,
        query: str,
        options: Mapping[str, str],
        *,
        aligned: bool = False,
        clock: Clock | None = None,
        offsets: Offsets | None = None,
        counted_as: str = "",
        is_allowed: Callable[[], None] | None = None,
    ) -> None:
        if not query:
            raise JesenskaError(
                "A query that writes exactly once needs a name that no other query has and that never changes: "
                "set ExactlyOnce(query=...)."
            )
        given = dict(options)
        self.query = query
        self.batches_topic = given.pop(_TOPIC_OPTION, BATCHES_TOPIC)
        self.timeout_ms = _timeout_of(given.pop(_TIMEOUT_OPTION, None))
        self.options = sink_options(given)
        self.aligned = aligned
        if self.options.acks != -1 or self.options.enable_idempotence is False:
            raise JesenskaError(
                "Writing exactly once needs idempotence and acks=all: leave kafka.acks and kafka.enable.idempotence "
                "out."
            )
        self.options = replace(self.options, enable_idempotence=True)
        self._clock = clock or SystemClock()
        self._offsets, self._counted_as, self._is_allowed = offsets, counted_as, is_allowed
        self._written: MicroBatch | None = None  # the last one that was written here

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Writes a micro-batch, unless it is already written. Raises JesenskaError if writing fails."""
        check_columns(rows.schema, self.options.topic)
        with plainly("topic"):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._write_once(rows, batch_id)
                    return
                except _AgainError as error:
                    if attempt == _ATTEMPTS:
                        raise JesenskaError(
                            f"Micro-batch {batch_id} of the query {self.query} could not be written in {attempt} "
                            f"attempts: {error}"
                        ) from error
                    logger.warning("Micro-batch %d of the query %s is tried again: %s", batch_id, self.query, error)

    def _write_once(self, rows: DataFrame, batch_id: int) -> None:
        connection = connect(self.options.client)
        begun = self._clock.monotonic()
        checkpoint = _Checkpoint(rows)
        batch = MicroBatch.of(batch_id, checkpoint.query_id, checkpoint.ends_of(batch_id), self.options.topic or "")
        query = Query(
            self.query, self.batches_topic, self.timeout_ms, self.options.delivery_timeout_ms, self._counted_as
        )
        self._is_written(batch, connection.run(self._look(connection, query)), checkpoint)
        writing = connection.run(MicroBatchTransaction.begin(connection.cluster, query))
        is_committed = False
        try:
            if self._is_allowed is not None:
                self._is_allowed()
            connection.run(writing.write_number(batch))
            last = connection.run(writing.last_batch())
            if self._is_written(batch, last, checkpoint):
                logger.info("Micro-batch %d of the query %s is written already.", batch_id, self.query)
                return
            if last is None and batch_id and batch.query_id:
                logger.warning(
                    "The query %s has written nothing under this name so far, but begins with micro-batch %d. If "
                    "the query had another name or another %s before, this micro-batch may be written a second "
                    "time.", self.query, batch_id, _TOPIC_OPTION,
                )  # fmt: skip
            written = self._run_tasks(rows, writing.ticket)
            if self._offsets is not None and self._offsets.offsets:
                connection.run(
                    writing.send_offsets(self._offsets.group_id, self._offsets.offsets, self._offsets.metadata)
                )
            connection.run(writing.commit())
            is_committed = True
            self._written = batch
        except Exception as error:
            if (self._clock.monotonic() - begun) * 1000 >= self.timeout_ms:
                raise JesenskaError(
                    f"Micro-batch {batch_id} of the query {self.query} took longer than the "
                    f"{self.timeout_ms / 1000:g} s that its transaction may take, "
                    f"and was aborted: read less at once (maxOffsetsPerTrigger), or raise {_TIMEOUT_OPTION}."
                ) from error
            if isinstance(error, ProducerFencedError):
                raise JesenskaError(
                    f"Another run of the query {self.query} has started, so this run has ended: run a query only "
                    "once at a time."
                ) from error
            if isinstance(error, KafkaError):
                raise _AgainError(str(error)) from error
            raise
        finally:
            connection.run(writing.close(is_committed))
        took_ms = (self._clock.monotonic() - begun) * 1000
        if took_ms > self.timeout_ms / 2:
            logger.warning(
                "Micro-batch %d of the query %s took %.0f s, and its transaction may take at most %.0f s: read "
                "less at once (maxOffsetsPerTrigger), or raise %s.",
                batch_id, self.query, took_ms / 1000, self.timeout_ms / 1000, _TIMEOUT_OPTION,
            )  # fmt: skip
        logger.debug("Micro-batch %d of the query %s: %d records", batch_id, self.query, sum(written.values()))

    async def _look(self, connection: ClusterThread, query: Query) -> MicroBatch | None:
        cluster = connection.cluster
        await connection.persistently(lambda: make_batches_topic(cluster, self.batches_topic))
        return await connection.persistently(lambda: first_look(cluster, query))

    def _is_written(self, batch: MicroBatch, last: MicroBatch | None, checkpoint: _Checkpoint) -> bool:
        """Returns True if the micro-batch is already written. Raises JesenskaError if the checkpoint does not belong
        to the query that wrote the last committed micro-batch."""
        if batch.is_written(self.query, last):
            return True
        # A caller that sets `counted_as` checks its checkpoint itself, and makes a new ExactlyOnce object for each
        # micro-batch.
        if last is not None and last != self._written and not self._counted_as:
            is_before_done = last.number == batch.number - 1 or checkpoint.is_done(batch.number - 1)
            batch.check_past(self.query, last, checkpoint.ends_of(last.number), is_before_done)
        return False

    def _run_tasks(self, rows: DataFrame, ticket: Ticket) -> dict[TopicPartition, int]:
        """Runs the Spark job that writes the rows in the transaction of `ticket`. Returns the number of records
        written to each partition. Raises an error if two tasks have written to the same partition."""
        options = self.options

        write = write_rows if self.aligned else _write_packed

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _pack(options, batches)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return _task(options, ticket, batches, write)

        with quiet_about_pandas():
            placed = (
                rows
                if self.aligned
                else rows.mapInArrow(pack, _PACKED).repartitionById(_tasks(rows.sparkSession), "place")
            )
            writing = placed.mapInArrow(work, _WRITTEN)
        jobs = _Jobs(rows)
        try:
            found = writing.collect()
        except Exception as error:
            for words, reason in _MAY_SUCCEED.items():
                if words in str(error):
                    raise _AgainError(reason) from error
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


def write_exactly_once(
    rows: DataFrame,
    batch_id: int,
    query: str,
    options: Mapping[str, str],
    *,
    aligned: bool = False,
    offsets: Offsets | None = None,
    counted_as: str = "",
    is_allowed: Callable[[], None] | None = None,
) -> None:
    """Writes one micro-batch as `ExactlyOnce` does. It is called from the user's own foreachBatch function."""
    ExactlyOnce(query, options, aligned=aligned, offsets=offsets, counted_as=counted_as, is_allowed=is_allowed)(
        rows, batch_id
    )


def _tasks(spark: SparkSession) -> int:
    """Returns the number of writing tasks. It is at most the number of tasks that can run at once, since starting a
    task takes about as long as its writing."""
    return min(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), spark.sparkContext.defaultParallelism)


class _Checkpoint:
    """The Spark checkpoint of the stream that calls foreachBatch. `query_id` is the stream's id in the checkpoint. It
    is empty if the caller is not in foreachBatch, or is in a thread other than the stream's thread."""

    def __init__(self, rows: DataFrame) -> None:
        from py4j.protocol import Py4JError

        spark = rows.sparkSession
        self.query_id: str = spark.sparkContext.getLocalProperty(_QUERY_ID) or ""
        self._stream: Any = None
        if self.query_id:
            try:
                # A stream runs in a Spark session of its own. Only the state that all sessions share lists the streams
                # of all sessions.
                streams = spark._jsparkSession.sharedState().activeStreamingQueries()
                self._stream = streams.get(spark._jvm.java.util.UUID.fromString(self.query_id))  # type: ignore[union-attr]
            except (Py4JError, AttributeError, TypeError) as error:
                logger.warning(
                    "Spark's checkpoint cannot be looked at, so an old copy of the checkpoint may not be noticed: %s",
                    error,
                )

    def ends_of(self, number: int) -> str:
        """Returns the end offsets of the sources in micro-batch `number`, a line of JSON for each source. Returns an
        empty text if the checkpoint no longer has the micro-batch, or if Spark's log cannot be read."""
        from py4j.protocol import Py4JError

        try:
            found = None if self._stream is None else self._stream.offsetLog().get(number)
            if found is None or not found.isDefined():
                return ""
            sources = found.get().offsets()
            ends = [sources.apply(place) for place in range(sources.size())]
            return "\n".join(end.get().json() if end.isDefined() else "-" for end in ends)
        except (Py4JError, AttributeError, TypeError) as error:
            logger.warning(
                "The end offsets of micro-batch %d in Spark's checkpoint cannot be read, so an old copy of the "
                "checkpoint may not be noticed: %s",
                number,
                error,
            )
            return ""

    def is_done(self, number: int) -> bool:
        """Returns True if Spark's commit log has micro-batch `number`, or if Spark's log cannot be read. The commit
        log always has the micro-batch before the running one."""
        from py4j.protocol import Py4JError

        try:
            return self._stream is None or bool(self._stream.commitLog().get(number).isDefined())
        except (Py4JError, AttributeError, TypeError) as error:
            logger.warning(
                "Whether micro-batch %d is done cannot be read from Spark's checkpoint, so offsets of another "
                "query may not be noticed: %s",
                number,
                error,
            )
            return True


class _AgainError(Exception):
    """The error of a transaction that failed for a temporary reason. The micro-batch is tried again in a new
    transaction."""


def _timeout_of(text: str | None) -> int:
    if text is None:
        return _DEFAULT_TIMEOUT_MS
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise JesenskaError(
            f"{_TIMEOUT_OPTION} expects milliseconds, but is {text!r}: set for example {_DEFAULT_TIMEOUT_MS}."
        )
    return int(text)


class _Jobs:
    """The jobs that Spark has run in the thread's job group since this object was made. When an executor and its
    shuffle files are lost, Spark repeats a stage with new tasks. Each new task has attempt number 0, so the task
    cannot see that it repeats earlier work. This class finds repeated stages."""

    def __init__(self, rows: DataFrame) -> None:
        context = rows.sparkSession.sparkContext
        self._group = context.getLocalProperty("spark.jobGroup.id")
        self._tracker = context.statusTracker()
        self._before = self._known()

    def _known(self) -> set[int]:
        return set(self._tracker.getJobIdsForGroup(self._group))

    def have_repeated_stages(self) -> bool:
        """Returns True if Spark has repeated a stage. Waits until Spark reports each job as ended, which happens after
        the end of the job's stages."""
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


def _pack(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows as encoded record batches, with the target partition of each batch. So a few large values are
    shuffled instead of many rows. Batches without a compression codec are compressed for the shuffle."""
    with plainly("topic"):
        packing = Packing(connect(options.client), options, SystemClock())
        for batch in batches:
            if batch.num_rows:
                for key, encoded in packing.add(batch):
                    yield _as_rows(key, encoded, options.compression)
        for key, encoded in packing.rest():
            yield _as_rows(key, encoded, options.compression)


def _as_rows(key: TopicPartition, encoded: list[bytearray], compression: str) -> pa.RecordBatch:
    import pyarrow as pa

    sizes, batches = zip(
        *(_for_the_way(batch) if compression == "none" else (0, batch) for batch in encoded), strict=True
    )
    count = len(encoded)
    repeated = [
        pa.array([one] * count, kind)
        for one, kind in ((_place(key), pa.int32()), (key.topic, pa.string()), (key.partition, pa.int32()))
    ]
    columns = [*repeated, pa.array(sizes, pa.int32()), pa.array(batches, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["place", "topic", "partition", "size", "batch"])


def _for_the_way(batch: bytearray) -> tuple[int, bytes | bytearray]:
    """Returns the batch compressed for the shuffle, and before it the uncompressed size in bytes. Returns 0 and the
    unchanged batch if compression does not make it smaller."""
    import pyarrow as pa

    compressed = pa.compress(batch, codec=_SHUFFLED_CODEC, asbytes=True)
    return (len(batch), compressed) if len(compressed) < len(batch) else (0, batch)


def _from_the_way(size: int, batch: pa.Buffer) -> bytearray:
    import pyarrow as pa

    return bytearray(pa.decompress(batch, size, codec=_SHUFFLED_CODEC) if size else batch)


def _place(key: TopicPartition) -> int:
    """Returns a number that chooses the task for a partition: Spark takes the number modulo the number of tasks. The
    partitions of one topic are assigned to the tasks in turn, so that each task has about the same number of
    partitions."""
    return (zlib.crc32(key.topic.encode()) + key.partition) % _PLACES


def _write_packed(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], producer: Producer
) -> dict[TopicPartition, int]:
    with plainly("topic"), sending(connect(options.client), options, producer) as task:
        for rows in batches:
            for topic, partition, size, batch in zip(
                *(rows.column(name) for name in ("topic", "partition", "size", "batch")), strict=True
            ):
                task.send(
                    TopicPartition(topic.as_py(), partition.as_py()), [_from_the_way(size.as_py(), batch.as_buffer())]
                )
        return task.finish()


def _task(
    options: SinkOptions,
    ticket: Ticket,
    batches: Iterator[pa.RecordBatch],
    write: Callable[[SinkOptions, Iterator[pa.RecordBatch], Producer], dict[TopicPartition, int]],
) -> Iterator[pa.RecordBatch]:
    """Writes the batches of one task into the driver's transaction. Yields the number of records written to each
    partition."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise RepeatedTaskError(
            f"{RepeatedTaskError.__name__}: a task that writes exactly once is not run a second time; the "
            f"micro-batch is tried again."
        )

    async def made() -> Producer:
        cluster = connect(options.client).cluster
        return Producer(
            cluster,
            transactions=ticket.join(cluster),
            max_request_size=options.max_request_size,
            buffer_memory=options.buffer_memory,
            delivery_timeout_seconds=options.delivery_timeout_ms / 1000,
            max_block_seconds=options.delivery_timeout_ms / 1000,
        )

    written = write(options, batches, connect(options.client).run(made()))
    yield pa.RecordBatch.from_pydict(
        {
            "topic": [key.topic for key in written],
            "partition": [key.partition for key in written],
            "records": list(written.values()),
        },
        schema=pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("records", pa.int64())]),
    )
