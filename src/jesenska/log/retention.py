"""Decides which old segments are deleted. These are plain functions over values, without input, output or clock.

    below the log start    a segment that is completely below the log start offset (records were deleted) is deleted
    retention policy       decides on other segments, if the topic's `cleanup.policy` has `delete`; `TIME_AND_SIZE` is
                           Kafka's policy, and packages may provide more policies (`retention_policies`)

Segments are deleted from the oldest on, up to the first segment that is kept. Segments that reach above the high
watermark are kept, even if the policy would delete them. The active segment may also be deleted, if it has records. It
is rolled first, so that the log keeps a segment to append to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from jesenska.log.log_config import LogConfig

logger = logging.getLogger(__name__)


class SegmentFacts(NamedTuple):
    """The facts about a segment from which a retention policy decides if the segment is deleted."""

    base_offset: int
    #: The base offset of the next segment, or the log end offset.
    end_offset: int
    size_bytes: int
    #: The largest timestamp, or the file's modification time if the records have no timestamps.
    timestamp_ms: int
    is_active: bool


class RetentionPolicy(Protocol):
    """Decides how many of a log's oldest segments are old enough to be deleted."""

    def count_old(self, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> tuple[int, str]:
        """Returns how many of `segments` (all segments of the log, the oldest first) may be deleted, counted from the
        first, and the reason: a few words for the log line, as in "older than 1000 ms". `config` has the topic's
        `retention_ms` and `retention_bytes`, each -1 for no limit; `now_ms` is the time of day in ms since 1970.

        This method is called on the broker's event loop, for each log every `log.retention.check.interval.ms`: it must
        not block. If it raises an exception, nothing is deleted, and the broker logs the error."""
        ...


class TimeAndSize:
    """Kafka's retention policy. A segment may be deleted if its largest timestamp is older than `retention.ms`, or if
    the log without it still has at least `retention.bytes`."""

    def count_old(self, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> tuple[int, str]:
        by_time = by_size = 0
        if config.retention_ms >= 0:
            while by_time < len(segments) and now_ms - segments[by_time].timestamp_ms > config.retention_ms:
                by_time += 1
        if config.retention_bytes >= 0:
            surplus = sum(facts.size_bytes for facts in segments) - config.retention_bytes
            while by_size < len(segments) and surplus >= segments[by_size].size_bytes:
                surplus -= segments[by_size].size_bytes
                by_size += 1
        if by_size > by_time:
            return by_size, f"beyond {config.retention_bytes} bytes"
        return by_time, f"older than {config.retention_ms} ms"


class WholeHours:
    """A retention policy that keeps whole hours (of UTC): a record is deleted only when the last moment of its hour is
    older than `retention.ms`. `retention.bytes` has no effect."""

    def count_old(self, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> tuple[int, str]:
        if config.retention_ms < 0:
            return 0, ""
        oldest_ms = (now_ms - config.retention_ms) // _HOUR_MS * _HOUR_MS
        count = 0
        while count < len(segments) and segments[count].timestamp_ms < oldest_ms:
            count += 1
        return count, f"of hours that ended more than {config.retention_ms} ms ago"


_HOUR_MS = 60 * 60 * 1000
TIME_AND_SIZE: RetentionPolicy = TimeAndSize()


def count_deletable(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    now_ms: int,
    high_watermark: int,
    log_start_offset: int,
    policy: RetentionPolicy = TIME_AND_SIZE,
) -> tuple[int, str]:
    """Returns how many of the oldest segments are to be deleted, and the reason in a few words."""
    below_start = 0
    while (
        below_start < len(segments)
        and segments[below_start].end_offset <= log_start_offset
        and not segments[below_start].is_active
    ):
        below_start += 1
    count, reason = _count_old(policy, segments, config, now_ms) if config.delete else (0, "")
    if count <= below_start:
        count, reason = below_start, f"below the log start offset {log_start_offset}"
    committed = 0
    while (
        committed < count
        and segments[committed].end_offset <= high_watermark
        and (segments[committed].size_bytes or not segments[committed].is_active)
    ):
        committed += 1
    return committed, reason


def _count_old(
    policy: RetentionPolicy, segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int
) -> tuple[int, str]:
    """Returns the policy's result. Returns 0 segments if the policy raises an error or its result is not valid."""
    if not segments:
        return 0, ""
    try:
        count, reason = policy.count_old(segments, config, now_ms)
        if not isinstance(count, int) or not isinstance(reason, str) or not 0 <= count <= len(segments):
            raise ValueError(f"the policy returned {count!r}, {reason!r} for {len(segments)} segments")
    except Exception as error:
        logger.error(
            "retention policy %s failed, nothing is deleted by it: %s: %s",
            type(policy).__name__,
            type(error).__name__,
            error,
        )
        return 0, ""
    return count, reason
