"""Appends while a flush is in flight, and disks that fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jesenska.base.errors import KafkaError, KafkaStorageError
from jesenska.log.disk.background import DirectoryWriter
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import mark_deleted
from jesenska.log.partition.leader_appends import AppendResult, append_or_queue
from jesenska.log.partition.reading import read_log
from jesenska.records.batch import iter_headers
from tests.profiles import examples
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch
from tests.units.log.manual_background import ManualBackground


class FaultyFiles(FileLayer):
    """A disk with room for this number of further bytes in .log files, and an fsync that can fail."""

    __slots__ = ("fsync_error", "room_bytes", "synced", "truncate_fails")

    def __init__(self) -> None:
        self.room_bytes: int | None = None
        self.fsync_error: int | None = None
        self.truncate_fails = False
        self.synced = 0

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if self.room_bytes is None:
            return super().pwrite(descriptor, data, position)
        if self.room_bytes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = super().pwrite(descriptor, memoryview(data)[: self.room_bytes], position)
        self.room_bytes -= count
        return count

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        if self.truncate_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(descriptor, size_bytes)

    def fsync(self, descriptor: int) -> None:
        if self.fsync_error is not None:
            raise OSError(self.fsync_error, os.strerror(self.fsync_error))
        self.synced += 1


class Queued:
    """A log whose flushes and queued writes run on the test's request."""

    def __init__(self, directory: Path, config: LogConfig | None = None, files: FaultyFiles | None = None) -> None:
        self.flusher = ManualBackground()
        self.writer = ManualBackground()
        self.files = files or FaultyFiles()
        self.answers: list[AppendResult | KafkaError] = []
        self.harness = LogHarness(
            directory, config or LogConfig(), self.files, DirectoryWriter(self.writer, self.flusher)
        )

    def append(self, batch: bytearray) -> AppendResult | None:
        buffer = memoryview(batch)
        headers = [header for _, header in iter_headers(buffer)]
        log = self.harness.log
        return append_or_queue(log, buffer, headers, 0, NOW_MS, self.answers.append)

    def offsets_answered(self) -> list[int]:
        return [answer.base_offset for answer in self.answers if isinstance(answer, AppendResult)]


