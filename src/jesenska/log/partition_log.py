"""A partition's log: a list of segments, of which the last is written to. Owned by one thread (the broker's loop); what it hands to other threads are
bytes to write and files to sync, never its own state.

Append has two phases:

    1  on the loop      sequence check, roll if needed, offsets written into the caller's buffer; `next_offset` moves
    2  write            one pwrite from the caller's buffer at the position that phase 1 gave
    3  publish          indexes, `segment.size_bytes`, `log_end_offset`: readers see the batch

With no flush in flight on the directory all three happen in the call. During a flush a write may wait for the disk, so the bytes are copied and
the write is queued for the directory's writer thread, behind earlier ones; `done` is called on the loop after phase 3. As long as appends of this log
are queued, later ones queue behind them.

A write that fails (disk full) is taken back: the file is cut to its published size, offsets and producers are as before, everything queued behind
it fails, too, with KAFKA_STORAGE_ERROR. Reads go on; the next append tries again. An fsync that fails is worse, since nobody knows what is on disk:
the log takes no more appends until the broker is started again and has recovered it.

A follower's appends go the same way, with the offsets that the leader gave them. A truncation (truncation) stands behind everything that is queued; from when
it is asked for until it has ended the log takes no appends.

The list of segments is a tuple that is replaced, never changed: a reader that took it keeps its view while segments are deleted.

Recovery point: everything below it is synced. It moves after a roll (the sealed segment is synced in the background), after `flush`, and at an orderly
stop. A crash loses nothing below it; what is above it is checked at the next start (recovery).

Left out: aborted transactions' index, tiers of storage. Compaction has its own module when it comes.
"""

from __future__ import annotations

