"""Decides which log is compacted next, which part of it, and which segments are merged. Plain functions over values:
no I/O, no clock.

    0            clean              first dirty offset        dirty        end        must stay unchanged
    |------------------------------------|--------------------------------|------------------------|

The part before the first dirty offset was compacted before: each key is there once. The dirty part is compacted next.
It ends with the last whole segment below the last stable offset. It never includes the active segment, nor a segment
that has a record younger than min.compaction.lag.ms. It may include unsynced records: the result is synced.

A log is compacted if the dirty part is more than min.cleanable.dirty.ratio of both parts together, or if the oldest
record in it is older than max.compaction.lag.ms; the log with the largest share comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from jesenska.log.log_config import UNLIMITED, LogConfig

_RELATIVE_OFFSET_MAX = 2**31 - 1
_TIME_INDEX_ENTRY_BYTES = 12

T = TypeVar("T")


class CleanerSegment(NamedTuple):
    """The facts about a segment by which the cleaner chooses what to compact."""

    base_offset: int
    #: Base offset of the next segment.
    end_offset: int
    size_bytes: int
    #: Largest timestamp, or the file's modification time if the records have none; 0 if no lag is set.
    timestamp_ms: int = 0
    #: Largest timestamp of the first batch; -1 if it has none.
    first_timestamp_ms: int = -1


class CleanablePart(NamedTuple):
    """The part of a log that a compaction would include."""

    first_dirty_offset: int
    #: The base offset of the first segment that stays unchanged.
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: True if a record in the dirty part is older than max.compaction.lag.ms.
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """Returns the dirty part's share of both parts; 0 if both are empty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Returns the start of the dirty part: the checkpoint, or the log's start if the checkpoint is outside of the log,
    or missing."""
    if checkpoint is None or checkpoint < log_start_offset or checkpoint > log_end_offset:
        return log_start_offset
    return checkpoint


def cleanable_part(
    segments: Sequence[CleanerSegment], config: LogConfig, *, first_dirty: int, stable_end: int, now_ms: int
) -> CleanablePart:
    """Returns the part of sealed segments (all but the active one) that a compaction would include. Everything from
    offset `stable_end` on must stay unchanged."""
    end = segments[-1].end_offset if segments else first_dirty
    for facts in segments:
        is_young = (
            config.min_compaction_lag_ms > 0
            and facts.end_offset > first_dirty
            and facts.timestamp_ms > now_ms - config.min_compaction_lag_ms
        )
        if facts.end_offset > stable_end or is_young:
            end = facts.base_offset
            break
    clean_bytes = dirty_bytes = 0
    is_overdue = False
    for facts in segments:
        if facts.base_offset >= end:
            break
        if facts.end_offset <= first_dirty:
            clean_bytes += facts.size_bytes
            continue
        dirty_bytes += facts.size_bytes
        if (
            config.max_compaction_lag_ms != UNLIMITED
            and 0 < facts.first_timestamp_ms < now_ms - config.max_compaction_lag_ms
        ):
            is_overdue = True
    return CleanablePart(first_dirty, max(end, first_dirty), clean_bytes, dirty_bytes, is_overdue)


def is_due(part: CleanablePart, config: LogConfig) -> bool:
    """True if a log with this dirty part is to be compacted."""
    return part.dirty_bytes > 0 and (part.is_overdue or part.dirty_ratio > config.min_cleanable_dirty_ratio)


def dirtiest(candidates: Iterable[tuple[T, CleanablePart]]) -> tuple[T, CleanablePart] | None:
    """Returns the log with the largest dirty share (the first, if several have the same share); None if there are no
    candidates."""
    return max(candidates, key=lambda candidate: candidate[1].dirty_ratio, default=None)


def groups(segments: Sequence[CleanerSegment], config: LogConfig) -> list[list[CleanerSegment]]:
    """Groups segments, oldest first; each group is merged into one segment. A group consists of as many consecutive
    segments as fit into one segment by their bytes, index entries and offsets."""
    result: list[list[CleanerSegment]] = []
    size_bytes = entries = 0
    most_entries = max(1, config.segment_index_bytes // _TIME_INDEX_ENTRY_BYTES)
    for facts in segments:
        facts_entries = facts.size_bytes // max(1, config.index_interval_bytes) + 1
        if (
            result
            and size_bytes + facts.size_bytes <= config.segment_bytes
            and entries + facts_entries <= most_entries
            and facts.end_offset - 1 - result[-1][0].base_offset <= _RELATIVE_OFFSET_MAX
        ):
            result[-1].append(facts)
            size_bytes += facts.size_bytes
            entries += facts_entries
        else:
            result.append([facts])
            size_bytes, entries = facts.size_bytes, facts_entries
    assert all(earlier[-1].end_offset <= later[0].base_offset for earlier, later in pairwise(result))
    return result
