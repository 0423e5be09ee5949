"""Records to batches and back."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import CorruptMessageError, InvalidRecordError
from jesenska.records.batch import Codec, TimestampType, read_header, stamp_offsets, verify_crc
from jesenska.records.decode import (
    ControlMarker,
    ControlType,
    control_marker,
    decode_batch,
    decode_batches,
    marker_record,
)
from jesenska.records.encode import BatchWriter, encode_batch, estimated_size, reencode_batch
from jesenska.records.record import Record, RecordInput
from tests.units.records.raw_batches import inputs, raw_batch, raw_record
from tests.units.records.twins import BUILT, using

RECORDS: list[RecordInput] = [
    (1000, b"a", b"1", ()),
    (999, None, b"", (("h", b"x"), ("h", None))),
    (1005, b"", None, ()),
]


def expected(records: list[RecordInput], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, TimestampType.CREATE_TIME, key, value, tuple(headers))  # type: ignore[arg-type]
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]


@pytest.mark.parametrize("twin_name", BUILT)
@given(inputs, st.sampled_from(Codec), st.integers(0, 1 << 62))
def test_records_come_back_as_they_went_in(
    twin_name: str, records: list[RecordInput], codec: Codec, base_offset: int
) -> None:
    with using(twin_name):
        batch = encode_batch(records, codec, base_offset=base_offset)
        assert decode_batch(batch) == expected(records, base_offset)
        header = read_header(batch)
        assert header.codec == codec
        assert (header.base_timestamp, header.max_timestamp) == (records[0][0], max(record[0] for record in records))


def test_bytes_are_those_of_the_format(twin: str) -> None:
    batch = encode_batch(
        [(1000, b"k", b"v", ()), (1003, None, b"w", (("h", None),))], producer_id=9, producer_epoch=2, base_sequence=40
    )
    body = raw_record(0) + raw_record(1, None, b"w", 3, [(b"h", None)])
    assert batch == raw_batch(
        body, 2, base_timestamp=1000, max_timestamp=1003, producer_id=9, producer_epoch=2, base_sequence=40
    )


def test_properties_are_in_the_header(twin: str) -> None:
    header = read_header(encode_batch(RECORDS, leader_epoch=4, is_transactional=True, is_control=True, base_offset=7))
    assert (header.partition_leader_epoch, header.base_offset) == (4, 7)
    assert header.is_transactional and header.is_control


def test_keys_and_values_may_be_any_buffer(twin: str) -> None:
    batch = encode_batch([(5, memoryview(b"key"), bytearray(b"value"), (("h", memoryview(b"data")), (b"raw", b"")))])
    (record,) = decode_batch(batch)
    assert record[3:] == (b"key", b"value", (("h", b"data"), ("raw", b"")))
    assert type(record.key) is bytes and type(record.value) is bytes


def test_records_that_were_read_can_be_written_again(twin: str) -> None:
    assert encode_batch(decode_batch(encode_batch(RECORDS))) == encode_batch(RECORDS)


def test_a_batch_of_nothing_is_refused(twin: str) -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])
    with pytest.raises(ValueError, match="at least one record"):
        BatchWriter(1000).finish()


def test_a_header_key_that_is_not_utf8_is_shown_with_replacement(twin: str) -> None:
    (record,) = decode_batch(raw_batch(raw_record(0, headers=[(b"a\xff", b"x")]), 1))
    assert record.headers == (("a�", b"x"),)


@given(inputs, st.integers(100, 400))
def test_a_writer_never_makes_a_batch_larger_than_it_was_told(records: list[RecordInput], max_bytes: int) -> None:
    seen: list[Record] = []
    writer = BatchWriter(max_bytes)

    def finish() -> None:
        batch = writer.finish()
        assert len(batch) <= max_bytes or writer.record_count == 1
        stamp_offsets(batch, 0, len(seen), 0)
        seen.extend(decode_batch(batch))

    for record in records:
        before = writer.size_bytes
        if writer.append(*record) is None:
            assert writer.record_count
            finish()
            writer = BatchWriter(max_bytes)
            before = writer.size_bytes
            assert writer.append(*record) == 0
        assert writer.size_bytes - before <= estimated_size(*record[1:])
    finish()
    assert seen == expected(records)


def test_a_writer_carries_codec_and_producer_fields(twin: str) -> None:
    writer = BatchWriter(10_000, Codec.ZSTD)
    assert [writer.append(*record) for record in RECORDS] == [0, 1, 2]
    assert (writer.base_timestamp, writer.max_timestamp, writer.record_count) == (1000, 1005, 3)
    batch = writer.finish(producer_id=5, producer_epoch=1, base_sequence=30, is_transactional=True)
    header = read_header(batch)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (Codec.ZSTD, 5, 1, 30)
    assert header.is_transactional and header.last_sequence == 32
    assert decode_batch(batch) == expected(RECORDS)


@pytest.mark.parametrize("codec", Codec)
def test_reencoded_records_keep_their_offsets_and_the_batch_its_range(twin: str, codec: Codec) -> None:
    records = expected(RECORDS, 100)
    batch = reencode_batch(
        [records[0], records[2]], 90, 20, codec, producer_id=3, producer_epoch=0, base_sequence=5, leader_epoch=2
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count, header.codec) == (90, 110, 2, codec)
    assert decode_batch(batch) == [records[0], records[2]]


def test_an_emptied_batch_keeps_range_and_sequence(twin: str) -> None:
    batch = reencode_batch([], 90, 20, Codec.ZSTD, max_timestamp=7, producer_id=3, producer_epoch=0, base_sequence=5)
    header = read_header(batch)
    assert (header.last_offset, header.record_count, header.last_sequence, header.max_timestamp) == (110, 0, 25, 7)
    assert len(batch) == 61
    assert decode_batch(batch) == []


def test_a_fetch_gives_whole_batches_from_the_offset_on(twin: str) -> None:
    buffer = (
        encode_batch(RECORDS)
        + encode_batch(RECORDS, Codec.GZIP, base_offset=3)
        + encode_batch(RECORDS, base_offset=6)[:-3]
    )
    assert [record.offset for record in decode_batches(buffer)] == [0, 1, 2, 3, 4, 5]
    assert [record.offset for record in decode_batches(buffer, start_offset=4)] == [4, 5]


def test_control_records_take_offsets_but_consumers_do_not_see_them(twin: str) -> None:
    control = encode_batch([marker_record(ControlMarker(ControlType.COMMIT, 12), 99)], is_control=True, base_offset=3)
    buffer = encode_batch(RECORDS) + control + encode_batch(RECORDS, base_offset=4)
    assert [record.offset for record in decode_batches(buffer)] == [0, 1, 2, 4, 5, 6]
    (record,) = decode_batch(control)
    assert (record.key, record.value) == (pack(">hh", 0, 1), pack(">hi", 0, 12))
    assert control_marker(record) == ControlMarker(ControlType.COMMIT, 12)


def test_control_records_of_unknown_kind_are_shown_as_such(twin: str) -> None:
    (record,) = decode_batch(encode_batch([(0, pack(">hh", 5, 9), None, ())], is_control=True))
    assert control_marker(record) == ControlMarker(ControlType.UNKNOWN, -1)
    with pytest.raises(InvalidRecordError):
        control_marker(record._replace(key=b"\0"))


def test_a_wrong_crc_is_found_unless_it_is_not_looked_for(twin: str) -> None:
    batch = raw_batch(raw_record(0), 1, crc=7)
    with pytest.raises(CorruptMessageError):
        decode_batch(batch)
    assert len(decode_batch(batch, verify=False)) == 1


BROKEN = [
    (raw_record(0)[:-1], 1),
    (raw_record(0), 2),
    (raw_record(0) + raw_record(1), 1),
    (raw_record(0, key_length=60), 1),
    (raw_record(0, key=None, key_length=-2), 1),
    (raw_record(0, header_count=1), 1),
    (raw_record(0, header_count=-1), 1),
    (raw_record(0, tail=b"x"), 1),
    (b"\0", 1),
    (b"\1", 1),
    (b"\xff" * 7, 1),
    (b"", 1),
]


@pytest.mark.parametrize(("body", "count"), BROKEN)
def test_records_that_are_not_what_the_header_says_cannot_be_read(twin: str, body: bytes, count: int) -> None:
    with pytest.raises(InvalidRecordError):
        decode_batch(raw_batch(body, count))


#: kafka-python's snappy needs a library that nothing else here does.
THEIR_CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]


@pytest.mark.parametrize("codec", THEIR_CODECS)
def test_another_implementation_reads_what_is_written(twin: str, codec: Codec) -> None:
    memory_records: Any = pytest.importorskip("kafka.record.memory_records")
    batch = encode_batch(RECORDS * 40, codec)
    stamp_offsets(batch, 0, 50, 0)
    theirs = memory_records.MemoryRecords(bytes(batch)).next_batch()
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in expected(RECORDS * 40, 50)]


@pytest.mark.parametrize("codec", THEIR_CODECS)
def test_what_another_implementation_writes_is_read(twin: str, codec: Codec) -> None:
    default_records: Any = pytest.importorskip("kafka.record.default_records")
    builder = default_records.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=999_999,
    )
    for index, (timestamp, key, value, headers) in enumerate(RECORDS * 40):
        assert builder.append(index, timestamp, key, value, list(headers)) is not None
    batch = bytes(builder.build())
    verify_crc(batch)
    assert decode_batch(batch) == expected(RECORDS * 40)
