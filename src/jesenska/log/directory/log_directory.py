"""A log directory of a broker: its lock, its logs, and its checkpoints (`checkpoints` describes their format).

The background thread writes a checkpoint as a whole, only if it has changed, and never twice at the same time. A
caller may need the present offsets on the disk while the file is being written. Then the file is written again
afterwards.

A directory whose disk fails is offline until the broker is started again: its logs are closed, and nothing more is
written there (`LogDirectories.take_offline`). `_disk_failed` defines the errors that count as a failure.

Truncated logs accept no appends until their recovery points are written. Otherwise a crash could leave unsynced
batches below a recovery point. If a truncation has lowered a log start offset, the checkpoint of log start offsets is
written first: a log start offset beyond the log's end would make the next start delete the log's records."""

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

#: Errors of a disk that is broken, missing or read-only.
_BROKEN = frozenset({errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EUCLEAN})
#: Errors for a missing file. Perhaps the whole directory is missing.
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
#: Checkpoints with an offset of each log, which the next start uses.
_OF_ONE_LOG = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)
#: The former end offset of a log that is known to lack records. The real end is unknown; this value is larger than any
#: real end.
_UNKNOWN_END = 2**63 - 1
#: A function that is called when a checkpoint was written (with None), or with the error.
Written = Callable[[BaseException | None], None]


