"""Converts fetched record batches to rows with the columns of Spark's Kafka source, without a Python object per
record.

    key binary | value binary | topic string | partition int | offset bigint | timestamp timestamp | timestampType int
    and with includeHeaders   headers array<struct<key string, value binary>>

Spark accepts the first batch only if its Arrow schema exactly equals Spark's own: every column may be null, times are
microseconds in UTC, and the element of a list is called `element`. So the schema is taken from Spark. A timestamp that
is too large for microseconds becomes the largest possible timestamp: one bad record must not stop a stream. A record
without headers has an empty array, not null: Spark passes null arrays to Python in time that grows with the square of
their number.

Decompressed data is passed to Spark in pieces of at most SOURCE_ROWS_BYTES: a fetch of a few MB may decompress to
gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import SOURCE_ROWS_BYTES
from jesenska.pipeline.connector.fetching import Chunk
from jesenska.pipeline.connector.options import COLUMNS
from jesenska.records.arrow import batches_to_pieces
from jesenska.records.arrow_of_messages import message_set_to_pieces
from jesenska.records.message_set import is_message_set

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS = "headers"
_FIELDS = {
    field.name: field
    for field in (
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            HEADERS, ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
    )
}
_ENOUGH_BYTES = 1024 * 1024
_LARGEST_MS = (2**63 - 1) // 1000


def row_schema(columns: Sequence[str]) -> StructType:
    """Returns Spark's schema of rows with these columns."""
    return StructType([_FIELDS[name] for name in columns])


class RowMaker:
    """Makes Arrow batches with the schema that Spark expects. A batch has at most SOURCE_ROWS_BYTES bytes, except a
    batch with a single, larger row."""

    def __init__(self, columns: Sequence[str] = COLUMNS, check_crcs: bool = True) -> None:
        schema = row_schema(columns)
        self.names = tuple(schema.names)
        self.check_crcs = check_crcs
        self.arrow_schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._topic: tuple[str, Any] = ("", None)
        self._partition: tuple[int, Any] = (-1, None)

    def rows(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yields the records of the chunk as Arrow batches. Yields nothing for a chunk of control records."""
        for buffer in chunk.buffers:
            for columns in self._columns(chunk, buffer):
                yield from _slices(self._batch(chunk.topic_partition, columns))

    def _columns(self, chunk: Chunk, buffer: memoryview) -> Iterator[pa.RecordBatch]:
        with_headers = HEADERS in self.names
        if is_message_set(buffer):
            return message_set_to_pieces(
                buffer, chunk.start, chunk.end, piece_bytes=SOURCE_ROWS_BYTES, with_headers=with_headers
            )
        return batches_to_pieces(
            (buffer,),
            chunk.start,
            chunk.end,
            piece_bytes=SOURCE_ROWS_BYTES,
            with_headers=with_headers,
            verify=self.check_crcs,
        )

    def _batch(self, key: TopicPartition, columns: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        made: dict[str, Callable[[], Any]] = {
            "topic": lambda: self._repeated_topic(key.topic, columns.num_rows),
            "partition": lambda: self._repeated_partition(key.partition, columns.num_rows),
            "timestamp": lambda: _times(columns.column("timestamp")),
            "timestampType": lambda: columns.column("timestamp_type"),
            HEADERS: lambda: _without_nulls(columns.column(HEADERS)).cast(self.arrow_schema.field(HEADERS).type),
        }
        arrays = [made[name]() if name in made else columns.column(name) for name in self.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _repeated_topic(self, topic: str, count: int) -> Any:
        import pyarrow as pa

        known, array = self._topic
        if known != topic or len(array) < count:
            array = pa.repeat(pa.scalar(topic, pa.string()), count)
            self._topic = (topic, array)
        return array.slice(0, count)

    def _repeated_partition(self, partition: int, count: int) -> Any:
        import pyarrow as pa

        known, array = self._partition
        if known != partition or len(array) < count:
            array = pa.repeat(pa.scalar(partition, pa.int32()), count)
            self._partition = (partition, array)
        return array.slice(0, count)


def _times(milliseconds: Any) -> Any:
    """Returns int64 milliseconds as timestamps in microseconds. Times that are too large or too small become the
    largest or smallest possible time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = pa.timestamp("us", tz="UTC")
    try:
        microseconds = pc.multiply_checked(milliseconds, 1000)
    except pa.ArrowInvalid:
        bounded = pc.min_element_wise(pc.max_element_wise(milliseconds, -_LARGEST_MS), _LARGEST_MS)
        microseconds = pc.multiply_checked(bounded, 1000)
    return microseconds.view(unit)


def _without_nulls(lists: Any) -> Any:
    """Returns the array of lists with each null list replaced by an empty list."""
    import pyarrow as pa

    return pa.ListArray.from_arrays(lists.offsets, lists.values) if lists.null_count else lists


def together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of `batches` in larger batches: small batches are combined, since each batch costs Spark a
    message."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        gathered.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= _ENOUGH_BYTES:
            yield from gathered if len(gathered) == 1 else pa.Table.from_batches(gathered).combine_chunks().to_batches()
            gathered, size_bytes = [], 0
    if gathered:
        yield from gathered if len(gathered) == 1 else pa.Table.from_batches(gathered).combine_chunks().to_batches()


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields the rows in pieces of at most SOURCE_ROWS_BYTES; a single row may be larger. Nothing is copied."""
    if batch.num_rows < 2 or batch.nbytes <= SOURCE_ROWS_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _slices(batch.slice(0, half))
    yield from _slices(batch.slice(half))
