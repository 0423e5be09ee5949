"""Opens a partition's directory: finds its files, checks them, and rebuilds the state that is derived from them.

After a clean shutdown the files are trusted. After a crash everything from the segment of the recovery point on is
read completely:

    batch by batch:  header is valid, magic is 2, the length fits into the file, offsets increase, CRC32C fits
    first bad batch:  the file is cut there, later segments are removed; the records cut off were never acknowledged
                      as synced (damage to synced records is described below)
    on the way:  both indexes are rebuilt; leader epochs that the file has lost are added
    then:  producers = newest readable snapshot + all headers after it; with them the transaction indexes of these
           segments, so the snapshot must be older than the first segment whose transaction index is rebuilt

Missing bytes (the batch does not fit into the file) and wrong bytes (zeros, old blocks or flipped bits, found by CRC,
magic or length) are handled in the same way. Everything before the first bad batch is kept. Nothing after the first
bad batch is kept, even if it looks good, since the offsets would have a gap.

A crash may also have cut a file exactly between two batches, which shows only in the name of the next segment. Above a
known recovery point, segments after such a gap are also removed: their records were never acknowledged as synced, and
an idempotent producer could not send the missing batches again. If compaction or retention may have made the gap, or
if the records after it were synced, the segments after the gap are kept. An exception is an empty segment after a gap
at the end of the log: it is removed. A compaction of jesenska keeps the last batch of its segments, so such a gap
means that records were lost. Below the recovery point the gap may come from Apache Kafka's compaction.

Damage to synced records (after a clean shutdown, or below the recovery point) is a fault of the disk. A segment with
such damage is inspected from end to end (module `segments.checked_batches`). The damaged parts are recorded in memory,
so that reads of them are refused, and good batches after them are kept. If no synced batch follows the damage, the end
of the file is cut off and saved under another name (module `segments.damage`). Segments that a start need not read are
not changed. They are checked when they are first read.

A crash during recovery is harmless: the next recovery makes the same changes. Files of interrupted work are handled
first: `.deleted` and `.cleaned` files are removed, and a `.swap` (the finished result of a compaction) replaces its
segments. This also works if the disk has kept the renaming of the result to its final name, but has lost the renaming
of the segments that it replaces. A file that is shared with a branch is not changed: the log gets its own copy
(shared_files).

Recovery runs in a thread of a pool. It reads in pieces of some megabytes, and both the read and the CRC release
Python's interpreter lock."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jesenska.base.errors import CorruptMessageError, KafkaError, KafkaStorageError, UnsupportedForMessageFormatError
from jesenska.base.system_errors import cause_of, remedy_of
from jesenska.log.disk import epochs_file
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.leader_epochs import LeaderEpochs
from jesenska.log.disk.shared_files import is_shared, own_copy
from jesenska.log.log_config import LogConfig
from jesenska.log.segments.checked_batches import Damage, indexed_positions, inspect
from jesenska.log.segments.damage import DamagedSegmentError, keep_end, keep_whole
from jesenska.log.segments.index_file import CorruptIndexError
from jesenska.log.segments.producer_snapshots import snapshot_offsets
from jesenska.log.segments.producer_state import BATCHES_REMEMBERED, AbortedTransaction, ProducerState, decode_snapshot
from jesenska.log.segments.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    file_name,
)
from jesenska.log.segments.segment_file import OpenFiles
from jesenska.records.codec import BatchScan, ProducerScan, crc32c
from jesenska.records.decode import read_marker
from jesenska.records.header import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC_OFFSET,
    BatchHeader,
    read_batch_length,
    read_header,
)

_SCAN_BUFFER_BYTES = 4 * 1024 * 1024
_LEGACY_CHECK_BYTES = 64 * 1024
_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_NAME_DIGITS = 20
#: Bytes that are read at once if only batch headers are needed.
_HEADERS_BUFFER_BYTES = 1024 * 1024
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

#: A function that is called with the number of bytes checked since its last call.
Progress = Callable[[int], None]


class ScanResult(NamedTuple):
    """The result of checking a segment file batch by batch."""

    valid_bytes: int
    #: The offset after the last good batch.
    next_offset: int
    #: The reason why the scan ended before the end of the file; None if the whole file is good.
    fault: str | None


@dataclass(slots=True)
class LoadedLog:
    """A partition's log as it was found on the disk. A PartitionLog is made from it."""

    directory: Path
    segments: list[LogSegment]
    producers: ProducerState
    leader_epochs: LeaderEpochs
    log_start_offset: int
    next_offset: int
    recovery_point: int
    #: True if every file is synced: the last shutdown was clean, and nothing was repaired since.
    is_synced: bool
    #: Messages for an operator: ends that were cut off, removed segments, rebuilt files.
    notes: list[str] = field(default_factory=list)


