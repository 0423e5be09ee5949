"""What is to be done next for a copy of a log to become what the log is, while the log goes on changing. Plain
functions over values: no disk, no clock.

    the log has no such segment any more    `Remove`: retention, or a truncation, has taken it
    bytes of a segment are missing          `CopyPiece`, the oldest segment first
    a sealed segment has all its bytes      `Seal`: the files beside it are copied, and everything of it is synced
    nothing is missing                      None

What was copied of a segment counts as long as the log has that very segment: its file only grows. Where another one
has its name (a truncation ends in a new segment of the same base offset, a compaction puts one in the place of
others) it is copied from its beginning again; bytes that are there already are compared, and written where they
differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class SegmentNow(NamedTuple):
    """A segment of the log."""

    base_offset: int
    #: Which one it is of those that have had this base offset.
    identity: object
    #: Bytes that readers may see.
    size_bytes: int
    is_sealed: bool
    #: Offset behind its last record.
    end_offset: int


class CopiedSegment(NamedTuple):
    """What the copy has of a segment."""

    #: Of which one; None if it was found there, and nobody knows.
    identity: object
    copied_bytes: int
    #: All of it is there, with the files beside it, and synced.
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
    """The next step; no piece is larger than `piece_bytes`. None if the copy has everything."""
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
    """What the copy has of this very segment."""
    have = copied.get(segment.base_offset)
    if have is None or have.identity is not segment.identity:
        return CopiedSegment(segment.identity, 0)
    return have


def only_end_is_missing(segments: Sequence[SegmentNow], copied: Mapping[int, CopiedSegment], limit_bytes: int) -> bool:
    """True if the copy has everything but some bytes of the last segment, not more than `limit_bytes`."""
    *sealed, active = segments
    if active.size_bytes - copied_of(active, copied).copied_bytes > limit_bytes or set(copied) - {
        segment.base_offset for segment in segments
    }:
        return False
    return next_step(sealed, {segment.base_offset: copied_of(segment, copied) for segment in sealed}, 1) is None


def copied_end_offset(segments: Sequence[SegmentNow], copied: Mapping[int, CopiedSegment]) -> int:
    """Up to where the copy has the log's records, about: within a segment offsets are taken to be as large as
    others."""
    for segment in segments:
        have = copied_of(segment, copied)
        if have.copied_bytes < segment.size_bytes:
            return (
                segment.base_offset
                + (segment.end_offset - segment.base_offset) * have.copied_bytes // segment.size_bytes
            )
    return segments[-1].end_offset
