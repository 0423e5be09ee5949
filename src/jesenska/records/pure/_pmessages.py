"""Converts message sets (formats v0 and v1) into records of batches and back, in plain Python: the twin of the
compiled `_messages.pxi`. The layout of a message is in message_set.py. All data here is already decompressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from jesenska.records.faults import REJECTED_RECORDS_NAMED_MAX, Fault, Rejection, raise_fault, raise_rejections
from jesenska.records.header import CODEC_MASK, Buffer
from jesenska.records.pure._precords import RecordReader, append_record, wrap64

_HEAD = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
#: Bytes of a message's offset and size fields. The value of the size field does not include them.
_OVERHEAD = 12
_CRC_AT, _MAGIC_AT, _FIELDS_AT = 12, 16, 18
#: Bytes of a message without key and value in v0 and v1, without its offset and size fields.
_SMALLEST = (14, 22)
_NO_TIMESTAMP = -1


class OldMessage(NamedTuple):
    """One message of a message set. Key and value are views into the set."""

    position: int
    size_bytes: int
    offset: int
    magic: int
    attributes: int
    #: The timestamp is -1 in format v0.
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None


def messages_of(data: Buffer) -> Iterator[OldMessage]:
    """Yields each message in `data` after checking its CRC; an incomplete message at the end is left out. Raises
    CorruptMessageError for an impossible length, magic or CRC, InvalidRecordError for fields that do not match the
    length."""
    view = memoryview(data)
    end = len(view)
    position = index = 0
    while end - position >= _FIELDS_AT:
        offset, size, crc, magic, attributes = _HEAD.unpack_from(view, position)
        if magic not in (0, 1):
            raise_fault(Fault.MAGIC, index)
        if size < _SMALLEST[magic]:
            raise_fault(Fault.BATCH_LENGTH, index)
        if size > end - position - _OVERHEAD:
            return
        following = position + _OVERHEAD + size
        if zlib.crc32(view[position + _MAGIC_AT : following]) != crc:
            raise_fault(Fault.CRC, index)
        at = position + _FIELDS_AT
        timestamp = _NO_TIMESTAMP
        if magic:
            (timestamp,) = _TIMESTAMP.unpack_from(view, at)
            at += 8
        key, at = _field(view, at, following, index)
        value, at = _field(view, at, following, index)
        if at != following:
            raise_fault(Fault.BYTES_LEFT_IN_RECORD, index)
        yield OldMessage(position, size + _OVERHEAD, offset, magic, attributes, timestamp, key, value)
        position = following
        index += 1


def _field(view: memoryview, at: int, end: int, index: int) -> tuple[memoryview | None, int]:
    if end - at < 4:
        raise_fault(Fault.FIELD_PASSES_END, index)
    (size,) = _LENGTH.unpack_from(view, at)
    at += 4
    if size < 0:
        if size != -1:
            raise_fault(Fault.FIELD_LENGTH_NEGATIVE, index)
        return None, at
    if size > end - at:
        raise_fault(Fault.FIELD_PASSES_END, index)
    return view[at : at + size], at + size


def messages_to_records(
    out: bytearray,
    data: Buffer,
    magic: int,
    max_message_bytes: int,
    key_required: bool,
    check_times: bool,
    earliest: int,
    latest: int,
    append_timestamp: int | None = None,
) -> tuple[int, int, int]:
    """Appends the messages of `data` to `out` as records of one batch. All messages must be of format `magic` and
    uncompressed. Returns the number of messages, the base timestamp (the timestamp of the first message) and the
    largest timestamp. Structural faults and rejected records raise the same errors as in the check of a batch.

    For a producer's set, `max_message_bytes` limits each message, and an incomplete message at the end is ignored. For
    the content of a compressed message it is -1, and the content must end with its last message. `append_timestamp`
    replaces the times of all messages."""
    count = base = rejected = 0
    largest = _NO_TIMESTAMP
    rejections: list[tuple[int, int]] = []
    end = 0
    for message in messages_of(data):
        if 0 <= max_message_bytes < message.size_bytes:
            raise_fault(Fault.TOO_LARGE, count)
        if message.magic != magic:
            raise_fault(Fault.MESSAGE_MAGIC, count)
        if message.attributes & CODEC_MASK:
            raise_fault(Fault.MESSAGE_COMPRESSED, count)
        timestamp = message.timestamp_ms if append_timestamp is None else append_timestamp
        if not count:
            base = timestamp
        rejection = 0
        if key_required and message.key is None:
            rejection = Rejection.KEY_MISSING
        elif check_times and timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest:
            rejection = Rejection.TIMESTAMP_OUT_OF_RANGE
        if rejection:
            if rejected < REJECTED_RECORDS_NAMED_MAX:
                rejections.append((count, rejection))
            rejected += 1
        append_record(out, count, wrap64(timestamp - base), message.key, message.value, ())
        largest = max(largest, timestamp)
        count += 1
        end = message.position + message.size_bytes
    if end != len(data) and max_message_bytes < 0:
        raise_fault(Fault.ENDS_TOO_SOON, count)
    if rejected:
        raise_rejections(rejections, rejected)
    return count, base, largest


def append_message(
    out: bytearray,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    at: int = -1,
) -> int:
    """Appends one message to `out`, or overwrites the bytes from position `at` on. Returns the position after the
    message; the bytes after that position are then undefined."""
    if at > len(out):
        raise ValueError("a message cannot be written after the end of the buffer")
    if at >= 0:
        del out[at:]
    start = len(out)
    size = _SMALLEST[magic] + (0 if key is None else len(key)) + (0 if value is None else len(value))
    out += _HEAD.pack(offset, size, 0, magic, attributes)
    if magic:
        out += _TIMESTAMP.pack(timestamp)
    for data in (key, value):
        if data is None:
            out += b"\xff\xff\xff\xff"
        else:
            out += _LENGTH.pack(len(data))
            out += data
    with memoryview(out) as view:
        crc = zlib.crc32(view[start + _MAGIC_AT :])
    _CRC.pack_into(out, start + _CRC_AT, crc)
    return len(out)


def records_to_messages(
    out: bytearray,
    body: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int,
    magic: int,
    relative_to: int,
    first_offset: int,
) -> tuple[int, int, int]:
    """Appends the records of a decompressed batch, from `first_offset` on, to `out` as messages. Record headers are
    dropped. Under log append time (`append_timestamp` is not -1) all messages have that time. `relative_to` is
    subtracted from the offsets. Returns the number of messages, the offset of the last message and the largest
    timestamp. Raises InvalidRecordError if the bytes are not exactly `count` complete records."""
    reader = RecordReader(bytes(body))
    messages = bytearray()
    written = 0
    last = -1
    largest = _NO_TIMESTAMP
    append_time = append_timestamp != _NO_TIMESTAMP
    for _ in range(count):
        timestamp_delta, offset_delta, key, value, _ = reader.record()
        offset = wrap64(base_offset + offset_delta)
        if offset < first_offset:
            continue
        timestamp = append_timestamp if append_time else wrap64(base_timestamp + timestamp_delta)
        append_message(messages, offset - relative_to, magic, 8 if append_time and magic else 0, timestamp, key, value)
        written += 1
        last = offset
        largest = max(largest, timestamp)
    reader.finish()
    out += messages
    return written, last, largest


def plain_batches_to_messages(
    out: bytearray, data: Buffer, position: int, magic: int, first_offset: int, at: int
) -> tuple[int, int]:
    """Does nothing in this twin: returns `position` and `at`, so that the caller converts the batch at `position` in
    another way. The compiled function writes the records of batches from `first_offset` on into `out`, as messages
    from position `at` on. It stops at the first batch that is compressed, a control batch, empty, incomplete or
    faulty. It returns the position of that batch and the end of the messages."""
    if not 0 <= at <= len(out):
        raise ValueError("messages cannot be written after the end of the buffer")
    return position, at
