"""Reads that would wait for the disk: what they need is brought into memory by another thread, and then they are tried
again.

    owner's thread     read -> ColdError -> warm_up ------------> done -> read, which finds its index loaded and its
                       pages in memory
    another thread                              run

Another thread never touches the log's own segments: it reads through copies of them (`LogSegment.copy`), and the owner
takes over what they have learned. What was in the file at the start is checked on the way (checked_batches). The pages
that a look-up reads stay in the page cache; if they have been dropped again the next read is cold again, and whoever
asks waits for the disk after a few rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import CorruptMessageError
from jesenska.log.segments.checked_batches import Entry
from jesenska.log.segments.segment import LogSegment


class WarmUp:
    """Brings what it takes to find an offset into memory: `run` in any thread, then `done` on the owner's."""

    __slots__ = ("_bounds", "_copies", "_entries", "_offset", "_segments")

    def __init__(self, segments: Sequence[LogSegment], bounds: Sequence[int], offset: int) -> None:
        """`bounds`: the offset that each of the segments ends before."""
        self._segments = segments
        self._bounds = bounds
        self._offset = offset
        self._copies = [segment.copy() for segment in segments]
        #: By copy: index entries where the index may be wrong.
        self._entries: list[list[Entry] | None] = [None] * len(segments)

    def run(self) -> None:
        """Reads; what cannot be read is left to the next read to complain of."""
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
