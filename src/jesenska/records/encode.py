"""Encodes batches of records: a whole batch (`encode_batch`), or record by record up to a size (`BatchWriter`).
Layouts are in header.py and record.py.

The base timestamp of a batch is the timestamp of its first record. Records without a timestamp have -1. The producer
decides how many records go into a batch and how long they wait."""

from __future__ import annotations

from collections.abc import Iterable

from jesenska.records import codec as records_codec
from jesenska.records.compression import compress
from jesenska.records.header import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_OFFSET,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
)
from jesenska.records.record import Headers, Record, RecordInput

_EMPTY_HEADER = bytes(HEADER_SIZE)
#: Upper limit on the bytes of a record without headers, in addition to its key and value.
_RECORD_OVERHEAD_BYTES = 26
#: Upper limit on the bytes of one record header's two length fields.
_RECORD_HEADER_OVERHEAD_BYTES = 10


def attributes_of(codec: Codec, is_transactional: bool, is_control: bool, log_append_time: bool) -> int:
    """Returns the attributes field of a batch header with these properties."""
    attributes = int(codec)
    if log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    return int(attributes)


def seal_batch(
    batch: bytearray,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    level: int | None = None,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Finishes a batch: compresses the records, which begin after 61 free bytes in `batch`, and writes the header with
    its CRC into the free bytes. Returns the finished batch, which is `batch` itself if nothing was compressed."""
    codec = Codec(attributes & CODEC_MASK)
    if codec:
        with memoryview(batch) as view:
            packed = compress(codec, view[HEADER_SIZE:], level)
        batch = bytearray(_EMPTY_HEADER)
        batch += packed
    delta = record_count - 1 if last_offset_delta is None else last_offset_delta
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_OVERHEAD,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch[CRC_OFFSET:ATTRIBUTES_OFFSET] = records_codec.crc32c(batch, ATTRIBUTES_OFFSET, len(batch)).to_bytes(4, "big")
    return batch


def reseal_batch(
    batch: bytearray,
    header: BatchHeader,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    level: int | None = None,
) -> bytearray:
    """Finishes a batch like `seal_batch`, with all further header fields taken from the header of another batch."""
    return seal_batch(
        batch,
        attributes,
        record_count,
        base_timestamp,
        max_timestamp,
        level=level,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def encode_batch(
    records: Iterable[RecordInput] | Iterable[Record],
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Returns one batch of these records, with consecutive offsets from `base_offset`. A record is a tuple of
    timestamp in ms, key, value and headers, or a `Record`, whose offset is ignored. Raises ValueError if there are no
    records: only compaction makes batches without records."""
    items = [item[1:2] + item[3:] if isinstance(item, Record) else item for item in records]
    if not items:
        raise ValueError("a batch needs at least one record")
    base_timestamp = items[0][0]
    batch = bytearray(_EMPTY_HEADER)
    count, max_timestamp = records_codec.encode_records(batch, items, base_timestamp)
    return seal_batch(
        batch,
        attributes_of(codec, is_transactional, is_control, False),
        count,
        base_timestamp,
        max_timestamp,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def reencode_batch(
    records: Iterable[Record],
    base_offset: int,
    last_offset_delta: int,
    attributes: int,
    max_timestamp: int | None = None,
    *,
    level: int | None = None,
    base_timestamp: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Returns one batch of records that keep their offsets, including gaps. It is for compaction and repair.
    `attributes` has the form of the header's field. Without records the batch has only a header, by which the log
    keeps a producer's last sequence number."""
    batch = bytearray(_EMPTY_HEADER)
    largest = NO_TIMESTAMP
    count = 0
    for record in records:
        if base_timestamp is None:
            base_timestamp = record.timestamp_ms
        delta = record.offset - base_offset
        records_codec.append_record(
            batch, delta, record.timestamp_ms - base_timestamp, record.key, record.value, record.headers
        )
        largest = max(largest, record.timestamp_ms)
        count += 1
    return seal_batch(
        batch,
        attributes if count else attributes & ~CODEC_MASK,
        count,
        NO_TIMESTAMP if base_timestamp is None else base_timestamp,
        largest if max_timestamp is None else max_timestamp,
        level=level,
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


class BatchWriter:
    """Builds a producer's batch record by record: call `append` until it returns None because the batch is full, then
    `finish`.

    The finished batch has at most `max_bytes`, if compression does not enlarge it. A single larger record still gets a
    batch of its own, which the broker may refuse."""

    __slots__ = ("_batch", "base_timestamp", "codec", "level", "max_bytes", "max_timestamp", "record_count")

    def __init__(self, max_bytes: int, codec: Codec = Codec.NONE, level: int | None = None) -> None:
        self.max_bytes = max_bytes
        self.codec = codec
        self.level = level
        self.record_count = 0
        self.base_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self._batch = bytearray(_EMPTY_HEADER)

    @property
    def size_bytes(self) -> int:
        """The present size of the batch, before compression."""
        return len(self._batch)

    def append(self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int | None:
        """Appends a record and returns its offset delta in the batch. Returns None if the batch is full."""
        count = self.record_count
        if count == 0:
            self.base_timestamp = timestamp_ms
        elif len(self._batch) + estimated_size(key, value, headers) > self.max_bytes:
            return None
        records_codec.append_record(self._batch, count, timestamp_ms - self.base_timestamp, key, value, headers)
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.record_count = count + 1
        return count

    def finish(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> bytearray:
        """Returns the finished batch; after that the writer cannot be used again. Raises ValueError if no record was
        appended."""
        if not self.record_count:
            raise ValueError("a batch needs at least one record")
        return seal_batch(
            self._batch,
            attributes_of(self.codec, is_transactional, False, False),
            self.record_count,
            self.base_timestamp,
            self.max_timestamp,
            level=self.level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )


def estimated_size(key: Buffer | None, value: Buffer | None, headers: Headers = ()) -> int:
    """Returns an upper limit on the bytes of this record in a batch, before compression."""
    size = _RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, data in headers:
        size += _RECORD_HEADER_OVERHEAD_BYTES + 3 * len(name) + (0 if data is None else len(data))
    return size
