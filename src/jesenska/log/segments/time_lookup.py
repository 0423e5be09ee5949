"""Finds the offset for a timestamp in a list of segments. The time index gives an approximate position, the headers
after that position lead to a batch, and only that batch is decoded.

A look-up costs a read of the batch and of the pages that are not in the page cache. Clients ask a few times at their
start, not for each fetch. A look-up reads files, so it runs in another thread than the owner's and works on copies of
the segments. The owner of the log makes a `TimeLookup`, the other thread uses it, and `done` copies what was read into
the owner's segments. If a segment is removed from the log meanwhile, the result must not be used (`is_stale`). Making
a `TimeLookup` is cheap: the index entries of the active segment are copied in the other thread, and freed in
`close`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jesenska.log.disk.files import FileLayer
from jesenska.log.segments.segment import NO_TIMESTAMP, LogSegment
from jesenska.records.header import BatchHeader
from jesenska.records.times import first_at_or_after


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


class TimeLookup:
    """Looks up offsets by timestamp, in the segments that the log had when the `TimeLookup` was made."""

    def __init__(self, segments: Sequence[LogSegment], log_start_offset: int, files: FileLayer) -> None:
        self._segments = segments
        self._log_start_offset = log_start_offset
        self._files = files
        self._active = segments[-1].copy()
        self._copies: list[tuple[LogSegment, LogSegment]] = []

    def first_at_or_after(self, timestamp_ms: int) -> TimestampOffset | None:
        """Returns the first record whose timestamp is at least `timestamp_ms`; None if there is no such record."""
        for copy in self._each(timestamp_ms):
            try:
                found = _first_in(copy, self._log_start_offset, timestamp_ms)
            except FileNotFoundError:
                continue  # the segment has left the log
            if found is not None:
                return found
        return None

    def first_of_largest(self) -> TimestampOffset | None:
        """Returns the first record with the largest timestamp of the log; None if no record has a timestamp."""
        best: LogSegment | None = None
        for copy in self._each(NO_TIMESTAMP):
            if copy.largest_timestamp() > (-1 if best is None else best.max_timestamp):
                best = copy
        place = None if best is None else best.find(best.max_timestamp_offset)
        if best is None or place is None:
            return None
        header = best.header_at(place.position)
        return _first_of_batch(best, place.position, header, header.max_timestamp)

    def starts_before(self, timestamp_ms: int, limit: int, end_offset: int, now_ms: int) -> list[int]:
        """Returns the result of ListOffsets version 0: at most `limit` base offsets of segments whose files were last
        written at or before `timestamp_ms`, the newest first. If `timestamp_ms` is now or later, the log end offset
        comes first. For the time -1 (latest) the result has the log end offset and all base offsets, up to `limit`;
        for -2 (earliest) only the log start offset."""
        starts, times = [], []
        for segment in self._segments:
            try:
                times.append(self._files.modified_ms(segment.file.path))
            except FileNotFoundError:
                continue
            starts.append(max(segment.base_offset, self._log_start_offset))
        if self._active.size_bytes:
            starts.append(end_offset)
            times.append(now_ms)
        if timestamp_ms == -1:
            count = len(starts)
        elif timestamp_ms == -2:
            count = 1
        else:
            count = sum(1 for written_ms in times if written_ms <= timestamp_ms)
        return starts[:count][::-1][: max(limit, 0)]

    def _each(self, from_timestamp_ms: int) -> Iterator[LogSegment]:
        """Yields copies of the segments with records. Segments that are known to have only records before
        `from_timestamp_ms` are left out."""
        for segment in self._segments[:-1]:
            if segment.size_bytes == 0 or (segment.knows_its_time and segment.max_timestamp < from_timestamp_ms):
                continue
            copy = segment.copy()
            self._copies.append((segment, copy))
            try:
                copy.largest_timestamp()
            except FileNotFoundError:
                continue
            yield copy
            copy.file.close()
        if self._active.size_bytes:
            self._active.keep_entries()
            yield self._active

    @property
    def is_stale(self) -> bool:
        """True if a segment that was read has left the log meanwhile (by compaction or retention). Then the result or
        error must be ignored, and the look-up repeated. It is read on the owner's thread."""
        return self._segments[-1].is_gone or any(segment.is_gone for segment, _ in self._copies)

    def close(self) -> None:
        """Closes the files that the look-up has opened. It may be called in any thread."""
        for _, copy in self._copies:
            copy.close()
        self._active.close()
        self._active.forget_entries()

    def done(self) -> None:
        """Copies the timestamps and index entries that were read into the owner's segments."""
        for segment, copy in self._copies:
            try:
                segment.learn(copy)
            except OSError:
                continue  # deleted meanwhile


def _first_in(segment: LogSegment, log_start_offset: int, timestamp_ms: int) -> TimestampOffset | None:
    if segment.largest_timestamp() < timestamp_ms:
        return None
    segment.check_indexes()
    place = segment.find(max(segment.time_index.lookup(timestamp_ms), log_start_offset))
    if place is None:
        return None
    for position, header in segment.headers(place.position):
        if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
            continue
        found = _first_of_batch(segment, position, header, timestamp_ms, log_start_offset)
        if found is not None:
            return found
    return None


def _first_of_batch(
    segment: LogSegment, position: int, header: BatchHeader, timestamp_ms: int, from_offset: int = 0
) -> TimestampOffset | None:
    batch = segment.read_bytes(position, header.size_bytes)
    found = first_at_or_after(batch, header, timestamp_ms, from_offset)
    return None if found is None else TimestampOffset(found[1], found[0], header.partition_leader_epoch)
