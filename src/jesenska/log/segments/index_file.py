"""What the offset index and the time index have in common: a file of entries of one size, its entries in memory once
they are needed, and a tail that is written in bunches so that an entry costs no system call.

States: not loaded (a segment nobody asked about: no memory, no descriptor) -> loaded -> not loaded again when the
cache of indexes says so. Only a sealed index, whose entries are all on disk, may be unloaded.

Entries go to disk with the log's flushes, with a roll, every few seconds (`LogDirectories.tick`) and at an orderly
stop. Whoever owns the log takes an `IndexWrite`, which some other thread carries out, and notes it as done afterwards;
what is in the file is at any moment a beginning of the entries.

A truncation gives the segment a new index, made from a copy, that shares the file: `truncate_to` takes entries from
the copy alone, its next write cuts the file, and `disown` makes writes that the old index still has under way do
nothing.
"""

from __future__ import annotations

import os
import sys
from array import array
from pathlib import Path
from threading import Lock
from typing import Any

from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.shared_files import is_shared, own_copy

#: Entries that are looked at in one compiled pass.
_PIECE = 16_384


class CorruptIndexError(Exception):
    """The file cannot be what this broker wrote; it can be built anew from the segment."""


def goes_up(column: array[int]) -> bool:
    """True if no number is smaller than the one before it; sorting what is sorted is one compiled pass. In pieces,
    since each holds the interpreter's lock from beginning to end, and the loop waits for that."""
    for start in range(0, len(column), _PIECE):
        values = column[start : start + _PIECE + 1].tolist()
        if values != sorted(values):
            return False
    return True


def big_endian(column: array[int]) -> array[int]:
    """The same numbers (a new array, or the same where the machine is big-endian) in the byte order of the file, or
    back from it."""
    if sys.byteorder == "big":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped


class IndexWrite:
    """Entries of one index on their way to its file: `run` in any thread, then `done` on the owner's."""

    __slots__ = ("_count", "_data", "_generation", "_index", "_position", "_size_bytes")

    def __init__(
        self, index: IndexFile, count: int, position: int, data: bytes, size_bytes: int | None, generation: int
    ) -> None:
        self._index = index
        self._count = count
        self._position = position
        self._data = data
        #: What the file is to be cut to; None leaves its size alone.
        self._size_bytes = size_bytes
        self._generation = generation

    def run(self, *, create: bool = False) -> None:
        """Writes; OSError if the disk does not take it. A file that is gone (its segment was deleted) is no error."""
        with self._index.lock:
            if self._generation == self._index.generation:
                try:
                    self._index.put(self._data, self._position, self._size_bytes, create)
                except FileNotFoundError:
                    if create:
                        raise

    def done(self) -> None:
        if self._generation == self._index.generation:
            self._index.wrote(self._count, self._size_bytes is not None)


