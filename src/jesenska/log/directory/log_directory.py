"""A log directory of a broker: its lock, its logs, and its checkpoints (`checkpoints` describes their format).

The background thread writes a checkpoint as a whole, if it has changed, and never twice at a time. If a caller needs
the present offsets on the disk while the file is being written, the file is written again afterwards.

A directory whose disk fails is offline from then on, until the broker is started again: its logs are given up, and
nothing more is written there (`LogDirectories.take_offline`). `_disk_failed` defines the errors that count as a
failure.

Truncated logs are held (they accept no appends) until their recovery points are written: otherwise a crash would leave
unsynced batches below a recovery point. If a truncation has lowered a log start offset, that checkpoint is written
first: a log start offset beyond the log's end would make the next start drop the log.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.directory.directory_lock import DirectoryLock, UnusableDirectoryError
from jesenska.log.directory.directory_starts import FILE_NAME as DIRECTORY_STARTS
from jesenska.log.directory.directory_starts import DirectoryStarts, decode_directory_starts, encode_directory_starts
from jesenska.log.disk import checkpoints
from jesenska.log.disk.background import Background, DirectoryWriter, log_failure
from jesenska.log.disk.checkpoints import CleanShutdownMarker, OffsetCheckpoint
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

#: Errors of a disk that is broken, gone or read-only.
_BROKEN = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EUCLEAN})
#: Errors for a missing file: perhaps the whole directory is missing.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
#: Checkpoints that hold the state of each log for the next start.
_OF_ONE_LOG = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)
#: The former end of a log that lacks records of its replica. The end is unknown; this value is larger than any real
#: end.
_UNKNOWN_END = 2**63 - 1
#: Called when a checkpoint is written (with None), or with the error.
Written = Callable[[BaseException | None], None]


class IncomingLog(NamedTuple):
    """A log that is about to move into the directory. The checkpoints name the log before the move, so that they are
    right after it."""

    log: PartitionLog
    #: Everything below this offset is in the copy, and synced.
    synced_end: int


class LogDirectory:
    def __init__(
        self,
        path: Path,
        files: FileLayer,
        writer: DirectoryWriter,
        background: Background,
        on_failure: Callable[[LogDirectory], None] | None = None,
    ) -> None:
        """`on_failure` is called once, on the owner's thread, when the directory fails, perhaps in the middle of work
        on one of the logs."""
        self.path = path
        self.writer = writer
        #: The reason why the directory is offline, one sentence; None while it is online.
        self.failure: str | None = None
        self._files = files
        self._on_failure = on_failure
        writer.disk_failed = self._disk_failed
        self.marker = CleanShutdownMarker(path, files)
        self.recovery_points = OffsetCheckpoint(path / checkpoints.RECOVERY_POINTS, files)
        self.log_start_offsets = OffsetCheckpoint(path / checkpoints.LOG_START_OFFSETS, files)
        self.high_watermarks = OffsetCheckpoint(path / checkpoints.HIGH_WATERMARKS, files)
        self.cleaner_checkpoint = OffsetCheckpoint(path / checkpoints.CLEANER_OFFSETS, files)
        self.cut_checkpoint = OffsetCheckpoint(path / checkpoints.CUT_LOGS, files)
        #: First offset of each compacted log that compaction has not seen.
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.lock: DirectoryLock | None = None
        self.was_clean = False
        #: None if no start was recorded in this directory.
        self.starts: DirectoryStarts | None = None
        #: Logs that end below the offsets in the checkpoints though the last stop was orderly, with their former ends.
        self.cut_logs: dict[TopicPartition, int] = {}
        #: Partitions in this directory.
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: Partitions that are about to be moved into this directory.
        self.incoming: dict[TopicPartition, IncomingLog] = {}
        #: True if this directory gets no new replicas (KIP-1066).
        self.is_cordoned = False
        self._background = background
        #: Content of the checkpoints that are being written now, by file name.
        self._writing: dict[str, Mapping[TopicPartition, int]] = {}
        #: Writes that follow the present one, by file name.
        self._following: dict[str, list[Callable[[], None]]] = {}
        #: Logs that were truncated and wait for their recovery points to be written.
        self._held: list[PartitionLog] = []
        #: Number of truncations that have lowered log start offsets, and how many of them are written to the
        #: checkpoint.
        self._lowered_starts = 0
        self._written_lowered_starts = 0
        #: Content that was last written, so that an idle broker does not write to its disk.
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        #: Log start offsets that are in their checkpoint though the logs do not have them yet, or though they are also
        #: the base offsets of the logs' first segments: after a crash the disk may still have some of the earlier
        #: segments.
        self._announced_starts: dict[TopicPartition, int] = {}

    def unlock(self) -> None:
        """Releases the lock, if it is held."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    # -- failure ------------------------------------------------------------------------------------------------------

    @property
    def is_offline(self) -> bool:
        return self.failure is not None

    def fail(self, reason: object) -> None:
        """Puts the directory offline."""
        if self.failure is None:
            self.failure = f"The log directory {self.path} is offline: {reason}. Mend it and start the broker again."
            logger.error("%s", self.failure)
            if self._on_failure is not None:
                self._on_failure(self)

    def _disk_failed(self, error: OSError, is_in_doubt: bool) -> None:
        """Handles an error of the disk, or of the system. The directory fails if the disk is broken, gone or
        read-only, or if its content `is_in_doubt`. A full disk, and too many open files, may be temporary: they fail
        single requests only."""
        if is_in_doubt or error.errno in _BROKEN or (error.errno in _MISSING and self._is_missing()):
            self.fail(error.strerror or error)

    def _is_missing(self) -> bool:
        try:
            self._files.close(self._files.open(self.path, os.O_RDONLY))
        except OSError as error:
            return error.errno in _MISSING | _BROKEN
        return False

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def writes_checkpoints(self) -> bool:
        """True if a checkpoint is being written; another write may follow."""
        return bool(self._writing)

    def write_high_watermarks(self, done: Written | None = None) -> None:
        # An earlier write may have failed, so the file is written again.
        self._write(self.cut_checkpoint, self.cut_logs.copy)
        self._write(self.high_watermarks, self._present_high_watermarks, done)

    def write_log_start_offsets(self, done: Written | None = None) -> None:
        self._write(self.log_start_offsets, self._moved_log_starts, done)

    def read_checkpoints(self) -> None:
        """Reads the checkpoints at a start, so that `checkpointed` can answer."""
        read = (
            self.recovery_points,
            self.log_start_offsets,
            self.high_watermarks,
            self.cleaner_checkpoint,
            self.cut_checkpoint,
        )
        self._written = {checkpoint.path.name: read_or_nothing(checkpoint) for checkpoint in read}
        self._announced_starts = dict(self._written[checkpoints.LOG_START_OFFSETS])

    def checkpointed(self, checkpoint: OffsetCheckpoint, topic_partition: TopicPartition) -> int:
        """Returns the offset of a partition in a checkpoint of this directory; 0 if the checkpoint does not name the
        partition, or the file cannot be read."""
        return self._written[checkpoint.path.name].get(topic_partition, 0)

    @property
    def in_checkpoints(self) -> set[TopicPartition]:
        """Returns the partitions that the checkpoints of logs name, as they were last read or written."""
        names = (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS)
        return {topic_partition for name in names for topic_partition in self._written.get(name, ())}

    def compare_with_checkpoints(self) -> None:
        """Finds logs with lost ends at a start, after the logs are loaded. At an orderly stop everything was synced,
        so a log that ends before the offsets of the checkpoints has lost records. A separate file records that for
        later starts, even if this start crashes; OSError if the write fails."""
        known = self._written[checkpoints.CUT_LOGS]
        for topic_partition, log in self.logs.items():
            offsets = (
                self.checkpointed(checkpoint, topic_partition)
                for checkpoint in (self.recovery_points, self.high_watermarks)
                if self.was_clean
            )
            ended = max([known.get(topic_partition, 0), *offsets])
            if log.next_offset < ended:
                self.cut_logs[topic_partition] = ended
        self._write_cut_logs()

    def lose(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Records at a start that these logs lack records that the broker had. They then count as logs that have lost
        their ends. OSError if the write fails."""
        self.cut_logs |= dict.fromkeys(topic_partitions, _UNKNOWN_END)
        self._write_cut_logs()

    def _write_cut_logs(self) -> None:
        if self.cut_logs != self._written[checkpoints.CUT_LOGS]:
            self.cut_checkpoint.write(self.cut_logs)
            self._written[checkpoints.CUT_LOGS] = self.cut_logs.copy()

    def read_starts(self) -> None:
        """Reads the starts that were recorded in this directory; OSError if the file cannot be read. A file whose
        content is not understood is logged, and counts as missing."""
        path = self.path / DIRECTORY_STARTS
        try:
            self.starts = decode_directory_starts(self._files.read_file(path))
        except FileNotFoundError:
            self.starts = None
        except ValueError as error:
            self.starts = None
            logger.warning("%s is not understood (%s): no start on this directory is known", path, error)

    def started(self, starts: DirectoryStarts) -> None:
        """Records that the broker has started on this directory; OSError if the write fails."""
        self._files.replace_file(self.path / DIRECTORY_STARTS, encode_directory_starts(starts))
        self.starts = starts

    def take_as_it_is(self, topic_partition: TopicPartition) -> None:
        """Ends the search for the lost records of a log: the log is used as it is."""
        if self.cut_logs.pop(topic_partition, None) is not None:
            self._write(self.cut_checkpoint, self.cut_logs.copy, _ignore)

    def announce_log_starts(self, starts: Mapping[TopicPartition, int], done: Written) -> None:
        """Writes the future log start offsets of logs. `done` is called on the owner's thread."""
        for topic_partition, offset in starts.items():
            self._announced_starts[topic_partition] = max(offset, self.announced_log_start(topic_partition))
        self.write_log_start_offsets(done)

    def announced_log_start(self, topic_partition: TopicPartition) -> int:
        """Returns the announced log start offset of the log; 0 if the log has been truncated since the offset was
        announced."""
        return self._announced_starts.get(topic_partition, 0)

    def forget_checkpoints(self, log: PartitionLog) -> None:
        """Prepares a new log of this directory. If a checkpoint may have offsets of another log of the same name, the
        log accepts no appends until those offsets are overwritten: the next start would use them for this log."""
        topic_partition = log.topic_partition
        self._announced_starts.pop(topic_partition, None)
        on_disk = [known.get(name, {}) for known in (self._written, self._writing) for name in _OF_ONE_LOG]
        if any(offsets.get(topic_partition, 0) > 0 for offsets in on_disk):
            log.hold()
            _CheckpointWrites(
                [self.write_cleaner_offsets, self.write_high_watermarks],
                lambda _: self.truncated([log], True, _ignore),
            ).go_on()

    def take_cleaner_offsets(self) -> None:
        """Takes the cleaner's offsets from its checkpoint at a start, after the logs are loaded. Lines of removed
        partitions are dropped, so that a new partition of the same name starts without an offset."""
        name = self.cleaner_checkpoint.path.name
        on_disk = self._written[name]
        self.cleaner_offsets = {key: offset for key, offset in on_disk.items() if key in self.logs}
        if len(self.cleaner_offsets) < len(on_disk):
            self.cleaner_checkpoint.write(self.cleaner_offsets)
            self._written[name] = self.cleaner_offsets.copy()

    def write_cleaner_offsets(self, done: Written | None = None) -> None:
        self._write(self.cleaner_checkpoint, self.cleaner_offsets.copy, done if done is not None else _ignore)

    def expect(self, log: PartitionLog, synced_end: int) -> None:
        """Records that the log is about to move into this directory; the announced log start offset of an earlier log
        of the same name is dropped."""
        self.incoming[log.topic_partition] = IncomingLog(log, synced_end)
        self._announced_starts.pop(log.topic_partition, None)

    def write_incoming(self, done: Written) -> None:
        """Writes every checkpoint, so that each names the logs that are about to move here."""
        checkpoints_of_all = [
            self.write_log_start_offsets,
            self.write_cleaner_offsets,
            self.write_recovery_points,
            self.write_high_watermarks,
        ]
        _CheckpointWrites(checkpoints_of_all, done).go_on()

    def truncated(self, logs: Sequence[PartitionLog], has_lowered_start: bool, done: Written) -> None:
        """Handles a truncation of logs of this directory, which accept no appends meanwhile. Writes their recovery
        points and lets the logs accept appends again; if the write fails, they accept appends after the next write
        that succeeds. `has_lowered_start` is True if a log start offset has moved down."""
        self._held.extend(logs)
        for log in logs:
            has_lowered_start |= self._announced_starts.pop(log.topic_partition, 0) > log.log_start_offset
        self._lowered_starts += has_lowered_start
        self.write_recovery_points(done)

    def write_recovery_points(self, done: Written | None = None) -> None:
        """Writes the recovery points. Truncated logs accept appends again after their recovery points are written."""
        if self._lowered_starts != self._written_lowered_starts:
            lowered_starts = self._lowered_starts

            def lowered(outcome: BaseException | None) -> None:
                if outcome is None:
                    self._written_lowered_starts = lowered_starts
                    self.write_recovery_points(done)
                elif done is not None:
                    done(outcome)

            self._write(self.log_start_offsets, self._moved_log_starts, lowered)
            return
        held: list[PartitionLog] = []

        def offsets() -> Mapping[TopicPartition, int]:
            held.extend(self._held)
            self._held.clear()
            return self._present_recovery_points()

        def written(outcome: BaseException | None) -> None:
            if outcome is None:
                for log in held:
                    log.release()
            else:
                self._held.extend(held)
            if done is not None:
                done(outcome)

        self._write(self.recovery_points, offsets, written)

    def write_all(self) -> None:
        """Writes every checkpoint, at once; OSError if a write fails."""
        self.recovery_points.write(self._present_recovery_points())
        self.log_start_offsets.write(self._moved_log_starts())
        self.high_watermarks.write(self._present_high_watermarks())
        if self.cleaner_offsets:
            self.cleaner_checkpoint.write(self.cleaner_offsets)

    def _write(
        self,
        checkpoint: OffsetCheckpoint,
        offsets: Callable[[], Mapping[TopicPartition, int]],
        done: Written | None = None,
    ) -> None:
        """Writes a checkpoint, in the background, if it has changed. A caller with `done` needs the offsets of this
        moment or later: if the file is being written now, it is written again afterwards."""
        name = checkpoint.path.name
        if self.failure is not None:
            if done is not None:
                done(KafkaStorageError(self.failure))
            return
        if name in self._writing:
            if done is not None:
                self._following.setdefault(name, []).append(partial(self._write, checkpoint, offsets, done))
            return
        values = offsets()
        if self._written.get(name) == values:
            if done is not None:
                done(None)
            return
        self._writing[name] = values

        def written(outcome: BaseException | None) -> None:
            del self._writing[name]
            if outcome is None:
                self._written[name] = values
            if isinstance(outcome, OSError):
                self._disk_failed(outcome, False)
            if self.failure is None:
                log_failure(outcome)
            if done is not None:
                done(outcome)
            for write in self._following.pop(name, ()):
                write()

        self._background.submit(lambda: checkpoint.write(values), written)

    def _moved_log_starts(self) -> dict[TopicPartition, int]:
        """Returns the log start offsets that differ from the base offset of the log's first segment, or may differ
        from it after a crash."""
        starts: dict[TopicPartition, int] = {}
        for topic_partition, log in self._logs_here_soon().items():
            announced = self._announced_starts.get(topic_partition)
            if announced is not None:
                starts[topic_partition] = max(announced, log.log_start_offset)
            elif log.log_start_offset > log.segments[0].base_offset:
                starts[topic_partition] = log.log_start_offset
        return starts

    def _present_recovery_points(self) -> dict[TopicPartition, int]:
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        for topic_partition, (log, synced_end) in self.incoming.items():
            points[topic_partition] = min(synced_end, log.log_end_offset)
        return points

    def _present_high_watermarks(self) -> dict[TopicPartition, int]:
        return {tp: log.high_watermark for tp, log in self._logs_here_soon().items()}

    def _logs_here_soon(self) -> Mapping[TopicPartition, PartitionLog]:
        return {**self.logs, **{tp: item.log for tp, item in self.incoming.items()}} if self.incoming else self.logs


class FailingDirectory:
    """A context manager that a start uses: if its block raises an error of the disk, the directory fails, and the
    block ends. If no other directory is left the error is raised (UnusableDirectoryError, KafkaStorageError). `what`
    names the operation of the block for messages: read, written."""

    def __init__(self, directory: LogDirectory, directories: Sequence[LogDirectory], what: str = "read") -> None:
        self._directory = directory
        self._has_others = any(not other.is_offline for other in directories if other is not directory)
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        cause = error.__cause__ if isinstance(error, KafkaStorageError | UnusableDirectoryError) else error
        if not isinstance(cause, OSError):
            return False
        unusable = (
            error
            if isinstance(error, UnusableDirectoryError)
            else UnusableDirectoryError(self._directory.path, self._what, cause)
        )
        if self._has_others:
            self._directory.fail(unusable.reason)
            return True
        if isinstance(error, OSError):
            raise unusable from error
        return False


class _CheckpointWrites:
    """Writes checkpoints in the given order, even if some writes fail; `done` is called with the first error, or
    None."""

    def __init__(self, writes: Iterable[Callable[[Written], None]], done: Written) -> None:
        self._left = iter(writes)
        self._done = done
        self._failure: BaseException | None = None

    def go_on(self, outcome: BaseException | None = None) -> None:
        """Writes the next checkpoint; `outcome` is the outcome of the write before it."""
        self._failure = self._failure or outcome
        write = next(self._left, None)
        if write is None:
            self._done(self._failure)
        else:
            write(self.go_on)


def _ignore(outcome: BaseException | None) -> None:
    """Ignores the outcome of a write: a failure is logged already, and the offsets are written with the next
    checkpoint."""


def read_or_nothing(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
    """Reads a checkpoint. A file that cannot be read counts as empty: recovery takes longer, no data is lost."""
    try:
        return checkpoint.read()
    except KafkaStorageError as error:
        logger.warning("%s", error)
        return {}
