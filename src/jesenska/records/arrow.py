"""Converts batches to Arrow columns and back, without a Python object per record. Needs pyarrow (`pip install
"jesenska[arrow]"`), which is imported at first use.

    batches_to_columns   fetched batches -> one RecordBatch:
                         key binary, value binary, offset int64, timestamp int64 (ms), timestamp_type int32 (0 create,
                         1 log append) and, on request, headers list<struct<key: string, value: binary>> (null if
                         a record has none)
    batches_to_pieces    the same in several RecordBatches of limited size
    columns_to_batches   arrays of one length -> batches ready to be sent

Keys of headers are UTF-8 by protocol. Other bytes in a key make a column that Arrow's `validate(full=True)`
refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jesenska.records import codec as records_codec
from jesenska.records.batch import iter_headers, verify_crc
from jesenska.records.decode import records_of
from jesenska.records.encode import attributes_of, seal_batch
from jesenska.records.header import HEADER_SIZE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer, Codec

if TYPE_CHECKING:
    import pyarrow as pa

_INT64_MAX = (1 << 63) - 1
_SEQUENCES = 1 << 31
#: The offsets of an empty array: Arrow may give an empty array no buffer of offsets.
_EMPTY_OFFSETS = bytes(8)
#: Bytes that a row and a header take in Arrow's buffers, in addition to keys and values: numbers, offsets and validity
#: bits.
_ROW_BYTES, _HEADER_BYTES = 33, 9


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            'Arrow columns need pyarrow, which is not installed: pip install "jesenska[arrow]" (in a clone: pip '
            'install ".[arrow]")'
        ) from error
    return pyarrow


def batches_to_columns(
    buffers: Iterable[Buffer],
    start_offset: int = 0,
    end_offset: int = _INT64_MAX,
    *,
    with_headers: bool = False,
    verify: bool = True,
) -> pa.RecordBatch:
    """Returns the records with start_offset <= offset < end_offset of all complete batches in the buffers, in order.
    Control batches and an incomplete batch at a buffer's end are skipped.

    Raises CorruptMessageError for a wrong CRC (with `verify`), InvalidRecordError for records that cannot be read,
    OverflowError if all keys or all values together are larger than 2 GiB."""
    (columns,) = _pieces(buffers, start_offset, end_offset, with_headers, verify, None)
    return columns


def batches_to_pieces(
    buffers: Iterable[Buffer],
    start_offset: int = 0,
    end_offset: int = _INT64_MAX,
    *,
    piece_bytes: int,
    with_headers: bool = False,
    verify: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yields the records of `batches_to_columns` in pieces: a new RecordBatch begins as soon as the current
    RecordBatch has `piece_bytes` bytes. A RecordBatch is larger than that by at most one batch of records, and is
    never empty. A batch is decompressed only when its records are needed."""
    for columns in _pieces(buffers, start_offset, end_offset, with_headers, verify, piece_bytes):
        if columns.num_rows:
            yield columns


def _pieces(
    buffers: Iterable[Buffer],
    start_offset: int,
    end_offset: int,
    with_headers: bool,
    verify: bool,
    piece_bytes: int | None,
) -> Iterator[pa.RecordBatch]:
    """Yields the RecordBatches of `batches_to_pieces`; the last RecordBatch may be empty. If `piece_bytes` is None,
    all records are in one RecordBatch."""
    reader = records_codec.ColumnReader(with_headers)
    for buffer in buffers:
        for position, header in iter_headers(buffer):
            if header.is_control or header.last_offset < start_offset or header.base_offset >= end_offset:
                continue
            if verify:
                verify_crc(buffer, position, header)
            reader.add(
                records_of(buffer, position, header),
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.max_timestamp,
                header.has_log_append_time,
                start_offset,
                end_offset,
            )
            if piece_bytes is not None and _size_bytes(reader) >= piece_bytes:
                yield _record_batch(reader)
                reader = records_codec.ColumnReader(with_headers)
    yield _record_batch(reader)


def _size_bytes(reader: records_codec.ColumnReader) -> int:
    fields = len(reader.key.data) + len(reader.value.data) + reader.rows * _ROW_BYTES
    if reader.with_headers:
        fields += len(reader.header_key.data) + len(reader.header_value.data) + reader.header_rows * _HEADER_BYTES
    return fields


def _record_batch(reader: records_codec.ColumnReader) -> pa.RecordBatch:
    arrow = _pyarrow()
    rows = reader.rows

    def binary(column: Any, length: int, kind: Any) -> Any:
        validity = arrow.py_buffer(column.validity) if column.nulls else None
        return arrow.Array.from_buffers(
            kind,
            length,
            [validity, arrow.py_buffer(column.offsets), arrow.py_buffer(column.data)],
            null_count=column.nulls,
        )

    names = ["key", "value", "offset", "timestamp", "timestamp_type"]
    columns = [
        binary(reader.key, rows, arrow.binary()),
        binary(reader.value, rows, arrow.binary()),
        arrow.Array.from_buffers(arrow.int64(), rows, [None, arrow.py_buffer(reader.offsets)], null_count=0),
        arrow.Array.from_buffers(arrow.int64(), rows, [None, arrow.py_buffer(reader.timestamps)], null_count=0),
        arrow.Array.from_buffers(arrow.int32(), rows, [None, arrow.py_buffer(reader.timestamp_types)], null_count=0),
    ]
    if reader.with_headers:
        fields = [arrow.field("key", arrow.string()), arrow.field("value", arrow.binary())]
        children = [
            binary(reader.header_key, reader.header_rows, arrow.string()),
            binary(reader.header_value, reader.header_rows, arrow.binary()),
        ]
        marks = arrow.py_buffer(reader.header_validity) if reader.header_nulls else None
        structs = arrow.Array.from_buffers(
            arrow.struct(fields), reader.header_rows, [None], null_count=0, children=children
        )
        names.append("headers")
        columns.append(
            arrow.Array.from_buffers(
                arrow.list_(arrow.struct(fields)),
                rows,
                [marks, arrow.py_buffer(reader.header_offsets)],
                null_count=reader.header_nulls,
                children=[structs],
            )
        )
    return arrow.RecordBatch.from_arrays(columns, names)


