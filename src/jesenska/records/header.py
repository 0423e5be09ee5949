"""The header of a record batch (format v2), in front of all its records:

    offset  bytes  field
         0      8  base_offset              first offset of the batch              not under the CRC, the broker's
         8      4  batch_length             bytes that follow this field           not under the CRC
        12      4  partition_leader_epoch   -1 from clients, the leader sets it    not under the CRC
        16      1  magic                    2                                      not under the CRC
        17      4  crc                      CRC32C of everything from byte 21 to the end of the batch
        21      2  attributes               see below
        23      4  last_offset_delta        offset of the last record less base_offset (stays if compaction removes
                                            that record)
        27      8  base_timestamp           ms; the records have differences to it; -1 none
        35      8  max_timestamp            ms; under log append time this is the time of every record
        43      8  producer_id              -1: not idempotent
        51      2  producer_epoch
        53      4  base_sequence            sequence number of the first record; goes from 2147483647 to 0
        57      4  record_count
        61         records, compressed as a whole if the attributes have a codec (layout in record.py)

    attributes   bits 0-2  codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
                 bit  3    times are log append times (0: create times)
                 bit  4    the batch belongs to a transaction
                 bit  5    control batch: holds transaction markers and is not shown to consumers
                 bit  6    base_timestamp is the delete horizon of compaction (KIP-534)

All numbers are big-endian. The byte `magic` is at offset 16 in every format, so it identifies the format: message sets
(v0 and v1) share the first 12 bytes, then have crc (4) and magic. Message sets are read in message_set.py; the
functions here raise UNSUPPORTED_FOR_MESSAGE_FORMAT for a message set.

After a crash a log may end in a part of a batch or in other bytes: batch.py iterates over headers and verifies CRCs.
The records after the header are read in check.py and decode.py.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from jesenska.base.errors import CorruptMessageError, UnsupportedForMessageFormatError

Buffer: TypeAlias = bytes | bytearray | memoryview

BASE_OFFSET: Final = 0
BATCH_LENGTH_OFFSET: Final = 8
LEADER_EPOCH_OFFSET: Final = 12
MAGIC_OFFSET: Final = 16
CRC_OFFSET: Final = 17
ATTRIBUTES_OFFSET: Final = 21
LAST_OFFSET_DELTA_OFFSET: Final = 23
BASE_TIMESTAMP_OFFSET: Final = 27
MAX_TIMESTAMP_OFFSET: Final = 35
PRODUCER_ID_OFFSET: Final = 43
PRODUCER_EPOCH_OFFSET: Final = 51
BASE_SEQUENCE_OFFSET: Final = 53
RECORD_COUNT_OFFSET: Final = 57
#: The position of the low byte of the attributes. All bits with a meaning are in this byte.
LOW_ATTRIBUTES_OFFSET: Final = 22
#: Bytes of the header; the records begin here.
HEADER_SIZE: Final = 61
#: Bytes of base_offset and batch_length. The value of `batch_length` does not include them.
LENGTH_OVERHEAD: Final = 12
#: Bytes up to and including the magic, from which the format of a batch is recognised.
FRAME_SIZE: Final = 17
#: The smallest value of the length field in any format: the length of a v0 message without key and value.
SMALLEST_LENGTH: Final = 14

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
MAGIC_V2: Final = 2

#: The bits of the attributes field.
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER = Struct(">qiibIhiqqqhii")
_INT32 = Struct(">i")
_SEQUENCES = 1 << 31


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The header of one batch. The fields are in the order of the bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, header and records, in bytes."""
        return LENGTH_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        """The codec of the batch. Raises ValueError for the three numbers that no codec has; `check_batches` refuses
        such batches."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_BIT else TimestampType.CREATE_TIME

    @property
    def records_timestamp(self) -> int:
        """The largest timestamp of the batch's records. It is -1 if the batch has no records left, even if the header
        has a timestamp, because no record can be found by it."""
        return self.max_timestamp if self.record_count > 0 else NO_TIMESTAMP

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 if the batch has no sequence numbers. After 2147483647 they go on
        with 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of the batch at `position`; only its magic is checked. Raises CorruptMessageError if fewer
    than 61 bytes are left or no format has this magic, UnsupportedForMessageFormatError for a message set."""
    if len(buffer) - position < HEADER_SIZE:
        if len(buffer) - position >= FRAME_SIZE:
            refuse_other_magic(buffer[position + MAGIC_OFFSET])
        raise CorruptMessageError(
            f"a batch header takes {HEADER_SIZE} bytes, {max(0, len(buffer) - position)} are left"
        )
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC_V2:
        refuse_other_magic(header.magic)
    return header


def read_batch_length(buffer: Buffer, position: int = 0) -> int:
    """Returns the length field of the batch, or of the message, at `position`."""
    length: int = _INT32.unpack_from(buffer, position + BATCH_LENGTH_OFFSET)[0]
    return length


def read_record_count(buffer: Buffer, position: int = 0) -> int:
    """Returns the `record_count` of the batch at `position`."""
    count: int = _INT32.unpack_from(buffer, position + RECORD_COUNT_OFFSET)[0]
    return count


def refuse_other_magic(magic: int) -> None:
    """Raises an error for any magic except 2, the magic of a batch."""
    if magic in (0, 1):
        raise UnsupportedForMessageFormatError(
            f"message sets (magic {magic}) are not accepted here, only batches (magic 2)"
        )
    if magic != MAGIC_V2:
        raise CorruptMessageError(f"no record format has the magic {magic}")
