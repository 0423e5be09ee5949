"""Raises the log start offset: clients delete records below an offset (DeleteRecords), and retention removes old
segments.

    delete_records          moves the log start offset, at once; the records stay in their files
    start_after_retention   the log start offset after the removal of the old segments
    delete_old_segments     removes old segments from the log, and renames their files to names in `.deleted`; the log
                            start offset moves to the first remaining segment

`retention` decides which segments are old. The timestamps of segments that have not been read since the start are
unknown; the caller first has them read in another thread (`segments_of_unknown_time`). After a crash a start removes
files named `.deleted`. A log start offset that DeleteRecords has raised is lost in a crash if it was not in a
checkpoint yet; records that are still in their files can then be read again.

A crash may undo some of the renamings and keep others. Then a segment can be missing between two segments that still
exist. Therefore the log start offset is written to its checkpoint before retention renames a file (`Housekeeping`).
The next start then knows that segments below the log start offset were deleted on purpose."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from jesenska.base.errors import OffsetOutOfRangeError
from jesenska.base.plugins import DEFAULT_RETENTION_POLICY, PluginError
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.retention import SegmentFacts, count_deletable
from jesenska.log.retention_policies import policy_named
from jesenska.log.segments.segment import LogSegment

logger = logging.getLogger(__name__)


class _KeepsAll:
    """A retention policy that deletes nothing. It is used for a log whose own policy is not available."""

    def count_old(self, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> tuple[int, str]:
        return 0, ""


_KEEPS_ALL = _KeepsAll()


def _goes_by_time(config: LogConfig) -> bool:
    """Returns true if the topic's retention policy needs the segments' timestamps. Kafka's policy needs them only if
    `retention.ms` is a limit."""
    return config.delete and (config.retention_ms >= 0 or config.retention_policy != DEFAULT_RETENTION_POLICY)


def delete_records(log: PartitionLog, before_offset: int) -> int:
    """Raises the log start offset to `before_offset` (-1: the high watermark) and returns the new log start offset.
    Raises OFFSET_OUT_OF_RANGE if `before_offset` is above the high watermark."""
    target = log.high_watermark if before_offset == -1 else before_offset
    if target > log.high_watermark or target < 0:
        raise OffsetOutOfRangeError(
            f"{log.topic_partition} can only delete records below {log.high_watermark}, not {target}."
        )
    log.move_log_start(target)
    return log.log_start_offset


def segments_of_unknown_time(log: PartitionLog) -> list[LogSegment]:
    """Returns the sealed segments whose largest timestamp is needed for retention and is not in memory."""
    if not _goes_by_time(log.config):
        return []
    return [segment for segment in log.segments[:-1] if not segment.knows_its_time]


def start_after_retention(log: PartitionLog, now_ms: int) -> int | None:
    """Returns the log start offset after the removal of the old segments; None if no segment is old. If all segments
    are old, the log is rolled first. If that roll is queued, the caller must call again when `has_queued_appends` is
    false."""
    count, _ = _count_old_segments(log, now_ms)
    return log.ends()[count - 1] if count else None


def _count_old_segments(log: PartitionLog, now_ms: int) -> tuple[int, str]:
    """Returns how many of the oldest segments the topic's retention would delete, and the reason."""
    if log.has_queued_appends or log.is_failed or log.is_closed:
        return 0, ""
    by_time = _goes_by_time(log.config)
    try:
        policy = policy_named(log.config.retention_policy)
    except PluginError as error:
        logger.error("%s: nothing is deleted by its retention policy: %s", log.topic_partition, error)
        policy = _KEEPS_ALL
    facts = [
        SegmentFacts(
            segment.base_offset,
            end,
            segment.size_bytes,
            segment.retention_timestamp() if by_time else 0,
            segment is log.active_segment,
        )
        for segment, end in zip(log.segments, log.ends(), strict=True)
    ]
    limits = {"now_ms": now_ms, "high_watermark": log.high_watermark, "log_start_offset": log.log_start_offset}
    count, reason = count_deletable(facts, log.config, **limits, policy=policy)
    if count and count == len(facts):
        log.queue_roll(now_ms)
        if log.queue.waiting:
            return 0, ""
    return count, reason


def delete_old_segments(log: PartitionLog, now_ms: int, up_to: int | None = None) -> list[Path]:
    """Removes segments that are old by the topic's retention from the log, and renames their files. If `up_to` is
    given, only segments that end at or below that offset are removed. Returns the files to be deleted after
    `file.delete.delay.ms`. If all segments are old, the log is rolled first."""
    count, reason = _count_old_segments(log, now_ms)
    if up_to is not None:
        count = min(count, sum(end <= up_to for end in log.ends()))
    if count == 0:
        return []
    renamed: list[Path] = []
    for segment in log.take_oldest(count):
        renamed.extend(segment.mark_deleted())
        renamed.extend(log.snapshots.mark_deleted(segment.base_offset))
    logger.info(
        "%s: deleted %d segments (%s), starts at %d now", log.topic_partition, count, reason, log.log_start_offset
    )
    return renamed
