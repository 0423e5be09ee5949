"""A segment: the part of a partition's log for a range of offsets. All files of a segment have the same name, the base
offset (the first possible offset) in 20 digits, with different suffixes.

    00000000000000001180.log         batches, one after the other, with no gaps (records.batch has a drawing)
    00000000000000001180.index       offset -> position, sparse (offset_index)
    00000000000000001180.timeindex   time -> offset, sparse (time_index)
    00000000000000001180.txnindex    transactions that were aborted, if there are any (transaction_index)
    00000000000000001180.snapshot    the producers as of this offset (producer_state)
    *.deleted                        waits to be removed; readers that began earlier still hold the file

Only the last segment of a log (the *active* segment) takes appends. A roll seals the active segment and begins a new
segment.

Invariants: the offsets in the file increase and are never below the base offset; `size_bytes` is always the end of a
complete batch; the positions in the indexes are always below `size_bytes`.

A crash of the process loses only index entries in memory. After a crash of the machine the file may end in a part of a
batch or in arbitrary bytes, but only above the recovery point. `recovery.scan_batches` finds the end of the last good
batch and rebuilds the indexes."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import NamedTuple

from jesenska.base.errors import CorruptMessageError
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.segments.checked_batches import Checked, Entry, check
from jesenska.log.segments.damage import DamagedSegmentError
from jesenska.log.segments.index_file import CorruptIndexError, IndexWrite
from jesenska.log.segments.offset_index import OffsetIndex
from jesenska.log.segments.producer_state import AbortedTransaction
from jesenska.log.segments.segment_file import OpenFile, OpenFiles, SegmentFile
from jesenska.log.segments.time_index import TimeIndex
from jesenska.log.segments.transaction_index import TransactionIndex
from jesenska.records.header import (
    HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_OFFSET,
    LENGTH_OVERHEAD,
    BatchHeader,
    read_header,
)

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"

NO_TIMESTAMP = -1
_RELATIVE_OFFSET_MAX = 2**31 - 1
_SCAN_BYTES = 8192
_HEADER_CHUNK_BYTES = 64 * 1024
# Reads the base offset, length and last offset delta at their positions in a batch header (records.batch). These
# fields are needed to find a batch in the file.
_PLACE = Struct(f">qi{LAST_OFFSET_DELTA_OFFSET - LENGTH_OVERHEAD}xi")


class ColdError(Exception):
    """Raised if the data needed for a read may not be in memory, so that the read could wait for the disk."""


class BatchPlace(NamedTuple):
    """The position of a batch in its segment's file, its size and its offsets."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


