"""The checks of a client's batch before the leader appends it, in Kafka's order and with the error codes of Apache
Kafka 4.3.1:

    frame      no whole batch, a second batch, a message set, base offset not 0   INVALID_RECORD
               impossible length or magic                                         CORRUPT_MESSAGE
               zstd in a Produce below version 7                                  UNSUPPORTED_COMPRESSION_TYPE
    size       over max.message.bytes                                             MESSAGE_TOO_LARGE
    CRC                                                                           CORRUPT_MESSAGE
    header     count, last offset delta, control bit, base sequence               INVALID_RECORD
    records    do not match the header or their own lengths                           INVALID_RECORD
               no key on a compacted topic                                        INVALID_RECORD, names the records
               time out of the topic's limits, or log append time set by a client INVALID_TIMESTAMP, names the records

A few bytes after the batch, too few for another batch, are not an error. They must not be appended: append only
`size_bytes` of the header.

Some checks are stricter than Kafka's and return INVALID_RECORD: offset deltas that are not 0, 1, 2 … (Kafka accepts
them uncompressed and fails with UNKNOWN_SERVER_ERROR compressed), negative lengths other than -1 (Kafka reads them as
null), a record in a compressed batch whose length field is wrong, an unknown codec and an unreadable compressed stream
(UNKNOWN_SERVER_ERROR in Kafka).

If the header of a create-time batch has a wrong largest timestamp, or has log append time set, it is corrected in
place, with a new CRC. The corrected header is returned. Sequence numbers, transactions and authorisation are checked
elsewhere, since they need state; message sets are converted in message_set.py."""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.limits import DECOMPRESSED_BATCH_MAX_BYTES
from jesenska.records import codec
from jesenska.records.compression import decompress_pieces
from jesenska.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, Codec

NEWEST_PRODUCE_VERSION = 13
_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1


class CheckRules(NamedTuple):
    """The rules of a topic for batches. The earliest and latest timestamp are absolute times, which `MovingRules`
    computes from the clock. A record without a timestamp (-1) is always accepted. Under log append time the timestamps
    of records are not checked."""

    max_message_bytes: int = 1048588
    key_required: bool = False
    log_append_time: bool = False
    earliest_timestamp_ms: int = _INT64_MIN
    latest_timestamp_ms: int = _INT64_MAX
    decompressed_max_bytes: int = DECOMPRESSED_BATCH_MAX_BYTES
    #: The codec with which the topic's batches are stored; -1 means the codec that the producer chose. The caller does
    #: the compression.
    codec: int = -1
    #: The compression level on that codec's own scale; None for its default.
    level: int | None = None

    def wants_other_codec(self, header: BatchHeader) -> bool:
        """Returns true if the batch must be compressed again because the topic has another codec."""
        return self.codec >= 0 and header.attributes & CODEC_MASK != self.codec


class MovingRules:
    """The rules of a topic whose time limits depend on the clock: message.timestamp.before.max.ms and
    message.timestamp.after.max.ms. A limit of the largest int64 means no limit.

    If either limit is set, a timestamp more than 2^63 - 1 ms in the past is also refused. In Apache Kafka the
    difference to the present time then overflows, so that the timestamp counts as a time in the future."""

    __slots__ = ("_after_max_ms", "_before_max_ms", "_made_at_ms", "_moves", "_rules")

    def __init__(self, rules: CheckRules, before_max_ms: int, after_max_ms: int) -> None:
        self._before_max_ms = before_max_ms
        self._after_max_ms = after_max_ms
        self._moves = not rules.log_append_time and (before_max_ms < _INT64_MAX or after_max_ms < _INT64_MAX)
        self._rules = rules
        self._made_at_ms = -1

    def at(self, now_ms: int) -> CheckRules:
        """Returns the rules at the time `now_ms`. The result of the last call is cached, because many requests arrive
        within one millisecond."""
        if self._moves and now_ms != self._made_at_ms:
            rules = self._rules
            latest_ms = min(now_ms + self._after_max_ms, _INT64_MAX)
            is_limited = self._before_max_ms < _INT64_MAX or latest_ms < _INT64_MAX
            earliest_ms = now_ms - self._before_max_ms if is_limited else _INT64_MIN
            self._rules = rules._replace(
                log_append_time=False, earliest_timestamp_ms=earliest_ms, latest_timestamp_ms=latest_ms
            )
            self._made_at_ms = now_ms
        return self._rules


def check_batches(
    buffer: bytearray | memoryview, rules: CheckRules, produce_version: int = NEWEST_PRODUCE_VERSION
) -> list[BatchHeader]:
    """Returns the headers of the batches to append. The list always has exactly one header, since Kafka allows one
    batch per partition and request. Raises the errors listed at the top of this module. The buffer must be writable,
    because a batch may have to be corrected."""
    checked, _ = check_within(buffer, rules, produce_version, _INT64_MAX)
    assert checked is not None
    return checked


def check_within(
    buffer: bytearray | memoryview, rules: CheckRules, produce_version: int, budget_bytes: int
) -> tuple[list[BatchHeader] | None, int]:
    """Checks like `check_batches`, for a caller with little time. Returns None in place of the headers, and changes
    nothing, if a compressed batch decompresses to more than `budget_bytes`. The second value is the number of
    decompressed bytes."""
    header = codec.check_batch(
        buffer,
        produce_version,
        rules.max_message_bytes,
        rules.key_required,
        rules.log_append_time,
        rules.earliest_timestamp_ms,
        rules.latest_timestamp_ms,
    )
    if not header.attributes & CODEC_MASK:
        return [header], 0
    walker = codec.Walker(
        header.record_count,
        header.base_timestamp,
        rules.key_required,
        not rules.log_append_time,
        header.has_log_append_time,
        rules.earliest_timestamp_ms,
        rules.latest_timestamp_ms,
    )
    feed = walker.feed
    made = 0
    with memoryview(buffer) as view:
        for piece in decompress_pieces(
            Codec(header.attributes & CODEC_MASK), view[HEADER_SIZE : header.size_bytes], rules.decompressed_max_bytes
        ):
            made += len(piece)
            if made > budget_bytes:
                return None, made
            feed(piece)
    max_timestamp = walker.finish()
    if not rules.log_append_time:
        header = codec.set_max_timestamp(buffer, 0, header, max_timestamp, False)
    return [header], made