class IncomingLog(NamedTuple):
    """A log that is about to move into the directory. Before the move it is added to the directory's checkpoints, so
    that the checkpoints are correct after the move."""

    log: PartitionLog
    #: All records below this offset are in the copy and synced.
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
        """`on_failure` is called once, on the owner's thread, when the directory fails. This may be in the middle of
        work on one of the logs."""
        self.path = path
        self.writer = writer
        #: One sentence that says why the directory is offline; None while it is online.
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
        #: The first offset of each compacted log that was not compacted yet.
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.lock: DirectoryLock | None = None
        self.was_clean = False
        #: The broker's starts with this directory; None if none was recorded.
        self.starts: DirectoryStarts | None = None
        #: Logs that end below an offset in the checkpoints although the last shutdown was clean, with their former
        #: ends.
        self.cut_logs: dict[TopicPartition, int] = {}
        #: The logs of the partitions in this directory.
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: Partitions that are about to move into this directory.
        self.incoming: dict[TopicPartition, IncomingLog] = {}
        #: True if this directory gets no new replicas (KIP-1066).
        self.is_cordoned = False
        self._background = background
        #: Content of the checkpoints that are being written at present, by file name.
        self._writing: dict[str, Mapping[TopicPartition, int]] = {}
        #: Writes that must follow the present write, by file name.
        self._following: dict[str, list[Callable[[], None]]] = {}
        #: Truncated logs that wait until their recovery points are written.
        self._held: list[PartitionLog] = []
        #: The number of truncations that have lowered log start offsets, and the number of these that the checkpoint
        #: contains.
        self._lowered_starts = 0
        self._written_lowered_starts = 0
        #: The content that was last written, by file name. With it an idle broker avoids writing to its disk.
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        #: Log start offsets that must be in their checkpoint: the log does not have the offset yet, or the offset is
        #: also the base offset of its first segment. In the second case the disk may still have earlier segments after
        #: a crash.
        self._announced_starts: dict[TopicPartition, int] = {}

    def unlock(self) -> None:
        """Releases the lock of the directory, if it is held."""
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    # -- failure ------------------------------------------------------------------------------------------------------

    @property
    def is_offline(self) -> bool:
        return self.failure is not None

    def fail(self, reason: object) -> None:
        """Takes the directory offline. `reason` is the cause for the log message."""
        if self.failure is None:
            self.failure = f"The log directory {self.path} is offline: {reason}. Mend it and start the broker again."
            logger.error("%s", self.failure)
            if self._on_failure is not None:
                self._on_failure(self)

    def _disk_failed(self, error: OSError, is_in_doubt: bool) -> None:
        """Handles an error of the disk or the operating system. The directory fails if the disk is broken, missing or
        read-only, or if its content `is_in_doubt`. A full disk, and too many open files, may be temporary; they fail
        only single requests."""
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
        """True while a checkpoint is being written, or another write follows."""
        return bool(self._writing)

    def write_high_watermarks(self, done: Written | None = None) -> None:
        # An earlier write may have failed, so the file is written again.
        self._write(self.cut_checkpoint, self.cut_logs.copy)
        self._write(self.high_watermarks, self._present_high_watermarks, done)

    def write_log_start_offsets(self, done: Written | None = None) -> None:
        self._write(self.log_start_offsets, self._moved_log_starts, done)

    def read_checkpoints(self) -> None:
        """Reads all checkpoints at a start. After that `checkpointed` returns their offsets."""
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
        """Returns the offset of a partition in one of this directory's checkpoints. Returns 0 if the checkpoint does
        not name the partition, or the file cannot be read."""
        return self._written[checkpoint.path.name].get(topic_partition, 0)

    @property
    def in_checkpoints(self) -> set[TopicPartition]:
        """The partitions in the recovery point and high watermark checkpoints, as they were last read or written."""
        names = (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS)
        return {topic_partition for name in names for topic_partition in self._written.get(name, ())}

    def compare_with_checkpoints(self) -> None:
        """Finds logs that have lost records at their end. It is called at a start, after the logs are loaded. A clean
        shutdown syncs everything, so a log that ends before an offset in the checkpoints has lost records. These logs
        are written to a separate file for later starts, even if this start crashes. Raises OSError if the write
        fails."""
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
        their ends. Raises OSError if the write fails."""
        self.cut_logs |= dict.fromkeys(topic_partitions, _UNKNOWN_END)
        self._write_cut_logs()

    def _write_cut_logs(self) -> None:
        if self.cut_logs != self._written[checkpoints.CUT_LOGS]:
            self.cut_checkpoint.write(self.cut_logs)
            self._written[checkpoints.CUT_LOGS] = self.cut_logs.copy()

    def read_starts(self) -> None:
        """Reads the broker's starts that are recorded in this directory. A file that cannot be decoded is logged, and
        counts as missing. Raises OSError if the file cannot be read."""
        path = self.path / DIRECTORY_STARTS
        try:
            self.starts = decode_directory_starts(self._files.read_file(path))
        except FileNotFoundError:
            self.starts = None
        except ValueError as error:
            self.starts = None
            logger.warning(
                "%s cannot be read (%s), so it is not known which starts of the broker used this directory", path, error
            )

    def started(self, starts: DirectoryStarts) -> None:
        """Records that the broker has started with this directory. Raises OSError if the write fails."""
        self._files.replace_file(self.path / DIRECTORY_STARTS, encode_directory_starts(starts))
        self.starts = starts

    def take_as_it_is(self, topic_partition: TopicPartition) -> None:
        """Stops treating a log as a log that has lost records. The log is used as it is now."""
        if self.cut_logs.pop(topic_partition, None) is not None:
            self._write(self.cut_checkpoint, self.cut_logs.copy, _ignore)

    def announce_log_starts(self, starts: Mapping[TopicPartition, int], done: Written) -> None:
        """Writes log start offsets to the checkpoint before the logs have them. `done` is called on the owner's
        thread."""
        for topic_partition, offset in starts.items():
            self._announced_starts[topic_partition] = max(offset, self.announced_log_start(topic_partition))
        self.write_log_start_offsets(done)

    def announced_log_start(self, topic_partition: TopicPartition) -> int:
        """Returns the log start offset that was written ahead for the log. Returns 0 if there is none, or if the log
        has been truncated since."""
        return self._announced_starts.get(topic_partition, 0)

    def forget_checkpoints(self, log: PartitionLog) -> None:
        """Prepares a new log of this directory. A checkpoint may still have offsets of an earlier log of the same
        partition. The new log accepts no appends until these old offsets are overwritten, because the next start would
        apply them to the new log."""
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
        """Loads the first dirty offsets from the cleaner's checkpoint at a start, after the logs are loaded. Offsets
        of removed partitions are dropped, so that a new partition of the same name begins without a first dirty
        offset."""
        name = self.cleaner_checkpoint.path.name
        on_disk = self._written[name]
        self.cleaner_offsets = {key: offset for key, offset in on_disk.items() if key in self.logs}
        if len(self.cleaner_offsets) < len(on_disk):
            self.cleaner_checkpoint.write(self.cleaner_offsets)
            self._written[name] = self.cleaner_offsets.copy()

    def write_cleaner_offsets(self, done: Written | None = None) -> None:
        self._write(self.cleaner_checkpoint, self.cleaner_offsets.copy, done if done is not None else _ignore)

    def expect(self, log: PartitionLog, synced_end: int) -> None:
        """Records that the log is about to move into this directory. A log start offset that was written ahead for an
        earlier log of the same partition is dropped."""
        self.incoming[log.topic_partition] = IncomingLog(log, synced_end)
        self._announced_starts.pop(log.topic_partition, None)

    def write_incoming(self, done: Written) -> None:
        """Writes every checkpoint with the logs that are about to move into this directory."""
        checkpoints_of_all = [
            self.write_log_start_offsets,
            self.write_cleaner_offsets,
            self.write_recovery_points,
            self.write_high_watermarks,
        ]
        _CheckpointWrites(checkpoints_of_all, done).go_on()

    def truncated(self, logs: Sequence[PartitionLog], has_lowered_start: bool, done: Written) -> None:
        """Handles a truncation of logs of this directory, which accept no appends meanwhile. Writes their recovery
        points, and then lets the logs accept appends again. If the write fails, that happens after the next successful
        write. `has_lowered_start` is true if the truncation has lowered a log start offset."""
        self._held.extend(logs)
        for log in logs:
            has_lowered_start |= self._announced_starts.pop(log.topic_partition, 0) > log.log_start_offset
        self._lowered_starts += has_lowered_start
        self.write_recovery_points(done)

    def write_recovery_points(self, done: Written | None = None) -> None:
        """Writes the recovery points. After that, truncated logs accept appends again."""
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
        """Writes every checkpoint immediately, on the calling thread. Raises OSError if a write fails."""
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
        """Writes a checkpoint in the background, if it has changed. A caller that passes `done` needs the offsets of
        this moment or later. So if the file is being written at present, it is written again afterwards."""
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
    """A context manager for the steps of a start. If its block raises a disk error, the directory goes offline and the
    start continues with the other directories. If no other directory is left, the error is raised
    (UnusableDirectoryError, KafkaStorageError). `what` names the operation in messages: read, written."""

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
    """Writes several checkpoints in the given order, even if some writes fail. Then `done` is called with the first
    error, or None."""

    def __init__(self, writes: Iterable[Callable[[Written], None]], done: Written) -> None:
        self._left = iter(writes)
        self._done = done
        self._failure: BaseException | None = None

    def go_on(self, outcome: BaseException | None = None) -> None:
        """Writes the next checkpoint. `outcome` is the error of the write before it, or None."""
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
    """Reads a checkpoint. A file that cannot be read is logged and counts as empty: recovery then takes longer, but no
    data is lost."""
    try:
        return checkpoint.read()
    except KafkaStorageError as error:
        logger.warning("%s", error)
        return {}
