"""From a time to a record of one batch, without a Python object for each record that is passed."""

from __future__ import annotations

import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.errors import InvalidRecordError
from jesenska.records.batch import stamp_append_time
from jesenska.records.decode import decode_batch
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec, read_header
from jesenska.records.times import first_at_or_after
from tests.units.records.raw_batches import NOW_MS, raw_batch, raw_record
from tests.units.records.twins import BUILT, using

times = st.one_of(st.integers(0, 20), st.just(-1), st.just(1 << 40))


@given(
    st.lists(times, min_size=1, max_size=40),
    st.sampled_from(Codec),
    st.integers(0, 41),
    times.filter(lambda time: time >= 0),
    st.integers(0, 2000),
)
def test_both_twins_find_what_a_look_at_every_record_finds(
    sent: list[int], codec: Codec, skipped: int, wanted: int, value_bytes: int
) -> None:
    batch = bytes(
        encode_batch([(time, None, bytes(value_bytes), [("name", None)] * (time % 3)) for time in sent], codec)
    )
    header = read_header(batch)
    expected = next(
        (
            (record.offset, record.timestamp_ms)
            for record in decode_batch(batch)
            if record.timestamp_ms >= wanted and record.offset >= skipped
        ),
        None,
    )
    for twin in BUILT:
        with using(twin):
            assert first_at_or_after(batch, header, wanted, skipped) == expected


def test_gaps_that_compaction_left_are_no_fault(twin: str) -> None:
    body = b"".join(raw_record(delta, timestamp_delta=delta) for delta in (2, 5, 9))
    batch = bytes(raw_batch(body, 3, base_offset=100, last_offset_delta=9, max_timestamp=NOW_MS + 9))
    header = read_header(batch)
    assert first_at_or_after(batch, header, 0) == (102, NOW_MS + 2)
    assert first_at_or_after(batch, header, NOW_MS + 3) == (105, NOW_MS + 5)
    assert first_at_or_after(batch, header, 0, 106) == (109, NOW_MS + 9)
    assert first_at_or_after(batch, header, NOW_MS + 10) is None


def test_log_append_time_is_the_time_of_the_first_record(twin: str) -> None:
    batch = encode_batch([(-1, None, b"v", ())] * 3)
    stamp_append_time(batch, 0, 99)
    header = read_header(batch)
    assert first_at_or_after(batch, header, 99) == (0, 99)
    assert first_at_or_after(batch, header, 50, 2) == (2, 99)
    assert first_at_or_after(batch, header, 100) is None


def test_records_that_cannot_be_read_are_refused(twin: str) -> None:
    batch = bytes(raw_batch(b"\xff" * 30, 2))
    with pytest.raises(InvalidRecordError):
        first_at_or_after(batch, read_header(batch), 0)


def test_a_small_batch_that_becomes_sixty_megabytes_takes_no_memory() -> None:
    """The records are empty headers, thirty million of them in a few kilobytes."""
    headers = b"\x00\x01" * 30_000_000
    plain = raw_record(0, timestamp_delta=-5, headers=(), header_count=30_000_000, tail=headers)
    last = raw_record(1, timestamp_delta=0)
    body = zstandard.ZstdCompressor(level=3).compress(plain + last)
    batch = bytes(raw_batch(body, 2, attributes=int(Codec.ZSTD)))
    del headers, plain
    assert len(batch) < 20_000
    header = read_header(batch)
    tracemalloc.start()
    try:
        if BUILT[0] == "compiled":
            with using("compiled"):
                assert first_at_or_after(batch, header, NOW_MS) == (1, NOW_MS)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