class _Window:
    """The part of a segment's file that is in memory while its batches are checked. The next batch to be checked
    begins at `position`."""

    def __init__(self, files: FileLayer, descriptor: int, size_bytes: int) -> None:
        self._files = files
        self._descriptor = descriptor
        self._size_bytes = size_bytes
        self.buffer = memoryview(bytearray(min(_SCAN_BUFFER_BYTES, max(size_bytes, HEADER_SIZE))))
        #: Positions in the file: of the next batch, of the first byte in the buffer, and of the end of the buffer's
        #: bytes.
        self.position = self.start = self.end = 0

    def fetch(self, wanted: int) -> bool:
        """Reads until the buffer has `wanted` bytes from `position` on. Returns false if the file ends before that."""
        if self.position + wanted <= self.end:
            return True
        if wanted > len(self.buffer):
            self.buffer = memoryview(bytearray(wanted))
        self.start = self.end = self.position
        room = min(len(self.buffer), self._size_bytes - self.position)
        while self.end - self.start < room:
            count = self._files.pread_into(self._descriptor, self.buffer[self.end - self.start : room], self.end)
            if count == 0:
                break
            self.end += count
        return self.position + wanted <= self.end

    def fault(self, last_offset: int) -> str | None:
        """Checks the batch at `position`; the batch before it ends with `last_offset`. Returns the fault of the batch.
        Returns None if the batch was only not in the buffer yet; it has then been read into the buffer."""
        left = self._size_bytes - self.position
        if self.end - self.position < HEADER_SIZE:
            return f"{left} bytes are left, less than a batch's header"
        try:
            header = read_header(self.buffer, self.position - self.start)
        except UnsupportedForMessageFormatError:
            self.fetch(min(left, _LEGACY_CHECK_BYTES))
            if _is_legacy_message(self.buffer[self.position - self.start : self.end - self.start]):
                raise
            return "the magic is not that of a batch"
        except CorruptMessageError as error:
            return error.message
        size = header.size_bytes
        if size < HEADER_SIZE:
            return f"the batch length {header.batch_length} is less than a header has"
        if size > left:
            return f"the batch takes {size} bytes, {left} are left"
        if self.position + size > self.end:
            return None if self.fetch(size) else "the file ended while it was read"
        begin = self.position - self.start
        if crc32c(self.buffer, begin + ATTRIBUTES_OFFSET, begin + size) != header.crc:
            return "the CRC does not fit"
        return f"offset {header.base_offset} does not follow {last_offset}"


def scan_batches(
    files: FileLayer,
    descriptor: int,
    size_bytes: int,
    scan: BatchScan,
    on_progress: Callable[[], None],
    progress: Progress | None = None,
) -> ScanResult:
    """Reads a segment's file from its beginning and checks each batch. `on_progress` is called from time to time, and
    takes the collected results out of `scan`."""
    window = _Window(files, descriptor, size_bytes)
    reported = 0
    fault: str | None = None
    while window.position < size_bytes:
        if window.position + HEADER_SIZE > window.end:
            window.fetch(min(HEADER_SIZE, size_bytes - window.position))
        begin = window.position - window.start
        good = scan.feed(window.buffer, begin, window.end - window.start, window.position)
        if good:
            window.position += good
            on_progress()
            if progress is not None and window.position - reported >= _SCAN_BUFFER_BYTES:
                progress(window.position - reported)
                reported = window.position
            continue
        fault = window.fault(scan.last_offset)
        if fault is not None:
            break
    if progress is not None and window.position > reported:
        progress(window.position - reported)
    return ScanResult(window.position, scan.last_offset + 1, fault)


def _is_legacy_message(view: memoryview) -> bool:
    """Returns true if `view` begins with a message of format v0 or v1 that has a correct CRC. Such data are not an
    incomplete write, and must not be changed."""
    if len(view) < LENGTH_OVERHEAD:
        return False
    length = read_batch_length(view)
    end = LENGTH_OVERHEAD + length
    if length < MAGIC_OFFSET - LENGTH_OVERHEAD or end > len(view):
        return False
    return zlib.crc32(view[MAGIC_OFFSET:end]) == int.from_bytes(view[LENGTH_OVERHEAD:MAGIC_OFFSET], "big")


