"""The offset index of a segment, `<base offset>.index`: the positions of some of its batches.

    8 bytes per entry, big-endian:
        4  relative_offset   last offset of a batch, less the segment's base offset
        4  position          start of that batch in the .log file

Both columns increase. An entry is added after more than `index.interval.bytes` were appended since the last entry. So
a batch is found at most about `index.interval.bytes` after the position that a look-up returns. Since the key is the
*last* offset of the batch, the batch that contains offset X begins at or after the position of the largest entry <= X.

The entries are kept in two arrays in memory and are written in groups (index_file). Kafka gives the file of an active
segment its full size (`segment.index.bytes`), with zeros after the entries. Here the file ends with its entries, so
the files of a running broker have no zeros.

After a crash the file may lack entries, or end in zeros that the file system or Kafka wrote. Such a file belongs to a
segment above the recovery point, and recovery rebuilds it. A file that is not valid when it is first needed is also
rebuilt.

The base class `index_file.IndexFile` handles the file, the unwritten entries in memory, and the cutting."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from jesenska.log.segments.index_file import CorruptIndexError, IndexFile, big_endian, goes_up

ENTRY_BYTES = 8


class OffsetIndex(IndexFile):
    """The offset index of a segment. The entries are in two arrays, and a look-up is one bisection in compiled
    code."""

    __slots__ = ("_offsets", "_positions")

    entry_bytes = ENTRY_BYTES
    suffix = ".index"

    _offsets: array[int]
    _positions: array[int]

    def append(self, offset: int, position: int) -> None:
        """Adds an entry if its offset is above the offset of the last entry. A full index drops the entry; the segment
        is rolled at the next append."""
        if not self.is_loaded:
            self.load()
        relative = offset - self.base_offset
        if len(self._offsets) >= self.max_entries or (self._offsets and relative <= self._offsets[-1]):
            return
        self._offsets.append(relative)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """Returns the position at which the search for the batch that contains `offset` begins. The batch is there or
        later."""
        if not self.is_loaded:
            self.load()
        index = bisect_right(self._offsets, offset - self.base_offset)
        return self._positions[index - 1] if index else 0

    def around(self, position: int) -> tuple[int, int | None]:
        """Returns two offsets: the offset of the last entry before a position, and the offset of the entry at the
        position (None if there is no such entry). If there is no entry before the position, the first value is the
        segment's base offset less one."""
        index = bisect_left(self._positions, position)
        before = self.base_offset + (self._offsets[index - 1] if index else -1)
        is_there = index < len(self._positions) and self._positions[index] == position
        return before, self.base_offset + self._offsets[index] if is_there else None

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns the entries (offset, position) with `start` <= position < `end`."""
        first, last = bisect_left(self._positions, start), bisect_left(self._positions, end)
        return [(self.base_offset + self._offsets[index], self._positions[index]) for index in range(first, last)]

    def position_bound(self, position: int) -> int | None:
        """Returns the position of the first entry at or after a position; None after the last entry."""
        if not self.is_loaded:
            self.load()
        index = bisect_left(self._positions, position)
        return self._positions[index] if index < len(self._positions) else None

    def offset_bound(self, position: int) -> int | None:
        """Returns the offset of the first entry at or after a position; None after the last entry."""
        if not self.is_loaded:
            self.load()
        index = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[index] if index < len(self._positions) else None

    def last(self) -> tuple[int, int] | None:
        """Returns the last entry (offset, position); None if there are no entries."""
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
        """Removes the entries from `offset` on, in memory. The next write with `trim` cuts the file."""
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
        # Zeros at the end are unused space; only the first entry can have position 0.
        count = len(self._positions)
        while count and self._positions[count - 1] == 0 and (count > 1 or self._offsets[0] == 0):
            count -= 1
        del self._offsets[count:], self._positions[count:]
        if not (goes_up(self._offsets) and goes_up(self._positions)):
            self._clear()
            raise CorruptIndexError(f"The entries of {self.path} do not go up.")

    def _drop(self, count: int) -> None:
        # New arrays are made, because another thread may be reading the old arrays.
        self._offsets, self._positions = self._offsets[:count], self._positions[:count]
