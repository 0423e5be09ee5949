"""All logs of a broker, in one or several directories (`log.dirs`):

    <log dir>/
      .lock                               one broker at a time (directory_lock)
      meta.properties                     cluster and broker of the data (meta_properties)
      jesenska-starts                     its id, and the broker's last starts on it (directory_starts)
      .kafka_cleanshutdown                the last shutdown was clean (checkpoints)
      recovery-point-offset-checkpoint, log-start-offset-checkpoint,
      replication-offset-checkpoint, cleaner-offset-checkpoint
      orders-0/                           a partition (segment, partition_log); partition.metadata names its topic's id
      orders-0.<32 hex digits>-delete/    a partition whose topic is deleted; removed after its delay, or at the next
                                          start
      orders-0.<32 hex digits>-future/    a replica that is moved from another directory (replica_moves)

jesenska adds no sub-directories of its own: Apache Kafka refuses to start with a sub-directory that it does not know.

Start: the directories are locked, meta.properties is checked and written, each partition is loaded
(partition_loading). Run: `tick` is called about once a second (housekeeping); each directory writes its checkpoints
(log_directory). Truncate: many followers' logs are truncated together, and none accepts appends before its lower
recovery point is on the disk. Stop: every log is synced and closed, checkpoints are written, then the marker, then the
lock is released.

Failure: if the disk of a directory breaks, now or at the start, only that directory goes offline (`take_offline`). Its
partitions have no log until the broker is started again with the directory repaired; they get no new log in another
directory. If no directory is left, the start is refused.

After a crash the marker of a clean shutdown is missing, so all logs are recovered from the recovery points. A
checkpoint file has its old or its new content; if that is older than the logs, recovery only takes longer. Replication
raises a high watermark that is too old. If a log start offset is too old, records that were deleted since the last
checkpoint can be read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from uuid import UUID

from jesenska.base.errors import JesenskaError, KafkaError, KafkaStorageError, ReplicaNotAvailableError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import OPEN_SEGMENTS_MAX, PREFERRED_DIRECTORIES_MAX
from jesenska.log.compaction.log_cleaner import CleanerSettings, CleanerSurroundings, LogCleaner
from jesenska.log.copies.branch_files import BranchedLog
from jesenska.log.copies.branching import Branching, BranchWanted
from jesenska.log.copies.replica_move import MoveSurroundings
from jesenska.log.copies.replica_moves import MoveSettings, ReplicaMoves
from jesenska.log.directory.directory_lock import DirectoryLock, UnusableDirectoryError, make_directory
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.log.directory.directory_starts import DirectoryStarts
from jesenska.log.directory.log_directory import FailingDirectory, LogDirectory
from jesenska.log.directory.partition_loading import FoundCopy, Known, LoadProgress, load_partitions
from jesenska.log.disk.background import Background, DirectoryWriter, InlineBackground, inline_writer
from jesenska.log.disk.doomed_files import DoomedFiles
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.meta_properties import (
    MetaProperties,
    check_meta_properties,
    read_meta_properties,
    refuse_raft_data,
    write_meta_properties,
)
from jesenska.log.disk.partition_metadata import write_topic_id
from jesenska.log.housekeeping import Housekeeping
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import close_logs, doomed_directory, mark_deleted
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.recovery import LoadedLog, LogLoader
from jesenska.log.partition.truncation import NO_CLEANER, Cleaner
from jesenska.log.partition.truncation_batch import TruncationBatch
from jesenska.log.segments.segment_file import OpenFiles


class LogDirectories:
    """All logs of a broker, by log directory. The class is long because all operations (a start, new logs, moves,
    branches, deletions, a directory that fails) change the same tables."""

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
        cleaner_surroundings: CleanerSurroundings | None = None,
        cleaner_settings: CleanerSettings | None = None,
        on_failure: Callable[[LogDirectory], None] | None = None,
        move_surroundings: MoveSurroundings | None = None,
        move_settings: MoveSettings | None = None,
    ) -> None:
        """The parameters are:

        `helpers` makes a thread pool of a given size and name, for a start or a stop. `writer_for` returns the writer
        threads of a directory, `background` removes files and writes checkpoints; by default both do their work
        immediately on the caller's thread.

        `jitter(limit)` returns a random number from 0 to `limit`. `monotonic_ms` is the clock for intervals and
        delays, so that a change of the wall clock does not affect them; by default the `now_ms` of each call is used.

        With `cleaner_surroundings` logs are compacted. Without it, `cleaner` is called before segments of a log are
        removed. With `move_surroundings` replicas can be moved between the directories.

        `on_failure` is called once for each directory that fails, possibly in the middle of work on a log. So it must
        not call `take_offline` immediately, but a moment later. Without `on_failure` the next `tick` calls
        `take_offline`."""
        assert paths, "log.dirs names no directory"
        self._files = files if files is not None else FileLayer()
        self._settings = settings if settings is not None else DirectorySettings()
        self._background = background if background is not None else InlineBackground()
        self._helpers = helpers
        self._found: list[MetaProperties | None] = []
        self._jitter = jitter
        self._monotonic_ms = monotonic_ms
        self._open_files = OpenFiles(self._files, open_segments_max)
        writer_for = writer_for if writer_for is not None else lambda path: inline_writer()
        self.directories = [
            LogDirectory(path, self._files, writer_for(path), self._background, on_failure) for path in paths
        ]
        self._tells_of_failures = on_failure is not None
        #: Partitions whose logs are, or may be, in directories that are offline.
        self.offline: set[TopicPartition] = set()
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._doomed = DoomedFiles(self._files, self._background)
        self._housekeeping = Housekeeping(
            self.logs, self.directories, self._settings, self._background, self._doomed, self._elapsed_ms
        )
        #: The log cleaner, which compacts the logs; None without compaction.
        self.cleaner = self._new_cleaner(cleaner_surroundings, cleaner_settings)
        self._cleaner: Cleaner = cleaner if self.cleaner is None else self.cleaner
        #: Logs of partitions that are to be deleted, but whose directories could not be renamed yet.
        self._undeleted: dict[TopicPartition, PartitionLog] = {}
        #: Source partitions of branches that are being made.
        self._branching: list[TopicPartition] = []
        #: Moves replicas between directories; None if moves are not supported.
        self.moves = self._new_moves(move_surroundings, move_settings)
        #: The directories that AlterReplicaLogDirs requested for partitions that this broker does not have yet.
        self._preferred: dict[TopicPartition, LogDirectory] = {}

    def _new_cleaner(
        self, surroundings: CleanerSurroundings | None, settings: CleanerSettings | None
    ) -> LogCleaner | None:
        if surroundings is None:
            return None
        settings = settings if settings is not None else CleanerSettings()
        return LogCleaner(self.directories, self._files, self._doomed, surroundings, settings)

    def _new_moves(self, surroundings: MoveSurroundings | None, settings: MoveSettings | None) -> ReplicaMoves | None:
        if surroundings is None:
            return None
        return ReplicaMoves(
            self.directories,
            self._files,
            self._doomed,
            surroundings,
            settings if settings is not None else MoveSettings(),
            self.cleaner,
            lambda key: key in self._branching,
        )

    # -- start --------------------------------------------------------------------------------------------------------

    def lock(self) -> list[MetaProperties | None]:
        """Creates and locks every directory, and returns the meta.properties of each. From then on no other broker
        writes in the directories. Raises LogDirectoryError or ForeignDataError if a directory cannot be used."""
        self._found = []
        try:
            for directory in self.directories:
                self._found.append(None)
                with FailingDirectory(directory, self.directories):
                    self._found[-1] = self._lock(directory)
        except (JesenskaError, OSError):
            self._unlock()
            raise
        return list(self._found)

    def _lock(self, directory: LogDirectory) -> MetaProperties | None:
        try:
            make_directory(directory.path, self._files)
        except OSError as error:
            raise UnusableDirectoryError(directory.path, "created", error) from error
        try:
            directory.lock = DirectoryLock(directory.path)
            found = read_meta_properties(directory.path, self._files)
            directory.read_starts()
        except OSError as error:
            raise UnusableDirectoryError(directory.path, "read", error) from error
        refuse_raft_data(directory.path, found)
        return found

    @property
    def usable(self) -> list[LogDirectory]:
        """The directories that are not offline."""
        return [directory for directory in self.directories if not directory.is_offline]

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """Checks that every directory belongs to this broker or has no owner, and writes meta.properties into the
        directories without an owner. Raises ForeignDataError if a directory belongs to another broker or cluster."""
        for directory, properties in zip(self.directories, self._found, strict=True):
            check_meta_properties(directory.path, properties, cluster_id, broker_id)
        for directory, properties in zip(self.directories, self._found, strict=True):
            if not directory.is_offline and (
                properties is None or properties.cluster_id is None or properties.broker_id is None
            ):
                with FailingDirectory(directory, self.directories, "written"):
                    write_meta_properties(directory.path, cluster_id, broker_id, self._files)

    @property
    def was_clean(self) -> bool:
        """True if the last shutdown was clean in every usable directory. It is known after `load`."""
        return all(directory.was_clean for directory in self.usable)

    @property
    def has_new_directory(self) -> bool:
        """True if the broker had never started before with one of the directories. It is known after `lock`."""
        return any(
            properties is None and not directory.is_offline
            for directory, properties in zip(self.directories, self._found, strict=True)
        )

    @property
    def had_before(self) -> list[LogDirectory]:
        """The usable directories that the broker had before this start. They are known after `lock`."""
        return [
            directory
            for directory, properties in zip(self.directories, self._found, strict=True)
            if properties is not None and not directory.is_offline
        ]

    def lose(self, directory: LogDirectory, topic_partitions: Iterable[TopicPartition]) -> None:
        """Records that these logs of a directory lack records that the broker had. If the write fails, the directory
        goes offline."""
        with FailingDirectory(directory, self.directories, "written"):
            directory.lose(topic_partitions)

    def started(self, start: UUID, new_uuid: Callable[[], UUID]) -> list[UUID]:
        """Writes the id of this start into every directory. Returns the ids of the directories in which the write
        succeeded; the other directories go offline. Raises UnusableDirectoryError if all writes fail."""
        ids: list[UUID] = []
        for directory in self.usable:
            with FailingDirectory(directory, self.directories, "written"):
                before = directory.starts if directory.starts is not None else DirectoryStarts(new_uuid())
                directory.started(before.then(start))
                ids.append(before.directory_id)
        return ids

    @property
    def cut_logs(self) -> dict[TopicPartition, int]:
        """The logs that end below an offset in their checkpoints although the last shutdown was clean, with their
        former ends. They are known after `load`."""
        return {key: ended for directory in self.usable for key, ended in directory.cut_logs.items()}

    @property
    def in_checkpoints(self) -> set[TopicPartition]:
        """The partitions in the checkpoints, with or without a log. They are known after `load`."""
        return {topic_partition for directory in self.usable for topic_partition in directory.in_checkpoints}

    def take_as_it_is(self, topic_partition: TopicPartition) -> None:
        """Stops treating a log as a log that has lost records. The log is used as it is now."""
        for directory in self.directories:
            directory.take_as_it_is(topic_partition)

    def load(self, known: Known, now_ms: int, progress: Callable[[LoadProgress], None] | None = None) -> None:
        """Opens the log of every known partition. This takes long after a crash; `progress` is called from other
        threads. A directory that cannot be read goes offline. Raises LogDirectoryError or KafkaStorageError if no
        directory is left."""
        copies: list[FoundCopy] = []
        loading = load_partitions(
            self.directories, known, self._settings, self._files, self._helpers, self._doomed, now_ms, progress, copies
        )
        for found, loaded, high_watermark in loading:
            self._adopt(
                found.directory, found.topic_partition, loaded, found.config, found.topic_id, now_ms, high_watermark
            )
        for directory in self.usable if self.cleaner is not None else ():
            with FailingDirectory(directory, self.directories):
                directory.take_cleaner_offsets()
        for directory in self.directories:
            if directory.is_offline:
                self.take_offline(directory)
                continue
            with FailingDirectory(directory, self.directories, "written"):
                directory.compare_with_checkpoints()
        if self.moves is not None:
            self.moves.found(copies)

    def expect(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Marks partitions as offline that this broker has according to the metadata, but whose logs were not found.
        If a directory is offline, their logs may be there, so they get no new log."""
        if len(self.usable) < len(self.directories):
            self.offline.update(key for key in topic_partitions if key not in self.logs)

    def take_offline(self, directory: LogDirectory) -> list[TopicPartition]:
        """Closes the logs of a directory that has failed, and writes nothing more there. Returns the partitions that
        the directory had. Reads that have begun continue as far as the disk allows."""
        assert directory.is_offline
        lost, directory.logs = directory.logs, {}
        for topic_partition, log in lost.items():
            if self.logs.get(topic_partition) is log:
                del self.logs[topic_partition]
            self.offline.add(topic_partition)
            self._cleaner.abort(topic_partition)
            log.abandon()
        if self.moves is not None:
            self.moves.lost(directory)
        return list(lost)

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

    # -- partitions ---------------------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        return self.logs.get(topic_partition)

    def create(
        self, topic_partition: TopicPartition, topic_id: UUID | None, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """Returns the log of a partition; makes a new, empty log if there is none. The new log is made in the
        directory that an earlier `move` requested. Without such a request it is made in the directory with the fewest
        partitions that is not cordoned."""
        existing = self.logs.get(topic_partition)
        if existing is not None:
            return existing
        if topic_partition in self.offline or not self.usable:
            failure = next(directory.failure for directory in self.directories if directory.is_offline)
            raise KafkaStorageError(f"{topic_partition} has no log here while a log directory is offline: {failure}")
        directory = self._place_for(topic_partition)
        path = directory.path / str(topic_partition)
        self._check_unused(path)
        loader = LogLoader(path, config, self._files, clean=True, recovery_point=0, log_start_offset=0, now_ms=now_ms)
        try:
            loaded = loader.load()
            if topic_id is not None:
                write_topic_id(path, topic_id, self._files)
            self._preferred.pop(topic_partition, None)
            log = self._adopt(directory, topic_partition, loaded, config, topic_id, now_ms)
            directory.forget_checkpoints(log)
            return log
        except (KafkaStorageError, OSError) as error:
            # If no more files can be opened, the directory cannot be listed, but it can still be renamed.
            doomed = doomed_directory(path, topic_partition)
            with suppress(OSError):
                self._files.rename(path, doomed)
                self._doomed.add(self._elapsed_ms(now_ms), [doomed])
            directory.writer.disk_failed(_disk_error(error), False)
            raise KafkaStorageError(
                f"The log of {topic_partition} cannot be created in {directory.path}: {error}"
            ) from error

    def _place_for(self, topic_partition: TopicPartition) -> LogDirectory:
        wanted = self._preferred.get(topic_partition)
        if wanted is not None and not wanted.is_offline:
            return wanted
        candidates = [directory for directory in self.usable if not directory.is_cordoned]
        if not candidates:
            raise KafkaStorageError(
                f"{topic_partition} has no log here, since every log directory is cordoned: remove a directory "
                "from cordoned.log.dirs."
            )
        return min(candidates, key=lambda candidate: len(candidate.logs))

    def cordon(self, paths: Collection[Path]) -> None:
        """Sets the directories that get no new replicas (KIP-1066)."""
        for directory in self.directories:
            directory.is_cordoned = directory.path.absolute() in paths

    def move(self, topic_partition: TopicPartition, target: LogDirectory) -> None:
        """Starts the move of a replica to another log directory, while the replica is in use. If this broker does not
        have the replica, the directory is remembered for the time when the broker gets the replica, and
        ReplicaNotAvailableError is raised. Raises KafkaStorageError if a directory is offline, or if the copy cannot
        be started."""
        assert self.moves is not None, "this broker moves replicas"
        if topic_partition in self.offline:
            raise KafkaStorageError(f"{topic_partition} cannot be moved while its log directory is offline.")
        if topic_partition not in self.logs:
            self._preferred.pop(topic_partition, None)
            self._preferred[topic_partition] = target
            while len(self._preferred) > PREFERRED_DIRECTORIES_MAX:
                del self._preferred[next(iter(self._preferred))]
            raise ReplicaNotAvailableError(
                f"This broker has no replica of {topic_partition} yet; it will be made in {target.path}."
            )
        self.moves.move_to(topic_partition, target)

    def branch(
        self,
        source: TopicPartition,
        wanted: BranchWanted,
        now_ms: int,
        done: Callable[[PartitionLog | KafkaError], None],
    ) -> None:
        """Makes a branch: a log that begins as the copy of the log of `source`, in the same directory, so that files
        can be shared. `done` is called on the owner's thread with the new log; if the branch exists already, with the
        existing log. If the last part of a move of the source is running, it ends first. After a crash there is either
        the complete branch or none."""
        self._branching.append(source)

        def ended(outcome: PartitionLog | KafkaError) -> None:
            self._branching.remove(source)
            done(outcome)

        # From here on the last part of a move of the source cannot be running.
        if self.moves is None:
            self._branch(source, wanted, now_ms, ended)
        else:
            self.moves.when_not_ending(source, lambda: self._branch(source, wanted, now_ms, ended))

    def _branch(
        self,
        source: TopicPartition,
        wanted: BranchWanted,
        now_ms: int,
        done: Callable[[PartitionLog | KafkaError], None],
    ) -> None:
        existing = self.logs.get(wanted.target)
        if existing is not None:
            done(existing)
            return
        try:
            origin, directory = self._origin_of(source, wanted.target)
        except KafkaStorageError as error:
            done(error)
            return
        Branching(
            origin,
            wanted,
            self._files,
            directory.writer.writer,
            directory.write_log_start_offsets,
            partial(directory.cleaner_offsets.get, source),
            now_ms,
            partial(self._branch_made, directory, source, wanted, now_ms, done),
        ).go_on()

    def _origin_of(self, source: TopicPartition, target: TopicPartition) -> tuple[PartitionLog, LogDirectory]:
        """Returns the source log of a branch, and the log directory for both. Raises KafkaStorageError if the branch
        cannot be made."""
        origin = self.logs.get(source)
        directory = next((directory for directory in self.directories if directory.logs.get(source) is origin), None)
        if origin is None or directory is None:
            raise KafkaStorageError(
                f"{target} cannot be made a branch of {source}, since this broker has no log of {source}."
            )
        if target in self.offline or directory.is_offline:
            raise KafkaStorageError(
                f"{target} cannot be made a branch of {source} while the log directory of one of them is offline."
            )
        self._check_unused(directory.path / str(target))
        return origin, directory

    def _check_unused(self, path: Path) -> None:
        """Raises KafkaStorageError if the directory for a new log already has files."""
        if path.is_dir() and self._files.names(path):
            raise KafkaStorageError(
                f"{path} holds data of a topic that is not known to the metadata: move it away, then create the "
                f"partition."
            )

    def _branch_made(
        self,
        directory: LogDirectory,
        source: TopicPartition,
        wanted: BranchWanted,
        now_ms: int,
        done: Callable[[PartitionLog | KafkaError], None],
        outcome: BranchedLog | KafkaError,
    ) -> None:
        """Adds a branch to the logs of the directory after its files were made, or passes on the error."""
        if isinstance(outcome, KafkaError):
            done(outcome)
            return
        target = wanted.target
        if directory.is_offline:
            done(
                KafkaStorageError(
                    f"{target} cannot be made a branch of {source}, since the log directory {directory.path} is "
                    f"offline now."
                )
            )
            return
        loaded = outcome.loaded
        log = self._adopt(directory, target, loaded, wanted.config, wanted.topic_id, now_ms, outcome.end_offset)
        if outcome.first_dirty is not None:
            directory.cleaner_offsets[target] = outcome.first_dirty
        directory.forget_checkpoints(log)
        if loaded.log_start_offset > loaded.segments[0].base_offset:
            directory.write_log_start_offsets()
        # With the new recovery point, a start after a crash does not have to check the shared files.
        directory.write_recovery_points()
        done(log)

    def assign_topic_id(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Writes the topic id into a partition's directory if it has none, because it is older than topic ids."""
        log = self.logs[topic_partition]
        if log.topic_id is None:
            write_topic_id(log.directory, topic_id, self._files, sync=True)
            log.topic_id = topic_id

    def truncate(
        self,
        offsets: Mapping[TopicPartition, int],
        now_ms: int,
        done: Callable[[dict[TopicPartition, KafkaError]], None],
    ) -> None:
        """Truncates the logs of follower replicas to these offsets. `done` is called, on the owner's thread, with the
        errors by partition. A log takes no appends before its lower recovery point is on the disk: otherwise a crash
        could leave unsynced batches below the recovery point. If the recovery points cannot be written now, they are
        written with the next truncation or checkpoint."""
        self._truncate([(topic_partition, offset, False) for topic_partition, offset in offsets.items()], now_ms, done)

    def restart(
        self,
        offsets: Mapping[TopicPartition, int],
        now_ms: int,
        done: Callable[[dict[TopicPartition, KafkaError]], None],
    ) -> None:
        """Removes all records of the logs of follower replicas, which then begin at these offsets. In all other
        respects it is like `truncate`."""
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
        """Finishes a truncation of several logs. Each directory writes its recovery points and its lowered log start
        offsets once for all logs. Then the logs accept appends again."""
        failures = ended.failures
        affected = [
            directory
            for directory in self.directories
            if any(ended.held.get(tp) is log for tp, log in directory.logs.items())
        ]
        deleted = [log for tp, log in ended.held.items() if self.logs.get(tp) is not log]
        for log in deleted:
            log.release()
        if not affected:
            done(failures)
            return
        points = _RecoveryPoints(len(affected), failures, done)
        for directory in affected:
            held = [log for tp, log in ended.held.items() if directory.logs.get(tp) is log]
            if self.cleaner is not None:
                self.cleaner.truncated(directory, held)
            directory.truncated(
                held, any(log.topic_partition in ended.lowered for log in held), partial(points.written, held)
            )

    def delete(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Deletes a partition: its directory is renamed immediately, and its files are removed after
        `file.delete.delay.ms`. `sync_names` must be called afterwards, so that the new name survives a crash of the
        machine."""
        if topic_partition in self.offline:
            raise KafkaStorageError(
                f"{topic_partition} cannot be deleted while its log directory is offline: repair the directory, "
                "and start the broker again."
            )
        log = self.logs.pop(topic_partition, None) or self._undeleted.pop(topic_partition, None)
        if log is None:
            return
        if self.cleaner is not None:
            self.cleaner.forget(topic_partition)
        for directory in self.directories:
            directory.logs.pop(topic_partition, None)
        if self.moves is not None:
            self.moves.forget(topic_partition)
        try:
            path = mark_deleted(log)
        except OSError as error:
            self._undeleted[topic_partition] = log
            text = (
                f"{log.directory} cannot be renamed for deletion: {error.strerror}. Mend that, and delete the topic "
                f"again."
            )
            raise KafkaStorageError(text) from error
        self._doomed.add(self._elapsed_ms(now_ms) + log.config.file_delete_delay_ms, [path])

    def sync_names(self) -> None:
        """Syncs the log directories, so that new names of partitions' directories survive a crash. It waits for the
        disk, so it runs in another thread."""
        for directory in self.usable:
            self._files.fsync_directory(directory.path)

    # -- running ------------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Runs all due jobs: flushes by time, checkpoints, retention, expiry of producers, removal of files."""
        for _ in self.tick_in_steps(now_ms):
            pass

    def tick_in_steps(self, now_ms: int) -> Iterator[None]:
        """Runs the jobs of `tick`, one piece at each step, so that the owner can do other work between the pieces."""
        for directory in self.directories if not self._tells_of_failures else ():
            if directory.is_offline and directory.logs:
                self.take_offline(directory)
        yield from self._housekeeping.tick_in_steps(now_ms)
        if self.cleaner is not None:
            self.cleaner.look()
        if self.moves is not None:
            self.moves.look()

    def _elapsed_ms(self, now_ms: int) -> int:
        return now_ms if self._monotonic_ms is None else self._monotonic_ms()

    def delete_old_segments(self, now_ms: int) -> None:
        """Applies retention to all partitions: deletes their old segments."""
        self._housekeeping.delete_old_segments(now_ms)

    def remove_doomed(self, now_ms: int) -> None:
        """Removes the files and directories that were marked for removal and whose delay has passed."""
        self._doomed.remove_due(self._elapsed_ms(now_ms))

    def checkpoint_high_watermarks(self) -> None:
        for directory in self.directories:
            directory.write_high_watermarks()

    def checkpoint_recovery_points(self) -> None:
        for directory in self.directories:
            directory.write_recovery_points()

    def checkpoint_log_start_offsets(self) -> None:
        for directory in self.directories:
            directory.write_log_start_offsets()

    # -- stop ---------------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool = True) -> None:
        """Closes every log and releases the directories. With `clean` the logs are synced, and the checkpoints and the
        marker are written, so that the next start need not recover logs. It waits for the disk. Background work must
        have ended before."""
        if self.cleaner is not None:
            self.cleaner.close()
        if self.moves is not None:
            self.moves.close()
        for directory in self.directories:
            if directory.lock is None or directory.is_offline:
                continue
            whole = close_logs(list(directory.logs.values()), self._files, self._helpers, clean=clean) and clean
            if clean:
                with suppress(OSError):
                    directory.write_all()
                    if whole:
                        directory.marker.write()
        self._unlock()

    @property
    def has_work_in_flight(self) -> bool:
        """True if work on a log or a checkpoint (a write, a sync, a move to another directory) is running or
        queued."""
        return (
            bool(self._branching)
            or (self.moves is not None and self.moves.is_at_work)
            or any(directory.writer.flushes_in_flight or directory.writes_checkpoints for directory in self.directories)
            or any(log.has_queued_appends for log in self.logs.values())
        )

    def _unlock(self) -> None:
        for directory in self.directories:
            directory.unlock()


class _RecoveryPoints:
    """Writes the recovery points of several directories after a truncation. `left` is the number of directories that
    must still write. Errors are added to `failures`, which `done` gets after the last directory."""

    def __init__(
        self,
        left: int,
        failures: dict[TopicPartition, KafkaError],
        done: Callable[[dict[TopicPartition, KafkaError]], None],
    ) -> None:
        self._left = left
        self._failures = failures
        self._done = done

    def written(self, held: list[PartitionLog], outcome: BaseException | None) -> None:
        """Records that one directory has written the recovery points of its truncated logs, or has failed to write
        them."""
        self._left -= 1
        if outcome is not None:
            for log in held:
                message = (
                    f"The recovery point of {log.topic_partition} in {log.directory.parent} cannot be written: "
                    f"{outcome}; mend the disk."
                )
                self._failures.setdefault(log.topic_partition, KafkaStorageError(message))
        if not self._left:
            self._done(self._failures)


def _disk_error(error: KafkaStorageError | OSError) -> OSError:
    """Returns the disk error because of which a log could not be opened."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return cause if isinstance(cause, OSError) else OSError(f"{error}")
