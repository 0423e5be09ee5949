"""The transaction index of a segment, `<base offset>.txnindex`: the transactions whose abort markers are in the
segment, in the order of the markers.

    34 bytes per entry, big-endian:
         2  version = 0
         8  producer_id
         8  first_offset         of the transaction's first record, perhaps in an earlier segment
         8  last_offset          of the marker
         8  last_stable_offset   after the marker is committed (producer_state.AbortedTransaction)

A read-committed consumer gets with its records a list of the aborted transactions among them. The search for these
transactions begins in the segment of the fetch. It finds every entry whose marker is not before the fetched records
and whose first record is not after the fetched records. It ends at an entry whose last stable offset is not before the
end of the fetched records, because the transactions of all later entries began after the fetched records.

Most segments have no aborted transaction, and therefore no such file. The entries of all existing transaction indexes
are in memory, so a fetch does not wait for the disk.

After a crash the file may lack entries, or end in arbitrary bytes. Recovery rebuilds the index of each segment that it
reads completely, and an index that is not valid. The base class is `index_file.IndexFile`, as for the offset and time
indexes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from pathlib import Path
from struct import Struct
from struct import error as StructError

from jesenska.log.disk.files import FileLayer
from jesenska.log.segments.index_file import CorruptIndexError, IndexFile, goes_up
from jesenska.log.segments.producer_state import AbortedTransaction

ENTRY_BYTES = 34
_ENTRY = Struct(">hqqqq")
_VERSION = 0
_NO_LIMIT_BYTES = 2**62


class TransactionIndex(IndexFile):
    """The transaction index of a segment. The entries are in four arrays in memory. The file is made with the first
    entry, so an index without entries has no file."""

    __slots__ = ("_first_offsets", "_last_offsets", "_producer_ids", "_stable_offsets")

    entry_bytes = ENTRY_BYTES
    suffix = ".txnindex"

    _producer_ids: array[int]
    _first_offsets: array[int]
    _last_offsets: array[int]
    _stable_offsets: array[int]

    def __init__(self, path: Path, base_offset: int, files: FileLayer) -> None:
        super().__init__(path, base_offset, _NO_LIMIT_BYTES, files)

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry. The offsets of the markers must increase."""
        self._producer_ids.append(aborted.producer_id)
        self._first_offsets.append(aborted.first_offset)
        self._last_offsets.append(aborted.last_offset)
        self._stable_offsets.append(aborted.last_stable_offset)

    def find(self, from_offset: int, end_offset: int, found: list[AbortedTransaction]) -> bool:
        """Adds to `found` the aborted transactions with records from `from_offset` to before `end_offset`. Returns
        true if no later segment can have a further transaction of this kind."""
        for index in range(bisect_left(self._last_offsets, from_offset), len(self._last_offsets)):
            if self._first_offsets[index] < end_offset:
                found.append(self._entry(index))
            if self._stable_offsets[index] >= end_offset:
                return True
        return False

    def entries(self) -> list[AbortedTransaction]:
        return [self._entry(index) for index in range(len(self._last_offsets))]

    def _entry(self, index: int) -> AbortedTransaction:
        return AbortedTransaction(
            self._producer_ids[index],
            self._first_offsets[index],
            self._last_offsets[index],
            self._stable_offsets[index],
        )

    def copy(self) -> TransactionIndex:
        """Returns a copy of the index with the present entries, for another thread. It uses the same file."""
        copy = TransactionIndex(self.path, self.base_offset, self._files)
        copy.take(self)
        copy.keep(len(self._last_offsets))
        return copy

    def truncate_to(self, offset: int) -> None:
        """Removes the entries of markers from `offset` on, in memory. The next write with `trim` cuts the file."""
        self._cut(bisect_left(self._last_offsets, offset))

    def put(self, data: bytes, position: int, size_bytes: int | None, create: bool) -> None:
        """Writes entries to the file. The file is made if it does not exist, because it is not made together with the
        segment. If no entries are left, the file is removed."""
        if size_bytes == 0:
            self._files.unlink(self.path)
        else:
            super().put(data, position, size_bytes, True)

    def _resize(self, size_bytes: int) -> None:
        assert size_bytes == 0, "an index begins without entries"
        self._files.unlink(self.path)

    def _clear(self) -> None:
        self._producer_ids, self._first_offsets = array("q"), array("q")
        self._last_offsets, self._stable_offsets = array("q"), array("q")

    def _share(self, other: TransactionIndex) -> None:
        self._producer_ids, self._first_offsets = other._producer_ids, other._first_offsets
        self._last_offsets, self._stable_offsets = other._last_offsets, other._stable_offsets

    def keep(self, count: int) -> None:
        self._producer_ids, self._first_offsets = self._producer_ids[:count], self._first_offsets[:count]
        self._last_offsets, self._stable_offsets = self._last_offsets[:count], self._stable_offsets[:count]

    def _count(self) -> int:
        return len(self._last_offsets)

    def _encode(self, start: int) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *self._entry(index)) for index in range(start, len(self._last_offsets)))

    def _decode(self, data: bytes) -> None:
        try:
            for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(data):
                aborted = AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)
                if (
                    version != _VERSION
                    or not 0 <= aborted.first_offset <= aborted.last_offset
                    or aborted.last_offset < self.base_offset
                ):
                    raise CorruptIndexError(f"The entries of {self.path} are not valid.")
                self.append(aborted)
            if not goes_up(self._last_offsets):
                raise CorruptIndexError(f"The entries of {self.path} do not go up.")
        except (CorruptIndexError, StructError) as error:
            self._clear()
            raise CorruptIndexError(str(error)) from error

    def _drop(self, count: int) -> None:
        self.keep(count)