def test_append_is_inline_with_no_flush_in_flight(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0")
    with queued.harness:
        result = queued.append(make_batch(2))
        assert result is not None
        assert result.base_offset == 0
        assert queued.writer.jobs == []


def test_appends_during_a_flush_are_queued_in_order_and_published_when_written(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0")
    with queued.harness as harness:
        queued.append(make_batch(2))
        harness.log.flush()
        batch = make_batch(3)
        assert queued.append(batch) is None
        batch[:] = bytes(len(batch))
        assert queued.append(make_batch(1)) is None
        assert (harness.log.log_end_offset, harness.log.next_offset) == (2, 6)
        assert harness.offsets() == [0, 1]
        queued.writer.run_one()
        assert queued.offsets_answered() == [2]
        assert harness.log.log_end_offset == 5
        assert harness.offsets() == [0, 1, 2, 3, 4]
        queued.flusher.run_all()
        # One write is still queued: the next one is queued after it, with or without a flush.
        assert queued.append(make_batch(1)) is None
        queued.writer.run_all()
        assert queued.offsets_answered() == [2, 5, 6]
        assert harness.offsets() == list(range(7))
        assert queued.append(make_batch(1)) is not None


def test_recovery_point_moves_only_when_the_flush_has_ended(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0")
    with queued.harness as harness:
        queued.append(make_batch(2))
        harness.log.flush()
        queued.append(make_batch(2))
        assert harness.log.recovery_point == 0
        queued.flusher.run_all()
        assert harness.log.recovery_point == 2
        queued.writer.run_all()


def test_an_epoch_that_begins_at_the_end_stays_when_a_queued_append_fails(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0")
    with queued.harness as harness:
        queued.append(make_batch(2))
        harness.log.assign_leader_epoch(3, 2)
        harness.log.flush()
        assert queued.append(make_batch(2)) is None
        queued.files.room_bytes = 0
        queued.writer.run_all()
        assert isinstance(queued.answers[-1], KafkaStorageError)
        assert harness.log.end_offset_for_epoch(3) == (3, 2)


def test_roll_while_writes_are_queued_keeps_each_batch_in_its_segment(tmp_path: Path) -> None:
    size = len(make_batch())
    queued = Queued(tmp_path / "t-0", LogConfig(segment_bytes=2 * size, index_interval_bytes=0))
    with queued.harness as harness:
        queued.append(make_batch())
        harness.log.flush()
        for _ in range(6):
            assert queued.append(make_batch()) is None
        for written in range(1, 7):
            assert harness.offsets() == list(range(written))
            while harness.log.log_end_offset == written:
                queued.writer.run_one()
        queued.flusher.run_all()
        assert [segment.base_offset for segment in harness.log.segments] == [0, 2, 4, 6]
        assert all(segment.is_sealed for segment in harness.log.segments[:-1])
        assert harness.offsets() == list(range(7))
        harness.crash()
        assert harness.notes == []
        assert harness.offsets() == list(range(7))


def test_flush_messages_answers_after_the_sync(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0", LogConfig(flush_messages=1))
    with queued.harness as harness:
        assert queued.append(make_batch()) is None
        assert queued.answers == []
        assert queued.append(make_batch()) is None
        assert queued.append(make_batch()) is None
        queued.writer.run_all()
        assert queued.answers == []
        queued.flusher.run_one()
        assert queued.offsets_answered() == [0]
        # The two that came during the flush share one.
        assert len(queued.flusher.jobs) == 1
        queued.flusher.run_all()
        assert queued.offsets_answered() == [0, 1, 2]
        assert harness.log.recovery_point == 3


def test_batch_sent_again_after_a_kill_is_answered_after_the_sync_that_the_kill_prevented(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0", LogConfig(flush_messages=1))
    with queued.harness as harness:
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0)) is None
        queued.flusher.jobs.clear()
        harness.writer = DirectoryWriter(queued.writer, queued.flusher)
        harness.crash()
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0)) is None
        assert queued.answers == []
        queued.flusher.run_all()
        assert [
            (answer.base_offset, answer.duplicate) for answer in queued.answers if isinstance(answer, AppendResult)
        ] == [(0, True)]
        assert harness.log.recovery_point == 1


def test_full_disk_fails_the_append_and_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    files = FaultyFiles()
    with LogHarness(tmp_path / "t-0", LogConfig(), files) as harness:
        harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0))
        before = harness.contents()
        files.room_bytes = 40
        with pytest.raises(KafkaStorageError, match="No space left"):
            harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=1))
        assert harness.log.active_segment.file.path.read_bytes() == before
        assert harness.offsets() == [0]
        files.room_bytes = None
        assert harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=1)).base_offset == 1
        harness.crash()
        assert harness.offsets() == [0, 1]


def test_torn_tail_that_cannot_be_cut_blocks_appends_until_it_can(tmp_path: Path) -> None:
    files = FaultyFiles()
    with LogHarness(tmp_path / "t-0", LogConfig(), files) as harness:
        harness.append(make_batch())
        files.room_bytes, files.truncate_fails = 40, True
        with pytest.raises(KafkaStorageError):
            harness.append(make_batch())
        files.room_bytes = None
        with pytest.raises(KafkaStorageError):
            harness.append(make_batch())
        assert harness.offsets() == [0]
        files.truncate_fails = False
        assert harness.append(make_batch()).base_offset == 1
        assert harness.offsets() == [0, 1]


def test_full_disk_at_a_roll_fails_the_append_and_the_next_rolls_again(tmp_path: Path) -> None:
    files = FaultyFiles()
    size = len(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0))
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=2 * size), files) as harness:
        for sequence in range(2):
            harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=sequence))
        files.room_bytes = 0
        with pytest.raises(KafkaStorageError):
            harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=2))
        assert len(harness.log.segments) == 1
        files.room_bytes = None
        harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=2))
        assert [segment.base_offset for segment in harness.log.segments] == [0, 2]
        harness.crash()
        assert harness.offsets() == [0, 1, 2]