import errno
import logging
import uuid
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from jesenska.base.errors import (
    KafkaError,
    KafkaStorageError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.base.regions import FileRegion
from jesenska.log import partition_metadata
from jesenska.log.append_queue import AppendQueue, Pending, PendingAppend, PendingBarrier, PendingRoll
from jesenska.log.background import DirectoryWriter
from jesenska.log.cold_reads import WarmUp
from jesenska.log.epochs_file import FILE_NAME, EpochsFile
from jesenska.log.files import FileLayer
from jesenska.log.follower_batches import look_at
from jesenska.log.log_config import UNLIMITED, LogConfig
from jesenska.log.log_flush import FileWrite, FlushWork, LogFlush, NotOpenedError, SegmentWork, try_sync
from jesenska.log.producer_state import ProducerState, RememberedBatch, Undo, encode_snapshot
from jesenska.log.recovery import LoadedLog, marker_coordinator_epoch, snapshot_offsets
from jesenska.log.retention import SegmentFacts, count_deletable
from jesenska.log.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, LogSegment, file_name
from jesenska.log.segment_file import OpenFiles
from jesenska.log.tail import LogTail, PublishedBatch
from jesenska.log.time_lookup import TimeLookup
from jesenska.log.truncation import NO_CLEANER, Cleaner, FileChanges, Truncated, Truncation, Truncations
from jesenska.records.batch import stamp_offsets
from jesenska.records.codec import set_max_timestamp
from jesenska.records.header import LENGTH_OVERHEAD, BatchHeader

logger = logging.getLogger(__name__)

DELETE_DIRECTORY_SUFFIX = "-delete"
_DIRECTORY_NAME_MAX = 255
#: An offset is found in its segment, or where compaction left a gap in one of the next; farther than this a read waits for the disk.
_WARMED_SEGMENTS_MAX = 4


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    #: -1 unless the topic has log append time. Of a batch that had been appended before it is the time of its latest record, as in Kafka.
    log_append_time_ms: int
    log_start_offset: int
    #: The batch had been appended before; the offsets are those of that time.
    duplicate: bool


class ReadResult(NamedTuple):
    """`region` is None if there is nothing to read at the offset yet; else the receiver releases it."""

    region: FileRegion | None
    #: Base offset of the first batch, which may be below the offset that was asked for.
    base_offset: int
    #: Where the first batch stands: base offset of its segment and position in it.
    segment_base_offset: int
    position: int
    log_start_offset: int
    log_end_offset: int
    #: The limit of bytes, or the end of a segment, cut off what could have been read as well.
    has_more: bool = False


class PartitionLog:
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
        """`high_watermark` is the one that the checkpoint has; one outside of the log becomes its nearest end. `cleaner` is told before segments go."""
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.directory = loaded.directory
        self.config = config
        self.leader_epochs = loaded.leader_epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        #: Next offset that readers do not see yet.
        self.log_end_offset = loaded.next_offset
        #: Next offset that an append will get; ahead of the log end offset while writes are queued.
        self.next_offset = loaded.next_offset
        #: Replication moves it, and a truncation takes it along: log start offset <= high watermark <= log end offset.
        self.high_watermark = min(max(high_watermark, loaded.log_start_offset), loaded.next_offset)
        #: Called when the log start offset has gone up.
        self.on_log_start_moved: Callable[[], None] = _nothing
        #: Replaced, never changed.
        self.segments: tuple[LogSegment, ...] = tuple(loaded.segments)
        self._files = files
        self._open_files = open_files
        self._writer = writer
        self._jitter = jitter
        self._queue = AppendQueue(writer, files, self._published, self._rolled, self._queue_failed)
        self._flush = LogFlush(writer, files, loaded.recovery_point, self._flush_work, self._describe_flush_failure, self._flush_incomplete, now_ms)
        # What was found above the recovery point may be in the page cache only: a batch that was sent again is not answered before it is synced.
        self._flush.unflushed_records = max(0, loaded.next_offset - loaded.recovery_point)
        #: Something keeps it from taking appends, which `_check_writable` knows.
        self._is_hindered = False
        self._torn_tail = False
        self._cleaner = cleaner
        #: Most logs never have any.
        self._truncations: Truncations | None = None
        self._closed = False
        self._epochs_file = EpochsFile(loaded.leader_epochs, loaded.directory, files)
        self._epochs_file.is_unsynced = not loaded.is_synced
        self._is_new = not loaded.is_synced
        for segment in self.segments:
            segment.file.move_to(open_files)
        self._active = self.segments[-1]
        self._active.activate()
        self._active.jitter_ms = jitter(config.segment_jitter_ms)
        self._write_position = self._active.size_bytes
        self._tail = LogTail(self._active)

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def active_segment(self) -> LogSegment:
        return self._active

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """End of what a read-committed consumer may see: the high watermark, or the first offset of the oldest open transaction."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def recovery_point(self) -> int:
        """Everything below it is synced."""
        return self._flush.recovery_point

    @property
    def is_failed(self) -> bool:
        """True after an fsync failed, or a truncation whose files could not be changed: no more appends, and the next start must recover the log."""
        return self._flush.failure is not None or (self._truncations is not None and self._truncations.has_open_changes)

    @property
    def has_queued_appends(self) -> bool:
        """The directory's writer thread has something to do for the log: appends, a roll, a truncation."""
        return bool(self._queue.waiting) or (self._truncations is not None and self._truncations.is_under_way)

    # -- append -----------------------------------------------------------------------------------------------------------------------------

    def append(self, buffer: memoryview, headers: Sequence[BatchHeader], leader_epoch: int, now_ms: int) -> AppendResult:
        """Appends checked batches as leader, at once. `buffer` is writable and holds exactly the batches of `headers`; offsets, leader epoch
        and, on topics with log append time, times are written into it. Errors of the sequence check, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE and KAFKA_STORAGE_ERROR leave the log as it was."""
        assert not self._queue.waiting, "appends are queued: use append_or_queue"
        result = self._append(buffer, headers, leader_epoch, now_ms, None)
        assert result is not None
        if self._flush.unflushed_records >= self.config.flush_messages:
            self.flush()
        return result

    def append_or_queue(
        self,
        buffer: memoryview,
        headers: Sequence[BatchHeader],
        leader_epoch: int,
        now_ms: int,
        done: Callable[[AppendResult | KafkaError], None],
    ) -> AppendResult | None:
        """As `append`; but if a flush is in flight on the directory, takes a copy of the bytes, gives None, and calls `done` on the owner's
        thread once the batches are written (or could not be). With `flush.messages` reached, that is after they are synced. A batch that was
        sent again while it waits is answered with it."""
        queues = bool(self._queue.waiting or self._writer.flushes_in_flight)
        result = self._append(buffer, headers, leader_epoch, now_ms, done, queues)
        if result is None:
            return None
        if self._waits_for_sync(result):
            self._finish(result, done, None)
            return None
        return result

    def _waits_for_sync(self, result: AppendResult) -> bool:
        """True if the topic's `flush.messages` is reached, or the batch repeats one that may still wait for its sync."""
        flush, limit = self._flush, self.config.flush_messages
        return flush.unflushed_records >= limit or (result.duplicate and limit < UNLIMITED and flush.runs and result.last_offset >= flush.recovery_point)

    def _finish(self, result: AppendResult, done: Callable[[AppendResult | KafkaError], None], failure: KafkaError | None) -> None:
        """Answers an append that was published or has failed: at once, or when it is synced if the topic asks for it."""
        if failure is not None:
            done(failure)
        elif self._waits_for_sync(result):
            self.flush(lambda failure: done(result if failure is None else failure))
        else:
            done(result)

    def _append(
        self,
        buffer: memoryview,
        headers: Sequence[BatchHeader],
        leader_epoch: int,
        now_ms: int,
        done: Callable[[AppendResult | KafkaError], None] | None,
        queues: bool = False,
    ) -> AppendResult | None:
        if self._closed or self._is_hindered or self._flush.failure is not None:
            self._check_writable()
        config = self.config
        size_bytes = len(buffer)
        if size_bytes > config.segment_bytes:
            raise RecordListTooLargeError(f"{size_bytes} bytes in one request for {self.topic_partition} do not fit a segment of {config.segment_bytes} bytes.")
        append_time_ms = now_ms if config.log_append_time else -1
        first_offset = offset = self.next_offset
        position = 0
        max_timestamp = append_time_ms
        for header in headers:
            batch_bytes = LENGTH_OVERHEAD + header.batch_length
            if batch_bytes > config.max_message_bytes:
                raise MessageTooLargeError(
                    f"A batch of {batch_bytes} bytes for {self.topic_partition} is larger than max.message.bytes={config.max_message_bytes}."
                )
            if header.max_timestamp > max_timestamp and append_time_ms < 0:
                max_timestamp = header.max_timestamp
            position += batch_bytes
            offset += header.last_offset_delta + 1
        assert position == size_bytes, "the headers do not cover the buffer"
        if self._active.should_roll(self._write_position, size_bytes, max_timestamp, offset - 1, now_ms, config):
            if done is not None:
                # Files are made, which may wait for the disk: this append and those behind it wait for that in the queue.
                self._queue_roll(now_ms)
                queues = True
            else:
                try:
                    self.roll(now_ms)
                except OSError as error:
                    raise self.storage_error(error) from error
        segment, write_position = self._active, self._write_position
        producers = self.producers
        changes: list[Undo] = []
        batches: list[PublishedBatch] = []
        offset, position = first_offset, 0
        try:
            for header in headers:
                stamp_offsets(buffer, position, offset, leader_epoch)
                if append_time_ms >= 0:
                    header = set_max_timestamp(buffer, position, header, append_time_ms, True)
                timestamp = header.max_timestamp
                batch_bytes = LENGTH_OVERHEAD + header.batch_length
                if header.producer_id >= 0:
                    if header.attributes & 0x20:
                        epoch = marker_coordinator_epoch(buffer[position : position + batch_bytes])
                        changes.append(producers.apply_marker(header, offset, epoch, now_ms))
                    else:
                        earlier = producers.check(header)
                        if earlier is not None:
                            producers.undo(changes)
                            return self._duplicate(earlier, done)
                        changes.append(producers.apply(header, offset, timestamp, now_ms))
                last_offset = offset + header.last_offset_delta
                batches.append(PublishedBatch(position, batch_bytes, offset, last_offset, timestamp))
                position += batch_bytes
                offset = last_offset + 1
        except KafkaError:
            producers.undo(changes)
            raise
        if leader_epoch > self.leader_epochs.latest_epoch:
            self.assign_leader_epoch(leader_epoch, first_offset)
        result = AppendResult(first_offset, offset - 1, append_time_ms, self.log_start_offset, False)
        if queues:
            assert done is not None
            self._queue.submit(PendingAppend(segment, write_position, bytes(buffer), batches, changes, partial(self._finish, result, done)))
            self.next_offset = offset
            self._write_position = write_position + size_bytes
            return None
        try:
            self._files.write_all(segment.file.handle().fileno(), buffer, write_position)
        except OSError as error:
            producers.undo(changes)
            self._cut_torn_tail()
            raise self.storage_error(error) from error
        self._publish(segment, write_position, batches)
        self.next_offset = offset
        self._write_position = write_position + size_bytes
        return result

    def append_as_follower(
        self,
        buffer: memoryview,
        headers: Sequence[BatchHeader],
        now_ms: int,
        done: Callable[[AppendResult | KafkaError], None],
    ) -> AppendResult | None:
        """Appends checked batches as the leader wrote them, with its offsets (which go up, with gaps where the leader compacted) and leader epochs.
        The result, or None: then the bytes are copied, and `done` is called as by `append_or_queue`.

        OFFSET_OUT_OF_RANGE if the first batch begins before the log's end. An empty log takes it if it holds that end: the log begins anew with
        it, as the leader's log start offset may lie within a batch. CORRUPT_MESSAGE if offsets do not go up."""
        self._check_writable()
        first_offset, end_offset = headers[0].base_offset, self.next_offset
        if first_offset < end_offset:
            if not self.log_start_offset == self.log_end_offset == end_offset or headers[0].last_offset < end_offset:
                raise OffsetOutOfRangeError(f"{self.topic_partition} ends at {end_offset}; the leader's batch at {first_offset} does not follow that.")
            # The recovery point on the disk, and the log start offset there, may be as high as the end was. They do no harm: the first batch holds
            # that offset, so recovery checks everything from that batch on.
            self.restart_at(first_offset, now_ms, partial(self._append_to_restarted, bytearray(buffer), headers, now_ms, done))
            return None
        result = self._append_as_follower(buffer, headers, now_ms, done)
        if result is not None and self._waits_for_sync(result):
            self._finish(result, done, None)
            return None
        return result

    def _append_to_restarted(
        self,
        data: bytearray,
        headers: Sequence[BatchHeader],
        now_ms: int,
        done: Callable[[AppendResult | KafkaError], None],
        failure: KafkaError | None,
    ) -> None:
        if failure is not None:
            done(failure)
            return
        try:
            result = self.append_as_follower(memoryview(data), headers, now_ms, done)
        except KafkaError as error:
            done(error)
            return
        if result is not None:
            done(result)

    def _append_as_follower(
        self,
        buffer: memoryview,
        headers: Sequence[BatchHeader],
        now_ms: int,
        done: Callable[[AppendResult | KafkaError], None],
    ) -> AppendResult | None:
        """An append whose first batch does not begin before the log's end."""
        found = look_at(self.topic_partition, buffer, headers)
        size_bytes, first_offset = len(buffer), found.first_offset
        queues = bool(self._queue.waiting or self._writer.flushes_in_flight)
        if self._active.should_roll(self._write_position, size_bytes, found.max_timestamp, found.last_offset, now_ms, self.config):
            self._queue_roll(now_ms, first_offset)
            if self._queue.waiting:
                queues = True
            elif self._active.base_offset != first_offset:
                raise KafkaStorageError(f"No new segment of {self.topic_partition} can be made in {self.directory.parent}; make room or mend the disk.")
        changes = self._note_producers(headers, found.coordinator_epochs, now_ms)
        result = AppendResult(first_offset, found.last_offset, -1, self.log_start_offset, False)
        segment, write_position = self._active, self._write_position
        if queues:
            finish = partial(self._finish_as_follower, result, found.epochs, done)
            self._queue.submit(PendingAppend(segment, write_position, bytes(buffer), found.batches, changes, finish))
            self.next_offset = found.last_offset + 1
            self._write_position = write_position + size_bytes
            return None
        try:
            self._files.write_all(segment.file.handle().fileno(), buffer, write_position)
        except OSError as error:
            self.producers.undo(changes)
            self._cut_torn_tail()
            raise self.storage_error(error) from error
        self._publish(segment, write_position, found.batches)
        self.next_offset = found.last_offset + 1
        self._write_position = write_position + size_bytes
        self._note_epochs(found.epochs)
        return result

    def _note_producers(self, headers: Sequence[BatchHeader], coordinator_epochs: Sequence[int], now_ms: int) -> list[Undo]:
        """Remembers the producers' batches and markers, which the leader has checked; what undoes that."""
        changes: list[Undo] = []
        markers = iter(coordinator_epochs)
        for header in headers:
            if header.producer_id < 0:
                continue
            if header.is_control:
                with suppress(KafkaError):
                    changes.append(self.producers.apply_marker(header, header.base_offset, next(markers), now_ms))
            else:
                changes.append(self.producers.apply(header, header.base_offset, header.max_timestamp, now_ms))
        return changes

    def _note_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        """Leader epochs of batches that are published: those that are not, and may fail, leave no trace in the table."""
        for epoch, offset in epochs:
            if epoch > self.leader_epochs.latest_epoch:
                self.assign_leader_epoch(epoch, offset)

    def _finish_as_follower(
        self,
        result: AppendResult,
        epochs: Sequence[tuple[int, int]],
        done: Callable[[AppendResult | KafkaError], None],
        failure: KafkaError | None,
    ) -> None:
        """As `_finish`."""
        if failure is None:
            self._note_epochs(epochs)
        self._finish(result, done, failure)

    def _duplicate(self, earlier: RememberedBatch, done: Callable[[AppendResult | KafkaError], None] | None) -> AppendResult | None:
        """The answer to a batch that was appended before; None if that one is still waiting to be written, and `done` hears with it."""
        result = AppendResult(earlier.first_offset, earlier.last_offset, earlier.timestamp, self.log_start_offset, True)
        if done is not None and earlier.last_offset >= self.log_end_offset:
            waiting = self._queue.holding(earlier.last_offset)
            assert waiting is not None, "an offset at or beyond the log end belongs to a queued append"
            waiting.finish.append(partial(self._finish, result, done))
            return None
        return result

    def _publish(self, segment: LogSegment, write_position: int, batches: Sequence[PublishedBatch]) -> None:
        """Phase three: readers see the batches."""
        note = self._tail.note
        last_offset = self.log_end_offset - 1
        for position, size_bytes, base_offset, last_offset, timestamp in batches:
            position += write_position
            segment.note_batch(position, size_bytes, last_offset, timestamp)
            note(segment, position, base_offset, last_offset)
            segment.size_bytes = position + size_bytes
        self._flush.unflushed_records += last_offset + 1 - self.log_end_offset
        self.log_end_offset = last_offset + 1

    def _published(self, pending: PendingAppend) -> None:
        """A queued write is in its file."""
        self._publish(pending.segment, pending.write_position, pending.batches)
        for finish in pending.finish:
            finish(None)

    def _rolled(self, roll: PendingRoll) -> None:
        """A queued roll's files are there, and everything before it is published."""
        assert roll.opened is not None
        if self._closed:
            roll.opened.release()
            return
        roll.created.file.adopt(roll.opened)
        self._pass_gap(roll.created)
        self._seal(roll.sealed)

    def _queue_failed(self, failed: list[Pending], error: OSError) -> None:
        """A queued write failed: everything goes back to what is published."""
        appends = [item for item in failed if isinstance(item, PendingAppend)]
        failure = self.storage_error(error) if not self._closed else KafkaStorageError(f"The log of {self.topic_partition} is closed.")
        if not self._closed:
            self._take_back(failed[0], appends)
        for pending in appends:
            for finish in pending.finish:
                finish(failure)
        for item in failed:
            if isinstance(item, PendingBarrier):
                item.reached()

    def _take_back(self, first: Pending, appends: list[PendingAppend]) -> None:
        """The log as it was before what failed first, and all that was queued behind it."""
        for pending in reversed(appends):
            self.producers.undo(pending.changes)
        assert not isinstance(first, PendingBarrier), "a barrier cannot fail"
        last_kept = first.segment if isinstance(first, PendingAppend) else first.sealed
        kept = self.segments[: self.segments.index(last_kept) + 1]
        for segment in self.segments[len(kept) :]:
            self._remove_files(segment.mark_deleted())
            self._remove_files([self._snapshot_path(segment.base_offset)])
        self.segments = kept
        self._active = kept[-1]
        self.next_offset = self.log_end_offset
        self._write_position = self._active.size_bytes
        self._cut_torn_tail()
        latest_epoch = self.leader_epochs.latest_epoch
        if self.leader_epochs.truncate_from_end(self.log_end_offset):
            self.assign_leader_epoch(latest_epoch, self.log_end_offset)
            self._epochs_file.changed()

    def _cut_torn_tail(self) -> None:
        """The file goes back to its published size; if even that fails, the next append tries it again first."""
        try:
            self._files.truncate(self._active.file.handle().fileno(), self._active.size_bytes)
            self._torn_tail = False
        except OSError:
            self._torn_tail = True
        self.look_for_hindrance()

    def look_for_hindrance(self) -> None:
        self._is_hindered = self._torn_tail or (self._truncations is not None and self._truncations.hinders)

    def _check_writable(self) -> None:
        if self._closed:
            raise KafkaStorageError(f"The log of {self.topic_partition} is closed.")
        if self._flush.failure is not None:
            raise KafkaStorageError(self._flush.failure)
        if self._truncations is not None:
            self._truncations.refuse()
        if self._torn_tail:
            self._cut_torn_tail()
            if self._torn_tail:
                raise KafkaStorageError(f"The torn end of {self._active.file.path} cannot be cut off; check the disk.")

    def storage_error(self, error: OSError) -> KafkaStorageError:
        """What people are told of a write that failed; logged, too."""
        message = f"{self.topic_partition} in {self.directory.parent} cannot be written: {error.strerror or error}; make room or mend the disk."
        logger.error("%s", message, extra={"once_a_minute": (str(self.directory.parent), error.errno)})
        return KafkaStorageError(message)

    def read_error(self, error: OSError) -> KafkaError:
        """What people are told of a read that failed; logged, too."""
        message = f"{self.topic_partition} in {self.directory.parent} cannot be read: {error.strerror or error}; check the disk."
        logger.error("%s", message)
        return KafkaStorageError(message)

    # -- read -------------------------------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, max_offset: int | None = None, minimum_one_batch: bool = True, wait: bool = True) -> ReadResult:
        """The region of the file from the batch that holds `offset` on: at most `max_bytes`, nothing of `max_offset` (default: the log end
        offset) or later. A first batch that is larger than `max_bytes` is given whole with `minimum_one_batch`, and not at all without it: clients take a
        partition whose records hold no whole batch for a mistake. A batch after the first may be cut.

        OFFSET_OUT_OF_RANGE below the log start offset or beyond the log end offset. Without `wait`, ColdError where finding the region could wait for
        the disk: then `warm_up` gets what it takes (the region's own pages are the receiver's to look after)."""
        end = self.log_end_offset
        if offset >= end or offset < self.log_start_offset:
            if offset == end:
                return ReadResult(None, end, self._active.base_offset, self._active.size_bytes, self.log_start_offset, end)
            raise OffsetOutOfRangeError(f"{self.topic_partition} holds offsets {self.log_start_offset} to {end}, not {offset}.")
        bound = end if max_offset is None or max_offset > end else max_offset
        tail = self._tail
        if offset >= tail.first_offset:
            segment = tail.segment
            position, base_offset, first_end = tail.find(offset)
        else:
            try:
                found = self._find(offset, wait)
            except OSError as error:
                raise self.read_error(error) from error
            if found is None:
                return ReadResult(None, end, self._active.base_offset, self._active.size_bytes, self.log_start_offset, end)
            segment, position, base_offset, first_end = found
        limit = segment.size_bytes
        if bound < end:
            if base_offset >= bound:
                return ReadResult(None, base_offset, segment.base_offset, position, self.log_start_offset, end)
            limit = self._bound_position(segment, bound, position, wait)
        size_bytes = limit - position
        if size_bytes > max_bytes:
            first_bytes = first_end - position
            if max_bytes < first_bytes and not minimum_one_batch:
                return ReadResult(None, base_offset, segment.base_offset, position, self.log_start_offset, end, True)
            size_bytes = max(max_bytes, first_bytes)
        if size_bytes <= 0:
            return ReadResult(None, base_offset, segment.base_offset, position, self.log_start_offset, end)
        try:
            region = FileRegion(segment.file.handle(), position, size_bytes)
        except OSError as error:
            raise self.read_error(error) from error
        has_more = position + size_bytes < limit or (segment is not self._active and bound > self._active.base_offset)
        return ReadResult(region, base_offset, segment.base_offset, position, self.log_start_offset, end, has_more)

    def segment_index(self, offset: int) -> int:
        """Which segment an offset belongs to."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def _find(self, offset: int, wait: bool = True) -> tuple[LogSegment, int, int, int] | None:
        """Segment, position, base offset and end of the first batch with a last offset of at least `offset`."""
        segments = self.segments
        for index in range(self.segment_index(offset), len(segments)):
            place = segments[index].find(offset) if wait else segments[index].find_warm(offset)
            if place is not None:
                return segments[index], place.position, place.base_offset, place.position + place.size_bytes
        return None

    def warm_up(self, offset: int) -> WarmUp:
        """What brings into memory what finding an offset takes, in another thread."""
        index = self.segment_index(offset)
        return WarmUp(self.segments[index : index + _WARMED_SEGMENTS_MAX], offset)

    def _bound_position(self, segment: LogSegment, bound: int, position: int, wait: bool) -> int:
        """The end of what lies below `bound` in a segment."""
        if segment is self._tail.segment and bound > self._tail.first_offset:
            return self._tail.position_of(bound)
        found = segment.find(bound) if wait else segment.find_warm(bound)
        return segment.size_bytes if found is None else max(found.position, position)

    # -- time -------------------------------------------------------------------------------------------------------------------------------

    def time_lookup(self) -> TimeLookup:
        """For questions about times, asked in another thread."""
        return TimeLookup(self.segments, self.log_start_offset, self._files)

    def segments_of_unknown_time(self) -> list[LogSegment]:
        """Sealed segments whose largest timestamp is needed (for retention) and would have to be read."""
        if not self.config.delete or self.config.retention_ms < 0:
            return []
        return [segment for segment in self.segments[:-1] if not segment.knows_its_time]

    # -- leader epochs ----------------------------------------------------------------------------------------------------------------------

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader of this epoch writes from `start_offset` on. It is called when a broker becomes leader, before the first append: clients are told the epoch
        from then on, and ask where it ends."""
        if self.leader_epochs.assign(epoch, start_offset):
            self._epochs_file.changed()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the newest epoch not newer than `epoch`; (-1, -1) if `epoch` is unknown and newer than all."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # -- roll, flush ------------------------------------------------------------------------------------------------------------------------

    def roll(self, now_ms: int, base_offset: int | None = None) -> LogSegment:
        """Seals the active segment and begins a new one at the next offset; the sealed one is synced in the background."""
        base_offset = self.next_offset if base_offset is None else base_offset
        sealed = self._active
        if sealed.base_offset == base_offset:
            # Nothing was written since the last roll.
            return sealed
        assert not self._queue.waiting, "a roll keeps its place among queued appends"
        config = self.config
        assert not self._is_hindered or self._torn_tail, "a log that is being truncated is not rolled"
        created = self._new_segment(base_offset, now_ms)
        try:
            created.create(config)
            self._files.replace_file(self._snapshot_path(base_offset), encode_snapshot(self.producers.entries()), sync=False)
        except OSError:
            created.close()
            self._remove_files([*created.paths(), self._snapshot_path(base_offset)])
            raise
        self.segments = (*self.segments, created)
        self._active = created
        self._write_position = 0
        self._pass_gap(created)
        self._seal(sealed)
        return created

    def _queue_roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """As `roll`, by the directory's writer thread: what is appended from here on waits behind it."""
        base_offset = self.next_offset if base_offset is None else base_offset
        sealed, config = self._active, self.config
        if sealed.base_offset == base_offset:
            return
        created = self.unmade_segment(base_offset, now_ms)
        roll = PendingRoll(sealed, created, config, self._snapshot_path(base_offset), encode_snapshot(self.producers.entries()))
        self.segments = (*self.segments, created)
        self._active = created
        self._write_position = 0
        self.next_offset = base_offset
        self._queue.submit_roll(roll)

    def _pass_gap(self, created: LogSegment) -> None:
        """A segment that begins behind a gap (the leader has compacted it) moves the log's end there, as a start would find it."""
        if created.base_offset > self.log_end_offset:
            self.log_end_offset = created.base_offset
            self.next_offset = max(self.next_offset, created.base_offset)

    def _new_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        jitter_ms = self._jitter(self.config.segment_jitter_ms)
        return LogSegment(self.directory, base_offset, self.config, self._files, self._open_files, created_ms=now_ms, jitter_ms=jitter_ms)

    def _seal(self, segment: LogSegment) -> None:
        segment.seal()
        self._flush.flush_up_to(self._end_of(segment))

    def _end_of(self, segment: LogSegment) -> int:
        index = self.segments.index(segment)
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.log_end_offset

    def _ends(self) -> list[int]:
        """Where each segment ends: the base offset of the next."""
        return [segment.base_offset for segment in self.segments[1:]] + [self.log_end_offset]

    def flush(self, done: Callable[[KafkaError | None], None] | None = None) -> None:
        """Syncs everything that is published, in the background; `done` is called on the owner's thread."""
        self._flush.flush(self._published_end, done)

    def flush_if_due(self, now_ms: int) -> None:
        """Flushes if the topic's `flush.ms` has passed since the last time."""
        self._flush.flush_if_due(self._published_end, now_ms, self.config.flush_ms)

    def _published_end(self) -> int:
        return self.log_end_offset

    def _flush_work(self, offset: int) -> FlushWork:
        """What has to be written and synced for everything below an offset to be on disk."""
        segments: list[SegmentWork] = []
        paths = [self._snapshot_path(offset)]
        directories = [self.directory]
        for segment, end in zip(self.segments, self._ends(), strict=True):
            if segment.base_offset < offset and end >= self.recovery_point:
                try:
                    handle = segment.file.handle()
                except OSError:
                    for work in segments:
                        work.opened.release()
                    raise
                handle.acquire()
                cut_to = segment.size_bytes if segment.is_sealed else None
                index = segment.offset_index
                segments.append(SegmentWork(handle, cut_to, segment.unwritten(), segment.base_offset, index, index.generation))
                paths.extend(segment.paths()[1:])
        epochs = self._epochs_file.unwritten(self.log_end_offset)
        if self._epochs_file.is_unsynced or epochs is not None:
            paths.append(self.directory / FILE_NAME)
            self._epochs_file.is_unsynced = False
        if self._is_new:
            # The directory's own name, too, must survive a crash of the machine.
            paths.append(self.directory / partition_metadata.FILE_NAME)
            directories.append(self.directory.parent)
            self._is_new = False
        return FlushWork(segments, epochs, paths, directories, offset)

    def _flush_incomplete(self, work: FlushWork) -> None:
        """Names and files that a flush could not sync are to be synced by the next one."""
        self._epochs_file.is_unsynced = True
        if len(work.directories) > 1:
            self._is_new = True

    @property
    def has_unwritten(self) -> bool:
        """True if files beside the log lack something that is in memory."""
        return self._active.has_unwritten or self._epochs_file.is_unwritten(self.log_end_offset)

    def unwritten(self) -> list[FileWrite]:
        """Index entries of the active segment and leader epochs that are not in their files yet, for another thread to write."""
        if self._closed:
            return []
        writes: list[FileWrite] = [*self._active.unwritten()]
        if (epochs := self._epochs_file.unwritten(self.log_end_offset)) is not None:
            writes.append(epochs)
        return writes

    def _write_epochs(self) -> None:
        if (epochs := self._epochs_file.unwritten(self.log_end_offset)) is not None:
            try:
                epochs.run()
            except OSError as error:
                # The batches carry their epochs, so the next start can write it again.
                logger.warning("%s: the leader epochs could not be written: %s", self.topic_partition, error)

    def _describe_flush_failure(self, error: object) -> str:
        message = (
            f"{self.topic_partition} in {self.directory.parent} could not be synced ({error}), so it takes no more records: "
            "mend the disk and start the broker again."
        )
        logger.error("%s", message)
        return message

    # -- deletion ---------------------------------------------------------------------------------------------------------------------------

    def delete_records(self, before_offset: int) -> int:
        """The log start offset becomes `before_offset` (-1: the high watermark); what it is now. OFFSET_OUT_OF_RANGE beyond the high
        watermark."""
        target = self.high_watermark if before_offset == -1 else before_offset
        if target > self.high_watermark or target < 0:
            raise OffsetOutOfRangeError(f"{self.topic_partition} can only delete records below {self.high_watermark}, not {target}.")
        self.move_log_start(target)
        return self.log_start_offset

    def move_log_start(self, offset: int) -> None:
        """The log start offset goes up to `offset`; it never goes down."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            if self.leader_epochs.truncate_from_start(offset):
                self._epochs_file.changed()
            self.on_log_start_moved()

    def delete_old_segments(self, now_ms: int) -> list[Path]:
        """Takes old segments out of the log by the topic's retention and renames their files; gives the files to be removed after
        `file.delete.delay.ms`. Where all of it is old the log is rolled first: it is to be asked again once `has_queued_appends` has passed."""
        if self.has_queued_appends or self.is_failed or self._closed:
            return []
        by_time = self.config.delete and self.config.retention_ms >= 0
        facts = [
            SegmentFacts(segment.base_offset, end, segment.size_bytes, segment.retention_timestamp() if by_time else 0, segment is self._active)
            for segment, end in zip(self.segments, self._ends(), strict=True)
        ]
        count, reason = count_deletable(facts, self.config, now_ms=now_ms, high_watermark=self.high_watermark, log_start_offset=self.log_start_offset)
        if count == 0:
            return []
        if count == len(facts):
            self._queue_roll(now_ms)
            if self._queue.waiting:
                return []
        gone, self.segments = self.segments[:count], self.segments[count:]
        self.move_log_start(self.segments[0].base_offset)
        renamed: list[Path] = []
        for segment in gone:
            renamed.extend(segment.mark_deleted())
            renamed.extend(self._mark_deleted(self._snapshot_path(segment.base_offset)))
        logger.info("%s: deleted %d segments (%s), starts at %d now", self.topic_partition, count, reason, self.log_start_offset)
        return renamed

    def _mark_deleted(self, path: Path) -> list[Path]:
        target = path.with_name(path.name + DELETED_SUFFIX)
        try:
            self._files.rename(path, target)
        except FileNotFoundError:
            return []
        return [target]

    # -- truncation -------------------------------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, now_ms: int, done: Truncated) -> None:
        """Forgets `offset` and everything after it (a follower whose leader has less); a batch that straddles it goes as a whole. The log takes no
        appends until `done` is called, on the owner's thread, with None or with what went wrong."""
        self._all_truncations().ask(Truncation(offset, False, now_ms, done))

    def restart_at(self, offset: int, now_ms: int, done: Truncated) -> None:
        """As `truncate_to`, but forgets everything; the log goes on at `offset` (a follower whose leader no longer has what it would need)."""
        self._all_truncations().ask(Truncation(offset, True, now_ms, done))

    def hold(self) -> None:
        """The log takes no appends until `release` was called as often."""
        self._all_truncations().hold()

    def release(self) -> None:
        """Takes one `hold` back."""
        self._all_truncations().release()

    def _all_truncations(self) -> Truncations:
        if self._truncations is None:
            self._truncations = Truncations(self, self._writer.writer, self._cleaner)
        return self._truncations

    def why_not_truncated(self) -> KafkaError | None:
        if self._closed:
            return KafkaStorageError(f"The log of {self.topic_partition} is closed.")
        return None if self._flush.failure is None else KafkaStorageError(self._flush.failure)

    def behind_queue(self, reached: Callable[[], None]) -> None:
        if self._queue.waiting:
            self._queue.submit_barrier(PendingBarrier(reached))
        else:
            reached()

    def unmade_segment(self, base_offset: int, now_ms: int) -> LogSegment:
        created = self._new_segment(base_offset, now_ms)
        created.offset_index.begin()
        created.time_index.begin()
        return created

    def adopt_copy(self, copy: LogSegment, original: LogSegment) -> None:
        copy.replace(original, self._open_files)

    def hide(self, kept: tuple[LogSegment, ...], original: LogSegment | None, last: LogSegment, end_offset: int, now_ms: int) -> FileChanges:
        """One step of a truncation (`Truncatable`)."""
        begins_anew = original is None
        gone = self.segments[len(kept) + (not begins_anew) :]
        for segment in self.segments[len(kept) :]:
            segment.retire()
        self.segments = (*kept, last)
        self._active = last
        self._write_position = last.size_bytes
        self.log_end_offset = self.next_offset = end_offset
        has_moved_up = end_offset > self.log_start_offset and begins_anew
        self.log_start_offset = end_offset if begins_anew else min(self.log_start_offset, end_offset)
        self.high_watermark = end_offset if begins_anew else min(self.high_watermark, end_offset)
        self._flush.truncated(end_offset)
        self._tail.clear()
        self._tail.segment = last
        self.forget_epochs_from(0 if begins_anew else end_offset)
        if has_moved_up:
            self.on_log_start_moved()
        producers = ProducerState(self.producers.expiration_ms, self.producers.max_producers)
        return FileChanges(self._files, self.directory, gone, self.segments, original, self.log_start_offset, end_offset, self.config, producers, now_ms)

    def forget_epochs_from(self, offset: int) -> None:
        """Leader epochs that begin at an offset or later are not those of the leader."""
        if self.leader_epochs.truncate_from_end(offset):
            self._epochs_file.changed()

    def files_are_changed(self, changes: FileChanges) -> None:
        """The last step of a truncation (`Truncatable`)."""
        self.producers = changes.producers
        self.producers.high_watermark_moved(self.high_watermark)
        self._torn_tail = False
        # What a flush has synced since `hide` was the end of before.
        self._flush.truncated(self.log_end_offset)

    def _remove_files(self, paths: Sequence[Path]) -> None:
        for path in paths:
            with suppress(OSError):
                self._files.unlink(path)

    def _snapshot_path(self, offset: int) -> Path:
        return self.directory / file_name(offset, SNAPSHOT_SUFFIX)

    # -- end --------------------------------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Ends the log. Clean: everything is synced, a producer snapshot is taken, files are trimmed; blocks on the disk. Otherwise files are
        only closed, as if the process had died."""
        try:
            work = self.prepare_close(clean=clean)
        except OSError as error:
            self.finish_close(None, error)
            raise
        self.finish_close(work, 0 if work is None else try_sync(self._files, work))

    def prepare_close(self, *, clean: bool) -> FlushWork | None:
        """The first part of `close`: no more appends; what is to be synced (any thread may do that), None if everything is."""
        if self._closed:
            return None
        self._closed = self._flush.is_closed = True
        if not clean or self.is_failed:
            return None
        assert not self.has_queued_appends, "queued appends must end before the log is closed"
        active = self._active
        snapshot = self._snapshot_path(self.log_end_offset)
        if self.log_end_offset > self.segments[0].base_offset and not snapshot.exists():
            self._files.replace_file(snapshot, encode_snapshot(self.producers.entries()), sync=False)
        if active.max_timestamp >= 0:
            active.time_index.append(active.max_timestamp, active.max_timestamp_offset, sealing=True)
        for segment in self.segments:
            if segment is active or segment.has_unwritten:
                segment.trim()
        self._write_epochs()
        if self._epochs_file.is_unsynced or self._is_new or not self._flush.is_synced(self.log_end_offset):
            return self._flush.collect_now(self.log_end_offset)
        return None

    def finish_close(self, work: FlushWork | None, outcome: int | NotOpenedError | OSError) -> None:
        """The last part: the files are closed. OSError if they could not be synced."""
        try:
            if work is not None:
                self._flush.flushed_now(work, outcome if isinstance(outcome, int) else None)
                if isinstance(outcome, OSError):
                    raise outcome
                if self.recovery_point < self.log_end_offset:
                    raise OSError(errno.EIO, "the files beside it could not be written")
                self._drop_stray_snapshots()
        finally:
            for segment in self.segments:
                segment.close()

    def _drop_stray_snapshots(self) -> None:
        wanted = {segment.base_offset for segment in self.segments} | {self.log_end_offset}
        for offset in snapshot_offsets(self.directory, self._files):
            if offset not in wanted:
                self._remove_files([self._snapshot_path(offset)])

    def mark_deleted(self) -> Path:
        """The topic is gone: the directory gets a name that the next start removes. Readers that hold a region go on. The new path; its
        files are removed after `file.delete.delay.ms`. The name is not synced: many partitions go together (`LogDirectories.sync_names`)."""
        self._closed = self._flush.is_closed = True
        target = doomed_directory(self.directory, self.topic_partition)
        self._epochs_file.leave()
        if self._truncations is not None:
            self._truncations.leave()
        self._files.rename(self.directory, target)
        self.directory = target
        for segment in self.segments:
            segment.close()
            segment.moved(target)
        return target


def doomed_directory(directory: Path, topic_partition: TopicPartition) -> Path:
    """The name that a partition's directory gets when it is to be removed, Kafka's: the next start removes what is left under it."""
    unique = uuid.uuid4().hex
    stem = str(topic_partition)[: _DIRECTORY_NAME_MAX - len(unique) - len(DELETE_DIRECTORY_SUFFIX) - 1]
    return directory.with_name(f"{stem}.{unique}{DELETE_DIRECTORY_SUFFIX}")


_base_offset = attrgetter("base_offset")


def _nothing() -> None:
    """Nobody wants to know."""