def rebuild_segment(
    segment: LogSegment,
    files: FileLayer,
    epochs: LeaderEpochs | None,
    progress: Progress | None = None,
    *,
    keeps_end: bool = False,
    synced_end: int = 0,
) -> ScanResult:
    """Checks all of a segment, rebuilds its indexes, and cuts its file after the last good batch. With `keeps_end` the
    part that is cut off is saved in a separate file. If there is a fault below the offset `synced_end`, the result
    with this fault is returned and nothing is cut."""
    descriptor = segment.file.handle().fileno()
    file_bytes = files.size(descriptor)
    segment.offset_index.reset()
    segment.time_index.reset()
    scan = BatchScan(
        segment.base_offset, segment.index_interval_bytes, _INT32_MAX if epochs is None else epochs.latest_epoch
    )

    def take() -> None:
        segment.note_entries(scan.take_entries())
        if epochs is not None:
            for epoch, offset in scan.take_epochs():
                epochs.assign(epoch, offset)

    result = scan_batches(files, descriptor, file_bytes, scan, take, progress)
    if result.fault is not None and result.next_offset < synced_end:
        return result
    segment.note_scanned(scan.first_timestamp, scan.max_timestamp, scan.max_timestamp_offset, scan.bytes_since_entry)
    if result.valid_bytes < file_bytes:
        if keeps_end and result.fault is not None:
            keep_end(files, segment.file.path, descriptor, result.valid_bytes, file_bytes)
        _cut_file(files, segment, result.valid_bytes)
    segment.size_bytes = result.valid_bytes
    segment.unchecked_bytes = 0
    if segment.max_timestamp >= 0:
        segment.time_index.append(segment.max_timestamp, segment.max_timestamp_offset, sealing=True)
    segment.trim()
    return result


def _cut_file(files: FileLayer, segment: LogSegment, size_bytes: int) -> None:
    """Cuts a segment's file to `size_bytes`. If the file is shared with a branch, it is replaced by a shorter copy,
    and the branch keeps the old file."""
    if is_shared(files, segment.file.path):
        segment.file.close()
        files.close(own_copy(files, segment.file.path, size_bytes))
    else:
        files.truncate(segment.file.handle().fileno(), size_bytes)


def _may_be_left_of(left: BatchHeader, whole: BatchHeader | None) -> bool:
    """Returns true if the batch `left` may be a copy of the batch `whole`, or what compaction has kept of it. `whole`
    is the batch at the same offset in an older segment."""
    if whole is None:
        return False
    if left.crc == whole.crc:
        return True
    is_changed = left.record_count < whole.record_count or (left.has_delete_horizon and not whole.has_delete_horizon)
    return is_changed and all(
        getattr(left, name) == getattr(whole, name)
        for name in ("last_offset_delta", "producer_id", "producer_epoch", "base_sequence")
    )


def _is_named_by_offset(name: str, suffix: str) -> bool:
    """Returns true if the name is that of a segment's file: 20 digits and the suffix. Other files are not part of the
    log."""
    stem = name.removesuffix(suffix)
    return len(stem) == _NAME_DIGITS and stem + suffix == name and stem.isascii() and stem.isdigit()


