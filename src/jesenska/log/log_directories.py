"""All of a broker's logs, in one or several directories (`log.dirs`):

    <log dir>/
      .lock                               one broker at a time (directory_lock)
      meta.properties                     whose data this is (meta_properties)
      .kafka_cleanshutdown                the last stop was orderly (checkpoints)
      recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint, cleaner-offset-checkpoint
      orders-0/                           a partition (segment, partition_log); partition.metadata names its topic's id
      orders-0.<32 hex digits>-delete/    a partition whose topic is gone; removed when its time has come, or at the next start
      orders-0.<32 hex digits>-future/    a replica on its way from another directory (Kafka's; left alone)

Nothing of ours is a sub-directory: Apache Kafka refuses to start on one that it does not know.

Start: lock, check and write meta.properties, settle each partition (recovery, if the marker of an orderly stop is missing) in some threads, remove
`-delete` directories. Directories of partitions that the metadata do not know are named in a warning and left alone.
Run: `tick` is called about once a second; each of its jobs keeps its own time. What waits for the disk goes to the background.
Truncate: the ends of many followers' logs are taken back together, and none takes appends before its recovery point on the disk has gone back.
Stop: every log is synced and closed, checkpoints are written, then the marker, then the lock is released.

After a crash: no marker, so all logs are recovered from the recovery points; checkpoints are the old or the new ones, and being older than the
logs only makes recovery longer. A high watermark that is too old is moved by replication, a log start offset that is too old shows deleted
records again for the checkpoint's interval at most.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from uuid import UUID

from jesenska.base.errors import JesenskaError, KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import OPEN_SEGMENTS_MAX
from jesenska.base.topic_names import is_legal_topic_name
from jesenska.log import checkpoints
from jesenska.log.background import Background, DirectoryWriter, InlineBackground, inline_writer
from jesenska.log.checkpoints import CleanShutdownMarker, OffsetCheckpoint
from jesenska.log.closing import DELETE_DIRECTORY_SUFFIX, doomed_directory, finish_close, mark_deleted, prepare_close
from jesenska.log.directory_lock import DirectoryLock, LogDirectoryError
from jesenska.log.files import FileLayer
from jesenska.log.log_config import LogConfig
from jesenska.log.log_flush import FileWrite, FlushWork, NotOpenedError, try_sync
from jesenska.log.log_start import delete_old_segments, segments_of_unknown_time
from jesenska.log.meta_properties import (
    MetaProperties,
    check_meta_properties,
    read_meta_properties,
    refuse_raft_data,
    write_meta_properties,
)
from jesenska.log.partition_log import PartitionLog
from jesenska.log.partition_metadata import read_topic_id, write_topic_id
from jesenska.log.recovery import LoadedLog, LogLoader
from jesenska.log.segment_file import OpenFiles
from jesenska.log.truncation import NO_CLEANER, Cleaner
from jesenska.log.truncation_batch import TruncationBatch

logger = logging.getLogger(__name__)

_PARTITION = re.compile(r"(.+)-(\d{1,10})\Z")
_LEFT_ALONE = re.compile(r".+-(future|stray)\Z")
_IGNORED = {"lost+found"}
#: Logs that a step of the housekeeping looks at: a millisecond's work.
_LOGS_AT_ONCE = 500
_LOGS_RETAINED_AT_ONCE = 20
#: An orderly stop: threads that sync, and logs whose files are open for that at once.
_SYNC_THREADS = 16
_CLOSED_AT_ONCE = 256

#: The settings of a partition that the metadata know; None for one that they do not. Gets the topic id of the directory, if it has one.
Known = Callable[[TopicPartition, UUID | None], LogConfig | None]


class LoadProgress(NamedTuple):
    partitions_done: int
    partitions_total: int
    #: Bytes that recovery has checked so far.
    checked_bytes: int


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Settings of the broker, Kafka's defaults."""

    recovery_threads_per_data_dir: int = 1
    flush_offset_checkpoint_interval_ms: int = 60_000
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    retention_check_interval_ms: int = 300_000
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000


