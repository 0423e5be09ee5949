"""What the offset index and the time index have in common: a file of entries of one size, its entries in memory once they are needed, and a tail that
is written in bunches so that an entry costs no system call.

States: not loaded (a segment nobody asked about: no memory, no descriptor) -> loaded -> not loaded again when the cache of indexes says so. Only a
sealed index, whose entries are all on disk, may be unloaded.
"""

from __future__ import annotations

import os
import sys
from array import array
from pathlib import Path

from jesenska.log.files import FileLayer

#: Entries that wait in memory before they are written without being asked for.
UNWRITTEN_ENTRIES_MAX = 512


class CorruptIndexError(Exception):
    """The file cannot be what this broker wrote; it can be built anew from the segment."""


def goes_up(column: array[int]) -> bool:
    """True if no number is smaller than the one before it; sorting what is sorted is one compiled pass."""
    values = column.tolist()
    return values == sorted(values)


def big_endian(column: array[int]) -> array[int]:
    """The same numbers (a new array, or the same where the machine is big-endian) in the byte order of the file, or back from it."""
    if sys.byteorder == "big":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped


class IndexFile:
    """Subclasses keep the entries and say how they look on disk."""

    __slots__ = ("_files", "_loaded", "_preallocated", "_written", "base_offset", "max_entries", "path")

    entry_bytes = 0
    suffix = ""

    def __init__(self, path: Path, base_offset: int, max_bytes: int, files: FileLayer) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max(1, max_bytes // self.entry_bytes)
        self._files = files
        self._loaded = False
        self._preallocated = False
        #: Entries that are on disk.
        self._written = 0
        self._clear()

    @property
    def is_loaded(self) -> bool:
        return self._loaded

    @property
    def is_full(self) -> bool:
        return self._loaded and self._count() >= self.max_entries

    def __len__(self) -> int:
        if not self._loaded:
            self.load()
        return self._count()

    def exists(self) -> bool:
        return self.path.exists()

    def load(self) -> None:
        """Reads the entries; a file that is not there has none. CorruptIndexError if they do not make sense."""
        try:
            data = self._files.read_file(self.path)
        except FileNotFoundError:
            data = b""
        if len(data) % self.entry_bytes:
            raise CorruptIndexError(f"The size of {self.path}, {len(data)} bytes, is no multiple of {self.entry_bytes}.")
        self._decode(data)
        self._written = self._count()
        self._preallocated = len(data) > self._written * self.entry_bytes
        self._loaded = True

    def unload(self) -> None:
        """Frees the memory of an index whose entries are on disk."""
        if self._loaded and self._written == self._count():
            self._clear()
            self._loaded = False

    def reset(self) -> None:
        """Empty, on disk too, ready to be built anew."""
        self._clear()
        self._loaded = True
        self._written = 0
        self._resize(0)
        self._preallocated = False

    def preallocate(self) -> None:
        """Gives the file of an active segment its full size; the room is sparse."""
        if not self._loaded:
            self.load()
        self._resize(self.max_entries * self.entry_bytes)
        self._preallocated = True

    def write(self, *, sync: bool = False) -> None:
        """Puts the entries that are only in memory on disk."""
        if not self._loaded or (self._written == self._count() and not sync):
            return
        descriptor = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if self._written < self._count():
                self._files.write_all(descriptor, self._encode(self._written), self._written * self.entry_bytes)
                self._written = self._count()
            if sync:
                self._files.fsync(descriptor)
        finally:
            self._files.close(descriptor)

    def write_bunch(self) -> None:
        """Writes if many entries wait: called at each new entry."""
        if self._count() - self._written >= UNWRITTEN_ENTRIES_MAX:
            self.write()

    def trim(self) -> None:
        """Entries on disk, the file cut to them: a roll or an orderly stop."""
        if not self._loaded:
            return
        self.write()
        if self._preallocated or not self.path.exists():
            self._resize(self._count() * self.entry_bytes)
            self._preallocated = False

    def _cut(self, count: int) -> None:
        """Drops all entries but the first `count`, on disk too."""
        if count >= self._count():
            return
        self._drop(count)
        if self._written > count:
            self._written = count
            self._resize(count * self.entry_bytes)
            if self._preallocated:
                self._resize(self.max_entries * self.entry_bytes)

    def _resize(self, size_bytes: int) -> None:
        descriptor = self._files.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            self._files.truncate(descriptor, size_bytes)
        finally:
            self._files.close(descriptor)

    def _clear(self) -> None:
        raise NotImplementedError

    def _count(self) -> int:
        raise NotImplementedError

    def _encode(self, start: int) -> bytes:
        raise NotImplementedError

    def _decode(self, data: bytes) -> None:
        raise NotImplementedError

    def _drop(self, count: int) -> None:
        raise NotImplementedError
