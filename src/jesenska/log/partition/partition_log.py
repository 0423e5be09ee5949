"""A partition's log: an ordered list of segments. Appends go to the last segment. One thread (the broker's event loop)
owns the log. Other threads get bytes to write and files to sync, but never see the log's own state.

Some operations on a log are in other modules:

    leader_appends, follower_appends    batches are checked and get their offsets
    reading                             the bytes of a file for an offset, or the offset for a time
    log_start                           records and segments that are deleted at the start of the log
    closing                             the end of a log
    log_cleaner                         compaction: new segments that replace others

An append has three phases:

    1  on the loop      sequence check, roll if needed, offsets written into the caller's buffer; `next_offset` rises
    2  write            one pwrite from the caller's buffer at the position that phase 1 gave
    3  publish          indexes, `segment.size_bytes`, `log_end_offset`: readers see the batch

If no flush of the directory is in progress, all three phases happen in the call. During a flush a write may wait for
the disk. So the bytes are copied and the write is queued for the directory's writer thread, after earlier writes. The
callbacks of a queued append are called on the loop after phase 3. While appends of this log are queued, later appends
are queued after them.

A write that fails (disk full) is undone: the file is cut to its published size, offsets and producers are restored,
and everything queued after it also fails with KAFKA_STORAGE_ERROR. Reads go on; the next append tries again. After a
failed fsync the content of the disk is unknown: the log accepts no appends until the broker is started again and has
recovered it.

A truncation (module truncation) begins after everything that is queued. From the request of the truncation to its end
the log accepts no appends.

The list of segments is a tuple that is replaced, never changed. So a reader can use the tuple that it took while
segments are deleted.

Recovery point: everything below it is synced. It moves after a roll (the sealed segment is synced in the background),
after `flush`, and at a clean shutdown. A crash loses nothing below it; the next start checks everything above it
(recovery).

Tiered storage is not implemented."""

from __future__ import annotations

import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

from jesenska.base.errors import KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.system_errors import cause_of, remedy_of
from jesenska.log.disk.background import DirectoryWriter
from jesenska.log.disk.epochs_file import EpochsFile
from jesenska.log.disk.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.append_queue import AppendQueue, Pending, PendingAppend, PendingBarrier, PendingRoll
from jesenska.log.partition.log_flush import FileWrite, FlushWork, LogFlush
from jesenska.log.partition.recovery import LoadedLog
from jesenska.log.partition.truncation import NO_CLEANER, Cleaner, FileChanges, Truncated, Truncation, Truncations
from jesenska.log.partition.unsynced import Unsynced
from jesenska.log.segments.producer_snapshots import ProducerSnapshots
from jesenska.log.segments.producer_state import AbortedTransaction, ProducerState, Undo, encode_snapshot
from jesenska.log.segments.segment import LogSegment
from jesenska.log.segments.segment_file import OpenFile, OpenFiles
from jesenska.log.segments.tail import LogTail, PublishedBatch

logger = logging.getLogger(__name__)

#: A function that is called with None when a queued write is published, or with its error.
Finish = Callable[[KafkaError | None], None]


