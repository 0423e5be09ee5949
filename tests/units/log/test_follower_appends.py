"""A follower's appends: the leader's batches, with their offsets and epochs, while the disk is busy or fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from jesenska.base.errors import CorruptMessageError, KafkaStorageError, OffsetOutOfRangeError
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import mark_deleted
from jesenska.log.partition.leader_appends import AppendResult, append_or_queue
from jesenska.log.partition.log_start import delete_records
from jesenska.records.batch import iter_headers
from tests.units.log.follower_harness import Follower, leader_batch
from tests.units.log.test_queue_and_disk_faults import FaultyFiles

SMALL = LogConfig(segment_bytes=250, index_interval_bytes=100)


def test_during_a_flush_a_followers_append_waits_for_the_writer_thread(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(2)
        harness.log.flush()
        assert follower.append(leader_batch(2, 3, epoch=4)) is None
        assert follower.append(leader_batch(9, epoch=4)) is None
        assert (harness.log.log_end_offset, harness.log.next_offset) == (2, 10)
        assert harness.offsets() == [0, 1]
        follower.writer.run_one()
        assert follower.answers == [AppendResult(2, 4, -1, 0, False)]
        assert harness.offsets() == [0, 1, 2, 3, 4]
        assert harness.log.leader_epochs.entries() == [(0, 0), (4, 2)]
        follower.settle()
        assert harness.offsets() == [0, 1, 2, 3, 4, 9]


def test_a_leader_that_becomes_follower_while_its_appends_are_queued_goes_on_behind_them(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(1)
        harness.log.flush()
        buffer = memoryview(bytearray(leader_batch(0, 2)))
        assert (
            append_or_queue(
                harness.log, buffer, [header for _, header in iter_headers(buffer)], 3, 0, follower.answers.append
            )
            is None
        )
        assert follower.append(leader_batch(3, epoch=5)) is None
        follower.settle()
        assert [answer.base_offset for answer in follower.answers if isinstance(answer, AppendResult)] == [1, 3]
        assert harness.offsets() == [0, 1, 2, 3]
        assert harness.log.leader_epochs.entries() == [(0, 0), (3, 1), (5, 3)]


def test_with_flush_messages_a_followers_append_is_answered_when_it_is_synced(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0", LogConfig(flush_messages=1))
    with follower.harness as harness:
        assert follower.append(leader_batch(0)) is None
        assert harness.log.log_end_offset == 1
        assert follower.answers == []
        follower.flusher.run_all()
        assert follower.answers == [AppendResult(0, 0, -1, 0, False)]
        assert harness.log.recovery_point == 1


def test_a_followers_roll_waits_too_and_begins_at_the_first_batch(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0", SMALL)
    with follower.harness as harness:
        follower.fill(3)
        harness.log.flush()
        assert follower.append(leader_batch(7, 2)) is None
        assert "00000000000000000007.log" not in harness.names()
        assert follower.append(leader_batch(9)) is None
        follower.settle()
        assert [segment.base_offset for segment in harness.log.segments] == [0, 7]
        assert harness.offsets() == [0, 1, 2, 7, 8, 9]
        harness.crash()
        assert harness.offsets() == [0, 1, 2, 7, 8, 9]


def test_a_roll_over_a_gap_moves_the_end_there_as_a_start_does(tmp_path: Path) -> None:
    files = FaultyFiles()
    follower = Follower(tmp_path / "t-0", SMALL, files)
    with follower.harness as harness:
        follower.fill(3)
        harness.log.flush()
        assert follower.append(leader_batch(7)) is None
        follower.writer.run_one()
        files.room_bytes = 0
        follower.writer.run_one()
        assert isinstance(follower.answers[0], KafkaStorageError)
        files.room_bytes = None
        assert harness.log.log_end_offset == harness.log.next_offset == harness.log.active_segment.base_offset == 7
        follower.settle()
        harness.crash()
        assert harness.log.log_end_offset == 7


def test_a_followers_write_that_fails_leaves_no_epoch_and_no_producer(tmp_path: Path) -> None:
    files = FaultyFiles()
    follower = Follower(tmp_path / "t-0", LogConfig(), files)
    with follower.harness as harness:
        follower.fill(1)
        harness.log.flush()
        assert follower.append(leader_batch(1, 2, epoch=7, producer_id=5, base_sequence=0)) is None
        assert follower.append(leader_batch(3, epoch=8)) is None
        files.room_bytes = 0
        follower.writer.run_all()
        assert [type(answer) for answer in follower.answers] == [KafkaStorageError, KafkaStorageError]
        assert harness.log.leader_epochs.entries() == [(0, 0)]
        assert harness.log.producers.get(5) is None
        files.room_bytes = None
        assert follower.append(leader_batch(1, epoch=3)) is None
        follower.settle()
        assert harness.log.leader_epochs.entries() == [(0, 0), (3, 1)]
        assert harness.offsets() == [0, 1]


def test_who_begins_to_lead_knows_the_epochs_of_what_is_queued(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(2)
        harness.log.flush()
        assert follower.append(leader_batch(2, 3, epoch=3)) is None
        assert follower.append(leader_batch(5, 2, epoch=4)) is None
        harness.log.begin_to_lead(6)
        assert harness.log.leader_epochs.entries() == [(0, 0), (3, 2), (4, 5), (6, 7)]
        follower.settle()
        assert harness.log.log_end_offset == 7
        assert harness.log.leader_epochs.entries() == [(0, 0), (3, 2), (4, 5), (6, 7)]


def test_who_begins_to_lead_knows_no_epochs_of_what_was_not_written(tmp_path: Path) -> None:
    files = FaultyFiles()
    follower = Follower(tmp_path / "t-0", LogConfig(), files)
    with follower.harness as harness:
        follower.fill(2)
        harness.log.flush()
        assert follower.append(leader_batch(2, 3, epoch=3)) is None
        assert follower.append(leader_batch(5, 2, epoch=4)) is None
        harness.log.begin_to_lead(6)
        follower.writer.run_one()
        files.room_bytes = 0
        follower.writer.run_all()
        assert harness.log.log_end_offset == 5
        assert harness.log.leader_epochs.entries() == [(0, 0), (3, 2), (6, 5)]


def test_a_followers_write_that_fails_at_once_leaves_no_epoch_and_no_producer(tmp_path: Path) -> None:
    files = FaultyFiles()
    follower = Follower(tmp_path / "t-0", LogConfig(), files)
    with follower.harness as harness:
        follower.fill(1)
        files.room_bytes = 0
        with pytest.raises(KafkaStorageError):
            follower.append(leader_batch(1, epoch=7, producer_id=5, base_sequence=0))
        assert harness.log.leader_epochs.entries() == [(0, 0)]
        assert harness.log.producers.get(5) is None


def test_batches_whose_offsets_do_not_go_up_are_refused_whole(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(1)
        for later in (leader_batch(2), leader_batch(1)):
            with pytest.raises(CorruptMessageError):
                follower.append(leader_batch(1, 2), later)
        assert harness.log.next_offset == harness.log.log_end_offset == 1
        assert follower.append(leader_batch(1)) is not None


@pytest.mark.parametrize("flush_in_flight", [False, True])
def test_an_empty_log_begins_anew_with_a_batch_that_holds_its_end(tmp_path: Path, flush_in_flight: bool) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.restart_at(10)
        follower.settle()
        assert follower.ends() == (10, 10, 10)
        if flush_in_flight:
            harness.log.flush()
        assert follower.append(leader_batch(6, 8, epoch=2), leader_batch(14)) is None
        follower.settle()
        assert follower.answers == [AppendResult(6, 14, -1, 6, False)]
        assert follower.ends() == (6, 6, 15)
        assert harness.offsets() == list(range(6, 15))
        assert harness.log.leader_epochs.entries() == [(2, 6)]
        harness.crash(recovery_point=10)
        assert harness.offsets() == list(range(6, 15))


def test_a_log_whose_records_are_deleted_begins_anew_with_a_batch_that_holds_its_end(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.fill(10)
        harness.log.move_high_watermark(10)
        delete_records(harness.log, -1)
        assert follower.append(leader_batch(8, 5)) is None
        follower.settle()
        assert harness.offsets() == [8, 9, 10, 11, 12]
        assert harness.names().count("00000000000000000000.log") == 0


def test_a_batch_before_the_end_of_a_log_with_records_or_below_that_of_an_empty_one_is_out_of_range(
    tmp_path: Path,
) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.restart_at(10)
        follower.settle()
        with pytest.raises(OffsetOutOfRangeError):
            follower.append(leader_batch(6, 4))
        follower.fill(2)
        with pytest.raises(OffsetOutOfRangeError):
            follower.append(leader_batch(11, 3))
        assert harness.offsets() == [10, 11]


def test_what_begins_a_log_anew_is_lost_with_the_topic(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "t-0")
    with follower.harness as harness:
        follower.restart_at(10)
        follower.settle()
        assert follower.append(leader_batch(6, 8)) is None
        mark_deleted(harness.log)
        follower.settle()
        assert isinstance(follower.answers[0], KafkaStorageError)
