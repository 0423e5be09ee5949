"""Message sets of formats v0 and v1: written, read, made into batches and made of them."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from jesenska.records import codec as records_codec
from jesenska.records.batch import stamp_append_time
from jesenska.records.check import CheckRules
from jesenska.records.compression import compress, with_old_lz4_checksum, with_true_lz4_checksum
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch, seal_batch
from jesenska.records.header import HEADER_SIZE, Codec, TimestampType
from jesenska.records.message_set import TakesLongerError, codec_of, decode_message_set, from_batches, to_batch
from jesenska.records.pure import _pmessages
from tests.units.records.old_messages import OLD_CODECS, Row, message_set
from tests.units.records.twins import COMPILED, TWINS, using

_ROWS = st.lists(
    st.tuples(st.integers(-1, 1 << 45), st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60)),
    min_size=1,
    max_size=30,
)
#: A place, and the bits of it to turn.
_FLIPS = st.tuples(st.integers(0, 1 << 16), st.integers(1, 255))


def test_a_message_is_laid_out_as_documented(twin: str) -> None:
    out = bytearray()
    records_codec.append_message(out, 7, 1, 0, 1_500_000_000_000, b"k", b"value")
    body = struct.pack(">bbq", 1, 0, 1_500_000_000_000) + struct.pack(">i", 1) + b"k" + struct.pack(">i", 5) + b"value"
    assert bytes(out) == struct.pack(">qiI", 7, len(body) + 4, zlib.crc32(body)) + body
    out = bytearray()
    records_codec.append_message(out, 7, 0, 0, -1, None, None)
    body = struct.pack(">bbii", 0, 0, -1, -1)
    assert bytes(out) == struct.pack(">qiI", 7, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("twin_name", TWINS)
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@given(rows=_ROWS)
def test_what_a_producer_sends_becomes_one_batch(twin_name: str, codec: Codec, magic: int, rows: list[Row]) -> None:
    with using(twin_name):
        made = to_batch(message_set(rows, magic, codec), CheckRules())
    assert made is not None
    assert made.header.codec == codec
    assert made.header.record_count == len(rows)
    wanted = [(index, row[0] if magic else -1, row[1], row[2], ()) for index, row in enumerate(rows)]
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decode_batch(made.batch)] == wanted
    assert made.header.max_timestamp == max(row[1] for row in wanted)


@pytest.mark.parametrize("twin_name", TWINS)
@given(
    kinds=st.lists(st.sampled_from(["none", "append time", "lz4", "control", "empty"]), max_size=8),
    magic=st.integers(0, 1),
    start=st.integers(0, 30),
    cut=st.integers(0, 80),
)
def test_batches_in_a_row_become_one_set(twin_name: str, kinds: list[str], magic: int, start: int, cut: int) -> None:
    rows = [(number, b"k", b"v" * number, ((b"h", b"x"),)) for number in range(4)]
    batches, pieces = bytearray(), []
    with using(twin_name):
        for index, kind in enumerate(kinds):
            if kind == "empty":  # as compaction leaves them
                batch = seal_batch(bytearray(HEADER_SIZE), 0, 0, 0, -1, base_offset=4 * index, last_offset_delta=3)
            elif kind == "control":
                batch = encode_batch([(0, b"\0\0\0\1", b"\0" * 6, ())], base_offset=4 * index, is_control=True)
            else:
                batch = encode_batch(rows, Codec.LZ4 if kind == "lz4" else Codec.NONE, base_offset=4 * index)
            if kind == "append time":
                stamp_append_time(batch, 0, 99)
            batches += batch
            pieces.append(batch)
        part = encode_batch(rows, base_offset=4 * len(kinds))
        whole = from_batches(batches + part[: min(cut, len(part) - 1)], magic, start)
        assert whole == b"".join(from_batches(piece, magic, start) for piece in pieces)
        for used in (0, len(whole), 2 * len(whole) + 100):
            assert (
                from_batches(batches + part[: min(cut, len(part) - 1)], magic, start, bytearray(b"\xff" * used))
                == whole
            )
    wanted = [
        4 * index + number
        for index, kind in enumerate(kinds)
        for number in range(4)
        if kind in ("none", "append time", "lz4")
    ]
    found = [record.offset for record in decode_message_set(whole)]
    assert found == [offset for offset in wanted if offset >= start or kinds[offset // 4] == "lz4"]


@pytest.mark.parametrize("twin_name", TWINS)
def test_what_is_before_a_batch_at_fault_is_given(twin_name: str) -> None:
    good, bad = encode_batch([(1, b"k", b"v", ())]), encode_batch([(1, b"k", b"v", ())], base_offset=1)
    bad[61] = 0x7E  # the length of the record
    with using(twin_name):
        assert from_batches(good + bad, 1) == from_batches(good, 1)
        assert from_batches(good + encode_batch([(1, None, b"v", ())], Codec.ZSTD), 0) == from_batches(good, 0)
        with pytest.raises(InvalidRecordError):
            from_batches(bad + good, 1)
        with pytest.raises(UnsupportedCompressionTypeError):
            from_batches(encode_batch([(1, None, b"v", ())], Codec.ZSTD) + good, 0)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_caller_without_time_gets_the_same_batch_or_none(codec: Codec) -> None:
    messages = message_set([(5, b"key", bytes(1000))] * 3, 1, codec)
    inside = len(message_set([(5, b"key", bytes(1000))] * 3, 1))
    if codec is Codec.GZIP:
        with pytest.raises(TakesLongerError):
            to_batch(messages, CheckRules(), inside)
        return
    assert to_batch(messages, CheckRules(), inside) == to_batch(messages, CheckRules())
    if codec:
        with pytest.raises(TakesLongerError):
            to_batch(messages, CheckRules(), inside - 1)


@pytest.mark.parametrize("twin_name", TWINS)
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@given(rows=_ROWS, base_offset=st.integers(0, 1 << 60))
def test_what_an_old_consumer_gets_has_everything_but_headers(
    twin_name: str, codec: Codec, magic: int, rows: list[Row], base_offset: int
) -> None:
    with using(twin_name):
        batch = encode_batch([(*row, ((b"h", b"x"),)) for row in rows], codec, base_offset=base_offset)
        found = decode_message_set(from_batches(batch, magic))
    wanted = [(base_offset + index, row[0] if magic else -1, row[1], row[2]) for index, row in enumerate(rows)]
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in found] == wanted


def test_a_set_made_for_a_consumer_of_v1_counts_inside_from_the_batch_on() -> None:
    batch = encode_batch([(5, None, b"a", ()), (9, None, b"b", ())], Codec.GZIP, base_offset=100)
    whole = from_batches(batch, 1)
    (outer_offset,) = struct.unpack_from(">q", whole)
    (outer_time,) = struct.unpack_from(">q", whole, 18)
    assert (outer_offset, outer_time) == (101, 9)
    inside = gzip.decompress(bytes(whole[34:]))
    assert struct.unpack_from(">q", inside)[0] == 0
    old = gzip.decompress(bytes(from_batches(batch, 0)[26:]))
    assert struct.unpack_from(">q", old)[0] == 100


def test_an_uncompressed_set_begins_where_the_consumer_asked(twin: str) -> None:
    batch = encode_batch([(0, None, bytes([index]), ()) for index in range(5)], base_offset=10)
    assert [record.offset for record in decode_message_set(from_batches(batch, 1, first_offset=12))] == [12, 13, 14]
    packed = encode_batch([(0, None, bytes([index]), ()) for index in range(5)], Codec.GZIP, base_offset=10)
    assert [record.offset for record in decode_message_set(from_batches(packed, 1, first_offset=12))] == [
        10,
        11,
        12,
        13,
        14,
    ]


def test_control_batches_are_not_shown() -> None:
    assert from_batches(encode_batch([(0, b"\0\0\0\1", b"\0" * 6, ())], is_control=True), 1) == b""


@pytest.mark.parametrize("content_size", [False, True])
def test_the_checksum_of_old_lz4_frames_is_mended_and_broken_again(content_size: bool) -> None:
    frame = lz4.frame.compress(b"x" * 1000, block_linked=False, store_size=content_size)
    old = with_old_lz4_checksum(frame)
    assert old != frame
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(old)
    assert with_true_lz4_checksum(old) == frame
    assert lz4.frame.decompress(with_true_lz4_checksum(old)) == b"x" * 1000


def test_zstd_is_not_for_old_formats() -> None:
    with pytest.raises(InvalidRecordError):
        codec_of(4)
    with pytest.raises(UnsupportedCompressionTypeError):
        from_batches(encode_batch([(0, None, b"x", ())], Codec.ZSTD), 1)


def test_a_part_of_a_message_at_the_end_is_left_alone(twin: str) -> None:
    rows: list[Row] = [(1, b"a", b"b"), (2, b"c", b"d")]
    cut = message_set(rows, 1)[:-1]
    made = to_batch(cut, CheckRules())
    assert made is not None
    assert made.header.record_count == 1
    assert to_batch(cut[:10], CheckRules()) is None
    assert to_batch(b"", CheckRules()) is None


def _wrapped(inside: bytes | bytearray, magic: int = 1) -> bytearray:
    whole = bytearray()
    records_codec.append_message(whole, 0, magic, Codec.GZIP, 0, None, compress(Codec.GZIP, inside))
    return whole


def test_what_is_wrong_is_refused(twin: str) -> None:
    rules = CheckRules()
    good = message_set([(1, b"a", b"b")], 1)
    broken = bytearray(good)
    broken[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        to_batch(broken, rules)
    broken = bytearray(good)
    broken[16] = 5
    with pytest.raises(CorruptMessageError):
        to_batch(broken, rules)
    with pytest.raises(InvalidRecordError, match="not that of the message around it"):
        to_batch(_wrapped(message_set([(1, b"a", b"b")], 0)), rules)
    with pytest.raises(InvalidRecordError, match="compressed inside"):
        to_batch(_wrapped(_wrapped(good)), rules)
    with pytest.raises(InvalidRecordError, match="beside it"):
        to_batch(_wrapped(good) + good, rules)
    with pytest.raises(InvalidRecordError, match="ends before"):
        to_batch(_wrapped(good[:-1]), rules)
    with pytest.raises(InvalidRecordError, match="nothing in it"):
        to_batch(_wrapped(b""), rules)
    with pytest.raises(MessageTooLargeError):
        to_batch(good, CheckRules(max_message_bytes=20))
    with pytest.raises(InvalidRecordError, match="without key"):
        to_batch(message_set([(1, None, b"b")], 1), CheckRules(key_required=True))
    with pytest.raises(InvalidTimestampError):
        to_batch(good, CheckRules(earliest_timestamp_ms=100))


@given(st.binary(max_size=120))
def test_nonsense_is_an_error_of_kafka_or_nothing(data: bytes) -> None:
    try:
        to_batch(data, CheckRules())
    except (CorruptMessageError, InvalidRecordError, UnsupportedCompressionTypeError, MessageTooLargeError):
        pass


@pytest.mark.skipif(COMPILED is None, reason="the compiled codec is not built")
@given(
    rows=_ROWS,
    magic=st.integers(0, 1),
    flips=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), max_size=3),
    seal=st.booleans(),
    data=st.data(),
)
def test_both_twins_say_the_same_of_damaged_sets(
    rows: list[Row], magic: int, flips: list[tuple[int, int]], seal: bool, data: st.DataObject
) -> None:
    messages = message_set(rows, magic)
    for place, bits in flips:
        messages[place % len(messages)] ^= bits
    if seal and len(messages) >= 18:  # so that more than the CRC is looked at
        size = struct.unpack_from(">i", messages, 8)[0]
        if 14 <= size <= len(messages) - 12:
            struct.pack_into(">I", messages, 12, zlib.crc32(messages[16 : 12 + size]))
    messages = messages[: data.draw(st.integers(0, len(messages)))] if data.draw(st.booleans()) else messages
    key_required, check_times = data.draw(st.booleans()), data.draw(st.booleans())
    limit = data.draw(st.integers(-1, 60))
    limits = (data.draw(st.integers(-1, 100)), data.draw(st.integers(0, 1 << 45)))

    def outcome(module: Any) -> object:
        out = bytearray(b"before")
        try:
            return module.messages_to_records(
                out, bytes(messages), magic, limit, key_required, check_times, *limits
            ), out
        except KafkaError as error:
            return type(error), str(error)

    assert outcome(COMPILED) == outcome(_pmessages)


@pytest.mark.skipif(COMPILED is None, reason="the compiled codec is not built")
@given(
    rows=_ROWS,
    magic=st.integers(0, 1),
    flip=st.none() | st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)),
    append_time=st.booleans(),
    first=st.integers(0, 40),
)
def test_both_twins_make_the_same_messages(
    rows: list[Row], magic: int, flip: tuple[int, int] | None, append_time: bool, first: int
) -> None:
    batch = encode_batch([(*row, ()) for row in rows])
    body = bytearray(batch[61:])
    if flip is not None:
        body[flip[0] % len(body)] ^= flip[1]

    def outcome(module: Any) -> object:
        out = bytearray(b"before")
        try:
            return module.records_to_messages(
                out, bytes(body), len(rows), 7, rows[0][0], 99 if append_time else -1, magic, 3, first
            ), out
        except KafkaError as error:
            return type(error), str(error)

    assert outcome(COMPILED) == outcome(_pmessages)


def test_log_append_time_is_the_time_of_all(twin: str) -> None:
    batch = encode_batch([(5, None, b"a", ()), (6, None, b"b", ())])
    stamp_append_time(batch, 0, 77)
    found = decode_message_set(from_batches(batch, 1))
    assert [(record.timestamp_ms, record.timestamp_type) for record in found] == [
        (77, TimestampType.LOG_APPEND_TIME)
    ] * 2
