"""Decides which log is compacted next, which part of it, and which segments are merged. These are plain functions over
values, without input, output or clock.

    0            clean              first dirty offset        dirty        end        must stay unchanged
    |------------------------------------|--------------------------------|------------------------|

The clean part, before the first dirty offset, was compacted before: it has each key once. The dirty part is compacted
next. It ends with the last complete segment below the last stable offset. It never includes the active segment, nor a
segment with a record younger than min.compaction.lag.ms. It may include unsynced records, because the result is
synced.

A log is compacted if the dirty part is more than min.cleanable.dirty.ratio of both parts together, or if the oldest
record in it is older than max.compaction.lag.ms. The log with the largest dirty share comes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from jesenska.log.log_config import UNLIMITED, LogConfig

_RELATIVE_OFFSET_MAX = 2**31 - 1
_TIME_INDEX_ENTRY_BYTES = 12

T = TypeVar("T")


class CleanerSegment(NamedTuple):
    """The facts about a segment from which the cleaner decides what to compact."""

    base_offset: int
    #: The base offset of the next segment.
    end_offset: int
    size_bytes: int
    #: The largest timestamp, or the file's modification time if no record has a timestamp; 0 if no compaction lag is
    #: set.
    timestamp_ms: int = 0
    #: The largest timestamp of the first batch; -1 if that batch has none.
    first_timestamp_ms: int = -1


class CleanablePart(NamedTuple):
    """The part of a log that a compaction would include."""

    first_dirty_offset: int
    #: The base offset of the first segment that must stay unchanged.
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: True if a record in the dirty part is older than max.compaction.lag.ms.
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty part's share of the clean and the dirty part together; 0 if both are empty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Returns the first dirty offset: the offset in the cleaner checkpoint, or the log start offset if the checkpoint
    is missing or outside of the log."""
    if checkpoint is None or checkpoint < log_start_offset or checkpoint > log_end_offset:
        return log_start_offset
    return checkpoint


def cleanable_part(
    segments: Sequence[CleanerSegment], config: LogConfig, *, first_dirty: int, stable_end: int, now_ms: int
) -> CleanablePart:
    """Returns the part of the log that a compaction would include. `segments` are the sealed segments (all but the
    active one). Everything from offset `stable_end` on must stay unchanged."""
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
    """Returns true if a log with this dirty part should be compacted now."""
    return part.dirty_bytes > 0 and (part.is_overdue or part.dirty_ratio > config.min_cleanable_dirty_ratio)


def dirtiest(candidates: Iterable[tuple[T, CleanablePart]]) -> tuple[T, CleanablePart] | None:
    """Returns the log with the largest dirty share, together with its cleanable part. If several logs have the same
    share, returns the first of them. Returns None if there are no candidates."""
    return max(candidates, key=lambda candidate: candidate[1].dirty_ratio, default=None)


def groups(segments: Sequence[CleanerSegment], config: LogConfig) -> list[list[CleanerSegment]]:
    """Groups the segments, oldest first; each group is merged into one segment. A group has as many consecutive
    segments as fit into one segment by bytes, index entries and offsets."""
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
