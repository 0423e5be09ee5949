from __future__ import annotations

from pathlib import Path
from struct import iter_unpack, pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.log_start import delete_records
from jesenska.log.segments.index_file import CorruptIndexError
from jesenska.log.segments.offset_index import OffsetIndex
from jesenska.log.segments.time_index import TimeIndex
from tests.profiles import examples
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch


class CountingFiles(FileLayer):
    """Counts the calls that reach the system."""

    __slots__ = ("writes",)

    def __init__(self) -> None:
        self.writes = 0

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self.writes += 1
        return super().pwrite(descriptor, data, position)


def test_offset_index_file_is_pairs_of_big_endian_int32(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "00000000000000000100.index", 100, 800, FileLayer())
    index.reset()
    index.append(115, 933)
    index.append(123, 1866)
    index.trim()
    assert index.path.read_bytes() == bytes.fromhex("0000000f000003a5000000170000074a")


def test_time_index_file_is_an_int64_and_an_int32(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "00000000000000000168.timeindex", 168, 800, FileLayer())
    index.reset()
    index.append(1795227816552, 175)
    index.append(1795227816553, 263)
    index.trim()
    assert index.path.read_bytes() == bytes.fromhex("000001a1fbea926800000007000001a1fbea92690000005f")


def test_entries_survive_closing_and_loading(tmp_path: Path) -> None:
    files = FileLayer()
    index = OffsetIndex(tmp_path / "x.index", 10, 80, files)
    index.reset()
    for number in range(5):
        index.append(20 + number, 100 * number)
    index.trim()
    again = OffsetIndex(tmp_path / "x.index", 10, 80, files)
    assert again.entries() == [(20 + number, 100 * number) for number in range(5)]


def test_zeros_at_the_end_of_a_preallocated_index_are_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(pack(">IIII", 5, 0, 9, 400) + bytes(64))
    index = OffsetIndex(path, 0, 80, FileLayer())
    assert index.entries() == [(5, 0), (9, 400)]
    path = tmp_path / "x.timeindex"
    path.write_bytes(pack(">qI", 77, 5) + bytes(48))
    assert TimeIndex(path, 0, 80, FileLayer()).entries() == [(77, 5)]


@pytest.mark.parametrize("content", [bytes(7), pack(">IIII", 9, 1, 5, 2), pack(">IIII", 5, 9, 6, 2)])
def test_offset_index_that_makes_no_sense_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(content)
    with pytest.raises(CorruptIndexError):
        OffsetIndex(path, 0, 80, FileLayer()).load()


def test_time_index_takes_only_larger_times_and_keeps_a_place_for_the_seal(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "x.timeindex", 0, 36, FileLayer())
    index.reset()
    index.append(5, 1)
    index.append(5, 2)
    index.append(4, 3)
    assert index.entries() == [(5, 1)]
    index.append(6, 4)
    assert index.is_full
    index.append(7, 5)
    assert index.entries() == [(5, 1), (6, 4)]
    index.append(7, 5, sealing=True)
    assert index.entries() == [(5, 1), (6, 4), (7, 5)]


def test_index_entries_cost_no_system_call_each(tmp_path: Path) -> None:
    files = CountingFiles()
    with LogHarness(tmp_path / "t-0", LogConfig(index_interval_bytes=0), files) as harness:
        files.writes = 0
        appends = 1500
        for number in range(appends):
            harness.append(make_batch(timestamp=NOW_MS + number))
        assert len(harness.log.active_segment.offset_index) == appends - 1
        assert files.writes <= appends + 1, "the batches, and the leader epoch"


def test_a_write_that_a_truncation_overtook_puts_nothing_back(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "x.index", 0, 800, FileLayer())
    index.reset()
    for number in range(10):
        index.append(number, 100 * number)
    index.write()
    index.append(10, 1000)
    late = index.unwritten()
    assert late is not None
    copy = OffsetIndex(index.path, 0, 800, FileLayer())
    copy.take(index)
    copy.keep(len(copy))
    copy.truncate_to(5)
    index.disown()
    copy.write(trim=True)
    late.run()
    late.done()
    assert (
        OffsetIndex(index.path, 0, 800, FileLayer()).entries()
        == copy.entries()
        == [(number, 100 * number) for number in range(5)]
    )
    copy.append(20, 5000)
    copy.write()
    assert OffsetIndex(index.path, 0, 800, FileLayer()).entries() == copy.entries()


