"""Repeats reads that would wait for the disk: another thread brings the data that such a read needs into memory, and
then the read is tried again.

    owner's thread     read -> ColdError -> warm_up ------------> done -> read, which finds its index loaded and its
                       pages in memory
    another thread                              run

The other thread never touches the log's own segments: it reads copies of them (`LogSegment.copy`), and the owner takes
over the results. Batches that were in the file at the start are checked at the same time (checked_batches). The pages
of a look-up stay in the page cache. If they have been dropped meanwhile, the next read is cold again, and after a few
rounds the caller waits for the disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import CorruptMessageError
from jesenska.log.segments.checked_batches import Entry
from jesenska.log.segments.segment import LogSegment


class WarmUp:
    """Brings the data needed to find an offset into memory: call `run` in any thread, then `done` on the owner's
    thread."""

    __slots__ = ("_bounds", "_copies", "_entries", "_offset", "_segments")

    def __init__(self, segments: Sequence[LogSegment], bounds: Sequence[int], offset: int) -> None:
        """`bounds` has for each segment the offset before which it ends."""
        self._segments = segments
        self._bounds = bounds
        self._offset = offset
        self._copies = [segment.copy() for segment in segments]
        #: New index entries of each segment whose index may be wrong, else None.
        self._entries: list[list[Entry] | None] = [None] * len(segments)

    def run(self) -> None:
        """Reads the data. An error is ignored: the next read raises it."""
        try:
            for number, copy in enumerate(self._copies):
                copy.keep_entries()
                self._entries[number] = copy.check_about(self._offset, self._bounds[number])
                if copy.find(self._offset) is not None:
                    break
        except (OSError, CorruptMessageError):
            pass
        finally:
            for copy in self._copies:
                copy.close()

    def done(self) -> None:
        for segment, copy, entries in zip(self._segments, self._copies, self._entries, strict=True):
            try:
                segment.learn(copy)
                segment.learn_checked(copy, entries)
            except OSError:
                continue  # the segment was deleted meanwhile
