"""Prepares reads that would wait for the disk (cold reads): another thread brings the data that such a read needs into
memory, and then the read is tried again.

    owner's thread     read -> ColdError -> warm_up ------------> done -> read, which finds its index loaded and its
                       pages in memory
    another thread                              run

The other thread never touches the log's own segments. It reads copies of them (`LogSegment.copy`), and the owner
stores the results in the segments. Batches that were in the file at the start of the broker are checked for damage at
the same time (module `segments.checked_batches`). The data that was read is then in the page cache. If the system has
removed it before the next read, that read is cold again, and after a few attempts the caller waits for the disk."""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import CorruptMessageError
from jesenska.log.segments.checked_batches import Entry
from jesenska.log.segments.segment import LogSegment


class WarmUp:
    """Loads the data needed to find an offset into memory. Call `run` in any thread, then `done` on the owner's
    thread."""

    __slots__ = ("_bounds", "_copies", "_entries", "_offset", "_segments")

    def __init__(self, segments: Sequence[LogSegment], bounds: Sequence[int], offset: int) -> None:
        """`bounds` has the end offset of each segment."""
        self._segments = segments
        self._bounds = bounds
        self._offset = offset
        self._copies = [segment.copy() for segment in segments]
        #: For each segment new index entries, if its index may be wrong; otherwise None.
        self._entries: list[list[Entry] | None] = [None] * len(segments)

    def run(self) -> None:
        """Reads the index and the batches that a read of the offset needs. An error is ignored, because the read that
        follows raises it again."""
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