class LogLoader:
    """Loads the log of one directory. Loaders share no state, so several may run in threads at once."""

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        files: FileLayer,
        *,
        clean: bool,
        recovery_point: int,
        log_start_offset: int,
        now_ms: int,
        producer_expiration_ms: int = 86_400_000,
        progress: Progress | None = None,
    ) -> None:
        self._directory = directory
        self._config = config
        self._files = files
        self._clean = clean
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._progress = progress
        self._open_files = OpenFiles(files)
        self._producers = ProducerState(producer_expiration_ms)
        #: Base offsets of the segments whose transaction indexes must be rebuilt.
        self._unindexed: set[int] = set()
        self._notes: list[str] = []
        #: Base offsets of segments that were found to be damaged. They are inspected from end to end.
        self._suspects: set[int] = set()
        #: Base offsets of segments that were being deleted when the broker stopped.
        self._deleted: set[int] = set()
        #: All segments that were read. They are closed if the log cannot be opened.
        self._made: list[LogSegment] = []
        #: True after a clean shutdown: then missing records were acknowledged, and a gap between segments is intended.
        self._stopped_in_order = clean

    def load(self) -> LoadedLog:
        """Repairs the log on the disk and returns it. Raises KafkaStorageError if it cannot be opened."""
        try:
            while True:
                try:
                    return self._load()
                except DamagedSegmentError as error:
                    self._close()
                    self._unindexed.clear()
                    if error.base_offset not in self._suspects:
                        self._suspects.add(error.base_offset)
                        continue
                    # This loop ends, because batches that were checked cannot be found damaged again.
                    if not self._clean and error.base_offset >= self._recovery_point:
                        raise KafkaStorageError(
                            f"The log in {self._directory} cannot be opened: {error.message} Check the disk."
                        ) from error
                    how = "closed in order" if self._clean else f"synced up to offset {self._recovery_point}"
                    self._notes.append(f"it was marked as {how}, but {error.message}")
                    self._clean, self._recovery_point = False, error.base_offset
        except OSError as error:
            self._close()
            what = f"{error.filename}: {cause_of(error)}" if error.filename else cause_of(error)
            raise KafkaStorageError(
                f"The log in {self._directory} cannot be opened ({what}): {remedy_of(error)}."
            ) from error
        except UnsupportedForMessageFormatError as error:
            self._close()
            raise KafkaStorageError(
                f"The log in {self._directory} holds messages of format 0 or 1, which this release does not read "
                f"yet; it was left as it is."
            ) from error

    def _close(self) -> None:
        """Closes the files of the log after it could not be opened."""
        made, self._made = self._made, []
        for segment in made:
            segment.close()

    def _load(self) -> LoadedLog:
        self._files.mkdir(self._directory)
        names = self._settle_leftovers()
        segments = self._find_segments(names)
        self._load_transaction_indexes(segments, names)
        epochs = (
            epochs_file.read_leader_epochs(self._directory, self._files) if epochs_file.FILE_NAME in names else None
        )
        has_data = any(segment.size_bytes for segment in segments)
        stored_epochs = None if epochs is None else epochs.entries()
        # If the file is missing after a crash, recovery finds the leader epochs in the batches that it reads.
        scans_all = not self._clean and (len(segments) < 2 or segments[1].base_offset > self._recovery_point)
        rebuild_epochs = epochs is None and has_data and not scans_all
        epochs = epochs if epochs is not None else LeaderEpochs()
        if not self._clean:
            segments = self._recover(segments, epochs)
        else:
            self._check_indexes(segments, len(segments))
        next_offset = self._end_of(segments)
        log_start_offset = max(self._log_start_offset, segments[0].base_offset if segments else 0)
        created = not segments or next_offset < log_start_offset
        if created:
            for segment in segments:
                self._drop(segment, f"it ends at {next_offset}, before the log's start {log_start_offset}")
            first = self._new_segment(log_start_offset)
            first.create(self._config)
            segments, next_offset = [first], log_start_offset
        if rebuild_epochs:
            self._rebuild_epochs(segments, epochs)
        # A leader epoch may begin at the log's end, because its leader has not written yet. But after a crash such an
        # epoch may also belong to records that were lost.
        epochs.truncate_from_end(next_offset + 1 if self._clean else next_offset)
        epochs.truncate_from_start(log_start_offset)
        if epochs.entries() != (stored_epochs or []):
            # After a crash the log's next flush syncs this file.
            epochs_file.write_leader_epochs(self._directory, epochs.entries(), self._files, sync=self._clean)
        if names:  # a new log has no producers
            self.load_producers(segments, log_start_offset, next_offset)
        self._make_ready(segments)
        recovery_point = next_offset if self._clean else min(self._recovery_point, next_offset)
        is_synced = self._clean and not created and not self._notes
        return LoadedLog(
            self._directory,
            segments,
            self._producers,
            epochs,
            log_start_offset,
            next_offset,
            max(recovery_point, 0),
            is_synced,
            self._notes,
        )

    def _make_ready(self, segments: list[LogSegment]) -> None:
        """Seals all segments except the last segment, which takes the appends. Writes the indexes and closes the
        files."""
        for segment in segments[:-1]:
            segment.is_sealed = True
        last = segments[-1]
        if is_shared(self._files, last.file.path):
            # The file takes appends from now on, which must not change the file of a branch.
            last.file.close()
            self._files.close(own_copy(self._files, last.file.path, last.size_bytes))
        last.load_timestamps()
        for segment in segments:
            segment.file.close()
            segment.write_indexes()
            if segment is not last:
                segment.unload_indexes()

    # -- files --------------------------------------------------------------------------------------------------------

    def _settle_leftovers(self) -> list[str]:
        names = self._files.names(self._directory)
        suffix = LOG_SUFFIX + DELETED_SUFFIX
        self._deleted.update(int(name.removesuffix(suffix)) for name in names if _is_named_by_offset(name, suffix))
        settled = False
        for name in names:
            if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, ".tmp")):
                self._files.unlink(self._directory / name)
                settled = True
        swaps = sorted(name for name in names if _is_named_by_offset(name, LOG_SUFFIX + SWAP_SUFFIX))
        for name in swaps:
            self._finish_swap(name)
        for name in names:
            # These are index files of a `.swap` segment that was incomplete, or whose renaming has ended.
            if any(
                _is_named_by_offset(name, suffix + SWAP_SUFFIX)
                for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
            ):
                self._files.unlink(self._directory / name)
                settled = True
        return self._files.names(self._directory) if settled or swaps else names

    def _finish_swap(self, name: str) -> None:
        """Completes a compaction: replaces the segments that its result (`name`) covers by the result."""
        stem = name.split(".", 1)[0]
        base_offset = int(stem)
        path = self._directory / name
        swapped_in = LogSegment(
            self._directory,
            base_offset,
            self._config,
            self._files,
            self._open_files,
            created_ms=0,
            size_bytes=path.stat().st_size,
        )
        swapped_in.file.path = path
        last = base_offset
        try:
            for _, header in swapped_in.headers():
                last = header.last_offset
        except DamagedSegmentError as error:
            kept = keep_whole(self._files, path)
            self._notes.append(
                f"{name}: the result of a compaction is damaged and not used, it is kept in {kept.name}: "
                f"{error.message}"
            )
            return
        finally:
            swapped_in.close()
        for other in self._files.names(self._directory):
            if _is_named_by_offset(other, LOG_SUFFIX) and base_offset <= int(other.split(".", 1)[0]) <= last:
                for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                    self._files.unlink(self._directory / (other.removesuffix(LOG_SUFFIX) + suffix))
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, LOG_SUFFIX):
            swapped = self._directory / (stem + suffix + SWAP_SUFFIX)
            if swapped.exists():
                self._files.rename(swapped, self._directory / (stem + suffix))
        self._notes.append(f"{name}: an interrupted compaction was completed")

    def _find_segments(self, names: list[str]) -> list[LogSegment]:
        offsets = sorted(int(name.removesuffix(LOG_SUFFIX)) for name in names if _is_named_by_offset(name, LOG_SUFFIX))
        present, known = {file_name(offset, "") for offset in offsets}, {file_name(offset, "") for offset in offsets}
        for name in names:
            stem, _, suffix = name.partition(".")
            if f".{suffix}" in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX) and stem not in present:
                self._files.unlink(self._directory / name)
                if stem not in known and _is_named_by_offset(name, f".{suffix}"):
                    known.add(stem)
                    self._notes.append(
                        f"{stem}{LOG_SUFFIX} is missing, though {name} is there: records from offset {int(stem)} on "
                        f"are lost"
                    )
        return [
            self._new_segment(offset, (self._directory / file_name(offset, LOG_SUFFIX)).stat().st_size)
            for offset in offsets
        ]

    def _load_transaction_indexes(self, segments: list[LogSegment], names: list[str]) -> None:
        present = {
            int(name.removesuffix(TXN_INDEX_SUFFIX)) for name in names if _is_named_by_offset(name, TXN_INDEX_SUFFIX)
        }
        for segment in segments:
            if segment.base_offset in present:
                try:
                    segment.load_transaction_index()
                except CorruptIndexError as error:
                    segment.forget_transaction_index()
                    self._unindexed.add(segment.base_offset)
                    self._notes.append(f"{file_name(segment.base_offset, TXN_INDEX_SUFFIX)} was rebuilt: {error}")

    def _new_segment(self, base_offset: int, size_bytes: int = 0) -> LogSegment:
        made = LogSegment(
            self._directory,
            base_offset,
            self._config,
            self._files,
            self._open_files,
            created_ms=self._now_ms,
            size_bytes=size_bytes,
        )
        made.unchecked_bytes = size_bytes
        self._made.append(made)
        return made

    def _drop(self, segment: LogSegment, why: str) -> None:
        if self._stopped_in_order and segment.size_bytes:
            segment.file.close()
            kept = keep_whole(self._files, segment.file.path)
            self._notes.append(
                f"{segment.file.path.name}: {segment.size_bytes} bytes are no longer a part of the log, {why}; they "
                f"are saved in {kept.name}"
            )
            for path in segment.paths()[1:]:
                self._files.unlink(path)
            self._files.unlink(self._directory / file_name(segment.base_offset, SNAPSHOT_SUFFIX))
            return
        self._notes.append(f"{segment.file.path.name}: {segment.size_bytes} bytes were dropped, {why}")
        for path in segment.mark_deleted():
            self._files.unlink(path)
        self._files.unlink(self._directory / file_name(segment.base_offset, SNAPSHOT_SUFFIX))

    # -- content ------------------------------------------------------------------------------------------------------

    def _recover(self, segments: list[LogSegment], epochs: LeaderEpochs) -> list[LogSegment]:
        if self._config.compact:
            segments = self._without_covered(segments)
        first = 0
        for index, segment in enumerate(segments):
            if segment.base_offset <= self._recovery_point:
                first = index
        self._check_indexes(segments, first)
        # The file may be older than a truncation; the epochs in the batches that are read here are correct.
        epochs.truncate_from_end(self._recovery_point if first else 0)
        ends: list[int] = []
        for index in range(first, len(segments)):
            segment = segments[index]
            segment.forget_transaction_index()
            self._unindexed.add(segment.base_offset)
            positions = indexed_positions(segment)
            result = rebuild_segment(
                segment,
                self._files,
                epochs,
                self._progress,
                keeps_end=self._stopped_in_order,
                synced_end=self._recovery_point,
            )
            if result.fault is not None and result.next_offset < self._recovery_point:
                result = self._mend(segments, index, self._recovery_point, positions)
                for _, header in segment.headers():
                    if header.partition_leader_epoch > epochs.latest_epoch:
                        epochs.assign(header.partition_leader_epoch, header.base_offset)
            segment.file.close()
            ends.append(result.next_offset)
            following = segments[index + 1].base_offset if index + 1 < len(segments) else result.next_offset
            if result.fault is not None:
                self._notes.append(f"{segment.file.path.name}: cut to {result.valid_bytes} bytes, since {result.fault}")
            may_be_loss = 0 < self._recovery_point <= result.next_offset and not self._config.compact
            is_hole = following > result.next_offset and may_be_loss and self._is_loss(result.next_offset, following)
            if result.fault is not None or following < result.next_offset or is_hole:
                for later in segments[index + 1 :]:
                    self._drop(later, f"since the records before it are lost from {result.next_offset} on")
                segments = segments[: index + 1]
                break
        while (
            len(ends) > 1
            and not segments[-1].size_bytes
            and segments[-1].base_offset > ends[-2]
            and self._is_loss(ends[-2], segments[-1].base_offset)
        ):
            self._drop(segments.pop(), f"since the records before it are lost from {ends[-2]} on")
            ends.pop()
        return segments

    def _without_covered(self, segments: list[LogSegment]) -> list[LogSegment]:
        """Removes segments that are covered by the result of a compaction. It is for a result that has its final name,
        while the disk has lost the renaming of the covered segments."""
        kept: list[LogSegment] = []
        left = segments
        while left:
            segment, left = left[0], left[1:]
            kept.append(segment)
            # The last segment is the active segment, which is never compacted.
            covered = [later for later in left[:-1] if later.base_offset <= self._last_offset_of(segment)]
            if covered and self._is_result_of(segment, covered):
                for later in covered:
                    self._drop(later, f"since {segment.file.path.name} has what a compaction has left of them")
                left = left[len(covered) :]
        return kept

    def _last_offset_of(self, segment: LogSegment) -> int:
        """Returns the last offset of a segment; -1 if it is empty, or its batch headers are not valid."""
        position = last = -1
        try:
            entry = segment.offset_index.last()
            if entry is not None and entry[1] < segment.size_bytes:
                position = entry[1]
            for _, header in segment.headers(max(position, 0)):
                if (
                    last < 0 <= position
                    and entry is not None
                    and not header.base_offset <= entry[0] <= header.last_offset
                ):
                    raise CorruptIndexError("the index is another file's")
                last = header.last_offset
        except (CorruptIndexError, DamagedSegmentError, OSError):
            with suppress(DamagedSegmentError):
                for _, header in segment.headers():
                    last = header.last_offset
        return last

    def _is_result_of(self, segment: LogSegment, covered: Sequence[LogSegment]) -> bool:
        """Returns true if `segment` is the result of a compaction of the segments `covered`. It is if all its batches
        in the offset range of `covered` come from batches of these segments, or from segments whose names end in
        `.deleted`. Otherwise the segments may overlap because an offset is damaged."""
        try:
            found = [header for _, header in segment.headers() if header.last_offset >= covered[0].base_offset]
            there = [{header.base_offset: header for _, header in later.headers()} for later in covered]
        except DamagedSegmentError:
            return False
        for batch in found:
            owner = bisect_right(covered, batch.base_offset, key=lambda later: later.base_offset) - 1
            if owner < 0:
                return False
            if batch.base_offset <= max((header.last_offset for header in there[owner].values()), default=-1):
                if not _may_be_left_of(batch, there[owner].get(batch.base_offset)):
                    return False
            elif not any(covered[owner].base_offset < deleted <= batch.base_offset for deleted in self._deleted):
                return False
        return bool(found)

    def _is_loss(self, end: int, following: int) -> bool:
        """Returns true if records were lost between the offsets `end` and `following`. The segment after this gap is
        empty or has no synced records. Returns false if retention, or a compaction of synced records, may have made
        the gap."""
        is_compacted = self._config.compact and end < self._recovery_point
        return (
            following > self._log_start_offset
            and not self._stopped_in_order
            and end not in self._deleted
            and not is_compacted
        )

    def _check_indexes(self, segments: list[LogSegment], count: int) -> None:
        """Rebuilds missing or obviously wrong indexes of the first `count` segments. The content of an index is
        checked only when it is first needed."""
        for index, segment in enumerate(segments[:count]):
            broken = not segment.offset_index.exists() or not segment.time_index.exists()
            if not (broken or segment.base_offset in self._suspects) and segment is segments[-1]:
                segment.check_indexes()
            if segment.size_bytes and (broken or segment.base_offset in self._suspects):
                self._notes.append(f"{segment.file.path.name}: its indexes were rebuilt")
                result = self._mend(segments, index, _INT64_MAX, indexed_positions(segment))
                segment.file.close()
                if result.fault is not None:
                    self._notes.append(
                        f"{segment.file.path.name}: cut to {result.valid_bytes} bytes, since {result.fault}; the "
                        f"rest is kept beside it"
                    )
                    if segment.transaction_index is not None:
                        segment.transaction_index.truncate_to(result.next_offset)

    def _mend(self, segments: list[LogSegment], index: int, synced_end: int, positions: Sequence[int]) -> ScanResult:
        """Repairs a segment with damage to synced records (records below the offset `synced_end`). Good batches after
        the damage are kept, and the damaged parts are recorded, so that reads of them are refused. If no synced batch
        follows the damage, the end of the file is cut off and saved in a separate file. A follower then fetches the
        records again from its leader. `positions` are the batch positions from the former index."""
        segment, is_last = segments[index], index + 1 == len(segments)
        descriptor = segment.file.handle().fileno()
        segment.size_bytes = segment.unchecked_bytes = self._files.size(descriptor)
        following = _INT64_MAX if is_last else segments[index + 1].base_offset
        checked = segment.checked
        if checked is None:
            return ScanResult(0, segment.base_offset, None)
        entries = inspect(segment, following, positions)
        end = following
        cut: Damage | None = None
        for damage in checked.damaged:
            if _is_legacy_message(
                memoryview(
                    segment.read_bytes(damage.position, min(_LEGACY_CHECK_BYTES, segment.size_bytes - damage.position))
                )
            ):
                raise UnsupportedForMessageFormatError(f"{segment.file.path} has message sets")
            at_end = damage.end_position >= segment.size_bytes
            if (at_end and is_last) or damage.next_offset >= synced_end:
                cut, end = damage, damage.offset
                keep_end(self._files, segment.file.path, descriptor, damage.position, segment.size_bytes)
                _cut_file(self._files, segment, damage.position)
                segment.size_bytes = segment.unchecked_bytes = damage.position
                checked.forget_from(damage.position)
                break
            self._notes.append(f"{damage.described(segment.file.path)}.")
        segment.rebuild_indexes_from([entry for entry in entries if entry.position < segment.size_bytes])
        if cut is None and is_last:
            place = segment.last_place()
            end = segment.base_offset if place is None else place.last_offset + 1
        return ScanResult(segment.size_bytes, end, None if cut is None else cut.reason)

    def _end_of(self, segments: list[LogSegment]) -> int:
        if not segments:
            return 0
        last = segments[-1]
        place = last.last_place()
        return last.base_offset if place is None else place.last_offset + 1

    def _rebuild_epochs(self, segments: list[LogSegment], epochs: LeaderEpochs) -> None:
        epochs.clear()
        for segment in segments:
            for _, header in segment.headers():
                if header.partition_leader_epoch > epochs.latest_epoch:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        self._notes.append(f"{epochs_file.FILE_NAME} was rebuilt")

    def load_producers(self, segments: list[LogSegment], log_start_offset: int, next_offset: int) -> None:
        """Restores the state of the producers from the newest usable snapshot and the batch headers after it."""
        replay_producers(
            self._producers,
            self._directory,
            self._files,
            segments,
            log_start_offset,
            next_offset,
            self._now_ms,
            unindexed=self._unindexed,
        )


