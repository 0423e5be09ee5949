from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.errors import KafkaStorageError, MessageTooLargeError, OffsetOutOfRangeError, RecordListTooLargeError
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.log_start import delete_old_segments, delete_records
from jesenska.log.partition.reading import read_log
from jesenska.records.batch import iter_headers, verify_crc
from jesenska.records.decode import decode_batches
from tests.profiles import examples
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch


def test_appends_get_offsets_in_a_row_and_are_read_back(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        first = harness.append(make_batch(3))
        second = harness.append(make_batch(2), make_batch(1))
        assert (first.base_offset, first.last_offset, first.duplicate) == (0, 2, False)
        assert (second.base_offset, second.last_offset) == (3, 5)
        assert harness.log.log_end_offset == 6
        assert harness.offsets() == [0, 1, 2, 3, 4, 5]


def test_append_stamps_offset_and_leader_epoch_and_keeps_the_crc(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(3), leader_epoch=4)
        harness.append(make_batch(3), leader_epoch=5)
        data = harness.read(0)
        headers = list(iter_headers(data))
        assert [(header.base_offset, header.partition_leader_epoch) for _, header in headers] == [(0, 4), (3, 5)]
        for position, header in headers:
            verify_crc(data, position, header)


def test_append_time_replaces_record_times(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(log_append_time=True)) as harness:
        result = harness.append(make_batch(2, timestamp=5), now_ms=NOW_MS + 77)
        assert result.log_append_time_ms == NOW_MS + 77
        assert [record.timestamp_ms for record in decode_batches(harness.read(0))] == [NOW_MS + 77] * 2
        found = harness.first_at_or_after(NOW_MS + 77)
        assert found is not None
        assert (found.offset, found.timestamp_ms) == (0, NOW_MS + 77)


def test_create_time_topics_answer_no_append_time(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        assert harness.append(make_batch()).log_append_time_ms == -1


def test_the_time_of_a_batch_that_was_appended_before_is_that_of_its_latest_record(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        times = [
            harness.append(
                make_batch(2, timestamp=5, producer_id=7, producer_epoch=0, base_sequence=0)
            ).log_append_time_ms
            for _ in range(2)
        ]
        assert times == [-1, 6]


def test_read_at_the_end_is_empty_and_beyond_is_out_of_range(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(2))
        assert read_log(harness.log, 2, 100).region is None
        with pytest.raises(OffsetOutOfRangeError):
            read_log(harness.log, 3, 100)
        with pytest.raises(OffsetOutOfRangeError):
            read_log(harness.log, -1, 100)


def test_read_below_the_log_start_is_out_of_range(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        for _ in range(4):
            harness.append(make_batch(2))
        assert delete_records(harness.log, 3) == 3
        with pytest.raises(OffsetOutOfRangeError):
            read_log(harness.log, 2, 100)
        assert harness.offsets() == [3, 4, 5, 6, 7]


def test_delete_records_to_the_high_watermark_and_not_beyond(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        harness.append(make_batch(4))
        harness.log.move_high_watermark(3)
        with pytest.raises(OffsetOutOfRangeError):
            delete_records(harness.log, 4)
        assert delete_records(harness.log, -1) == 3


def test_first_batch_is_whole_even_if_larger_than_asked_for(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        batch = make_batch(1, value_bytes=1000)
        for _ in range(3):
            harness.append(bytearray(batch))
        assert len(harness.read(1, max_bytes=10)) == len(batch)
        assert len(harness.read(1, max_bytes=len(batch) + 5)) == len(batch) + 5
        # The same far from the remembered end of the log.
        harness.reopen()
        assert len(harness.read(1, max_bytes=10)) == len(batch)


def test_first_batch_that_is_larger_than_asked_for_is_not_cut_where_none_has_to_come(tmp_path: Path) -> None:
    """Clients consider records without a whole batch an error of the broker."""
    with LogHarness(tmp_path / "t-0") as harness:
        batch = make_batch(1, value_bytes=1000)
        for _ in range(3):
            harness.append(bytearray(batch))
        for reopened in (False, True):
            if reopened:
                harness.reopen()
            for max_bytes in (0, 10, len(batch) - 1):
                result = read_log(harness.log, 1, max_bytes, minimum_one_batch=False)
                assert (result.region, result.has_more) == (None, True)
            assert len(harness.read(1, max_bytes=len(batch), minimum_one_batch=False)) == len(batch)
            assert len(harness.read(1, max_bytes=len(batch) + 5, minimum_one_batch=False)) == len(batch) + 5


@pytest.mark.parametrize(
    ("offset", "max_offset", "is_final", "has_more"),
    [
        (0, None, True, True),
        (1, None, True, True),
        (2, None, True, True),  # the next batch is in the last segment
        (4, None, False, False),  # the last segment may grow
        (0, 1, False, False),  # the bound is in the same segment
        (0, 2, True, False),  # the bound is at the end of the segment
        (0, 3, True, True),
        (2, 3, False, False),
        (4, 5, False, False),
    ],
)
def test_a_read_says_whether_its_segment_has_ended(
    tmp_path: Path, offset: int, max_offset: int | None, is_final: bool, has_more: bool
) -> None:
    batch = make_batch(1)
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=2 * len(batch))) as harness:
        for _ in range(6):
            harness.append(bytearray(batch))
        assert [segment.base_offset for segment in harness.log.segments] == [0, 2, 4]
        for reopened in (False, True):
            if reopened:
                harness.reopen()
            for segment in harness.log.segments:
                segment.unchecked_bytes = 0  # as if all of it had been read before
            result = read_log(harness.log, offset, 1 << 20, max_offset)
            assert (result.is_final, result.has_more) == (is_final, has_more)
            assert result.region is not None
            result.region.release()


def test_a_first_batch_that_is_not_given_says_too_whether_its_segment_has_ended(tmp_path: Path) -> None:
    batch = make_batch(1)
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=len(batch))) as harness:
        for _ in range(2):
            harness.append(bytearray(batch))
        found = [read_log(harness.log, offset, 1, minimum_one_batch=False) for offset in (0, 1, 2)]
        assert [(result.region, result.is_final) for result in found] == [(None, True), (None, False), (None, False)]


def test_read_stops_before_the_bound(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=1000)) as harness:
        for _ in range(40):
            harness.append(make_batch(2))
        for reopened in (False, True):
            if reopened:
                harness.reopen()
            for offset in range(80):
                for bound in (offset, offset + 1, offset + 3, 79, 80):
                    seen = [record.offset for record in decode_batches(harness.read(offset, max_offset=bound))]
                    assert all(each < bound for each in seen), (offset, bound, seen)
                    # A batch that straddles the bound stays out as a whole.
                    if bound // 2 > offset // 2:
                        assert offset // 2 * 2 == seen[0]


def test_batch_too_large_for_the_topic_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(max_message_bytes=200)) as harness:
        harness.append(make_batch())
        before = harness.contents()
        with pytest.raises(MessageTooLargeError):
            harness.append(
                make_batch(1, producer_id=5, producer_epoch=0, base_sequence=0), make_batch(1, value_bytes=300)
            )
        assert harness.contents() == before
        assert len(harness.log.producers) == 0
        assert harness.append(make_batch()).base_offset == 1


