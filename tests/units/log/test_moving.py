"""A replica is moved to another log directory. It is the same log there, with all changes during the move, and a crash
at any moment leaves one complete log."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from jesenska.base.errors import KafkaError, KafkaStorageError, ReplicaNotAvailableError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.copies import future_files, replica_move, replica_moves
from jesenska.log.copies.branching import BranchWanted
from jesenska.log.copies.future_files import MOVED_TO_FILE
from jesenska.log.copies.replica_moves import MoveSettings
from jesenska.log.directory.directory_lock import LogDirectoryError
from jesenska.log.disk.background import DirectoryWriter, InlineBackground
from jesenska.log.disk.checkpoints import OffsetCheckpoint
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.leader_appends import AppendResult, append_or_queue
from jesenska.log.partition.log_start import delete_old_segments, delete_records
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import read_log
from jesenska.records.batch import iter_headers
from jesenska.records.encode import encode_batch
from tests.profiles import chosen, rounds
from tests.units.log.dying_files import DiesError, DyingFiles
from tests.units.log.log_harness import NOW_MS, make_batch
from tests.units.log.manual_background import ManualBackground
from tests.units.log.moving_harness import CONFIG, MOVED, TOPIC_ID, MovingDirectories, content, kinds
from tests.units.log.test_branching import records

pytestmark = pytest.mark.timeout(300)


def append(log: PartitionLog, *batches: bytes | bytearray, epoch: int = 0) -> list[AppendResult | KafkaError]:
    """Appends as a leader without followers does: all records in the log are committed. Returns the results, as far as
    they are known."""
    told: list[AppendResult | KafkaError] = []

    def done(outcome: AppendResult | KafkaError) -> None:
        told.append(outcome)
        log.move_high_watermark(log.log_end_offset)

    for batch in batches:
        buffer = memoryview(bytearray(batch))
        result = append_or_queue(log, buffer, [header for _, header in iter_headers(buffer)], epoch, NOW_MS, done)
        if result is not None:
            done(result)
    return told


def filled(moving_directories: MovingDirectories, batches: int = 30) -> PartitionLog:
    log = moving_directories.create()
    append(log, *(make_batch(2, value_bytes=40) for _ in range(batches)))
    return log


def run_to_hold(moved: MovingDirectories) -> None:
    """Runs until the log's appends wait for the end of the move."""
    while not moved.log.queue.is_held:
        assert moved.step()


# --- what a move leaves behind ---------------------------------------------------------------------------------------


