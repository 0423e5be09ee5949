"""Decides the next step for a copy to become equal to a log that is in use. Plain functions over values: no disk, no
clock.

    the log has no such segment any more    `Remove`: retention, or a truncation, has removed it
    bytes of a segment are missing          `CopyPiece`, the oldest segment first
    a sealed segment has all its bytes      `Seal`: the files beside it are copied, and all its files are synced
    nothing is missing                      None

The copied part of a segment is valid as long as the log has that same segment: its file only grows. If another segment
gets its name (a truncation ends in a new segment of the same base offset, a compaction replaces segments by one) it is
copied from its beginning again; bytes that are there already are compared, and written if they differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class SegmentNow(NamedTuple):
    """A segment of the log."""

    base_offset: int
    #: Identifies the segment among all that have had this base offset.
    identity: object
    #: Bytes that readers may see.
    size_bytes: int
    is_sealed: bool
    #: The offset after the last record.
    end_offset: int


class CopiedSegment(NamedTuple):
    """The part of a segment that the copy has."""

    #: The identity of the copied segment; None for files that were found at a start, whose segment is not known.
    identity: object
    copied_bytes: int
    #: True if all of it is there, with the files beside it, and synced.
    is_sealed: bool = False


class Remove(NamedTuple):
    base_offsets: tuple[int, ...]


class CopyPiece(NamedTuple):
    base_offset: int
    position: int
    size_bytes: int


class Seal(NamedTuple):
    base_offset: int


Step = Remove | CopyPiece | Seal


def next_step(segments: Sequence[SegmentNow], copied: Mapping[int, CopiedSegment], piece_bytes: int) -> Step | None:
    """Returns the next step; no piece is larger than `piece_bytes`. None if the copy has everything."""
    present = {segment.base_offset for segment in segments}
    gone = tuple(sorted(base_offset for base_offset in copied if base_offset not in present))
    if gone:
        return Remove(gone)
    for segment in segments:
        have = copied_of(segment, copied)
        missing_bytes = segment.size_bytes - have.copied_bytes
        if missing_bytes > 0:
            return CopyPiece(segment.base_offset, have.copied_bytes, min(missing_bytes, piece_bytes))
        if segment.is_sealed and not have.is_sealed:
            return Seal(segment.base_offset)
    return None


def copied_of(segment: SegmentNow, copied: Mapping[int, CopiedSegment]) -> CopiedSegment:
    """Returns the copied part of this segment; 0 bytes if the copy is of another one with this base offset."""
    have = copied.get(segment.base_offset)
    if have is None or have.identity is not segment.identity:
        return CopiedSegment(segment.identity, 0)
    return have


def only_end_is_missing(segments: Sequence[SegmentNow], copied: Mapping[int, CopiedSegment], limit_bytes: int) -> bool:
    """True if the copy has everything except at most `limit_bytes` bytes of the last segment."""
    *sealed, active = segments
    if active.size_bytes - copied_of(active, copied).copied_bytes > limit_bytes or set(copied) - {
        segment.base_offset for segment in segments
    }:
        return False
    return next_step(sealed, {segment.base_offset: copied_of(segment, copied) for segment in sealed}, 1) is None


def copied_end_offset(segments: Sequence[SegmentNow], copied: Mapping[int, CopiedSegment]) -> int:
    """Returns the approximate offset up to which the copy has the log's records: within a segment all offsets count as
    equally large."""
    for segment in segments:
        have = copied_of(segment, copied)
        if have.copied_bytes < segment.size_bytes:
            return (
                segment.base_offset
                + (segment.end_offset - segment.base_offset) * have.copied_bytes // segment.size_bytes
            )
    return segments[-1].end_offset
