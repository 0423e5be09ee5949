"""Compaction: the remaining records, the times when a log is due, the rate limit, and the effect of other events on
the log meanwhile, or of a crash of the machine."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.compaction.cleaned_transactions import CleanedTransactions
from jesenska.log.compaction.cleaning_plan import CleanerSegment, cleanable_part, first_dirty_offset, groups, is_due
from jesenska.log.compaction.log_cleaner import CleanerSettings, CleanerSurroundings
from jesenska.log.disk.background import DirectoryWriter, InlineBackground
from jesenska.log.disk.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_directories import LogDirectories
from jesenska.log.partition.leader_appends import append_at_once
from jesenska.log.partition.reading import lookup_by_time, read_log
from jesenska.log.segments.producer_state import AbortedTransaction
from jesenska.log.segments.time_lookup import TimeLookup
from jesenska.records.batch import iter_headers
from jesenska.records.decode import ControlMarker, ControlType, marker_record
from jesenska.records.encode import encode_batch
from jesenska.records.header import BatchHeader, read_header
from jesenska.testing.simulation.machine.disk import ForgetfulFiles
from tests.profiles import chosen
from tests.units.log.committed_reads import consume
from tests.units.log.compaction_model import PARTITION, START_MS, CompactedLog, run
from tests.units.log.dying_files import DiesError, DyingFiles
from tests.units.log.log_harness import LogHarness
from tests.units.log.manual_background import ManualBackground

CONFIG = LogConfig(
    segment_bytes=1000, delete=False, compact=True, min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0
)


def one(key: bytes, value: bytes | None, timestamp_ms: int = START_MS) -> bytearray:
    return encode_batch([(timestamp_ms, key, value, ())])


def filled(
    directory: Path, config: LogConfig = CONFIG, settings: CleanerSettings | None = None, files: FileLayer | None = None
) -> CompactedLog:
    """A log of four keys, ten times each, in several segments. The last segment is empty."""
    log = CompactedLog(directory, config, settings, files)
    for number in range(40):
        log.append(one(b"key-%d" % (number % 4), b"value-%d" % number + bytes(50)))
    log.log.roll(log.now_ms)
    return log


def offsets(log: CompactedLog) -> list[int]:
    return [record.offset for _, _, _, records in log.told() for record in records]  # type: ignore[attr-defined]


NEWEST = [36, 37, 38, 39]


@pytest.mark.parametrize("first_seed", range(1, 61, 10))
def test_a_compacted_log_is_what_the_model_keeps(first_seed: int, tmp_path: Path) -> None:
    for seed in range(first_seed, first_seed + 10):
        run(seed, tmp_path / str(seed))


def test_the_newest_record_of_each_key_stays_at_its_offset_and_the_rest_goes(tmp_path: Path) -> None:
    log = filled(tmp_path)
    before = log.log.size_bytes
    log.compact()
    assert offsets(log) == NEWEST
    assert (log.log.log_start_offset, log.log.log_end_offset) == (0, 40)
    assert log.log.size_bytes < before / 5
    log.directories.remove_doomed(log.now_ms)
    assert not [path.name for path in log.log.directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
    log.close()


def test_where_compaction_left_off_is_known_after_a_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.compact()
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\ncompacted 0 40\n"
    log.close()
    log.open()
    inodes = [segment.file.path.stat().st_ino for segment in log.log.segments]
    log.compact()
    assert [segment.file.path.stat().st_ino for segment in log.log.segments] == inodes, "nothing is dirty"
    log.close()


def test_what_was_compacted_of_a_partition_that_is_gone_says_nothing_of_its_namesake(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    (tmp_path / CLEANER_OFFSETS).write_text("0\n2\nanother 0 12\ncompacted 0 20\n")
    log.open()
    assert OffsetCheckpoint(tmp_path / CLEANER_OFFSETS, FileLayer()).read() == {PARTITION: 20}
    another = log.directories.create(TopicPartition("another", 0), None, CONFIG, log.now_ms)
    for number in range(20):
        append_at_once(another, memoryview(batch := one(b"key", b"%d" % number)), [read_header(batch)], 0, log.now_ms)
        another.move_high_watermark(another.log_end_offset)
    another.roll(log.now_ms)
    log.compact()
    assert sum(1 for segment in another.segments for _ in segment.headers()) == 1
    log.close()


def test_a_partition_that_is_made_anew_takes_no_appends_before_what_was_compacted_of_the_old_one_is_forgotten(
    tmp_path: Path,
) -> None:
    old = filled(tmp_path)
    old.compact()
    old.close(clean=False)
    on_disk = OffsetCheckpoint(tmp_path / CLEANER_OFFSETS, FileLayer())
    assert on_disk.read() == {PARTITION: 40}
    background = ManualBackground()
    surroundings = CleanerSurroundings(
        InlineBackground(), lambda _, call: call(), lambda: START_MS, lambda: START_MS, lambda: bytes(16)
    )
    directories = LogDirectories([tmp_path], background=background, cleaner_surroundings=surroundings)
    directories.lock()
    directories.load(lambda topic_partition, topic_id: CONFIG, START_MS)
    directories.delete(PARTITION, START_MS)
    log = directories.create(PARTITION, None, CONFIG, START_MS)
    assert (on_disk.read(), log.is_hindered) == ({PARTITION: 40}, True)
    background.run_all()
    assert (on_disk.read(), log.is_hindered) == ({}, False)
    directories.close()


def test_a_log_is_compacted_when_its_dirty_share_is_larger_than_min_cleanable_dirty_ratio(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(CONFIG, min_cleanable_dirty_ratio=0.6))
    log.compact()
    assert offsets(log) == NEWEST
    clean_bytes = log.log.size_bytes
    log.append(one(b"key-0", bytes(clean_bytes // 2)))
    log.log.roll(log.now_ms)
    log.compact()
    assert 36 in offsets(log)
    log.append(one(b"key-0", bytes(clean_bytes * 2)) if clean_bytes * 2 < 900 else one(b"key-0", bytes(800)))
    log.append(one(b"key-0", bytes(800)))
    log.log.roll(log.now_ms)
    log.compact()
    assert 36 not in offsets(log)
    log.close()


def test_records_younger_than_min_compaction_lag_stay(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(CONFIG, min_compaction_lag_ms=60_000))
    log.compact()
    assert len(offsets(log)) == 40
    log.now_ms += 60_000
    log.compact()
    assert offsets(log) == NEWEST
    log.close()


def test_records_older_than_max_compaction_lag_are_compacted_whatever_the_ratio(tmp_path: Path) -> None:
    log = filled(tmp_path, replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000))
    log.compact()
    assert len(offsets(log)) == 40
    log.close()
    log.open()
    log.now_ms += 60_000
    log.compact()
    assert offsets(log) == NEWEST
    log.close()


def test_a_table_that_is_too_small_for_all_keys_takes_several_rounds(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, CONFIG, CleanerSettings(dedupe_buffer_size=24 * 6, io_buffer_load_factor=0.9))
    for number in range(60):
        log.append(one(b"key-%d" % (number % 20), bytes(20)))
    log.log.roll(log.now_ms)
    log.compact()
    assert offsets(log) == list(range(40, 60))
    log.close()


def test_a_batch_with_more_keys_than_the_table_holds_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = CompactedLog(tmp_path, replace(CONFIG, segment_bytes=10_000), CleanerSettings(dedupe_buffer_size=24 * 6))
    log.append(encode_batch([(START_MS, b"key-%d" % number, b"", ()) for number in range(20)]))
    log.log.roll(log.now_ms)
    with caplog.at_level(logging.WARNING):
        log.compact()
        log.compact()
    assert [
        record.getMessage() for record in caplog.records if "log.cleaner.dedupe.buffer.size" in record.getMessage()
    ].__len__() == 1
    assert log.directories.cleaner is not None
    assert list(log.directories.cleaner.uncleanable) == [PARTITION]
    assert len(offsets(log)) == 20
    log.directories.cleaner.reconfigure(CleanerSettings())
    log.compact()
    assert log.directories.cleaner.uncleanable == {}
    assert log.directories.directories[0].cleaner_offsets == {PARTITION: 20}
    log.close()


def test_no_more_bytes_are_moved_in_a_second_than_io_max_bytes_per_second(tmp_path: Path) -> None:
    log = filled(tmp_path, settings=CleanerSettings(io_max_bytes_per_second=1000.0))
    size_bytes = log.log.size_bytes
    log.compact()
    assert sum(log.pauses_seconds) * 1000 >= size_bytes, "read at least once"
    log.close()


@pytest.mark.parametrize("settings", [CleanerSettings(enable=False), CleanerSettings(threads=0)])
def test_a_cleaner_that_is_off_compacts_nothing_until_it_is_on(tmp_path: Path, settings: CleanerSettings) -> None:
    log = filled(tmp_path, settings=settings)
    log.compact()
    assert len(offsets(log)) == 40
    assert log.directories.cleaner is not None
    log.directories.cleaner.reconfigure(CleanerSettings())
    log.compact()
    assert offsets(log) == NEWEST
    log.close()


def test_after_a_look_that_found_nothing_the_next_one_waits_for_the_backoff(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, CONFIG)
    log.compact()
    for number in range(4):
        log.append(one(b"key", b"%d" % number))
    log.log.roll(log.now_ms)
    log.log.flush()
    assert log.directories.cleaner is not None
    log.now_ms += log.settings.backoff_ms - 1
    log.directories.cleaner.look()
    assert not log.waiting
    log.now_ms += 1
    log.directories.cleaner.look()
    assert log.waiting
    log.close()


def test_a_damaged_batch_leaves_the_log_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(tmp_path)
    path = log.log.segments[1].file.path
    content = bytearray(path.read_bytes())
    content[80] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        log.compact()
        log.compact()
    assert sum("is not compacted" in record.getMessage() for record in caplog.records) == 1
    assert path.read_bytes() == content
    assert not list(log.log.directory.glob("*.cleaned"))
    log.close(clean=False)


def in_transaction(sequence: int, key: bytes, value: bytes) -> bytearray:
    return encode_batch(
        [(START_MS, key, value, ())], producer_id=1, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )


def end_of_transaction(kind: ControlType, producer_id: int = 1) -> bytearray:
    record = marker_record(ControlMarker(kind, 0), START_MS)
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, is_transactional=True, is_control=True)


def test_what_a_transaction_has_aborted_goes_and_does_not_hide_what_was_before_it(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, CONFIG)
    log.append(one(b"k", b"1"))
    log.append(in_transaction(0, b"k", b"2"))
    log.append(in_transaction(1, b"k", b"3"))
    log.append(end_of_transaction(ControlType.ABORT))
    log.append(one(b"other", b"4"))
    log.log.roll(log.now_ms)
    log.compact()
    # Of the producer's last batch the header stays, so the marker stays, too.
    assert [(entry[0], [record.value for record in entry[3]]) for entry in log.told()][:2] == [(0, [b"1"]), (2, [])]  # type: ignore[attr-defined]
    assert consume(log.log, 0, 1000) == [0, 4]
    log.close()


def test_a_part_with_an_open_transaction_is_not_compacted(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, CONFIG)
    log.append(one(b"k", b"1"))
    log.append(in_transaction(0, b"k", b"2"))
    log.append(one(b"k", b"3"))
    log.log.roll(log.now_ms)
    log.compact()
    assert offsets(log) == [0, 1, 2]
    log.append(end_of_transaction(ControlType.COMMIT))
    log.log.roll(log.now_ms)
    log.compact()
    assert [record.offset for entry in log.told() for record in entry[3] if record.key == b"k"] == [2]  # type: ignore[attr-defined]
    log.close()


def test_a_marker_goes_when_its_transaction_has_gone_and_its_time_is_over(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, CONFIG)
    log.append(in_transaction(0, b"k", b"1"))
    log.append(end_of_transaction(ControlType.COMMIT))
    log.append(in_transaction(1, b"k", b"2"))
    log.append(end_of_transaction(ControlType.COMMIT))
    markers = []
    for _ in range(4):
        log.append(one(b"other", b"more"))
        log.log.roll(log.now_ms)
        log.compact()
        log.now_ms += CONFIG.delete_retention_ms + 1
        markers.append([entry[0] for entry in log.told() if entry[0] in (1, 3)])
    # First its batch is removed, then its time begins, and then it is removed. The other's batch is the last of the
    # producer.
    assert markers == [[1, 3], [1, 3], [3], [3]]
    log.close()


def test_an_empty_control_batch_is_replayed_and_sent_to_followers_like_any_other(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path, CONFIG)
    log.append(end_of_transaction(ControlType.COMMIT, producer_id=7))
    for _ in range(3):
        log.append(one(b"other", b"more"))
        log.log.roll(log.now_ms)
        log.compact()
        log.now_ms += CONFIG.delete_retention_ms + 1
    assert log.told()[0] == (0, 7, None, ())
    content = log.log.segments[0].file.path.read_bytes()[: log.log.segments[0].size_bytes]
    log.close(clean=False)
    log.open()
    assert log.told()[0] == (0, 7, None, ())
    log.close()
    follower = LogHarness(tmp_path / "follower")
    follower.append_as_follower(content)
    assert follower.log.log_end_offset == log.log.segments[1].base_offset


# --- meanwhile ----------------------------------------------------------------------------------------------


def until_it_waits(log: CompactedLog, rounds: int) -> None:
    """Starts a compaction and does this number of its steps, each of one group."""
    assert log.directories.cleaner is not None
    log.log.flush()
    log.now_ms += log.settings.backoff_ms
    log.directories.cleaner.look()
    for _ in range(rounds):
        log.waiting.pop(0)()
    assert log.waiting, "it is not at its end"


def spread(directory: Path) -> CompactedLog:
    """Returns a log in which each group of segments is one step."""
    log = CompactedLog(directory, CONFIG)
    for number in range(40):
        log.append(one(b"key-%d" % number, bytes(50)))
    for number in range(40):
        log.append(one(b"key-%d" % number, bytes(51)))
    log.log.roll(log.now_ms)
    return log


def test_a_truncation_ends_a_compaction_and_what_it_has_not_replaced(tmp_path: Path) -> None:
    log = spread(tmp_path)
    until_it_waits(log, 2)
    failures: list[dict[object, KafkaError]] = []
    log.directories.truncate({PARTITION: 50}, log.now_ms, failures.append)  # type: ignore[arg-type]
    assert failures == [{}]
    while log.waiting:
        log.waiting.pop(0)()
    assert log.log.log_end_offset == 50
    assert offsets(log) == sorted(set(offsets(log)))
    assert set(range(40, 50)) <= set(offsets(log))
    assert not [path for path in log.log.directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    log.close()


def test_a_partition_that_is_deleted_takes_its_compaction_along(tmp_path: Path) -> None:
    log = spread(tmp_path)
    until_it_waits(log, 1)
    log.directories.delete(PARTITION, log.now_ms)
    again = log.directories.create(PARTITION, None, CONFIG, log.now_ms)
    while log.waiting:
        log.waiting.pop(0)()
    assert sorted(path.suffix for path in again.directory.iterdir() if path.suffix in (".cleaned", ".swap")) == []
    assert again.log_end_offset == 0
    log.close()


def test_segments_that_retention_takes_meanwhile_do_not_come_back(tmp_path: Path) -> None:
    log = spread(tmp_path)
    log.config = log.log.config = replace(CONFIG, delete=True, retention_ms=1000)
    until_it_waits(log, 1)
    # Segments without records count by when their files were written.
    log.now_ms = 10**13
    log.directories.delete_old_segments(log.now_ms)
    start = log.log.log_start_offset
    assert start > 0
    while log.waiting:
        log.waiting.pop(0)()
    assert min(offsets(log), default=start) >= start
    log.close()
    log.open()
    assert min(offsets(log), default=start) >= start
    log.close()


def stale(lookup: TimeLookup) -> bool:
    return lookup.is_stale


def test_a_segment_whose_roll_waits_for_the_disk_is_not_compacted_yet(tmp_path: Path) -> None:
    waiting = ManualBackground()
    log = CompactedLog(tmp_path, CONFIG, writer=DirectoryWriter(waiting, InlineBackground()))
    for number in range(40):
        log.append(one(b"key-%d" % (number % 4), b"value-%d" % number + bytes(50)))
    rolled = log.log.active_segment
    log.log.queue_roll(log.now_ms)
    log.compact()
    assert rolled in log.log.segments
    waiting.run_all()
    log.compact()
    assert offsets(log) == NEWEST
    log.close()


def test_an_answer_on_its_way_and_a_look_into_times_outlive_a_compaction(tmp_path: Path) -> None:
    log = filled(tmp_path)
    region = read_log(log.log, 0, 1 << 20).region
    assert region is not None
    before = log.files.pread(region.file.fileno(), region.size_bytes, region.position)
    lookup = lookup_by_time(log.log)
    assert lookup.first_at_or_after(0) is not None
    assert not stale(lookup)
    log.compact()
    assert log.files.pread(region.file.fileno(), region.size_bytes, region.position) == before
    region.release()
    assert stale(lookup)
    lookup.close()
    lookup.done()
    fresh = lookup_by_time(log.log)
    found = fresh.first_at_or_after(0)
    assert found is not None
    assert found.offset == NEWEST[0]
    fresh.close()
    log.close()


def test_a_disk_without_room_leaves_the_log_whole_and_is_tried_again(tmp_path: Path) -> None:
    class Full(FileLayer):
        def __init__(self) -> None:
            self.is_full = False

        def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
            if self.is_full:
                raise OSError(28, "No space left on device")
            return super().pwrite(descriptor, data, position)

    files = Full()
    log = filled(tmp_path, files=files)
    files.is_full = True
    log.compact()
    files.is_full = False
    assert set(NEWEST) < set(offsets(log))
    assert not [path for path in log.log.directory.iterdir() if path.suffix in (".cleaned", ".swap")]
    log.compact()
    assert offsets(log) == NEWEST
    log.close()


# --- crashes ------------------------------------------------------------------------------------------------


def seen(log: CompactedLog) -> list[object]:
    """The records that consumers of committed records see."""
    committed = set(consume(log.log, log.log.log_start_offset, 1000))
    return [record for _, _, _, records in log.told() for record in records if record.offset in committed]  # type: ignore[attr-defined]


def crashed_after(tmp_path: Path, calls: int | None, seed: int) -> tuple[int, list[object], list[object], list[object]]:
    """A log that was compacted once gets more records, some of them in transactions, most of which are aborted, and is
    compacted again, up to this number of calls that change the disk. Returns the number of calls, and the records that
    consumers see before the crash, after the crash and a start, and after another compaction."""
    chance = Random(seed)
    path = tmp_path / f"data-{seed}-{calls}"
    files = DyingFiles()
    log = filled(path, replace(CONFIG, segment_bytes=700), files=files)
    log.compact()
    for number in range(30):
        log.append(one(b"key-%d" % (number % 6), None if number == 25 else b"later-%d" % number + bytes(40)))
        if number % 3 == 0:
            log.append(in_transaction(number // 3, b"key-%d" % (number % 6), b"in a transaction"))
        if number % 6 == 5:
            log.append(end_of_transaction(ControlType.COMMIT if number == 17 else ControlType.ABORT))
    log.log.roll(log.now_ms)
    log.log.flush()
    log.directories.checkpoint_recovery_points()
    log.directories.remove_doomed(log.now_ms)
    before = seen(log)
    files.calls, files.left = 0, calls
    try:
        log.compact()
        log.directories.remove_doomed(log.now_ms)
    except DiesError:
        pass
    count = files.calls
    files.left = None
    log.close(clean=False)
    after = tmp_path / f"after-{seed}-{calls}"
    files.after_crash(path, after, chance)
    files.forget()
    again = CompactedLog(after, replace(CONFIG, segment_bytes=700))
    again.now_ms = log.now_ms
    found = seen(again)
    assert not [name for name in again.log.directory.iterdir() if name.suffix in (".cleaned", ".swap")]
    again.append(one(b"another", b"x"))
    again.log.roll(again.now_ms)
    again.compact()
    finally_found = seen(again)
    again.close()
    return count, before, found, finally_found


def test_a_crash_at_any_call_loses_no_newest_record_and_brings_none_back(tmp_path: Path) -> None:
    count, _, whole, _ = crashed_after(tmp_path, None, 0)
    assert count > 30
    newest = {record.key: record for record in whole}  # type: ignore[attr-defined]
    for calls in range(0, count, chosen(quick=60, ci=12, everything=1)):
        _, before, found, at_last = crashed_after(tmp_path, calls, calls)
        assert {record.offset for record in whole} <= {record.offset for record in found}, calls  # type: ignore[attr-defined]
        assert set(found) <= set(before), calls
        assert [record.offset for record in found] == sorted({record.offset for record in found}), calls  # type: ignore[attr-defined]
        assert {record for record in at_last if record.key != b"another"} == set(newest.values()), calls  # type: ignore[attr-defined]


def test_a_start_takes_away_what_a_compaction_has_replaced_and_the_disk_has_not_renamed(tmp_path: Path) -> None:
    config = replace(CONFIG, segment_bytes=1500)
    log = filled(tmp_path / "log", config)
    log.compact()
    log.append(one(b"key-1", b"once more"))
    log.log.roll(log.now_ms)
    bases = [segment.base_offset for segment in log.log.segments]
    sources = {
        path.name: path.read_bytes()
        for path in log.log.directory.iterdir()
        if path.suffix in (".log", ".index", ".timeindex")
    }
    log.compact()
    whole = log.told()
    kept = [segment.base_offset for segment in log.log.segments]
    assert kept == [0, bases[-1]] and len(bases) > 4
    log.directories.checkpoint_recovery_points()
    log.close(clean=False)
    # All of them; one that the first compaction has left empty; one of which the second has left some batches.
    for number, forgotten in enumerate((bases[1:-1], bases[2:3], bases[-3:-2])):
        shutil.copytree(log.directory, tmp_path / f"found-{number}")
        for name, content in sources.items():
            if int(name.partition(".")[0]) in forgotten:
                (tmp_path / f"found-{number}" / str(PARTITION) / name).write_bytes(content)
        found = CompactedLog(tmp_path / f"found-{number}", config)
        assert [segment.base_offset for segment in found.log.segments] == kept
        assert found.told() == whole
        found.close()


@pytest.mark.parametrize("damaged", [13, 15, 1 << 40, 36])
def test_a_damaged_offset_takes_no_segment_away(tmp_path: Path, damaged: int) -> None:
    log = filled(tmp_path, replace(CONFIG, compact=True))
    bases = [segment.base_offset for segment in log.log.segments]
    log.log.flush()
    log.directories.checkpoint_recovery_points()
    path = log.log.segments[0].file.path
    last = [position for position, _ in iter_headers(path.read_bytes())][-1]
    log.close(clean=False)
    with path.open("r+b") as file:
        file.seek(last)
        file.write(damaged.to_bytes(8, "big"))
    log.open()
    assert [segment.base_offset for segment in log.log.segments] == bases
    log.close()


def test_the_names_are_synced_before_it_is_written_down_what_is_clean(tmp_path: Path) -> None:
    files = ForgetfulFiles()
    log = filled(tmp_path, files=files)
    checkpoint = log.directory / CLEANER_OFFSETS
    log.compact()
    log.append(one(b"key-1", b"once more"))
    log.log.roll(log.now_ms)
    checkpoint.unlink()
    sources = {segment.file.path.name for segment in log.log.segments[1:-1]}
    log.compact()
    assert checkpoint.exists()
    assert not files.names_synced[log.log.directory].keys() & sources
    log.close(clean=False)
    files.forget()


# --- what is decided ----------------------------------------------------------------------------------------


def facts(*sizes: int, first: int = 0) -> list[CleanerSegment]:
    return [
        CleanerSegment(first + 10 * index, first + 10 * index + 10, size, START_MS + index, START_MS + index)
        for index, size in enumerate(sizes)
    ]


def test_the_dirty_part_begins_at_the_checkpoint_if_that_is_in_the_log() -> None:
    assert [first_dirty_offset(checkpoint, 10, 20) for checkpoint in (None, 9, 10, 20, 21)] == [10, 10, 10, 20, 10]


@pytest.mark.parametrize(
    ("first_dirty", "stable_end", "end", "clean", "dirty"),
    [
        (0, 99, 40, 0, 10),
        (10, 99, 40, 1, 9),
        (15, 99, 40, 1, 9),
        (0, 39, 30, 0, 6),
        (0, 30, 30, 0, 6),
        (0, 5, 0, 0, 0),
        (40, 99, 40, 10, 0),
        (30, 5, 30, 0, 0),
    ],
)
def test_the_dirty_part_ends_with_the_last_whole_segment_that_is_stable(
    first_dirty: int, stable_end: int, end: int, clean: int, dirty: int
) -> None:
    part = cleanable_part(facts(1, 2, 3, 4), CONFIG, first_dirty=first_dirty, stable_end=stable_end, now_ms=START_MS)
    assert (part.end_offset, part.clean_bytes, part.dirty_bytes) == (end, clean, dirty)
    assert is_due(part, CONFIG) == (dirty > 0)


@pytest.mark.parametrize(
    ("first_ms", "now_ms", "is_overdue"),
    [(START_MS, START_MS + 1000, False), (START_MS, START_MS + 1001, True), (0, START_MS, False), (1, START_MS, True)],
)
def test_a_record_may_be_as_old_as_max_compaction_lag_and_no_older(
    first_ms: int, now_ms: int, is_overdue: bool
) -> None:
    """A segment without a timestamp, which has 0, is never overdue."""
    segment = CleanerSegment(0, 10, 100, START_MS, first_ms)
    config = replace(CONFIG, max_compaction_lag_ms=1000)
    assert cleanable_part([segment], config, first_dirty=0, stable_end=10, now_ms=now_ms).is_overdue is is_overdue
    assert not cleanable_part([segment], CONFIG, first_dirty=0, stable_end=10, now_ms=now_ms).is_overdue


@pytest.mark.parametrize(("lag_ms", "end"), [(0, 40), (1, 40), (2, 30), (4, 10), (5, 0)])
def test_the_dirty_part_ends_before_the_first_segment_that_is_younger_than_min_compaction_lag(
    lag_ms: int, end: int
) -> None:
    config = replace(CONFIG, min_compaction_lag_ms=lag_ms)
    assert (
        cleanable_part(facts(1, 2, 3, 4), config, first_dirty=0, stable_end=99, now_ms=START_MS + 4).end_offset == end
    )


def _of_producer(producer_id: int, offset: int, *, is_control: bool = False) -> BatchHeader:
    records = [marker_record(ControlMarker(ControlType.ABORT, 0), 0)] if is_control else [(0, b"k", b"v", ())]
    return read_header(
        bytes(
            encode_batch(
                records,
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                is_transactional=True,
                is_control=is_control,
            )
        )
    )


def test_a_marker_stays_as_long_as_a_batch_of_its_transaction_does_and_one_of_an_unknown_kind_stays() -> None:
    aborted = AbortedTransaction(1, 0, 5, 0)
    transactions = CleanedTransactions([aborted])
    assert transactions.is_aborted(_of_producer(1, 0))
    assert not transactions.is_aborted(_of_producer(2, 1))
    assert transactions.end(_of_producer(1, 5, is_control=True), ControlMarker(ControlType.UNKNOWN, 0)) == (False, None)
    assert transactions.end(_of_producer(1, 5, is_control=True), ControlMarker(ControlType.ABORT, 0)) == (
        False,
        aborted,
    )
    assert transactions.end(_of_producer(2, 6, is_control=True), ControlMarker(ControlType.COMMIT, 0)) == (False, None)
    # Nothing was met of these.
    assert transactions.end(_of_producer(1, 7, is_control=True), ControlMarker(ControlType.ABORT, 0)) == (True, None)
    assert transactions.end(_of_producer(2, 8, is_control=True), ControlMarker(ControlType.COMMIT, 0)) == (True, None)
    assert transactions.end(_of_producer(3, 9, is_control=True), None) == (True, None)


def test_segments_become_one_as_long_as_they_fit() -> None:
    sizes = [[item.size_bytes for item in group] for group in groups(facts(400, 500, 200, 900, 0, 0, 1001, 10), CONFIG)]
    assert sizes == [[400, 500], [200], [900, 0, 0], [1001], [10]]
    few_entries = replace(CONFIG, segment_index_bytes=24, index_interval_bytes=100)
    assert [len(group) for group in groups(facts(50, 50, 50), few_entries)] == [2, 1]
    far = [CleanerSegment(0, 2**31 - 1, 1), CleanerSegment(2**31 - 1, 2**31, 1), CleanerSegment(2**31, 2**31 + 5, 1)]
    assert [len(group) for group in groups(far, CONFIG)] == [2, 1]
