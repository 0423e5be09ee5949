"""The header of a batch: read, walked over, stamped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import CorruptMessageError, UnsupportedForMessageFormatError
from jesenska.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    TimestampType,
    iter_headers,
    read_header,
    stamp_append_time,
    stamp_offsets,
    stamp_producer,
    verify_crc,
)
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from tests.units.records.raw_batches import raw_batch, raw_record

RECORDS = [(1000 + index, b"key", b"value", ()) for index in range(3)]


def test_header_fields_are_those_of_the_bytes() -> None:
    batch = raw_batch(
        b"",
        7,
        base_offset=1 << 40,
        leader_epoch=3,
        attributes=0x7B,
        last_offset_delta=9,
        base_timestamp=5,
        max_timestamp=6,
        producer_id=8,
    )
    header = read_header(batch)
    assert (header.base_offset, header.size_bytes, header.partition_leader_epoch, header.magic) == (
        1 << 40,
        HEADER_SIZE,
        3,
        2,
    )
    assert (header.last_offset, header.next_offset) == ((1 << 40) + 9, (1 << 40) + 10)
    assert (header.base_timestamp, header.max_timestamp, header.producer_id, header.record_count) == (5, 6, 8, 7)
    assert header.codec == Codec.LZ4
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert header.is_transactional and header.is_control and header.has_log_append_time and header.has_delete_horizon
    assert header.has_producer_id and header.is_compressed


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (5, 4, 9), ((1 << 31) - 1, 0, (1 << 31) - 1), ((1 << 31) - 1, 3, 2), (-1, 4, -1)],
)
def test_last_sequence_wraps_to_zero(base: int, delta: int, last: int) -> None:
    assert read_header(raw_batch(b"", delta + 1, base_sequence=base)).last_sequence == last


def test_offsets_and_epoch_are_stamped_without_touching_the_crc() -> None:
    batch = bytearray(b"xx") + encode_batch(RECORDS)
    stamp_offsets(batch, 2, (1 << 62) + 1, 77)
    header = read_header(batch, 2)
    assert (header.base_offset, header.partition_leader_epoch) == ((1 << 62) + 1, 77)
    verify_crc(batch, 2)
    assert [record.offset for record in decode_batch(batch, 2)] == [(1 << 62) + 1, (1 << 62) + 2, (1 << 62) + 3]


@pytest.mark.parametrize("codec", Codec)
def test_append_time_is_every_records_time(twin: str, codec: Codec) -> None:
    batch = bytearray(b"xx") + encode_batch(RECORDS, codec)
    header = stamp_append_time(batch, 2, 5555)
    assert header == read_header(batch, 2)
    assert header.has_log_append_time and header.max_timestamp == 5555
    assert [(record.timestamp_ms, record.timestamp_type) for record in decode_batch(batch, 2)] == [(5555, 1)] * 3
    assert stamp_append_time(batch, 2, 5555) == header


def test_headers_are_walked_up_to_a_part_of_a_batch(twin: str) -> None:
    one, two = encode_batch(RECORDS), encode_batch(RECORDS, base_offset=3)
    for cut in range(1, len(two)):
        found = list(iter_headers(one + two + two[:-cut]))
        assert [(position, header.base_offset) for position, header in found] == [(0, 0), (len(one), 3)]
    assert list(iter_headers(b"")) == []
    assert [position for position, _ in iter_headers(one + two, len(one))] == [len(one)]


@pytest.mark.parametrize("length", [-1, 0, 13, 20, 48])
def test_an_impossible_length_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptMessageError):
        list(iter_headers(raw_batch(raw_record(0), 1, batch_length=length)))


def test_other_formats_are_told_from_nonsense() -> None:
    for magic, error in (
        (0, UnsupportedForMessageFormatError),
        (1, UnsupportedForMessageFormatError),
        (3, CorruptMessageError),
    ):
        with pytest.raises(error):
            read_header(raw_batch(raw_record(0), 1, magic=magic))
        with pytest.raises(error):
            list(iter_headers(raw_batch(raw_record(0), 1, magic=magic)))


def test_a_header_that_is_not_whole_is_corrupt() -> None:
    for size in range(HEADER_SIZE):
        with pytest.raises(CorruptMessageError):
            read_header(raw_batch(b"", 1)[:size])


@given(st.data())
def test_any_changed_bit_under_the_crc_is_found(data: st.DataObject) -> None:
    batch = encode_batch(RECORDS)
    verify_crc(batch)
    position = data.draw(st.integers(17, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptMessageError):
        verify_crc(batch)


def test_a_batch_that_claims_more_than_is_there_is_corrupt() -> None:
    batch = encode_batch(RECORDS)
    for cut in (1, 10, len(batch) - HEADER_SIZE):
        with pytest.raises(CorruptMessageError):
            verify_crc(batch[:-cut])
    assert BatchHeader._make(read_header(batch)).size_bytes == len(batch)


@pytest.mark.parametrize("codec", Codec)
def test_a_producers_numbers_are_stamped_with_the_crc_that_follows(twin: str, codec: Codec) -> None:
    batch = bytearray(b"xx") + encode_batch(RECORDS, codec)
    stamp_producer(batch, 2, 1 << 40, 7, (1 << 31) - 1)
    header = read_header(batch, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 7, (1 << 31) - 1)
    assert batch[2:] == encode_batch(RECORDS, codec, producer_id=1 << 40, producer_epoch=7, base_sequence=(1 << 31) - 1)