def test_queued_write_that_fails_takes_everything_behind_it_along(tmp_path: Path) -> None:
    size = len(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0))
    queued = Queued(tmp_path / "t-0", LogConfig(segment_bytes=2 * size))
    with queued.harness as harness:
        sequence = iter(range(100))
        for _ in range(2):
            queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=next(sequence)))
        harness.log.flush()
        for _ in range(4):
            queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=next(sequence)))
        queued.writer.run_one()  # the roll
        queued.files.room_bytes = size + 30
        queued.writer.run_work_first()
        assert queued.offsets_answered() == [2]
        assert [type(answer) for answer in queued.answers] == [
            AppendResult,
            KafkaStorageError,
            KafkaStorageError,
            KafkaStorageError,
        ]
        assert harness.offsets() == [0, 1, 2]
        assert harness.log.next_offset == 3
        queued.files.room_bytes = None
        queued.flusher.run_all()
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=3)) is not None
        queued.flusher.run_all()
        harness.crash()
        assert harness.notes == []
        assert harness.offsets() == [0, 1, 2, 3]


@pytest.mark.parametrize("fails", ["log", "index", "timeindex", "snapshot"])
def test_queued_roll_that_fails_takes_everything_behind_it_along_and_leaves_no_files(
    tmp_path: Path, fails: str
) -> None:
    class NoRoomForFiles(FaultyFiles):
        __slots__ = ("full",)

        def __init__(self) -> None:
            super().__init__()
            self.full = False

        def open(self, path: Path, flags: int) -> int:
            if self.full and flags & os.O_CREAT and fails in path.name.split("."):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().open(path, flags)

    size = len(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=0))
    queued = Queued(tmp_path / "t-0", LogConfig(segment_bytes=2 * size), NoRoomForFiles())
    with queued.harness as harness:
        for sequence in range(2):
            queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=sequence))
        before = harness.names()
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=2)) is None
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=3)) is None
        assert isinstance(queued.files, NoRoomForFiles)
        queued.files.full = True
        queued.writer.run_work_first()
        assert [type(answer) for answer in queued.answers] == [KafkaStorageError, KafkaStorageError]
        assert harness.names() == before
        assert (harness.log.next_offset, len(harness.log.segments)) == (2, 1)
        queued.files.full = False
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=2)) is None
        queued.writer.run_all()
        queued.flusher.run_all()
        assert harness.offsets() == [0, 1, 2]
        assert harness.log.recovery_point == 2
        harness.crash()
        assert harness.notes == []
        assert harness.offsets() == [0, 1, 2]


def test_log_that_is_deleted_while_it_rolls_keeps_no_descriptors(tmp_path: Path) -> None:
    class CountedFiles(FaultyFiles):
        __slots__ = ("descriptors",)

        def __init__(self) -> None:
            super().__init__()
            self.descriptors: list[int] = []

        def open(self, path: Path, flags: int) -> int:
            self.descriptors.append(descriptor := super().open(path, flags))
            return descriptor

        def close(self, descriptor: int) -> None:
            self.descriptors.remove(descriptor)
            super().close(descriptor)

    files = CountedFiles()
    size = len(make_batch())
    queued = Queued(tmp_path / "t-0", LogConfig(segment_bytes=2 * size), files)
    for _ in range(5):
        queued.append(make_batch())
    queued.writer.run_one()
    mark_deleted(queued.harness.log)
    queued.writer.run_all()
    queued.flusher.run_all()
    assert files.descriptors == []


class OwnersFiles(FaultyFiles):
    """Records the disk calls of the owner's thread, other than writes to an open segment."""

    __slots__ = ("asked", "in_background")

    def __init__(self) -> None:
        super().__init__()
        self.in_background = False
        self.asked: list[str] = []

    def _ask(self, what: str) -> None:
        if not self.in_background:
            self.asked.append(what)

    def open(self, path: Path, flags: int) -> int:
        self._ask(f"open {path.name}")
        return super().open(path, flags)

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._ask("truncate")
        super().truncate(descriptor, size_bytes)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        self._ask("allocate")
        super().allocate(descriptor, size_bytes)

    def rename(self, source: Path, target: Path) -> None:
        self._ask(f"rename {source.name}")
        super().rename(source, target)

    def fsync(self, descriptor: int) -> None:
        self._ask("fsync")
        super().fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        self._ask("fsync directory")
        super().fsync_directory(path)


