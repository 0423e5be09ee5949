"""Message sets (formats v0 and v1) turned into records of batches and back, in plain Python: the twin of
`_messages.pxi`. message_set.py draws a message; here everything is decompressed already."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from jesenska.records.faults import REJECTED_RECORDS_NAMED_MAX, Fault, Rejection, raise_fault, raise_rejections
from jesenska.records.header import Buffer
from jesenska.records.pure._precords import RecordReader, append_record, wrap64

_HEAD = Struct(">qiIbb")
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
#: Offset and size: what the size does not count.
_OVERHEAD = 12
_CRC_AT, _MAGIC_AT, _FIELDS_AT = 12, 16, 18
#: Bytes of a message without key and value, beyond offset and size.
_SMALLEST = (14, 22)
_NO_TIMESTAMP = -1


class OldMessage(NamedTuple):
    """One message as it lies in a message set. Key and value are views."""

    position: int
    size_bytes: int
    offset: int
    magic: int
    attributes: int
    #: -1 in format v0.
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None


def messages_of(data: Buffer) -> Iterator[OldMessage]:
    """Each message in `data`, its CRC verified; a part of a message at the end is left alone. CorruptMessageError for
    an impossible length, magic or CRC, InvalidRecordError for fields that are not what the length says."""
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
    """Puts the messages of `data`, all of this format and none compressed, at the end of `out` as records of one
    batch; gives their count, the base timestamp (that of the first) and the largest. Structural faults and rejected
    records are refused as those of a batch are.

    `max_message_bytes` is for a set that a producer sent: no message may be larger, and a part of one at the end is
    left alone. -1 for what was inside a compressed message, which must end with its last one. `append_timestamp` is
    the time of all of them in place of their own."""
    count = base = rejected = 0
    largest = _NO_TIMESTAMP
    rejections: list[tuple[int, int]] = []
    end = 0
    for message in messages_of(data):
        if 0 <= max_message_bytes < message.size_bytes:
            raise_fault(Fault.TOO_LARGE, count)
        if message.magic != magic:
            raise_fault(Fault.MESSAGE_MAGIC, count)
        if message.attributes & 7:
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
    """Puts one message at the end of `out`, or at that place, over what is there; gives where it ends. What is behind
    it means nothing then."""
    if at > len(out):
        raise ValueError("a message is to be put behind the end")
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
    """Puts the records of a decompressed batch, from `first_offset` on, at the end of `out` as messages; headers are
    dropped. Under log append time (`append_timestamp` is not -1) that is the time of each. Offsets are written less
    `relative_to`. Gives the count of messages, the offset of the last one and the largest timestamp.
    InvalidRecordError where the bytes are not `count` whole records and nothing else."""
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
    """Puts the records of batches, from `first_offset` on, into `out` from `at` on as messages, over what is there, up
    to the first batch that is compressed, a control batch, empty, cut short or at fault; gives its position, and where
    the messages end. What is behind them means nothing then. Here that batch is the first one: the compiled twin
    spares its caller what stands between the batches."""
    if not 0 <= at <= len(out):
        raise ValueError("messages are to be put behind the end")
    return position, at
