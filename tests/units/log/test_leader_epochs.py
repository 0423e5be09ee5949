from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jesenska.log.disk.epochs_file import read_leader_epochs, write_leader_epochs
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.leader_epochs import LeaderEpochs
from jesenska.log.partition.closing import close_log, mark_deleted
from jesenska.log.partition.log_start import delete_records
from jesenska.log.partition.partition_log import PartitionLog
from tests.units.log.log_harness import LogHarness, make_batch


def test_end_offset_of_an_epoch_is_where_the_next_begins() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (5, 25)])
    assert epochs.end_offset_for(1, 40) == (1, 10)
    assert epochs.end_offset_for(2, 40) == (2, 25)
    assert epochs.end_offset_for(5, 40) == (5, 40)


def test_end_offset_of_an_epoch_that_was_never_here() -> None:
    epochs = LeaderEpochs([(1, 3), (2, 10), (5, 25)])
    assert epochs.end_offset_for(3, 40) == (2, 25)
    assert epochs.end_offset_for(0, 40) == (0, 3)
    assert epochs.end_offset_for(6, 40) == (-1, -1)
    assert epochs.end_offset_for(-1, 40) == (-1, -1)
    assert LeaderEpochs().end_offset_for(0, 40) == (-1, -1)


def test_tables_agree_that_have_the_same_epochs_from_the_same_offsets_on() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10)])
    assert epochs.agrees_with(LeaderEpochs([(1, 0), (2, 10)]))
    assert not any(
        epochs.agrees_with(LeaderEpochs(other)) for other in ([], [(1, 0)], [(1, 0), (2, 11)], [(1, 0), (3, 10)])
    )


def test_truncation_from_both_ends() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (5, 25)])
    assert epochs.truncate_from_end(25)
    assert not epochs.truncate_from_end(25)
    assert epochs.entries() == [(1, 0), (2, 10)]
    assert epochs.latest_epoch == 2
    assert epochs.truncate_from_start(4)
    assert epochs.entries() == [(1, 4), (2, 10)]
    assert epochs.truncate_from_start(12)
    assert epochs.entries() == [(2, 12)]
    assert not epochs.truncate_from_start(12)


def test_file_is_the_text_that_kafka_writes(tmp_path: Path) -> None:
    write_leader_epochs(tmp_path, [(0, 0), (3, 1180)], FileLayer(), sync=False)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 1180\n"
    found = read_leader_epochs(tmp_path, FileLayer())
    assert found is not None
    assert found.entries() == [(0, 0), (3, 1180)]


def test_a_file_that_was_cut_anywhere_is_not_believed(tmp_path: Path) -> None:
    write_leader_epochs(tmp_path, [(0, 0), (3, 1180)], FileLayer(), sync=False)
    path = tmp_path / "leader-epoch-checkpoint"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert read_leader_epochs(tmp_path, FileLayer()) is None
        path.write_bytes(whole[:size] + bytes(len(whole) - size))
        assert read_leader_epochs(tmp_path, FileLayer()) is None