@pytest.mark.parametrize("preallocate", [False, True])
def test_roll_asks_nothing_of_the_disk_on_the_owners_thread(tmp_path: Path, preallocate: bool) -> None:
    files = OwnersFiles()
    size = len(make_batch())
    queued = Queued(
        tmp_path / "t-0", LogConfig(segment_bytes=3 * size, index_interval_bytes=0, preallocate=preallocate), files
    )
    with queued.harness as harness:
        queued.append(make_batch())
        files.asked.clear()
        for number in range(1, 10):
            result = queued.append(make_batch())
            assert (result is None) == (number % 3 == 0), "only the append that rolls waits"
            files.in_background = True
            for jobs in (queued.writer.jobs, queued.flusher.jobs):
                outcomes = [(done, work()) for work, done in jobs]
                jobs.clear()
                files.in_background = False
                for done, outcome in outcomes:
                    done(outcome)
                files.in_background = True
            files.in_background = False
        assert files.asked == []
        assert harness.log.recovery_point == 9
        assert queued.offsets_answered() == [3, 6, 9]
        for segment in harness.log.segments[:-1]:
            assert segment.file.path.stat().st_size == segment.size_bytes == 3 * size
            assert segment.offset_index.path.stat().st_size == 8 * len(segment.offset_index) == 16


def test_recovery_point_stays_where_index_entries_find_no_room(tmp_path: Path) -> None:
    files = FaultyFiles()
    with LogHarness(tmp_path / "t-0", LogConfig(index_interval_bytes=0), files) as harness:
        for _ in range(5):
            harness.append(make_batch())
        files.room_bytes = 0
        harness.log.flush()
        assert harness.log.recovery_point == 0
        files.room_bytes = None
        harness.log.flush()
        assert harness.log.recovery_point == 5


def test_batch_sent_again_while_it_waits_is_answered_with_it(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0")
    with queued.harness as harness:
        queued.append(make_batch())
        harness.log.flush()
        for _ in range(2):
            assert queued.append(make_batch(2, producer_id=1, producer_epoch=0, base_sequence=0)) is None
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=2)) is None
        assert queued.answers == []
        queued.writer.run_one()
        assert [
            (answer.base_offset, answer.duplicate) for answer in queued.answers if isinstance(answer, AppendResult)
        ] == [(1, False), (1, True)]
        queued.files.room_bytes = 0
        assert queued.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=2)) is None
        queued.writer.run_one()
        assert [type(answer) for answer in queued.answers[2:]] == [KafkaStorageError, KafkaStorageError]
        assert harness.offsets() == [0, 1, 2]
        queued.flusher.run_all()


def test_flush_that_a_truncation_overtook_does_not_move_the_recovery_point(tmp_path: Path) -> None:
    queued = Queued(tmp_path / "t-0")
    with queued.harness as harness:
        for _ in range(5):
            queued.append(make_batch())
        harness.log.flush()
        truncated: list[KafkaError | None] = []
        harness.log.truncate_to(2, NOW_MS, truncated.append)
        queued.writer.run_all()
        assert truncated == [None]
        for _ in range(4):
            harness.append(make_batch())
        queued.flusher.run_all()
        assert harness.log.recovery_point <= 2
        harness.log.flush()
        queued.flusher.run_all()
        assert harness.log.recovery_point == 6


class NoDescriptors(FaultyFiles):
    """A system that runs out of descriptors on the test's request."""

    __slots__ = ("exhausted",)

    def __init__(self) -> None:
        super().__init__()
        self.exhausted = False

    def open(self, path: Path, flags: int) -> int:
        if self.exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().open(path, flags)

    def fsync_directory(self, path: Path) -> None:
        if self.exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        super().fsync_directory(path)
        self.synced += 1


