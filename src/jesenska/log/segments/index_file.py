"""The base class of the indexes: a file of entries of one size. The entries are loaded into memory when they are
needed. New entries are written in groups, so that an append costs no system call.

An index is not loaded until its segment is read; it then takes no memory and no descriptor. It is unloaded when the
segment's file leaves the cache of open files. Only a sealed segment's index with all entries on the disk may be
unloaded.

New entries are written by the log's flushes, by a roll, every few seconds (`LogDirectories.tick`) and at a clean
shutdown. The owner of the log takes an `IndexWrite`, another thread runs it, and the owner then marks it as done. At
any moment the file has a prefix of the entries.

A truncation gives the segment a new index, made from a copy, that uses the same file. `truncate_to` removes entries
only from the copy, the copy's next write cuts the file, and `disown` makes pending writes of the old index do
nothing."""

from __future__ import annotations

import os
import sys
from array import array
from pathlib import Path
from threading import Lock
from typing import Any

from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.shared_files import is_shared, own_copy

#: Number of entries that are checked in one pass of compiled code.
_PIECE = 16_384


class CorruptIndexError(Exception):
    """Raised if the content of an index file is not valid. The index can be rebuilt from the segment."""


def goes_up(column: array[int]) -> bool:
    """Returns true if no number is smaller than the number before it. The column is compared with its sorted copy,
    which is fast in compiled code. It is done in pieces: each pass holds Python's interpreter lock, for which the
    event loop must wait."""
    for start in range(0, len(column), _PIECE):
        values = column[start : start + _PIECE + 1].tolist()
        if values != sorted(values):
            return False
    return True


def big_endian(column: array[int]) -> array[int]:
    """Returns the numbers converted between the machine's byte order and the file's byte order (big-endian). On a
    big-endian machine `column` itself is returned, otherwise a new array."""
    if sys.byteorder == "big":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped


class IndexWrite:
    """Entries of one index that are to be written to its file. Call `run` in any thread, then `done` on the owner's
    thread."""

    __slots__ = ("_count", "_data", "_generation", "_index", "_position", "_size_bytes")

    def __init__(
        self, index: IndexFile, count: int, position: int, data: bytes, size_bytes: int | None, generation: int
    ) -> None:
        self._index = index
        self._count = count
        self._position = position
        self._data = data
        #: The new size of the file in bytes; None leaves its size unchanged.
        self._size_bytes = size_bytes
        self._generation = generation

    def run(self, *, create: bool = False) -> None:
        """Writes the entries. Raises OSError if the write fails. Without `create`, a missing file is no error, because
        its segment was deleted."""
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
    """The base class of an index. Subclasses store the entries in memory and define their format in the file."""

    __slots__ = ("_files", "_loaded", "_longer", "_written", "base_offset", "generation", "lock", "max_entries", "path")

    entry_bytes = 0
    suffix = ""

    def __init__(self, path: Path, base_offset: int, max_bytes: int, files: FileLayer) -> None:
        self.path = path
        self.base_offset = base_offset
        self.max_entries = max(1, max_bytes // self.entry_bytes)
        self._files = files
        self._loaded = False
        #: True if the file is longer than its entries. (Kafka gives an active segment's index files their full size.)
        self._longer = False
        #: The number of entries that are on the disk.
        self._written = 0
        #: A lock for writes to the file and for changes of `generation`. A change of `generation` makes pending writes
        #: do nothing.
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
        """Reads the entries from the file. A missing file has no entries. Raises CorruptIndexError if the entries are
        not valid."""
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
        """Makes this the index of a new segment: loaded, without entries. The caller makes the file."""
        self._loaded = True

    def take(self, other: IndexFile) -> None:
        """Makes this index a copy of another index of the same file. Both indexes use the same arrays of entries,
        since the arrays of a sealed segment do not change."""
        self._share(other)
        self._written, self._longer = other._written, other._longer
        # This is done last, the reverse of the order in `unload`. If the owner unloads the other index meanwhile, this
        # index is also marked as not loaded.
        self._loaded = other._loaded
        if not self._loaded:
            self._clear()

    def unload(self) -> None:
        """Frees the memory of an index if all its entries are on the disk."""
        if self._loaded and self._written == self._count():
            self._loaded = False
            self._clear()

    def forget(self) -> None:
        """Marks the index as not loaded. The file must have all entries."""
        self._loaded = False
        self._clear()

    def is_nowhere(self) -> None:
        """Marks all entries in memory as not yet written to the file."""
        self._written = 0
        self._longer = True

    def content(self) -> bytes | None:
        """Returns the content that a file with all entries has. Returns None if the index is not loaded, because then
        the file has all entries."""
        return self._encode(0) if self._loaded else None

    def reset(self) -> None:
        """Removes all entries, in memory and in the file, so that the index can be rebuilt."""
        with self.lock:
            self.generation += 1
        self._clear()
        self._loaded = True
        self._written = 0
        self._resize(0)
        self._longer = False

    def replace(self) -> None:
        """Removes all entries in memory, so that the index can be rebuilt. The next write with `trim` writes all
        entries from the start of the file, and cuts the file after them."""
        with self.lock:
            self.generation += 1
        self._clear()
        self._loaded = True
        self._written = 0
        self._longer = True

    @property
    def has_unwritten(self) -> bool:
        """True if some index entries are only in memory."""
        return self._loaded and self._written < self._count()

    def unwritten(self, *, trim: bool = False) -> IndexWrite | None:
        """Returns the write that brings all entries to the disk; None if there is nothing to write. With `trim` the
        write also cuts the file after the entries."""
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
        """Records that an `IndexWrite` was done: the first `count` entries are on the disk."""
        self._written = max(self._written, min(count, self._count()))
        if trimmed:
            self._longer = False

    def put(self, data: bytes, position: int, size_bytes: int | None, create: bool) -> None:
        """Writes the bytes of an `IndexWrite` to the file, and cuts the file to `size_bytes` if that is given."""
        descriptor = self._open(os.O_CREAT if create else 0)
        try:
            if data:
                self._files.write_all(descriptor, data, position)
            if size_bytes is not None:
                self._files.truncate(descriptor, size_bytes)
        finally:
            self._files.close(descriptor)

    def write(self, *, trim: bool = False) -> None:
        """Writes the entries that are only in memory immediately, on the calling thread."""
        wanted = self.unwritten(trim=trim)
        if wanted is not None:
            wanted.run(create=True)
            wanted.done()

    def trim(self) -> None:
        """Writes all entries and cuts the file after them, at a clean shutdown. If a loaded index has no file, the
        file is made."""
        self.write(trim=True)
        if self._loaded and not self.path.exists():
            self._resize(0)

    def disown(self) -> None:
        """Makes all later writes of this index do nothing, because another index uses the file now. Waits for a
        running write. It may be called in any thread."""
        with self.lock:
            self.generation += 1

    def _cut(self, count: int) -> None:
        """Removes all entries of the index except the first `count`, in memory only."""
        if count < self._count():
            self._drop(count)
            self._written = min(self._written, count)
            self._longer = True

    def _open(self, flags: int) -> int:
        """Opens the file for changes. A file that is shared with a branch is copied first."""
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
        """Copies the first `count` entries into new arrays. It is for a copy of an active segment's index, whose
        arrays grow."""
        raise NotImplementedError

    def _count(self) -> int:
        raise NotImplementedError

    def _encode(self, start: int) -> bytes:
        raise NotImplementedError

    def _decode(self, data: bytes) -> None:
        raise NotImplementedError

    def _drop(self, count: int) -> None:
        raise NotImplementedError
