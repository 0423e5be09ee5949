from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_log
from jesenska.log.partition.log_start import delete_old_segments, delete_records
from jesenska.log.retention import SegmentFacts, count_deletable
from jesenska.log.segments.producer_state import decode_snapshot
from tests.units.log.log_harness import NOW_MS, LogHarness, make_batch

DAY_MS = 86_400_000


def test_segment_rolls_before_an_append_would_make_it_too_large(tmp_path: Path) -> None:
    batch = make_batch()
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=3 * len(batch))) as harness:
        for _ in range(7):
            harness.append(bytearray(batch))
        assert [segment.base_offset for segment in harness.log.segments] == [0, 3, 6]
        assert "00000000000000000003.log" in harness.names()


def test_segment_rolls_when_record_times_span_too_much(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_ms=1000)) as harness:
        harness.append(make_batch(timestamp=NOW_MS))
        harness.append(make_batch(timestamp=NOW_MS + 1000))
        assert len(harness.log.segments) == 1
        harness.append(make_batch(timestamp=NOW_MS + 1001))
        assert [segment.base_offset for segment in harness.log.segments] == [0, 2]


def test_records_without_times_roll_by_the_clock(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_ms=1000)) as harness:
        harness.append(make_batch(timestamp=-1), now_ms=NOW_MS + 900)
        harness.append(make_batch(timestamp=-1), now_ms=NOW_MS + 1000)
        assert len(harness.log.segments) == 1
        harness.append(make_batch(timestamp=-1), now_ms=NOW_MS + 1001)
        assert len(harness.log.segments) == 2


def test_jitter_rolls_earlier(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_ms=1000, segment_jitter_ms=500)) as harness:
        harness.log.active_segment.jitter_ms = 400
        harness.append(make_batch(timestamp=NOW_MS))
        harness.append(make_batch(timestamp=NOW_MS + 600))
        assert len(harness.log.segments) == 1
        harness.append(make_batch(timestamp=NOW_MS + 601))
        assert len(harness.log.segments) == 2


def test_full_index_rolls(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_index_bytes=48, index_interval_bytes=0)) as harness:
        for index in range(40):
            harness.append(make_batch(timestamp=NOW_MS + index))
        assert len(harness.log.segments) > 5
        assert harness.offsets() == list(range(40))


def test_index_files_end_with_their_entries_while_a_log_is_written_and_afterwards(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=500, index_interval_bytes=0)) as harness:
        for index in range(8):
            harness.append(make_batch(timestamp=NOW_MS + index))
        sealed, *_, active = harness.log.segments
        assert active.offset_index.path.read_bytes() == active.time_index.path.read_bytes() == b""
        harness.log.flush()
        for segment in (sealed, active):
            assert segment.offset_index.path.stat().st_size == 8 * len(segment.offset_index) > 0
            assert segment.time_index.path.stat().st_size == 12 * len(segment.time_index) > 0
        harness.reopen()
        close_log(harness.log)
        assert active.offset_index.path.stat().st_size == 8 * len(active.offset_index)


def test_preallocated_segment_is_cut_at_the_stop(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=100_000, preallocate=True)) as harness:
        harness.append(make_batch(3))
        path = harness.log.active_segment.file.path
        size_bytes = harness.log.size_bytes
        if path.stat().st_size != 100_000:
            # The first segment is made by the loader; the next by a roll.
            harness.log.roll(NOW_MS)
            path = harness.log.active_segment.file.path
            size_bytes = 0
        assert path.stat().st_size == 100_000
        harness.reopen()
        close_log(harness.log)
        assert path.stat().st_size == size_bytes
        assert harness.log.log_end_offset == 3


def test_roll_takes_a_snapshot_of_the_producers_before_it(tmp_path: Path) -> None:
    batch = make_batch(1, producer_id=3, producer_epoch=0, base_sequence=0)
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=2 * len(batch))) as harness:
        for sequence in range(3):
            harness.append(make_batch(1, producer_id=3, producer_epoch=0, base_sequence=sequence))
        snapshot = tmp_path / "t-0" / "00000000000000000002.snapshot"
        (entry,) = decode_snapshot(snapshot.read_bytes(), NOW_MS)
        assert (entry.last_sequence, entry.batches[-1].last_offset) == (1, 1)
        current = harness.log.producers.get(3)
        assert current is not None
        assert current.last_sequence == 2


def test_roll_moves_the_recovery_point_when_the_sealed_segment_is_synced(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=300)) as harness:
        for _ in range(10):
            harness.append(make_batch())
        assert harness.log.recovery_point == harness.log.active_segment.base_offset > 0


