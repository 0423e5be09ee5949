"""Which old segments go. Plain functions over values: no I/O, no clock.

A segment may go if the high watermark has passed its end, and if

    time          its largest timestamp is older than retention.ms (for records without timestamps: the file's
                  modification time), or
    size          the log without it is still at least retention.bytes, or
    log start     everything in it is below the log start offset (records were deleted)

oldest first, up to the first that stays. Compacted topics without `delete` lose only what is below the log start
offset. The active segment may go by time; it is rolled first, so that the log keeps a segment to append to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jesenska.log.log_config import LogConfig


class SegmentFacts(NamedTuple):
    base_offset: int
    #: Base offset of the next segment, or the log end offset.
    end_offset: int
    size_bytes: int
    #: Largest timestamp or modification time.
    timestamp_ms: int
    is_active: bool


def count_deletable(segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, high_watermark: int, log_start_offset: int) -> tuple[int, str]:
    """How many of the oldest segments go, and why in a few words."""
    reasons: list[tuple[int, str]] = []
    if config.delete and config.retention_ms >= 0:
        count = 0
        for facts in segments:
            if not _may_go(facts, high_watermark) or now_ms - facts.timestamp_ms <= config.retention_ms:
                break
            count += 1
        reasons.append((count, f"older than {config.retention_ms} ms"))
    if config.delete and config.retention_bytes >= 0:
        surplus = sum(facts.size_bytes for facts in segments) - config.retention_bytes
        count = 0
        for facts in segments:
            if not _may_go(facts, high_watermark) or surplus - facts.size_bytes < 0:
                break
            surplus -= facts.size_bytes
            count += 1
        reasons.append((count, f"beyond {config.retention_bytes} bytes"))
    count = 0
    for facts in segments:
        if facts.is_active or not _may_go(facts, high_watermark) or facts.end_offset > log_start_offset:
            break
        count += 1
    reasons.append((count, f"below the log start offset {log_start_offset}"))
    return max(reasons, key=lambda reason: reason[0])


def _may_go(facts: SegmentFacts, high_watermark: int) -> bool:
    return facts.end_offset <= high_watermark and not (facts.is_active and facts.size_bytes == 0)