def test_a_moved_replica_is_the_same_log_in_the_other_directory(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    delete_records(log, 7)
    before, told = content(log.directory), records(log)
    moved.move(moved.b)
    moved.run()
    assert moved.log is log
    assert log.directory == tmp_path / "b" / "orders-0"
    assert content(log.directory) == before
    assert (records(log), log.log_start_offset, log.high_watermark, log.recovery_point) == (told, 7, 60, 60)
    assert kinds(moved.names()["a"]) == ["orders-0.*-delete"]
    assert moved.names()["b"] == ["orders-0"]
    assert (MOVED in moved.a.logs, MOVED in moved.b.logs) == (False, True)
    moved.directories.tick(NOW_MS)
    assert moved.names()["a"] == []
    append(log, make_batch(3))
    assert records(log)[: len(told)] == told
    moved.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_moved_replica_is_found_in_its_new_directory_by_the_next_start(tmp_path: Path, clean: bool) -> None:
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    delete_records(log, 7)
    moved.move(moved.b)
    moved.run()
    append(log, make_batch(3))
    told, epochs = records(log), log.leader_epochs.entries()
    moved.close(clean=clean)
    again = MovingDirectories(tmp_path)
    assert again.directories.was_clean == clean
    assert again.log.directory == tmp_path / "b" / "orders-0"
    assert again.log.topic_id == TOPIC_ID
    again.log.move_high_watermark(again.log.log_end_offset)
    assert records(again.log) == told
    assert again.log.leader_epochs.entries() == epochs
    assert again.log.log_start_offset == 7
    again.close()


def test_the_log_goes_on_while_it_is_copied_and_appends_wait_only_for_the_end(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    moved.move(moved.b)
    while not log.queue.is_held:
        assert moved.step()
        if moved.log.log_end_offset < 90:
            assert len(append(log, make_batch())) == 1
    end = log.log_end_offset
    waiting = append(log, make_batch(2), make_batch(600 // 80))
    assert (waiting, log.log_end_offset) == ([], end)
    told: list[KafkaError | None] = []
    moved.directories.truncate({MOVED: end + 1}, NOW_MS, lambda failures: told.extend([failures.get(MOVED)]))
    assert told == []
    moved.run()
    assert log.directory.parent.name == "b"
    assert told == [None]
    assert log.log_end_offset == end, "a batch goes as a whole"
    append(log, make_batch())
    assert [offset for offset, _ in records(log)] == list(range(end + 1))
    moved.close()


def test_appends_that_wait_are_written_and_rolled_in_the_new_directory(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    moved.move(moved.b)
    run_to_hold(moved)
    told: list[AppendResult | KafkaError] = []
    for _ in range(40):
        told += append(log, make_batch(value_bytes=50))
    assert told == []
    count = len(log.segments)
    moved.run()
    assert log.log_end_offset == 100
    assert len(log.segments) == count > 8
    assert {segment.file.path.parent for segment in log.segments} == {tmp_path / "b" / "orders-0"}
    assert sorted(content(log.directory)) == [segment.file.path.name for segment in log.segments]
    assert [offset for offset, _ in records(log)] == list(range(100))
    moved.close(clean=False)
    again = MovingDirectories(tmp_path)
    assert again.log.log_end_offset == 100
    again.close()


def test_index_files_snapshots_and_transaction_indexes_come_along(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    log = moved.create()
    for sequence in range(30):
        append(log, make_batch(1, value_bytes=90, producer_id=7, producer_epoch=0, base_sequence=sequence))
    log.flush()
    before = {
        item.name: item.read_bytes()
        for item in log.directory.iterdir()
        if item.suffix in (".index", ".timeindex", ".snapshot")
    }
    producers = log.producers.entries()
    moved.move(moved.b)
    moved.run()
    active = f"{log.active_segment.base_offset:020d}"
    after = {
        item.name: item.read_bytes()
        for item in log.directory.iterdir()
        if item.suffix in (".index", ".timeindex", ".snapshot")
    }
    sealed = {name: data for name, data in before.items() if not name.startswith(active)}
    assert len(sealed) > 20
    assert {name: after.get(name) for name in sealed} == sealed
    assert after[f"{active}.snapshot"] == before[f"{active}.snapshot"]
    assert log.producers.entries() == producers
    log.flush()
    (again,) = append(log, make_batch(1, value_bytes=90, producer_id=7, producer_epoch=0, base_sequence=29))
    assert isinstance(again, AppendResult)
    assert again.duplicate
    moved.close()


def test_checkpoints_of_the_new_directory_know_the_log_before_it_is_there(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    # A file left from an earlier topic of the name: with it the next start would forget the log.
    (tmp_path / "b" / "log-start-offset-checkpoint").write_text("0\n1\norders 0 5000\n")
    (tmp_path / "b" / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 6000\n")
    log = filled(moved)
    delete_records(log, 7)
    moved.move(moved.b)
    run_to_hold(moved)
    assert (tmp_path / "b" / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 7\n"
    assert (tmp_path / "b" / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 60\n"
    assert (
        tmp_path / "b" / "recovery-point-offset-checkpoint"
    ).read_text() == f"0\n1\norders 0 {log.active_segment.base_offset}\n"
    moved.run()
    moved.directories.checkpoint_log_start_offsets()
    assert OffsetCheckpoint(tmp_path / "a" / "log-start-offset-checkpoint", FileLayer()).read() == {}
    moved.close()


def test_open_reads_go_on_with_the_old_files(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    region = read_log(log, 0, 300).region
    assert region is not None
    before = os.pread(region.file.fileno(), region.size_bytes, region.position)
    moved.move(moved.b)
    moved.run()
    moved.directories.tick(NOW_MS)
    assert os.pread(region.file.fileno(), region.size_bytes, region.position) == before
    region.release()
    moved.close()


def test_a_move_takes_no_more_bytes_a_second_than_it_may_and_rests_at_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_moves, "_PIECE_MIN_BYTES", 100)
    moved = MovingDirectories(tmp_path, settings=MoveSettings(max_bytes_per_second=1000))
    log = filled(moved)
    size_bytes = log.size_bytes
    moved.move(moved.b)
    moved.run()
    assert moved.elapsed_ms == pytest.approx(size_bytes, rel=0.1)
    assert moved.directories.moves is not None
    moved.directories.moves.reconfigure(MoveSettings(max_bytes_per_second=0))
    moved.move(moved.a)
    for _ in range(200):
        if not moved.step():
            moved.elapsed_ms = min((at_ms for at_ms, _ in moved.timers), default=moved.elapsed_ms)
    assert log.directory.parent.name == "b"
    (figures,) = moved.directories.moves.figures()
    assert (figures.copied_bytes, figures.size_bytes, figures.offset_lag) == (0, size_bytes, 60)
    moved.directories.moves.reconfigure(MoveSettings())
    moved.run()
    assert log.directory.parent.name == "a"
    moved.close()


def test_so_many_moves_run_at_a_time_as_are_allowed(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path, settings=MoveSettings(threads=1))
    filled(moved)
    moved.b.is_cordoned = True
    other = moved.directories.create(TopicPartition("other", 0), TOPIC_ID, CONFIG, NOW_MS)
    moved.move(moved.b)
    moved.b.is_cordoned = False
    moved.directories.move(other.topic_partition, moved.b)
    assert moved.directories.moves is not None
    assert [figures.state for figures in moved.directories.moves.figures()] == ["copying", "waiting"]
    moved.run()
    assert moved.names()["b"] == ["orders-0", "other-0"]
    moved.close()


# --- what is asked for -----------------------------------------------------------------------------------------------


def test_another_target_gives_the_first_move_up_and_the_own_directory_every_move(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path, count=3)
    log = filled(moved)
    moved.move(moved.b)
    for _ in range(9):
        moved.step()
    moved.move(moved.b)
    assert kinds(moved.names()["b"]) == ["orders-0.*-future"]
    moved.move(moved.c)
    assert kinds(moved.names()["b"]) == ["orders-0.*-delete"]
    assert kinds(moved.names()["c"]) == ["orders-0.*-future"]
    moved.move(moved.a)
    assert kinds(moved.names()["c"]) == ["orders-0.*-delete"]
    moved.run()
    assert log.directory.parent.name == "a"
    moved.directories.tick(NOW_MS)
    assert moved.names() == {"a": ["orders-0"], "b": [], "c": []}
    append(log, make_batch())
    moved.close()


def test_a_change_of_mind_in_the_last_moment_is_followed_after_the_move(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path, count=3)
    log = filled(moved)
    moved.move(moved.b)
    run_to_hold(moved)
    moved.move(moved.c)
    moved.run()
    assert log.directory.parent.name == "c"
    moved.directories.tick(NOW_MS)
    assert moved.names() == {"a": [], "b": [], "c": ["orders-0"]}
    moved.close()


def test_a_branch_of_a_replica_at_the_end_of_its_move_is_made_where_that_is_then(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    told = records(filled(moved))
    moved.move(moved.b)
    while not (moved.log.queue.is_held and moved.thread.jobs):
        assert moved.step()
    made: list[PartitionLog | KafkaError] = []
    wanted = BranchWanted(TopicPartition("branch", 0), None, moved.config, 1)
    moved.directories.branch(MOVED, wanted, NOW_MS, made.append)
    assert (made, moved.directories.has_work_in_flight) == ([], True)
    moved.run()
    assert moved.log.directory == tmp_path / "b" / "orders-0"
    [branch] = made
    assert isinstance(branch, PartitionLog)
    assert branch.directory == tmp_path / "b" / "branch-0"
    assert records(branch) == told
    assert not moved.directories.has_work_in_flight
    moved.close()


def test_a_move_does_not_end_while_a_branch_is_made_of_its_replica(tmp_path: Path) -> None:
    writers = {name: ManualBackground() for name in "ab"}
    moved = MovingDirectories(tmp_path, writers=lambda path: DirectoryWriter(writers[path.name], writers[path.name]))
    log = moved.create()
    append(log, *(make_batch(2, value_bytes=40) for _ in range(3)))
    for writer in writers.values():
        writer.run_all()
    moved.move(moved.b)
    made: list[PartitionLog | KafkaError] = []
    moved.directories.branch(
        MOVED, BranchWanted(TopicPartition("branch", 0), None, moved.config, 1), NOW_MS, made.append
    )
    for _ in range(100):
        if not moved.step():
            moved.elapsed_ms += 50
    assert (made, MOVED in moved.a.logs) == ([], True)
    for _ in range(1000):
        if not moved.step() and not any(writer.jobs for writer in writers.values()):
            moved.elapsed_ms += 50
        for writer in writers.values():
            writer.run_all()
    assert isinstance(made[0], PartitionLog)
    assert MOVED in moved.b.logs
    moved.close()


def test_a_stop_waits_for_the_checkpoints_that_a_move_has_begun_to_write(tmp_path: Path) -> None:
    """Each may be followed by another one, so a thread must still exist for it."""
    background = ManualBackground()
    moved = MovingDirectories(tmp_path, background=background)
    filled(moved)
    moved.move(moved.b)
    while not background.jobs:
        assert moved.step()
    assert moved.directories.moves is not None
    moved.directories.moves.close()
    written = 0
    while moved.directories.has_work_in_flight:
        background.run_one()
        written += 1
    assert (written > 0, background.jobs) == (True, [])
    moved.close()


def test_a_partition_that_is_not_here_yet_is_made_where_it_was_wanted(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path, count=3)
    with pytest.raises(ReplicaNotAvailableError):
        moved.move(moved.c)
    log = moved.directories.create(MOVED, TOPIC_ID, CONFIG, NOW_MS)
    assert log.directory.parent.name == "c"
    moved.directories.delete(MOVED, NOW_MS)
    assert moved.directories.create(MOVED, TOPIC_ID, CONFIG, NOW_MS).directory.parent.name == "a", (
        "it is asked for once"
    )
    moved.close()


def test_no_new_log_comes_into_a_cordoned_directory(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    moved.directories.cordon({moved.a.path})
    for number in range(3):
        assert moved.directories.create(TopicPartition("t", number), None, CONFIG, NOW_MS).directory.parent.name == "b"
    moved.directories.cordon({moved.a.path, moved.b.path})
    with pytest.raises(KafkaStorageError, match=r"cordoned\.log\.dirs"):
        moved.directories.create(TopicPartition("t", 3), None, CONFIG, NOW_MS)
    moved.directories.cordon(set())
    assert moved.directories.create(TopicPartition("t", 3), None, CONFIG, NOW_MS).directory.parent.name == "a"
    moved.close()


def test_a_deleted_partition_takes_its_copy_along_at_every_moment(tmp_path: Path) -> None:
    for number in range(80):
        moved = MovingDirectories(tmp_path / str(number))
        log = filled(moved, 8)
        moved.move(moved.b)
        steps = [moved.step() for _ in range(number)]
        held = append(log, make_batch())
        moved.directories.delete(MOVED, NOW_MS)
        moved.run()
        assert not log.queue.is_held
        assert len(held) == 1, "who waits hears"
        moved.directories.tick(NOW_MS)
        moved.directories.tick(NOW_MS)
        assert moved.names() == {"a": [], "b": []}, number
        moved.directories.create(MOVED, TOPIC_ID, CONFIG, NOW_MS)
        moved.close()
        if not all(steps):
            return
    raise AssertionError("a move takes more steps")


# --- a start finds a copy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_goes_on_with_a_move_and_writes_only_what_is_missing(tmp_path: Path, clean: bool) -> None:
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    moved.move(moved.b)
    for _ in range(15):
        moved.step()
    told, size_bytes = records(log), log.size_bytes
    moved.close(clean=clean)
    written = 0

    class Counting(FileLayer):
        def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
            nonlocal written
            written += len(data) if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".log") else 0
            return super().pwrite(descriptor, data, position)

    again = MovingDirectories(tmp_path, files=Counting())
    assert again.log.directory.parent.name == "a"
    again.directories.tick(NOW_MS)
    again.run()
    assert again.log.directory.parent.name == "b"
    again.log.move_high_watermark(again.log.log_end_offset)
    assert records(again.log) == told
    assert 0 < written < size_bytes * 2 // 3
    again.close()


def test_what_a_start_finds_in_a_copy_is_not_believed(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    told, before = records(log), content(log.directory)
    moved.close()
    future = tmp_path / "b" / f"orders-0.{TOPIC_ID.hex}-future"
    shutil.copytree(tmp_path / "a" / "orders-0", future)
    chance = Random(4)
    for item in sorted(future.iterdir()):
        if item.name != "partition.metadata":
            item.write_bytes(
                bytes(chance.randrange(256) if chance.random() < 0.02 else byte for byte in item.read_bytes()) + b"more"
            )
    (future / "00000000000000009999.log").write_bytes(b"not theirs")
    again = MovingDirectories(tmp_path)
    again.directories.tick(NOW_MS)
    again.run()
    assert again.log.directory == tmp_path / "b" / "orders-0"
    assert content(again.log.directory) == before
    assert records(again.log) == told
    again.close(clean=False)
    assert records(MovingDirectories(tmp_path).log) == told


def test_a_copy_without_its_log_is_left_alone_and_a_second_one_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moved = MovingDirectories(tmp_path, count=3)
    filled(moved)
    moved.close()
    for directory in "bc":
        (tmp_path / directory / f"orders-0.{TOPIC_ID.hex}-future").mkdir()
        (tmp_path / directory / f"alien-0.{TOPIC_ID.hex}-future").mkdir()
    again = MovingDirectories(tmp_path, count=3)
    again.directories.tick(NOW_MS)
    again.run()
    assert again.log.directory.parent.name == "b"
    again.directories.tick(NOW_MS)
    assert again.names() == {
        "a": [],
        "b": [f"alien-0.{TOPIC_ID.hex}-future", "orders-0"],
        "c": [f"alien-0.{TOPIC_ID.hex}-future"],
    }
    assert sum("alien-0" in message and "was not changed" in message for message in caplog.messages) == 2
    again.close()


def test_a_directory_that_has_moved_to_one_that_cannot_be_read_is_not_taken_for_the_log(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    filled(moved)
    moved.close()
    (tmp_path / "a" / "orders-0" / MOVED_TO_FILE).write_text(f"{tmp_path / 'b' / 'orders-0'}\n")
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "b").write_text("no directory")
    again = MovingDirectories(tmp_path)
    again.directories.expect([MOVED])
    assert again.b.is_offline
    assert MOVED not in again.directories.logs
    assert MOVED in again.directories.offline
    again.close()
    (tmp_path / "b").unlink()
    third = MovingDirectories(tmp_path)
    assert third.log.log_end_offset == 60, "it was not moved"
    assert not (tmp_path / "a" / "orders-0" / MOVED_TO_FILE).exists()
    third.close()


def test_a_partition_in_two_directories_without_a_word_about_it_stops_the_start(tmp_path: Path) -> None:
    moved = MovingDirectories(tmp_path)
    filled(moved)
    moved.close()
    shutil.copytree(tmp_path / "a" / "orders-0", tmp_path / "b" / "orders-0")
    with pytest.raises(LogDirectoryError, match="is in both"):
        MovingDirectories(tmp_path)


# --- compaction ------------------------------------------------------------------------------------------------------


def keyed(key: int, value: int) -> bytearray:
    return encode_batch([(NOW_MS, str(key).encode(), str(value).encode() * 10, ())])


def test_a_compacted_log_is_not_compacted_while_it_moves_and_goes_on_with_it_where_it_is(tmp_path: Path) -> None:
    config = replace(CONFIG, compact=True, delete=False, min_cleanable_dirty_ratio=0.01)
    moved = MovingDirectories(tmp_path, config=config, compacts=True)
    log = moved.create()
    append(log, *(keyed(number % 5, number) for number in range(60)))
    moved.directories.tick(NOW_MS)
    moved.run()
    compacted = len(records(log))
    assert compacted < 30
    checkpoint = tmp_path / "a" / "cleaner-offset-checkpoint"
    assert b"orders 0" in checkpoint.read_bytes()
    append(log, *(keyed(number % 5, number) for number in range(60, 120)))
    cleaner = moved.directories.cleaner
    assert cleaner is not None
    cleaner.look()
    at_work = [cleaner.is_at_work]
    moved.move(moved.b)
    while log.directory.parent.name == "a":
        cleaner.look()
        at_work.append(cleaner.is_at_work)
        assert moved.step()
    assert at_work == [True] + [False] * (len(at_work) - 1), "what was under way comes to nothing"
    assert len(records(log)) == compacted + 60
    assert b"orders 0" in (tmp_path / "b" / "cleaner-offset-checkpoint").read_bytes()
    assert b"orders 0" not in checkpoint.read_bytes()
    moved.directories.tick(NOW_MS)
    moved.run()
    told = records(log)
    assert len(told) < compacted + 30
    latest = {number % 5: str(number).encode() * 10 for number in range(115, 120)}
    assert {value for _, value in told[-5:]} == set(latest.values())
    moved.close()
    again = MovingDirectories(tmp_path, config=config)
    assert again.log.directory.parent.name == "b"
    assert records(again.log) == told
    again.close()


# --- disks that fail -------------------------------------------------------------------------------------------------


class FailingFiles(FileLayer):
    """Refuses calls for paths below a directory from the n-th call on."""

    def __init__(self) -> None:
        self.below: Path | None = None
        self.left = 0
        self.error = errno.EIO
        self.descriptors: dict[int, Path] = {}

    def _check(self, path: Path | None) -> None:
        if self.below is None or path is None or self.below not in (path, *path.parents):
            return
        if self.left <= 0:
            raise OSError(self.error, os.strerror(self.error))
        self.left -= 1

    def open(self, path: Path, flags: int) -> int:
        self._check(path)
        descriptor = super().open(path, flags)
        self.descriptors[descriptor] = path
        return descriptor

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self._check(self.descriptors.get(descriptor))
        return super().pwrite(descriptor, data, position)

    def pread_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        self._check(self.descriptors.get(descriptor))
        return super().pread_into(descriptor, buffer, position)

    def fsync(self, descriptor: int) -> None:
        self._check(self.descriptors.get(descriptor) if self.error != errno.ENOSPC else None)
        super().fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        self._check(path if self.error != errno.ENOSPC else None)
        super().fsync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self._check(target)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._check(path)
        super().unlink(path)


def steps_until_failed(tmp_path: Path, failing: str, left: int) -> tuple[bool, FailingFiles]:
    """One of the directories fails at that number of calls after the move was begun. Returns whether it failed at all.
    Acknowledged records are there when the disk is repaired, or in the directory that has not failed."""
    files = FailingFiles()
    moved = MovingDirectories(tmp_path, files=files)
    log = filled(moved, 6)
    moved.directories.checkpoint_high_watermarks()
    log.flush()
    moved.move(moved.b)
    files.below, files.left = tmp_path / failing, left
    acknowledged = 12
    for number in range(400):
        if not moved.step():
            if not moved.timers or moved.elapsed_ms > 60_000:
                break
            moved.elapsed_ms = min(at_ms for at_ms, _ in moved.timers)
        if number % 3 == 0 and acknowledged < 40 and not log.is_closed:
            with suppress(KafkaError):
                for told in append(log, make_batch()):
                    if isinstance(told, AppendResult):
                        acknowledged = told.last_offset + 1
        moved.directories.tick(NOW_MS)
    failed = any(directory.is_offline for directory in moved.directories.directories)
    assert not log.queue.is_held
    if failed and not log.is_closed:
        (outcome,) = append(log, make_batch())
        assert isinstance(outcome, AppendResult)
        acknowledged = outcome.last_offset + 1
    files.below = None
    moved.close(clean=False)
    again = MovingDirectories(tmp_path)
    again.directories.tick(NOW_MS)
    again.log.move_high_watermark(again.log.log_end_offset)
    assert [offset for offset, _ in records(again.log)][:acknowledged] == list(range(acknowledged)), left
    again.run()
    assert [offset for offset, _ in records(again.log)][:acknowledged] == list(range(acknowledged)), left
    again.close()
    return failed, files


@pytest.mark.parametrize("failing", ["a", "b"])
def test_a_directory_that_fails_at_any_moment_of_a_move_takes_nothing_along(tmp_path: Path, failing: str) -> None:
    ends = 0
    for left in range(0, 400, chosen(quick=9, ci=3, everything=1)):
        failed, _ = steps_until_failed(tmp_path / str(left), failing, left)
        ends = 0 if failed else ends + 1
        if ends > 3:
            assert left > 10
            return
    raise AssertionError("a move takes more calls")


def test_a_full_target_delays_the_move_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = FailingFiles()
    files.error = errno.ENOSPC
    moved = MovingDirectories(tmp_path, files=files)
    log = filled(moved)
    moved.move(moved.b)
    files.below, files.left = tmp_path / "b", 20
    while moved.step():
        pass
    assert moved.timers
    assert not moved.b.is_offline
    assert any("tried again every 5 s" in message for message in caplog.messages)
    assert len(append(log, make_batch())) == 1
    files.below = None
    moved.run()
    assert log.directory.parent.name == "b"
    assert [offset for offset, _ in records(log)] == list(range(61))
    moved.close()


# --- the model -------------------------------------------------------------------------------------------------------


def one_history(tmp_path: Path, seed: int, *, operations: int = 120) -> int:
    """Does the same to two logs, one of which is moved meanwhile: they have the same batches at the same offsets, and
    the same state. Returns the number of completed moves."""
    chance = Random(seed)
    writer = ManualBackground() if chance.random() < 0.5 else None
    held: list[DirectoryWriter] = []

    def writers(path: Path) -> DirectoryWriter:
        made = DirectoryWriter(writer if writer is not None else InlineBackground(), InlineBackground())
        held.append(made)
        return made

    moved = MovingDirectories(tmp_path / "moved", count=3, writers=writers, seed=seed)
    twin = MovingDirectories(tmp_path / "twin", count=1)
    log, other = moved.create(), twin.directories.create(MOVED, TOPIC_ID, CONFIG, NOW_MS)
    producer, sequence, moves_done, epoch = 3, 0, 0, 0

    def settle() -> None:
        """Ends the work in queues; moves need not end."""
        for _ in range(10_000):
            if writer is not None and writer.jobs:
                writer.run_one()
            elif not log.has_queued_appends:
                return
            elif not moved.step():
                moved.elapsed_ms = min(at_ms for at_ms, _ in moved.timers)
        raise AssertionError("it does not end")

    for _ in range(operations):
        what = chance.randrange(100)
        if what < 30:
            count = chance.randrange(1, 4)
            batch = make_batch(
                count,
                value_bytes=chance.randrange(10, 90),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
            )
            sequence += count
            slow = chance.random() < 0.4
            for item in held:
                item.flushes_in_flight += slow
            append(log, batch, epoch=epoch)
            for item in held:
                item.flushes_in_flight -= slow
            append(other, batch, epoch=epoch)
            if not slow:
                settle()
        elif what < 34:
            settle()
            if log.log_end_offset > log.log_start_offset:
                offset = chance.randint(max(log.log_start_offset, log.log_end_offset - 12), log.log_end_offset)
                done: list[object] = []
                moved.directories.truncate({MOVED: offset}, NOW_MS, done.append)
                twin.directories.truncate({MOVED: offset}, NOW_MS, done.append)
                if chance.random() < 0.7:
                    settle()
                for _ in range(3):
                    moved.step()
                settle()
                assert done == [{}, {}]
                entries = [
                    entry for entry in other.producers.entries() if entry.producer_id == producer and entry.batches
                ]
                sequence = entries[0].batches[-1].last_sequence + 1 if entries else sequence
                epoch += 1
        elif what < 38:
            settle()
            offset = chance.randint(log.log_start_offset, log.high_watermark)
            delete_records(log, offset)
            delete_records(other, offset)
        elif what < 42:
            settle()
            log.config = other.config = replace(CONFIG, retention_bytes=chance.choice([-1, 1500, 3000]))
            for each in (log, other):
                for path in delete_old_segments(each, NOW_MS):
                    path.unlink()
        elif what < 46:
            epoch += 1
            settle()
            log.begin_to_lead(epoch)
            other.begin_to_lead(epoch)
        elif what < 50:
            log.flush()
            other.flush()
        elif what < 56:
            moved.move(chance.choice(moved.directories.directories))
        elif what < 58:
            settle()
            told = (log.high_watermark, log.log_end_offset)
            clean = chance.random() < 0.5
            if not clean:
                moved.directories.checkpoint_high_watermarks()
                moved.directories.checkpoint_log_start_offsets()
                twin.directories.checkpoint_log_start_offsets()
            while writer is not None and writer.jobs:
                writer.run_one()
            moved.close(clean=clean)
            twin.close(clean=clean)
            held.clear()
            moved = MovingDirectories(tmp_path / "moved", count=3, writers=writers, seed=chance.randrange(10**6))
            twin = MovingDirectories(tmp_path / "twin", count=1)
            log, other = moved.log, twin.log
            # A start forgets producers of records that were deleted, as far as no snapshot has them.
            producer, sequence = producer + 1, 0
            assert (log.high_watermark, log.log_end_offset) == told
            moved.directories.tick(NOW_MS)
            other.move_high_watermark(other.log_end_offset)
        else:
            before = log.directory
            for _ in range(chance.randrange(1, 12)):
                if not moved.step():
                    moved.elapsed_ms += 50
                if writer is not None and writer.jobs and chance.random() < 0.7:
                    writer.run_one()
            moves_done += log.directory != before
    settle()
    for _ in range(10_000):
        if writer is not None and writer.jobs:
            writer.run_one()
        elif not moved.step():
            if not moved.timers:
                break
            moved.elapsed_ms = min(at_ms for at_ms, _ in moved.timers)
    assert moved.directories.moves is not None
    assert not moved.directories.moves.is_at_work
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (
        other.log_start_offset,
        other.high_watermark,
        other.log_end_offset,
    )
    assert b"".join(content(log.directory).values()) == b"".join(content(other.directory).values())
    assert [segment.base_offset for segment in log.segments] == [segment.base_offset for segment in other.segments]
    assert sorted(content(log.directory)) == [segment.file.path.name for segment in log.segments]
    assert log.leader_epochs.entries() == other.leader_epochs.entries()
    # A start remembers more or fewer batches, and producers, as there are snapshots.
    last_batches = [
        [entry.batches[-1:] for entry in each.producers.entries() if entry.producer_id == producer]
        for each in (log, other)
    ]
    assert last_batches[0] == last_batches[1]
    told_all = records(log)
    assert told_all == records(other)
    moved.close(clean=False)
    moved = MovingDirectories(tmp_path / "moved", count=3)
    moved.log.move_high_watermark(moved.log.log_end_offset)
    assert records(moved.log)[-len(told_all) :] == told_all[-len(records(moved.log)) :]
    moved.close()
    twin.close()
    return moves_done


def test_a_log_that_moves_about_is_the_same_as_one_that_does_not(tmp_path: Path) -> None:
    count = rounds(quick=4, ci=16, everything=60)
    done = 0
    for seed in range(count):
        done += one_history(tmp_path / str(seed), seed)
        shutil.rmtree(tmp_path / str(seed))
    assert done > count // 3


# --- crashes ---------------------------------------------------------------------------------------------------------


def crashed(tmp_path: Path, calls: int | None, seed: int, *, loses: bool) -> tuple[int, str]:
    """Moves a log while it is written, and goes down at one of the calls that change the disk: the machine, which
    loses unsynced data, or only the process. Returns the number of calls, and the log's directory after a start."""
    path = tmp_path / f"{calls}-{seed}-{loses}"
    files = DyingFiles()
    moved = MovingDirectories(path, files=files)
    log = filled(moved, 8)
    log.flush()
    moved.directories.checkpoint_high_watermarks()
    moved.directories.checkpoint_recovery_points()
    delete_records(log, 3)
    moved.directories.checkpoint_log_start_offsets()
    moved.move(moved.b)
    if loses:
        files.came_up_with(path)
    certain = acknowledged = 16
    files.calls, files.left = 0, calls
    number = 0
    try:
        while moved.directories.moves is not None and (moved.directories.moves.is_at_work or number < 200):
            number += 1
            if not moved.step():
                if not moved.timers:
                    break
                moved.elapsed_ms = min(at_ms for at_ms, _ in moved.timers)
            if number % 4 == 0 and acknowledged < 30:
                for outcome in append(log, make_batch()):
                    assert isinstance(outcome, AppendResult)
                acknowledged = log.log_end_offset
            has_just_moved = log.directory.parent.name == "b" and certain < acknowledged
            if has_just_moved:
                append(log, make_batch())
                acknowledged = log.log_end_offset
            if number % 12 == 0 or has_just_moved:
                log.flush()
                certain = log.recovery_point
        append(log, make_batch())
        acknowledged = log.log_end_offset
        log.flush()
        certain = log.recovery_point
        moved.directories.tick(NOW_MS)
    except DiesError:
        pass
    count, files.left = files.calls, None
    acknowledged = max(acknowledged, log.log_end_offset)
    moved.directories.close(clean=False)
    if loses:
        after = tmp_path / f"after-{calls}-{seed}"
        files.after_crash(path, after, Random(seed))
        shutil.rmtree(path)
        after.rename(path)
    files.forget()
    again = MovingDirectories(path)
    again.log.move_high_watermark(again.log.log_end_offset)
    whole = certain if loses else acknowledged
    assert again.log.log_start_offset == 3, calls
    assert [offset for offset, _ in records(again.log)][: whole - 3] == list(range(3, whole)), calls
    end, where = again.log.log_end_offset, again.log.directory.parent.name
    assert sum(name == "orders-0" for names in again.names().values() for name in names) == 1, calls
    append(again.log, make_batch())
    again.directories.tick(NOW_MS)
    again.run()
    again.directories.tick(NOW_MS)
    assert [offset for offset, _ in records(again.log)] == list(range(3, end + 1)), calls
    # The simulated disk may lose the old and the new name of a renamed file, and with it the copy.
    here, there = ("a", "b") if loses and again.log.directory.parent.name == "a" else ("b", "a")
    assert again.names() == {here: ["orders-0"], there: []}, calls
    again.close()
    shutil.rmtree(path)
    return count, where


@pytest.mark.parametrize("loses", [True, False], ids=["machine", "process"])
def test_a_crash_at_any_call_of_a_move_leaves_one_whole_log(tmp_path: Path, loses: bool) -> None:
    count, where = crashed(tmp_path, None, 0, loses=loses)
    assert where == "b"
    assert count > 60
    found = set()
    for seed in range(rounds(quick=1, ci=1, everything=4) if loses else 1):
        for calls in range(0, count + 1, chosen(quick=20, ci=4, everything=1)):
            found.add(crashed(tmp_path, calls, seed * 1000 + calls, loses=loses)[1])
    assert found == {"a", "b"}


def test_an_old_name_that_a_crash_brings_back_is_not_taken_for_the_log(tmp_path: Path) -> None:
    """The log continues in its new directory before the disk knows that the old one has another name."""
    moved = MovingDirectories(tmp_path)
    log = filled(moved)
    moved.move(moved.b)
    while log.directory.parent.name == "a":
        assert moved.step()
    append(log, make_batch(3))
    log.flush()
    moved.thread.jobs.clear()
    moved.directories.close(clean=False)
    (doomed,) = (tmp_path / "a").glob("orders-0.*-delete")
    doomed.rename(tmp_path / "a" / "orders-0")
    again = MovingDirectories(tmp_path)
    again.log.move_high_watermark(again.log.log_end_offset)
    assert [offset for offset, _ in records(again.log)] == list(range(63))
    again.directories.tick(NOW_MS)
    assert again.names() == {"a": [], "b": ["orders-0"]}
    again.close()


def test_names_and_limits_are_those_that_the_tests_stand_on() -> None:
    """Pieces are larger than the logs of these tests, so that one step copies a segment."""
    assert replica_moves._PIECE_BYTES > 1_000_000
    assert replica_move._END_MAX_BYTES > 1_000_000
    assert future_files.FUTURE_DIRECTORY_SUFFIX == "-future"
