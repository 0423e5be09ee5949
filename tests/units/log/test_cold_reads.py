"""Reads that could wait for the disk: refused on the owner's thread, prepared by another one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.log_start import delete_old_segments
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import ReadResult, lookup_by_time, read_log, warm_up_for
from jesenska.log.segments.segment import ColdError
from jesenska.log.segments.time_lookup import TimestampOffset
from jesenska.records.batch import iter_headers
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch
from tests.units.log.manual_background import ManualBackground

_CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)


class ColdFiles(FileLayer):
    """A disk whose pages are in memory after a waiting read; the owner's thread must not wait while `forbidden`."""

    __slots__ = ("forbidden", "is_cold", "owner", "warm")

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.forbidden = False
        self.is_cold = False
        self.warm: set[int] = set()

    def _wait(self) -> None:
        assert not (self.forbidden and threading.get_ident() == self.owner), (
            "the owner's thread would wait for the disk"
        )

    def open(self, path: Path, flags: int) -> int:
        if path.suffix != ".log":  # a file that was opened before is found at once
            self._wait()
        return super().open(path, flags)

    def pread(self, descriptor: int, size_bytes: int, position: int) -> bytes:
        self._wait()
        self.warm.add(position)
        return super().pread(descriptor, size_bytes, position)

    def pread_warm(self, descriptor: int, size_bytes: int, position: int) -> bytes | None:
        if self.is_cold and position not in self.warm:
            return None
        return super().pread(descriptor, size_bytes, position)


def written(tmp_path: Path, batches: int = 30) -> tuple[LogHarness, ColdFiles]:
    """A log of several segments, just opened."""
    files = ColdFiles()
    harness = LogHarness(tmp_path / "t-0", _CONFIG, files)
    for number in range(batches):
        harness.append(make_batch(timestamp=NOW_MS + number))
    harness.reopen()
    assert len(harness.log.segments) > 3
    return harness, files


