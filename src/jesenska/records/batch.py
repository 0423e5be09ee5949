"""Batches in a buffer: iterates over headers, writes offsets and times in place, and verifies CRCs. The layout of the
header is in header.py.

Recovery after a crash uses these functions. `iter_headers` stops before an incomplete batch at the end and raises an
error for impossible bytes. `verify_crc` checks that the bytes of a batch have not changed since they were written. The
records in a batch are read in check.py and decode.py."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from jesenska.base.errors import CorruptMessageError
from jesenska.records import codec
from jesenska.records.header import (
    ATTRIBUTES_OFFSET,
    CRC_OFFSET,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    LEADER_EPOCH_OFFSET,
    LENGTH_OVERHEAD,
    LOW_ATTRIBUTES_OFFSET,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    PRODUCER_ID_OFFSET,
    SMALLEST_LENGTH,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
    read_header,
    refuse_other_magic,
)

__all__ = [
    "HEADER_SIZE",
    "LENGTH_OVERHEAD",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Buffer",
    "Codec",
    "TimestampType",
    "iter_headers",
    "read_header",
    "stamp_append_time",
    "stamp_offsets",
    "stamp_producer",
    "verify_crc",
]

_FRAME = Struct(">qiib")
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")
_PRODUCER = Struct(">qhi")
_CRC = Struct(">I")


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of each complete batch from `position` on. It stops before an incomplete batch at
    the end, as a Fetch response may have.

    Raises CorruptMessageError if a length or magic is impossible. CRC and records are not checked."""
    end = len(buffer)
    while end - position >= FRAME_SIZE:
        _, batch_length, _, magic = _FRAME.unpack_from(buffer, position)
        if batch_length < SMALLEST_LENGTH:
            raise CorruptMessageError(f"batch length {batch_length} at position {position} is less than any batch has")
        if magic != MAGIC_V2:
            refuse_other_magic(magic)
        if batch_length + LENGTH_OVERHEAD < HEADER_SIZE:
            raise CorruptMessageError(f"batch length {batch_length} at position {position} is less than a header has")
        if batch_length + LENGTH_OVERHEAD > end - position:
            return
        yield position, BatchHeader._make(HEADER.unpack_from(buffer, position))
        position += batch_length + LENGTH_OVERHEAD


def stamp_offsets(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Writes base offset and leader epoch into the header at `position`. The CRC does not cover them, so the records
    are not read."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + LEADER_EPOCH_OFFSET, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, position: int, now_ms: int) -> BatchHeader:
    """Sets the timestamp of every record of the batch at `position` to `now_ms` (log append time) and writes the new
    CRC. Returns the new header. The CRC covers the records, so this reads the whole batch once."""
    return codec.set_max_timestamp(buffer, position, read_header(buffer, position), now_ms, True)


def verify_crc(buffer: Buffer, position: int = 0, header: BatchHeader | None = None) -> None:
    """Checks that the buffer has the complete batch at `position`, and that the CRC of the batch's bytes equals the
    CRC in the batch's header. Raises CorruptMessageError otherwise."""
    if header is None:
        header = read_header(buffer, position)
    end = position + header.size_bytes
    if header.size_bytes < HEADER_SIZE or end > len(buffer):
        raise CorruptMessageError(
            f"the batch at position {position} claims {header.size_bytes} bytes, {len(buffer) - position} are there"
        )
    crc = codec.crc32c(buffer, position + ATTRIBUTES_OFFSET, end)
    if crc != header.crc:
        raise CorruptMessageError(
            f"the batch with base offset {header.base_offset} has CRC {crc:#010x}, its header says {header.crc:#010x}"
        )


def stamp_producer(
    buffer: bytearray | memoryview,
    position: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool = False,
) -> None:
    """Writes a producer's id, epoch and first sequence number into the batch at `position`, and the new CRC. It is for
    batches that are encoded before their sequence number is known."""
    end = position + read_header(buffer, position).size_bytes
    _PRODUCER.pack_into(buffer, position + PRODUCER_ID_OFFSET, producer_id, producer_epoch, base_sequence)
    if is_transactional:
        buffer[position + LOW_ATTRIBUTES_OFFSET] |= TRANSACTIONAL_BIT
    _CRC.pack_into(buffer, position + CRC_OFFSET, codec.crc32c(buffer, position + ATTRIBUTES_OFFSET, end))
