"""Syncs one log, in another thread than the owner's, and raises the recovery point after the sync.

    flush()        everything that is published; all calls during a flush share the next flush (a group commit)
    flush_up_to()  everything below an offset, such as the end of a segment that was just sealed

The recovery point is raised only after a flush has ended, and not if the log was truncated during the flush. So all
records below the recovery point are on the disk. After a failed fsync the content of the disk is unknown (a second
fsync may report success). So the log counts as failed: it accepts no appends until the next start has recovered it. If
a file could not even be opened (because too many files are open), the content of the disk is not in doubt. Then the
recovery point stays, and the next flush tries again."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from jesenska.base.errors import KafkaError, KafkaStorageError
from jesenska.log.disk.background import DirectoryWriter
from jesenska.log.disk.files import FileLayer
from jesenska.log.segments.index_file import IndexFile, IndexWrite
from jesenska.log.segments.segment_file import OpenFile

logger = logging.getLogger(__name__)

Flushed = Callable[[KafkaError | None], None]


#: Errors of `open` that `fsync` never has: too many open files, no memory, no permission.
_NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM})


class NotOpenedError(NamedTuple):
    """The result of a flush that could not open the directory whose names were to be synced. Nothing was synced, and
    the content of the disk is not in doubt."""

    reason: str


class FileWrite(Protocol):
    """A write to an index file or the leader epoch file of a log. Call `run` in any thread (it raises OSError if the
    write fails), then `done` on the owner's thread."""

    def run(self) -> None: ...

    def done(self) -> None: ...


class SegmentWork(NamedTuple):
    """The part of a flush that concerns one segment."""

    #: The segment's file, which must be released after the flush.
    opened: OpenFile
    #: The size to which a preallocated file of a sealed segment is cut. None leaves its size unchanged.
    cut_to: int | None
    #: Index entries that are not on disk yet.
    writes: list[IndexWrite]
    base_offset: int
    #: The segment's index, and the generation of the index when the work was collected. A truncation begins a new
    #: generation and changes the end of the file, so work of an older generation is not done.
    guard: IndexFile
    generation: int

    def trim(self, files: FileLayer) -> None:
        """Cuts a preallocated file to its content. Does nothing if a truncation has changed the end of the file since
        the work was collected."""
        if self.cut_to is None:
            return
        with self.guard.lock:
            if self.generation == self.guard.generation and files.size(self.opened.fileno()) > self.cut_to:
                files.truncate(self.opened.fileno(), self.cut_to)


class FlushWork(NamedTuple):
    """The writes and syncs of a flush. They do not touch the log's own state, which changes only after the flush has
    ended."""

    segments: list[SegmentWork]
    #: The write of the leader epoch table; None if its file is up to date.
    epochs: FileWrite | None
    #: The paths of the small files to be synced: indexes, snapshots, leader epochs.
    paths: list[Path]
    #: Directories whose names are to be synced.
    directories: list[Path]
    #: After the flush everything below this offset is on the disk.
    reached: int


