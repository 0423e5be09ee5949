"""Selects the records that remain after a compaction, in plain Python: the twin of the compiled `_compaction.pxi`.

A compaction reads the log twice. First it stores the newest offset of each key (`add_batches`, `add_records`), then it
writes the remaining records to other files (`keep_batches`, `keep_records`). A record remains if

    its offset is after the last batch of the first pass, or
    it has a key, no newer record of that key was found, and it is not an expired tombstone (a null value)

The time when a tombstone expires is stored in its batch: the first compaction that reads the batch writes this time
into `base_timestamp` of the header, and marks that in the attributes (the delete horizon, KIP-534).

A batch keeps its first and last offset even if their records are removed. A batch without records is removed, except
if it is the last batch of a producer: then its header remains, so that the log keeps the producer's sequence number.

Compressed, transactional and control batches are left to the caller: `add_batches` and `keep_batches` stop before
them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from jesenska.records.faults import Fault, raise_fault
from jesenska.records.header import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from jesenska.records.pure._precords import RecordReader, crc32c, put_number, wrap64

_SPECIAL_BITS = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT
_RECORD_GROWS_BYTES = 12
_SECRET_BYTES = 16


class _Brief(NamedTuple):
    """The parts of a record that a compaction needs: the bytes of the whole record, the bytes from the offset delta
    on, and the fields that decide if the record remains."""

    whole: bytes
    rest: bytes
    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


class _BriefReader(RecordReader):
    """Reads the parts of a record that a compaction needs."""

    __slots__ = ()

    def brief(self) -> _Brief:
        start = self.position
        self.begin_record()
        attributes = self.data[self.position - 1]
        timestamp_delta = self.number(64)
        rest = self.position
        offset_delta = self.number()
        key = self.field()
        value = self.field()
        self.position = self.end
        self.index += 1
        return _Brief(
            self.data[start : self.end],
            self.data[rest : self.end],
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            value is None,
        )


class KeyOffsets:
    """A table of the newest offset of each key, for at most `most` keys. The compiled class has `slots` entries of 24
    bytes, more than `most`, and stores hashes of 128 bits instead of keys. The `secret`, 16 random bytes, prevents
    that clients construct two keys with the same hash."""

    __slots__ = ("_offsets", "is_full", "latest_offset", "most")

    def __init__(self, slots: int, most: int, secret: bytes) -> None:
        if not 0 < most < slots:
            raise ValueError("a table needs more slots than keys")
        if len(secret) != _SECRET_BYTES:
            raise ValueError("the secret takes 16 bytes")
        self.most = most
        #: The last offset of the last batch that was added completely; -1 before the first.
        self.latest_offset = -1
        #: True if a key was not added because the table has `most` keys.
        self.is_full = False
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def newest(self, key: Buffer) -> int:
        """Returns the newest offset of a key; -1 if the key is not in the table."""
        return self._offsets.get(bytes(key), -1)

    def add_records(self, body: Buffer, count: int, base_offset: int, from_offset: int) -> int:
        """Adds the keys of a batch's decompressed records with offsets from `from_offset` on. Returns the number of
        records that it read, which is less than `count` if the table is full. Raises InvalidRecordError if the body
        does not match the header."""
        reader, offsets = _BriefReader(bytes(body)), self._offsets
        for index in range(count):
            record = reader.brief()
            offset = base_offset + record.offset_delta
            if record.key is None or offset < from_offset:
                continue
            known = offsets.get(record.key)
            if known is None and len(offsets) == self.most:
                self.is_full = True
                return index
            if known is None or offset > known:
                offsets[record.key] = offset
        reader.finish()
        return max(count, 0)

    def note_batch(self, last_offset: int) -> None:
        """Marks the batch with this last offset as completely added, or as a batch without keys."""
        self.latest_offset = last_offset

    def add_batches(self, buffer: Buffer, start: int, end: int, from_offset: int) -> int:
        """Adds the keys of the batches in buffer[start:end] with offsets from `from_offset` on. Returns the number of
        bytes that it read. It stops before an incomplete batch, before a batch that is left to the caller, and when
        the table is full. Raises CorruptMessageError if a CRC is wrong, InvalidRecordError as in `add_records`."""
        if start < 0 or end > len(buffer):
            raise ValueError("the batches are not in the buffer")
        at = start
        view = memoryview(buffer)
        while (header := _plain_batch(view, at, end)) is not None:
            size, last_offset = header.size_bytes, header.last_offset
            if last_offset >= from_offset:
                if crc32c(view, at + ATTRIBUTES_OFFSET, at + size) != header.crc:
                    raise_fault(Fault.CRC)
                self.add_records(
                    view[at + HEADER_SIZE : at + size], header.record_count, header.base_offset, from_offset
                )
                if self.is_full:
                    break
            self.latest_offset = last_offset
            at += size
        return at - start

    def keep_records(
        self, body: Buffer, count: int, base_offset: int, base_timestamp: int, drops_tombstones: bool, new_base: int
    ) -> tuple[bytearray, int, int, int]:
        """Returns the bytes of the decompressed records that remain, with timestamps relative to `new_base`. The
        further values are the number of these records, the number of tombstones among them, and their largest
        timestamp (-1 if none is larger). `drops_tombstones` means that the batch's tombstones have expired."""
        if count < 0 or count > len(body):
            raise_fault(Fault.ENDS_TOO_SOON)
        reader = _BriefReader(bytes(body))
        target = bytearray()
        kept = tombstones = 0
        max_timestamp = -1
        for _ in range(count):
            record = reader.brief()
            offset = base_offset + record.offset_delta
            if offset <= self.latest_offset:
                if record.key is None or (record.is_tombstone and drops_tombstones):
                    continue
                if offset < self._offsets.get(record.key, -1):
                    continue
            timestamp = wrap64(base_timestamp + record.timestamp_delta)
            kept += 1
            tombstones += record.is_tombstone
            max_timestamp = max(max_timestamp, timestamp)
            if new_base == base_timestamp:
                target += record.whole
            else:
                changed = bytearray([record.attributes])
                put_number(changed, wrap64(timestamp - new_base))
                changed += record.rest
                put_number(target, len(changed))
                target += changed
        reader.finish()
        return target, kept, tombstones, max_timestamp

    def keep_batches(
        self,
        buffer: Buffer,
        start: int,
        end: int,
        target: bytearray,
        filled: int,
        now_ms: int,
        delete_retention_ms: int,
        ends: Sequence[int],
    ) -> tuple[int, int]:
        """Writes the remaining parts of the batches in buffer[start:end] to `target`, after its first `filled` bytes.
        Returns the number of bytes that it read, and the number of bytes of `target` then in use. It stops before an
        incomplete batch, before a batch that is left to the caller, and before a batch for which `target` may have no
        room. `ends` (an ascending array of int64) has the last offsets of the batches whose headers must remain.
        Raises the errors of `add_batches`."""
        if start < 0 or end > len(buffer) or not 0 <= filled <= len(target):
            raise ValueError("the batches are not in the buffer")
        at = start
        view = memoryview(buffer)
        while (header := _plain_batch(view, at, end)) is not None:
            size, count = header.size_bytes, header.record_count
            if not 0 <= count <= size:
                raise_fault(Fault.RECORD_COUNT)
            if len(target) - filled < size + count * _RECORD_GROWS_BYTES:
                break
            if crc32c(view, at + ATTRIBUTES_OFFSET, at + size) != header.crc:
                raise_fault(Fault.CRC)
            body = view[at + HEADER_SIZE : at + size]
            base, new_base, attributes = header.base_timestamp, header.base_timestamp, header.attributes
            drops = header.has_delete_horizon and base <= now_ms
            records, kept, tombstones, max_timestamp = self.keep_records(
                body, count, header.base_offset, base, drops, base
            )
            if not kept and not _holds(ends, header.last_offset):
                at += size
                continue
            if not kept:
                attributes &= ~DELETE_HORIZON_BIT
            elif tombstones and not header.has_delete_horizon:
                attributes |= DELETE_HORIZON_BIT
                new_base = now_ms + delete_retention_ms
                records, kept, tombstones, max_timestamp = self.keep_records(
                    body, count, header.base_offset, base, False, new_base
                )
            batch = bytes(view[at : at + HEADER_SIZE]) + records
            if kept != count or attributes != header.attributes:
                largest = max_timestamp if kept and not header.has_log_append_time else header.max_timestamp
                batch = _sealed(header, records, attributes, new_base, largest, kept)
            target[filled : filled + len(batch)] = batch
            filled += len(batch)
            at += size
        return at - start, filled


def _plain_batch(view: memoryview, at: int, end: int) -> BatchHeader | None:
    """Returns the header of the batch at `at` if the batch ends before `end` and this module can handle it. Returns
    None for an incomplete batch, and for batches that are left to the caller (compressed, transactional and control
    batches)."""
    if end - at < HEADER_SIZE:
        return None
    header = BatchHeader._make(HEADER.unpack_from(view, at))
    if (
        header.magic != MAGIC_V2
        or not HEADER_SIZE <= header.size_bytes <= end - at
        or header.attributes & _SPECIAL_BITS
    ):
        return None
    return header


def _holds(ends: Sequence[int], offset: int) -> bool:
    index = bisect_left(ends, offset)
    return index < len(ends) and ends[index] == offset


def _sealed(
    header: BatchHeader, records: Buffer, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    """Returns the batch with these records in place of its own, and with new length and CRC."""
    changed = header._replace(
        batch_length=HEADER_SIZE - LENGTH_OVERHEAD + len(records),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=count,
    )
    batch = bytearray(HEADER.pack(*changed)) + records
    return bytes(HEADER.pack(*changed._replace(crc=crc32c(batch, ATTRIBUTES_OFFSET, len(batch))))) + bytes(records)