def test_a_table_below_the_recovery_point_that_was_cut_is_taken_from_the_batches(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    for epoch in (0, 0, 2):
        harness.append(make_batch(10), leader_epoch=epoch)
    harness.log.roll(harness.now_ms)
    harness.append(make_batch(), leader_epoch=2)
    assert harness.log.leader_epochs.entries() == [(0, 0), (2, 20)]
    point = harness.log.recovery_point
    assert point == 30
    close_log(harness.log, clean=False)
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n2 2")
    assert harness.open(clean=False, recovery_point=point).leader_epochs.entries() == [(0, 0), (2, 20)]


def test_an_epoch_begins_with_its_first_batch(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=2)
        harness.append(make_batch(3), leader_epoch=2)
        harness.append(make_batch(3), leader_epoch=4)
        assert harness.log.end_offset_for_epoch(2) == (2, 6)
        assert harness.log.end_offset_for_epoch(3) == (2, 6)
        assert harness.log.end_offset_for_epoch(4) == (4, 9)
        delete_records(harness.log, 7)
        assert harness.log.leader_epochs.entries() == [(4, 7)]


def test_an_epoch_without_records_has_an_end_after_an_orderly_stop(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=2)
        harness.log.assign_leader_epoch(4, 3)
        harness.reopen()
        assert harness.log.end_offset_for_epoch(4) == (4, 3)
        assert harness.log.end_offset_for_epoch(2) == (2, 3)


def _on_disk(harness: LogHarness) -> bytes | None:
    path = harness.directory / "leader-epoch-checkpoint"
    return path.read_bytes() if path.exists() else None


def test_an_append_does_not_wait_for_the_file_which_follows(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=2)
        assert _on_disk(harness) is None
        assert harness.log.has_unwritten
        older = harness.log.unwritten()
        harness.append(make_batch(3), leader_epoch=4)
        _write(harness.log)
        assert _on_disk(harness) == b"0\n2\n2 0\n4 3\n"
        assert harness.log.unwritten() == []
        for write in older:
            write.run()
        assert _on_disk(harness) == b"0\n2\n2 0\n4 3\n", "an older table does not replace a newer one"


def _write(log: PartitionLog) -> None:
    for write in log.unwritten():
        write.run()
        write.done()


def test_the_first_epoch_of_an_empty_log_is_written_with_its_first_record(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.log.assign_leader_epoch(2, 0)
        assert harness.log.unwritten() == []
        harness.reopen()
        assert _on_disk(harness) is None
        harness.log.assign_leader_epoch(3, 0)
        harness.append(make_batch(3), leader_epoch=3)
        assert harness.log.has_unwritten
        _write(harness.log)
        assert _on_disk(harness) == b"0\n1\n3 0\n"


def test_a_table_that_no_longer_holds_is_replaced_also_where_the_log_is_empty_again(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=2)
        harness.append(make_batch(3), leader_epoch=4)
        _write(harness.log)
        harness.reopen()
        harness.truncate_to(0)
        harness.log.assign_leader_epoch(5, 0)
        _write(harness.log)
        assert _on_disk(harness) == b"0\n1\n5 0\n"


def test_a_flush_and_an_orderly_stop_write_the_file(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=2)
        harness.log.flush()
        assert _on_disk(harness) == b"0\n1\n2 0\n"
        harness.append(make_batch(3), leader_epoch=3)
        close_log(harness.log)
        assert _on_disk(harness) == b"0\n2\n2 0\n3 3\n"


def test_what_a_crash_left_unwritten_stands_in_the_batches(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=2)
        harness.crash()
        assert harness.log.leader_epochs.entries() == [(2, 0)]
        assert harness.notes == [], "nothing was lost"
        assert _on_disk(harness) == b"0\n1\n2 0\n", "an orderly stop may follow without another append"
        harness.append(make_batch(3), leader_epoch=4)
        harness.reopen()
        assert harness.log.leader_epochs.entries() == [(2, 0), (4, 3)]


class _NoTableFits(FileLayer):
    def replace_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        if path.name == "leader-epoch-checkpoint":
            raise OSError(errno.ENOSPC, "No space left on device")
        super().replace_file(path, data, sync=sync)


def test_without_room_for_the_file_recovery_still_looks_at_the_batches(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", files=_NoTableFits()) as harness:
        harness.append(make_batch(3), leader_epoch=2)
        harness.log.flush()
        assert harness.log.recovery_point == 0


def test_a_write_that_comes_after_the_topic_was_deleted_writes_nothing(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=2)
        (late,) = harness.log.unwritten()
        mark_deleted(harness.log)
        harness.directory.mkdir()
        late.run()
        assert list(harness.directory.iterdir()) == []


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=25),
    st.integers(0, 60),
    st.integers(0, 13),
)
def test_both_columns_always_go_up_and_lookups_agree_with_a_scan(
    rows: list[tuple[int, int]], offset: int, epoch: int
) -> None:
    epochs = LeaderEpochs(rows)
    entries = epochs.entries()
    for (epoch_a, start_a), (epoch_b, start_b) in pairwise(entries):
        assert epoch_a < epoch_b
        assert start_a < start_b
    assert epochs.epoch_for_offset(offset) == max((each for each, start in entries if start <= offset), default=-1)
    answered, end = epochs.end_offset_for(epoch, 100)
    later = [start for each, start in entries if each > epoch]
    if any(each >= epoch for each, _ in entries):
        assert end == min(later, default=100)
        assert answered == max((each for each, _ in entries if each <= epoch), default=epoch)
    else:
        assert (answered, end) == (-1, -1)
