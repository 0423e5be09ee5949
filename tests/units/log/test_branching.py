"""Branches: their content, the files that they share with their source, and the rule that neither ever changes the
other's data; and a crash leaves a whole branch or none."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from jesenska.base import limits
from jesenska.base.errors import KafkaError, KafkaStorageError, OutOfOrderSequenceNumberError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.compaction.log_cleaner import CleanerSettings, CleanerSurroundings
from jesenska.log.copies import branching
from jesenska.log.copies.branching import BranchWanted
from jesenska.log.disk.background import Background, DirectoryWriter, InlineBackground, inline_writer
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.follower_appends import append_as_follower
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.log_start import delete_old_segments, delete_records
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import read_log
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlMarker, ControlType, decode_batches, marker_record
from jesenska.records.encode import encode_batch
from tests.profiles import chosen, rounds
from tests.units.log.committed_reads import consume
from tests.units.log.dying_files import DiesError, DyingFiles
from tests.units.log.log_harness import NOW_MS, make_batch
from tests.units.log.manual_background import ManualBackground

SOURCE, TARGET = TopicPartition("orders", 0), TopicPartition("trial", 0)
TARGET_ID = uuid.UUID("f6d6d71e-006f-4733-b42b-eeb7454cb91d")
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0)


def start(
    path: Path,
    *,
    files: FileLayer | None = None,
    writer: DirectoryWriter | None = None,
    background: Background | None = None,
    config: LogConfig = CONFIG,
) -> LogDirectories:
    directories = LogDirectories(
        [path],
        files=files,
        writer_for=lambda _: writer if writer is not None else inline_writer(),
        background=background,
    )
    directories.lock()
    directories.load(lambda topic_partition, topic_id: config if topic_id in (None, TARGET_ID) else None, NOW_MS)
    return directories


def append(log: PartitionLog, *batches: bytes | bytearray, epoch: int = 0, commits: bool = True) -> None:
    for batch in batches:
        buffer = memoryview(bytearray(batch))
        append_at_once(log, buffer, [header for _, header in iter_headers(buffer)], epoch, NOW_MS)
    if commits:
        log.move_high_watermark(log.log_end_offset)


def filled(directories: LogDirectories, batches: int = 30) -> PartitionLog:
    """A log of several segments. The active segment has records, too."""
    log = directories.create(SOURCE, None, CONFIG, NOW_MS)
    append(log, *(make_batch(2, value_bytes=40) for _ in range(batches)))
    assert len(log.segments) > 5
    assert log.active_segment.size_bytes
    return log


def wanted(target: TopicPartition = TARGET, first_epoch: int = 1, config: LogConfig = CONFIG) -> BranchWanted:
    return BranchWanted(target, TARGET_ID, config, first_epoch)


def branch(
    directories: LogDirectories, target: TopicPartition = TARGET, first_epoch: int = 1, source: TopicPartition = SOURCE
) -> PartitionLog:
    outcomes: list[PartitionLog | KafkaError] = []
    directories.branch(source, wanted(target, first_epoch), NOW_MS, outcomes.append)
    (outcome,) = outcomes
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


def records(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start_offset
    while at < log.high_watermark:
        result = read_log(log, at, 1 << 20, log.high_watermark)
        assert result.region is not None, f"nothing at {at}"
        data = FileLayer().pread(result.region.file.fileno(), result.region.size_bytes, result.region.position)
        result.region.release()
        found.extend((record.offset, record.value) for record in decode_batches(data, start_offset=at))
        at = found[-1][0] + 1
    return found


def files_of(log: PartitionLog) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(log.directory.iterdir())}


def inodes(log: PartitionLog) -> set[int]:
    return {path.stat().st_ino for path in log.directory.iterdir()}


# --- what a branch is -------------------------------------------------------------------------------------------


def test_a_branch_has_the_records_of_its_source_and_its_closed_files_under_their_own_names(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    source.flush()
    before, told = files_of(source), records(source)
    made = branch(directories)
    assert records(made) == told
    assert (made.log_start_offset, made.log_end_offset, made.high_watermark) == (0, 60, 60)
    sealed = source.segments[:-1]
    assert [path.stat().st_ino for segment in sealed for path in segment.paths()[:3]] == [
        path.stat().st_ino for segment in made.segments[: len(sealed)] for path in segment.paths()[:3]
    ]
    assert not {segment.file.path.stat().st_ino for segment in made.segments[len(sealed) :]} & inodes(source)
    assert (made.active_segment.base_offset, made.active_segment.size_bytes) == (60, 0)
    assert made.topic_id == TARGET_ID
    assert files_of(source) == before
    append(made, make_batch(), epoch=1)
    append(source, make_batch(3))
    assert (made.log_end_offset, source.log_end_offset) == (61, 63)
    assert records(made)[:60] == records(source)[:60] == told
    directories.close()


def test_a_branch_is_the_same_after_a_stop_and_after_a_crash(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    branch(directories)
    for clean in (True, False):
        directories.close(clean=clean)
        directories = start(tmp_path)
        source, made = directories.logs[SOURCE], directories.logs[TARGET]
        for log in (source, made):
            log.move_high_watermark(log.log_end_offset)
        assert records(made) == records(source)
        assert made.log_end_offset == 60
    directories.close()


def test_a_branch_ends_at_the_high_watermark_with_a_whole_batch(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    source.move_high_watermark(41)
    assert branch(directories).log_end_offset == 40
    source.move_high_watermark(source.active_segment.base_offset)
    made = branch(directories, TopicPartition("trial", 1))
    assert made.log_end_offset == source.active_segment.base_offset
    assert len(made.segments) == len(source.segments), "nothing is copied"
    directories.close()


def test_a_branch_has_no_record_of_an_epoch_that_is_not_older_than_its_own(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    source.assign_leader_epoch(0, 0)
    source.assign_leader_epoch(4, 60)
    append(source, make_batch(5), epoch=4)
    early = branch(directories, first_epoch=4)
    assert early.log_end_offset == 60
    assert early.leader_epochs.entries() == [(0, 0)]
    late = branch(directories, TopicPartition("trial", 1), first_epoch=5)
    assert late.log_end_offset == 65
    assert late.leader_epochs.entries() == [(0, 0), (4, 60)]
    late.begin_to_lead(5)
    assert late.end_offset_for_epoch(4) == (4, 65)
    delete_records(source, 62)
    empty = branch(directories, TopicPartition("trial", 2), first_epoch=4)
    assert (empty.log_start_offset, empty.log_end_offset) == (62, 62)
    directories.close()


def test_a_branch_begins_where_its_source_does(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    delete_records(source, source.segments[2].base_offset + 1)
    made = branch(directories)
    assert made.log_start_offset == source.log_start_offset
    assert made.segments[0].base_offset == source.segments[2].base_offset
    assert records(made) == records(source)
    directories.close(clean=False)
    directories = start(tmp_path)
    assert directories.logs[TARGET].log_start_offset == source.log_start_offset
    directories.close()


@pytest.mark.parametrize("deleted", [0, 60])
def test_a_branch_of_an_empty_log_is_empty(tmp_path: Path, deleted: int) -> None:
    directories = start(tmp_path)
    source = directories.create(SOURCE, None, CONFIG, NOW_MS) if not deleted else filled(directories)
    delete_records(source, deleted)
    made = branch(directories)
    assert (made.log_start_offset, made.log_end_offset) == (deleted, deleted)
    append(made, make_batch(), epoch=1)
    assert made.log_end_offset == deleted + 1
    directories.close()


def test_a_large_active_segment_is_rolled_and_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(branching, "BRANCH_COPIED_BYTES", 100)
    directories = start(tmp_path)
    source = filled(directories)
    told, count = records(source), len(source.segments)
    made = branch(directories)
    assert len(source.segments) == count + 1
    assert records(source) == records(made) == told
    assert source.segments[-2].file.path.samefile(made.segments[-2].file.path)
    # Uncommitted records are also copied, whatever their size.
    append(source, make_batch(2, value_bytes=100), make_batch(1), commits=False)
    source.move_high_watermark(62)
    assert branch(directories, TopicPartition("trial", 1)).log_end_offset == 62
    assert len(source.segments) == count + 1
    assert limits.BRANCH_COPIED_BYTES == 16 * 1024 * 1024
    directories.close()


def test_a_producer_begins_a_branch_at_sequence_0_also_after_a_start(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    for sequence in range(3):
        append(source, make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
    branch(directories)
    directories.close()
    directories = start(tmp_path)
    made = directories.logs[TARGET]
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(made, make_batch(producer_id=7, producer_epoch=0, base_sequence=3), epoch=1)
    append(made, make_batch(producer_id=7, producer_epoch=0, base_sequence=0), epoch=1)
    append(directories.logs[SOURCE], make_batch(producer_id=7, producer_epoch=0, base_sequence=3))
    directories.close()


def test_consumers_of_committed_records_are_shown_the_same(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    for number in range(8):
        for offset in range(2):
            append(
                source,
                make_batch(
                    producer_id=9,
                    producer_epoch=0,
                    base_sequence=2 * number + offset,
                    is_transactional=True,
                    value_bytes=100,
                ),
            )
        record = marker_record(ControlMarker(ControlType.ABORT if number % 2 else ControlType.COMMIT, 0), NOW_MS)
        append(source, encode_batch([record], producer_id=9, producer_epoch=0, is_transactional=True, is_control=True))
    append(source, make_batch(producer_id=9, producer_epoch=0, base_sequence=16, is_transactional=True))
    shown = consume(source, 0, 1000)
    assert len(shown) == 68
    made = branch(directories)
    assert consume(made, 0, 1000) == shown
    assert made.last_stable_offset == source.last_stable_offset == 84
    directories.close(clean=False)
    directories = start(tmp_path)
    made = directories.logs[TARGET]
    made.move_high_watermark(made.log_end_offset)
    assert consume(made, 0, 1000) == shown
    directories.close()


def test_a_branch_of_a_branch_copies_nothing(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    branch(directories)
    second = branch(directories, TopicPartition("trial", 1), first_epoch=2, source=TARGET)
    assert records(second) == records(source)
    assert all(segment.file.path.stat().st_nlink > 1 for segment in second.segments[:-1])
    directories.close()


def test_a_branch_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    made = branch(directories)
    append(source, make_batch())
    assert branch(directories) is made
    assert made.log_end_offset == 60
    directories.close()


def test_a_branch_of_a_log_that_is_not_here_or_over_foreign_data_is_refused(tmp_path: Path) -> None:
    directories = start(tmp_path)
    with pytest.raises(KafkaStorageError, match="no log"):
        branch(directories)
    filled(directories)
    (tmp_path / "trial-0").mkdir()
    (tmp_path / "trial-0" / "00000000000000000000.log").write_bytes(b"")
    with pytest.raises(KafkaStorageError, match="move it away"):
        branch(directories)
    directories.close()


def test_a_thousand_branches_share_the_files_of_one_topic_and_outlive_it(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    source.flush()
    told = records(source)
    made = [branch(directories, TopicPartition("trial", number)) for number in range(1000)]
    assert source.segments[0].file.path.stat().st_nlink == 1001
    directories.delete(SOURCE, NOW_MS)
    directories.tick(NOW_MS + 1)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("orders")]
    assert all(records(log) == told for log in made)
    append(made[17], make_batch(), epoch=1)
    assert [log.log_end_offset for log in made[16:19]] == [60, 61, 60]
    directories.close()
    directories = start(tmp_path)
    for log in directories.logs.values():
        log.move_high_watermark(log.log_end_offset)
    assert len(directories.logs) == 1000
    assert all(records(log)[:60] == told for log in directories.logs.values())
    directories.close()


# --- neither changes what the other has ---------------------------------------------------------------------------


def truncate(log: PartitionLog, offset: int) -> None:
    outcomes: list[KafkaError | None] = []
    log.truncate_to(offset, NOW_MS, outcomes.append)
    assert outcomes == [None]


@pytest.mark.parametrize("is_source_cut", [True, False])
def test_a_log_that_is_cut_and_goes_on_changes_nothing_of_the_other(tmp_path: Path, is_source_cut: bool) -> None:
    """At every offset: each truncation makes a segment active that the other log has, too."""
    for offset in range(1, 60, 3):
        directories = start(tmp_path / str(offset))
        source = filled(directories)
        made = branch(directories)
        cut, other = (source, made) if is_source_cut else (made, source)
        before, told = files_of(other), records(other)
        truncate(cut, offset)
        end = cut.log_end_offset
        assert end == offset - offset % 2
        append(cut, make_batch(3, value_bytes=7), make_batch(6, value_bytes=30), epoch=2)
        cut.flush()
        assert files_of(other) == before, offset
        assert records(other) == told, offset
        assert [record for record in records(cut) if record[0] < end] == told[:end]
        assert records(cut)[end : end + 3] == [(end + index, bytes(7)) for index in range(3)]
        assert not inodes(other) & {cut.active_segment.file.path.stat().st_ino}
        directories.close(clean=offset % 2 == 0)
        directories = start(tmp_path / str(offset))
        for log in directories.logs.values():
            log.move_high_watermark(log.log_end_offset)
        assert records(directories.logs[other.topic_partition]) == told
        assert len(records(directories.logs[cut.topic_partition])) == end + 9
        directories.close()


def test_a_follower_whose_branch_is_cut_takes_what_its_leader_has(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    made = branch(directories)
    before = files_of(source)
    truncate(made, 30)
    batch = make_batch(4)
    buffer = memoryview(batch)
    batch[0:8] = (30).to_bytes(8, "big")
    append_as_follower(made, buffer, [header for _, header in iter_headers(buffer)], NOW_MS, lambda outcome: None)
    assert made.log_end_offset == 34
    assert files_of(source) == before
    directories.close()


class FailingFiles(FileLayer):
    """Refuses the calls that it is set to refuse."""

    __slots__ = ("link_error", "refused")

    def __init__(self) -> None:
        self.refused: str | None = None
        self.link_error: int | None = None

    def open(self, path: Path, flags: int) -> int:
        if self.refused is not None and self.refused in path.name and flags & os.O_RDWR:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().open(path, flags)

    def link(self, source: Path, target: Path) -> None:
        if self.link_error is not None:
            raise OSError(self.link_error, os.strerror(self.link_error))
        super().link(source, target)


def test_a_truncation_that_failed_behind_its_copy_is_tried_again_without_harm(tmp_path: Path) -> None:
    files = FailingFiles()
    directories = start(tmp_path, files=files)
    source = filled(directories)
    made = branch(directories)
    before = files_of(made)
    files.refused = ".index"
    outcomes: list[KafkaError | None] = []
    # The offset index of the segment that stays is cut after its log.
    source.truncate_to(source.segments[2].base_offset + 3, NOW_MS, outcomes.append)
    assert isinstance(outcomes[0], KafkaStorageError)
    assert files_of(made) == before
    files.refused = None
    truncate(source, source.segments[2].base_offset + 1)
    append(source, make_batch(9), epoch=1)
    assert files_of(made) == before
    source.flush()
    data = source.active_segment.file.path.read_bytes()
    assert (
        sum(header.last_offset_delta + 1 for _, header in iter_headers(data))
        == source.log_end_offset - source.active_segment.base_offset
    )
    directories.close()


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_file_that_is_damaged_is_mended_by_each_for_itself(tmp_path: Path, suffix: str) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    source.flush()
    made = branch(directories)
    path = source.segments[3].file.path.with_suffix(suffix)
    directories.close(clean=False)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\x07" * 3)
    assert (made.directory / path.name).read_bytes() == path.read_bytes(), "they share it"
    damaged = path.read_bytes()
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    # The source is recovered in full; the branch is not known this time.
    directories = LogDirectories([tmp_path])
    directories.lock()
    directories.load(lambda topic_partition, topic_id: CONFIG if topic_partition == SOURCE else None, NOW_MS)
    assert (tmp_path / "trial-0" / path.name).read_bytes() == damaged
    assert path.read_bytes() != damaged
    directories.close()


def test_an_index_that_is_built_anew_while_running_leaves_the_others_alone(tmp_path: Path) -> None:
    directories = start(tmp_path)
    filled(directories)
    branch(directories)
    directories.close()
    directories = start(tmp_path)
    source, made = directories.logs[SOURCE], directories.logs[TARGET]
    path = source.segments[3].file.path.with_suffix(".index")
    damaged = b"\xff" * 16
    path.write_bytes(damaged)
    source.move_high_watermark(60)
    assert len(records(source)) == 60
    source.segments[3].unload_indexes()
    source.segments[3].check_indexes()
    assert path.read_bytes() != damaged
    assert (made.directory / path.name).read_bytes() == damaged
    directories.close()


def test_a_start_that_makes_a_shared_segment_the_active_one_copies_it(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    made = branch(directories)
    before = files_of(source)
    for segment in made.segments[-2:]:
        for path in segment.paths():
            path.unlink(missing_ok=True)
    directories.close(clean=False)
    directories = start(tmp_path)
    made = directories.logs[TARGET]
    assert made.log_end_offset < 60
    count = len(made.segments)
    append(made, make_batch(value_bytes=0), epoch=1)
    assert len(made.segments) == count
    made.flush()
    assert {name: content for name, content in files_of(directories.logs[SOURCE]).items() if name.endswith(".log")} == {
        name: content for name, content in before.items() if name.endswith(".log")
    }
    directories.close()


def test_retention_of_either_leaves_the_other_whole(tmp_path: Path) -> None:
    directories = start(tmp_path)
    source = filled(directories)
    made = branch(directories)
    told = records(source)
    source.config = replace(CONFIG, retention_bytes=1)
    for path in delete_old_segments(source, NOW_MS):
        path.unlink()
    assert len(records(source)) < 10
    assert records(made) == told
    directories.close()


# --- meanwhile --------------------------------------------------------------------------------------------------


class Waiting(InlineBackground):
    """Calls a function before the next piece of work."""

    def __init__(self) -> None:
        self.first: Callable[[], None] | None = None

    def submit(self, work: Callable[[], object], done: Callable[..., None]) -> None:
        first, self.first = self.first, None
        if first is not None:
            first()
        super().submit(work, done)


def test_a_compaction_that_ends_while_a_branch_is_made_has_not_seen_the_branch(tmp_path: Path) -> None:
    config = replace(CONFIG, compact=True, delete=False, min_cleanable_dirty_ratio=0.0)
    writer, later = ManualBackground(), list[Callable[[], None]]()
    surroundings = CleanerSurroundings(
        InlineBackground(), lambda _, call: later.append(call), lambda: NOW_MS, lambda: NOW_MS, lambda: bytes(16)
    )
    directories = LogDirectories(
        [tmp_path],
        writer_for=lambda _: DirectoryWriter(writer, InlineBackground()),
        cleaner_surroundings=surroundings,
        cleaner_settings=CleanerSettings(backoff_ms=0),
    )
    directories.lock()
    directories.load(lambda topic_partition, topic_id: config, NOW_MS)
    source = directories.create(SOURCE, None, config, NOW_MS)
    append(source, *(encode_batch([(NOW_MS, b"key-%d" % (number % 3), bytes(100), ())]) for number in range(30)))
    source.roll(NOW_MS)
    source.flush()
    outcomes: list[PartitionLog | KafkaError] = []
    directories.branch(SOURCE, wanted(config=config), NOW_MS, outcomes.append)
    assert directories.cleaner is not None

    def compact() -> None:
        assert directories.cleaner is not None
        directories.cleaner.look()
        while later:
            later.pop(0)()

    # The files are linked, and the source is compacted before that is reported.
    ((work, done),) = writer.jobs
    made = work()
    compact()
    done(made)
    branched = directories.logs[TARGET]
    assert [len(records(log)) for log in (source, branched)] == [3, 30]
    compact()
    assert records(branched) == records(source)
    directories.close()


def test_segments_that_go_while_they_are_linked_have_the_branch_planned_anew(tmp_path: Path) -> None:
    waiting = Waiting()
    directories = start(tmp_path, writer=DirectoryWriter(waiting, InlineBackground()))
    source = filled(directories)
    source.flush()

    def goes() -> None:
        source.config = replace(CONFIG, retention_bytes=source.size_bytes - 800)
        assert delete_old_segments(source, NOW_MS)

    waiting.first = goes
    made = branch(directories)
    assert made.log_start_offset == source.log_start_offset > 0
    assert records(made) == records(source)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
    directories.close()


def test_a_file_that_has_the_name_of_a_segment_that_is_gone_is_not_taken_for_it(tmp_path: Path) -> None:
    waiting = Waiting()
    directories = start(tmp_path, writer=DirectoryWriter(waiting, InlineBackground()))
    source = filled(directories)
    source.flush()

    def is_compacted() -> None:
        path = source.segments[0].file.path
        source.segments[0].mark_deleted()
        path.write_bytes(make_batch(1))

    waiting.first = is_compacted
    with pytest.raises(KafkaStorageError, match="change all the time"):
        branch(directories)
    directories.close(clean=False)


def test_a_source_that_is_deleted_meanwhile_is_told(tmp_path: Path) -> None:
    waiting = Waiting()
    directories = start(tmp_path, writer=DirectoryWriter(waiting, InlineBackground()))
    filled(directories).flush()
    waiting.first = lambda: directories.delete(SOURCE, NOW_MS)
    with pytest.raises(KafkaStorageError, match="it is closed"):
        branch(directories)
    assert not (tmp_path / "trial-0").exists()
    directories.close()


def test_what_is_linked_is_synced_before(tmp_path: Path) -> None:
    flusher = ManualBackground()
    directories = start(tmp_path, writer=DirectoryWriter(InlineBackground(), flusher))
    source = directories.create(SOURCE, None, CONFIG, NOW_MS)
    append(source, make_batch(5, value_bytes=40))
    source.roll(NOW_MS)
    outcomes: list[PartitionLog | KafkaError] = []
    directories.branch(SOURCE, wanted(), NOW_MS, outcomes.append)
    assert not outcomes
    assert directories.has_work_in_flight
    flusher.run_all()
    assert isinstance(outcomes[0], PartitionLog)
    assert source.recovery_point == 5
    directories.close()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_without_hard_links_files_are_copied(tmp_path: Path, code: int) -> None:
    files = FailingFiles()
    directories = start(tmp_path, files=files)
    source = filled(directories)
    files.link_error = code
    made = branch(directories)
    assert records(made) == records(source)
    assert not inodes(made) & inodes(source)
    directories.close()


class CompactingFiles(FailingFiles):
    """Files without hard links, which call a function when a file of this name is read for a copy."""

    __slots__ = ("copied", "does")

    def __init__(self) -> None:
        super().__init__()
        self.copied = ""
        self.does: Callable[[], None]

    def open(self, path: Path, flags: int) -> int:
        if self.copied and path.name == self.copied and flags == os.O_RDONLY:
            self.copied = ""
            self.does()
        return super().open(path, flags)


def test_a_segment_that_is_replaced_while_it_is_copied_is_not_taken(tmp_path: Path) -> None:
    files = CompactingFiles()
    directories = start(tmp_path, files=files)
    source = filled(directories)
    source.flush()
    files.link_error = errno.EXDEV
    files.copied = source.segments[0].file.path.name

    def is_compacted() -> None:
        path = source.segments[0].file.path
        source.segments[0].mark_deleted()
        path.write_bytes(make_batch(1))

    files.does = is_compacted
    with pytest.raises(KafkaStorageError, match="change all the time"):
        branch(directories)
    directories.close(clean=False)


def test_a_full_disk_leaves_nothing_of_a_branch(tmp_path: Path) -> None:
    files = FailingFiles()
    directories = start(tmp_path, files=files)
    filled(directories)
    files.link_error = errno.ENOSPC
    with pytest.raises(KafkaStorageError, match="make room on the disk"):
        branch(directories)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("trial")]
    files.link_error = None
    assert branch(directories).log_end_offset == 60
    directories.close()


def test_a_disk_that_breaks_while_a_topic_is_branched_takes_its_directory_offline(tmp_path: Path) -> None:
    files = FailingFiles()
    directories = start(tmp_path, files=files)
    filled(directories)
    files.link_error = errno.EIO
    with pytest.raises(KafkaStorageError, match="mend the disk"):
        branch(directories)
    assert [directory.is_offline for directory in directories.directories] == [True]
    files.link_error = None
    with pytest.raises(KafkaStorageError, match="while the log directory of one of them is offline"):
        branch(directories)
    assert not (tmp_path / "trial-0").exists()
    directories.close(clean=False)


def test_the_log_start_of_an_earlier_topic_of_the_name_does_not_count(tmp_path: Path) -> None:
    directories = start(tmp_path)
    earlier = directories.create(TARGET, TARGET_ID, CONFIG, NOW_MS)
    append(earlier, *(make_batch(9) for _ in range(40)))
    delete_records(earlier, 355)
    directories.checkpoint_log_start_offsets()
    directories.delete(TARGET, NOW_MS)
    filled(directories)
    branch(directories)
    directories.close(clean=False)
    directories = start(tmp_path)
    assert directories.logs[TARGET].log_start_offset == 0
    directories.logs[TARGET].move_high_watermark(60)
    assert len(records(directories.logs[TARGET])) == 60
    directories.close()


# --- crashes ----------------------------------------------------------------------------------------------------


def crashed(tmp_path: Path, calls: int | None, seed: int, *, loses: bool) -> tuple[int, bool]:
    """Branches a log and goes down at one of the calls that change the disk; returns the number of calls, and whether
    the branch exists after a start. It is then whole, and its source is whole in any case."""
    path = tmp_path / f"data-{seed}-{calls}-{loses}"
    files = DyingFiles()
    # In half of the cases the checkpoints are written before the machine goes down.
    directories = start(path, files=files, background=ManualBackground() if seed % 2 else None)
    source = filled(directories)
    for sequence in range(3):
        append(source, make_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
    source.flush()
    directories.checkpoint_recovery_points()
    told = records(source)
    files.calls, files.left = 0, calls
    answered = False
    try:
        answered = branch(directories).log_end_offset == 63
    except DiesError:
        pass
    count = files.calls
    files.left = None
    directories.close(clean=False)
    if loses:
        after = tmp_path / f"after-{seed}-{calls}"
        files.after_crash(path, after, Random(seed))
    else:
        after = path
    files.forget()
    directories = start(after)
    directories.remove_doomed(NOW_MS)
    made = directories.get(TARGET)
    for log in directories.logs.values():
        log.move_high_watermark(log.log_end_offset)
    assert records(directories.logs[SOURCE]) == told, calls
    assert made is not None or not answered, "a branch that was answered is there"
    if made is not None:
        assert records(made) == told, calls
        truncate(made, 20)
        append(made, make_batch(9), epoch=1)
        assert records(directories.logs[SOURCE]) == told, calls
    assert not [entry for entry in after.iterdir() if entry.name.endswith("-delete")], calls
    directories.close()
    return count, made is not None


@pytest.mark.parametrize("loses", [True, False])
def test_a_crash_at_any_call_leaves_the_whole_branch_or_none(tmp_path: Path, loses: bool) -> None:
    count, is_there = crashed(tmp_path, None, 0, loses=loses)
    assert is_there
    assert count > 30
    found = set()
    every = chosen(quick=5, ci=1, everything=1) if loses else chosen(quick=15, ci=3, everything=1)
    for calls in [*range(0, count, every), count]:
        seeds = rounds(quick=1, ci=1, everything=4) if calls < count else rounds(quick=3, ci=10, everything=20)
        for seed in range(seeds if loses else 1):
            found.add(crashed(tmp_path, calls, seed * 1000 + calls, loses=loses)[1])
    assert found == {True, False}


def cut_and_crashed(tmp_path: Path, calls: int | None, *, is_source_cut: bool) -> int:
    """Cuts one of the two logs in a shared segment, writes to it, and goes down at one of the calls that change the
    disk. After a start the other log is whole, and so is the remaining part of the log that was cut."""
    path = tmp_path / f"data-{calls}-{is_source_cut}"
    files = DyingFiles()
    directories = start(path, files=files)
    source = filled(directories)
    source.flush()
    made = branch(directories)
    made.flush()
    directories.checkpoint_recovery_points()
    told = records(source)
    cut, other = (source, made) if is_source_cut else (made, source)
    files.calls, files.left = 0, calls
    try:
        failures: list[dict[TopicPartition, KafkaError]] = []
        directories.truncate({cut.topic_partition: 21}, NOW_MS, failures.append)
        assert failures == [{}]
        append(cut, make_batch(3, value_bytes=7), epoch=2)
        cut.flush()
        directories.checkpoint_recovery_points()
    except DiesError:
        pass
    count = files.calls
    files.left = None
    directories.close(clean=False)
    after = tmp_path / f"after-{calls}-{is_source_cut}"
    files.after_crash(path, after, Random(calls))
    files.forget()
    directories = start(after)
    whole, shorter = directories.logs[other.topic_partition], directories.logs[cut.topic_partition]
    whole.move_high_watermark(whole.log_end_offset)
    assert records(whole) == told, calls
    # After a crash its leader decides about the rest of its end.
    shorter.move_high_watermark(20)
    assert records(shorter) == told[:20], calls
    directories.close()
    return count


@pytest.mark.parametrize("is_source_cut", [True, False])
def test_a_crash_while_a_shared_segment_is_cut_leaves_the_other_whole(tmp_path: Path, is_source_cut: bool) -> None:
    count = cut_and_crashed(tmp_path, None, is_source_cut=is_source_cut)
    assert count > 10
    for calls in range(0, count + 1, chosen(quick=20, ci=4, everything=1)):
        cut_and_crashed(tmp_path, calls, is_source_cut=is_source_cut)
