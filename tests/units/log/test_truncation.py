"""A log's end is truncated: after queued writes, invisible to readers, off the owner's thread, and safe at every
step."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaStorageError, NotLeaderOrFollowerError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log, finish_close, mark_deleted, prepare_close
from jesenska.log.partition.leader_appends import AppendResult, append_or_queue
from jesenska.log.partition.log_start import delete_old_segments
from jesenska.records.header import read_header
from tests.units.log.follower_harness import Follower, leader_batch
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch
from tests.units.log.test_queue_and_disk_faults import FaultyFiles

SMALL = LogConfig(segment_bytes=250, index_interval_bytes=100)


def test_a_truncation_waits_for_what_is_queued_and_refuses_what_comes_after(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(3)
        harness.log.flush()
        assert follower.append(leader_batch(3, 2)) is None
        follower.truncate_to(4)
        assert NotLeaderOrFollowerError.retriable
        with pytest.raises(NotLeaderOrFollowerError):
            follower.append(leader_batch(5))
        with pytest.raises(NotLeaderOrFollowerError):
            append_or_queue(
                harness.log, memoryview(make_batch()), [read_header(make_batch())], 0, NOW_MS, follower.answers.append
            )
        is_busy = harness.log.has_queued_appends
        follower.writer.run_one()
        assert follower.answers == [AppendResult(3, 4, -1, 0, False)]
        follower.settle()
        assert follower.truncated == [None]
        assert (is_busy, harness.log.has_queued_appends) == (True, False)
        assert harness.log.log_end_offset == harness.log.next_offset == 3
        follower.fill(2)
        assert harness.offsets() == [0, 1, 2, 3, 4]


def test_a_truncation_goes_on_where_what_was_queued_before_it_fails(tmp_path: Path) -> None:
    files = FaultyFiles()
    follower = Follower(tmp_path / "t-0", LogConfig(), files)
    with follower.harness as harness:
        follower.fill(3)
        harness.log.flush()
        assert follower.append(leader_batch(3)) is None
        follower.truncate_to(2)
        files.room_bytes = 0
        follower.writer.run_one()
        files.room_bytes = None
        assert isinstance(follower.answers[0], KafkaStorageError)
        follower.settle()
        assert follower.truncated == [None]
        assert harness.offsets() == [0, 1]


def test_truncations_are_carried_out_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(9)
        follower.truncate_to(6)
        follower.restart_at(20)
        follower.truncate_to(30)
        follower.truncate_to(15)
        follower.settle()
        assert follower.truncated == [None] * 4
        assert follower.ends() == (15, 15, 15)
        follower.fill(1)
        assert harness.offsets() == [15]


class OwnersFiles(FileLayer):
    """Refuses calls that may wait for the disk while `guarded`, on the owner's thread."""

    __slots__ = ("guarded",)

    def __init__(self) -> None:
        self.guarded = False

    def _check(self) -> None:
        assert not self.guarded, "the owner's thread waits for the disk"

    def pread(self, descriptor: int, size_bytes: int, position: int) -> bytes:
        self._check()
        return super().pread(descriptor, size_bytes, position)

    def pread_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        self._check()
        return super().pread_into(descriptor, buffer, position)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._check()
        super().truncate(descriptor, size_bytes)

    def open(self, path: Path, flags: int) -> int:
        self._check()
        return super().open(path, flags)

    def rename(self, source: Path, target: Path) -> None:
        self._check()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._check()
        super().unlink(path)

    def names(self, path: Path) -> list[str]:
        self._check()
        return super().names(path)


@pytest.mark.parametrize("restarts", [False, True])
def test_the_owners_thread_does_not_wait_for_the_disk(tmp_path: Path, restarts: bool) -> None:
    files = OwnersFiles()
    follower = Follower(tmp_path / "t-0", SMALL, files)
    with follower.harness as harness:
        follower.append(leader_batch(0, 1, producer_id=7, base_sequence=0))
        follower.writer.run_all()
        for offset in range(1, 12):
            follower.append(leader_batch(offset))
            follower.settle()
        files.guarded = True
        follower.restart_at(5) if restarts else follower.truncate_to(5)
        while follower.writer.jobs:
            work, done = follower.writer.jobs.pop(0)
            files.guarded = False
            outcome = work()
            files.guarded = True
            done(outcome)
        files.guarded = False
        assert follower.truncated == [None]
        assert follower.ends()[2] == 5
        assert (harness.log.producers.get(7) is None) == restarts