def columns_to_batches(
    key: pa.Array | None,
    value: pa.Array | None,
    headers: pa.Array | None = None,
    timestamp: pa.Array | None = None,
    *,
    default_timestamp: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    max_batch_bytes: int = 1_000_000,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> list[bytearray]:
    """Returns batches of these rows in order, each of at most `max_batch_bytes` before compression. A larger record
    gets its own batch. None for a column means null in every row. Rows without a timestamp get `default_timestamp`
    (ms).

    key, value: binary or string, large or not; anything else that Arrow can cast to binary. headers: list<struct<key:
    string, value: binary>>. timestamp: int64 in ms or a timestamp. Slices and nulls are supported. With a producer id
    the sequence numbers continue from batch to batch. Raises ValueError for columns of different lengths, a header
    without a key, or damaged arrays."""
    lengths = {len(column) for column in (key, value, headers, timestamp) if column is not None}
    if len(lengths) != 1:
        raise ValueError("the columns are not of one length" if lengths else "at least one column is needed")
    rows = lengths.pop()
    writer = records_codec.ColumnWriter(rows, _binary(key), _binary(value), *_headers(headers), _timestamps(timestamp))
    batches = []
    row = 0
    while row < rows:
        batch = bytearray(HEADER_SIZE)
        count, base_timestamp, max_timestamp = writer.encode(batch, row, default_timestamp, max_batch_bytes)
        batches.append(
            seal_batch(
                batch,
                attributes_of(codec, is_transactional, False, False),
                count,
                base_timestamp,
                max_timestamp,
                level=level,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=NO_SEQUENCE if base_sequence == NO_SEQUENCE else (base_sequence + row) % _SEQUENCES,
            )
        )
        row += count
    return batches


def partitions_of_keys(key: pa.Array, partition_count: int, unkeyed: int) -> pa.Array:
    """Returns an int32 array of the partitions that Kafka's Java client chooses for the keys, with `unkeyed` for a
    null key. `key` has a type that `columns_to_batches` accepts."""
    arrow = _pyarrow()
    source = _binary(key)
    if source is None:
        return arrow.repeat(arrow.scalar(unkeyed, arrow.int32()), len(key))
    found = records_codec.partitions_of_keys(source, partition_count, unkeyed)
    return arrow.Array.from_buffers(arrow.int32(), len(key), [None, arrow.py_buffer(found)], null_count=0)


def _binary(column: pa.Array | None) -> Any:
    if column is None:
        return None
    pa = _pyarrow()
    column = _one_array(column)
    kinds = pa.types
    if pa.types.is_null(column.type):
        return None
    if not (
        kinds.is_binary(column.type)
        or kinds.is_string(column.type)
        or kinds.is_large_binary(column.type)
        or kinds.is_large_string(column.type)
    ):
        column = column.cast(pa.large_binary())
    wide = kinds.is_large_binary(column.type) or kinds.is_large_string(column.type)
    validity, offsets, data = column.buffers()
    return records_codec.Source(
        validity, _EMPTY_OFFSETS if offsets is None else offsets, data, column.offset, len(column), wide
    )


def _timestamps(column: pa.Array | None) -> Any:
    if column is None:
        return None
    pa = _pyarrow()
    column = _one_array(column)
    if pa.types.is_null(column.type):
        return None
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False)
    elif not pa.types.is_int64(column.type):
        column = column.cast(pa.int64())
    validity, data = column.buffers()
    return records_codec.Source(validity, None, data, column.offset, len(column), False)


def _headers(column: pa.Array | None) -> tuple[Any, Any, Any, Any]:
    if column is None:
        return None, None, None, None
    pa = _pyarrow()
    column = _one_array(column)
    if pa.types.is_null(column.type):
        return None, None, None, None
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)) or not pa.types.is_struct(
        column.type.value_type
    ):
        raise ValueError(f"headers are list<struct<key: string, value: binary>>, not {column.type}")
    structs = column.values
    if structs.type.num_fields != 2:
        raise ValueError(f"headers are list<struct<key: string, value: binary>>, not {column.type}")
    wide = pa.types.is_large_list(column.type)
    validity, offsets = column.buffers()[:2]
    lists = records_codec.Source(
        validity, _EMPTY_OFFSETS if offsets is None else offsets, None, column.offset, len(column), wide
    )
    marks = records_codec.Source(structs.buffers()[0], None, None, structs.offset, len(structs), False)
    return lists, marks, _binary(structs.field(0)), _binary(structs.field(1))


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, _pyarrow().ChunkedArray) else column