class IndexFile:
    """Subclasses keep the entries and say how they look on disk."""

    __slots__ = ("_files", "_loaded", "_longer", "_written", "base_offset", "generation", "lock", "max_entries", "path")

    entry_bytes = 0
    suffix = ""

    def __init__(self, path: Path, base_offset: int, max_bytes: int, files: FileLayer) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max(1, max_bytes // self.entry_bytes)
        self._files = files
        self._loaded = False
        #: The file has room behind its entries (Kafka gives an active segment's files their full size).
        self._longer = False
        #: Entries that are on disk.
        self._written = 0
        #: Held while the file is written; counted up when entries are taken back.
        self.lock = Lock()
        self.generation = 0
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
            raise CorruptIndexError(
                f"The size of {self.path}, {len(data)} bytes, is no multiple of {self.entry_bytes}."
            )
        self._decode(data)
        self._written = self._count()
        self._longer = len(data) > self._written * self.entry_bytes
        self._loaded = True

    def begin(self) -> None:
        """The index of a new segment, whose file somebody else makes: loaded, without entries."""
        self._loaded = True

    def take(self, other: IndexFile) -> None:
        """Becomes what the other one is, which describes the same file; entries are shared, since neither ever changes
        those of a sealed segment."""
        self._share(other)
        self._written, self._longer = other._written, other._longer
        # Last, and the reverse of `unload`: if the other one is unloaded meanwhile, by its owner, this one is, too.
        self._loaded = other._loaded
        if not self._loaded:
            self._clear()

    def unload(self) -> None:
        """Frees the memory of an index whose entries are on disk."""
        if self._loaded and self._written == self._count():
            self._loaded = False
            self._clear()

    def forget(self) -> None:
        """Not loaded: the file has all entries."""
        self._loaded = False
        self._clear()

    def is_nowhere(self) -> None:
        """The file has none of the entries that are in memory yet."""
        self._written = 0
        self._longer = True

    def content(self) -> bytes | None:
        """What a file with all entries holds; None where nothing is in memory, and the file has them."""
        return self._encode(0) if self._loaded else None

    def reset(self) -> None:
        """Empty, on disk too, ready to be built anew."""
        with self.lock:
            self.generation += 1
        self._clear()
        self._loaded = True
        self._written = 0
        self._resize(0)
        self._longer = False

    def replace(self) -> None:
        """Empty, in memory, ready to be built anew; the next write that trims brings the file to what is there then,
        from its beginning on."""
        with self.lock:
            self.generation += 1
        self._clear()
        self._loaded = True
        self._written = 0
        self._longer = True

    @property
    def has_unwritten(self) -> bool:
        """True if there are entries in memory only."""
        return self._loaded and self._written < self._count()

    def unwritten(self, *, trim: bool = False) -> IndexWrite | None:
        """What has to be written for all entries to be on disk, and with `trim` for the file to be cut to them; None
        if nothing."""
        if not self._loaded:
            return None
        count, written = self._count(), self._written
        cuts = trim and self._longer
        if written == count and not cuts:
            return None
        data = self._encode(written) if written < count else b""
        return IndexWrite(
            self, count, written * self.entry_bytes, data, count * self.entry_bytes if cuts else None, self.generation
        )

    def wrote(self, count: int, trimmed: bool) -> None:
        """An `IndexWrite` was carried out."""
        self._written = max(self._written, min(count, self._count()))
        if trimmed:
            self._longer = False

    def put(self, data: bytes, position: int, size_bytes: int | None, create: bool) -> None:
        """Writes bytes and cuts the file, as an `IndexWrite` has them."""
        descriptor = self._open(os.O_CREAT if create else 0)
        try:
            if data:
                self._files.write_all(descriptor, data, position)
            if size_bytes is not None:
                self._files.truncate(descriptor, size_bytes)
        finally:
            self._files.close(descriptor)

    def write(self, *, trim: bool = False) -> None:
        """Puts the entries that are only in memory on disk, at once."""
        wanted = self.unwritten(trim=trim)
        if wanted is not None:
            wanted.run(create=True)
            wanted.done()

    def trim(self) -> None:
        """Entries on disk, the file cut to them: an orderly stop. A loaded index without a file gets one."""
        self.write(trim=True)
        if self._loaded and not self.path.exists():
            self._resize(0)

    def disown(self) -> None:
        """The file is another index's: writes of this one that are under way end first, later ones do nothing. Any
        thread."""
        with self.lock:
            self.generation += 1

    def _cut(self, count: int) -> None:
        """Drops all entries but the first `count`, in memory."""
        if count < self._count():
            self._drop(count)
            self._written = min(self._written, count)
            self._longer = True

    def _open(self, flags: int) -> int:
        """The file, to be changed: one that a branch has, too, is copied first."""
        if is_shared(self._files, self.path):
            return own_copy(self._files, self.path)
        return self._files.open(self.path, os.O_RDWR | flags)

    def _resize(self, size_bytes: int) -> None:
        descriptor = self._open(os.O_CREAT)
        try:
            self._files.truncate(descriptor, size_bytes)
        finally:
            self._files.close(descriptor)

    def _clear(self) -> None:
        raise NotImplementedError

    def _share(self, other: Any) -> None:
        raise NotImplementedError

    def keep(self, count: int) -> None:
        """Its own entries, the first `count`: for a copy of an active segment's index, which only adds to them."""
        raise NotImplementedError

    def _count(self) -> int:
        raise NotImplementedError

    def _encode(self, start: int) -> bytes:
        raise NotImplementedError

    def _decode(self, data: bytes) -> None:
        raise NotImplementedError

    def _drop(self, count: int) -> None:
        raise NotImplementedError