class LogDirectory:
    """One of the directories."""

    def __init__(self, path: Path, files: FileLayer, writer: DirectoryWriter) -> None:
        self.path = path
        self.writer = writer
        self.marker = CleanShutdownMarker(path, files)
        self.recovery_points = OffsetCheckpoint(path / checkpoints.RECOVERY_POINTS, files)
        self.log_start_offsets = OffsetCheckpoint(path / checkpoints.LOG_START_OFFSETS, files)
        self.high_watermarks = OffsetCheckpoint(path / checkpoints.HIGH_WATERMARKS, files)
        self.lock: DirectoryLock | None = None
        self.was_clean = False
        #: Partitions that live here.
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: Checkpoints that are being written just now, by file name.
        self.writing: set[str] = set()
        #: What is to be written when that has ended, by file name.
        self.following: dict[str, list[Callable[[], None]]] = {}
        #: Logs that were truncated and wait for their recovery points to be written.
        self.held: list[PartitionLog] = []
        #: How many truncations have lowered log start offsets, and how many of them are written.
        self.lowered_starts = 0
        self.written_lowered_starts = 0
        #: What was last written, so that an idle broker leaves its disk alone.
        self.written: dict[str, Mapping[TopicPartition, int]] = {}


class LogDirectories:
    def __init__(
        self,
        paths: Sequence[Path],
        *,
        files: FileLayer | None = None,
        settings: DirectorySettings | None = None,
        background: Background | None = None,
        writer_for: Callable[[Path], DirectoryWriter] | None = None,
        open_segments_max: int = OPEN_SEGMENTS_MAX,
        jitter: Callable[[int], int] = lambda limit_ms: 0,
        monotonic_ms: Callable[[], int] | None = None,
        helpers: Callable[[int, str], Executor] = ThreadPoolExecutor,
        cleaner: Cleaner = NO_CLEANER,
    ) -> None:
        """`helpers` makes threads for a start and a stop, so many of that name.
        `writer_for` gives each directory its writer thread, `background` removes files and writes checkpoints; by default both work at
        once. `jitter(limit)` gives a random number from 0 to `limit`. `monotonic_ms` is the clock that intervals and delays are measured by, so that
        a wall clock that is set changes none of them; by default they are measured by the `now_ms` of each call. `cleaner` compacts the logs, and is told
        before segments of one are taken away."""
        assert paths, "log.dirs names no directory"
        self._files = files if files is not None else FileLayer()
        self._settings = settings if settings is not None else DirectorySettings()
        self._background = background if background is not None else InlineBackground()
        self._helpers = helpers
        self._found: list[MetaProperties | None] = []
        self._jitter = jitter
        self._cleaner = cleaner
        self._monotonic_ms = monotonic_ms
        self._open_files = OpenFiles(self._files, open_segments_max)
        writer_for = writer_for if writer_for is not None else lambda path: inline_writer()
        self.directories = [LogDirectory(path, self._files, writer_for(path)) for path in paths]
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._due: dict[str, int] = {}
        self._writing_files = False
        #: Partitions that retention could not look at, since they were being written.
        self._retention_waits: set[TopicPartition] = set()
        #: Files and directories that wait for `file.delete.delay.ms`: (when, path).
        self._doomed: list[tuple[int, Path]] = []

    # -- start ------------------------------------------------------------------------------------------------------------------------------

    def lock(self) -> list[MetaProperties | None]:
        """Creates and locks every directory and gives what each says of itself; LogDirectoryError or ForeignDataError, one sentence, if one
        cannot be used. From here on nobody else writes in them."""
        self._found = []
        try:
            for directory in self.directories:
                try:
                    self._files.mkdir(directory.path)
                except OSError as error:
                    raise LogDirectoryError(
                        f"The log directory {directory.path} cannot be created ({error.strerror}): "
                        "create it for this user, or name another (--data, or log.dirs)."
                    ) from error
                directory.lock = DirectoryLock(directory.path)
                self._found.append(read_meta_properties(directory.path, self._files))
                refuse_raft_data(directory.path, self._found[-1])
        except (JesenskaError, OSError):
            self._unlock()
            raise
        return list(self._found)

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """Checks that every directory is this broker's or nobody's, and marks the latter as its own; ForeignDataError otherwise."""
        for directory, properties in zip(self.directories, self._found, strict=True):
            check_meta_properties(directory.path, properties, cluster_id, broker_id)
        for directory, properties in zip(self.directories, self._found, strict=True):
            if properties is None or properties.cluster_id is None or properties.broker_id is None:
                write_meta_properties(directory.path, cluster_id, broker_id, self._files)

    @property
    def was_clean(self) -> bool:
        """True if the last stop was orderly in every directory; known after `load`."""
        return all(directory.was_clean for directory in self.directories)

    def load(self, known: Known, now_ms: int, progress: Callable[[LoadProgress], None] | None = None) -> None:
        """Opens the log of every partition that is known. Blocks, for long after a crash; `progress` is called from other threads."""
        jobs: list[tuple[LogDirectory, TopicPartition, UUID | None, LogConfig, LogLoader]] = []
        counted = _Counter(progress)
        for directory in self.directories:
            directory.was_clean = directory.marker.exists()
            points = _read_or_nothing(directory.recovery_points)
            starts = _read_or_nothing(directory.log_start_offsets)
            for topic_partition, topic_id, config in self._partitions(directory, known):
                loader = LogLoader(
                    directory.path / str(topic_partition),
                    config,
                    self._files,
                    clean=directory.was_clean,
                    recovery_point=points.get(topic_partition, 0),
                    log_start_offset=starts.get(topic_partition, 0),
                    now_ms=now_ms,
                    producer_expiration_ms=self._settings.producer_id_expiration_ms,
                    progress=counted.checked,
                )
                jobs.append((directory, topic_partition, topic_id, config, loader))
        self._refuse_doubles([(topic_partition, directory.path) for directory, topic_partition, _, _, _ in jobs])
        for directory in self.directories:
            if directory.was_clean:
                directory.marker.remove()
        counted.total = len(jobs)
        marks = {directory.path: _read_or_nothing(directory.high_watermarks) for directory in self.directories}
        threads = max(1, self._settings.recovery_threads_per_data_dir) * len(self.directories)
        with self._helpers(threads, "recovery") as pool:
            futures = [pool.submit(counted.done_with, loader.load) for _, _, _, _, loader in jobs]
            for (directory, topic_partition, topic_id, config, _), future in zip(jobs, futures, strict=True):
                loaded = future.result()
                for note in loaded.notes:
                    logger.warning("%s: %s", topic_partition, note)
                self._adopt(directory, topic_partition, loaded, config, topic_id, now_ms, marks[directory.path].get(topic_partition, 0))

    def _adopt(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        loaded: LoadedLog,
        config: LogConfig,
        topic_id: UUID | None,
        now_ms: int,
        high_watermark: int = 0,
    ) -> PartitionLog:
        log = PartitionLog(
            topic_partition,
            loaded,
            config,
            self._files,
            self._open_files,
            directory.writer,
            topic_id=topic_id,
            now_ms=self._elapsed_ms(now_ms),
            jitter=self._jitter,
            high_watermark=high_watermark,
            cleaner=self._cleaner,
        )
        self.logs[topic_partition] = directory.logs[topic_partition] = log
        return log

    def _partitions(self, directory: LogDirectory, known: Known) -> Iterator[tuple[TopicPartition, UUID | None, LogConfig]]:
        for name in self._files.names(directory.path):
            path = directory.path / name
            if not path.is_dir() or name in _IGNORED:
                continue
            if name.endswith(DELETE_DIRECTORY_SUFFIX):
                self._doomed.append((0, path))
                continue
            match = _PARTITION.fullmatch(name)
            if match is None or not is_legal_topic_name(match[1]) or _LEFT_ALONE.fullmatch(name):
                logger.warning("%s is no partition of this broker and was left alone", path)
                continue
            topic_partition = TopicPartition(match[1], int(match[2]))
            topic_id = read_topic_id(path, self._files)
            config = known(topic_partition, topic_id)
            if config is None:
                logger.warning(
                    "%s is not known to the metadata%s and was left alone: move it away if the topic is gone",
                    path,
                    "" if topic_id is None else f" with topic id {topic_id}",
                )
                continue
            yield topic_partition, topic_id, config

    def _refuse_doubles(self, found: Sequence[tuple[TopicPartition, Path]]) -> None:
        seen: dict[TopicPartition, Path] = {}
        for topic_partition, path in found:
            if topic_partition in seen:
                raise LogDirectoryError(f"The partition {topic_partition} is in both {seen[topic_partition]} and {path}: move one of the two directories away.")
            seen[topic_partition] = path

    # -- partitions -------------------------------------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def create(self, topic_partition: TopicPartition, topic_id: UUID | None, config: LogConfig, now_ms: int) -> PartitionLog:
        """A new, empty log in the directory with the fewest partitions; the one that is there if it exists."""
        existing = self.logs.get(topic_partition)
        if existing is not None:
            return existing
        directory = min(self.directories, key=lambda candidate: len(candidate.logs))
        path = directory.path / str(topic_partition)
        if path.is_dir() and self._files.names(path):
            raise KafkaStorageError(f"{path} holds data of a topic that is not known to the metadata: move it away, then create the partition.")
        loader = LogLoader(path, config, self._files, clean=True, recovery_point=0, log_start_offset=0, now_ms=now_ms)
        try:
            loaded = loader.load()
            if topic_id is not None:
                write_topic_id(path, topic_id, self._files)
            return self._adopt(directory, topic_partition, loaded, config, topic_id, now_ms)
        except (KafkaStorageError, OSError) as error:
            # It cannot be listed where no file can be opened; a name can be changed even then.
            doomed = doomed_directory(path, topic_partition)
            with suppress(OSError):
                self._files.rename(path, doomed)
                self._doomed.append((self._elapsed_ms(now_ms), doomed))
            raise KafkaStorageError(f"The log of {topic_partition} cannot be created in {directory.path}: {error}") from error

    def assign_topic_id(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Writes down the topic's id for a partition whose directory does not name one (it is older than topic ids)."""
        log = self.logs[topic_partition]
        if log.topic_id is None:
            write_topic_id(log.directory, topic_id, self._files, sync=True)
            log.topic_id = topic_id

    def truncate(self, offsets: Mapping[TopicPartition, int], now_ms: int, done: Callable[[dict[TopicPartition, KafkaError]], None]) -> None:
        """Cuts followers' logs back to these offsets; `done` is called, on the owner's thread, with what went wrong by partition. None of them takes
        appends before the recovery points on the disk have gone back with it: otherwise a crash would leave unsynced batches below one. Where they
        cannot be written the log stays closed to appends until they are, with the next truncation or the next checkpoint."""
        self._truncate([(topic_partition, offset, False) for topic_partition, offset in offsets.items()], now_ms, done)

    def restart(self, offsets: Mapping[TopicPartition, int], now_ms: int, done: Callable[[dict[TopicPartition, KafkaError]], None]) -> None:
        """As `truncate`, but the logs forget everything and begin anew at these offsets."""
        self._truncate([(topic_partition, offset, True) for topic_partition, offset in offsets.items()], now_ms, done)

    def _truncate(
        self,
        wanted: Sequence[tuple[TopicPartition, int, bool]],
        now_ms: int,
        done: Callable[[dict[TopicPartition, KafkaError]], None],
    ) -> None:
        batch = TruncationBatch(wanted, self.logs, now_ms, lambda ended: self._truncated(ended, done))
        batch.go_on()

    def _truncated(self, ended: TruncationBatch, done: Callable[[dict[TopicPartition, KafkaError]], None]) -> None:
        """All logs are cut. Their recovery points and lowered log start offsets are written, a file of each kind for each directory; then they are
        released."""
        failures = ended.failures
        affected = [directory for directory in self.directories if any(ended.held.get(tp) is log for tp, log in directory.logs.items())]
        deleted = [log for tp, log in ended.held.items() if self.logs.get(tp) is not log]
        for log in deleted:
            log.release()
        if not affected:
            done(failures)
            return
        left = len(affected)

        def written(held: list[PartitionLog], outcome: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if outcome is not None:
                for log in held:
                    message = f"The recovery point of {log.topic_partition} in {log.directory.parent} cannot be written: {outcome}; mend the disk."
                    failures.setdefault(log.topic_partition, KafkaStorageError(message))
            if not left:
                done(failures)

        for directory in affected:
            held = [log for tp, log in ended.held.items() if directory.logs.get(tp) is log]
            directory.held.extend(held)
            directory.lowered_starts += any(log.topic_partition in ended.lowered for log in held)
            self._write_recovery_points(directory, partial(written, held))

    def delete(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Takes a partition away: its directory is renamed at once, its files go after `file.delete.delay.ms`. `sync_names` makes the name survive a crash
        of the machine."""
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return
        for directory in self.directories:
            directory.logs.pop(topic_partition, None)
        try:
            path = mark_deleted(log)
        except OSError as error:
            raise KafkaStorageError(f"{log.directory} cannot be renamed for deletion: {error.strerror}; the next start finds it unknown.") from error
        self._doomed.append((self._elapsed_ms(now_ms) + log.config.file_delete_delay_ms, path))

    def sync_names(self) -> None:
        """Syncs the names of the partitions' directories; blocks, so it belongs into another thread."""
        for directory in self.directories:
            self._files.fsync_directory(directory.path)

    # -- running ----------------------------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Whatever is due: flushes by time, checkpoints, retention, forgetting of producers, removal of files."""
        for _ in self.tick_in_steps(now_ms):
            pass

    def tick_in_steps(self, now_ms: int) -> Iterator[None]:
        """As `tick`, a piece at each step: with thousands of partitions the owner has other things to do in between."""
        settings, elapsed_ms = self._settings, self._elapsed_ms(now_ms)
        for logs in self._pieces(_LOGS_AT_ONCE):
            for log in logs:
                log.flush_if_due(elapsed_ms)
            yield
        if self._is_due("high watermarks", settings.high_watermark_checkpoint_interval_ms, elapsed_ms):
            self.checkpoint_high_watermarks()
            yield
            writes: list[FileWrite] = []
            for logs in self._pieces(_LOGS_AT_ONCE):
                for log in logs:
                    if log.has_unwritten:
                        writes.extend(log.unwritten())
                yield
            self._write_files(writes)
        if self._is_due("recovery points", settings.flush_offset_checkpoint_interval_ms, elapsed_ms):
            self.checkpoint_recovery_points()
            yield
        if self._is_due("log starts", settings.flush_start_offset_checkpoint_interval_ms, elapsed_ms):
            self.checkpoint_log_start_offsets()
            yield
        waited, self._retention_waits = self._retention_waits, set()
        every = self._is_due("retention", settings.retention_check_interval_ms, elapsed_ms)
        if every or waited:
            for logs in self._pieces(_LOGS_RETAINED_AT_ONCE, None if every else waited):
                self._retain(logs, now_ms)
                yield
        if self._is_due("producers", settings.producer_id_expiration_check_interval_ms, elapsed_ms):
            for logs in self._pieces(_LOGS_AT_ONCE):
                for log in logs:
                    log.producers.expire(now_ms)
                yield
        self.remove_doomed(now_ms)

    def _pieces(self, size: int, only: Collection[TopicPartition] | None = None) -> Iterator[list[PartitionLog]]:
        """The logs, so many at once; those that are deleted meanwhile are left out."""
        every = list(self.logs if only is None else only)
        for start in range(0, len(every), size):
            yield [self.logs[key] for key in every[start : start + size] if key in self.logs]

    def _elapsed_ms(self, now_ms: int) -> int:
        return now_ms if self._monotonic_ms is None else self._monotonic_ms()

    def _is_due(self, job: str, interval_ms: int, elapsed_ms: int) -> bool:
        due_ms = self._due.get(job)
        if due_ms is not None and elapsed_ms < due_ms:
            return False
        self._due[job] = elapsed_ms + interval_ms
        return due_ms is not None

    def delete_old_segments(self, now_ms: int) -> None:
        """Retention, for all partitions."""
        self._retain(list(self.logs.values()), now_ms)

    def _retain(self, logs: Sequence[PartitionLog], now_ms: int) -> None:
        """Retention. Times of segments that nobody has asked about since the start are read in the background first."""
        unknown = [segment for log in logs for segment in segments_of_unknown_time(log)]
        if not unknown:
            self._delete_old_segments(logs, now_ms)
            return
        copies = [segment.copy() for segment in unknown]

        def read() -> None:
            for copy in copies:
                try:
                    copy.largest_timestamp()
                except OSError as error:
                    logger.warning("%s: its largest timestamp could not be read: %s", copy.file.path, error)
                finally:
                    copy.close()

        def known(outcome: BaseException | None) -> None:
            _log_failure(outcome)
            for segment, copy in zip(unknown, copies, strict=True):
                with suppress(OSError):
                    segment.learn(copy)
            self._delete_old_segments([log for log in logs if self.logs.get(log.topic_partition) is log], now_ms)

        self._background.submit(read, known)

    def _delete_old_segments(self, logs: Sequence[PartitionLog], now_ms: int) -> None:
        """A log whose disk fails does not keep the others from theirs; one that is busy has its turn at the next tick."""
        for log in logs:
            try:
                renamed = delete_old_segments(log, now_ms)
            except OSError as error:
                logger.error("%s: retention could not delete segments: %s", log.topic_partition, error)
                continue
            if log.has_queued_appends:
                self._retention_waits.add(log.topic_partition)
            due_ms = self._elapsed_ms(now_ms) + log.config.file_delete_delay_ms
            self._doomed.extend((due_ms, path) for path in renamed)

    def remove_doomed(self, now_ms: int) -> None:
        """Removes files and directories whose delay is over."""
        elapsed_ms = self._elapsed_ms(now_ms)
        due = [path for when_ms, path in self._doomed if when_ms <= elapsed_ms]
        if not due:
            return
        self._doomed = [(when_ms, path) for when_ms, path in self._doomed if when_ms > elapsed_ms]
        self._background.submit(lambda: self._remove(due), _log_failure)

    def _remove(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if path.is_dir():
                for name in self._files.names(path):
                    self._files.unlink(path / name)
                self._files.rmdir(path)
            else:
                self._files.unlink(path)

    def _write_files(self, writes: Sequence[FileWrite]) -> None:
        """Brings the files beside the logs up to date (index entries of active segments, leader epochs), so that tools that look at them find what is in
        the log."""
        if not writes or self._writing_files:
            return
        self._writing_files = True

        def work() -> list[FileWrite]:
            done = []
            for write in writes:
                with suppress(OSError):  # a full disk: the next flush, which needs them, says so
                    write.run()
                    done.append(write)
            return done

        def written(outcome: list[FileWrite] | BaseException) -> None:
            self._writing_files = False
            if isinstance(outcome, list):
                for write in outcome:
                    write.done()
            _log_failure(outcome)

        self._background.submit(work, written)

    def checkpoint_high_watermarks(self) -> None:
        for directory in self.directories:
            self._write(directory, directory.high_watermarks, partial(_high_watermarks, directory))

    def checkpoint_recovery_points(self) -> None:
        for directory in self.directories:
            self._write_recovery_points(directory)

    def checkpoint_log_start_offsets(self) -> None:
        for directory in self.directories:
            self._write(directory, directory.log_start_offsets, partial(_moved_log_starts, directory))

    def _write_recovery_points(self, directory: LogDirectory, done: Callable[[BaseException | None], None] | None = None) -> None:
        """Logs that were truncated take appends again when theirs are written."""
        if directory.lowered_starts != directory.written_lowered_starts:
            # First: a log start offset on the disk that lies beyond the log's end would make the next start forget the log.
            lowered_starts = directory.lowered_starts

            def lowered(outcome: BaseException | None) -> None:
                if outcome is None:
                    directory.written_lowered_starts = lowered_starts
                    self._write_recovery_points(directory, done)
                elif done is not None:
                    done(outcome)

            self._write(directory, directory.log_start_offsets, partial(_moved_log_starts, directory), lowered)
            return
        held: list[PartitionLog] = []

        def offsets() -> Mapping[TopicPartition, int]:
            held.extend(directory.held)
            directory.held.clear()
            return _recovery_points(directory)

        def written(outcome: BaseException | None) -> None:
            if outcome is None:
                for log in held:
                    log.release()
            else:
                directory.held.extend(held)
            if done is not None:
                done(outcome)

        self._write(directory, directory.recovery_points, offsets, written)

    def _write(
        self,
        directory: LogDirectory,
        checkpoint: OffsetCheckpoint,
        offsets: Callable[[], Mapping[TopicPartition, int]],
        done: Callable[[BaseException | None], None] | None = None,
    ) -> None:
        """Writes a checkpoint, in the background, if it has changed. Who passes `done` needs the offsets as they are at this moment or later: where the
        file is being written just then, it is written once more."""
        name = checkpoint.path.name
        if name in directory.writing:
            if done is not None:
                directory.following.setdefault(name, []).append(partial(self._write, directory, checkpoint, offsets, done))
            return
        values = offsets()
        if directory.written.get(name) == values:
            if done is not None:
                done(None)
            return
        directory.writing.add(name)

        def written(outcome: BaseException | None) -> None:
            directory.writing.discard(name)
            if outcome is None:
                directory.written[name] = values
            _log_failure(outcome)
            if done is not None:
                done(outcome)
            for write in directory.following.pop(name, ()):
                write()

        self._background.submit(lambda: checkpoint.write(values), written)

    # -- stop -------------------------------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Closes every log and gives the directories up. Clean: synced, checkpointed and marked, so that the next start need not recover;
        blocks on the disk. The background must have finished what it was given."""
        for directory in self.directories:
            if directory.lock is None:
                continue
            whole = self._close_logs(list(directory.logs.values()), clean) and clean
            if clean:
                with suppress(OSError):
                    directory.recovery_points.write(_recovery_points(directory))
                    directory.log_start_offsets.write(_moved_log_starts(directory))
                    directory.high_watermarks.write(_high_watermarks(directory))
                    if whole:
                        directory.marker.write()
        self._unlock()

    @property
    def has_work_in_flight(self) -> bool:
        """A thread writes or syncs for one of the logs, or will."""
        return any(directory.writer.flushes_in_flight for directory in self.directories) or any(log.has_queued_appends for log in self.logs.values())

    def _close_logs(self, logs: Sequence[PartitionLog], clean: bool) -> bool:
        """True if all are synced. Many files are synced at once, since the file system commits them together: a thousand partitions take half
        a second then, and one after the other eleven."""
        whole = True
        with self._helpers(_SYNC_THREADS, "closing") as pool:
            for start in range(0, len(logs), _CLOSED_AT_ONCE):
                closing: list[tuple[PartitionLog, FlushWork | None, Future[int | NotOpenedError | OSError] | None]] = []
                for log in logs[start : start + _CLOSED_AT_ONCE]:
                    try:
                        work = prepare_close(log, clean=clean)
                    except OSError as error:
                        whole = _not_in_order(log, error)
                        finish_close(log, None, error)
                    else:
                        closing.append((log, work, None if work is None else pool.submit(try_sync, self._files, work)))
                for log, work, future in closing:
                    try:
                        finish_close(log, work, 0 if future is None else future.result())
                    except OSError as error:
                        whole = _not_in_order(log, error)
                    whole = whole and not log.is_failed
        return whole

    def _unlock(self) -> None:
        for directory in self.directories:
            if directory.lock is not None:
                directory.lock.release()
                directory.lock = None


def _not_in_order(log: PartitionLog, error: OSError) -> bool:
    logger.error("%s could not be closed in order: %s; the next start recovers it", log.topic_partition, error)
    return False


class _Counter:
    """Adds up what the recovery threads report."""

    def __init__(self, report: Callable[[LoadProgress], None] | None) -> None:
        self._report = report
        self._lock = Lock()
        self._done = 0
        self._checked_bytes = 0
        self.total = 0

    def checked(self, size_bytes: int) -> None:
        with self._lock:
            self._checked_bytes += size_bytes
            progress = LoadProgress(self._done, self.total, self._checked_bytes)
        if self._report is not None:
            self._report(progress)

    def done_with(self, load: Callable[[], LoadedLog]) -> LoadedLog:
        loaded = load()
        with self._lock:
            self._done += 1
        self.checked(0)
        return loaded


def _moved_log_starts(directory: LogDirectory) -> dict[TopicPartition, int]:
    """Log start offsets that the first segment's name does not tell."""
    return {tp: log.log_start_offset for tp, log in directory.logs.items() if log.log_start_offset > log.segments[0].base_offset}


def _recovery_points(directory: LogDirectory) -> dict[TopicPartition, int]:
    return {tp: log.recovery_point for tp, log in directory.logs.items()}


def _high_watermarks(directory: LogDirectory) -> dict[TopicPartition, int]:
    return {tp: log.high_watermark for tp, log in directory.logs.items()}


def _read_or_nothing(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
    """A checkpoint that cannot be read counts as one that says nothing: recovery takes longer, no data is lost."""
    try:
        return checkpoint.read()
    except KafkaStorageError as error:
        logger.warning("%s", error)
        return {}


def _log_failure(outcome: object) -> None:
    if isinstance(outcome, BaseException):
        logger.error("A job in the log directories failed: %s; it is tried again at its next turn", outcome)