def replay_producers(
    producers: ProducerState,
    directory: Path,
    files: FileLayer,
    segments: list[LogSegment],
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    copies: bool = False,
    unindexed: Set[int] = frozenset(),
) -> None:
    """Sets `producers` to the state after all batches below `end_offset`. Snapshots above that offset and damaged
    snapshots are removed. With `copies` the segments belong to another thread, and copies of them are read. For the
    segments in `unindexed` (base offsets) the transaction index is filled."""
    producers.clear()
    replay_from = log_start_offset
    newest_wanted = min(unindexed, default=end_offset)
    for offset in reversed(snapshot_offsets(directory, files)):
        path = directory / file_name(offset, SNAPSHOT_SUFFIX)
        if newest_wanted < offset <= end_offset:
            continue
        if offset <= end_offset:
            try:
                producers.load(decode_snapshot(files.read_file(path), now_ms))
                replay_from = max(offset, log_start_offset)
                break
            except CorruptMessageError:
                pass
        files.unlink(path)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if following <= replay_from or segment.size_bytes == 0:
            continue
        if not copies:
            for aborted in _replay_segment(producers, files, segment, replay_from, end_offset, now_ms):
                if segment.base_offset in unindexed:
                    segment.note_aborted(aborted)
            continue
        copy = segment.copy()
        try:
            for _ in _replay_segment(producers, files, copy, replay_from, end_offset, now_ms):
                pass
        finally:
            copy.close()


