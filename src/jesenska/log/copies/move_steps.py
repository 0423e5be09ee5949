"""Decides the next step by which the copy of a log becomes equal to the log, while the log is in use. These are plain
functions over values, without disk or clock.

    a copied segment is no longer in the log    `Remove`: retention, or a truncation, has removed it
    bytes of a segment are missing              `CopyPiece`, the oldest segment first
    a sealed segment has all its bytes          `Seal`: its indexes and snapshots are copied, and all its files are
                                                synced
    nothing is missing                          None

The copied part of a segment is valid as long as the log has that same segment, because its file only grows. Another
segment may get the same base offset, by a truncation or a compaction. Then the segment is copied again from its
beginning: bytes that the copy already has are compared, and written if they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class SegmentNow(NamedTuple):
    """The present state of a segment of the log."""

    base_offset: int
    #: An object that distinguishes this segment from others that have had the same base offset.
    identity: object
    #: Bytes of the segment that readers may see.
    size_bytes: int
    is_sealed: bool
    #: The offset after the segment's last record.
    end_offset: int


class CopiedSegment(NamedTuple):
    """The part of a segment that has been copied."""

    #: The identity of the copied segment; None for files that were found at a start, because their segment is unknown.
    identity: object
    copied_bytes: int
    #: True if the copy has all of the segment, its indexes and its snapshots, and is synced.
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
    """Returns the next step of the copy; None if the copy has everything. No piece is larger than `piece_bytes`."""
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
    """Returns the copied part of this segment. It has 0 bytes if the copy is of another segment with the same base
    offset."""
    have = copied.get(segment.base_offset)
    if have is None or have.identity is not segment.identity:
        return CopiedSegment(segment.identity, 0)
    return have


def only_end_is_missing(segments: Sequence[SegmentNow], copied: Mapping[int, CopiedSegment], limit_bytes: int) -> bool:
    """Returns true if the copy has everything except at most `limit_bytes` bytes of the last segment."""
    *sealed, active = segments
    if active.size_bytes - copied_of(active, copied).copied_bytes > limit_bytes or set(copied) - {
        segment.base_offset for segment in segments
    }:
        return False
    return next_step(sealed, {segment.base_offset: copied_of(segment, copied) for segment in sealed}, 1) is None


def copied_end_offset(segments: Sequence[SegmentNow], copied: Mapping[int, CopiedSegment]) -> int:
    """Returns the approximate offset up to which the copy has the log's records. Within a segment all records are
    assumed to be equally large."""
    for segment in segments:
        have = copied_of(segment, copied)
        if have.copied_bytes < segment.size_bytes:
            return (
                segment.base_offset
                + (segment.end_offset - segment.base_offset) * have.copied_bytes // segment.size_bytes
            )
    return segments[-1].end_offset