class PartitionLog:
    """The log of one partition. Operations that need only a few fields of the log are in other modules (see the top of
    this file). The class is long because appends, rolls, truncations and failures of the queue change the same offsets
    and positions, which must agree after each step."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        loaded: LoadedLog,
        config: LogConfig,
        files: FileLayer,
        open_files: OpenFiles,
        writer: DirectoryWriter,
        *,
        topic_id: uuid.UUID | None = None,
        now_ms: int = 0,
        jitter: Callable[[int], int] = lambda limit_ms: 0,
        high_watermark: int = 0,
        cleaner: Cleaner = NO_CLEANER,
    ) -> None:
        """`high_watermark` is the high watermark in the checkpoint. If it is below the log start offset or above the
        log end offset, the nearer of these two is used. `cleaner` is called before segments are removed."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = loaded.directory
        self.config = config
        self.leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        #: The log end offset: the offset after the last record that readers can see.
        self.log_end_offset = loaded.next_offset
        #: The offset of the next append. It is above the log end offset while writes are queued.
        self.next_offset = loaded.next_offset
        #: The high watermark. Replication raises it, and a truncation lowers it: log start offset <= high watermark <=
        #: log end offset.
        self.high_watermark = min(max(high_watermark, loaded.log_start_offset), loaded.next_offset)
        self.producers.high_watermark_moved(self.high_watermark)
        #: A function that is called after the log start offset was raised.
        self.on_log_start_moved: Callable[[], None] = _nothing
        #: The segments, oldest first. The tuple is replaced, never changed.
        self.segments: tuple[LogSegment, ...] = tuple(loaded.segments)
        self.files = files
        self._open_files = open_files
        self.writer = writer
        self._jitter = jitter
        self.epochs_file = EpochsFile(loaded.leader_epochs, loaded.directory, files)
        self.snapshots = ProducerSnapshots(loaded.directory, files)
        self.unsynced = Unsynced(self.epochs_file, self.snapshots, is_new=not loaded.is_synced)
        #: Appends, rolls and truncations that wait for the writer thread.
        self.queue = AppendQueue(writer, files, self._published, self._rolled, self._queue_failed)
        self.flushes = self._flushes_of(loaded, now_ms)
        #: True while the log accepts no appends. Then `check_writable` raises the reason.
        self.is_hindered = False
        self._torn_tail = False
        self._cleaner = cleaner
        #: Runs truncations; None until the first truncation or hold, because most logs never have one.
        self._truncations: Truncations | None = None
        self.is_closed = False
        #: The last segment, to which batches are appended.
        self.active_segment = self.segments[-1]
        #: The position of the next append in the active segment. It is above the segment's size while writes are
        #: queued.
        self.write_position = self.active_segment.size_bytes
        self.tail = LogTail(self.active_segment)
        self._open_segments()

    def _flushes_of(self, loaded: LoadedLog, now_ms: int) -> LogFlush:
        flushes = LogFlush(
            self.writer,
            self.files,
            loaded.recovery_point,
            self._collect,
            self._describe_flush_failure,
            self.unsynced.give_back,
            now_ms,
        )
        # Batches above the recovery point may be only in the page cache. If a producer repeats such a batch, the
        # response must wait until the batch is synced.
        flushes.unflushed_records = max(0, loaded.next_offset - loaded.recovery_point)
        return flushes

    def _open_segments(self) -> None:
        """Adds the segments' files to the cache of open files, and prepares the active segment for appends."""
        for segment in self.segments:
            segment.file.move_to(self._open_files)
        self.active_segment.activate()
        self.active_segment.jitter_ms = self._jitter(self.config.segment_jitter_ms)

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset, below which a read-committed consumer may read: the high watermark, or the first
        offset of the oldest open transaction."""
        unstable = self.producers.first_unstable_offset
        return (
            self.high_watermark if unstable is None else min(max(unstable, self.log_start_offset), self.high_watermark)
        )

    def move_high_watermark(self, offset: int) -> None:
        """Sets the high watermark to `offset`, after replication has committed everything below it."""
        self.high_watermark = offset
        self.producers.high_watermark_moved(offset)

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is synced."""
        return self.flushes.recovery_point

    @property
    def is_failed(self) -> bool:
        """True after a failed fsync, or after a truncation that could not change its files. The log then accepts no
        appends, and the next start must recover it."""
        return self.flushes.failure is not None or (
            self._truncations is not None and self._truncations.has_open_changes
        )

    @property
    def has_queued_appends(self) -> bool:
        """True while the directory's writer thread has work for the log: appends, a roll, or a truncation."""
        return bool(self.queue.waiting) or (self._truncations is not None and self._truncations.is_under_way)

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(
        self,
        buffer: memoryview,
        batches: Sequence[PublishedBatch],
        changes: list[Undo],
        end_offset: int,
        finish: Finish | None,
        epochs: Sequence[tuple[int, int]] = (),
        aborted: Sequence[AbortedTransaction] = (),
    ) -> None:
        """Writes batches that have their offsets, up to `end_offset`, and publishes them. Without `finish` this
        happens immediately, and raises KAFKA_STORAGE_ERROR if the write fails. With `finish` the bytes are copied and
        the write is queued. `finish` is called on the owner's thread after the batches are published, or with the
        error.

        If the write fails, `changes` of the producers are undone. After the batches are published, the leader `epochs`
        that begin in them are added to the epoch table (`note_epochs`), and the transactions that they have `aborted`
        to the transaction index."""
        segment, position = self.active_segment, self.write_position
        size_bytes = len(buffer)
        if finish is not None:
            self.queue.submit(
                PendingAppend(segment, position, bytes(buffer), batches, changes, finish, epochs, aborted)
            )
        else:
            try:
                self.files.write_all(segment.file.handle().fileno(), buffer, position)
            except OSError as error:
                self.producers.undo(changes)
                self._cut_torn_tail()
                raise self.storage_error(error) from error
            self._publish(segment, position, batches, aborted)
            self.note_epochs(epochs)
        self.next_offset = end_offset
        self.write_position = position + size_bytes

    def _publish(
        self,
        segment: LogSegment,
        write_position: int,
        batches: Sequence[PublishedBatch],
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        """Publishes an append (its third phase): makes the batches visible to readers."""
        for transaction in aborted:
            segment.note_aborted(transaction)
        note = self.tail.note
        last_offset = self.log_end_offset - 1
        for position, size_bytes, base_offset, last_offset, timestamp in batches:
            position += write_position
            segment.note_batch(position, size_bytes, last_offset, timestamp)
            note(segment, position, base_offset, last_offset)
            segment.size_bytes = position + size_bytes
        self.flushes.unflushed_records += last_offset + 1 - self.log_end_offset
        self.log_end_offset = last_offset + 1

    def _published(self, pending: PendingAppend) -> None:
        """Publishes the batches of a queued write after they were written to the file."""
        self._publish(pending.segment, pending.write_position, pending.batches, pending.aborted)
        self.note_epochs(pending.epochs)
        for finish in pending.finish:
            finish(None)

    def _rolled(self, roll: PendingRoll) -> None:
        """Finishes a queued roll after the files of the new segment were made. Everything queued before the roll is
        published."""
        assert roll.opened is not None
        if self.is_closed:
            roll.opened.release()
            return
        roll.created.file.adopt(roll.opened)
        self._pass_gap(roll.created)
        self._seal(roll.sealed)

    def _queue_failed(self, failed: list[Pending], error: OSError) -> None:
        """Undoes a queued write that has failed, and everything queued after it, and reports the error to the
        appends."""
        appends = [item for item in failed if isinstance(item, PendingAppend)]
        failure = (
            self.storage_error(error)
            if not self.is_closed
            else KafkaStorageError(f"The log of {self.topic_partition} is closed.")
        )
        first = next((item for item in failed if not isinstance(item, PendingBarrier)), None)
        if first is not None and not self.is_closed:
            self._take_back(first, appends)
        for pending in appends:
            for finish in pending.finish:
                finish(failure)
        for item in failed:
            if isinstance(item, PendingBarrier):
                item.reached()

    def _take_back(self, first: PendingAppend | PendingRoll, appends: list[PendingAppend]) -> None:
        """Restores the log to its state before the first failed item of the queue. All later items of the queue are
        undone as well."""
        for pending in reversed(appends):
            self.producers.undo(pending.changes)
        last_kept = first.segment if isinstance(first, PendingAppend) else first.sealed
        kept = self.segments[: self.segments.index(last_kept) + 1]
        for segment in self.segments[len(kept) :]:
            with suppress(OSError):  # the disk is broken: the next start finds the files past the log's end
                self._remove_files(segment.mark_deleted())
            self.snapshots.remove(segment.base_offset)
        self.segments = kept
        self.unsynced.names_changed()
        self.active_segment = kept[-1]
        self.next_offset = self.log_end_offset
        self.write_position = self.active_segment.size_bytes
        self._cut_torn_tail()
        latest_epoch = self.leader_epochs.latest_epoch
        if self.leader_epochs.truncate_from_end(self.log_end_offset):
            self.assign_leader_epoch(latest_epoch, self.log_end_offset)
            self.epochs_file.changed()

    def _remove_files(self, paths: Sequence[Path]) -> None:
        for path in paths:
            with suppress(OSError):
                self.files.unlink(path)

    def _cut_torn_tail(self) -> None:
        """Cuts the active segment's file to its published size. If that fails, the next append first tries the cut
        again."""
        try:
            self.files.truncate(self.active_segment.file.handle().fileno(), self.active_segment.size_bytes)
            self._torn_tail = False
        except OSError:
            self._torn_tail = True
        self.look_for_hindrance()

    def look_for_hindrance(self) -> None:
        """Updates `is_hindered`, which is true while the log accepts no appends. It must be called after a reason to
        refuse appends has begun or ended."""
        self.is_hindered = self._torn_tail or (self._truncations is not None and self._truncations.hinders)

    def check_writable(self) -> None:
        """Raises an error if the log accepts no appends because it is closed, has failed, or is being truncated. If a
        failed write has left bytes at the file's end, it first tries again to cut them off, and raises
        KAFKA_STORAGE_ERROR only if that fails."""
        if self.is_closed:
            raise KafkaStorageError(f"The log of {self.topic_partition} is closed.")
        if self.flushes.failure is not None:
            raise KafkaStorageError(self.flushes.failure)
        if self._truncations is not None:
            self._truncations.refuse()
        if self._torn_tail:
            self._cut_torn_tail()
            if self._torn_tail:
                raise KafkaStorageError(
                    f"The torn end of {self.active_segment.file.path} cannot be cut off; check the disk."
                )

    def storage_error(self, error: OSError) -> KafkaStorageError:
        """Logs a failed write, and returns the error for it."""
        where = f"{self.topic_partition} in {self.directory.parent}"
        message = f"{where} cannot be written: {cause_of(error)}; {remedy_of(error)}."
        logger.error("%s", message, extra={"once_a_minute": (str(self.directory.parent), error.errno)})
        self.writer.disk_failed(error, False)
        return KafkaStorageError(message)

    def read_error(self, error: OSError) -> KafkaError:
        """Logs a failed read, and returns the error for it."""
        message = (
            f"{self.topic_partition} in {self.directory.parent} cannot be read: {cause_of(error)}; {remedy_of(error)}."
        )
        logger.error("%s", message)
        self.writer.disk_failed(error, False)
        return KafkaStorageError(message)

    # -- leader epochs ------------------------------------------------------------------------------------------------

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        """Records that a leader of this epoch writes from `start_offset` on. It must be called when a broker becomes
        leader, before its first append, because clients then learn the epoch and may ask for its end offset."""
        if self.leader_epochs.assign(epoch, start_offset):
            self.epochs_file.changed()

    def begin_to_lead(self, epoch: int) -> None:
        """Records that this broker leads the partition in the leader epoch `epoch`, which begins at the next offset.
        Queued appends have earlier epochs, which are added to the table first: the table does not accept an epoch
        below its newest epoch."""
        for pending in self.queue.waiting:
            if isinstance(pending, PendingAppend):
                self.note_epochs(pending.epochs)
        self.assign_leader_epoch(epoch, self.next_offset)

    def note_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Adds the leader epochs of batches to the table of leader epochs, with their start offsets. Epochs that are
        not newer than the newest epoch of the table are ignored, because they are already in the table."""
        for epoch, offset in epochs:
            if epoch > self.leader_epochs.latest_epoch:
                self.assign_leader_epoch(epoch, offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Finds the newest leader epoch that is not newer than `epoch`. Returns that epoch and its end offset; (-1,
        -1) if `epoch` is newer than all known epochs."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- segments -----------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int, base_offset: int | None = None) -> LogSegment:
        """Seals the active segment and begins a new segment at the next offset. The sealed segment is synced in the
        background."""
        base_offset = self.next_offset if base_offset is None else base_offset
        sealed = self.active_segment
        if sealed.base_offset == base_offset:
            # Nothing was written since the last roll, so there is nothing to seal.
            return sealed
        assert not self.queue.waiting, "a roll keeps its place among queued appends"
        config = self.config
        assert not self.is_hindered or self._torn_tail, "a log that is being truncated is not rolled"
        created = self._new_segment(base_offset, now_ms)
        try:
            created.create(config)
            self.snapshots.write(base_offset, self.producers)
        except OSError:
            created.close()
            self._remove_files(created.paths())
            self.snapshots.remove(base_offset)
            raise
        self.segments = (*self.segments, created)
        self.active_segment = created
        self.write_position = 0
        self._pass_gap(created)
        self._seal(sealed)
        return created

    def queue_roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Rolls the log as `roll` does, but in the directory's writer thread. Later appends are queued after the
        roll."""
        base_offset = self.next_offset if base_offset is None else base_offset
        sealed, config = self.active_segment, self.config
        if sealed.base_offset == base_offset:
            return
        created = self.unmade_segment(base_offset, now_ms)
        roll = PendingRoll(
            sealed, created, config, self.snapshots.path(base_offset), encode_snapshot(self.producers.entries())
        )
        self.segments = (*self.segments, created)
        self.active_segment = created
        self.write_position = 0
        self.next_offset = base_offset
        self.queue.submit_roll(roll)

    def _pass_gap(self, created: LogSegment) -> None:
        """Raises the log end offset to the base offset of a new segment that begins after a gap in the offsets. Such a
        gap exists if the leader has compacted the records in it away. When the broker starts, it sets the log end
        offset in the same way."""
        if created.base_offset > self.log_end_offset:
            self.log_end_offset = created.base_offset
            self.next_offset = max(self.next_offset, created.base_offset)

    def _new_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        jitter_ms = self._jitter(self.config.segment_jitter_ms)
        return LogSegment(
            self.directory,
            base_offset,
            self.config,
            self.files,
            self._open_files,
            created_ms=now_ms,
            jitter_ms=jitter_ms,
        )

    def _seal(self, segment: LogSegment) -> None:
        segment.seal()
        self.flushes.flush_up_to(self._end_of(segment))

    def _end_of(self, segment: LogSegment) -> int:
        index = self.segments.index(segment)
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.log_end_offset

    def segment_index(self, offset: int) -> int:
        """Returns the index of the segment that contains an offset."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def ends(self) -> list[int]:
        """Returns the end offset of each segment, which is the base offset of the next segment."""
        return [segment.base_offset for segment in self.segments[1:]] + [self.log_end_offset]

    # -- flush --------------------------------------------------------------------------------------------------------

    def flush(self, done: Callable[[KafkaError | None], None] | None = None) -> None:
        """Syncs everything that is published, in the background. `done` is called on the owner's thread."""
        self.flushes.flush(self._published_end, done)

    @property
    def is_synced(self) -> bool:
        """True if everything that is published is on the disk, and no flush has failed."""
        return self.flushes.failure is None and self.flushes.is_synced(self.log_end_offset)

    def flush_if_due(self, now_ms: int) -> None:
        """Flushes the log if the topic's `flush.ms` has passed since the last periodic flush."""
        self.flushes.flush_if_due(self._published_end, now_ms, self.config.flush_ms)

    def _published_end(self) -> int:
        return self.log_end_offset

    def _collect(self, offset: int) -> FlushWork:
        """Returns the work of a flush of everything below an offset."""
        return self.unsynced.collect(self.segments, self.ends(), self.recovery_point, offset)

    @property
    def has_unwritten(self) -> bool:
        """True if index entries of the active segment, or leader epochs, are in memory but not in their files."""
        return self.unsynced.is_unwritten(self.active_segment, self.log_end_offset)

    def unwritten(self) -> list[FileWrite]:
        """Returns writes, to be run in another thread, of the active segment's index entries and the leader epochs
        that are not in their files yet."""
        return [] if self.is_closed else self.unsynced.unwritten(self.active_segment, self.log_end_offset)

    def _describe_flush_failure(self, error: object) -> str:
        message = (
            f"{self.topic_partition} in {self.directory.parent} could not be synced ({error}), so it takes no more "
            f"records: "
            "mend the disk and start the broker again."
        )
        logger.error("%s", message)
        if isinstance(error, OSError):
            self.writer.disk_failed(error, True)
        return message

    # -- beginning and end --------------------------------------------------------------------------------------------

    def move_log_start(self, offset: int) -> None:
        """Raises the log start offset to `offset`. Does nothing if the log start offset is already at `offset` or
        above."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.leader_epochs.truncate_from_start(offset):
                self.epochs_file.changed()
            self.on_log_start_moved()

    def take_oldest(self, count: int) -> tuple[LogSegment, ...]:
        """Removes the `count` oldest segments from the log and returns them. At least one segment must remain. The
        caller removes their files."""
        gone, self.segments = self.segments[:count], self.segments[count:]
        self.unsynced.names_changed()
        self.move_log_start(self.segments[0].base_offset)
        return gone

    def has_segments(self, sources: Sequence[LogSegment]) -> bool:
        """Returns true if these are consecutive, sealed segments of the log, and nothing prevents their
        replacement."""
        if self.is_closed or self.is_failed or self.is_being_cut or sources[0] not in self.segments:
            return False
        first = self.segments.index(sources[0])
        return self.segments[first : first + len(sources)] == tuple(sources) and sources[-1] is not self.active_segment

    def replace_segments(self, sources: Sequence[LogSegment], cleaned: LogSegment) -> list[Path]:
        """Replaces segments by the result of a compaction. `has_segments` must be true for them. Returns the files to
        be removed after `file.delete.delay.ms`. Raises OSError if a file cannot be renamed: then the log accepts no
        appends, and the next start completes the renaming."""
        first = self.segments.index(sources[0])
        renamed: list[Path] = []
        try:
            for segment in sources:
                renamed.extend(segment.mark_deleted())
                if segment is not sources[0]:
                    renamed.extend(self.snapshots.mark_deleted(segment.base_offset))
            cleaned.take_names()
        except OSError as error:
            where = f"{self.topic_partition} in {self.directory.parent}"
            self.flushes.failure = (
                f"A compaction of {where} could not be ended ({error}): mend the disk and start the broker again."
            )
            logger.error("%s", self.flushes.failure)
            self.writer.disk_failed(error, True)
            raise
        cleaned.join(self._open_files)
        if self.tail.segment in sources:
            # There was no append since the last roll.
            self.tail.clear()
            self.tail.segment = self.active_segment
        self.segments = (*self.segments[:first], cleaned, *self.segments[first + len(sources) :])
        self.unsynced.names_changed()
        return renamed

    def refuse_appends(self) -> None:
        """Makes the log refuse appends, because it is closed or about to be closed."""
        self.is_closed = self.flushes.is_closed = True

    def abandon(self) -> None:
        """Closes the log after a failure of its directory: its files are no longer written or synced. Queued appends
        fail. Reads that have begun continue as far as the disk allows."""
        self.refuse_appends()
        self.leave_directory()
        for segment in self.segments:
            segment.close()

    def leave_directory(self) -> None:
        """Prepares the renaming of the log's directory: from now on no file is made or removed under the old name."""
        self.epochs_file.leave()
        if self._truncations is not None:
            self._truncations.leave()

    def moved(self, directory: Path) -> None:
        """Records the new path of the log's directory after a renaming."""
        self.directory = self.snapshots.directory = directory

    def go_on_in(self, directory: Path, writer: DirectoryWriter, active: OpenFile) -> tuple[LogSegment, ...]:
        """Continues the log with a copy of its files in another directory, where everything is synced. `active` is the
        copy of the active segment's file. The queue must be held, so that no write is in progress. Returns the old
        segments."""
        assert self.queue.is_held, "nothing is written meanwhile"
        assert not self.is_failed, "what it holds is known"
        unmade = {item.created for item in self.queue.waiting if isinstance(item, PendingRoll)}
        before = tuple(segment for segment in self.segments if segment not in unmade)
        end_of_made = before[-1]
        moved = {
            segment: segment.in_another_directory(
                directory, active if segment is end_of_made else None, self._open_files
            )
            for segment in before
        }
        for item in self.queue.waiting:
            if isinstance(item, PendingAppend):
                item.segment = moved.get(item.segment, item.segment)
            elif isinstance(item, PendingRoll):
                item.sealed = moved.get(item.sealed, item.sealed)
                item.moved(directory)
        self.segments = tuple(moved.get(segment, segment) for segment in self.segments)
        self.active_segment = self.segments[-1]
        if self.tail.segment in moved:
            self.tail.segment = moved[self.tail.segment]
        self.epochs_file.leave()
        self.moved(directory)
        self.epochs_file = EpochsFile(self.leader_epochs, directory, self.files)
        self.epochs_file.changed()
        self.unsynced = Unsynced(self.epochs_file, self.snapshots, is_new=True)
        self.writer = self.queue.writer = writer
        self.flushes.moved(writer, self.log_end_offset)
        self.flushes.incomplete = self.unsynced.give_back
        if self._truncations is not None:
            self._truncations.writer = writer.writer
        return before

    # -- truncation ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int, done: Truncated) -> None:
        """Removes `offset` and everything after it, for a follower whose log is longer than its leader's. A batch that
        contains the offset is removed completely. The log accepts no appends until `done` is called, on the owner's
        thread, with None or an error."""
        self._all_truncations().ask(Truncation(offset, False, now_ms, done))

    def restart_at(self, offset: int, now_ms: int, done: Truncated) -> None:
        """Removes all records, so that the log continues at `offset`. It is for a follower that needs records that the
        leader has already deleted. In all other respects it is like `truncate_to`."""
        self._all_truncations().ask(Truncation(offset, True, now_ms, done))

    @property
    def is_being_cut(self) -> bool:
        """True while a truncation is running. The log's future end is not known then."""
        return self._truncations is not None and self._truncations.is_under_way

    def hold(self) -> None:
        """Makes the log refuse appends, until `release` was called as many times as `hold`."""
        self._all_truncations().hold()

    def release(self) -> None:
        """Ends one `hold`. The log accepts appends again when every `hold` was ended."""
        self._all_truncations().release()

    def _all_truncations(self) -> Truncations:
        if self._truncations is None:
            self._truncations = Truncations(self, self.writer.writer, self._cleaner)
        return self._truncations

    def why_not_truncated(self) -> KafkaError | None:
        if self.is_closed:
            return KafkaStorageError(f"The log of {self.topic_partition} is closed.")
        return None if self.flushes.failure is None else KafkaStorageError(self.flushes.failure)

    def after_queue(self, reached: Callable[[], None]) -> None:
        if self.queue.waiting:
            self.queue.submit_barrier(PendingBarrier(reached))
        else:
            reached()

    def unmade_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        created = self._new_segment(base_offset, now_ms)
        created.offset_index.begin()
        created.time_index.begin()
        return created

    def adopt_copy(self, copy: LogSegment, original: LogSegment) -> None:
        copy.replace(original, self._open_files)

    def hide(
        self, kept: tuple[LogSegment, ...], original: LogSegment | None, last: LogSegment, end_offset: int, now_ms: int
    ) -> FileChanges:
        """Hides the records that a truncation removes from readers (see `Truncatable.hide`)."""
        is_restarted = original is None
        gone = self.segments[len(kept) + (not is_restarted) :]
        for segment in self.segments[len(kept) :]:
            segment.retire()
        self.segments = (*kept, last)
        self.active_segment = last
        self.write_position = last.size_bytes
        self.log_end_offset = self.next_offset = end_offset
        has_moved_up = end_offset > self.log_start_offset and is_restarted
        self.log_start_offset = end_offset if is_restarted else min(self.log_start_offset, end_offset)
        self.high_watermark = end_offset if is_restarted else min(self.high_watermark, end_offset)
        self.flushes.truncated(end_offset)
        self.unsynced.names_changed()
        self.tail.clear()
        self.tail.segment = last
        self.forget_epochs_from(0 if is_restarted else end_offset)
        if has_moved_up:
            self.on_log_start_moved()
        producers = ProducerState(self.producers.expiration_ms, self.producers.max_producers)
        return FileChanges(
            self.files,
            self.directory,
            gone,
            self.segments,
            original,
            self.log_start_offset,
            end_offset,
            self.config,
            producers,
            now_ms,
        )

    def forget_epochs_from(self, offset: int) -> None:
        """Removes the leader epochs that begin at `offset` or later, because the leader does not have them."""
        if self.leader_epochs.truncate_from_end(offset):
            self.epochs_file.changed()

    def files_are_changed(self, changes: FileChanges) -> None:
        """Finishes a truncation after its file changes were made (see `Truncatable.files_are_changed`)."""
        self.producers = changes.producers
        self.producers.high_watermark_moved(self.high_watermark)
        self._torn_tail = False
        # A flush that ran since `hide` may have recorded an offset above the new end as synced, so the new end is
        # recorded again.
        self.flushes.truncated(self.log_end_offset)
        self.unsynced.names_changed()


_base_offset = attrgetter("base_offset")


def _nothing() -> None:
    """Does nothing. It is the default callback."""
