"""The Spark sink `jesenska`: writes the rows of a query as records to topics, column by column.

    value       string or binary, required                 topic       string; needed unless the option `topic` is set,
                                                                       which takes precedence
    key         string or binary, may be null              partition   int, may be null: then the key decides, as in
                                                                       Kafka's Java client
    headers     array<struct<key string, value binary>>    timestamp   timestamp, the record's time; where it is null
                                                                       or not there: now

Other columns are ignored (as in Spark's own sink, which has no column timestamp).

    Arrow batch -> by topic -> partition of each row (compiled) -> sorted by partition -> record batches ->
    acknowledged

Rows of one partition keep their order within a task. Rows without key and partition go to the partitions in turn, a
batch to each.

Records are written at least once. Spark repeats a failed task, and writes a failed micro-batch again after a restart:
records that were acknowledged before are then in the topic twice. A single task writes no record twice, since its
producer is idempotent. The producer is not idempotent if kafka.acks or kafka.enable.idempotence excludes it, or if the
topic's record format is older than Kafka 0.11 (which has no headers, either). Producers belong to the process and are
reused (worker_cache.py).

Not supported: the output mode "update", which Spark does not offer to Python data sources. A batch write in
foreachBatch does the same.

A record batch is at most as large as the topic's max.message.bytes. A task with a larger record fails, with an error
that names topic and partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType

from jesenska.base.clock import Clock, SystemClock, system_random
from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import SINK_WAITING_BATCHES_MAX, SINK_WAITING_BYTES
from jesenska.client.producer import Producer
from jesenska.pipeline.connector.cluster_thread import ClusterThread, connect
from jesenska.pipeline.connector.options import SinkOptions
from jesenska.pipeline.connector.user_errors import plainly, say_if_slow
from jesenska.pipeline.connector.worker_cache import cache_of
from jesenska.records.arrow import columns_to_batches, partitions_of_keys
from jesenska.records.header import Codec, read_record_count

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

#: The topics for which this process has already logged the warning that they are written without idempotence.
_said: set[str] = set()
#: The bytes that a batch's header, and a codec that does not compress well, may add to the records of the batch.
_BATCH_MARGIN = 1024
_UNDECIDED = -1
#: The columns from which records are made.
_COLUMNS = ("key", "value", "headers", "timestamp")


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of one task: the number of records written to each partition. All of them are acknowledged (with
    acks=0: sent)."""

    records: dict[TopicPartition, int]


class JesenskaWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_rows(self.options, iterator))


class JesenskaStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_rows(self.options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: the tasks have waited until their records were acknowledged."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Does nothing: records in a topic cannot be removed. Spark writes the micro-batch again."""


# --- valid columns ---------------------------------------------------------------------------------------------------


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises JesenskaError if rows with these columns cannot become records."""
    columns = {item.name: item.dataType for item in schema.fields}
    if "value" not in columns:
        there = ", ".join(columns) or "none"
        raise JesenskaError(
            f"The rows have no column value, which becomes the record's value: add one, for example with to_json; "
            f"their columns are {there}."
        )
    if topic is None and "topic" not in columns:
        raise JesenskaError("The target topic is not known: set the option topic, or give the rows a column topic.")
    for name in ("key", "value"):
        if name in columns and not isinstance(columns[name], StringType | BinaryType):
            raise _wrong_type(name, columns[name], f"string or binary: cast it, for example {name}.cast('string')")
    if "topic" in columns and topic is None and not isinstance(columns["topic"], StringType):
        raise _wrong_type("topic", columns["topic"], "string")
    if "partition" in columns and not isinstance(columns["partition"], IntegerType):
        raise _wrong_type("partition", columns["partition"], "int: cast it, for example partition.cast('int')")
    if "timestamp" in columns and not isinstance(columns["timestamp"], TimestampType):
        raise _wrong_type(
            "timestamp",
            columns["timestamp"],
            "timestamp, as it becomes the record's time: cast it, or leave it out of the rows",
        )
    if "headers" in columns and not _are_headers(columns["headers"]):
        raise _wrong_type("headers", columns["headers"], "array<struct<key: string, value: binary>>")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(item.name, type(item.dataType)) for item in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _wrong_type(name: str, kind: DataType, wanted: str) -> JesenskaError:
    return JesenskaError(f"The column {name} is {kind.simpleString()}, but it must be {wanted}.")


def _check_headers(headers: pa.Array, topic: _Topic) -> None:
    import pyarrow.compute as pc

    flat = pc.list_flatten(headers)
    if not len(flat):
        return
    if topic.old_format is not None:
        raise JesenskaError(
            f"The topic {topic.name} keeps its records in the format of {topic.old_format}, which has no headers: "
            f"leave the column headers out of the rows, "
            f"or give the topic message.format.version=0.11.0 or newer."
        )
    if flat.null_count or flat.field(0).null_count:
        raise JesenskaError(
            "A row has a header whose key is null: give every header a key, or leave it out of the array."
        )


# --- one task --------------------------------------------------------------------------------------------------------


def write_rows(
    options: SinkOptions, iterator: Iterator[pa.RecordBatch], producer: Producer | None = None
) -> dict[TopicPartition, int]:
    """Writes the rows of one task. Returns the number of records written to each partition, after all are
    acknowledged. `producer` is used by this task only, and is closed at the end; without it a reusable producer is
    borrowed from the process."""
    say_if_slow()
    with plainly("topic"):
        connection = connect(options.client)
        packing = Packing(connection, options, SystemClock())
        with sending(connection, options, producer) as task:
            for batch in iterator:
                if batch.num_rows:
                    for key, encoded in packing.add(batch):
                        task.send(key, encoded, is_of_old_format=packing.is_of_old_format(key.topic))
            for key, encoded in packing.rest():
                task.send(key, encoded, is_of_old_format=packing.is_of_old_format(key.topic))
            return task.finish()


@contextmanager
def sending(connection: ClusterThread, options: SinkOptions, producer: Producer | None) -> Iterator[Sending]:
    """Gives a task's `Sending` object to the caller's `with` block, and closes it after the block. If the block raised
    an error, the producers are closed and not reused."""
    task = Sending(connection, options, producer)
    try:
        yield task
    except BaseException:
        task.close(done=False)
        raise
    task.close(done=True)


class Placing:
    """Chooses the target partition of each row."""

    def __init__(self, connection: ClusterThread, options: SinkOptions) -> None:
        self._connection = connection
        self._options = options
        self._kept = cache_of(connection)
        self._topics: dict[str, _Topic] = {}
        self._random = system_random()

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = self._connection.persist(partial(self._look_up, name))
        return topic

    async def _look_up(self, name: str) -> _Topic:
        info = await self._connection.cluster.topic(name, create=True)
        settings = await self._kept.settings_of(name)
        limit = self._options.batch_bytes
        if settings.max_message_bytes is not None:
            limit = min(limit, max(1, settings.max_message_bytes - _BATCH_MARGIN))
        if settings.old_format is not None:
            self._check_old_format(name, settings.old_format)
        return _Topic(
            name, len(info.partitions), limit, self._random.randrange(len(info.partitions)), settings.old_format
        )

    def _check_old_format(self, topic: str, release: str) -> None:
        if self._options.enable_idempotence:
            raise JesenskaError(
                f"The topic {topic} keeps its records in the format of {release}, which idempotent producers cannot "
                f"write: leave out "
                f"kafka.enable.idempotence, or give the topic message.format.version=0.11.0 or newer."
            )
        if self._options.acks == -1 and topic not in _said:
            _said.add(topic)
            logger.warning(
                "The topic %s keeps its records in the format of %s: it is written without idempotence, so a record "
                "may be there twice.",
                topic,
                release,
            )

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        import pyarrow.compute as pc

        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise JesenskaError("A row's topic is null: give every row one, or set the option topic.")
        names = pc.unique(topics)
        for name in names:
            yield name.as_py(), batch if len(names) == 1 else batch.filter(pc.equal(topics, name))

    def _chosen(self, topic: _Topic, rows: pa.RecordBatch) -> pa.Array | None:
        """Returns the target partition of each row. Returns None if the rows have neither partitions nor keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = rows.schema.names
        given = rows.column("partition").cast(pa.int32()) if "partition" in names else None
        if given is not None:
            asked = pc.min_max(given)
            for number in (asked["min"].as_py(), asked["max"].as_py()):
                if number is not None:
                    self._require(topic, number)
        keyed = "key" in names and not self._options.ignore_keys
        chosen = partitions_of_keys(rows.column("key"), topic.partitions, _UNDECIDED) if keyed else None
        if given is not None:
            chosen = given if chosen is None else pc.coalesce(given, chosen)
        if chosen is None:
            return None
        chosen = pc.fill_null(chosen, _UNDECIDED)
        bounds = pc.min_max(chosen)
        if bounds["min"].as_py() == _UNDECIDED:
            chosen = pc.if_else(pc.equal(chosen, _UNDECIDED), pa.scalar(topic.next_unkeyed(), pa.int32()), chosen)
        return chosen

    def _require(self, topic: _Topic, number: int) -> None:
        """Checks a partition number that a row names, and raises JesenskaError if the partition does not exist. The
        partition may have been added just now. So the brokers are asked until they report the partition, or until
        kafka.max.block.ms has passed, as in Kafka's producer."""
        if number >= topic.partitions:
            topic.partitions = self._connection.persist(partial(self._count_with, topic.name, number))
        if not 0 <= number < topic.partitions:
            waited = f" after {self._options.max_block_ms / 1000:g} s (kafka.max.block.ms)" if number >= 0 else ""
            raise JesenskaError(
                f"A row asks for partition {number} of the topic {topic.name}, which has {topic.partitions} "
                f"partitions{waited}: name a partition from 0 to {topic.partitions - 1}, or add partitions with "
                "kafka-topics --alter."
            )

    async def _count_with(self, topic: str, number: int) -> int:
        """Returns the topic's number of partitions. Waits until the partition `number` exists, at most for
        kafka.max.block.ms."""
        cluster, clock = self._connection.cluster, self._connection.clock
        deadline, attempts = clock.monotonic() + self._options.max_block_ms / 1000, 0
        while True:
            for error in (await cluster.refresh([topic])).values():
                raise error
            count = len((await cluster.topic(topic)).partitions)
            if number < count or clock.monotonic() >= deadline:
                return count
            attempts += 1
            await asyncio.sleep(cluster.retry_pause_seconds(attempts))

    def _by_partition(self, topic: _Topic, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yields each target partition together with its rows. The rows keep their order."""
        import pyarrow.compute as pc

        columns = [name for name in _COLUMNS if name in rows.schema.names]
        chosen = self._chosen(topic, rows)
        if chosen is None:
            yield topic.next_unkeyed(), rows.select(columns)
            return
        bounds = pc.min_max(chosen)
        if bounds["min"] == bounds["max"]:
            yield bounds["min"].as_py(), rows.select(columns)
            return
        sorted_rows = rows.select(columns).take(pc.array_sort_indices(chosen))
        counts = {item["values"].as_py(): item["counts"].as_py() for item in pc.value_counts(chosen)}
        begin = 0
        for partition in sorted(counts):
            yield partition, sorted_rows.slice(begin, counts[partition])
            begin += counts[partition]


class Packing(Placing):
    """Encodes rows as record batches. The batches of a partition have the order of its rows. They contain no producer
    id and no sequence numbers yet."""

    def __init__(self, connection: ClusterThread, options: SinkOptions, clock: Clock) -> None:
        super().__init__(connection, options)
        self._clock = clock
        self._codec = Codec[options.compression.upper()]
        self._waiting: dict[TopicPartition, list[pa.Table]] = {}
        self._waiting_bytes: dict[TopicPartition, int] = {}

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, list[bytearray]]]:
        """Adds rows to the rows that are not yet encoded. Yields the encoded batches of partitions that have enough
        rows for a batch. If too many bytes are not yet encoded, all rows are encoded."""
        for name, rows in self._by_topic(batch):
            topic = self._topic(name)
            for partition, part in self._by_partition(topic, rows):
                key = TopicPartition(name, partition)
                self._waiting.setdefault(key, []).append(part)
                self._waiting_bytes[key] = self._waiting_bytes.get(key, 0) + part.nbytes
                if self._waiting_bytes[key] >= topic.batch_bytes:
                    yield key, self._packed(key)
        if sum(self._waiting_bytes.values()) > SINK_WAITING_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[TopicPartition, list[bytearray]]]:
        """Yields the encoded batches of all rows that were added and not yet encoded."""
        for key in list(self._waiting):
            yield key, self._packed(key)

    def _packed(self, key: TopicPartition) -> list[bytearray]:
        import pyarrow as pa

        parts = self._waiting.pop(key)
        self._waiting_bytes.pop(key)
        rows = parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        names = rows.schema.names
        topic = self._topics[key.topic]
        self._check_size(key, rows)
        headers = rows.column("headers") if "headers" in names else None
        if headers is not None:
            _check_headers(headers, topic)
        return columns_to_batches(
            rows.column("key") if "key" in names else None,
            rows.column("value"),
            headers,
            rows.column("timestamp") if "timestamp" in names else None,
            default_timestamp=self._clock.now_ms(),
            codec=self._codec,
            level=self._options.compression_level,
            max_batch_bytes=topic.batch_bytes,
        )

    def _check_size(self, key: TopicPartition, rows: pa.RecordBatch) -> None:
        """Raises JesenskaError if a row's key and value are larger than kafka.max.request.size. Kafka's producer also
        refuses records of this size."""
        import pyarrow.compute as pc

        limit = self._options.max_request_size
        if rows.nbytes <= limit:
            return
        sizes = [
            pc.fill_null(pc.binary_length(rows.column(name)), 0)
            for name in ("key", "value")
            if name in rows.schema.names
        ]
        largest = pc.max(sizes[0] if len(sizes) == 1 else pc.add(*sizes)).as_py()
        if largest > limit:
            raise JesenskaError(
                f"A row for partition {key.partition} of the topic {key.topic} has {largest} bytes of key and "
                f"value, more than kafka.max.request.size allows ({limit}): raise kafka.max.request.size, or "
                "write smaller rows."
            )

    def is_of_old_format(self, topic: str) -> bool:
        """Returns True if the topic's record format is too old for idempotent producers. Rows for the topic must have
        been added before this call."""
        return self._topics[topic].old_format is not None


class Sending:
    """Sends the encoded batches of one task on the thread of the event loop, while Spark's thread encodes more
    rows."""

    def __init__(self, connection: ClusterThread, options: SinkOptions, producer: Producer | None) -> None:
        """Prepares sending. `producer` is used by this task only, and is closed with this object. Without it, a
        reusable producer is borrowed from the process."""
        self._connection = connection
        self._options = options
        self._kept = cache_of(connection)
        self._own = producer
        self._producers: dict[bool | None, Producer] = (
            {} if producer is None else {options.enable_idempotence: producer}
        )
        self._sent: list[tuple[TopicPartition, int, asyncio.Future[tuple[int, int]]]] = []
        self._written: dict[TopicPartition, int] = {}

    def send(self, key: TopicPartition, encoded: Sequence[bytearray], *, is_of_old_format: bool = False) -> None:
        """Sends the batches of one partition. Waits while more than SINK_WAITING_BATCHES_MAX batches are not
        acknowledged."""
        self._sent += self._connection.run(self._hand_over(key, encoded, is_of_old_format))
        self._settle(SINK_WAITING_BATCHES_MAX)

    def finish(self) -> dict[TopicPartition, int]:
        """Waits until all batches are acknowledged. Returns the number of records written to each partition."""
        self._settle(0)
        return self._written

    def close(self, done: bool) -> None:
        """Ends the task. If `done` is True, borrowed producers are returned to the process for reuse. Otherwise all
        producers are closed, and batches that were not sent are dropped."""
        self._connection.run(self._close(done))

    async def _close(self, done: bool) -> None:
        if not done:
            self._kept.forget_settings()
        for idempotent, producer in self._producers.items():
            if done and producer is not self._own:
                self._kept.give_back(producer, self._options, idempotent)
            else:
                await producer.close(flush=False)

    async def _hand_over(
        self, key: TopicPartition, encoded: Sequence[bytearray], is_of_old_format: bool
    ) -> list[tuple[TopicPartition, int, asyncio.Future[tuple[int, int]]]]:
        idempotent = False if is_of_old_format else self._options.enable_idempotence
        producer = self._producers.get(idempotent)
        if producer is None:
            producer = self._producers[idempotent] = await self._kept.borrow(self._options, idempotent)
        sent = []
        for batch in encoded:
            count = read_record_count(batch)
            sent.append((key, count, await producer.send_batch(key.topic, key.partition, batch, count)))
        return sent

    def _settle(self, unanswered: int) -> None:
        """Waits until at most `unanswered` batches are not acknowledged. Raises JesenskaError for the first batch that
        failed."""
        self._connection.run(self._answers(unanswered))

    async def _answers(self, unanswered: int) -> None:
        while self._sent and (len(self._sent) > unanswered or self._sent[0][2].done()):
            key, count, future = self._sent.pop(0)
            try:
                await future
            except KafkaError as error:
                raise JesenskaError(
                    f"Writing {count} records to partition {key.partition} of the topic {key.topic} failed: {error}"
                ) from error
            self._written[key] = self._written.get(key, 0) + count


class _Topic:
    """A topic to which the task writes. Rows without a key go to its partitions in turn, beginning at a random one."""

    __slots__ = ("_turn", "batch_bytes", "name", "old_format", "partitions")

    def __init__(self, name: str, partitions: int, batch_bytes: int, turn: int, old_format: str | None = None) -> None:
        self.name = name
        self.partitions = partitions
        self.batch_bytes = batch_bytes
        self.old_format = old_format
        self._turn = turn

    def next_unkeyed(self) -> int:
        self._turn = (self._turn + 1) % self.partitions
        return self._turn
