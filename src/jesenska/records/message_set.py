"""Message sets: the form of records in requests and logs before batches (formats v0, Kafka 0.8 and 0.9, and v1, 0.10).

    offset       int64     of the message in its partition; any value from producers
    size         int32     bytes that follow
    crc          uint32    CRC-32 (zlib's, not CRC32C) of everything after it
    magic        int8      0 or 1
    attributes   int8      bits 0-2 codec, bit 3 (v1): the time is log append time
    timestamp    int64     v1 only; ms, -1 none
    key          int32 length (-1: null) and bytes
    value        the same

A message set is a sequence of messages, with nothing around them. A compressed set is one message without a key whose
value is a whole message set, compressed. This outer message has the offset of the last message inside. In v0 the
messages inside have their own offsets; in v1 their offsets count from 0, so that a broker need not rewrite them. The
outer timestamp is the largest inside, or the log append time of all.

lz4 in v0 differs from the standard: the checksum in the frame's header also covers the frame's magic. Old clients
expect this checksum. So it is written for v0, while both checksums are accepted in v0. zstd came with Kafka 2.1 and is
not allowed in message sets.

v0 and v1 have no fields for producers, transactions, leader epochs or headers. A conversion to these formats drops
them, and leaves out control batches. A conversion from these formats makes one batch of a set. The log stores only
batches."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from jesenska.base.errors import CorruptMessageError, InvalidRecordError, KafkaError, UnsupportedCompressionTypeError
from jesenska.base.limits import DECOMPRESSED_BATCH_MAX_BYTES
from jesenska.records import codec as records_codec
from jesenska.records.batch import iter_headers
from jesenska.records.check import CheckRules
from jesenska.records.compression import compress, decompress_pieces, with_old_lz4_checksum, with_true_lz4_checksum
from jesenska.records.decode import records_of
from jesenska.records.encode import seal_batch
from jesenska.records.faults import Fault, Rejection, raise_fault, raise_rejections
from jesenska.records.header import (
    CODEC_MASK,
    FRAME_SIZE,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_OFFSET,
    SMALLEST_LENGTH,
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
    read_header,
)
from jesenska.records.pure._pmessages import messages_of
from jesenska.records.record import Record

_EMPTY_HEADER = bytes(HEADER_SIZE)
_FRAME = Struct(">qi")
MAGIC_V0, MAGIC_V1 = 0, 1


class Converted(NamedTuple):
    """A batch converted from a message set."""

    batch: bytearray
    header: BatchHeader
    #: The decompressed size of a compressed message in bytes; 0 without compression.
    unpacked_bytes: int


class TakesLongerError(Exception):
    """Raised if the conversion of a message set would take more time than the caller allows. Nothing was changed."""


def to_batch(messages: Buffer, rules: CheckRules, budget_bytes: int | None = None) -> Converted | None:
    """Returns one batch of all messages in a producer's message set, checked by the topic's rules like a batch.
    Returns None for a set without a complete message. The batch has the codec of the set.

    Raises CorruptMessageError (length, magic, CRC), MessageTooLargeError, InvalidRecordError and InvalidTimestampError
    as `check_batches` does. Raises TakesLongerError if a compressed message decompresses to more than `budget_bytes`
    or has a slow codec (gzip)."""
    shallow = messages_of(messages)
    outer = next(shallow, None)
    if outer is None:
        return None
    codec = Codec.NONE
    inside, max_message_bytes = messages, rules.max_message_bytes
    append_timestamp: int | None = None
    if outer.attributes & CODEC_MASK:
        if next(shallow, None) is not None:
            raise_fault(Fault.SECOND_MESSAGE)
        if outer.size_bytes > max_message_bytes:
            raise_fault(Fault.TOO_LARGE)
        codec = codec_of(outer.attributes)
        if budget_bytes is not None and codec is Codec.GZIP:
            raise TakesLongerError
        if outer.attributes & LOG_APPEND_TIME_BIT:
            # Kafka accepts log append time from a client, unless the topic itself has log append time.
            if rules.log_append_time:
                raise_rejections([(0, Rejection.TIMESTAMP_TYPE)], 1)
            append_timestamp = outer.timestamp_ms
        inside, max_message_bytes = (
            unpack(outer.value, codec, outer.magic, rules.decompressed_max_bytes, budget_bytes),
            -1,
        )
    batch = bytearray(_EMPTY_HEADER)
    check_times = not rules.log_append_time
    count, base, largest = records_codec.messages_to_records(
        batch,
        inside,
        outer.magic,
        max_message_bytes,
        rules.key_required,
        check_times,
        rules.earliest_timestamp_ms,
        rules.latest_timestamp_ms,
        append_timestamp,
    )
    if not count:
        raise InvalidRecordError("a compressed message has nothing in it")
    batch = seal_batch(batch, int(codec), count, base, largest)
    if len(batch) > rules.max_message_bytes:
        raise_fault(Fault.TOO_LARGE)
    return Converted(batch, read_header(batch), len(inside) if codec else 0)


def codec_of(attributes: int) -> Codec:
    """Returns the codec in a message's attributes. Raises InvalidRecordError for zstd, which Kafka does not allow in
    message sets."""
    number = attributes & CODEC_MASK
    if number == Codec.ZSTD:
        raise InvalidRecordError("zstd is not allowed in messages of format 0 and 1")
    if number > Codec.ZSTD:
        raise_fault(Fault.CODEC)
    return Codec(number)


def unpack(
    value: Buffer | None,
    codec: Codec,
    magic: int,
    limit: int = DECOMPRESSED_BATCH_MAX_BYTES,
    budget_bytes: int | None = None,
) -> bytearray:
    """Returns the message set inside a compressed message. Raises TakesLongerError if the set is larger than
    `budget_bytes`."""
    if value is None:
        raise InvalidRecordError("a compressed message has nothing in it")
    if codec is Codec.LZ4 and magic == MAGIC_V0:
        value = with_true_lz4_checksum(value)
    inside = bytearray()
    for piece in decompress_pieces(codec, value, limit):
        inside += piece
        if budget_bytes is not None and len(inside) > budget_bytes:
            raise TakesLongerError
    return inside


def from_batches(batches: Buffer, magic: int, first_offset: int = 0, out: bytearray | None = None) -> bytearray:
    """Returns the records of a sequence of batches as a message set of this format; each batch keeps its codec.
    Control batches and an incomplete batch at the end are left out. As in Kafka, records before `first_offset` are
    left out only of uncompressed batches. If a batch after the first cannot be converted, the result ends before it.

    `out` is memory for the result; its content is overwritten, and it is returned.

    Raises UnsupportedCompressionTypeError for zstd, InvalidRecordError and CorruptMessageError for a batch that cannot
    be read."""
    messages = bytearray() if out is None else out
    position = end = 0
    try:
        while True:
            position, end = records_codec.plain_batches_to_messages(
                messages, batches, position, magic, first_offset, end
            )
            following = next(iter_headers(batches, position), None)
            if following is None:
                break
            _, header = following
            end = _put(messages, end, batches, position, header, magic, first_offset)
            position += header.size_bytes
    except KafkaError:
        if not end:
            raise
    del messages[end:]
    return messages


def _put(
    messages: bytearray, end: int, batch: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int
) -> int:
    """Writes the messages of one batch at position `end`, after the earlier messages. Returns the new end."""
    if header.is_control or not header.record_count:
        return end
    codec = Codec(header.attributes & CODEC_MASK)
    if codec is Codec.ZSTD:
        raise UnsupportedCompressionTypeError("messages of format 0 and 1 do not know zstd")
    append_timestamp = header.max_timestamp if header.has_log_append_time else -1
    first = header.base_offset if codec else first_offset
    relative_to = header.base_offset if codec and magic else 0
    inside = bytearray()
    count, last, largest = records_codec.records_to_messages(
        inside,
        records_of(batch, position, header),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        append_timestamp,
        magic,
        relative_to,
        first,
    )
    if not count:
        return end
    if not codec:
        messages[end : end + len(inside)] = inside
        return end + len(inside)
    packed: Buffer = compress(codec, inside)
    if codec is Codec.LZ4 and magic == MAGIC_V0:
        packed = with_old_lz4_checksum(packed)
    bit = 8 if header.has_log_append_time and magic else 0
    return records_codec.append_message(messages, last, magic, codec | bit, largest, None, packed, end)


def is_message_set(data: Buffer) -> bool:
    """Returns true if `data` begins with a message of format v0 or v1, and not with a batch."""
    return len(data) > MAGIC_OFFSET and data[MAGIC_OFFSET] in (MAGIC_V0, MAGIC_V1)


def whole_messages(data: Buffer, position: int = 0) -> Iterator[tuple[int, int, int]]:
    """Yields the begin, the end and the offset of each message from `position` on. (A compressed message has the
    offset of the last message inside.) It stops at the first batch, or at an incomplete message at the end. Raises
    CorruptMessageError for an impossible length; nothing else is checked."""
    end = len(data)
    while end - position >= FRAME_SIZE and data[position + MAGIC_OFFSET] in (MAGIC_V0, MAGIC_V1):
        offset, size = _FRAME.unpack_from(data, position)
        if size < SMALLEST_LENGTH:
            raise CorruptMessageError(f"message length {size} at position {position} is less than any message has")
        following = position + LENGTH_OVERHEAD + size
        if following > end:
            return
        yield position, following, offset
        position = following


def decode_message_set(messages: Buffer, limit: int = DECOMPRESSED_BATCH_MAX_BYTES) -> list[Record]:
    """Returns the records of a message set as a consumer of that format receives them. Raises the errors of
    `to_batch`."""
    records: list[Record] = []
    for outer in messages_of(messages):
        if not outer.attributes & CODEC_MASK:
            records.append(_record(outer.offset, outer.timestamp_ms, outer.attributes, outer.key, outer.value))
            continue
        inner = list(messages_of(unpack(outer.value, codec_of(outer.attributes), outer.magic, limit)))
        shift = outer.offset - inner[-1].offset if outer.magic and inner else 0
        for message in inner:
            timestamp = outer.timestamp_ms if outer.attributes & LOG_APPEND_TIME_BIT else message.timestamp_ms
            records.append(_record(message.offset + shift, timestamp, outer.attributes, message.key, message.value))
    return records


def _record(offset: int, timestamp: int, attributes: int, key: memoryview | None, value: memoryview | None) -> Record:
    kind = TimestampType.LOG_APPEND_TIME if attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME
    return Record(offset, timestamp, kind, None if key is None else bytes(key), None if value is None else bytes(value))