def test_too_many_open_files_for_a_moment_put_a_sync_off_and_no_more(tmp_path: Path) -> None:
    files = NoDescriptors()
    with LogHarness(tmp_path / "t-0", LogConfig(), files) as harness:
        harness.append(make_batch(2))
        answers: list[KafkaError | None] = []
        files.exhausted = True
        harness.log.flush(answers.append)
        assert isinstance(answers[0], KafkaStorageError)
        assert harness.log.recovery_point == 0
        assert not harness.log.is_failed
        harness.append(make_batch(2))
        files.exhausted = False
        before = files.synced
        harness.log.flush(answers.append)
        assert answers[1] is None
        assert harness.log.recovery_point == 4
        assert files.synced >= before + 3  # the segment, and the names of the partition's and the log's directory
        assert harness.append(make_batch()).base_offset == 4


def test_flush_without_descriptors_left_fails_nothing_but_itself(tmp_path: Path) -> None:
    files = NoDescriptors()
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=200), files) as harness:
        for _ in range(3):
            harness.append(make_batch())
        for segment in harness.log.segments[:-1]:
            segment.close()
        files.exhausted = True
        with pytest.raises(KafkaStorageError, match="Too many open files"):
            read_log(harness.log, 0, 100)
        with pytest.raises(KafkaStorageError):
            for _ in range(3):
                harness.append(make_batch())
        files.exhausted = False
        assert harness.append(make_batch()).base_offset == harness.log.log_end_offset - 1
        assert harness.offsets() == list(range(harness.log.log_end_offset))


def test_failed_fsync_stops_appends_but_not_reads(tmp_path: Path) -> None:
    files = FaultyFiles()
    with LogHarness(tmp_path / "t-0", LogConfig(), files) as harness:
        harness.append(make_batch(2))
        files.fsync_error = errno.EIO
        answers: list[KafkaError | None] = []
        harness.log.flush(answers.append)
        assert isinstance(answers[0], KafkaStorageError)
        files.fsync_error = None
        with pytest.raises(KafkaStorageError, match="could not be synced"):
            harness.append(make_batch())
        harness.log.flush(answers.append)
        assert isinstance(answers[1], KafkaStorageError)
        assert harness.log.recovery_point == 0
        assert harness.offsets() == [0, 1]
        harness.crash()
        assert harness.append(make_batch()).base_offset == 2


@settings(max_examples=examples(1))
@given(
    steps=st.lists(
        st.sampled_from(["append", "append", "append", "flush", "write", "work first", "flushed", "full", "room"]),
        max_size=60,
    ),
    room=st.integers(0, 300),
)
@example(steps=["full", "append", "room", "append"], room=0)
@example(steps=["flush", "full", "append", "room"], room=0)
def test_whatever_happens_the_log_holds_what_was_answered_and_nothing_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], room: int
) -> None:
    queued = Queued(tmp_path_factory.mktemp("log") / "t-0", LogConfig(segment_bytes=500, index_interval_bytes=100))
    sent = 0
    inline: list[int] = []
    with queued.harness as harness:
        for step in steps:
            if step == "append":
                try:
                    result = queued.append(make_batch(1, timestamp=NOW_MS + sent, value_bytes=sent % 50))
                    if result is not None:
                        inline.append(result.base_offset)
                except KafkaStorageError:
                    pass
                sent += 1
            elif step == "flush":
                harness.log.flush()
            elif step == "write" and queued.writer.jobs:
                queued.writer.run_one()
            elif step == "work first":
                queued.writer.run_work_first()
            elif step == "flushed" and queued.flusher.jobs:
                queued.flusher.run_one()
            elif step == "full":
                queued.files.room_bytes = room
            elif step == "room":
                queued.files.room_bytes = None
            assert harness.offsets() == list(range(harness.log.log_end_offset))
        queued.writer.run_all()
        queued.files.room_bytes = None
        queued.flusher.run_all()
        answered = sorted(inline + queued.offsets_answered())
        assert answered == list(range(harness.log.log_end_offset))
        before = harness.contents()
        harness.crash()
        assert harness.notes == []
        assert harness.contents() == before