def _replay_segment(
    producers: ProducerState, files: FileLayer, segment: LogSegment, replay_from: int, end_offset: int, now_ms: int
) -> Iterator[AbortedTransaction]:
    """Applies a segment's batches to the producers' state, and yields the transactions that they have aborted."""
    damage = None if segment.checked is None else segment.checked.damage_at(replay_from)
    if damage is not None:
        start: int | None = damage.end_position
    else:
        place = (
            segment.find(replay_from)
            if segment.base_offset < replay_from
            else segment.place_at(segment.after_damage(0))
        )
        start = None if place is None else place.position
    if start is not None:
        for position, header in _producers_headers(segment, files, start, end_offset):
            aborted = replay_header(producers, segment, position, header, now_ms)
            if aborted is not None:
                yield aborted


def _producers_headers(
    segment: LogSegment, files: FileLayer, position: int, end_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Yields the position and header of the batches below `end_offset` that are needed for the producers' state: the
    last batches of each producer, and transaction markers."""
    descriptor = segment.file.handle().fileno()
    buffer = memoryview(bytearray(min(_HEADERS_BUFFER_BYTES, max(0, segment.size_bytes - position))))
    scan = ProducerScan(BATCHES_REMEMBERED)
    while True:
        following, position = 0, segment.after_damage(position)
        if position < segment.size_bytes:
            count = files.pread_into(descriptor, buffer[: segment.next_damage(position) - position], position)
            following = scan.feed(buffer, 0, count, position, end_offset)
            position += following
        if following:
            continue
        found = scan.take()
        for at in found:
            yield at, segment.header_at(at)
        if scan.ended or position >= segment.size_bytes:
            return
        if not found:
            raise DamagedSegmentError(
                segment.base_offset, f"{segment.file.path} has no whole batch at position {position}."
            )


def replay_header(
    producers: ProducerState, segment: LogSegment, position: int, header: BatchHeader, now_ms: int
) -> AbortedTransaction | None:
    """Applies a batch of the log to the producers' state. Returns the transaction that the batch has aborted, or
    None."""
    if not header.is_control:
        producers.apply(header, header.base_offset, header.max_timestamp, now_ms)
        return None
    try:
        marker = read_marker(segment.read_bytes(position, header.size_bytes))
        return None if marker is None else producers.apply_marker(header, header.base_offset, marker, now_ms)[1]
    except KafkaError:
        return None