class LogSegment:
    """One segment of a log: its file, its indexes and its timestamps. The class is long because the methods that find
    a batch need the positions and indexes of the class: calls into other objects would cost time in each append and
    fetch."""

    __slots__ = (
        "_checked",
        "_config",
        "_files",
        "_guard",
        "_original",
        "_shared_entries",
        "_times_were_read",
        "_timestamps_known",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "file",
        "first_timestamp",
        "index_interval_bytes",
        "is_gone",
        "is_sealed",
        "jitter_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size_bytes",
        "time_index",
        "transaction_index",
        "unchecked_bytes",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        files: FileLayer,
        open_files: OpenFiles,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        size_bytes: int = 0,
    ) -> None:
        self._files = files
        self._config = config
        self.base_offset = base_offset
        #: A lock that another thread holds while it reads or rebuilds the index files of this segment through a copy
        #: of the segment.
        self._guard: Lock | None = None
        #: The original segment, if this segment is a copy; None for a segment of a log.
        self._original: LogSegment | None = None
        #: The numbers of entries of the two indexes that a copy shares with an active segment, until `keep_entries`.
        self._shared_entries: tuple[int, int] | None = None
        self.file = SegmentFile(directory / file_name(base_offset, LOG_SUFFIX), files, open_files, self.unload_indexes)
        self.offset_index = OffsetIndex(
            directory / file_name(base_offset, INDEX_SUFFIX), base_offset, config.segment_index_bytes, files
        )
        self.time_index = TimeIndex(
            directory / file_name(base_offset, TIME_INDEX_SUFFIX), base_offset, config.segment_index_bytes, files
        )
        #: The index of aborted transactions; None if no transaction was aborted.
        self.transaction_index: TransactionIndex | None = None
        #: Bytes of complete batches that readers may see.
        self.size_bytes = size_bytes
        #: The number of bytes at the beginning of the file that were written before the broker's start and are not
        #: completely checked for damage yet (module `checked_batches`); 0 if all of them were checked and are good.
        self.unchecked_bytes = 0
        self._checked: Checked | None = None
        self.index_interval_bytes = config.index_interval_bytes
        self.bytes_since_index_entry = 0
        #: The largest timestamp of the first batch, from which rolling by time counts. -1 if there is no batch yet, or
        #: if the batches have no timestamps.
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        #: The last offset of the batch that has `max_timestamp`.
        self.max_timestamp_offset = base_offset
        self._timestamps_known = size_bytes == 0
        self._times_were_read = False
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        self.is_sealed = False
        #: True after the segment was removed from the log: its files have been renamed, and another segment's files
        #: may have the old names. A copy of this segment that is still in use may read the wrong files, so its results
        #: are ignored.
        self.is_gone = False

    def __repr__(self) -> str:
        return f"LogSegment({self.file.path}, {self.size_bytes} bytes)"

    # -- writing ------------------------------------------------------------------------------------------------------

    def create(self, config: LogConfig) -> None:
        """Makes the files of a new, active segment."""
        opened = self.file.create()
        self.file.pin()
        self._files.truncate(opened.fileno(), 0)
        if config.preallocate:
            self._files.allocate(opened.fileno(), config.segment_bytes)
        self.offset_index.reset()
        self.time_index.reset()

    def create_files(self) -> None:
        """Makes the files of a segment that a compaction writes; existing files are emptied."""
        self._files.truncate(self.file.create().fileno(), 0)
        self.offset_index.reset()
        self.time_index.reset()

    def make_files(self, config: LogConfig) -> OpenFile:
        """Makes the segment's files as `create` does, but in another thread than the owner's. Returns the open log
        file. If a file cannot be made, the files that were made are removed."""
        path = self.file.path
        descriptor = self._files.open(path, os.O_RDWR | os.O_CREAT)
        try:
            self._files.truncate(descriptor, 0)
            if config.preallocate:
                self._files.allocate(descriptor, config.segment_bytes)
            for index in (self.offset_index.path, self.time_index.path):
                empty = self._files.open(index, os.O_RDWR | os.O_CREAT)
                try:
                    self._files.truncate(empty, 0)
                finally:
                    self._files.close(empty)
        except OSError:
            self._files.close(descriptor)
            for made in self.paths():
                with suppress(OSError):
                    self._files.unlink(made)
            raise
        return OpenFile(descriptor, self._files)

    def activate(self) -> None:
        """Prepares the last segment of a loaded log for appends."""
        self.is_sealed = False
        self.file.create()
        self.file.pin()

    def note_batch(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Adds a batch that was written at `position` to the indexes and the timestamps. The caller updates
        `size_bytes` of the segment."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index_entry > self.index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += size_bytes

    def _transaction_index_path(self) -> Path:
        """Returns the path of the transaction index. It has the same additional suffix (such as `.cleaned`) as the
        segment's other files."""
        path = self.file.path
        return path.with_name(
            file_name(self.base_offset, TXN_INDEX_SUFFIX)
            + path.name.removeprefix(file_name(self.base_offset, LOG_SUFFIX))
        )

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Adds an aborted transaction, whose marker is in the segment, to the transaction index."""
        if self.transaction_index is None:
            self.transaction_index = TransactionIndex(self._transaction_index_path(), self.base_offset, self._files)
            self.transaction_index.begin()
        self.transaction_index.append(aborted)

    def load_transaction_index(self) -> None:
        """Reads the transaction index from its file, which must exist. Raises CorruptIndexError if it is not valid."""
        index = TransactionIndex(self._transaction_index_path(), self.base_offset, self._files)
        index.load()
        self.transaction_index = index

    def forget_transaction_index(self) -> None:
        """Removes the transaction index and its file, before it is rebuilt."""
        self.transaction_index = None
        self._files.unlink(self._transaction_index_path())

    def note_entries(self, entries: Sequence[tuple[int, int, int, int]]) -> None:
        """Adds index entries for batches that recovery or an inspection has read. Each entry has the last offset, the
        position, the largest timestamp so far and the offset of that timestamp."""
        for last_offset, position, max_timestamp, max_timestamp_offset in entries:
            self.offset_index.append(last_offset, position)
            self.time_index.append(max_timestamp, max_timestamp_offset)

    def note_scanned(
        self, first_timestamp: int, max_timestamp: int, max_timestamp_offset: int, bytes_since_entry: int
    ) -> None:
        """Sets the segment's timestamps and the bytes since the last index entry, after a scan of all batches."""
        self.first_timestamp, self.max_timestamp, self.max_timestamp_offset = (
            first_timestamp,
            max_timestamp,
            max_timestamp_offset,
        )
        self.bytes_since_index_entry = bytes_since_entry

    def should_roll(
        self, write_position: int, more_bytes: int, max_timestamp: int, last_offset: int, now_ms: int, config: LogConfig
    ) -> bool:
        """Returns true if the next append needs a new segment. There are four reasons: this segment would become too
        large, it is too old, an index is full, or the offset is too far from the base offset. The age is measured by
        the records' timestamps, or by the clock if the records have no timestamps."""
        if write_position == 0:
            return last_offset - self.base_offset > _RELATIVE_OFFSET_MAX
        if write_position + more_bytes > config.segment_bytes:
            return True
        limit_ms = config.segment_ms - self.jitter_ms
        waited_ms = (
            max_timestamp - self.first_timestamp
            if self.first_timestamp >= 0 and max_timestamp >= 0
            else now_ms - self.created_ms
        )
        return (
            waited_ms > limit_ms
            or self.offset_index.is_full
            or self.time_index.is_full
            or last_offset - self.base_offset > _RELATIVE_OFFSET_MAX
        )

    def seal(self) -> None:
        """Ends the appends to this segment, and adds the largest timestamp to the time index. The next flush cuts the
        files to their content."""
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset, sealing=True)
        self.is_sealed = True
        self.file.unpin()

    def trim(self) -> None:
        """Cuts preallocated files to their content immediately."""
        if self.file.is_open:
            descriptor = self.file.handle().fileno()
            if self._files.size(descriptor) > self.size_bytes:
                self._files.truncate(descriptor, self.size_bytes)
        self.offset_index.trim()
        self.time_index.trim()
        if self.transaction_index is not None:
            self.transaction_index.write(trim=True)

    @property
    def has_unwritten(self) -> bool:
        """True if some index entries are only in memory."""
        transactions = self.transaction_index
        return (
            self.offset_index.has_unwritten
            or self.time_index.has_unwritten
            or (transactions is not None and transactions.has_unwritten)
        )

    def unwritten(self, *, trim: bool = False) -> list[IndexWrite]:
        """Returns writes, to be run in another thread, that bring all index entries to the disk. With `trim`, and for
        a sealed segment, they also cut the files after the entries."""
        trim = trim or self.is_sealed
        writes = [self.offset_index.unwritten(trim=trim), self.time_index.unwritten(trim=trim)]
        if self.transaction_index is not None:
            writes.append(self.transaction_index.unwritten(trim=trim))
        return [write for write in writes if write is not None]

    def write_indexes(self) -> None:
        """Writes the index entries that are only in memory immediately, on the calling thread."""
        self.offset_index.write()
        self.time_index.write()
        if self.transaction_index is not None:
            self.transaction_index.write()

    # -- reading ------------------------------------------------------------------------------------------------------

    def read_bytes(self, position: int, size_bytes: int) -> bytes:
        return self._files.pread(self.file.handle().fileno(), size_bytes, position)

    def find_warm(self, offset: int) -> BatchPlace | None:
        """Finds a batch as `find` does, but only with data in memory. Raises ColdError if it could have to read from
        the disk."""
        if not self.size_bytes:
            return None
        if not (self.file.is_open and self.offset_index.is_loaded):
            raise ColdError
        return self._scan(self._indexed_position(offset), offset, warm=True)

    def start_for(self, offset: int) -> int:
        """Returns the position at which `find` begins its search for an offset."""
        return self._indexed_position(offset)

    @property
    def is_warm(self) -> bool:
        """True if the segment's file is open and its index loaded, so that a look-up reads at most pages of the file
        from the disk."""
        return self.file.is_open and self.offset_index.is_loaded

    def copy(self) -> LogSegment:
        """Returns a copy of the segment for another thread, with its own file handle and the present index entries.
        Only the owner may copy the active segment; any thread may copy a sealed segment. The user of the copy calls
        `keep_entries` before the first use, and closes the copy."""
        copy = LogSegment(
            self.file.path.parent,
            self.base_offset,
            self._config,
            self._files,
            OpenFiles(self._files, 1),
            created_ms=self.created_ms,
            size_bytes=self.size_bytes,
        )
        copy.file.path = self.file.path
        copy.offset_index.path, copy.time_index.path = self.offset_index.path, self.time_index.path
        copy._guard = self.offset_index.lock
        # If the segment has left the log, its copy reads the files by their present names.
        copy._original = None if copy.file.path.name.endswith(DELETED_SUFFIX) else self
        if self.offset_index.is_loaded and self.time_index.is_loaded:
            copy.offset_index.take(self.offset_index)
            copy.time_index.take(self.time_index)
            if not self.is_sealed:
                copy._shared_entries = (len(copy.offset_index), len(copy.time_index))
        if self.transaction_index is not None:
            copy.transaction_index = self.transaction_index.copy()
        copy.unchecked_bytes = self.unchecked_bytes
        copy._checked = None if self._checked is None else self._checked.copy()
        copy.is_sealed = self.is_sealed
        copy._take_timestamps(self)
        return copy

    def in_another_directory(self, directory: Path, opened: OpenFile | None, open_files: OpenFiles) -> LogSegment:
        """Returns a segment that takes the place of this segment in the log, with a copy of its files in `directory`.
        This segment is no longer part of the log afterwards. `opened` is the copy of the active segment's file; its
        index entries, which are not in a file yet, remain in memory. A sealed segment's index files are complete, and
        are read when they are needed."""
        moved = self.copy()
        moved._guard = moved._original = moved._shared_entries = None
        moved.jitter_ms = self.jitter_ms
        moved.bytes_since_index_entry = self.bytes_since_index_entry
        moved._times_were_read = self._times_were_read
        moved.moved(directory)
        moved.file.join(open_files)
        if opened is None:
            moved.offset_index.forget()
            moved.time_index.forget()
        else:
            moved.file.adopt(opened)
            moved.offset_index.is_nowhere()
            moved.time_index.is_nowhere()
            if moved.transaction_index is not None:
                moved.transaction_index.is_nowhere()
        with self.offset_index.lock:
            self.is_gone = True
        self.retire()
        return moved

    def keep_entries(self) -> None:
        """Gives a copy its own index entries, which are the entries of the active segment at the time when the copy
        was made. They may take megabytes, so they are copied in the other thread, and not by the owner."""
        shared, self._shared_entries = self._shared_entries, None
        if shared is not None:
            self.offset_index.keep(shared[0])
            self.time_index.keep(shared[1])

    def forget_entries(self) -> None:
        """Frees the memory of a copy's index entries after the copy was used."""
        self.offset_index.keep(0)
        self.time_index.keep(0)

    def learn(self, copy: LogSegment) -> None:
        """Takes the timestamps and index entries that a copy of this sealed segment has read."""
        if not self.is_sealed or self.is_gone or copy.size_bytes != self.size_bytes:
            return
        if not self._timestamps_known:
            self._take_timestamps(copy)
        if copy.offset_index.is_loaded and copy.time_index.is_loaded and not self.offset_index.is_loaded:
            # The index entries stay in memory as long as the file is in the cache of open files, so the file is opened
            # here.
            self.file.handle()
            self.offset_index.take(copy.offset_index)
            self.time_index.take(copy.time_index)

    # -- the checks ---------------------------------------------------------------------------------------------------

    @property
    def checked(self) -> Checked | None:
        """The results of the checks for damage of the batches from before the broker's start; None if all these
        batches are known to be good."""
        if self._checked is None and self.unchecked_bytes:
            self._checked = Checked(self.unchecked_bytes)
        return self._checked

    def checked_from(self, offset: int) -> tuple[int, int]:
        """Returns the position at which the check for an offset begins (after the batches that are already checked),
        for `checked_batches.check`. The second value is an offset that is below all batches from that position on.
        Raises CorruptMessageError if the index is wrong."""
        position = self._indexed_position(offset)
        before, entry = self.offset_index.around(position)
        if entry is not None and self.header_at(position).base_offset > entry:
            raise DamagedSegmentError(
                self.base_offset, f"The index of {self.file.path} is wrong at position {position}."
            )
        return max(position, self.checked.end_from(position) if self.checked is not None else position), before

    def check_about(self, offset: int, bound: int) -> list[Entry] | None:
        """Checks the batches around an offset. The segment ends before `bound`. Returns new index entries for
        `learn_checked` if the index may be wrong, otherwise None."""
        return check(self, offset, bound) if self.unchecked_bytes else None

    def learn_checked(self, other: LogSegment, entries: list[Entry] | None) -> None:
        """Takes the results of a check that was done with a copy (`check_about`), and the index entries that it
        returned."""
        checked, found = self.checked, other._checked
        if checked is None or found is None or self.is_gone or other.unchecked_bytes != self.unchecked_bytes:
            return
        for damage in found.damaged if not checked.damaged else ():
            logger.error("%s", damage.described(self.file.path))
        checked.take(found)
        if entries is not None:
            self._replace_entries(entries)
        self._forget_what_is_whole()

    def _forget_what_is_whole(self) -> None:
        """Drops the check results of the batches from before the broker's start, if all of those batches were checked
        and are good."""
        if self._checked is not None and self._checked.is_whole:
            self.unchecked_bytes, self._checked = 0, None

    def rebuild_indexes_from(self, entries: Sequence[Entry]) -> None:
        """Rebuilds both indexes, in memory and on the disk, from the entries that an inspection has returned. It may
        be called only while the segment has no readers."""
        self.offset_index.reset()
        self.time_index.reset()
        self.forget_timestamps()
        self.note_entries(entries)
        start = entries[-1].position if entries else 0
        for position, header in self.headers():
            if position == 0:
                self.first_timestamp = header.records_timestamp
            if header.records_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.records_timestamp, header.last_offset
        self.bytes_since_index_entry = self.size_bytes - start
        self._timestamps_known = True
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset, sealing=True)
        self._forget_what_is_whole()
        self.trim()

    def _replace_entries(self, entries: Sequence[Entry]) -> None:
        """Replaces the index entries for batches from before the broker's start. The entries of later appends are
        kept."""
        try:
            later = [entry for entry in self.offset_index.entries() if entry[1] >= self.unchecked_bytes]
            later_times = [entry for entry in self.time_index.entries() if later and entry[1] >= later[0][0]]
        except CorruptIndexError:
            later, later_times = [], []
        self.offset_index.replace()
        self.time_index.replace()
        self.note_entries(entries)
        for offset, position in later:
            self.offset_index.append(offset, position)
        for timestamp, offset in later_times:
            self.time_index.append(timestamp, offset)
        if self.is_sealed and self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset, sealing=True)
        logger.warning("the indexes of %s were rebuilt", self.file.path)
        with suppress(OSError):  # a full disk: the entries stay in memory
            for write in self.unwritten(trim=self.is_sealed):
                write.run()
                write.done()

    def _take_timestamps(self, other: LogSegment) -> None:
        self._timestamps_known = other._timestamps_known
        self.first_timestamp, self.max_timestamp, self.max_timestamp_offset = (
            other.first_timestamp,
            other.max_timestamp,
            other.max_timestamp_offset,
        )

    def place_at(self, position: int) -> BatchPlace | None:
        """Returns the batch that begins at a position; None at the end of the segment."""
        return self._scan(position, -1)

    def find(self, offset: int, position: int | None = None) -> BatchPlace | None:
        """Returns the first batch whose last offset is at least `offset`; None if there is no such batch. The search
        begins at `position`, or at the position from the index."""
        return self._scan(self._indexed_position(offset) if position is None else position, offset)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yields the position and header of each batch from `position` on. Batches that are known to be damaged are
        left out. Records are not read."""
        descriptor = self.file.handle().fileno()
        unpack = HEADER.unpack_from
        end = self.size_bytes
        while (position := self.after_damage(position)) < end:
            until = min(end, self.next_damage(position))
            chunk = self._files.pread(descriptor, min(_HEADER_CHUNK_BYTES, until - position), position)
            limit = len(chunk) - HEADER_SIZE
            at = 0
            while at <= limit:
                header = BatchHeader._make(unpack(chunk, at))
                size_bytes = header.batch_length + LENGTH_OVERHEAD
                if size_bytes < HEADER_SIZE or position + at + size_bytes > end:
                    raise DamagedSegmentError(
                        self.base_offset, f"{self.file.path} has no whole batch at position {position + at}."
                    )
                yield position + at, header
                at += size_bytes
            if at == 0:
                raise DamagedSegmentError(
                    self.base_offset, f"{self.file.path} ends in a part of a batch at position {position}."
                )
            position += at

    def _indexed_position(self, offset: int) -> int:
        """Returns the position at which the search for an offset begins. A damaged index is rebuilt first."""
        index = self.offset_index
        if not index.is_loaded:
            self.check_indexes()
        position = index.lookup(offset)
        return position if self._checked is None else max(position, self._checked.floor(offset))

    def check_indexes(self) -> bool:
        """Loads the indexes, and returns true if they match the segment's file. Otherwise rebuilds them from the batch
        headers, and returns false."""
        if self._guard is None:
            return self._check_indexes()
        with self._guard:
            return self._check_indexes()

    def _check_indexes(self) -> bool:
        if self._original is not None and self._original.is_gone:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.file.path))
        try:
            last_offset, last_time = self.offset_index.last(), self.time_index.last()
            if (last_offset is None or last_offset[1] < self.size_bytes) and (
                last_time is None or last_time[1] >= self.base_offset
            ):
                return True
        except CorruptIndexError:
            pass
        self.rebuild_indexes()
        return False

    def rebuild_indexes(self) -> None:
        """Rebuilds both indexes from the batch headers. All batches in the file must be good."""
        self.offset_index.reset()
        self.time_index.reset()
        self.forget_timestamps()
        for position, header in self.headers():
            self.note_batch(position, header.size_bytes, header.last_offset, header.records_timestamp)
        self._timestamps_known = True
        if self.is_sealed:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset, sealing=True)
            self.trim()

    def _scan(self, position: int, offset: int, warm: bool = False) -> BatchPlace | None:
        end = self.size_bytes
        if position >= end:
            return None
        descriptor = self.file.handle().fileno()
        unpack = _PLACE.unpack_from
        read = self._files.pread_warm if warm else self._files.pread
        while position < end:
            chunk = read(descriptor, min(_SCAN_BYTES, end - position), position)
            if chunk is None or (warm and len(chunk) < _PLACE.size <= end - position):
                raise ColdError
            limit = len(chunk) - _PLACE.size
            if limit < 0:
                raise DamagedSegmentError(
                    self.base_offset, f"{self.file.path} ends in a part of a batch at position {position}."
                )
            at = 0
            while at <= limit:
                base_offset, length, delta = unpack(chunk, at)
                if length < HEADER_SIZE - LENGTH_OVERHEAD:
                    raise DamagedSegmentError(
                        self.base_offset, f"{self.file.path} has no batch at position {position + at}."
                    )
                last_offset = base_offset + delta
                if last_offset >= offset:
                    if position + at + length + LENGTH_OVERHEAD > end:
                        raise DamagedSegmentError(
                            self.base_offset, f"{self.file.path} ends in a part of a batch at position {position + at}."
                        )
                    return BatchPlace(position + at, length + LENGTH_OVERHEAD, base_offset, last_offset)
                at += length + LENGTH_OVERHEAD
            position += at
        return None

    def header_at(self, position: int) -> BatchHeader:
        try:
            return read_header(self.read_bytes(position, HEADER_SIZE))
        except CorruptMessageError as error:
            raise DamagedSegmentError(
                self.base_offset, f"{self.file.path} has no batch at position {position}: {error.message}"
            ) from error

    def last_place(self) -> BatchPlace | None:
        """Returns the last batch of the segment; None if the segment is empty."""
        self.check_indexes()
        entry = self.offset_index.last()
        position = entry[1] if entry is not None else 0
        found = None
        while (place := self.place_at(self.after_damage(position))) is not None:
            found = place
            position = place.position + place.size_bytes
        return found

    def after_damage(self, position: int) -> int:
        """Returns `position`, or the end of the known damage that contains it."""
        return position if self._checked is None else self._checked.after_damage(position)

    def next_damage(self, position: int) -> int:
        """Returns the start of the next known damage after a position. Returns the end of the segment if there is
        none."""
        return self.size_bytes if self._checked is None else min(self.size_bytes, self._checked.next_damage(position))

    # -- time ---------------------------------------------------------------------------------------------------------

    @property
    def knows_its_time(self) -> bool:
        """True if `largest_timestamp` needs no read of a file."""
        return self._timestamps_known

    @property
    def knows_all_times(self) -> bool:
        """True if the largest and the first timestamp are known, or could not be read."""
        return self._timestamps_known and (self.first_timestamp >= 0 or self._times_were_read or self.size_bytes == 0)

    def learn_times(self, copy: LogSegment) -> None:
        """Takes the timestamps that a copy of this sealed segment has read. Records that the timestamps were read,
        even if the read failed, so that it is not repeated."""
        self._times_were_read = True
        if copy.size_bytes == self.size_bytes and not self.is_gone:
            self._take_timestamps(copy)

    def largest_timestamp(self) -> int:
        """Returns the largest timestamp of the segment's records; -1 if no record has a timestamp. The first call
        reads it from the time index."""
        if not self._timestamps_known:
            newest = self.time_index.peek_last() if self.is_sealed and self.time_index.exists() else None
            if newest is not None:
                self.max_timestamp, self.max_timestamp_offset = newest
                self._timestamps_known = True
            else:
                self.load_timestamps()
        return self.max_timestamp

    def retention_timestamp(self) -> int:
        """Returns the timestamp that retention uses: the largest timestamp of the records, or the file's modification
        time if the records have no timestamps."""
        largest = self.largest_timestamp()
        return largest if largest >= 0 else int(self.file.path.stat().st_mtime * 1000)

    def load_timestamps(self) -> None:
        """Reads the first and the largest timestamp of the segment: from the first batch, the last entry of the time
        index and the batches after that entry."""
        self._timestamps_known = True
        if self.size_bytes == 0:
            return
        if not self.check_indexes():
            return
        first = self.after_damage(0)
        if first >= self.size_bytes:
            return
        self.first_timestamp = self.header_at(first).records_timestamp
        newest = self.time_index.last()
        if newest is not None:
            self.max_timestamp, self.max_timestamp_offset = newest
        if newest is not None and self.is_sealed:
            return
        entry = self.offset_index.last()
        start = entry[1] if entry is not None else 0
        self.bytes_since_index_entry = self.size_bytes - start
        for _, header in self.headers(start):
            if header.records_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.records_timestamp, header.last_offset

    def forget_timestamps(self) -> None:
        """Resets the timestamps, before the batches are read again."""
        self.max_timestamp, self.max_timestamp_offset, self.first_timestamp = (
            NO_TIMESTAMP,
            self.base_offset,
            NO_TIMESTAMP,
        )
        self.bytes_since_index_entry = 0

    # -- cutting and removing -----------------------------------------------------------------------------------------

    def shorten(self, position: int, offset: int) -> None:
        """Shortens a copy of a segment in memory: it then ends at `position`, the start of the batch that contains
        `offset`. The files are unchanged."""
        self.is_sealed = False
        # The copy needs its own arrays, because the arrays of a sealed segment are shared with other copies, and the
        # arrays of this copy will grow.
        self.offset_index.keep(len(self.offset_index))
        self.time_index.keep(len(self.time_index))
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if self.transaction_index is not None:
            self.transaction_index.truncate_to(offset)
        self.size_bytes = position
        self.unchecked_bytes = min(self.unchecked_bytes, position)
        self._checked = None
        self.forget_timestamps()
        self.load_timestamps()

    def replace(self, original: LogSegment, open_files: OpenFiles) -> None:
        """Puts this shortened copy into the log in place of its original, as the active segment."""
        self._guard = None
        self._original = None
        self.jitter_ms = original.jitter_ms
        self.file.handle()
        self.file.join(open_files)
        self.file.pin()

    def retire(self) -> None:
        """Marks the segment as removed from the log. Reads that have begun can continue."""
        if self.transaction_index is not None:
            self.transaction_index.disown()
        self.is_sealed = True
        self.file.unpin()
        self.file.close()

    def disown_indexes(self) -> None:
        """Makes later index writes of this segment do nothing, because another segment uses the index files now. It
        may be called in any thread."""
        self.offset_index.disown()
        self.time_index.disown()
        if self.transaction_index is not None:
            self.transaction_index.disown()

    def paths(self) -> list[Path]:
        """Returns the paths that the segment's files have in a log. The producer snapshot is not included."""
        path = self.file.path
        return [
            path,
            path.with_suffix(INDEX_SUFFIX),
            path.with_suffix(TIME_INDEX_SUFFIX),
            path.with_suffix(TXN_INDEX_SUFFIX),
        ]

    def own_paths(self) -> list[Path]:
        """Returns the present paths of the segment's files, the log file first."""
        paths = [self.file.path, self.offset_index.path, self.time_index.path]
        return paths if self.transaction_index is None else [*paths, self.transaction_index.path]

    def name_files(self, suffix: str) -> None:
        """Sets the paths of the files, without renaming them: the usual names, followed by `suffix`."""
        directory, base_offset = self.file.path.parent, self.base_offset
        self.file.path = directory / (file_name(base_offset, LOG_SUFFIX) + suffix)
        self.offset_index.path = directory / (file_name(base_offset, INDEX_SUFFIX) + suffix)
        self.time_index.path = directory / (file_name(base_offset, TIME_INDEX_SUFFIX) + suffix)
        if self.transaction_index is not None:
            self.transaction_index.path = directory / (file_name(base_offset, TXN_INDEX_SUFFIX) + suffix)

    def take_names(self) -> None:
        """Renames the files of a compaction's result to the usual names of a segment. The log file is the last,
        because a start looks for log files."""
        given = self.own_paths()
        self.name_files("")
        for source, target in zip(reversed(given), reversed(self.own_paths()), strict=True):
            self._files.rename(source, target)

    def join(self, open_files: OpenFiles) -> None:
        """Adds a sealed segment that another thread has made to the log's cache of open files."""
        self.file.move_to(open_files)
        self.unload_indexes()

    def mark_deleted(self) -> list[Path]:
        """Renames the files, so that the next start removes them, and returns the new paths. Reads that have begun can
        continue."""
        with self.offset_index.lock:
            self.is_gone = True
        self.is_sealed = True
        self.file.unpin()
        renamed = []
        if self.transaction_index is not None:
            self.transaction_index.disown()
        for path in self.paths():
            target = path.with_name(path.name + DELETED_SUFFIX)
            try:
                self._files.rename(path, target)
            except FileNotFoundError:
                continue
            renamed.append(target)
        self.file.path = renamed[0] if renamed else self.file.path
        for index in (self.offset_index, self.time_index, self.transaction_index):
            if index is not None:
                index.path = index.path.with_name(index.path.name + DELETED_SUFFIX)
        self.file.close()
        return renamed

    def moved(self, directory: Path) -> None:
        """Sets the new paths of the files after the partition's directory was renamed."""
        self.file.path = directory / self.file.path.name
        self.offset_index.path = directory / self.offset_index.path.name
        self.time_index.path = directory / self.time_index.path.name
        if self.transaction_index is not None:
            self.transaction_index.path = directory / self.transaction_index.path.name

    def unload_indexes(self) -> None:
        """Frees the memory of a sealed segment's indexes until they are needed again."""
        if self.is_sealed:
            self.offset_index.unload()
            self.time_index.unload()

    def close(self) -> None:
        self.file.close()
