"""Finds the first record of a batch that is not older than a given time. The records are read in pieces by compiled
code, without a Python object per record.

A client's batch may be small and decompress to a hundred megabytes. Only one piece of that is in memory at once."""

from __future__ import annotations

from jesenska.base.errors import InvalidRecordError
from jesenska.base.limits import DECOMPRESSED_BATCH_MAX_BYTES
from jesenska.records import codec
from jesenska.records.compression import decompress_pieces
from jesenska.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, Buffer, Codec

_INT64_MIN = -(1 << 63)


def first_at_or_after(
    batch: Buffer, header: BatchHeader, timestamp_ms: int, from_offset: int = 0
) -> tuple[int, int] | None:
    """Returns the offset and timestamp of the first record, from `from_offset` on, whose timestamp is at least
    `timestamp_ms`. Returns None if there is no such record; a record without a timestamp (-1) never matches. Raises
    InvalidRecordError for records that cannot be read."""
    if header.has_log_append_time:
        return (
            (max(header.base_offset, from_offset), header.max_timestamp)
            if header.max_timestamp >= timestamp_ms
            else None
        )
    number = header.attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise InvalidRecordError(f"no codec has the number {number}")
    from_delta = max(0, from_offset - header.base_offset)
    walker = codec.Walker(
        header.record_count, header.base_timestamp, False, True, False, _INT64_MIN, timestamp_ms - 1, from_delta
    )
    with memoryview(batch) as view:
        for piece in decompress_pieces(
            Codec(number), view[HEADER_SIZE : header.size_bytes], DECOMPRESSED_BATCH_MAX_BYTES
        ):
            walker.feed(piece)
            found = walker.first_rejected
            if found is not None:
                delta, timestamp = found
                return header.base_offset + delta, timestamp
    return None
