"""The possible faults of a batch, and the exception for each. The compiled module and its twin in plain Python share
this table, so that both raise the same errors.

There are two kinds of faults, as in Kafka. A *structural* fault means that the bytes do not match the header; the
check stops there, since nothing after it can be trusted. A *rejected record* is well formed but breaks a rule of the
topic. The check goes on after it, so that the response to Produce v8 and later can name every rejected record
(KIP-467). The batch is refused as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, NoReturn

from jesenska.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)

#: Largest number of rejected records that one response names. The other records of the batch also fail.
REJECTED_RECORDS_NAMED_MAX = 100


class Fault(IntEnum):
    """Structural faults: first the faults of single records, then the faults of the whole batch. The compiled module
    has the same numbers."""

    NONE = 0
    NUMBER_TOO_LONG = 1
    LENGTH_NEGATIVE = 2
    FIELD_PASSES_END = 3
    BYTES_LEFT_IN_RECORD = 4
    FIELD_LENGTH_NEGATIVE = 5
    HEADER_COUNT = 6
    OFFSET_DELTA = 7
    BYTES_LEFT_IN_BATCH = 8
    ENDS_TOO_SOON = 9
    MESSAGE_MAGIC = 10
    MESSAGE_COMPRESSED = 11
    NO_BATCH = 20
    BATCH_LENGTH = 21
    MAGIC = 22
    MESSAGE_SET = 23
    MESSAGE_SET_UNSUPPORTED = 24
    ZSTD_TOO_EARLY = 25
    SECOND_BATCH = 26
    BASE_OFFSET = 27
    TOO_LARGE = 28
    CRC = 29
    RECORD_COUNT = 30
    OFFSET_RANGE = 31
    CODEC = 32
    CONTROL = 33
    SEQUENCE = 34
    SECOND_MESSAGE = 35


class Rejection(IntEnum):
    """Reasons to reject a well-formed record. The compiled module has the same numbers."""

    KEY_MISSING = 1
    TIMESTAMP_OUT_OF_RANGE = 2
    TIMESTAMP_TYPE = 3


_RECORD_FAULTS = {
    Fault.NUMBER_TOO_LONG: "a number in it takes more bytes than its type allows",
    Fault.LENGTH_NEGATIVE: "its length is negative",
    Fault.FIELD_PASSES_END: "a field reaches past the end of the record",
    Fault.BYTES_LEFT_IN_RECORD: "its fields end before its length does",
    Fault.FIELD_LENGTH_NEGATIVE: "a field has a negative length that does not mean null",
    Fault.HEADER_COUNT: "the count of its headers is negative or more than its bytes can hold",
    Fault.OFFSET_DELTA: "its offset delta is not its place in the batch",
    Fault.BYTES_LEFT_IN_BATCH: "the batch goes on after the records that its header counts",
    Fault.ENDS_TOO_SOON: "the batch ends before the records that its header counts",
    Fault.MESSAGE_MAGIC: "its format is not that of the message around it",
    Fault.MESSAGE_COMPRESSED: "it is compressed inside a compressed message",
}

_BATCH_FAULTS: dict[Fault, tuple[type[KafkaError], str]] = {
    Fault.NO_BATCH: (InvalidRecordError, "there is no whole batch for this partition"),
    Fault.BATCH_LENGTH: (CorruptMessageError, "the batch length is less than a batch can have"),
    Fault.MAGIC: (CorruptMessageError, "no record format has the magic of this batch"),
    Fault.MESSAGE_SET: (
        InvalidRecordError,
        "from Produce version 3 on only batches of magic 2 are allowed, this is a message set",
    ),
    Fault.MESSAGE_SET_UNSUPPORTED: (
        UnsupportedForMessageFormatError,
        "message sets (magic 0 and 1) are not accepted here, only batches (magic 2)",
    ),
    Fault.ZSTD_TOO_EARLY: (UnsupportedCompressionTypeError, "zstd needs Produce version 7 or later"),
    Fault.SECOND_BATCH: (
        InvalidRecordError,
        "a produce request may hold only one single record batch for each partition",
    ),
    Fault.BASE_OFFSET: (InvalidRecordError, "the base offset of a batch from a client must be 0"),
    Fault.TOO_LARGE: (MessageTooLargeError, "the batch is larger than max.message.bytes allows"),
    Fault.CRC: (CorruptMessageError, "the CRC in the header does not match the bytes of the batch"),
    Fault.RECORD_COUNT: (InvalidRecordError, "the count of records in the header is not positive"),
    Fault.OFFSET_RANGE: (
        InvalidRecordError,
        "the last offset delta in the header is not the count of records less one",
    ),
    Fault.CODEC: (InvalidRecordError, "no codec has the number in the attributes"),
    Fault.CONTROL: (InvalidRecordError, "clients are not allowed to write control records"),
    Fault.SEQUENCE: (InvalidRecordError, "a batch with a producer id has no valid base sequence"),
    Fault.SECOND_MESSAGE: (InvalidRecordError, "a compressed message may not have others beside it in its message set"),
}

_REJECTIONS = {
    Rejection.KEY_MISSING: "Compacted topic cannot accept message without key",
    Rejection.TIMESTAMP_OUT_OF_RANGE: "Timestamp is out of the range of message.timestamp.before.max.ms and message.timestamp.after.max.ms",  # noqa: E501
    Rejection.TIMESTAMP_TYPE: "Producer should not set the timestamp type to LogAppendTime",
}


class RecordError(NamedTuple):
    """One rejected record: its index in the batch (from 0) and the reason."""

    batch_index: int
    message: str


class RecordErrors(KafkaError):
    """Base class of the errors that name single records, in `record_errors`. The response to Produce v8 and later
    contains them."""

    record_errors: tuple[RecordError, ...] = ()

    @property
    def batch_index(self) -> int:
        """The index in the batch of the first rejected record."""
        return self.record_errors[0].batch_index


class RejectedRecordsError(RecordErrors, InvalidRecordError):
    """An INVALID_RECORD error that names the rejected records."""

    code = InvalidRecordError.code


class RejectedTimestampsError(RecordErrors, InvalidTimestampError):
    """An INVALID_TIMESTAMP error that names the rejected records."""

    code = InvalidTimestampError.code


def raise_fault(fault: int, index: int = 0) -> NoReturn:
    """Raises the error for a structural fault. `index` is the index of the faulty record in the batch."""
    kind = Fault(fault)
    text = _RECORD_FAULTS.get(kind)
    if text is not None:
        raise InvalidRecordError(f"record {index} of the batch: {text}")
    error, text = _BATCH_FAULTS[kind]
    raise error(text)


def raise_rejections(rejections: Sequence[tuple[int, int]], total: int) -> NoReturn:
    """Raises the error for rejected records. `rejections` has the index and the `Rejection` of the first rejected
    records; `total` is the number of all rejected records. The error is INVALID_TIMESTAMP if any rejection is about
    timestamps, as in Kafka."""
    errors = tuple(RecordError(index, _REJECTIONS[Rejection(kind)]) for index, kind in rejections)
    shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:3])
    message = f"{total} records of the batch were rejected, the first ones: {shown}"
    refusal: RecordErrors
    if any(kind != Rejection.KEY_MISSING for _, kind in rejections):
        refusal = RejectedTimestampsError(message)
    else:
        refusal = RejectedRecordsError(message)
    refusal.record_errors = errors
    raise refusal
