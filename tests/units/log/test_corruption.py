"""Synced records that a disk has damaged are refused and never served, whichever file was damaged; good records are
served. `corruption_model` has the rules, and runs thousands of seeds by command."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.reading import read_log, warm_up_for
from jesenska.log.segments.checked_batches import Checked, DamagedRecordsError
from jesenska.log.segments.segment import ColdError
from jesenska.records.encode import encode_batch
from tests.units.log.corruption_model import play
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0, retention_ms=-1)


@pytest.mark.parametrize("seed", range(1, 101))
def test_whatever_is_damaged_no_wrong_record_is_served_and_no_good_one_lost(tmp_path: Path, seed: int) -> None:
    assert play(seed, tmp_path).faults == []


def _filled(directory: Path, config: LogConfig = SMALL, count: int = 20) -> LogHarness:
    harness = LogHarness(directory, config)
    for _ in range(count):
        harness.append(make_batch())
    return harness


def _change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_a_flipped_bit_in_a_record_is_refused_told_once_and_the_rest_is_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with _filled(tmp_path / "t-0") as harness:
        segment = harness.log.segments[1]
        place = segment.find(segment.base_offset + 1)
        assert place is not None
        close_log(harness.log)
        _change(segment.file.path, place.position + place.size_bytes - 1, b"\xff")
        harness.open(clean=True)
        with caplog.at_level(logging.ERROR):
            for _ in range(3):
                assert harness.readable() == (
                    [offset for offset in range(20) if offset != place.base_offset],
                    [place.base_offset],
                )
        (said,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
        assert f"{segment.file.path} is damaged from position {place.position}" in said
        assert f"clients go on at offset {place.base_offset + 1}" in said


@pytest.mark.parametrize("base_offset", [0, 3, 5, 100, 2**40])
def test_a_base_offset_that_does_not_fit_between_its_neighbours_is_refused(tmp_path: Path, base_offset: int) -> None:
    """The base offset is not under the CRC."""
    with _filled(tmp_path / "t-0", LogConfig(retention_ms=-1)) as harness:
        place = harness.log.active_segment.find(4)
        assert place is not None
        close_log(harness.log)
        _change(harness.log.active_segment.file.path, place.position, base_offset.to_bytes(8, "big"))
        harness.open(clean=True)
        assert harness.readable() == ([offset for offset in range(20) if offset != 4], [4])


@pytest.mark.parametrize(("entry", "column", "value"), [(1, 4, 7), (1, 0, 1), (2, 4, 3), (1, 4, 0)])
def test_an_index_that_is_wrong_costs_nothing_and_is_built_anew(
    tmp_path: Path, entry: int, column: int, value: int
) -> None:
    with _filled(tmp_path / "t-0") as harness:
        segment = harness.log.segments[1]
        path = segment.offset_index.path
        close_log(harness.log)
        before = path.read_bytes()
        assert len(before) >= 24
        _change(path, entry * 8 + column, value.to_bytes(4, "big"))
        harness.open(clean=True)
        for offset in reversed(range(20)):
            assert [record.offset for record in harness.records(offset)] == list(range(offset, 20))
        close_log(harness.log)
        harness.open(clean=True)
        assert harness.offsets() == list(range(20))


def test_a_batch_in_the_value_of_a_damaged_one_is_not_taken_for_a_batch(tmp_path: Path) -> None:
    inner = encode_batch([(NOW_MS, None, b"forged", ())])
    inner[0:8] = (6).to_bytes(8, "big")
    with LogHarness(tmp_path / "t-0", LogConfig(retention_ms=-1)) as harness:
        for number in range(10):
            harness.append(encode_batch([(NOW_MS, None, bytes(inner) if number == 5 else b"true", ())]))
        place = harness.log.active_segment.find(5)
        assert place is not None
        close_log(harness.log)
        _change(harness.log.active_segment.file.path, place.position + 8, bytes(8))
        harness.open(clean=True)
        served, refused = harness.readable()
        assert (served, refused) == ([0, 1, 2, 3, 4, 6, 7, 8, 9], [5])
        assert b"forged" not in [record.value for record in harness.records(6)]


def test_what_was_not_checked_yet_is_cold_and_checked_in_another_thread(tmp_path: Path) -> None:
    with _filled(tmp_path / "t-0") as harness:
        harness.reopen()
        log = harness.log
        with pytest.raises(ColdError):
            read_log(log, 0, 100, wait=False)
        warm_up = warm_up_for(log, 0)
        warm_up.run()
        assert log.segments[0].unchecked_bytes, "the owner's own is changed when it is told"
        warm_up.done()
        assert not log.segments[0].unchecked_bytes
        result = read_log(log, 0, 100, wait=False)
        assert result.region is not None
        result.region.release()
        assert harness.offsets() == list(range(20))
        assert not any(segment.unchecked_bytes for segment in log.segments[:-1])


def test_what_this_process_has_written_is_not_looked_at_again(tmp_path: Path) -> None:
    with _filled(tmp_path / "t-0") as harness:
        assert not any(segment.unchecked_bytes for segment in harness.log.segments)
        harness.crash()
        scanned = [segment for segment in harness.log.segments if segment.base_offset >= harness.log.recovery_point]
        assert scanned
        assert not any(segment.unchecked_bytes for segment in scanned)


def test_damage_that_is_found_while_the_log_is_written_to_keeps_the_index_of_what_was_appended(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=0, retention_ms=-1)
    with _filled(tmp_path / "t-0", config) as harness:
        place = harness.log.active_segment.find(7)
        assert place is not None
        close_log(harness.log)
        _change(harness.log.active_segment.file.path, place.position + 70, b"\x55\x55")
        harness.open(clean=True)
        for _ in range(20):
            harness.append(make_batch())
        warm_up = warm_up_for(harness.log, 7)
        for _ in range(5):
            harness.append(make_batch())
        warm_up.run()
        for _ in range(5):
            harness.append(make_batch())
        warm_up.done()
        assert harness.readable() == ([offset for offset in range(50) if offset != 7], [7])
        index = harness.log.active_segment.offset_index.entries()
        assert [offset for offset, _ in index] == sorted({offset for offset, _ in index})
        assert index[-1][0] >= 48
        with pytest.raises(DamagedRecordsError, match="read on at offset 8"):
            harness.read(7)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12), st.integers(0, 80))
def test_what_is_checked_is_what_was_added(pieces: list[tuple[int, int]], position: int) -> None:
    checked, good = Checked(80), set[int]()
    for start, size in pieces:
        checked.add(start, min(80, start + size))
        good.update(range(start, min(80, start + size)))
    end = position
    while end in good:
        end += 1
    assert checked.end_from(position) == (2**31 - 1 if end >= 80 else end)
    assert checked.is_whole == (good >= set(range(80)))
