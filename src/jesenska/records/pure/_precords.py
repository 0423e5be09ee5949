"""The record codec in plain Python: the twin of the compiled `_crecords.pyx`, function by function. It is for machines
without a C compiler, and a reference in tests. `codec.py` chooses between the two. The layout of a record is in
record.py.

Numbers inside records are zigzag varints. Numbers of 32 bits take at most five bytes, numbers of 64 bits at most ten.
Bits beyond the type are dropped and sums of timestamps wrap, as in the JVM."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import google_crc32c

from jesenska.records.faults import REJECTED_RECORDS_NAMED_MAX, Fault, Rejection, raise_fault, raise_rejections
from jesenska.records.header import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    FRAME_SIZE,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_OFFSET,
    SMALLEST_LENGTH,
    BatchHeader,
    Buffer,
    TimestampType,
    read_header,
)
from jesenska.records.record import Headers, Record, RecordInput

_INT32 = Struct(">i")
_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF

(
    _LENGTH,
    _ATTRIBUTES,
    _TIMESTAMP,
    _OFFSET,
    _KEY_LENGTH,
    _KEY,
    _VALUE_LENGTH,
    _VALUE,
    _HEADERS,
    _NAME_LENGTH,
    _NAME,
    _DATA_LENGTH,
    _DATA,
) = range(13)


def crc32c(buffer: Buffer, start: int = 0, end: int | None = None) -> int:
    """Returns the CRC32C of `buffer[start:end]`."""
    with memoryview(buffer) as view:
        return int(google_crc32c.value(bytes(view[start:end])))


def wrap64(number: int) -> int:
    """Returns the number wrapped to a signed 64-bit number, as the JVM does."""
    return ((number + 0x8000000000000000) & _MASK64) - 0x8000000000000000


class Walker:
    """Checks the records of one batch, which is fed in pieces of any size. It stores none of their bytes.

    Offset deltas must be 0, 1, 2 … With `from_delta` any offset deltas are allowed (compaction leaves gaps), and
    records with a smaller delta are not rejected.

    `feed` raises for structural faults, `finish` for missing records and for rejected records. `finish` returns the
    largest timestamp (-1 if none is larger)."""

    __slots__ = (
        "_append_time_bit",
        "_base_timestamp",
        "_check_times",
        "_count",
        "_delta",
        "_earliest",
        "_first_rejected",
        "_from_delta",
        "_headers_left",
        "_index",
        "_key_required",
        "_latest",
        "_left",
        "_max_timestamp",
        "_no_key",
        "_number",
        "_rejected",
        "_rejections",
        "_shift",
        "_skip",
        "_state",
        "_timestamp",
    )

    def __init__(
        self,
        count: int,
        base_timestamp: int,
        key_required: bool,
        check_times: bool,
        append_time_bit: bool,
        earliest: int,
        latest: int,
        from_delta: int = -1,
    ) -> None:
        self._count = count
        self._base_timestamp = base_timestamp
        self._key_required = key_required
        self._check_times = check_times
        self._append_time_bit = append_time_bit
        self._earliest = earliest
        self._latest = latest
        self._state = _LENGTH
        self._index = self._number = self._shift = self._left = self._skip = self._headers_left = self._timestamp = 0
        self._no_key = False
        self._max_timestamp = -1
        self._rejected = 0
        self._rejections: list[tuple[int, int]] = []
        self._first_rejected: tuple[int, int] | None = None
        self._from_delta = from_delta
        self._delta = 0

    def feed(self, piece: Buffer) -> None:
        data = bytes(piece)
        end = len(data)
        position = 0
        state, left, number, shift = self._state, self._left, self._number, self._shift
        while position < end:
            if state in (_KEY, _VALUE, _NAME, _DATA):
                taken = min(self._skip, end - position)
                position += taken
                self._skip -= taken
                left -= taken
                if self._skip:
                    break
                state = self._after_bytes(state, left)
                continue
            byte = data[position]
            position += 1
            if state == _LENGTH:
                if self._index == self._count:
                    raise_fault(Fault.BYTES_LEFT_IN_BATCH, self._index)
            else:
                if left == 0:
                    raise_fault(Fault.FIELD_PASSES_END, self._index)
                left -= 1
                if state == _ATTRIBUTES:
                    state = _TIMESTAMP
                    continue
            number |= (byte & 0x7F) << shift
            if byte >= 0x80:
                shift += 7
                if shift >= (70 if state == _TIMESTAMP else 35):
                    raise_fault(Fault.NUMBER_TOO_LONG, self._index)
                continue
            number &= _MASK64 if state == _TIMESTAMP else _MASK32
            number = (number >> 1) ^ -(number & 1)
            if state == _LENGTH:
                if number < 0:
                    raise_fault(Fault.LENGTH_NEGATIVE, self._index)
                left = number
                state = _ATTRIBUTES
            else:
                state = self._take(state, number, left)
            number = shift = 0
        self._state, self._left, self._number, self._shift = state, left, number, shift

    def _take(self, state: int, number: int, left: int) -> int:
        """Handles a number that was read in the middle of a record. Returns the state of the parser for the next
        bytes."""
        if state == _TIMESTAMP:
            self._timestamp = wrap64(self._base_timestamp + number)
            return _OFFSET
        if state == _OFFSET:
            if number != self._index and self._from_delta < 0:
                raise_fault(Fault.OFFSET_DELTA, self._index)
            self._delta = number
            return _KEY_LENGTH
        if state == _HEADERS:
            if number < 0 or number > left // 2:
                raise_fault(Fault.HEADER_COUNT, self._index)
            self._headers_left = number
            return _NAME_LENGTH if number else self._end_record(left)
        if number < -1 or (number < 0 and state == _NAME_LENGTH):
            raise_fault(Fault.FIELD_LENGTH_NEGATIVE, self._index)
        if number > left:
            raise_fault(Fault.FIELD_PASSES_END, self._index)
        if state == _KEY_LENGTH:
            self._no_key = number < 0
        if number > 0:
            self._skip = number
            return state + 1
        return self._after_bytes(state + 1, left)

    def _after_bytes(self, state: int, left: int) -> int:
        if state != _DATA:
            return state + 1
        self._headers_left -= 1
        return _NAME_LENGTH if self._headers_left else self._end_record(left)

    def _end_record(self, left: int) -> int:
        if left:
            raise_fault(Fault.BYTES_LEFT_IN_RECORD, self._index)
        timestamp = self._timestamp
        rejection = 0
        if self._key_required and self._no_key:
            rejection = Rejection.KEY_MISSING
        elif self._check_times and timestamp != -1:
            if timestamp < self._earliest or timestamp > self._latest:
                rejection = Rejection.TIMESTAMP_OUT_OF_RANGE
        elif self._append_time_bit:
            rejection = Rejection.TIMESTAMP_TYPE
        if rejection and self._delta >= self._from_delta:
            if not self._rejected:
                self._first_rejected = self._delta, timestamp
            if self._rejected < REJECTED_RECORDS_NAMED_MAX:
                self._rejections.append((self._index, rejection))
            self._rejected += 1
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._index += 1
        return _LENGTH

    @property
    def first_rejected(self) -> tuple[int, int] | None:
        """The offset delta and timestamp of the first rejected record; None if no record was rejected."""
        return self._first_rejected

    def finish(self) -> int:
        if self._state != _LENGTH or self._shift or self._index != self._count:
            raise_fault(Fault.ENDS_TOO_SOON, self._index)
        if self._rejected:
            raise_rejections(self._rejections, self._rejected)
        return self._max_timestamp


def check_batch(
    buffer: Buffer,
    produce_version: int,
    max_message_bytes: int,
    key_required: bool,
    log_append_time: bool,
    earliest: int,
    latest: int,
) -> BatchHeader:
    """Returns the header of the one batch at the beginning of `buffer` after all checks: frame, header, CRC, and the
    records of an uncompressed batch. The caller checks the records of a compressed batch."""
    header = _check_frame(buffer, produce_version, max_message_bytes)
    fault = _header_fault(header)
    if fault:
        raise_fault(fault)
    if header.attributes & CODEC_MASK:
        return header
    append_time_bit = header.attributes & LOG_APPEND_TIME_BIT != 0
    walker = Walker(
        header.record_count, header.base_timestamp, key_required, not log_append_time, append_time_bit, earliest, latest
    )
    with memoryview(buffer) as view:
        walker.feed(view[HEADER_SIZE : header.size_bytes])
    max_timestamp = walker.finish()
    if log_append_time:
        return header
    return set_max_timestamp(buffer, 0, header, max_timestamp, False)


def _check_frame(buffer: Buffer, produce_version: int, max_message_bytes: int) -> BatchHeader:
    end = len(buffer)
    if end < FRAME_SIZE:
        raise_fault(Fault.NO_BATCH)
    fault, size = _frame_fault(buffer, 0)
    if fault:
        raise_fault(fault)
    if size > end:
        raise_fault(Fault.NO_BATCH)
    magic = buffer[MAGIC_OFFSET]
    if magic < 2:
        raise_fault(Fault.MESSAGE_SET if produce_version >= 3 else Fault.MESSAGE_SET_UNSUPPORTED)
    if size < HEADER_SIZE:
        raise_fault(Fault.BATCH_LENGTH)
    header = BatchHeader._make(HEADER.unpack_from(buffer))
    if produce_version < 7 and header.attributes & CODEC_MASK == 4:
        raise_fault(Fault.ZSTD_TOO_EARLY)
    if end - size >= FRAME_SIZE:
        fault, next_size = _frame_fault(buffer, size)
        if fault:
            raise_fault(fault)
        if next_size <= end - size:
            raise_fault(Fault.SECOND_BATCH)
    if header.base_offset != 0:
        raise_fault(Fault.BASE_OFFSET)
    if size > max_message_bytes:
        raise_fault(Fault.TOO_LARGE)
    if crc32c(buffer, ATTRIBUTES_OFFSET, size) != header.crc:
        raise_fault(Fault.CRC)
    return header


def _frame_fault(buffer: Buffer, position: int) -> tuple[Fault, int]:
    length = _INT32.unpack_from(buffer, position + 8)[0]
    if length < SMALLEST_LENGTH:
        return Fault.BATCH_LENGTH, 0
    if buffer[position + MAGIC_OFFSET] > 2:
        return Fault.MAGIC, 0
    return Fault.NONE, length + LENGTH_OVERHEAD


def _header_fault(header: BatchHeader) -> Fault:
    if header.record_count <= 0:
        return Fault.RECORD_COUNT
    if header.last_offset_delta != header.record_count - 1:
        return Fault.OFFSET_RANGE
    if header.attributes & CODEC_MASK > 4:
        return Fault.CODEC
    if header.attributes & CONTROL_BIT:
        return Fault.CONTROL
    if header.producer_id > -1 and header.base_sequence < 0:
        return Fault.SEQUENCE
    return Fault.NONE


def set_max_timestamp(
    buffer: Buffer, position: int, header: BatchHeader, max_timestamp: int, append_time: bool
) -> BatchHeader:
    """Writes the largest timestamp, the timestamp type and the new CRC into the header in the buffer, if they change.
    Returns the new header. The header's other fields in the buffer are not changed."""
    attributes = header.attributes | LOG_APPEND_TIME_BIT if append_time else header.attributes & ~LOG_APPEND_TIME_BIT
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return header
    changed = read_header(buffer, position)._replace(attributes=attributes, max_timestamp=max_timestamp)
    HEADER.pack_into(buffer, position, *changed)
    crc = crc32c(buffer, position + ATTRIBUTES_OFFSET, position + header.size_bytes)
    changed = changed._replace(crc=crc)
    HEADER.pack_into(buffer, position, *changed)
    return changed


