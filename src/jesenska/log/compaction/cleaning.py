"""Runs one compaction of one log: copies the remaining records of its segments to new files, which replace the old
files.

    index       reads the dirty part and stores the newest offset of each key (records.codec.KeyOffsets decides which
                records remain)
    copy        for each group of segments: copies the remaining records to files named `.cleaned`, which are synced
                and then named `.swap`
    replace     the log's owner replaces the group's segments by the new segment (`PartitionLog.replace_segments`);
                then the new file names are synced

Everything except the replacement runs in another thread, a piece at a time. After each piece, `steps` yields the
number of bytes read and written, and for each copied group a `Replacement`. The thread reads the files by their names
and does not touch the log object.

After a crash the next start removes `.cleaned` files. A `.swap` file is complete, so the next start puts it in place
of the segments whose offsets it covers. A new segment may already have its final name while the old segments that it
covers still exist, because the disk has lost their renaming. Then the next start removes the old segments.

`cleaned_transactions` describes the handling of transactions. The last batch of each producer, and the last batch of
the compacted part, are kept even without records. So the log keeps the producers' sequence numbers and its end
offset."""

from __future__ import annotations

import os
from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from jesenska.base.errors import CorruptMessageError
from jesenska.log.compaction.cleaned_transactions import CleanedTransactions
from jesenska.log.compaction.cleaning_plan import CleanerSegment
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.recovery import CLEANED_SUFFIX, SWAP_SUFFIX
from jesenska.log.segments.segment import LOG_SUFFIX, LogSegment, file_name
from jesenska.log.segments.segment_file import OpenFiles
from jesenska.log.segments.transaction_index import TransactionIndex
from jesenska.records.batch import verify_crc
from jesenska.records.codec import BatchScan, KeyOffsets
from jesenska.records.decode import ControlMarker, read_marker, records_of
from jesenska.records.encode import reseal_batch
from jesenska.records.header import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
)

_INT32_MAX = 2**31 - 1
#: Bytes of one entry in the table of keys and offsets.
_SLOT_BYTES = 24
_BUFFER_BYTES_MIN = 64 * 1024


class CleaningSettings(NamedTuple):
    """The memory for one compaction. The names are those of the broker's settings, without `log.cleaner.`."""

    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    io_buffer_bytes: int = 512 * 1024
    io_buffer_load_factor: float = 0.9


class CancelledError(Exception):
    """Raised if the owner of the log has cancelled the compaction."""


class NotCompactedError(Exception):
    """Raised if the log cannot be compacted. The message is the reason."""


class Replacement(NamedTuple):
    """The result of copying a group of segments: the base offsets of the group, and the new segment with their
    remaining records. The new segment's files are named `.swap`."""

    base_offsets: tuple[int, ...]
    cleaned: LogSegment


class _CleanedFile:
    """A new segment under construction. Batches are collected in a buffer and written in pieces."""

    def __init__(self, segment: LogSegment, files: FileLayer, buffer_bytes: int) -> None:
        self.segment = segment
        self.buffer = bytearray(buffer_bytes)
        #: Number of bytes of the buffer that are in use.
        self.filled = 0
        self._files = files
        self._position = 0
        self._scan = BatchScan(segment.base_offset, segment.index_interval_bytes, _INT32_MAX)

    def put(self, batch: Buffer) -> int:
        """Appends a batch to the buffer. If the buffer is full, it is written first; returns the number of bytes
        written."""
        written = 0
        if len(batch) > len(self.buffer) - self.filled:
            written = self.write()
            self.make_room(len(batch))
        self.buffer[self.filled : self.filled + len(batch)] = batch
        self.filled += len(batch)
        return written

    def make_room(self, size_bytes: int) -> None:
        """Enlarges the buffer to at least this many bytes. The buffer must be empty."""
        assert not self.filled, "the buffer is in use"
        if size_bytes > len(self.buffer):
            self.buffer = bytearray(size_bytes)

    def write(self) -> int:
        """Writes the collected batches and returns the number of bytes. Before the write each batch is checked again,
        and its entries for the segment's indexes are recorded."""
        segment, at = self.segment, 0
        while at < self.filled:
            good = self._scan.feed(self.buffer, at, self.filled, self._position + at)
            segment.note_entries(self._scan.take_entries())
            if not good:
                raise CorruptMessageError(
                    f"the data to be written to {segment.file.path} at position {self._position + at} is not a "
                    "valid next batch"
                )
            at += good
        if at:
            with memoryview(self.buffer) as view:
                self._files.write_all(segment.file.handle().fileno(), view[:at], self._position)
        self._position += at
        self.filled = 0
        return at

    def seal(self) -> None:
        """Writes the segment's indexes. It is called after all batches are written."""
        segment, scan = self.segment, self._scan
        segment.size_bytes = self._position
        segment.note_scanned(
            scan.first_timestamp, scan.max_timestamp, scan.max_timestamp_offset, scan.bytes_since_entry
        )
        segment.seal()
        segment.trim()

    def sync(self, modified_ms: float) -> None:
        """Syncs and closes the segment's files. `modified_ms` becomes the file's modification time, which retention
        uses if no record has a timestamp."""
        segment, files = self.segment, self._files
        files.set_modified_ms(segment.file.path, modified_ms)
        files.fsync(segment.file.handle().fileno())
        for path in segment.own_paths()[1:]:
            descriptor = files.open(path, os.O_RDONLY)
            try:
                files.fsync(descriptor)
            finally:
                files.close(descriptor)
        segment.file.close()


