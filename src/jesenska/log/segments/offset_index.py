"""`<base offset>.index`: where in the segment a batch stands, for a sparse set of batches.

    8 bytes per entry, big-endian:
        4  relative_offset   last offset of a batch, less the segment's base offset
        4  position          where that batch begins in the .log file

Both columns go up. One entry is added once more than `index.interval.bytes` were appended since the last, so an
entry's batch is found at most about that many bytes after the position that a look-up gives. Since the key is the
*last* offset of the batch, the batch that holds offset X begins at or after the position of the largest entry <= X.

The entries live in two arrays in memory and are written in bunches (index_file). Kafka gives the file of an active
segment its full size (`segment.index.bytes`), zeros behind the entries; here it ends with its entries, so that whoever
looks at a running broker's files finds no zeros.

After a crash the file may lack entries, or end in zeros that the file system or Kafka left: it belongs then to a
segment past the recovery point, and recovery builds it anew. One that does not make sense when it is first needed is
built anew, too.

`index_file.IndexFile` is what this and the time index share: the file, its tail in memory, the cutting.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from jesenska.log.segments.index_file import CorruptIndexError, IndexFile, big_endian, goes_up

ENTRY_BYTES = 8


class OffsetIndex(IndexFile):
    """Entries in memory as two arrays; the look-up is one bisection in compiled code."""

    __slots__ = ("_offsets", "_positions")

    entry_bytes = ENTRY_BYTES
    suffix = ".index"

    _offsets: array[int]
    _positions: array[int]

    def append(self, offset: int, position: int) -> None:
        """One more entry; offsets must go up. A full index drops it: the segment rolls at the next append."""
        if not self.is_loaded:
            self.load()
        relative = offset - self.base_offset
        if len(self._offsets) >= self.max_entries or (self._offsets and relative <= self._offsets[-1]):
            return
        self._offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """A position in the segment at or before the batch that holds `offset`."""
        if not self.is_loaded:
            self.load()
        index = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[index - 1] if index else 0

    def around(self, position: int) -> tuple[int, int | None]:
        """The offset of the last entry before a position (the segment's base offset less one if there is none), and of
        the entry at it, if there is one."""
        index = bisect_left(self._positions, position)
        before = self.base_offset + (self._offsets[index - 1] if index else -1)
        is_there = index < len(self._positions) and self._positions[index] == position
        return before, self.base_offset + self._offsets[index] if is_there else None

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """The entries (offset, position) from one position to another."""
        first, last = bisect_left(self._positions, start), bisect_left(self._positions, end)
        return [(self.base_offset + self._offsets[index], self._positions[index]) for index in range(first, last)]

    def position_bound(self, position: int) -> int | None:
        """The position of the first entry at or after a position; None past the last."""
        if not self.is_loaded:
            self.load()
        index = bisect_left(self._positions, position)
        return self._positions[index] if index < len(self._positions) else None

    def offset_bound(self, position: int) -> int | None:
        """The offset of the first entry at or after a position; None past the last."""
        if not self.is_loaded:
            self.load()
        index = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[index] if index < len(self._positions) else None

    def last(self) -> tuple[int, int] | None:
        """The newest entry (offset, position)."""
        if not self.is_loaded:
            self.load()
        return (self.base_offset + self._offsets[-1], self._positions[-1]) if self._offsets else None

    def entries(self) -> list[tuple[int, int]]:
        if not self.is_loaded:
            self.load()
        return [
            (self.base_offset + relative, position)
            for relative, position in zip(self._offsets, self._positions, strict=True)
        ]

    def truncate_to(self, offset: int) -> None:
        """Drops entries of `offset` and later ones, in memory; the next write that trims cuts the file."""
        if not self.is_loaded:
            self.load()
        self._cut(bisect_left(self._offsets, offset - self.base_offset))

    def _clear(self) -> None:
        self._offsets = array("I")
        self._positions = array("I")

    def _share(self, other: OffsetIndex) -> None:
        self._offsets, self._positions = other._offsets, other._positions

    def keep(self, count: int) -> None:
        self._offsets, self._positions = self._offsets[:count], self._positions[:count]

    def _count(self) -> int:
        return len(self._offsets)

    def _encode(self, start: int) -> bytes:
        columns = array("I", bytes(8 * (len(self._offsets) - start)))
        columns[0::2] = self._offsets[start:]
        columns[1::2] = self._positions[start:]
        return big_endian(columns).tobytes()

    def _decode(self, data: bytes) -> None:
        columns = array("I")
        columns.frombytes(data)
        columns = big_endian(columns)
        self._offsets, self._positions = columns[0::2], columns[1::2]
        # Zeros at the end are room that no entry was written to; an entry at position 0 can only be the first.
        count = len(self._positions)
        while count and self._positions[count - 1] == 0 and (count > 1 or self._offsets[0] == 0):
            count -= 1
        del self._offsets[count:], self._positions[count:]
        if not (goes_up(self._offsets) and goes_up(self._positions)):
            self._clear()
            raise CorruptIndexError(f"The entries of {self.path} do not go up.")

    def _drop(self, count: int) -> None:
        # New arrays: another thread may be looking into these.
        self._offsets, self._positions = self._offsets[:count], self._positions[:count]
