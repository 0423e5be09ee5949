"""Converts message sets (formats v0 and v1) to Arrow columns, for reading from brokers that still store these formats.
The columns have the names and types of the columns in arrow.py. Format v0 has no times: timestamp and timestamp type
are -1. Each record becomes a Python object, which is slow, but these formats are rare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jesenska.records.header import MAGIC_OFFSET, Buffer
from jesenska.records.message_set import decode_message_set, whole_messages
from jesenska.records.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

_NO_TIMESTAMP_TYPE = -1
_RECORD_BYTES = 33


def message_set_to_pieces(
    messages: Buffer, start_offset: int, end_offset: int, *, piece_bytes: int, with_headers: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yields the records with start_offset <= offset < end_offset of the complete messages in a set, as RecordBatches
    of about `piece_bytes` each. No RecordBatch is empty. A compressed message is decompressed only when its records
    are needed.

    Raises CorruptMessageError for a wrong CRC or length, InvalidRecordError for messages that cannot be read."""
    rows: list[tuple[Record, int]] = []
    size_bytes = 0
    view = memoryview(messages)
    for position, end, _ in whole_messages(view):
        message = view[position:end]
        has_time = message[MAGIC_OFFSET] > 0
        for record in decode_message_set(message):
            if start_offset <= record.offset < end_offset:
                rows.append((record, int(record.timestamp_type) if has_time else _NO_TIMESTAMP_TYPE))
                size_bytes += _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
        if size_bytes >= piece_bytes:
            yield _columns(rows, with_headers)
            rows, size_bytes = [], 0
    if rows:
        yield _columns(rows, with_headers)


def _columns(rows: list[tuple[Record, int]], with_headers: bool) -> pa.RecordBatch:
    import pyarrow as pa

    columns = {
        "key": pa.array([record.key for record, _ in rows], pa.binary()),
        "value": pa.array([record.value for record, _ in rows], pa.binary()),
        "offset": pa.array([record.offset for record, _ in rows], pa.int64()),
        "timestamp": pa.array([record.timestamp_ms for record, _ in rows], pa.int64()),
        "timestamp_type": pa.array([kind for _, kind in rows], pa.int32()),
    }
    if with_headers:
        columns["headers"] = pa.nulls(
            len(rows), pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
        )
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