def put_number(buffer: bytearray, number: int) -> None:
    """Appends a number of at most 64 bits as a zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    while number > 0x7F:
        buffer.append(number & 0x7F | 0x80)
        number >>= 7
    buffer.append(number)


def _put_bytes(buffer: bytearray, data: Buffer | None) -> None:
    if data is None:
        buffer.append(1)
    else:
        put_number(buffer, len(data))
        buffer += data


def append_record(
    buffer: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Headers,
) -> None:
    """Appends one record to `buffer`."""
    body = bytearray(1)
    put_number(body, timestamp_delta)
    put_number(body, offset_delta)
    _put_bytes(body, key)
    _put_bytes(body, value)
    put_number(body, len(headers))
    for name, data in headers:
        _put_bytes(body, name if isinstance(name, bytes) else name.encode())
        _put_bytes(body, data)
    put_number(buffer, len(body))
    buffer += body


def encode_records(buffer: bytearray, records: Iterable[RecordInput], base_timestamp: int) -> tuple[int, int]:
    """Appends records to `buffer` with offset deltas from 0; returns their count and largest timestamp."""
    count = 0
    max_timestamp = -1
    for timestamp, key, value, headers in records:
        append_record(buffer, count, wrap64(timestamp - base_timestamp), key, value, headers)
        max_timestamp = max(max_timestamp, timestamp)
        count += 1
    return count, max_timestamp


class RecordReader:
    """Reads the records of a batch one after another, with checks that it never reads past the end."""

    __slots__ = ("data", "end", "index", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)
        self.index = 0

    def number(self, bits: int = 32) -> int:
        value = shift = 0
        data, position = self.data, self.position
        while True:
            if position >= self.end:
                raise_fault(Fault.FIELD_PASSES_END, self.index)
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= (70 if bits == 64 else 35):
                raise_fault(Fault.NUMBER_TOO_LONG, self.index)
        self.position = position
        value &= _MASK64 if bits == 64 else _MASK32
        return (value >> 1) ^ -(value & 1)

    def field(self) -> bytes | None:
        size = self.number()
        if size < 0:
            if size < -1:
                raise_fault(Fault.FIELD_LENGTH_NEGATIVE, self.index)
            return None
        start = self.position
        if size > self.end - start:
            raise_fault(Fault.FIELD_PASSES_END, self.index)
        self.position = start + size
        return self.data[start : start + size]

    def begin_record(self) -> None:
        """Checks that the next record is complete, and moves to its timestamp delta, which comes after one byte of
        attributes."""
        limit = len(self.data)
        self.end = limit
        if self.position >= limit:
            raise_fault(Fault.ENDS_TOO_SOON, self.index)
        length = self.number()
        if length < 0:
            raise_fault(Fault.LENGTH_NEGATIVE, self.index)
        if length > limit - self.position:
            raise_fault(Fault.ENDS_TOO_SOON, self.index)
        self.end = self.position + length
        if not length:
            raise_fault(Fault.FIELD_PASSES_END, self.index)
        self.position += 1

    def record(self) -> tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]:
        """Returns the timestamp delta, offset delta, key, value and headers of the next record."""
        self.begin_record()
        timestamp_delta = self.number(64)
        offset_delta = self.number()
        key = self.field()
        value = self.field()
        count = self.number()
        if count < 0 or count > (self.end - self.position) // 2:
            raise_fault(Fault.HEADER_COUNT, self.index)
        headers = []
        for _ in range(count):
            name = self.field()
            if name is None:
                raise_fault(Fault.FIELD_LENGTH_NEGATIVE, self.index)
            headers.append((name, self.field()))
        if self.position != self.end:
            raise_fault(Fault.BYTES_LEFT_IN_RECORD, self.index)
        self.index += 1
        return timestamp_delta, offset_delta, key, value, tuple(headers)

    def finish(self) -> None:
        if self.position != len(self.data):
            raise_fault(Fault.BYTES_LEFT_IN_BATCH, self.index)


def decode_records(
    body: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int,
    timestamp_type: TimestampType,
) -> list[Record]:
    """Returns the records of a decompressed batch. Under log append time every timestamp is `append_timestamp`. Raises
    InvalidRecordError if the bytes are not exactly `count` complete records."""
    reader = RecordReader(bytes(body))
    records = []
    for _ in range(count):
        timestamp_delta, offset_delta, key, value, headers = reader.record()
        timestamp = append_timestamp if timestamp_type else wrap64(base_timestamp + timestamp_delta)
        named = tuple((name.decode("utf-8", "replace"), data) for name, data in headers)
        records.append(Record(wrap64(base_offset + offset_delta), timestamp, timestamp_type, key, value, named))
    reader.finish()
    return records
