"""The refusals of a produced batch. The expected errors are those of Apache Kafka 4.3.1, unless a case notes that its
check is weaker."""

from __future__ import annotations

import time
from struct import pack

import pytest

from jesenska.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from jesenska.records.batch import BatchHeader, Codec, read_header, verify_crc
from jesenska.records.check import CheckRules, MovingRules, check_batches, check_within
from jesenska.records.compression import compress
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from jesenska.records.faults import REJECTED_RECORDS_NAMED_MAX, RecordErrors
from tests.units.records.raw_batches import NOW_MS, raw_batch, raw_record, varint

HOUR_MS = 3_600_000
RULES = CheckRules(latest_timestamp_ms=NOW_MS + HOUR_MS)
COMPACTED = RULES._replace(key_required=True)
APPEND_TIME = RULES._replace(log_append_time=True)
THREE = [raw_record(0), raw_record(1), raw_record(2)]
BODY = b"".join(THREE)
GOOD = raw_batch(BODY, 3)

REFUSED: dict[str, tuple[type[KafkaError], bytes | bytearray]] = {
    "nothing": (InvalidRecordError, b""),
    "a part of a batch": (InvalidRecordError, GOOD[:40]),
    "one byte missing": (InvalidRecordError, GOOD[:-1]),
    "two batches": (InvalidRecordError, GOOD + GOOD),
    "nonsense behind the batch": (CorruptMessageError, GOOD + b"x" * 30),
    "zeros behind the batch": (CorruptMessageError, GOOD + bytes(30)),
    "magic 0": (InvalidRecordError, raw_batch(BODY, 3, magic=0)),
    "magic 1": (InvalidRecordError, raw_batch(BODY, 3, magic=1)),
    "magic 3": (CorruptMessageError, raw_batch(BODY, 3, magic=3)),
    "magic -1": (CorruptMessageError, raw_batch(BODY, 3, magic=-1)),
    "length below any batch": (CorruptMessageError, raw_batch(BODY, 3, batch_length=13)),
    "length below a header": (CorruptMessageError, raw_batch(BODY, 3, batch_length=20)),
    "length negative": (CorruptMessageError, raw_batch(BODY, 3, batch_length=-5)),
    "length 2 GiB": (InvalidRecordError, raw_batch(BODY, 3, batch_length=(1 << 31) - 1)),
    "length one short": (CorruptMessageError, raw_batch(BODY, 3, batch_length=len(GOOD) - 13)),
    "base offset not 0": (InvalidRecordError, raw_batch(BODY, 3, base_offset=5)),
    "wrong CRC": (CorruptMessageError, raw_batch(BODY, 3, crc=1)),
    "control batch": (InvalidRecordError, raw_batch(BODY, 3, attributes=0x20)),
    "producer id without sequence": (InvalidRecordError, raw_batch(BODY, 3, producer_id=5, producer_epoch=0)),
    "count 0": (InvalidRecordError, raw_batch(b"", 0)),
    "count negative": (InvalidRecordError, raw_batch(BODY, -1, last_offset_delta=2)),
    "count below the offset range": (InvalidRecordError, raw_batch(BODY, 2, last_offset_delta=2)),
    "count below the records": (InvalidRecordError, raw_batch(BODY, 2)),
    "count above the records": (InvalidRecordError, raw_batch(BODY, 4)),
    "count 2147483647": (InvalidRecordError, raw_batch(BODY, (1 << 31) - 1)),
    "last offset delta negative": (InvalidRecordError, raw_batch(BODY, 3, last_offset_delta=-1)),
    "last offset delta too large": (InvalidRecordError, raw_batch(BODY, 3, last_offset_delta=5)),
    "key longer than the record": (InvalidRecordError, raw_batch(raw_record(0, key_length=50), 1)),
    "key length 2147483647": (InvalidRecordError, raw_batch(raw_record(0, key_length=(1 << 31) - 1), 1)),
    "value longer than the record": (InvalidRecordError, raw_batch(raw_record(0, value_length=3), 1)),
    "header count negative": (InvalidRecordError, raw_batch(raw_record(0, header_count=-1), 1)),
    "header count too large": (InvalidRecordError, raw_batch(raw_record(0, header_count=100), 1)),
    "header missing": (InvalidRecordError, raw_batch(raw_record(0, header_count=1), 1)),
    "header without key": (
        InvalidRecordError,
        raw_batch(raw_record(0, header_count=1, tail=varint(-1) + varint(-1)), 1),
    ),
    "bytes left in a record": (InvalidRecordError, raw_batch(raw_record(0, tail=b"z"), 1)),
    "record length too large": (InvalidRecordError, raw_batch(raw_record(0, length_error=1), 1)),
    "record length too small": (InvalidRecordError, raw_batch(raw_record(0, length_error=-1), 1)),
    "record length 0": (InvalidRecordError, raw_batch(varint(0), 1)),
    "record length negative": (InvalidRecordError, raw_batch(varint(-3), 1)),
    "record length of five bytes": (InvalidRecordError, raw_batch(b"\xff\xff\xff\xff\x7f" + bytes(20), 1)),
    "bytes after the records": (InvalidRecordError, raw_batch(BODY + b"zz", 3)),
    "timestamp of eleven bytes": (
        InvalidRecordError,
        raw_batch(varint(17) + b"\0" + b"\xff" * 10 + b"\1" + bytes(5), 1),
    ),
    # Kafka takes these, or fails with UNKNOWN_SERVER_ERROR.
    "record length of six bytes": (InvalidRecordError, raw_batch(b"\xff" * 6 + bytes(20), 1)),
    "codec 5": (InvalidRecordError, raw_batch(BODY, 3, attributes=5)),
    "codec 7": (InvalidRecordError, raw_batch(BODY, 3, attributes=7)),
    "offset deltas with a gap": (InvalidRecordError, raw_batch(raw_record(0) + raw_record(5), 2)),
    "offset deltas in reverse": (InvalidRecordError, raw_batch(raw_record(1) + raw_record(0), 2)),
    "key length -5": (InvalidRecordError, raw_batch(raw_record(0, key=None, key_length=-5), 1)),
    "value length -2": (InvalidRecordError, raw_batch(raw_record(0, value=None, value_length=-2), 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(twin: str, name: str) -> None:
    error, batch = REFUSED[name]
    with pytest.raises(error):
        check_batches(bytearray(batch), RULES)


TAKEN = {
    "plain": GOOD,
    "a few bytes behind the batch": GOOD + b"x" * 10,
    "a part of a batch behind it": GOOD + GOOD[:-1],
    "leader epoch of a client": raw_batch(BODY, 3, leader_epoch=9),
    "delete horizon bit": raw_batch(BODY, 3, attributes=0x40),
    "unknown attribute bits": raw_batch(BODY, 3, attributes=0x1000),
    "producer id without epoch": raw_batch(BODY, 3, producer_id=5, base_sequence=0),
    "sequence without producer id": raw_batch(BODY, 3, producer_epoch=0, base_sequence=0),
    "transactional": raw_batch(BODY, 3, attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=0),
    "record attributes": raw_batch(raw_record(0, attributes=0x7F), 1),
    "numbers longer than needed": raw_batch(varint(9) + b"\0" + b"\x80\x80\0" + b"\x80\0" + b"\1\1\0", 1),
    "headers": raw_batch(raw_record(0, headers=[(b"a", b"b"), (b"", None), (b"\xff", b"")]), 1),
    "all null": raw_batch(raw_record(0, None, None), 1),
}


@pytest.mark.parametrize("name", TAKEN)
def test_takes(twin: str, name: str) -> None:
    batch = bytearray(TAKEN[name])
    (header,) = check_batches(batch, RULES)
    assert header == read_header(batch)
    assert batch == TAKEN[name]


def test_message_sets_of_old_produce_versions_are_unsupported(twin: str) -> None:
    for magic in (0, 1):
        with pytest.raises(UnsupportedForMessageFormatError):
            check_batches(raw_batch(BODY, 3, magic=magic), RULES, produce_version=2)


def test_zstd_needs_produce_version_7(twin: str) -> None:
    batch = encode_batch([(NOW_MS, b"k", b"v", ())], Codec.ZSTD)
    with pytest.raises(UnsupportedCompressionTypeError):
        check_batches(batch, RULES, produce_version=6)
    assert check_batches(batch, RULES, produce_version=7)[0].codec == Codec.ZSTD


def test_size_is_judged_before_the_crc_and_to_the_byte(twin: str) -> None:
    broken = raw_batch(BODY, 3, crc=1)
    with pytest.raises(MessageTooLargeError):
        check_batches(broken, RULES._replace(max_message_bytes=len(broken) - 1))
    assert check_batches(bytearray(GOOD), RULES._replace(max_message_bytes=len(GOOD)))[0].size_bytes == len(GOOD)


@pytest.mark.parametrize("codec", Codec)
def test_compacted_topic_names_each_record_without_key(twin: str, codec: Codec) -> None:
    records = [(NOW_MS, None if index in (1, 3) else b"", b"v", ()) for index in range(5)]
    with pytest.raises(InvalidRecordError) as refusal:
        check_batches(encode_batch(records, codec), COMPACTED)
    assert isinstance(refusal.value, RecordErrors)
    assert [error.batch_index for error in refusal.value.record_errors] == [1, 3]
    assert refusal.value.batch_index == 1
    assert "without key" in refusal.value.record_errors[0].message


def test_a_broken_record_outweighs_rejected_ones(twin: str) -> None:
    with pytest.raises(InvalidRecordError) as refusal:
        check_batches(raw_batch(raw_record(0, key=None) + raw_record(1, tail=b"z"), 2), COMPACTED)
    assert not isinstance(refusal.value, RecordErrors)


def test_a_bad_time_outweighs_a_missing_key(twin: str) -> None:
    body = raw_record(0) + raw_record(1, key=None) + raw_record(2, timestamp_delta=2 * HOUR_MS)
    with pytest.raises(InvalidTimestampError) as refusal:
        check_batches(raw_batch(body, 3), COMPACTED)
    assert isinstance(refusal.value, RecordErrors)
    assert [error.batch_index for error in refusal.value.record_errors] == [1, 2]


def test_many_rejected_records_are_named_up_to_the_limit(twin: str) -> None:
    records = [(NOW_MS, None, b"v", ())] * (REJECTED_RECORDS_NAMED_MAX + 50)
    with pytest.raises(InvalidRecordError) as refusal:
        check_batches(encode_batch(records), COMPACTED)
    assert isinstance(refusal.value, RecordErrors)
    assert len(refusal.value.record_errors) == REJECTED_RECORDS_NAMED_MAX
    assert str(REJECTED_RECORDS_NAMED_MAX + 50) in refusal.value.message


@pytest.mark.parametrize("codec", Codec)
def test_times_are_held_to_both_limits_inclusively(twin: str, codec: Codec) -> None:
    rules = CheckRules(earliest_timestamp_ms=1000, latest_timestamp_ms=2000)
    for timestamp in (1000, 2000, -1):
        assert check_batches(encode_batch([(timestamp, b"k", b"v", ())], codec), rules)[0].max_timestamp == timestamp
    for timestamp in (999, 2001, -2):
        with pytest.raises(InvalidTimestampError):
            check_batches(encode_batch([(1500, b"k", b"v", ()), (timestamp, b"k", b"v", ())], codec), rules)


def test_log_append_time_topics_look_at_no_time(twin: str) -> None:
    batch = encode_batch([(NOW_MS + 100 * HOUR_MS, b"k", b"v", ())])
    before = bytes(batch)
    assert check_batches(batch, APPEND_TIME)[0].max_timestamp == NOW_MS + 100 * HOUR_MS
    assert batch == before


@pytest.mark.parametrize("codec", Codec)
def test_a_client_that_sets_log_append_time_is_refused_on_such_a_topic_and_corrected_on_others(
    twin: str, codec: Codec
) -> None:
    batch = raw_batch(compress(codec, BODY), 3, attributes=codec | 8)
    with pytest.raises(InvalidTimestampError) as refusal:
        check_batches(bytearray(batch), APPEND_TIME)
    assert isinstance(refusal.value, RecordErrors)
    assert [error.batch_index for error in refusal.value.record_errors] == [0, 1, 2]
    (header,) = check_batches(batch, RULES)
    assert header.attributes == codec
    assert header == read_header(batch)
    verify_crc(batch)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("claimed", [NOW_MS - 7777, NOW_MS + 1000 * HOUR_MS, -1])
def test_a_header_that_lies_about_its_largest_time_is_corrected_with_its_crc(
    twin: str, codec: Codec, claimed: int
) -> None:
    body = raw_record(0) + raw_record(1, timestamp_delta=7) + raw_record(2, timestamp_delta=3)
    batch = raw_batch(compress(codec, body), 3, attributes=codec, max_timestamp=claimed)
    (header,) = check_batches(batch, RULES)
    assert header.max_timestamp == NOW_MS + 7
    assert header == read_header(batch)
    verify_crc(batch)
    assert [record.timestamp_ms for record in decode_batch(batch)] == [NOW_MS, NOW_MS + 7, NOW_MS + 3]


def test_a_batch_to_correct_in_a_read_only_buffer_is_an_error_of_the_caller(twin: str) -> None:
    with pytest.raises(TypeError):
        check_batches(memoryview(bytes(raw_batch(BODY, 3, max_timestamp=5))), RULES)


def test_negative_times_leave_no_largest_time_as_in_kafka(twin: str) -> None:
    batch = raw_batch(raw_record(0), 1, base_timestamp=-5)
    assert check_batches(batch, RULES)[0].max_timestamp == -1


def test_a_sum_of_timestamps_beyond_64_bits_wraps(twin: str) -> None:
    batch = raw_batch(raw_record(0, timestamp_delta=1), 1, base_timestamp=(1 << 63) - 1)
    with pytest.raises(InvalidTimestampError):
        check_batches(batch, RULES._replace(earliest_timestamp_ms=0))


@pytest.mark.parametrize("codec", list(Codec)[1:])
@pytest.mark.parametrize(
    "body", [BODY[:-1], BODY + b"\0", raw_record(1), raw_record(0, length_error=1), raw_record(0, tail=b"x"), b""]
)
def test_compressed_records_that_lie_are_refused(twin: str, codec: Codec, body: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        check_batches(raw_batch(compress(codec, body), 3, attributes=codec), RULES)


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_bomb_is_refused_before_it_is_large(twin: str, codec: Codec) -> None:
    record = raw_record(0, value=bytes(40_000_000))
    batch = raw_batch(compress(codec, record), 1, attributes=codec)
    rules = RULES._replace(decompressed_max_bytes=1_000_000, max_message_bytes=100_000_000)
    with pytest.raises(InvalidRecordError, match="once decompressed"):
        check_batches(batch, rules)
    assert check_batches(batch, rules._replace(decompressed_max_bytes=len(record)))[0].record_count == 1


def test_a_lying_count_costs_no_memory_and_no_time(twin: str) -> None:
    began = time.process_time()
    with pytest.raises(InvalidRecordError):
        check_batches(raw_batch(BODY, (1 << 31) - 1), COMPACTED)
    assert time.process_time() - began < 1


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_check_with_a_budget_gives_up_past_it_and_changes_nothing(twin: str, codec: Codec) -> None:
    batch = encode_batch([(NOW_MS, None, bytes(50_000), ())] * 4, codec)
    before = bytes(batch)
    checked, made = check_within(batch, RULES, 13, 100_000)
    assert checked is None
    assert 100_000 < made < 200_000
    assert batch == before
    checked, made = check_within(batch, RULES, 13, 1_000_000)
    assert checked == check_batches(batch, RULES)
    assert 200_000 < made < 201_000


def test_an_uncompressed_batch_takes_nothing_of_a_budget(twin: str) -> None:
    batch = encode_batch([(NOW_MS, None, bytes(50_000), ())])
    assert check_within(batch, RULES, 13, 0) == (check_batches(batch, RULES), 0)


def test_the_header_comes_with_the_fields_that_the_bytes_have(twin: str) -> None:
    batch = raw_batch(
        BODY, 3, leader_epoch=4, producer_id=1 << 40, producer_epoch=7, base_sequence=(1 << 31) - 2, attributes=0x10
    )
    (header,) = check_batches(batch, RULES)
    assert type(header) is BatchHeader
    assert header[:5] == (0, len(batch) - 12, 4, 2, int.from_bytes(batch[17:21], "big"))
    assert header[5:] == (0x10, 2, NOW_MS, NOW_MS, 1 << 40, 7, (1 << 31) - 2, 3)
    assert header.last_sequence == 0
    assert pack(">qiibIhiqqqhii", *header) == batch[:61]


_NO_LIMIT, _BEGINNING = 2**63 - 1, -(2**63)


@pytest.mark.parametrize(
    ("before_max_ms", "after_max_ms", "earliest_ms", "latest_ms"),
    [
        (_NO_LIMIT, HOUR_MS, _BEGINNING + 1 + NOW_MS, NOW_MS + HOUR_MS),
        (HOUR_MS, _NO_LIMIT, NOW_MS - HOUR_MS, _NO_LIMIT),
        (HOUR_MS, HOUR_MS, NOW_MS - HOUR_MS, NOW_MS + HOUR_MS),
        (_NO_LIMIT, _NO_LIMIT, _BEGINNING, _NO_LIMIT),
        (_NO_LIMIT, _NO_LIMIT - 1, _BEGINNING, _NO_LIMIT),  # beyond every time
    ],
)
def test_limits_of_time_move_with_the_clock(
    before_max_ms: int, after_max_ms: int, earliest_ms: int, latest_ms: int
) -> None:
    rules = MovingRules(CheckRules(), before_max_ms, after_max_ms).at(NOW_MS)
    assert (rules.earliest_timestamp_ms, rules.latest_timestamp_ms) == (earliest_ms, latest_ms)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_time_whose_distance_is_no_int64_is_out_of_range(twin: str, codec: Codec) -> None:
    rules = MovingRules(CheckRules(), _NO_LIMIT, HOUR_MS).at(NOW_MS)
    first = _BEGINNING + 1 + NOW_MS
    check_batches(encode_batch([(first, None, b"v", ())], codec), rules)
    for timestamp in (first - 1, _BEGINNING):
        with pytest.raises(InvalidTimestampError):
            check_batches(encode_batch([(timestamp, None, b"v", ())], codec), rules)