def test_readers_see_the_old_log_or_the_new_one(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0", SMALL)
    with follower.harness as harness:
        for offset in range(0, 24, 2):
            follower.append(leader_batch(offset, 2))
            follower.settle()
        assert len(harness.log.segments) > 3
        seen = []
        follower.truncate_to(9)
        while True:
            seen.append(harness.offsets())
            if not follower.writer.jobs:
                break
            follower.writer.run_one()
        assert [offsets[-1] for offsets in seen] == sorted((offsets[-1] for offsets in seen), reverse=True)
        assert {len(offsets) for offsets in seen} == {24, 8}
        assert seen[-1] == list(range(8))
        harness.crash()
        assert harness.offsets() == list(range(8))


def test_a_truncation_at_the_end_forgets_the_epoch_of_a_leader_that_wrote_nothing(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(2)
        harness.log.assign_leader_epoch(4, 2)
        follower.truncate_to(2)
        assert follower.truncated == [None]
        assert harness.log.leader_epochs.entries() == [(0, 0)]


@pytest.mark.parametrize("offset", [3, 50])
def test_the_high_watermark_of_a_log_that_begins_anew_is_its_start(tmp_path: Path, offset: int) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        moved: list[bool] = []
        harness.log.on_log_start_moved = lambda: moved.append(True)
        follower.fill(8)
        harness.log.move_high_watermark(8)
        follower.restart_at(offset)
        follower.settle()
        assert follower.ends() == (offset, offset, offset)
        assert moved == [True]


def test_the_high_watermark_is_never_left_above_the_end(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(8)
        harness.log.move_high_watermark(7)
        follower.truncate_to(3)
        while follower.writer.jobs:
            follower.writer.run_one()
            start, high_watermark, end = follower.ends()
            assert start <= high_watermark <= end
        assert follower.ends() == (0, 3, 3)


def test_a_flush_of_before_does_not_cut_what_was_written_since(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0", LogConfig(segment_bytes=1000))
    with follower.harness as harness:
        follower.fill(3)
        harness.log.roll(NOW_MS)
        assert follower.flusher.jobs, "the sealed segment is being synced"
        follower.truncate_to(2)
        follower.writer.run_all()
        follower.append(leader_batch(2, 4, value_bytes=60))
        follower.writer.run_all()
        follower.settle()
        assert harness.offsets() == [0, 1, 2, 3, 4, 5]
        harness.crash()
        assert harness.offsets() == [0, 1, 2, 3, 4, 5]


def test_a_copy_of_a_sealed_segment_does_not_grow_when_that_is_written_to_again(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0", LogConfig(segment_bytes=1000, index_interval_bytes=0))
    with follower.harness as harness:
        follower.fill(4)
        harness.log.roll(NOW_MS, 6)
        follower.settle()
        follower.fill(1)
        copy = harness.log.segments[0].copy()
        known = copy.offset_index.entries()
        assert known, "what both have in memory"
        follower.truncate_to(5)
        follower.settle()
        follower.fill(3)
        follower.settle()
        assert len(harness.log.segments) == 1
        assert copy.offset_index.entries() == known
        copy.close()


def test_an_orderly_stop_syncs_the_new_end_though_a_flush_went_before_it(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(3)
        harness.log.flush()
        follower.settle()
        follower.truncate_to(2)
        follower.writer.run_one()
        assert harness.log.log_end_offset == 2, "readers see the new end, the files are as they were"
        harness.log.flush()
        follower.flusher.run_all()
        follower.settle()
        assert follower.truncated == [None]
        work = prepare_close(harness.log, clean=True)
        assert work is not None
        finish_close(harness.log, work, 0)


def test_nothing_of_before_is_known_of_producers_in_a_log_that_begins_anew(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0", SMALL)
    with follower.harness as harness:
        for offset in range(6):
            follower.append(leader_batch(offset, producer_id=3, base_sequence=offset))
            follower.settle()
        assert any(name.endswith(".snapshot") for name in harness.names())
        follower.restart_at(20)
        follower.settle()
        follower.fill(1)
        follower.settle()
        assert len(harness.log.producers) == 0
        harness.crash()
        assert len(harness.log.producers) == 0


class StoppingFiles(FileLayer):
    """Files of a process that dies before one of its changes. `left` is the number of changes before that."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left: int | None = None

    def _change(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.left -= 1

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._change()
        super().truncate(descriptor, size_bytes)

    def rename(self, source: Path, target: Path) -> None:
        self._change()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self._change()
        return super().pwrite(descriptor, data, position)

    def fsync(self, descriptor: int) -> None:
        """A process that dies loses nothing by it."""

    def fsync_directory(self, path: Path) -> None:
        """Does not count as a change."""


def _filled(directory: Path, files: StoppingFiles) -> Follower:
    follower = Follower(directory, SMALL, files)
    for offset in range(0, 24, 2):
        follower.append(leader_batch(offset, 2, epoch=offset // 6, producer_id=1, base_sequence=offset))
        follower.settle()
    follower.harness.log.flush()
    follower.settle()
    assert follower.harness.log.recovery_point == 24
    return follower


def _at_each_step(tmp_path: Path, restarts: bool) -> Iterator[tuple[StoppingFiles, Follower]]:
    """Yields followers whose truncation stops at its first change of the files, at its second, and so on; that of the
    last follower is completed."""
    for number in itertools.count():
        files = StoppingFiles()
        follower = _filled(tmp_path / f"{number}" / "t-0", files)
        with follower.harness:
            files.left = number
            follower.restart_at(9) if restarts else follower.truncate_to(9)
            follower.writer.run_all()
            is_done = follower.truncated == [None]
            yield files, follower
        if is_done:
            assert number > 10
            return


@pytest.mark.parametrize("restarts", [False, True])
def test_a_process_that_dies_at_any_step_leaves_a_beginning_of_the_log(tmp_path: Path, restarts: bool) -> None:
    for files, follower in _at_each_step(tmp_path, restarts):
        harness, died = follower.harness, follower.truncated != [None]
        files.left = None
        harness.crash(recovery_point=24)
        offsets = harness.offsets()
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= 8 or restarts
        assert harness.log.log_end_offset in ((len(offsets), 9) if restarts else (len(offsets),))
        assert died or harness.log.log_end_offset == (9 if restarts else 8)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_truncation_that_the_disk_refuses_is_carried_out_by_the_next(tmp_path: Path, restarts: bool) -> None:
    for files, follower in _at_each_step(tmp_path, restarts):
        if follower.truncated == [None]:
            continue
        harness, files.left = follower.harness, None
        assert isinstance(follower.truncated[0], KafkaStorageError)
        if harness.log.is_failed:
            with pytest.raises(KafkaStorageError):
                follower.append(leader_batch(harness.log.log_end_offset))
        follower.truncate_to(7)
        follower.settle()
        assert follower.truncated[1:] == [None]
        assert harness.log.log_end_offset == (7 if restarts else 6)
        follower.append(leader_batch(harness.log.log_end_offset))
        follower.settle()
        assert harness.offsets() == ([7] if restarts else list(range(7)))
        before = harness.log.leader_epochs.entries(), harness.offsets()
        harness.crash()
        assert (harness.log.leader_epochs.entries(), harness.offsets()) == before


def _is_failed(harness: LogHarness) -> bool:
    return harness.log.is_failed


def test_what_the_disk_refused_is_tried_again_when_an_append_is_refused(tmp_path: Path) -> None:
    for files, follower in _at_each_step(tmp_path, restarts=False):
        harness = follower.harness
        if not _is_failed(harness):
            continue
        # It is to lead next: the epoch that begins at its end is not forgotten when it is tried again.
        harness.log.begin_to_lead(9)
        files.left = 0
        for _ in range(2):
            with pytest.raises(KafkaStorageError):
                follower.append(leader_batch(8, epoch=9))
            follower.settle()
        files.left = None
        with pytest.raises(KafkaStorageError):
            follower.append(leader_batch(8, epoch=9))
        with pytest.raises(NotLeaderOrFollowerError):
            follower.append(leader_batch(8, epoch=9))
        follower.settle()
        assert harness.log.leader_epochs.latest_epoch == 9
        assert not _is_failed(harness)
        follower.append(leader_batch(8, epoch=9))
        follower.settle()
        assert harness.offsets() == list(range(9))


def test_a_log_that_could_not_be_truncated_is_recovered_by_the_next_start(tmp_path: Path) -> None:
    files = StoppingFiles()
    follower = _filled(tmp_path / "t-0", files)
    with follower.harness as harness:
        files.left = 3
        follower.truncate_to(9)
        follower.writer.run_all()
        files.left = None
        assert harness.log.is_failed
        close_log(harness.log)
        harness.open(clean=False, recovery_point=24)
        assert harness.offsets() == list(range(len(harness.offsets())))


def test_a_topic_that_is_deleted_meanwhile_leaves_its_successors_files_alone(tmp_path: Path) -> None:
    for number in range(4):
        follower = Follower(tmp_path / f"{number}" / "t-0", SMALL)
        with follower.harness as harness:
            for offset in range(12):
                follower.append(leader_batch(offset))
                follower.settle()
            follower.restart_at(0) if number % 2 else follower.truncate_to(1)
            for _ in range(number // 2):
                follower.writer.run_one()
            if not follower.writer.jobs:
                continue
            directory = harness.directory
            mark_deleted(harness.log)
            with LogHarness(directory) as successor:
                successor.append(bytearray(leader_batch(0, 5)))
                before = {name: (directory / name).read_bytes() for name in successor.names()}
                follower.settle()
                assert {name: (directory / name).read_bytes() for name in successor.names()} == before
            assert isinstance(follower.truncated[0], KafkaStorageError)


def test_a_table_of_epochs_from_before_the_truncation_does_not_outlive_a_crash(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(3, epoch=1)
        follower.fill(2, epoch=7)
        harness.log.flush()
        follower.settle()
        follower.truncate_to(3)
        follower.settle()
        follower.fill(1, epoch=4)
        follower.fill(1, epoch=9)
        harness.crash()
        assert harness.log.leader_epochs.entries() == [(1, 0), (4, 3), (9, 4)]


class Cleaner:
    """Records the partitions whose compaction is stopped, with the log end offset at that time."""

    def __init__(self) -> None:
        self.aborted: list[tuple[TopicPartition, int]] = []
        self.log_end_offset: Callable[[], int] = lambda: -1

    def abort(self, topic_partition: TopicPartition) -> None:
        self.aborted.append((topic_partition, self.log_end_offset()))


def test_a_compaction_is_aborted_before_segments_that_it_may_read_go(tmp_path: Path) -> None:
    cleaner = Cleaner()
    follower = Follower(tmp_path / "t-0", SMALL)
    with follower.harness as harness:
        harness.log._cleaner = cleaner
        cleaner.log_end_offset = lambda: harness.log.log_end_offset
        for offset in range(12):
            follower.append(leader_batch(offset))
            follower.settle()
        follower.truncate_to(11)
        follower.settle()
        assert cleaner.aborted == [], "a compaction never touches the active segment"
        follower.truncate_to(4)
        follower.settle()
        assert cleaner.aborted == [(TopicPartition("t", 0), 11)]
        follower.restart_at(30)
        follower.settle()
        assert cleaner.aborted[1:] == [(TopicPartition("t", 0), 4)]


def test_retention_leaves_a_log_alone_that_is_being_truncated(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0", LogConfig(segment_bytes=250, retention_ms=1))
    with follower.harness as harness:
        for offset in range(12):
            follower.append(leader_batch(offset))
            follower.settle()
        harness.log.move_high_watermark(12)
        follower.truncate_to(7)
        assert delete_old_segments(harness.log, NOW_MS + 1000) == []
        follower.settle()
        assert harness.offsets() == list(range(7))
        assert delete_old_segments(harness.log, NOW_MS + 1000) == [], "it is rolled first"
        follower.settle()
        assert delete_old_segments(harness.log, NOW_MS + 1000) != []
