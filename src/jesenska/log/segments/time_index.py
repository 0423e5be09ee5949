"""The time index of a segment, `<base offset>.timeindex`. For some batches it has the offset at which a timestamp was
reached: records with larger timestamps come after that offset.

    12 bytes per entry, big-endian:
        8  timestamp         largest timestamp of the segment so far, in ms
        4  relative_offset   last offset of the batch with this timestamp, less the segment's base offset

Timestamps increase strictly; an entry that would not increase them is left out (late records make no entry). Therefore
every record with a timestamp larger than an entry's comes after that entry's offset. Entries are added together with
the entries of the offset index. A further entry is added when the segment is sealed, so that the last entry of a
sealed segment has its largest timestamp.

Entries are written in groups, and a crash has the same effects as on an offset index (module `offset_index`)."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

from jesenska.log.segments.index_file import CorruptIndexError, IndexFile, big_endian, goes_up

ENTRY_BYTES = 12
_ENTRY = Struct(">qi")


class TimeIndex(IndexFile):
    """The time index of a segment. The entries are in two arrays in memory."""

    __slots__ = ("_offsets", "_timestamps")

    entry_bytes = ENTRY_BYTES
    suffix = ".timeindex"

    _timestamps: array[int]
    _offsets: array[int]

    @property
    def is_full(self) -> bool:
        # The index counts as full one entry early, because sealing the segment adds an entry.
        return self._loaded and len(self._timestamps) >= self.max_entries - 1

    def append(self, timestamp: int, offset: int, *, sealing: bool = False) -> None:
        """Adds an entry if its timestamp is larger than the timestamp of the last entry."""
        if not self.is_loaded:
            self.load()
        if timestamp < 0 or (self._timestamps and timestamp <= self._timestamps[-1]):
            return
        if len(self._timestamps) >= self.max_entries - (0 if sealing else 1) or (
            self._offsets and offset - self.base_offset < self._offsets[-1]
        ):
            return
        self._timestamps.append(timestamp)
        self._offsets.append(offset - self.base_offset)

    def lookup(self, timestamp: int) -> int:
        """Returns the offset of a batch. This batch or a later batch contains the first record with a timestamp of at
        least `timestamp`. An entry names the first batch that reached its timestamp, so all earlier batches have
        smaller timestamps."""
        if not self.is_loaded:
            self.load()
        index = bisect_right(self._timestamps, timestamp)
        return self.base_offset + self._offsets[index - 1] if index else self.base_offset

    def peek_last(self) -> tuple[int, int] | None:
        """Reads only the last entry (timestamp, offset) from the file of a sealed segment. Returns None if there is no
        valid entry."""
        if self.is_loaded:
            return self.last()
        descriptor = self._files.open(self.path, os.O_RDONLY)
        try:
            size_bytes = self._files.size(descriptor)
            if size_bytes < ENTRY_BYTES or size_bytes % ENTRY_BYTES:
                return None
            timestamp, relative = _ENTRY.unpack(self._files.pread(descriptor, ENTRY_BYTES, size_bytes - ENTRY_BYTES))
        finally:
            self._files.close(descriptor)
        return (timestamp, self.base_offset + relative) if timestamp > 0 and relative >= 0 else None

    def last(self) -> tuple[int, int] | None:
        """Returns the last entry (timestamp, offset); None if there are no entries."""
        if not self.is_loaded:
            self.load()
        return (self._timestamps[-1], self.base_offset + self._offsets[-1]) if self._timestamps else None

    def entries(self) -> list[tuple[int, int]]:
        if not self.is_loaded:
            self.load()
        return [
            (timestamp, self.base_offset + relative)
            for timestamp, relative in zip(self._timestamps, self._offsets, strict=True)
        ]

    def truncate_to(self, offset: int) -> None:
        """Removes the entries from `offset` on, in memory. The next write with `trim` cuts the file."""
        if not self.is_loaded:
            self.load()
        self._cut(bisect_left(self._offsets, offset - self.base_offset))

    def _clear(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("I")

    def _share(self, other: TimeIndex) -> None:
        self._timestamps, self._offsets = other._timestamps, other._offsets

    def keep(self, count: int) -> None:
        self._timestamps, self._offsets = self._timestamps[:count], self._offsets[:count]

    def _count(self) -> int:
        return len(self._timestamps)

    def _encode(self, start: int) -> bytes:
        columns = array("I", bytes(12 * (len(self._timestamps) - start)))
        halves = array("I")
        halves.frombytes(big_endian(self._timestamps[start:]).tobytes())
        columns[0::3], columns[1::3], columns[2::3] = halves[0::2], halves[1::2], big_endian(self._offsets[start:])
        return columns.tobytes()

    def _decode(self, data: bytes) -> None:
        columns = array("I")
        columns.frombytes(data)
        count = len(columns) // 3
        halves = array("I", bytes(8 * count))
        halves[0::2], halves[1::2] = columns[0::3], columns[1::3]
        self._timestamps = array("q")
        self._timestamps.frombytes(halves.tobytes())
        self._timestamps = big_endian(self._timestamps)
        self._offsets = big_endian(columns[2::3])
        while count and self._timestamps[count - 1] == 0 and self._offsets[count - 1] == 0:
            count -= 1
        del self._timestamps[count:], self._offsets[count:]
        if not (goes_up(self._timestamps) and goes_up(self._offsets)):
            self._clear()
            raise CorruptIndexError(f"The entries of {self.path} do not go up.")

    def _drop(self, count: int) -> None:
        # New arrays are made, because another thread may be reading the old arrays.
        self._timestamps, self._offsets = self._timestamps[:count], self._offsets[:count]