def test_more_than_a_segment_holds_is_refused(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=150)) as harness:
        with pytest.raises(RecordListTooLargeError):
            harness.append(make_batch(1, value_bytes=200))
        assert harness.log.log_end_offset == 0


def test_closed_log_takes_no_appends(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0") as harness:
        close_log(harness.log)
        with pytest.raises(KafkaStorageError):
            harness.append(make_batch())


def test_follower_keeps_offsets_epochs_and_gaps_of_the_leader(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "leader-0") as leader, LogHarness(tmp_path / "t-0") as follower:
        leader.append(make_batch(2), leader_epoch=0)
        leader.append(make_batch(2), leader_epoch=3)
        leader.append(make_batch(2, producer_id=9, producer_epoch=0, base_sequence=0), leader_epoch=3)
        for offset in (0, 4):
            follower.append_as_follower(leader.read(offset, max_bytes=1))
        assert follower.offsets() == [0, 1, 4, 5]
        assert follower.log.leader_epochs.entries() == [(0, 0), (3, 4)]
        entry = follower.log.producers.get(9)
        assert entry is not None
        assert entry.last_sequence == 1
        with pytest.raises(OffsetOutOfRangeError):
            follower.append_as_follower(leader.read(4))


def test_region_survives_deletion_of_its_segment(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=200, retention_bytes=0)) as harness:
        for _ in range(6):
            harness.append(make_batch())
        region = read_log(harness.log, 0, 10_000).region
        assert region is not None
        expected = harness.files.pread(region.file.fileno(), region.size_bytes, region.position)
        for path in delete_old_segments(harness.log, NOW_MS):
            path.unlink()
        assert harness.log.log_start_offset > 0
        assert harness.files.pread(region.file.fileno(), region.size_bytes, region.position) == expected
        region.release()


def test_reading_sealed_segments_keeps_no_more_files_open_than_allowed(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=200)) as harness:
        harness.open_files.limit = 3
        for _ in range(40):
            harness.append(make_batch())
        assert harness.offsets() == list(range(40))
        assert len(harness.open_files) == 3
        opened = [segment for segment in harness.log.segments if segment.file.is_open]
        assert len(opened) == 4
        assert sum(segment.offset_index.is_loaded for segment in harness.log.segments) <= 4


@settings(max_examples=examples(0.4))
@given(
    batches=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 300)), min_size=1, max_size=60),
    segment_bytes=st.integers(500, 4000),
    interval=st.integers(0, 500),
    reopen=st.booleans(),
    data=st.data(),
)
def test_any_offset_is_found_as_by_reading_everything(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[int, int]],
    segment_bytes: int,
    interval: int,
    reopen: bool,
    data: st.DataObject,
) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    with LogHarness(tmp_path_factory.mktemp("log") / "t-0", config) as harness:
        expected: list[tuple[int, int]] = []
        for count, size in batches:
            batch = make_batch(count, value_bytes=size)
            if len(batch) <= segment_bytes:
                result = harness.append(batch)
                expected.append((result.base_offset, result.last_offset))
        if reopen:
            harness.reopen()
        assert harness.offsets() == list(range(harness.log.log_end_offset))
        if harness.log.log_end_offset == 0:
            return
        for offset in data.draw(st.lists(st.integers(0, harness.log.log_end_offset - 1), max_size=10)):
            result2 = read_log(harness.log, offset, 1)
            assert result2.region is not None
            result2.region.release()
            assert result2.base_offset == next(base for base, last in expected if last >= offset)
