"""Scans over the batches of a file: the compiled scan and its twin have the same results, which agree with the headers
one by one."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jesenska.base.errors import KafkaError
from jesenska.log.segments.producer_state import BATCHES_REMEMBERED, ProducerState
from jesenska.records import codec
from jesenska.records.batch import iter_headers, read_header, stamp_offsets, stamp_producer
from jesenska.records.decode import ControlMarker, ControlType
from jesenska.records.encode import encode_batch
from jesenska.records.header import ATTRIBUTES_OFFSET, BatchHeader
from tests.units.records.twins import BUILT, TWINS, using


class Made(NamedTuple):
    gap: int
    records: int
    timestamp: int
    epoch: int
    producer: int
    value_bytes: int


MADE = st.lists(
    st.builds(
        Made,
        gap=st.integers(0, 3),
        records=st.integers(1, 3),
        timestamp=st.integers(-1, 50),
        epoch=st.integers(-1, 6),
        producer=st.integers(-1, 3),
        value_bytes=st.sampled_from([0, 10, 90]),
    ),
    max_size=40,
)


def file_of(batches: list[Made], base_offset: int) -> bytearray:
    whole = bytearray()
    offset = base_offset
    for made in batches:
        batch = encode_batch([(made.timestamp, None, bytes(made.value_bytes), ())] * made.records)
        stamp_offsets(batch, 0, offset + made.gap, made.epoch)
        if made.producer >= 0:
            stamp_producer(batch, 0, made.producer, 0, 0)
        offset += made.gap + made.records
        whole += batch
    return whole


def scanned(data: bytes | bytearray, base_offset: int, interval: int, cuts: list[int]) -> Any:
    """All results of a scan that gets the data in windows of these sizes."""
    scan = codec.BatchScan(base_offset, interval, 2)
    position = 0
    entries: list[Any] = []
    epochs: list[Any] = []
    for cut in [*cuts, len(data)]:
        position += scan.feed(data[position : position + cut], 0, min(cut, len(data) - position), position)
        entries += scan.take_entries()
        epochs += scan.take_epochs()
    return (
        position,
        entries,
        epochs,
        scan.last_offset,
        scan.max_timestamp,
        scan.max_timestamp_offset,
        scan.first_timestamp,
        scan.bytes_since_entry,
    )


def one_by_one(data: bytearray, base_offset: int, interval: int) -> Any:
    entries, epochs, since, largest, largest_offset, last, first, newest = (
        [],
        [],
        0,
        -1,
        base_offset,
        base_offset - 1,
        -1,
        2,
    )
    for position, header in iter_headers(data):
        if header.partition_leader_epoch > newest:
            newest = header.partition_leader_epoch
            epochs.append((newest, header.base_offset))
        if header.max_timestamp > largest:
            largest, largest_offset = header.max_timestamp, header.last_offset
        first = header.max_timestamp if position == 0 else first
        if since > interval:
            entries.append((header.last_offset, position, largest, largest_offset))
            since = 0
        since += header.size_bytes
        last = header.last_offset
    return len(data), entries, epochs, last, largest, largest_offset, first, since


@given(MADE, st.integers(0, 1 << 40), st.sampled_from([0, 100, 4096]), st.lists(st.integers(0, 400), max_size=20))
def test_a_scan_gives_what_the_headers_say(
    batches: list[Made], base_offset: int, interval: int, cuts: list[int]
) -> None:
    data = file_of(batches, base_offset)
    for twin in BUILT:
        with using(twin):
            assert scanned(data, base_offset, interval, cuts) == one_by_one(data, base_offset, interval)


@given(MADE, st.data())
def test_a_scan_stops_at_the_first_damaged_byte(batches: list[Made], data: st.DataObject) -> None:
    whole = file_of([*batches, Made(0, 1, 5, 0, -1, 10)], 7)
    at = data.draw(st.integers(0, len(whole) - 1))
    bad = bytearray(whole)
    bad[at] ^= 1 << data.draw(st.integers(0, 7))
    starts = [position for position, _ in iter_headers(whole)]
    holds = max(start for start in starts if start <= at)
    # Base offset and leader epoch are not under the CRC: a changed one may still follow, or make the next batch not
    # follow.
    under_crc = at - holds >= 17 or 8 <= at - holds < 12 or at - holds == 16
    results = []
    for twin in BUILT:
        with using(twin):
            results.append(scanned(bad, 7, 100, []))
    assert all(result == results[0] for result in results)
    assert results[0][0] == holds if under_crc else results[0][0] >= holds


@pytest.mark.parametrize("twin", TWINS)
def test_entries_and_epochs_are_to_be_taken_away_now_and_then(twin: str) -> None:
    """Memory stays bounded for a buffer of any length."""
    with using(twin):
        data = file_of([Made(0, 1, 5, number if number < 100 else -1, -1, 0) for number in range(3000)], 0)
        scan = codec.BatchScan(0, 0, -1)
        position = entries = epochs = calls = 0
        while position < len(data):
            good = scan.feed(data, position, len(data), position)
            assert good > 0
            position += good
            entries += len(scan.take_entries())
            epochs += len(scan.take_epochs())
            calls += 1
        assert (entries, epochs, scan.last_offset) == (2999, 100, 2999)
        assert calls >= 3


def kept(data: bytearray, windows: list[int], end_offset: int, remembered: int) -> Any:
    """Returns the results of a scan that is fed in windows of these sizes and then the rest: the positions, its end
    and whether it reached the end offset."""
    scan = codec.ProducerScan(remembered)
    position = 0
    for window in [*windows, len(data)]:
        end = min(position + window, len(data))
        if position < end and not scan.ended:
            position += scan.feed(data, position, end, position, end_offset)
    return scan.take(), position, scan.ended


@given(MADE, st.integers(0, 60), st.lists(st.integers(0, 700), max_size=10), st.integers(1, 5))
def test_of_each_producer_the_newest_batches_are_kept(
    batches: list[Made], end_offset: int, windows: list[int], remembered: int
) -> None:
    data = file_of(batches, 0)
    wanted: dict[int, list[int]] = {}
    following, ended = len(data), False
    for position, header in iter_headers(data):
        if header.base_offset >= end_offset:
            following, ended = position, True
            break
        if header.producer_id >= 0:
            wanted.setdefault(header.producer_id, []).append(position)
    expected = sorted(position for positions in wanted.values() for position in positions[-remembered:])
    for twin in BUILT:
        with using(twin):
            assert kept(data, windows, end_offset, remembered) == (expected, following, ended)


def replayed(headers: list[BatchHeader]) -> Any:
    """Returns the state of a partition's producers after these batches."""
    state = ProducerState()
    for header in headers:
        if header.is_control:
            with suppress(KafkaError):
                state.apply_marker(header, header.base_offset, ControlMarker(ControlType.COMMIT, 1), 0)
        else:
            state.apply(header, header.base_offset, header.max_timestamp, 0)
    return state.entries(), state.first_unstable_offset


