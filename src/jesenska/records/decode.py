"""Decodes batches into records, and reads control records. Layouts are in header.py and record.py.

A control record marks the end of a transaction. Its key and value have these fields:

    key    version int16 = 0 | type int16: 0 abort, 1 commit
    value  version int16 = 0 | coordinator_epoch int32

Consumers never receive a control record, but each takes an offset. Records of aborted transactions are not filtered
here: the client does that by the list of aborted transactions in the Fetch response."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from jesenska.base.errors import InvalidRecordError
from jesenska.base.limits import DECOMPRESSED_BATCH_MAX_BYTES
from jesenska.records import codec as records_codec
from jesenska.records.batch import iter_headers, read_header, verify_crc
from jesenska.records.compression import decompress
from jesenska.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, Buffer, Codec
from jesenska.records.record import Record

_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


class ControlMarker(NamedTuple):
    """The content of a control record: the type of the marker, and the epoch of the transaction coordinator that wrote
    it."""

    type: ControlType
    coordinator_epoch: int


def records_of(
    buffer: Buffer, position: int, header: BatchHeader, limit: int = DECOMPRESSED_BATCH_MAX_BYTES
) -> bytearray | memoryview:
    """Returns the bytes of the batch's records, decompressed if they are compressed. Raises InvalidRecordError as
    `decompress` does."""
    body = memoryview(buffer)[position + HEADER_SIZE : position + header.size_bytes]
    number = header.attributes & CODEC_MASK
    if not number:
        return body
    if number > Codec.ZSTD:
        raise InvalidRecordError(f"no codec has the number {number}")
    if not header.record_count:
        return memoryview(b"")
    return decompress(Codec(number), body, limit)


def decode_batch(
    buffer: Buffer, position: int = 0, verify: bool = True, header: BatchHeader | None = None
) -> list[Record]:
    """Returns all records of the batch at `position`, including control records. Raises CorruptMessageError for a
    wrong CRC (with `verify`) or an impossible header, InvalidRecordError for records that cannot be read."""
    if header is None:
        header = read_header(buffer, position)
    if verify:
        verify_crc(buffer, position, header)
    return records_codec.decode_records(
        records_of(buffer, position, header),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp,
        header.timestamp_type,
    )


def decode_batches(buffer: Buffer, verify: bool = True, start_offset: int = 0) -> Iterator[Record]:
    """Yields the records from `start_offset` on that a consumer receives. Control records and an incomplete batch at
    the end are left out. Raises the errors of `decode_batch`."""
    for position, header in iter_headers(buffer):
        if header.is_control or header.last_offset < start_offset:
            continue
        records = decode_batch(buffer, position, verify, header)
        if header.base_offset < start_offset:
            records = [record for record in records if record.offset >= start_offset]
        yield from records


def control_marker(record: Record) -> ControlMarker:
    """Returns the transaction marker in a record of a control batch. Additional fields of later versions are ignored.
    Raises InvalidRecordError if the key is too short."""
    key = record.key
    if key is None or len(key) < _MARKER_KEY.size:
        raise InvalidRecordError(f"the control record at offset {record.offset} has no key that says what it marks")
    kind = _MARKER_KEY.unpack_from(key)[1]
    value = record.value
    epoch = _MARKER_VALUE.unpack_from(value)[1] if value is not None and len(value) >= _MARKER_VALUE.size else -1
    return ControlMarker(ControlType(kind) if kind in (0, 1) else ControlType.UNKNOWN, epoch)


def read_marker(batch: Buffer) -> ControlMarker | None:
    """Returns the transaction marker in the first record of a control batch. Returns None if compaction has removed
    the record because nothing of the transaction is left. Raises InvalidRecordError for a damaged batch; its CRC is
    not checked."""
    records = decode_batch(batch, verify=False)
    return control_marker(records[0]) if records else None


def marker_record(marker: ControlMarker, timestamp_ms: int) -> tuple[int, bytes, bytes, tuple[()]]:
    """Returns the control record for a transaction marker, to be encoded with `is_control`."""
    return timestamp_ms, _MARKER_KEY.pack(0, marker.type), _MARKER_VALUE.pack(0, marker.coordinator_epoch), ()
