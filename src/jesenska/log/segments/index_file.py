"""The common base of the offset index and the time index: a file of entries of one size. The entries are loaded into
memory when they are needed, and new ones are written in groups, so that an entry costs no system call.

States: not loaded (the segment has not been read: no memory, no descriptor) -> loaded -> not loaded again, when the
cache of indexes unloads it. Only a sealed index with all entries on disk may be unloaded.

Entries go to disk with the log's flushes, with a roll, every few seconds (`LogDirectories.tick`) and at an orderly
stop. The owner of the log takes an `IndexWrite`, another thread carries it out, and the owner then marks it as done.
At any moment the file holds a prefix of the entries.

A truncation gives the segment a new index, made from a copy, that shares the file: `truncate_to` removes entries only
from the copy, the copy's next write cuts the file, and `disown` makes pending writes of the old index do nothing.
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

#: Number of entries that are looked at in one compiled pass.
_PIECE = 16_384


class CorruptIndexError(Exception):
    """The file is not one that this broker has written; the index can be rebuilt from the segment."""


def goes_up(column: array[int]) -> bool:
    """True if no number is smaller than the number before it. The check sorts the column, which for a sorted column is
    one compiled pass. It is done in pieces, since each pass holds the interpreter's lock, and the event loop waits for
    the lock."""
    for start in range(0, len(column), _PIECE):
        values = column[start : start + _PIECE + 1].tolist()
        if values != sorted(values):
            return False
    return True


def big_endian(column: array[int]) -> array[int]:
    """Returns the same numbers (a new array, or the same one on a big-endian machine) converted to or from the byte
    order of the file."""
    if sys.byteorder == "big":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped


class IndexWrite:
    """Entries of one index to be written to its file: call `run` in any thread, then `done` on the owner's thread."""

    __slots__ = ("_count", "_data", "_generation", "_index", "_position", "_size_bytes")

    def __init__(
        self, index: IndexFile, count: int, position: int, data: bytes, size_bytes: int | None, generation: int
    ) -> None:
        self._index = index
        self._count = count
        self._position = position
        self._data = data
        #: New size of the file in bytes; None leaves its size unchanged.
        self._size_bytes = size_bytes
        self._generation = generation

    def run(self, *, create: bool = False) -> None:
        """Writes the entries; OSError if the write fails. A missing file (its segment was deleted) is no error."""
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
    """Subclasses keep the entries and define their format on disk."""

    __slots__ = ("_files", "_loaded", "_longer", "_written", "base_offset", "generation", "lock", "max_entries", "path")

    entry_bytes = 0
    suffix = ""

    def __init__(self, path: Path, base_offset: int, max_bytes: int, files: FileLayer) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max(1, max_bytes // self.entry_bytes)
        self._files = files
        self._loaded = False
        #: True if the file is longer than its entries (Kafka gives an active segment's files their full size).
        self._longer = False
        #: Number of entries that are on disk.
        self._written = 0
        #: Held while the file is written and while `generation` is incremented, which makes pending writes void.
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
        """Reads the entries; a missing file has no entries. CorruptIndexError if the entries are not valid."""
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
        """Begins the index of a new segment: loaded, without entries. The caller makes the file."""
        self._loaded = True

    def take(self, other: IndexFile) -> None:
        """Makes this index a copy of another index of the same file. The two share their entries, since neither
        changes those of a sealed segment."""
        self._share(other)
        self._written, self._longer = other._written, other._longer
        # Last, the reverse of the order in `unload`: if the owner unloads the other index meanwhile, this one is
        # unloaded, too.
        self._loaded = other._loaded
        if not self._loaded:
            self._clear()

    def unload(self) -> None:
        """Frees the memory of an index whose entries are on disk."""
        if self._loaded and self._written == self._count():
            self._loaded = False
            self._clear()

    def forget(self) -> None:
        """Marks the index as not loaded: the file has all entries."""
        self._loaded = False
        self._clear()

    def is_nowhere(self) -> None:
        """Marks all entries in memory as not yet written to the file."""
        self._written = 0
        self._longer = True

    def content(self) -> bytes | None:
        """Returns the content of a file with all entries; None if the index is not loaded, since the file has them."""
        return self._encode(0) if self._loaded else None

    def reset(self) -> None:
        """Empties the index, in memory and on disk, ready to be rebuilt."""
        with self.lock:
            self.generation += 1
        self._clear()
        self._loaded = True
        self._written = 0
        self._resize(0)
        self._longer = False

    def replace(self) -> None:
        """Empties the index in memory, ready to be rebuilt; the next write that trims writes all entries from the
        start of the file and cuts it to them."""
        with self.lock:
            self.generation += 1
        self._clear()
        self._loaded = True
        self._written = 0
        self._longer = True

    @property
    def has_unwritten(self) -> bool:
        """True if some entries are only in memory."""
        return self._loaded and self._written < self._count()

    def unwritten(self, *, trim: bool = False) -> IndexWrite | None:
        """Returns the write that brings all entries to disk, and with `trim` cuts the file to them; None if there is
        nothing to write."""
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
        """Records that an `IndexWrite` was carried out."""
        self._written = max(self._written, min(count, self._count()))
        if trimmed:
            self._longer = False

    def put(self, data: bytes, position: int, size_bytes: int | None, create: bool) -> None:
        """Writes the bytes of an `IndexWrite` and cuts the file."""
        descriptor = self._open(os.O_CREAT if create else 0)
        try:
            if data:
                self._files.write_all(descriptor, data, position)
            if size_bytes is not None:
                self._files.truncate(descriptor, size_bytes)
        finally:
            self._files.close(descriptor)

    def write(self, *, trim: bool = False) -> None:
        """Writes the entries that are only in memory, at once."""
        wanted = self.unwritten(trim=trim)
        if wanted is not None:
            wanted.run(create=True)
            wanted.done()

    def trim(self) -> None:
        """Writes all entries and cuts the file to them, for an orderly stop. A loaded index without a file gets
        one."""
        self.write(trim=True)
        if self._loaded and not self.path.exists():
            self._resize(0)

    def disown(self) -> None:
        """Gives the file to another index: pending writes of this index end first, later ones do nothing. Any
        thread."""
        with self.lock:
            self.generation += 1

    def _cut(self, count: int) -> None:
        """Drops all entries except the first `count`, in memory."""
        if count < self._count():
            self._drop(count)
            self._written = min(self._written, count)
            self._longer = True

    def _open(self, flags: int) -> int:
        """Opens the file for changes; a file that is shared with a branch is copied first."""
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
        """Keeps the first `count` entries in arrays of its own: for a copy of an active segment's index, which only
        adds entries."""
        raise NotImplementedError

    def _count(self) -> int:
        raise NotImplementedError

    def _encode(self, start: int) -> bytes:
        raise NotImplementedError

    def _decode(self, data: bytes) -> None:
        raise NotImplementedError

    def _drop(self, count: int) -> None:
        raise NotImplementedError