def test_old_segments_go_by_the_time_of_their_records(tmp_path: Path) -> None:
    batch = make_batch()
    with LogHarness(
        tmp_path / "t-0", LogConfig(segment_bytes=2 * len(batch), retention_ms=5 * DAY_MS, segment_ms=1000 * DAY_MS)
    ) as harness:
        for day in range(10):
            harness.append(make_batch(timestamp=NOW_MS + day * DAY_MS))
        doomed = delete_old_segments(harness.log, NOW_MS + 9 * DAY_MS)
        assert harness.log.log_start_offset == 4
        assert harness.offsets() == [4, 5, 6, 7, 8, 9]
        assert all(path.name.endswith(".deleted") and path.exists() for path in doomed)
        assert "00000000000000000002.log.deleted" in harness.names()
        assert delete_old_segments(harness.log, NOW_MS + 9 * DAY_MS) == []


def test_everything_old_goes_and_the_log_goes_on_at_its_end(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(retention_ms=1000)) as harness:
        for _ in range(3):
            harness.append(make_batch())
        assert delete_old_segments(harness.log, NOW_MS + 10_000)
        assert (harness.log.log_start_offset, harness.log.log_end_offset) == (3, 3)
        assert harness.append(make_batch()).base_offset == 3
        harness.reopen()
        assert harness.offsets() == [3]


def test_records_without_times_go_by_the_file_modification_time(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(retention_ms=1000)) as harness:
        harness.append(make_batch(timestamp=-1))
        modified = 1_500_000_000
        os.utime(harness.log.active_segment.file.path, (modified, modified))
        assert delete_old_segments(harness.log, modified * 1000 + 1000) == []
        assert delete_old_segments(harness.log, modified * 1000 + 1001) != []


def test_oldest_segments_go_while_the_rest_is_large_enough(tmp_path: Path) -> None:
    batch = make_batch()
    with LogHarness(
        tmp_path / "t-0", LogConfig(segment_bytes=2 * len(batch), retention_ms=-1, retention_bytes=5 * len(batch))
    ) as harness:
        for _ in range(10):
            harness.append(bytearray(batch))
        delete_old_segments(harness.log, NOW_MS)
        assert harness.offsets() == [4, 5, 6, 7, 8, 9]


def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    batch = make_batch()
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=2 * len(batch), retention_bytes=0)) as harness:
        for _ in range(10):
            harness.append(bytearray(batch))
        harness.log.move_high_watermark(5)
        delete_old_segments(harness.log, NOW_MS)
        assert harness.log.log_start_offset == 4


def test_compacted_topic_keeps_old_segments_but_not_deleted_records(tmp_path: Path) -> None:
    batch = make_batch()
    config = LogConfig(segment_bytes=2 * len(batch), retention_bytes=0, retention_ms=1, delete=False, compact=True)
    with LogHarness(tmp_path / "t-0", config) as harness:
        for _ in range(6):
            harness.append(bytearray(batch))
        assert delete_old_segments(harness.log, NOW_MS + DAY_MS) == []
        delete_records(harness.log, 3)
        assert delete_old_segments(harness.log, NOW_MS + DAY_MS) != []
        assert [segment.base_offset for segment in harness.log.segments] == [2, 4]
        assert harness.offsets() == [3, 4, 5]


@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=12),
    retention_bytes=st.integers(0, 800),
    high_watermark=st.integers(0, 14),
)
def test_size_retention_never_leaves_less_than_it_should(
    sizes: list[int], retention_bytes: int, high_watermark: int
) -> None:
    facts = [SegmentFacts(index, index + 1, size, 0, index == len(sizes) - 1) for index, size in enumerate(sizes)]
    config = LogConfig(retention_ms=-1, retention_bytes=retention_bytes)
    count, _ = count_deletable(facts, config, now_ms=0, high_watermark=high_watermark, log_start_offset=0)
    assert count == 0 or sum(sizes[count:]) >= retention_bytes
    assert count <= high_watermark
    # And it is as much as may go: one more would be too much.
    if count < min(len(sizes), high_watermark):
        assert sum(sizes[count + 1 :]) < retention_bytes


def test_unlimited_retention_keeps_everything(tmp_path: Path) -> None:
    with LogHarness(tmp_path / "t-0", LogConfig(segment_bytes=200, retention_ms=-1, retention_bytes=-1)) as harness:
        for _ in range(5):
            harness.append(make_batch(timestamp=1))
        assert delete_old_segments(harness.log, NOW_MS) == []
        assert harness.offsets() == [0, 1, 2, 3, 4]