class Cleaning:
    """One compaction of one log. `groups` has the segments to be compacted, oldest first, up to the end of the dirty
    part, which begins at `first_dirty`. `transaction_indexes` are copies of the log's transaction indexes. `secret` is
    16 random bytes for the table of keys.

    `producer_ends` has the last offset of each producer's last batch; these batches are never removed completely.
    `producer_epochs` has the epochs of producers that have only markers in the log."""

    def __init__(
        self,
        directory: Path,
        groups: Sequence[Sequence[CleanerSegment]],
        first_dirty: int,
        config: LogConfig,
        files: FileLayer,
        settings: CleaningSettings,
        *,
        producer_ends: Sequence[int],
        producer_epochs: Mapping[int, int],
        transaction_indexes: Sequence[TransactionIndex],
        secret: bytes,
        now_ms: int,
    ) -> None:
        self._directory = directory
        self._groups = groups
        self._first_dirty = first_dirty
        self._config = config
        self._files = files
        self._now_ms = now_ms
        self._producer_ends = frozenset(producer_ends)
        self._producer_epochs = producer_epochs
        #: The last offsets of batches that are never removed completely, for the pass that copies.
        self._ends = array("q")
        self._transaction_indexes = transaction_indexes
        self._transactions = CleanedTransactions(())
        end = groups[-1][-1].end_offset
        most = max(
            1, min(int(settings.dedupe_buffer_bytes // _SLOT_BYTES * settings.io_buffer_load_factor), end - first_dirty)
        )
        slots = min(max(2, settings.dedupe_buffer_bytes // _SLOT_BYTES), 2 * most)
        self._keys = KeyOffsets(max(slots, most + 1), most, secret)
        #: An empty table of keys, used for batches of which no record is to be removed.
        self._no_keys = KeyOffsets(2, 1, secret)
        self._buffer_bytes = max(_BUFFER_BYTES_MIN, settings.io_buffer_bytes // 2)
        self._buffer = bytearray(self._buffer_bytes)
        self._lock = Lock()
        self._is_cancelled = False
        #: The new segment while its files are named `.cleaned`.
        self._making: LogSegment | None = None
        #: The new segment while its files are named `.swap`, until the log's owner has accepted it.
        self._swap: LogSegment | None = None

    @property
    def cleaned_up_to(self) -> int:
        """The first offset that is still dirty after all groups are replaced. It is known when the first group has
        been copied."""
        return self._keys.latest_offset + 1

    # -- on the owner's thread ----------------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Records that the log has accepted the newest group's files. From now on this compaction does not change
        these files."""
        self._swap = None

    def cancel(self) -> None:
        """Cancels the compaction. After this call it makes or renames no file of the log, and the files that were to
        replace segments are removed. It may be called several times."""
        with self._lock:
            self._is_cancelled = True
            self._remove_made()
            self._making, self._swap = self._swap, None
            self._remove_made()

    # -- in another thread --------------------------------------------------------------------------------------------

    def steps(self) -> Generator[int | Replacement, None, None]:
        """Runs the compaction, a piece at each step. Yields the number of bytes read and written, or a group that can
        be replaced. Raises OSError for a disk error, CancelledError, NotCompactedError, or a KafkaError if the log is
        damaged. The caller must close the generator if it does not run it to the end."""
        aborted = [transaction for index in self._transaction_indexes for transaction in index.entries()]
        self._transactions = CleanedTransactions(
            [transaction for transaction in aborted if transaction.last_offset >= self._first_dirty]
        )
        yield from self._index()
        self._ends = array("q", sorted({*self._producer_ends, self._keys.latest_offset}))
        self._transactions = CleanedTransactions(aborted)
        for group in self._groups:
            if group[0].base_offset > self._keys.latest_offset:
                return
            yield from self._copy(group)

    def _index(self) -> Iterator[int]:
        keys = self._keys
        for group in self._groups:
            for facts in group:
                if facts.end_offset <= self._first_dirty:
                    continue
                for size in self._pieces(facts):
                    yield size
                    self._at += keys.add_batches(self._buffer, self._at, self._held, self._first_dirty)
                    header = self._whole_batch()
                    while header is not None and not keys.is_full:
                        self._add_special(header)
                        self._at += header.size_bytes
                        self._at += keys.add_batches(self._buffer, self._at, self._held, self._first_dirty)
                        header = self._whole_batch()
                    if keys.is_full:
                        break
                if keys.is_full:
                    if keys.latest_offset < self._first_dirty:
                        raise NotCompactedError(
                            f"a batch at offset {self._first_dirty} or later has more keys than the table has "
                            f"room for ({keys.most}): raise log.cleaner.dedupe.buffer.size"
                        )
                    return
        if keys.latest_offset < self._groups[-1][-1].end_offset - 1:
            # The last segment may have no batch at its end, so its end offset is noted.
            keys.note_batch(self._groups[-1][-1].end_offset - 1)

    def _add_special(self, header: BatchHeader) -> None:
        if header.is_control:
            self._transactions.end(header, self._marker(header))
        elif not self._transactions.is_aborted(header) and header.last_offset >= self._first_dirty:
            self._keys.add_records(self._body(header), header.record_count, header.base_offset, self._first_dirty)
            if self._keys.is_full:
                return
        self._keys.note_batch(header.last_offset)

    def _body(self, header: BatchHeader) -> bytearray | memoryview:
        """Returns the decompressed records of the batch that begins at `_at` in the buffer."""
        verify_crc(self._buffer, self._at, header)
        return records_of(self._buffer, self._at, header)

    def _marker(self, header: BatchHeader) -> ControlMarker | None:
        """Returns the transaction marker of the control batch that begins at `_at` in the buffer."""
        verify_crc(self._buffer, self._at, header)
        return read_marker(self._buffer[self._at : self._at + header.size_bytes])

    def _copy(self, group: Sequence[CleanerSegment]) -> Iterator[int | Replacement]:
        segment = LogSegment(
            self._directory,
            group[0].base_offset,
            self._config,
            self._files,
            OpenFiles(self._files, 1),
            created_ms=self._now_ms,
        )
        segment.name_files(CLEANED_SUFFIX)
        with self._lock:
            self._check()
            self._making = segment
            segment.create_files()
        try:
            cleaned = _CleanedFile(segment, self._files, self._buffer_bytes)
            for facts in group:
                for size in self._pieces(facts):
                    yield size + self._keep(cleaned)
            yield cleaned.write()
            with self._lock:
                self._check()
                cleaned.seal()
            cleaned.sync(self._files.modified_ms(self._path(group[-1])))
            with self._lock:
                self._check()
                for path in reversed(segment.own_paths()):
                    self._files.rename(path, path.with_name(path.name.removesuffix(CLEANED_SUFFIX) + SWAP_SUFFIX))
                segment.name_files(SWAP_SUFFIX)
                self._making, self._swap = None, segment
            self._files.fsync_directory(self._directory)
            yield Replacement(tuple(facts.base_offset for facts in group), segment)
            # The new names must be on the disk before the next group is copied and before the cleaner checkpoint is
            # written.
            self._files.fsync_directory(self._directory)
        finally:
            segment.file.close()
            with self._lock:
                self._remove_made()

    def _remove_made(self) -> None:
        """Removes the files of a new segment that is not used. The caller holds the lock."""
        made, self._making = self._making, None
        if made is not None:
            for path in made.own_paths():
                with suppress(OSError):
                    self._files.unlink(path)

    def _keep(self, cleaned: _CleanedFile) -> int:
        """Copies the remaining records of the batches in the buffer to the new segment. Returns the number of bytes
        written."""
        written = 0
        while True:
            taken, cleaned.filled = self._keys.keep_batches(
                self._buffer,
                self._at,
                self._held,
                cleaned.buffer,
                cleaned.filled,
                self._now_ms,
                self._config.delete_retention_ms,
                self._ends,
            )
            self._at += taken
            header = self._whole_batch()
            if header is None:
                return written
            if header.attributes & (CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT):
                batch = self._keep_control(header, cleaned.segment) if header.is_control else self._keep_special(header)
                if batch is not None:
                    written += cleaned.put(batch)
                self._at += header.size_bytes
            elif not taken and not cleaned.filled:
                cleaned.make_room(max(2 * len(cleaned.buffer), header.size_bytes))
            else:
                written += cleaned.write()

    def _keep_control(self, header: BatchHeader, segment: LogSegment) -> Buffer | None:
        """Returns the control batch, or its empty header if only that remains; None if the batch is removed. Adds the
        transaction's entry to the transaction index of `segment`."""
        whole = self._buffer[self._at : self._at + header.size_bytes]
        may_go, entry = self._transactions.end(header, self._marker(header))
        if entry is not None:
            segment.note_aborted(entry)
        if not may_go:
            return whole
        if header.record_count and not header.has_delete_horizon:
            horizon = self._now_ms + self._config.delete_retention_ms
            records, kept, _, _ = self._no_keys.keep_records(
                self._body(header), header.record_count, header.base_offset, header.base_timestamp, False, horizon
            )
            attributes = header.attributes | DELETE_HORIZON_BIT
            return reseal_batch(
                bytearray(HEADER_SIZE) + records, header, attributes, kept, horizon, header.max_timestamp
            )
        if header.record_count and header.base_timestamp > self._now_ms:
            return whole
        is_last = self._producer_epochs.get(header.producer_id) == header.producer_epoch
        return self._without_records(header) if is_last or self._must_stay(header) else None

    def _must_stay(self, header: BatchHeader) -> bool:
        """Returns true for a batch whose header must remain even if all its records are removed."""
        return header.last_offset in self._producer_ends or header.last_offset == self._keys.latest_offset

    def _without_records(self, header: BatchHeader) -> Buffer:
        attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
        return reseal_batch(bytearray(HEADER_SIZE), header, attributes, 0, header.base_timestamp, header.max_timestamp)

    def _keep_special(self, header: BatchHeader) -> Buffer | None:
        """Returns the remaining part of a batch that is compressed or belongs to a transaction; None if the whole
        batch is removed."""
        start, keys = self._at, self._keys
        if self._transactions.is_aborted(header):
            return self._without_records(header) if self._must_stay(header) else None
        with memoryview(self._buffer) as view:
            whole = bytes(view[start : start + header.size_bytes])
        body = self._body(header)
        base = new_base = header.base_timestamp
        attributes = header.attributes
        drops = header.has_delete_horizon and base <= self._now_ms
        records, kept, tombstones, max_timestamp = keys.keep_records(
            body, header.record_count, header.base_offset, base, drops, base
        )
        if not kept:
            return self._without_records(header) if self._must_stay(header) else None
        if tombstones and not header.has_delete_horizon:
            attributes |= DELETE_HORIZON_BIT
            new_base = self._now_ms + self._config.delete_retention_ms
            records, kept, tombstones, max_timestamp = keys.keep_records(
                body, header.record_count, header.base_offset, base, False, new_base
            )
        if kept == header.record_count and attributes == header.attributes:
            return whole
        largest = max_timestamp if kept and not header.has_log_append_time else header.max_timestamp
        return reseal_batch(bytearray(HEADER_SIZE) + records, header, attributes, kept, new_base, largest)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _pieces(self, facts: CleanerSegment) -> Iterator[int]:
        """Reads a segment's file piece by piece. After each step the buffer has batches from `_at` to `_held`, and the
        caller must handle all complete batches before the next step. Yields the number of bytes read."""
        path = self._path(facts)
        descriptor = self._files.open(path, os.O_RDONLY)
        try:
            position = 0
            self._at = self._held = 0
            while position < facts.size_bytes:
                left = self._held - self._at
                wanted = self._wanted_bytes(facts.size_bytes - position + left)
                buffer = self._buffer if wanted <= len(self._buffer) else bytearray(wanted)
                buffer[:left] = self._buffer[self._at : self._held]
                self._buffer, self._at, self._held = buffer, 0, left
                with memoryview(buffer) as view:
                    count = self._files.pread_into(
                        descriptor, view[left : left + min(len(buffer) - left, facts.size_bytes - position)], position
                    )
                if count == 0:
                    raise CorruptMessageError(f"{path} ends at {position}, and not at {facts.size_bytes}")
                position += count
                self._held += count
                yield count
            if self._at != self._held:
                raise CorruptMessageError(f"{path} ends in a part of a batch")
        finally:
            self._files.close(descriptor)

    def _path(self, facts: CleanerSegment) -> Path:
        return self._directory / file_name(facts.base_offset, LOG_SUFFIX)

    def _wanted_bytes(self, available: int) -> int:
        """Returns the buffer size needed for the batch at `_at`. Raises CorruptMessageError if the batch is longer
        than `available`, the bytes that are left of the segment."""
        if self._held - self._at < HEADER_SIZE:
            return self._buffer_bytes
        with memoryview(self._buffer) as view:
            size_bytes = read_header(view, self._at).size_bytes
        if not HEADER_SIZE <= size_bytes <= available:
            raise CorruptMessageError(f"a batch of {size_bytes} bytes does not end within its file")
        return max(self._buffer_bytes, size_bytes)

    def _whole_batch(self) -> BatchHeader | None:
        """Returns the header of the batch at `_at`; None if the buffer does not have the complete batch."""
        if self._held - self._at < HEADER_SIZE:
            return None
        with memoryview(self._buffer) as view:
            header = read_header(view, self._at)
        return header if HEADER_SIZE <= header.size_bytes <= self._held - self._at else None

    def _check(self) -> None:
        if self._is_cancelled:
            raise CancelledError