class LogFlush:
    """The flushes of one log. `collect(offset)` returns the work for everything below an offset. `describe_failure`
    returns the message for an operator after a failed fsync. `incomplete(work)` is called for work that was not
    completed, so that the next flush repeats it."""

    def __init__(
        self,
        writer: DirectoryWriter,
        files: FileLayer,
        recovery_point: int,
        collect: Callable[[int], FlushWork],
        describe_failure: Callable[[object], str],
        incomplete: Callable[[FlushWork], None],
        now_ms: int,
    ) -> None:
        #: All records below this offset are synced.
        self.recovery_point = recovery_point
        #: Number of records that were published since the last flush began.
        self.unflushed_records = 0
        #: The reason why the log accepts no appends; None while it accepts them.
        self.failure: str | None = None
        self.is_closed = False
        self._writer = writer
        self._files = files
        self._collect = collect
        self._describe_failure = describe_failure
        self.incomplete = incomplete
        self._last_flush_ms = now_ms
        #: Number of truncations of the log.
        self.truncations = 0
        self._synced_truncations = 0
        #: Number of moves of the log to another directory.
        self._moves = 0
        self._runs = False
        self._again = False
        self._waiters: list[Flushed] = []

    @property
    def runs(self) -> bool:
        """True while a flush of the whole log is in progress."""
        return self._runs

    def flush(self, log_end_offset: Callable[[], int], done: Flushed | None = None) -> None:
        """Syncs everything that is published. `done` is called on the owner's thread."""
        if done is not None:
            self._waiters.append(done)
        if self._runs:
            self._again = True
            return
        waiters, self._waiters = self._waiters, []
        if self.failure is not None:
            for waiter in waiters:
                waiter(KafkaStorageError(self.failure))
            return
        self._runs, self._again = True, False
        self.unflushed_records = 0

        def flushed(failure: KafkaError | None) -> None:
            self._runs = False
            for waiter in waiters:
                waiter(failure)
            if self._again and not self._runs:
                self.flush(log_end_offset)

        self.flush_up_to(log_end_offset(), flushed)

    def flush_if_due(self, log_end_offset: Callable[[], int], now_ms: int, flush_ms: int) -> None:
        """Flushes the log if the topic's `flush.ms` has passed since the last flush by this method."""
        if now_ms - self._last_flush_ms >= flush_ms and log_end_offset() > self.recovery_point:
            self._last_flush_ms = now_ms
            self.flush(log_end_offset)

    def flush_up_to(self, offset: int, done: Flushed | None = None) -> None:
        """Syncs everything below an offset, and then calls `done` on the owner's thread."""
        try:
            work = self._collect(offset)
        except OSError as error:
            # Nothing was synced, and the content of the disk is not in doubt, so the recovery point stays.
            if done is not None:
                done(KafkaStorageError(f"{error}"))
            return
        truncations, moves, writer = self.truncations, self._moves, self._writer

        def flushed(outcome: int | NotOpenedError | BaseException) -> None:
            for item in work.segments:
                item.opened.release()
            failure: KafkaError | None = None
            if moves != self._moves:
                # The log has moved to another directory, in which everything of this flush is synced.
                if isinstance(outcome, OSError):
                    writer.disk_failed(outcome, True)
            elif isinstance(outcome, NotOpenedError):
                self.incomplete(work)
                failure = KafkaStorageError(outcome.reason)
            elif isinstance(outcome, int) and self.failure is None:
                if outcome < work.reached:
                    self.incomplete(work)
                if truncations == self.truncations:
                    self._reached(work, outcome)
                    self._synced_truncations = truncations
            elif self.is_closed and self.failure is None:
                # The log was closed during the flush.
                failure = None if isinstance(outcome, int) else KafkaStorageError(f"{outcome}")
            else:
                if self.failure is None:
                    self.failure = self._describe_failure(outcome)
                failure = KafkaStorageError(self.failure)
            if done is not None:
                done(failure)

        writer.flush(partial(sync, self._files, work), flushed)

    def collect_now(self, offset: int) -> FlushWork:
        """Returns the work of a flush. The caller does the work with `sync`, and then calls `flushed_now`."""
        return self._collect(offset)

    def flushed_now(self, work: FlushWork, reached: int | None) -> None:
        """Finishes a flush whose work the caller has done. `reached` is the offset below which everything is on the
        disk, or None if the flush failed."""
        for item in work.segments:
            item.opened.release()
        if reached is not None:
            self._reached(work, reached)
            self._synced_truncations = self.truncations

    def _reached(self, work: FlushWork, offset: int) -> None:
        """Records that everything below an offset is on the disk after a flush."""
        for item in work.segments:
            if item.base_offset < offset:
                for write in item.writes:
                    write.done()
        self.recovery_point = max(self.recovery_point, offset)

    def is_synced(self, offset: int) -> bool:
        """Returns true if everything below `offset` is on the disk. After a truncation it returns false until a flush
        has synced the log again."""
        return self.recovery_point >= offset and self._synced_truncations == self.truncations

    def truncated(self, offset: int) -> None:
        """Records that the log, or its files, now end at `offset`. A flush that is in progress began before the
        truncation, so its result is not used."""
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)

    def moved(self, writer: DirectoryWriter, offset: int) -> None:
        """Records that the log is now in another directory. `writer` is the writer of that directory, in which
        everything below `offset` is synced."""
        self._moves += 1
        self._writer = writer
        self.recovery_point = offset
        self._synced_truncations = self.truncations


def sync(files: FileLayer, work: FlushWork) -> int | NotOpenedError:
    """Does the work of a flush. It writes index entries, then syncs the segment files by their descriptors, the small
    files by name (a file that was renamed meanwhile need not be synced), and last the directories.

    Returns the offset below which everything is on the disk. If the index entries of a segment could not be written,
    the offset is at most the base offset of that segment, so that recovery rebuilds the entries. If the leader epochs
    could not be written, or a small file could not be opened, the offset is 0."""
    reached = work.reached
    for item in work.segments:
        try:
            item.trim(files)
            for write in item.writes:
                write.run()
        except OSError as error:
            logger.warning("the files of segment %d could not be cut to their content: %s", item.base_offset, error)
            reached = min(reached, item.base_offset)
        files.fsync(item.opened.fileno())
    if work.epochs is not None:
        try:
            work.epochs.run()
        except OSError as error:
            # Recovery takes the leader epochs from the batches above the recovery point. So the recovery point must
            # stay where it is.
            logger.warning("the leader epochs could not be written: %s", error)
            reached = 0
    for path in work.paths:
        try:
            descriptor = files.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s could not be opened to be synced: %s; the next flush tries again", path, error)
            reached = 0
            continue
        try:
            files.fsync(descriptor)
        finally:
            files.close(descriptor)
    for directory in work.directories:
        try:
            files.fsync_directory(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in _NOT_OPENED:
                raise
            logger.warning(
                "the directory %s could not be opened to be synced: %s; the next flush tries again", directory, error
            )
            return NotOpenedError(f"{directory} could not be opened to be synced: {error.strerror}; try again.")
    return reached


def try_sync(files: FileLayer, work: FlushWork) -> int | NotOpenedError | OSError:
    """Does the same as `sync`, but returns an OSError instead of raising it. It is for a thread in which no caller
    would see an exception."""
    try:
        return sync(files, work)
    except OSError as error:
        return error