def elsewhere(work: Callable[[], object]) -> None:
    """Runs work in another thread to its end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert failures == []


def read_warm(log: PartitionLog, offset: int) -> ReadResult:
    """Reads as a fetch does; how often it was cold before is bounded."""
    for _ in range(3):
        try:
            return read_log(log, offset, 1 << 20, wait=False)
        except ColdError:
            warm_up = warm_up_for(log, offset)
            elsewhere(warm_up.run)
            warm_up.done()
    raise AssertionError("it never gets warm")


def base_offsets(result: ReadResult) -> list[int]:
    region = result.region
    assert region is not None
    try:
        data = FileLayer().pread(region.file.fileno(), region.size_bytes, region.position)
    finally:
        region.release()
    return [header.base_offset for _, header in iter_headers(data)]


def test_an_index_that_is_not_loaded_is_loaded_by_another_thread(tmp_path: Path) -> None:
    harness, files = written(tmp_path)
    with harness:
        files.forbidden = True
        for offset in (0, 7, 13, 22):
            with pytest.raises(ColdError):
                read_log(harness.log, offset, 1 << 20, wait=False)
            found = base_offsets(read_warm(harness.log, offset))
            assert found[0] == offset
            assert base_offsets(read_log(harness.log, offset, 1 << 20, wait=False)) == found, "and then it stays"


def test_pages_that_are_not_in_memory_are_read_by_another_thread(tmp_path: Path) -> None:
    harness, files = written(tmp_path)
    with harness:
        assert base_offsets(read_log(harness.log, 3, 1 << 20)) != []
        files.warm.clear()
        files.is_cold = files.forbidden = True
        with pytest.raises(ColdError):
            read_log(harness.log, 3, 1 << 20, wait=False)
        assert base_offsets(read_warm(harness.log, 3))[0] == 3


def test_the_end_of_the_log_is_never_cold(tmp_path: Path) -> None:
    harness, files = written(tmp_path)
    with harness:
        harness.append(make_batch())
        files.is_cold = files.forbidden = True
        assert read_log(harness.log, 31, 1 << 20, wait=False).region is None
        assert base_offsets(read_log(harness.log, 30, 1 << 20, wait=False)) == [30]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_makes_no_sense_is_built_anew_by_another_thread(tmp_path: Path, suffix: str) -> None:
    harness, files = written(tmp_path)
    with harness:
        segment = harness.log.segments[1]
        path = segment.file.path.with_suffix(suffix)
        good = path.read_bytes()
        path.write_bytes(b"nonsense" * 3)
        files.forbidden = True
        assert base_offsets(read_warm(harness.log, segment.base_offset + 1))[0] == segment.base_offset + 1
        assert path.read_bytes() == good


def test_a_segment_that_is_deleted_while_another_thread_looks_into_it_is_no_trouble(tmp_path: Path) -> None:
    harness, files = written(tmp_path)
    with harness:
        warm_up = warm_up_for(harness.log, 0)
        lookup = lookup_by_time(harness.log)
        harness.log.config = replace(_CONFIG, retention_ms=0)
        assert delete_old_segments(harness.log, NOW_MS + 1000)
        start = harness.log.log_start_offset
        assert start > 0
        elsewhere(warm_up.run)
        warm_up.done()
        found: list[TimestampOffset | None] = []
        elsewhere(lambda: found.append(lookup.first_at_or_after(NOW_MS)))
        lookup.close()
        lookup.done()
        # The files are there for a while yet, under other names: the answer is that of the moment when it was asked.
        assert found[0] is not None
        assert found[0].offset == 0
        files.forbidden = True
        assert read_warm(harness.log, start).region is None


def test_a_file_that_cannot_be_read_is_an_error_of_the_read_and_not_of_the_warm_up(tmp_path: Path) -> None:
    harness, _ = written(tmp_path)
    with harness:
        harness.log.segments[0].file.path.unlink()
        warm_up = warm_up_for(harness.log, 0)
        elsewhere(warm_up.run)
        warm_up.done()
        with pytest.raises(KafkaStorageError, match="cannot be read"):
            read_log(harness.log, 0, 1 << 20)


def test_times_are_looked_up_by_another_thread_while_the_log_goes_on(tmp_path: Path) -> None:
    harness, files = written(tmp_path)
    with harness:
        files.forbidden = True
        lookup = lookup_by_time(harness.log)
        answers: list[object] = []

        def ask() -> None:
            for number in range(0, 30, 3):
                found = lookup.first_at_or_after(NOW_MS + number)
                answers.append(found and (found.timestamp_ms, found.offset))
            newest = lookup.first_of_largest()
            answers.append(newest and newest.offset)
            lookup.close()

        thread = threading.Thread(target=ask)
        thread.start()
        files.forbidden = False
        for number in range(30, 60):
            harness.append(make_batch(timestamp=NOW_MS + number))
        thread.join(20)
        lookup.done()
        assert answers == [*((NOW_MS + number, number) for number in range(0, 30, 3)), 29]
        assert all(segment.knows_its_time for segment in harness.log.segments)


def test_retention_reads_the_times_of_old_segments_in_the_background(tmp_path: Path) -> None:
    background = ManualBackground()
    files = ColdFiles()
    config = replace(_CONFIG, retention_ms=1000)

    def start() -> LogDirectories:
        directories = LogDirectories([tmp_path], files=files, background=background)
        directories.lock()
        directories.claim("BkqKvcOWQuuOhwNvbYx_og", 0)
        directories.load(lambda topic_partition, topic_id: config, NOW_MS)
        return directories

    directories = start()
    log = directories.create(TopicPartition("t", 0), None, config, NOW_MS)
    for number in range(30):
        buffer = memoryview(make_batch(timestamp=NOW_MS + 100 * number))
        append_at_once(log, buffer, [header for _, header in iter_headers(buffer)], 0, NOW_MS)
        log.move_high_watermark(log.log_end_offset)
    directories.close()
    directories = start()
    (log,) = directories.logs.values()
    log.move_high_watermark(log.log_end_offset)
    before = len(log.segments)
    files.forbidden = True
    directories.delete_old_segments(NOW_MS + 2500)
    assert len(log.segments) == before
    files.forbidden = False
    while background.jobs:
        background.run_one()
    assert 1 < len(log.segments) < before
    assert log.segments[0].largest_timestamp() >= NOW_MS + 1500
    directories.close()
