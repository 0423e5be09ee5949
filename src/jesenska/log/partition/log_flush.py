"""Syncing one log, off the owner's thread, and the recovery point that follows from it.

    flush()        everything that is published; calls during a flush share the next one (a group commit)
    flush_up_to()  a segment that was just sealed

The recovery point moves when a flush has ended, never before, and not for a flush that a truncation overtook: what is
below it is on the disk. An fsync that fails leaves nobody knowing what is there (a second one may claim success), so
the log is failed from then on: no more appends until the next start has recovered it. A file that could not even be
opened (too many are open) leaves nothing in doubt: the recovery point stays where it is, and the next flush tries
again.
"""

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


#: What `open` answers and `fsync` never does: too many open files, no memory, no permission.
_NOT_OPENED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM})


class NotOpenedError(NamedTuple):
    """The outcome of a flush that could not open the directory whose names are to survive: nothing was synced, nothing
    is in doubt."""

    reason: str


class FileWrite(Protocol):
    """Something on its way to a file beside the log: `run` in any thread (OSError if the disk does not take it), then
    `done` on the owner's."""

    def run(self) -> None: ...

    def done(self) -> None: ...


class SegmentWork(NamedTuple):
    """One segment's part of a flush."""

    #: Its file, to be released afterwards.
    opened: OpenFile
    #: What the file is cut to, if it is longer: a sealed segment that was preallocated. None leaves it alone.
    cut_to: int | None
    #: Index entries that are not on disk yet.
    writes: list[IndexWrite]
    base_offset: int
    #: The segment's index, and which generation of it the work is of: a later one has a file that ends elsewhere.
    guard: IndexFile
    generation: int

    def trim(self, files: FileLayer) -> None:
        """Cuts a preallocated file to what it holds, unless a truncation has given the file another end meanwhile."""
        if self.cut_to is None:
            return
        with self.guard.lock:
            if self.generation == self.guard.generation and files.size(self.opened.fileno()) > self.cut_to:
                files.truncate(self.opened.fileno(), self.cut_to)


class FlushWork(NamedTuple):
    """What a flush writes and syncs; the log's own state is not touched until it has ended."""

    segments: list[SegmentWork]
    #: The table of leader epochs, if its file does not hold it.
    epochs: FileWrite | None
    #: Small files, by name.
    paths: list[Path]
    #: Directories whose names are to survive.
    directories: list[Path]
    #: Everything below this offset is on disk then.
    reached: int


class LogFlush:
    """The flushes of one log. `collect(offset)` gives the work for everything below an offset, `describe_failure` the
    sentence that a person reads when an fsync failed, and `incomplete(work)` is told of work that did not get as far
    as it should, and that the next flush has to do again."""

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
        #: Everything below is synced.
        self.recovery_point = recovery_point
        #: Published since the last flush began.
        self.unflushed_records = 0
        #: Why the log takes no more appends; None while it does.
        self.failure: str | None = None
        self.is_closed = False
        self._writer = writer
        self._files = files
        self._collect = collect
        self._describe_failure = describe_failure
        self.incomplete = incomplete
        self._last_flush_ms = now_ms
        #: How often the log was cut.
        self.truncations = 0
        self._synced_truncations = 0
        #: How often the log has gone into another directory.
        self._moves = 0
        self._runs = False
        self._again = False
        self._waiters: list[Flushed] = []

    @property
    def runs(self) -> bool:
        """A flush of everything is in flight."""
        return self._runs

    def flush(self, log_end_offset: Callable[[], int], done: Flushed | None = None) -> None:
        """Syncs everything that is published; `done` is called on the owner's thread."""
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
        """Flushes if the topic's `flush.ms` has passed since the last time."""
        if now_ms - self._last_flush_ms >= flush_ms and log_end_offset() > self.recovery_point:
            self._last_flush_ms = now_ms
            self.flush(log_end_offset)

    def flush_up_to(self, offset: int, done: Flushed | None = None) -> None:
        """Syncs everything below an offset."""
        try:
            work = self._collect(offset)
        except OSError as error:
            # Nothing was synced and nothing is in doubt: the recovery point stays where it is.
            if done is not None:
                done(KafkaStorageError(f"{error}"))
            return
        truncations, moves, writer = self.truncations, self._moves, self._writer

        def flushed(outcome: int | NotOpenedError | BaseException) -> None:
            for item in work.segments:
                item.opened.release()
            failure: KafkaError | None = None
            if moves != self._moves:
                # The log is in another directory now, where all that this one was to sync is synced.
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
                # The log was given up meanwhile.
                failure = None if isinstance(outcome, int) else KafkaStorageError(f"{outcome}")
            else:
                if self.failure is None:
                    self.failure = self._describe_failure(outcome)
                failure = KafkaStorageError(self.failure)
            if done is not None:
                done(failure)

        writer.flush(partial(sync, self._files, work), flushed)

    def collect_now(self, offset: int) -> FlushWork:
        """The work of a flush that the caller does itself, with `sync`, and ends with `flushed_now`."""
        return self._collect(offset)

    def flushed_now(self, work: FlushWork, reached: int | None) -> None:
        """The caller has done a flush's work; None if it failed."""
        for item in work.segments:
            item.opened.release()
        if reached is not None:
            self._reached(work, reached)
            self._synced_truncations = self.truncations

    def _reached(self, work: FlushWork, offset: int) -> None:
        """A flush has brought everything below an offset to the disk."""
        for item in work.segments:
            if item.base_offset < offset:
                for write in item.writes:
                    write.done()
        self.recovery_point = max(self.recovery_point, offset)

    def is_synced(self, offset: int) -> bool:
        """True if the disk holds everything below an offset, and the file's end as it is since the last truncation."""
        return self.recovery_point >= offset and self._synced_truncations == self.truncations

    def truncated(self, offset: int) -> None:
        """The log ends at `offset` from here on, or its files do; what a flush in flight syncs is not what is
        there."""
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)

    def moved(self, writer: DirectoryWriter, offset: int) -> None:
        """The log is in the directory of another writer, where everything below `offset` is synced."""
        self._moves += 1
        self._writer = writer
        self.recovery_point = offset
        self._synced_truncations = self.truncations


def sync(files: FileLayer, work: FlushWork) -> int | NotOpenedError:
    """Writes index entries and syncs: segment files by their descriptors, the small files beside them by name (one
    that was renamed away meanwhile is no loss), then the names. How far it reached: no farther than to a segment whose
    index entries find no room, so that recovery builds them anew, and nowhere if the leader epochs find none, or a
    small file cannot be opened."""
    reached = work.reached
    for item in work.segments:
        try:
            item.trim(files)
            for write in item.writes:
                write.run()
        except OSError as error:
            logger.warning("the files of segment %d could not be brought to their end: %s", item.base_offset, error)
            reached = min(reached, item.base_offset)
        files.fsync(item.opened.fileno())
    if work.epochs is not None:
        try:
            work.epochs.run()
        except OSError as error:
            # Recovery takes them from the batches above the recovery point, so that stays where it is.
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
    """As `sync`, for a thread that nobody waits for with an exception: the error is the outcome."""
    try:
        return sync(files, work)
    except OSError as error:
        return error