def test_a_write_for_a_segment_that_was_deleted_makes_no_file(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "x.index", 0, 800, FileLayer())
    index.reset()
    index.append(1, 100)
    late = index.unwritten()
    assert late is not None
    index.path.unlink()
    late.run()
    assert list(tmp_path.iterdir()) == []


def test_truncation_cuts_both_indexes(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(index_interval_bytes=0)) as harness:
        for number in range(20):
            harness.append(make_batch(2, timestamp=NOW_MS + 10 * number))
        harness.log.flush()
        harness.truncate_to(20)
        segment = harness.log.active_segment
        for index in (segment.offset_index, segment.time_index):
            assert type(index)(index.path, 0, 800, FileLayer()).entries() == index.entries()
        assert max(offset for offset, _ in segment.offset_index.entries()) < 20
        assert max(offset for _, offset in segment.time_index.entries()) < 20
        assert segment.largest_timestamp() == NOW_MS + 91
        harness.append(make_batch(2, timestamp=NOW_MS + 1000))
        assert harness.offsets() == list(range(22))


def test_missing_or_damaged_index_is_built_anew_when_needed(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=1000, index_interval_bytes=100)) as harness:
        for number in range(40):
            harness.append(make_batch(timestamp=NOW_MS + number))
        close_log(harness.log)
        expected = {path.name: path.read_bytes() for path in harness.directory.glob("*index")}
        (tmp_path / "t-0" / "00000000000000000000.index").write_bytes(b"nonsense" * 3)
        (tmp_path / "t-0" / "00000000000000000000.timeindex").unlink()
        sealed = harness.log.segments[1]
        sealed.offset_index.path.write_bytes(pack(">II", 3, 10**9))
        harness.open(clean=True)
        assert harness.offsets() == list(range(40))
        for path in sorted(harness.directory.glob("*.index"))[:-1]:
            assert path.read_bytes() == expected[path.name], path.name


@settings(max_examples=examples(0.6))
@given(
    entries=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60),
    probes=st.lists(st.integers(0, 4000), min_size=1, max_size=20),
    base_offset=st.integers(0, 2**40),
)
def test_offset_lookup_equals_a_scan(
    tmp_path_factory: pytest.TempPathFactory, entries: list[tuple[int, int]], probes: list[int], base_offset: int
) -> None:
    index = OffsetIndex(tmp_path_factory.mktemp("index") / "x.index", base_offset, 4000, FileLayer())
    index.reset()
    rows: list[tuple[int, int]] = []
    offset, position = base_offset, 0
    for more, size in entries:
        offset, position = offset + more, position + size
        index.append(offset, position)
        rows.append((offset, position))
    index.trim()
    index.unload()
    for probe in probes:
        wanted = base_offset + probe
        assert index.lookup(wanted) == max((place for each, place in rows if each <= wanted), default=0)
    assert [(base_offset + relative, place) for relative, place in iter_unpack(">II", index.path.read_bytes())] == rows


@settings(max_examples=examples(0.6))
@given(
    times=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=40),
    segment_bytes=st.integers(300, 3000),
    interval=st.integers(0, 400),
    log_start=st.integers(0, 30),
    reopen=st.booleans(),
)
def test_first_record_at_or_after_a_time_equals_a_scan(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[list[int]],
    segment_bytes: int,
    interval: int,
    log_start: int,
    reopen: bool,
) -> None:
    from jesenska.records.encode import encode_batch

    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    with LogHarness(tmp_path_factory.mktemp("log") / "t-0", config) as harness:
        for batch in times:
            harness.append(encode_batch([(time, b"k", b"v", ()) for time in batch]))
        flat = [time for batch in times for time in batch]
        start = min(log_start, len(flat))
        delete_records(harness.log, start)
        if reopen:
            harness.reopen()
        for wanted in range(52):
            found = harness.first_at_or_after(wanted)
            expected = next(
                ((time, offset) for offset, time in enumerate(flat) if time >= wanted and offset >= start), None
            )
            assert (None if found is None else (found.timestamp_ms, found.offset)) == expected
        newest = harness.first_of_largest()
        assert newest is not None
        assert newest.timestamp_ms == max(flat)
        assert flat[newest.offset] == max(flat)