IN_TRANSACTIONS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([0, 0x10, 0x10, 0x30]), st.integers(0, 2)), max_size=60
)


@given(IN_TRANSACTIONS, st.lists(st.tuples(st.integers(0, 700), st.booleans()), max_size=10))
@example([(0, 0x10, 0), (0, 0x30, 0), *[(0, 0x10, 0)] * 8], [])
def test_what_is_kept_tells_a_producers_state_all_that_the_whole_file_would(
    batches: list[tuple[int, int, int]], windows: list[tuple[int, bool]]
) -> None:
    data = file_of([Made(0, 1, 5, 0, producer, 0) for producer, _, _ in batches], 0)
    for (position, _), (producer, attributes, epoch) in zip(list(iter_headers(data)), batches, strict=True):
        stamp_producer(data, position, producer, epoch, position)
        struct.pack_into(">h", data, position + ATTRIBUTES_OFFSET, attributes)
    expected = replayed([header for _, header in iter_headers(data)])
    for twin in BUILT:
        with using(twin):
            scan = codec.ProducerScan(BATCHES_REMEMBERED)
            position, found = 0, list[int]()
            for window, taken in [*windows, (len(data), True)]:
                position += scan.feed(data, position, min(position + window, len(data)), position, 1000)
                found += scan.take() if taken else []
            assert replayed([read_header(data, at) for at in found]) == expected


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("attributes", [0, 0x30])
def test_positions_are_to_be_taken_away_now_and_then(twin: str, attributes: int) -> None:
    """Memory stays bounded for any number of producers and markers; and the positions of each take are after those of
    the take before."""
    with using(twin):
        data = file_of([Made(0, 1, 5, 0, number % 1500, 0) for number in range(5000)], 0)
        for position, _ in iter_headers(data):
            struct.pack_into(">h", data, position + ATTRIBUTES_OFFSET, attributes)
        scan = codec.ProducerScan(5)
        position, found, takes = 0, list[int](), 0
        while position < len(data):
            good = scan.feed(data, position, len(data), position, 9999)
            position += good
            if position < len(data):
                taken = scan.take()
                assert 0 < len(taken) <= 5000
                found += taken
                takes += 1
        found += scan.take()
        assert found == [position for position, _ in iter_headers(data)]
        assert takes >= 1
        assert scan.take() == []


@pytest.mark.parametrize("twin", TWINS)
def test_a_window_outside_the_buffer_is_refused(twin: str) -> None:
    with using(twin):
        for start, end in ((-1, 10), (0, 101)):
            with pytest.raises(ValueError, match="buffer"):
                codec.BatchScan(0, 0, 0).feed(bytes(100), start, end, 0)
            with pytest.raises(ValueError, match="buffer"):
                codec.ProducerScan(5).feed(bytes(100), start, end, 0, 1)
        for remembered in (0, 17):
            with pytest.raises(ValueError, match="remembered"):
                codec.ProducerScan(remembered)
