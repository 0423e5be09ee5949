from __future__ import annotations

import errno
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.errors import KafkaStorageError
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.log_start import delete_records
from jesenska.log.partition.recovery import LogLoader
from jesenska.log.segments.producer_state import encode_snapshot
from jesenska.records.header import HEADER_SIZE
from tests.profiles import examples
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def filled(harness: LogHarness, count: int = 20) -> None:
    for sequence in range(count):
        harness.append(
            make_batch(1, timestamp=NOW_MS + sequence, producer_id=1, producer_epoch=0, base_sequence=sequence),
            leader_epoch=sequence // 7,
        )


def test_what_was_written_survives_the_death_of_the_process(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        before = harness.contents()
        harness.crash()
        assert harness.contents() == before
        assert harness.notes == []
        assert harness.offsets() == list(range(20))


@pytest.mark.parametrize("missing_bytes", [1, 30, 61, 80])
def test_torn_last_batch_is_cut_off(tmp_path: Path, missing_bytes: int) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        filled(harness, 5)
        path, size_bytes = harness.log.active_segment.file.path, harness.log.size_bytes
        close_log(harness.log, clean=False)
        with path.open("r+b") as file:
            file.truncate(size_bytes - missing_bytes)
        harness.open(clean=False)
        assert harness.offsets() == [0, 1, 2, 3]
        assert "cut" in harness.notes[0]
        assert harness.append(make_batch(1, producer_id=1, producer_epoch=0, base_sequence=4)).base_offset == 4


@pytest.mark.parametrize("nonsense", [bytes(1000), b"\xff" * 1000, b"x" * 7, bytes(16) + b"\x02" + bytes(200)])
def test_nonsense_behind_the_last_batch_is_cut_off(tmp_path: Path, nonsense: bytes) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        filled(harness, 5)
        before = harness.contents()
        path = harness.log.active_segment.file.path
        close_log(harness.log, clean=False)
        with path.open("ab") as file:
            file.write(nonsense)
        harness.open(clean=False)
        assert path.read_bytes() == before
        assert harness.offsets() == [0, 1, 2, 3, 4]


def test_segments_after_a_bad_batch_are_dropped(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        first, second, third, *_ = harness.log.segments
        close_log(harness.log, clean=False)
        content = bytearray(second.file.path.read_bytes())
        content[-5] ^= 1
        second.file.path.write_bytes(content)
        harness.open(clean=False, recovery_point=second.base_offset)
        assert harness.offsets() == list(range(third.base_offset - 1))
        assert not third.file.path.exists()
        assert harness.log.segments[0].base_offset == first.base_offset
        assert harness.log.leader_epochs.entries()[-1][1] < third.base_offset - 1
        entry = harness.log.producers.get(1)
        assert entry is not None
        assert entry.last_sequence == third.base_offset - 2


@pytest.mark.parametrize("left_of_the_new_segment", [b"", bytes(90)])
@pytest.mark.parametrize("compact", [False, True])
def test_log_whose_last_batches_are_lost_with_an_empty_segment_behind_them_ends_where_its_records_do(
    tmp_path: Path, left_of_the_new_segment: bytes, compact: bool
) -> None:
    with LogHarness(tmp_path / "t-0", replace(SMALL, compact=compact, delete=not compact)) as harness:
        filled(harness)
        lost = lose_the_batches_before_the_last_segment(harness, left_of_the_new_segment)
        harness.open(clean=False)
        assert harness.offsets() == list(range(lost))
        assert harness.log.log_end_offset == lost
        assert harness.append(make_batch(1)).base_offset == lost
        harness.crash()
        assert harness.offsets() == list(range(lost + 1))


def test_empty_segment_behind_a_hole_stays_where_the_hole_may_be_meant(tmp_path: Path) -> None:
    for name, config in (("retention-0", SMALL), ("compaction-0", replace(SMALL, compact=True, delete=False))):
        with LogHarness(tmp_path / name, config) as harness:
            filled(harness)
            end = harness.log.active_segment.base_offset
            lost = lose_the_batches_before_the_last_segment(harness, b"")
            if not config.compact:
                (harness.directory / f"{lost:020}.log.deleted").touch()
            assert harness.open(clean=False, recovery_point=end if config.compact else 0).log_end_offset == end


def test_segments_behind_batches_that_are_lost_go_unless_nobody_knows_what_was_synced(tmp_path: Path) -> None:
    for name, recovery_point, kept in (("known-0", 1, False), ("unknown-0", 0, True)):
        with LogHarness(tmp_path / name, SMALL) as harness:
            filled(harness)
            whole = harness.log.active_segment.file.path.read_bytes()
            end = harness.log.log_end_offset
            lost = lose_the_batches_before_the_last_segment(harness, whole)
            log = harness.open(clean=False, recovery_point=recovery_point)
            assert log.log_end_offset == (end if kept else lost)
            assert (f"lost from {lost} on" in " ".join(harness.notes)) is not kept
            # The missing batch can be sent again, and so can the batches after it.
            if not kept:
                for sequence in range(lost, end):
                    assert (
                        harness.append(
                            make_batch(1, producer_id=1, producer_epoch=0, base_sequence=sequence)
                        ).base_offset
                        == sequence
                    )


def lose_the_batches_before_the_last_segment(harness: LogHarness, left_of_it: bytes) -> int:
    """Kills the log, cuts the last batch off the last segment but one, and leaves some bytes of the last segment.
    Returns the first lost offset."""
    before, last = harness.log.segments[-2:]
    place = before.last_place()
    assert place is not None
    close_log(harness.log, clean=False)
    with before.file.path.open("r+b") as file:
        file.truncate(place.position)
    last.file.path.write_bytes(left_of_it)
    return place.base_offset


@pytest.mark.parametrize("damage", [b"torn", bytes(500), b"\x00" * 11 + b"\x80" + bytes(90)])
def test_damage_that_an_orderly_stop_cannot_leave_is_recovered_all_the_same(tmp_path: Path, damage: bytes) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        path = harness.log.active_segment.file.path
        close_log(harness.log)
        with path.open("ab") as file:
            file.write(damage)
        harness.open(clean=True)
        assert harness.offsets() == list(range(20))
        assert any("cut to" in note and "kept beside it" in note for note in harness.notes)
        assert [kept.read_bytes() for kept in harness.directory.glob("*.cut")] == [damage]


def test_damage_after_an_orderly_stop_costs_what_is_behind_it_and_no_older_segment_is_judged_again(
    tmp_path: Path,
) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        first, *_, last = harness.log.segments
        place = last.last_place()
        assert place is not None
        close_log(harness.log)
        flip(first.file.path, -5)
        with last.file.path.open("r+b") as file:
            file.truncate(place.position + 20)
        harness.open(clean=True)
        assert [record.offset for record in harness.records(harness.log.segments[1].base_offset)][
            -1
        ] == place.base_offset - 1
        assert harness.log.log_end_offset == place.base_offset
        assert harness.log.segments[0].size_bytes == first.size_bytes
        assert (harness.directory / f"{last.file.path.name}.{place.position}.cut").stat().st_size == 20


def test_damage_of_synced_records_costs_their_batch_alone(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        _, second, third, *_ = harness.log.segments
        place = second.place_at(0)
        assert place is not None
        close_log(harness.log)
        content = bytearray(second.file.path.read_bytes())
        second.file.path.write_bytes(content[:8] + b"\xff" * 4 + content[12:])
        (harness.directory / f"{second.base_offset:020}.index").unlink()
        for path in harness.directory.glob("*.snapshot"):
            path.unlink()
        harness.open(clean=True)
        damaged = list(range(place.base_offset, place.last_offset + 1))
        assert harness.readable() == ([offset for offset in range(20) if offset not in damaged], damaged)
        assert any(f"offsets {damaged[0]} to {damaged[-1]} are refused" in note for note in harness.notes)
        assert not list(harness.directory.glob("*.cut"))
        assert second.file.path.read_bytes()[12:] == content[12:], "the bytes stay for somebody to look at"
        assert third.file.path.name in harness.names()


def test_two_damaged_segments_are_met_one_after_the_other(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        _, second, *_, last = harness.log.segments
        damaged: list[int] = []
        for segment in (second, last):
            place = segment.place_at(0)
            assert place is not None
            damaged += range(place.base_offset, place.last_offset + 1)
        close_log(harness.log)
        for path in harness.directory.glob("*.snapshot"):
            path.unlink()
        for segment in (second, last):
            content = segment.file.path.read_bytes()
            segment.file.path.write_bytes(b"\x00" * 40 + content[40:])
        harness.open(clean=True)
        assert harness.readable() == ([offset for offset in range(20) if offset not in damaged], damaged)
        assert harness.append(make_batch()).base_offset == 20


def test_a_crash_keeps_what_was_synced_behind_damage_and_cuts_what_was_not(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig()) as harness:
        filled(harness)
        places = [place for offset in (5, 15) if (place := harness.log.active_segment.find(offset)) is not None]
        close_log(harness.log, clean=False)
        for place in places:
            flip(harness.log.active_segment.file.path, place.position + place.size_bytes - 1)
        harness.open(clean=False, recovery_point=12)
        damaged = list(range(places[0].base_offset, places[0].last_offset + 1))
        assert harness.log.log_end_offset == places[1].base_offset
        assert harness.readable() == (
            [offset for offset in range(places[1].base_offset) if offset not in damaged],
            damaged,
        )


def test_names_that_are_no_segments_are_left_alone(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness, 3)
        close_log(harness.log)
        strangers = ("1.log", "foo.log.swap", "foo.log", "00000000000000000000.log.7.cut", "1.log.deleted_by_hand")
        for name in strangers:
            (harness.directory / name).write_bytes(b"somebody's")
        harness.open(clean=True)
        assert harness.offsets() == [0, 1, 2]
        assert set(strangers) <= set(harness.names())


def test_damaged_result_of_a_compaction_is_not_used(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        close_log(harness.log)
        (harness.directory / "00000000000000000000.log.swap").write_bytes(bytes(300))
        harness.open(clean=True)
        assert harness.offsets() == list(range(20))
        assert (harness.directory / "00000000000000000000.log.swap.cut").read_bytes() == bytes(300)


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_segments_below_the_recovery_point_are_not_read(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        first = harness.log.segments[0]
        point = harness.log.recovery_point
        assert point > first.base_offset
        close_log(harness.log, clean=False)
        content = bytearray(first.file.path.read_bytes())
        content[HEADER_SIZE + 3] ^= 1
        first.file.path.write_bytes(content)
        harness.open(clean=False, recovery_point=point)
        assert harness.log.log_end_offset == 20
        close_log(harness.log, clean=False)
        harness.open(clean=False, recovery_point=0)
        assert harness.log.log_end_offset == 0


def test_recovery_builds_indexes_epochs_and_producers_anew(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        close_log(harness.log, clean=True)
        before = {path.name: path.read_bytes() for path in harness.directory.iterdir()}
        for name in before:
            if not name.endswith(".log"):
                (harness.directory / name).unlink()
        harness.open(clean=False)
        close_log(harness.log, clean=True)
        after = {path.name: path.read_bytes() for path in harness.directory.iterdir()}
        assert {name: data for name, data in after.items() if not name.endswith(".snapshot")} == {
            name: data for name, data in before.items() if not name.endswith(".snapshot")
        }
        end = "00000000000000000020.snapshot"
        assert after[end] == before[end]


def test_lost_leader_epoch_file_is_rebuilt_after_an_orderly_stop_too(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        close_log(harness.log)
        (harness.directory / "leader-epoch-checkpoint").write_bytes(b"")
        harness.open(clean=True)
        assert harness.log.leader_epochs.entries() == [(0, 0), (1, 7), (2, 14)]


def test_log_that_ends_before_its_start_begins_anew_there(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        close_log(harness.log, clean=False)
        harness.open(clean=False, log_start_offset=50)
        assert (harness.log.log_start_offset, harness.log.log_end_offset) == (50, 50)
        assert harness.append(make_batch()).base_offset == 50


def test_leftovers_of_interrupted_work_are_removed(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness, 3)
        close_log(harness.log)
        for name in (
            "00000000000000000000.log.deleted",
            "00000000000000000000.log.cleaned",
            "x.tmp",
            "00000000000000000099.index",
        ):
            (harness.directory / name).write_bytes(b"old")
        harness.open(clean=True)
        assert not {"00000000000000000000.log.deleted", "00000000000000000000.log.cleaned", "x.tmp"} & set(
            harness.names()
        )
        assert "00000000000000000099.index" not in harness.names()
        assert harness.offsets() == [0, 1, 2]


def test_finished_compaction_takes_its_place(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "other" / "t-0") as other:
        filled(other, 20)
        compacted = other.read(3, 1)
        compacted += other.read(8, 1)
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        last = [segment.base_offset for segment in harness.log.segments if segment.base_offset <= 8][-1]
        following = [segment.base_offset for segment in harness.log.segments if segment.base_offset > 8]
        close_log(harness.log)
        (harness.directory / "00000000000000000000.log.swap").write_bytes(compacted)
        harness.open(clean=True)
        assert [segment.base_offset for segment in harness.log.segments] == [0, *following]
        assert harness.offsets() == [3, 8, *range(following[0], 20)]
        assert last < following[0]


def test_old_message_formats_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    body = b"\x01\x00" + (5).to_bytes(8, "big") + b"\xff\xff\xff\xff" + (3).to_bytes(4, "big") + b"abc"
    message = (0).to_bytes(8, "big") + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    path.write_bytes(message * 3)
    with pytest.raises(KafkaStorageError, match="format 0 or 1"), LogHarness(directory) as harness:
        close_log(harness.log)
    with pytest.raises(KafkaStorageError, match="format 0 or 1"):
        _recover(directory)
    assert path.read_bytes() == message * 3


def _recover(directory: Path) -> None:
    from jesenska.log.disk.files import FileLayer
    from jesenska.log.partition.recovery import LogLoader

    LogLoader(
        directory, LogConfig(), FileLayer(), clean=False, recovery_point=0, log_start_offset=0, now_ms=NOW_MS
    ).load()


def test_progress_adds_up_to_the_bytes_that_were_checked(tmp_path: Path) -> None:
    from jesenska.log.disk.files import FileLayer
    from jesenska.log.partition.recovery import LogLoader

    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        filled(harness)
        size_bytes = harness.log.size_bytes
    seen: list[int] = []
    loader = LogLoader(
        tmp_path / "t-0",
        SMALL,
        FileLayer(),
        clean=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW_MS,
        progress=seen.append,
    )
    loader.load()
    assert sum(seen) == size_bytes


def test_truncation_of_a_follower_goes_back_to_a_batch_boundary(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", SMALL) as harness:
        for index in range(10):
            harness.append(make_batch(3, producer_id=1, producer_epoch=0, base_sequence=3 * index), leader_epoch=index)
        harness.truncate_to(16)
        assert harness.log.log_end_offset == 15
        assert harness.offsets() == list(range(15))
        assert harness.log.leader_epochs.entries()[-1] == (4, 12)
        entry = harness.log.producers.get(1)
        assert entry is not None
        assert entry.last_sequence == 14
        assert harness.log.recovery_point <= 15
        harness.append(make_batch(3, producer_id=1, producer_epoch=0, base_sequence=15), leader_epoch=11)
        harness.crash()
        assert harness.offsets() == list(range(18))


@settings(max_examples=examples(1.5))
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 120)), min_size=1, max_size=25),
    flush_after=st.integers(0, 25),
    damage=st.sampled_from(["cut", "flip", "zeros", "garbage"]),
    where=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
    garbage=st.binary(min_size=1, max_size=100),
    truncate=st.none() | st.integers(0, 60),
)
def test_recovery_keeps_exactly_the_batches_before_the_damage(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[tuple[int, int]],
    flush_after: int,
    damage: str,
    where: float,
    bit: int,
    garbage: bytes,
    truncate: int | None,
) -> None:
    config = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)
    with LogHarness(tmp_path_factory.mktemp("log") / "t-0", config) as harness:
        sequence = 0
        for index, (count, size) in enumerate(sizes):
            batch = make_batch(
                count,
                timestamp=NOW_MS + index,
                value_bytes=size,
                producer_id=1,
                producer_epoch=0,
                base_sequence=sequence,
            )
            if len(batch) > config.segment_bytes:
                continue
            harness.append(batch, leader_epoch=index // 5)
            sequence += count
            if index == flush_after:
                harness.log.flush()
        if truncate is not None and truncate < harness.log.log_end_offset:
            harness.truncate_to(truncate)
        point = harness.log.recovery_point
        # Every batch as (offset after it, its file, its end in the file), and the bytes of the log.
        batches = [
            (header.next_offset, segment.file.path, position, position + header.size_bytes)
            for segment in harness.log.segments
            for position, header in segment.headers()
        ]
        before = harness.contents()
        close_log(harness.log, clean=False)

        unsynced = [row for row in batches if row[0] > point]
        total = sum(end - start for _, _, start, end in unsynced)
        kept = batches
        if total:
            aim = int(where * total)
            for row in unsynced:
                _, path, start, end = row
                if aim < end - start:
                    at = start + aim
                    break
                aim -= end - start
            content = bytearray(path.read_bytes())
            if damage == "cut":
                del content[at:]
            elif damage == "zeros":
                content[at:] = bytes(len(content) - at)
                content += bytes(50)
            elif damage == "garbage":
                content[at:] = garbage
            elif not (0 <= at - start < 8 or 12 <= at - start < 16):
                # Base offset and leader epoch are not under the CRC.
                content[at] ^= 1 << bit
            changed = bytes(content) != path.read_bytes()
            untouched = content[start:end] == path.read_bytes()[start:end]
            path.write_bytes(content)
            bad = batches.index(row)
            if changed:
                kept = batches[:bad] if not untouched else batches[: bad + 1]
        harness.open(clean=False, recovery_point=point)
        size_bytes = sum(end - start for _, _, start, end in kept)
        assert harness.contents() == before[:size_bytes]
        assert harness.log.log_end_offset == (kept[-1][0] if kept else harness.log.segments[0].base_offset)
        assert harness.log.log_end_offset >= point
        # Derived files agree with the batches.
        offsets = harness.offsets()
        assert offsets == list(range(harness.log.log_end_offset))
        entry = harness.log.producers.get(1)
        assert (0 if entry is None else entry.last_sequence + 1) == harness.log.log_end_offset
        # A second crash finds nothing to repair, and the producer continues.
        harness.crash()
        assert harness.notes == []
        following = make_batch(1, producer_id=1, producer_epoch=0, base_sequence=harness.log.log_end_offset)
        assert harness.append(following).base_offset == len(offsets)


def test_truncation_into_the_batch_that_holds_the_log_start_moves_it_back(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3))
        harness.append(make_batch(5))
        delete_records(harness.log, 5)
        harness.truncate_to(6)
        assert (harness.log.log_start_offset, harness.log.log_end_offset) == (3, 3)
        assert harness.append(make_batch()).base_offset == 3


def test_snapshot_beyond_the_end_is_not_believed(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        filled(harness, 5)
        close_log(harness.log, clean=False)
        later = harness.directory / "00000000000000000009.snapshot"
        later.write_bytes(encode_snapshot([]))
        harness.open(clean=False)
        entry = harness.log.producers.get(1)
        assert entry is not None
        assert entry.last_sequence == 4
        assert not later.exists()


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "give this user the right to every file in it (chown -R)"),
        (errno.EMFILE, "allow this process more open files (ulimit -n, LimitNOFILE)"),
        (errno.ENOSPC, "make room on the disk"),
        (errno.EIO, "mend the disk"),
    ],
)
def test_a_log_that_cannot_be_opened_is_told_with_what_is_to_be_done(tmp_path: Path, number: int, remedy: str) -> None:
    class RefusingFiles(FileLayer):
        __slots__ = ()

        def open(self, path: Path, flags: int) -> int:
            if path.suffix == ".log":
                raise OSError(number, os.strerror(number), str(path))
            return super().open(path, flags)

    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch())
        close_log(harness.log, clean=True)
        with pytest.raises(KafkaStorageError) as refused:
            LogLoader(
                harness.directory,
                LogConfig(),
                RefusingFiles(),
                clean=True,
                recovery_point=0,
                log_start_offset=0,
                now_ms=NOW_MS,
            ).load()
    where = harness.directory / "00000000000000000000.log"
    assert (
        str(refused.value)
        == f"The log in {harness.directory} cannot be opened ({where}: {os.strerror(number)}): {remedy}."
    )
