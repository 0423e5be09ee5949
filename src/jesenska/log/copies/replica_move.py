"""The move of one replica to another log directory of its broker, on the thread of the log's owner. `future_files`
changes the files, in another thread; `move_steps` decides the next step.

    state      meaning                                            next state
    WAITING    waits for a free thread                            COPYING
    COPYING    pieces are copied; the log is in use               CLOSING, when nothing is missing
    CLOSING    the log takes no appends (they wait in its queue)  COPYING again, if too much has changed meanwhile;
               while the last bytes are copied and synced         OVER, when the log continues in the new directory
    OVER       the replica has moved, or the move was given up

Segments are copied as files, and appends wait only while the last part of the active segment is copied. Reading and
appending each record, as a follower does, would be much slower, and a second log would need its own indexes, epochs
and producers. The disadvantage: a segment that a truncation has changed is compared from its beginning again.
Compaction of the log pauses during the move, as with Apache Kafka.

The log remains the same object, with its high watermark, producers, epochs and waiting callers. Only the place of its
files changes (`PartitionLog.go_on_in`), so no offset can change.

If the disk has no room for a copy, or the process no file descriptor, the copy is tried again later. If a directory
fails, its moves end; they begin again when the broker is started with the directory repaired."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar
from uuid import UUID

from jesenska.base.identifiers import TopicPartition
from jesenska.log.copies.future_files import (
    FutureFiles,
    LogEnd,
    MoveIsOverError,
    SegmentIsGoneError,
    SourceFailedError,
    TargetFailedError,
)
from jesenska.log.copies.move_steps import (
    CopiedSegment,
    CopyPiece,
    Remove,
    Seal,
    SegmentNow,
    Step,
    copied_end_offset,
    copied_of,
    next_step,
    only_end_is_missing,
)
from jesenska.log.directory.log_directory import LogDirectory
from jesenska.log.disk.background import Background, InlineBackground
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.closing import doomed_directory
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.segments.segment import LogSegment
from jesenska.log.segments.segment_file import OpenFile

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes of a segment that are copied between two syncs.
_SYNC_BYTES: Final = 64 * 1024 * 1024
#: Largest number of bytes that are copied and synced while appends wait.
_END_MAX_BYTES: Final = 4 * 1024 * 1024
#: Delay in seconds after a disk had no room; delay for a log that is busy or whose move is ending.
_BACKOFF_SECONDS: Final = 5.0
BUSY_SECONDS: Final = 0.05
_WAIT_MAX_SECONDS: Final = 1.0


class MoveState(Enum):
    WAITING = "waiting"
    COPYING = "copying"
    CLOSING = "closing"
    OVER = "over"


@dataclass(slots=True)
class MoveSurroundings:
    """The dependencies of moves: threads, time and random ids."""

    #: Runs the copying. It has one thread for each move in progress.
    background: Background
    #: Calls a function on the owner's thread after a number of seconds.
    later: Callable[[float, Callable[[], None]], object]
    monotonic_ms: Callable[[], int]
    new_uuid: Callable[[], UUID]


class MoveOwner(Protocol):
    """The interface of the object that manages all moves; each move calls it."""

    def piece_bytes(self) -> int:
        """Returns the number of bytes that are copied in one step."""
        ...

    def moved(self, size_bytes: int) -> None:
        """Counts copied bytes towards the speed limit."""
        ...

    def wait_seconds(self) -> float:
        """Returns the delay in seconds before the next step, which keeps the speed within the limit."""
        ...

    def is_busy(self, topic_partition: TopicPartition) -> bool:
        """Returns true while the log must stay in its directory."""
        ...

    def relocated(self, move: ReplicaMove, old_directory: Path) -> None:
        """Handles a completed move: the log is in its new directory. The old directory was renamed to `old_directory`
        and must be removed."""
        ...

    def ended(self, move: ReplicaMove) -> None:
        """Handles the end of the move, also if it failed."""
        ...


class ReplicaMove:
    def __init__(
        self,
        log: PartitionLog,
        source: LogDirectory,
        target: LogDirectory,
        future: Path,
        files: FileLayer,
        around: MoveSurroundings,
        owner: MoveOwner,
    ) -> None:
        """`future` is the existing directory in `target` in which the copy is made."""
        self.log = log
        self.source = source
        self.target = target
        self.future = future
        self.state = MoveState.WAITING
        #: The log directory to which the replica moves after this move. It is set if another move was requested when
        #: this move could no longer be given up.
        self.next_target: LogDirectory | None = None
        self._files = files
        self._around = around
        self._owner = owner
        self._copied: dict[int, CopiedSegment] = {}
        #: True if the move is given up permanently, so that the copy must be removed.
        self.removes_copy = False
        self._has_begun = False
        self._is_stopping = False
        #: The number of truncations that the log had when the checkpoints of the new directory were written; None
        #: before that.
        self._prepared: int | None = None
        self._rounds = 0
        self._in_thread = False
        #: The segment that the last step copied.
        self._at: LogSegment | None = None
        self._unsynced_bytes = 0
        self._begun_ms = 0
        self._moved_bytes = 0
        self._future_files = FutureFiles(log.directory, future, target.path / str(log.topic_partition), files)

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def copied_bytes(self) -> int:
        """The number of bytes of the log that have been copied."""
        copied = self._copied
        return sum(copied_of(segment, copied).copied_bytes for segment in self._segments())

    @property
    def end_offset(self) -> int:
        """The approximate offset up to which the copy has the log's records."""
        return copied_end_offset(self._segments(), self._copied)

    @property
    def may_be_given_up(self) -> bool:
        """False during the last part of the move, while its outcome decides which directory the log is in."""
        return not (self.state is MoveState.CLOSING and self._in_thread)

    def _segments(self) -> Sequence[SegmentNow]:
        log = self.log
        return [
            SegmentNow(segment.base_offset, segment, segment.size_bytes, segment.is_sealed, end)
            for segment, end in zip(log.segments, log.ends(), strict=True)
        ]

    # -- copying ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Starts the copying. The caller has a free thread for it."""
        self.state = MoveState.COPYING
        self._begun_ms = self._around.monotonic_ms()
        self._go_on()

    def _go_on(self) -> None:
        if self.state is not MoveState.COPYING or self._in_thread:
            return
        log = self.log
        if log.is_closed or log.is_failed:
            self.give_up("the log is closed, or takes no more records")
        elif not self._has_begun:
            self._submit(partial(self._future_files.begin, log.topic_id), self._found)
        elif self._unsynced_bytes >= _SYNC_BYTES:
            self._sync(self._go_on)
        elif (wait_seconds := self._owner.wait_seconds()) > 0:
            # The wait is short, because the speed limit may be raised during it.
            self._around.later(min(wait_seconds, _WAIT_MAX_SECONDS), self._go_on)
        else:
            step = next_step(self._segments(), self._copied, self._owner.piece_bytes())
            if step is not None:
                self._do(step)
            elif self._unsynced_bytes > self._end_max_bytes:
                self._rounds += 1
                self._sync(self._go_on)
            elif self._prepared != log.flushes.truncations:
                self._prepare_end()
            else:
                self._close()

    @property
    def _end_max_bytes(self) -> int:
        """Largest number of bytes that are copied and synced while appends wait. It grows with the number of failed
        attempts."""
        return _END_MAX_BYTES << min(self._rounds // 4, 6)

    def _found(self, base_offsets: list[int]) -> None:
        self._has_begun = True
        self._copied.update((base_offset, CopiedSegment(None, 0)) for base_offset in base_offsets)
        self._go_on()

    def _do(self, step: Step) -> None:
        if isinstance(step, Remove):
            self._submit(
                partial(self._future_files.remove, step.base_offsets), partial(self._removed, step.base_offsets)
            )
            return
        log = self.log
        segment = self._at = log.segments[log.segment_index(step.base_offset)]
        assert segment.base_offset == step.base_offset, "the plan is of these segments"
        if isinstance(step, Seal):
            copy = segment.copy()
            work = partial(self._future_files.seal, copy, segment)

            def sealed(outcome: None) -> None:
                self._unsynced_bytes = 0
                self._copied[segment.base_offset] = CopiedSegment(segment, copy.size_bytes, True)
                self._go_on()

            self._submit(work, sealed)
            return
        assert isinstance(step, CopyPiece)
        try:
            opened = segment.file.handle()
        except OSError as error:
            self._source_failed(error, False)
            return
        opened.acquire()

        def copied(outcome: None) -> None:
            self._copied[segment.base_offset] = CopiedSegment(segment, step.position + step.size_bytes)
            self._unsynced_bytes += step.size_bytes
            self._moved_bytes += step.size_bytes
            self._owner.moved(step.size_bytes)
            self._go_on()

        piece = partial(
            self._future_files.copy_piece, step.base_offset, opened.fileno(), step.position, step.size_bytes
        )
        self._submit(piece, copied, opened)

    def _removed(self, base_offsets: tuple[int, ...], outcome: None) -> None:
        for base_offset in base_offsets:
            self._copied.pop(base_offset, None)
        self._go_on()

    def _sync(self, then: Callable[[], None]) -> None:
        """Syncs the copied part of the last segment, then calls `then`. Earlier segments are already synced."""

        def synced(outcome: None) -> None:
            self._unsynced_bytes = 0
            then()

        last = max(self._copied, default=None)
        if last is None or not self._unsynced_bytes:
            then()
        else:
            self._submit(partial(self._future_files.sync, last), synced)

    def _submit(self, work: Callable[[], T], then: Callable[[T], None], opened: OpenFile | None = None) -> None:
        """Runs `work` in the other thread, then `then` with the result on the owner's thread. The file `opened` is
        released after the work."""
        self._in_thread = True

        def done(outcome: T | BaseException) -> None:
            self._in_thread = False
            if opened is not None:
                opened.release()
            if self.state is MoveState.OVER:
                self._close_files()
            elif isinstance(outcome, BaseException):
                self._failed(outcome)
            else:
                then(outcome)

        self._around.background.submit(work, done)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _prepare_end(self) -> None:
        """Adds the log to the checkpoints of the new directory before the log is there. So a start after a crash finds
        its offsets."""
        target, topic_partition = self.target, self.topic_partition
        target.expect(self.log, self._synced_end())
        cleaned_up_to = self.source.cleaner_offsets.get(topic_partition)
        if cleaned_up_to is None:
            target.cleaner_offsets.pop(topic_partition, None)
        else:
            target.cleaner_offsets[topic_partition] = cleaned_up_to
        target.write_incoming(partial(self._checkpoints_written, self.log.flushes.truncations))

    def _synced_end(self) -> int:
        """Returns the offset below which the copy has all records, and is synced."""
        sealed = [segment for segment in self._segments() if copied_of(segment, self._copied).is_sealed]
        return sealed[-1].end_offset if sealed else 0

    def _checkpoints_written(self, truncations: int, outcome: BaseException | None) -> None:
        if self.state is MoveState.OVER:
            return
        if outcome is not None:
            self._again(f"the checkpoints in {self.target.path} cannot be written: {outcome}")
        else:
            self._prepared = truncations
            self._go_on()

    def _close(self) -> None:
        """Makes appends to the log wait in its queue, if the log is not busy; otherwise tries again later."""
        if self.log.is_hindered or self._owner.is_busy(self.topic_partition):
            self._around.later(BUSY_SECONDS, self._go_on)
        else:
            self.state = MoveState.CLOSING
            self.log.queue.hold(self._held)

    def _held(self) -> None:
        """Copies and syncs the last part of the log. It is called when all writes before it have ended."""
        log = self.log
        if self.state is MoveState.OVER or not log.queue.is_held:
            self._let_go()
            if self.state is MoveState.CLOSING:
                self.state = MoveState.COPYING
            self._around.later(BUSY_SECONDS, self._go_on)
            return
        is_ready = not (log.is_closed or log.is_failed or log.is_hindered or self._owner.is_busy(self.topic_partition))
        is_ready = is_ready and self._prepared == log.flushes.truncations
        if not is_ready or not only_end_is_missing(self._segments(), self._copied, self._end_max_bytes):
            self._rounds += 1
            self.state = MoveState.COPYING
            self._let_go()
            self._around.later(BUSY_SECONDS if not is_ready else 0.0, self._go_on)
            return
        active = self._at = log.active_segment
        try:
            opened = active.file.handle()
        except OSError as error:
            self.state = MoveState.COPYING
            self._let_go()
            self._source_failed(error, False)
            return
        opened.acquire()
        copied_bytes = copied_of(self._segments()[-1], self._copied).copied_bytes
        self._moved_bytes += active.size_bytes - copied_bytes
        allocated_bytes = log.config.segment_bytes if log.config.preallocate else 0
        end = LogEnd(
            active.base_offset,
            opened.fileno(),
            copied_bytes,
            active.size_bytes,
            allocated_bytes,
            log.leader_epochs.entries(),
            log.topic_id,
        )

        def finished(outcome: int | BaseException) -> None:
            self._in_thread = False
            opened.release()
            self._finished(outcome)

        self._in_thread = True
        self._around.background.submit(partial(self._future_files.finish, end), finished)

    def _finished(self, outcome: int | BaseException) -> None:
        """Handles the end of the last copy. If it succeeded, the log switches to the new directory; otherwise the
        copying continues or the move fails."""
        log = self.log
        if isinstance(outcome, BaseException):
            self.state = MoveState.COPYING
            self._failed(outcome)
            self._let_go()
        elif log.is_closed or log.is_failed:
            # The log's directory has failed, and the next start finds the log in the new directory; or the partition
            # was deleted together with the copy.
            self._files.close(outcome)
            self._let_go()
            self.state = MoveState.COPYING
            self.future = self._future_files.future = self.target.path / str(self.topic_partition)
            self._over()
        elif self.target.is_offline:
            self._files.close(outcome)
            (InlineBackground() if self._is_stopping else self._around.background).submit(
                self._future_files.stay, self._stays
            )
        else:
            self._switch(OpenFile(outcome, self._files))

    def _stays(self, outcome: BaseException | None) -> None:
        if isinstance(outcome, SourceFailedError):
            self.source.writer.disk_failed(outcome.error, True)
        self._let_go()
        self.state = MoveState.COPYING
        self.give_up(f"the log directory {self.target.path} is offline")

    def _switch(self, active: OpenFile) -> None:
        log, source, target, topic_partition = self.log, self.source, self.target, self.topic_partition
        log.leave_directory()
        old_directory = log.directory
        doomed = doomed_directory(old_directory, topic_partition)
        try:
            self._files.rename(old_directory, doomed)
        except OSError as error:
            # The old directory has `jesenska-moved-to`, so the next start removes it.
            logger.warning("%s cannot be renamed for deletion: %s; the next start removes it", old_directory, error)
            source.writer.disk_failed(error, False)
            doomed = old_directory
        for segment in log.go_on_in(target.path / str(topic_partition), target.writer, active):
            segment.moved(doomed)
        source.logs.pop(topic_partition, None)
        target.logs[topic_partition] = log
        target.incoming.pop(topic_partition, None)
        if source.cleaner_offsets.pop(topic_partition, None) is not None:
            source.write_cleaner_offsets()
        self.state = MoveState.OVER
        log.queue.release()
        seconds = (self._around.monotonic_ms() - self._begun_ms) / 1000
        logger.info(
            "%s has moved from %s to %s: %d bytes in %.1f s",
            topic_partition,
            source.path,
            target.path,
            self._moved_bytes,
            seconds,
        )
        if doomed != old_directory and not self._is_stopping:
            self._around.background.submit(self._future_files.settle, partial(self._settled, doomed))
        target.write_recovery_points()
        self._owner.ended(self)

    def _settled(self, old_directory: Path, outcome: BaseException | None) -> None:
        if isinstance(outcome, SourceFailedError):
            self.source.writer.disk_failed(outcome.error, True)
        else:
            self._owner.relocated(self, old_directory)

    def _let_go(self) -> None:
        """Lets the log take appends again. If the log is closed or has failed, the waiting appends fail."""
        queue = self.log.queue
        if not queue.is_held:
            return
        if self.log.is_closed or self.log.is_failed:
            queue.fail_held(OSError("the log takes no more records"))
        else:
            queue.release()

    # -- failures -----------------------------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, SegmentIsGoneError) and self._at in self.log.segments:
            self._again(f"{self._at} ends before its records do; check the disk")
        elif isinstance(error, SegmentIsGoneError):
            self._around.later(0.0, self._go_on)
        elif isinstance(error, SourceFailedError):
            self._source_failed(error.error, error.is_in_doubt)
        elif isinstance(error, TargetFailedError):
            self.target.writer.disk_failed(error.error, error.is_in_doubt)
            self._again(f"{self.target.path} cannot be written: {error.error.strerror or error.error}")
        elif not isinstance(error, MoveIsOverError):
            logger.error("the move of %s to %s failed: %r", self.topic_partition, self.target.path, error)
            self.give_up("the copy failed because of a mistake in the broker")

    def _source_failed(self, error: OSError, is_in_doubt: bool) -> None:
        self.source.writer.disk_failed(error, is_in_doubt)
        self._again(f"{self.log.directory} cannot be read: {error.strerror or error}")

    def _again(self, why: str) -> None:
        """Continues the copy after a delay. Gives up the move if a directory is offline."""
        for directory in (self.target, self.source):
            if directory.is_offline:
                self.give_up(f"the log directory {directory.path} is offline")
                return
        logger.error(
            "%s is not moved to %s for now: %s; it is tried again every %g s",
            self.topic_partition,
            self.target.path,
            why,
            _BACKOFF_SECONDS,
            extra={"once_a_minute": (str(self.target.path), "no move")},
        )
        self._around.later(_BACKOFF_SECONDS, self._go_on)

    def give_up(self, why: str | None) -> None:
        """Gives up the move: the log stays in its directory. The copied files stay on the disk; the owner removes
        them, or the next start continues with them. `why` is logged; with None nothing is logged."""
        assert self.may_be_given_up, "it is decided just now where the log is"
        if self.state is MoveState.OVER:
            return
        if why is not None:
            logger.warning(
                "the move of %s from %s to %s is given up: %s",
                self.topic_partition,
                self.source.path,
                self.target.path,
                why,
            )
        self._over()

    def stop(self) -> None:
        """Stops the move, so that the next start continues it. If its last part is running, the move completes or
        fails by itself."""
        self._is_stopping = True
        if self.may_be_given_up:
            self._over()

    def _over(self) -> None:
        if self.state is MoveState.OVER:
            return
        self.state = MoveState.OVER
        self._future_files.is_over = True
        self.target.incoming.pop(self.topic_partition, None)
        if not self._in_thread:
            self._close_files()
        self._owner.ended(self)

    def _close_files(self) -> None:
        self._future_files.close()
