"""Stores the positions of the last batches of a log, which consumers read most. So these batches are found without a
read of an index or a file. The positions are only in memory. After a start, a truncation or a roll there are no
positions, and the index is used."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jesenska.log.segments.segment import LogSegment

_KEPT_MIN, _KEPT_MAX = 64, 128


class PublishedBatch(NamedTuple):
    """The position, size, offsets and largest timestamp of a batch that is being appended."""

    #: The start of the batch in the bytes of its append, or in its segment.
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class LogTail:
    """The positions of the last published batches of a log. All these batches are in one segment."""

    __slots__ = ("_last_offsets", "_places", "first_offset", "segment")

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self._last_offsets: list[int] = []
        #: The position and base offset of each batch.
        self._places: list[tuple[int, int]] = []
        #: The base offset of the first stored batch. It is larger than any offset if no batch is stored.
        self.first_offset = 1 << 63

    def clear(self) -> None:
        self._last_offsets.clear()
        self._places.clear()
        self.first_offset = 1 << 63

    def note(self, segment: LogSegment, position: int, base_offset: int, last_offset: int) -> None:
        if segment is not self.segment:
            self.clear()
            self.segment = segment
        if not self._places:
            self.first_offset = base_offset
        self._last_offsets.append(last_offset)
        self._places.append((position, base_offset))
        if len(self._places) > _KEPT_MAX:
            del self._last_offsets[:-_KEPT_MIN], self._places[:-_KEPT_MIN]
            self.first_offset = self._places[0][1]

    def find(self, offset: int) -> tuple[int, int, int]:
        """Returns the position, base offset and end position of the batch that contains an offset. The offset must be
        at least `first_offset` and below the log end offset."""
        index = bisect_left(self._last_offsets, offset)
        position, base_offset = self._places[index]
        index += 1
        return position, base_offset, self._places[index][0] if index < len(self._places) else self.segment.size_bytes

    def position_of(self, offset: int) -> int:
        """Returns the position of the batch that contains an offset, or of the first batch after it. Returns the
        segment's end if there is no such batch."""
        index = bisect_left(self._last_offsets, offset)
        return self._places[index][0] if index < len(self._places) else self.segment.size_bytes
