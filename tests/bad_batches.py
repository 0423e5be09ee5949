"""Records that a broker must refuse, with the code of each: the broker's tests send them to us, the conformance tests
to Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from jesenska.base.errors import ErrorCode
from jesenska.records.compression import compress
from jesenska.records.header import Codec
from tests.units.records.raw_batches import raw_batch, raw_record, varint


@dataclass(frozen=True)
class BadBatch:
    records: bytes
    code: ErrorCode
    configs: Mapping[str, str] = field(default_factory=dict)
    partition: int = 0
    acks: int = -1
    #: What Kafka answers where that is something else: an exception that it did not foresee, or it takes what it
    #: should not.
    kafka: ErrorCode | None = None


def _good() -> bytes:
    return bytes(raw_batch(raw_record(0) + raw_record(1), 2))


def _compressed(codec: Codec, body: bytes, count: int = 2) -> bytes:
    return bytes(raw_batch(body, count, attributes=codec))


def bad_batches() -> dict[str, BadBatch]:
    """By what is wrong with them."""
    good = _good()
    invalid, corrupt = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
    two = raw_record(0) + raw_record(1)
    hour_ms = 3_600_000
    unforeseen = ErrorCode.UNKNOWN_SERVER_ERROR
    found = {
        "wrong CRC": BadBatch(bytes(raw_batch(two, 2, crc=1)), corrupt),
        "cut inside the records": BadBatch(good[:-3], invalid),
        "cut inside the header": BadBatch(good[:40], invalid),
        "cut inside the length": BadBatch(good[:7], invalid),
        "no records at all": BadBatch(b"", invalid),
        "a batch without records": BadBatch(bytes(raw_batch(b"", 0)), invalid),
        "two batches": BadBatch(good + good, invalid),
        "bytes behind the batch": BadBatch(good + b"\0" * 20, corrupt),
        "count too high": BadBatch(bytes(raw_batch(two, 3)), invalid),
        "count too low": BadBatch(bytes(raw_batch(two, 1)), invalid),
        "count beyond all memory": BadBatch(bytes(raw_batch(two, 2**31 - 1)), invalid),
        "count below zero": BadBatch(bytes(raw_batch(two, -5, last_offset_delta=1)), invalid),
        "last offset delta lies": BadBatch(bytes(raw_batch(two, 2, last_offset_delta=7)), invalid),
        "batch length too small": BadBatch(bytes(raw_batch(two, 2, batch_length=20)), corrupt),
        "batch length below zero": BadBatch(bytes(raw_batch(two, 2, batch_length=-20)), corrupt),
        "batch length too large": BadBatch(bytes(raw_batch(two, 2, batch_length=2**31 - 1)), invalid, kafka=unforeseen),
        "unknown magic": BadBatch(bytes(raw_batch(two, 2, magic=9)), corrupt),
        "magic below zero": BadBatch(bytes(raw_batch(two, 2, magic=-1)), corrupt),
        "record longer than it is": BadBatch(
            bytes(raw_batch(raw_record(0, length_error=5) + raw_record(1), 2)), invalid
        ),
        "record length beyond the batch": BadBatch(bytes(raw_batch(varint(2**30) + b"abc", 1)), invalid),
        "record length below zero": BadBatch(bytes(raw_batch(varint(-7) + b"abc", 1)), invalid),
        "key length beyond the record": BadBatch(bytes(raw_batch(raw_record(0, key_length=1000), 1)), invalid),
        "key length below zero": BadBatch(bytes(raw_batch(raw_record(0, key_length=-9), 1)), invalid),
        "value length beyond the record": BadBatch(bytes(raw_batch(raw_record(0, value_length=1000), 1)), invalid),
        "header count below zero": BadBatch(bytes(raw_batch(raw_record(0, header_count=-1), 1)), invalid),
        "header count beyond the record": BadBatch(bytes(raw_batch(raw_record(0, header_count=1_000_000), 1)), invalid),
        "offset deltas out of order": BadBatch(
            bytes(raw_batch(raw_record(1) + raw_record(0), 2)), invalid, kafka=ErrorCode.NONE
        ),
        "control batch": BadBatch(bytes(raw_batch(two, 2, attributes=0x20)), invalid),
        "unknown codec 5": BadBatch(bytes(raw_batch(two, 2, attributes=5)), invalid, kafka=unforeseen),
        "idempotent, sequence below zero": BadBatch(
            bytes(raw_batch(two, 2, producer_id=5, producer_epoch=0, base_sequence=-1)), invalid
        ),
        "no key on a compacted topic": BadBatch(
            bytes(raw_batch(raw_record(0, key=None), 1)), invalid, {"cleanup.policy": "compact"}
        ),
        "time too far ahead": BadBatch(
            bytes(raw_batch(raw_record(0), 1, base_timestamp=int(time.time() * 1000) + 3 * hour_ms)),
            ErrorCode.INVALID_TIMESTAMP,
            {"message.timestamp.after.max.ms": str(hour_ms)},
        ),
        "time so long ago that Kafka takes it for the future": BadBatch(
            bytes(raw_batch(raw_record(0), 1, base_timestamp=-(2**63))),
            ErrorCode.INVALID_TIMESTAMP,
            {"message.timestamp.after.max.ms": str(hour_ms)},
        ),
        "time before any limit": BadBatch(
            bytes(raw_batch(raw_record(0), 1, base_timestamp=-(2**63))),
            ErrorCode.INVALID_TIMESTAMP,
            {"message.timestamp.before.max.ms": str(10**6 * hour_ms), "message.timestamp.after.max.ms": str(2**63 - 1)},
            kafka=ErrorCode.NONE,
        ),
        "larger than the topic allows": BadBatch(
            bytes(raw_batch(raw_record(0, value=bytes(5000)), 1)),
            ErrorCode.MESSAGE_TOO_LARGE,
            {"max.message.bytes": "4000"},
        ),
        "a partition that is not there": BadBatch(good, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition=77),
        "a partition below zero": BadBatch(good, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition=-1),
        "acks of no meaning": BadBatch(good, ErrorCode.INVALID_REQUIRED_ACKS, acks=3),
    }
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        name = codec.name.lower()
        packed = compress(codec, two)
        found |= {
            f"{name} of nonsense": BadBatch(_compressed(codec, b"\x82nonsense" * 9), invalid, kafka=unforeseen),
            f"{name} cut short": BadBatch(_compressed(codec, packed[: len(packed) // 2]), invalid, kafka=unforeseen),
            f"{name} of nothing": BadBatch(
                _compressed(codec, b""), invalid, kafka=None if codec == Codec.ZSTD else unforeseen
            ),
            f"{name}, count too high": BadBatch(_compressed(codec, packed, 3), invalid),
            f"{name}, count too low": BadBatch(_compressed(codec, packed, 1), invalid),
            f"{name} of nonsense records": BadBatch(_compressed(codec, compress(codec, b"\xff" * 100)), invalid),
        }
    return found
