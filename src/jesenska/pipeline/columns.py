"""Fetched batches as rows of Spark's Kafka source, column by column: no Python object per record.

    key binary | value binary | topic string | partition int | offset bigint | timestamp timestamp | timestampType int
    and with includeHeaders   headers array<struct<key string, value binary>>

Spark takes the first batch only if its Arrow schema equals its own to the letter: every column may be null, times are microseconds in UTC, the
element of a list is called `element`. So the schema is asked of Spark. A record's time that microseconds cannot hold becomes the nearest that
they can: one record's nonsense must not stop a stream for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from jesenska.pipeline.fetching import Chunk
from jesenska.records.arrow import batches_to_columns
from jesenska.records.batch import iter_headers

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField("headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])))
_LARGEST_MS = (2**63 - 1) // 1000


def row_schema(include_headers: bool) -> StructType:
    """Spark's schema of the rows."""
    return StructType([*_COLUMNS, _HEADERS] if include_headers else list(_COLUMNS))


class RowMaker:
    """Makes Arrow batches with the schema that Spark expects."""

    def __init__(self, include_headers: bool, check_crcs: bool = True) -> None:
        self.include_headers = include_headers
        self.check_crcs = check_crcs
        self.arrow_schema: pa.Schema = to_arrow_schema(row_schema(include_headers), timezone="UTC")
        self._topic: tuple[str, Any] = ("", None)
        self._partition: tuple[int, Any] = (-1, None)

    def rows(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The records of the chunk, mostly in one batch; none for a chunk of control records."""
        try:
            found = [self._rows(chunk, chunk.buffers)]
        except OverflowError:
            # More than 2 GiB of keys or values once decompressed: batch by batch, each of which has a limit.
            pieces = (buffer[position : position + header.size_bytes] for buffer in chunk.buffers for position, header in iter_headers(buffer))
            found = (self._rows(chunk, (piece,)) for piece in pieces)  # type: ignore[assignment]
        for batch in found:
            if batch.num_rows:
                yield batch

    def _rows(self, chunk: Chunk, buffers: tuple[memoryview, ...]) -> pa.RecordBatch:
        import pyarrow as pa

        columns = batches_to_columns(buffers, chunk.start, chunk.end, with_headers=self.include_headers, verify=self.check_crcs)
        count = columns.num_rows
        key = chunk.topic_partition
        arrays = [
            columns.column("key"),
            columns.column("value"),
            self._repeated_topic(key.topic, count),
            self._repeated_partition(key.partition, count),
            columns.column("offset"),
            _times(columns.column("timestamp")),
            columns.column("timestamp_type"),
        ]
        if self.include_headers:
            arrays.append(columns.column("headers").cast(self.arrow_schema.field("headers").type))
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
    """int64 milliseconds as timestamps in microseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    unit = pa.timestamp("us", tz="UTC")
    try:
        microseconds = pc.multiply_checked(milliseconds, 1000)
    except pa.ArrowInvalid:
        bounded = pc.min_element_wise(pc.max_element_wise(milliseconds, -_LARGEST_MS), _LARGEST_MS)
        microseconds = pc.multiply_checked(bounded, 1000)
    return microseconds.view(unit)
