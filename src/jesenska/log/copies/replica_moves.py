"""Manages all moves of replicas between the log directories of a broker: the requests, the running moves, and their
speed.

    move_to     requests the move of a replica to a directory. A running move to another directory is given up, as
                with Apache Kafka; if the replica is there already nothing else is done
    resume      continues the moves of copies that a start has found
    look        every second: begins moves as threads are free (`num.replica.alter.log.dirs.threads`; by default as
                many as there are directories)
    forget      the partition is deleted, and so is the copy
    lost        a directory has failed: its moves end, and the next start uses the copied files

`replica.alter.log.dirs.io.max.bytes.per.second` limits the speed of all moves together."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from jesenska.base.errors import InvalidTopicException, KafkaStorageError
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.log.compaction.log_cleaner import LogCleaner
from jesenska.log.copies.future_files import future_directory_name
from jesenska.log.copies.replica_move import BUSY_SECONDS, MoveState, MoveSurroundings, ReplicaMove
from jesenska.log.directory.log_directory import LogDirectory
from jesenska.log.directory.partition_loading import FoundCopy
from jesenska.log.disk.doomed_files import DoomedFiles
from jesenska.log.disk.files import FileLayer
from jesenska.log.partition.closing import doomed_directory
from jesenska.log.partition.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_PIECE_BYTES: Final = 8 * 1024 * 1024
_PIECE_MIN_BYTES: Final = 64 * 1024
#: The number of steps per second, if the bytes per second are limited.
_PIECES_PER_SECOND: Final = 8
_NAME_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """The broker's settings about moves of replicas. The defaults are Kafka's."""

    #: The number of replicas that are copied at once; None means one for each log directory.
    threads: int | None = None
    max_bytes_per_second: int = 2**63 - 1


class MoveFigures(NamedTuple):
    """Progress of one move, for DescribeLogDirs and for reports."""

    topic_partition: TopicPartition
    source: Path
    target: LogDirectory
    state: str
    copied_bytes: int
    size_bytes: int
    #: The approximate number of records that the copy lacks.
    offset_lag: int


def require_short_name(topic_partition: TopicPartition) -> None:
    """Raises InvalidTopicException if the name of a copy's directory would be too long for a file system."""
    if len(future_directory_name(topic_partition, NO_UUID)) > _NAME_MAX:
        raise InvalidTopicException(
            f"A directory for the copy of {topic_partition} would have a name of more than {_NAME_MAX} characters."
        )


class ReplicaMoves:
    """Manages the moves of the logs in `directories`."""

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        files: FileLayer,
        doomed: DoomedFiles,
        surroundings: MoveSurroundings,
        settings: MoveSettings,
        cleaner: LogCleaner | None,
        is_busy: Callable[[TopicPartition], bool],
    ) -> None:
        """`is_busy` returns true for a partition whose log must stay in its directory for now."""
        self.settings = settings
        self._directories = directories
        self._files = files
        self._doomed = doomed
        self._around = surroundings
        self._cleaner = cleaner
        self._is_busy = is_busy
        #: All moves, in the order of their requests.
        self._moves: dict[TopicPartition, ReplicaMove] = {}
        #: The moves that have not started yet.
        self._waiting: dict[TopicPartition, ReplicaMove] = {}
        #: The number of moves that have started and not ended.
        self._running = 0
        self._found: list[FoundCopy] = []
        self._paced_until_ms = 0.0
        self._closed = False

    def reconfigure(self, settings: MoveSettings) -> None:
        """Applies new settings at once. Moves that wait because of the old speed limit continue."""
        if settings != self.settings:
            self.settings = settings
            self._paced_until_ms = 0.0

    # -- requests -----------------------------------------------------------------------------------------------------

    def move_to(self, topic_partition: TopicPartition, target: LogDirectory) -> None:
        """Requests a move, and makes the directory of its copy. Raises InvalidTopicException if the directory's name
        would be too long, KafkaStorageError if it cannot be made."""
        under_way = self._moves.get(topic_partition)
        if under_way is not None and under_way.target is target:
            under_way.next_target = None
            return
        if under_way is not None:
            if not under_way.may_be_given_up:
                under_way.next_target = target
                return
            self._remove(under_way, f"it is wanted in {target.path}")
        source, log = self._home_of(topic_partition)
        if source is not target:
            self._begin(log, source, target, self._make(topic_partition, target))

    def _home_of(self, topic_partition: TopicPartition) -> tuple[LogDirectory, PartitionLog]:
        for directory in self._directories:
            log = directory.logs.get(topic_partition)
            if log is not None:
                return directory, log
        raise KafkaStorageError(f"There is no log of {topic_partition} here.")

    def _make(self, topic_partition: TopicPartition, target: LogDirectory) -> Path:
        require_short_name(topic_partition)
        future = target.path / future_directory_name(topic_partition, self._around.new_uuid())
        try:
            self._files.mkdir(future)
        except OSError as error:
            target.writer.disk_failed(error, False)
            raise KafkaStorageError(
                f"{topic_partition} cannot be moved to {target.path}: {error.strerror or error}."
            ) from error
        return future

    def _begin(self, log: PartitionLog, source: LogDirectory, target: LogDirectory, future: Path) -> None:
        move = ReplicaMove(log, source, target, future, self._files, self._around, self)
        self._moves[log.topic_partition] = self._waiting[log.topic_partition] = move
        if self._cleaner is not None:
            self._cleaner.pause(log.topic_partition)
        logger.info(
            "%s is being moved from %s to %s: %d bytes", log.topic_partition, source.path, target.path, log.size_bytes
        )
        self.look()

    def found(self, copies: Iterable[FoundCopy]) -> None:
        """Adds copies that a start has found; the next call of `look` continues their moves."""
        self._found.extend(copies)

    def _resume(self) -> None:
        found, self._found = self._found, []
        for directory, topic_partition, path in found:
            source = next((item for item in self._directories if topic_partition in item.logs), None)
            if directory.is_offline:
                continue
            if source is None:
                logger.warning("%s is the copy of a replica that this broker does not have, and was not changed", path)
            elif source is directory or topic_partition in self._moves:
                self._doom(path, topic_partition)
            else:
                self._begin(source.logs[topic_partition], source, directory, path)

    # -- running and speed --------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Starts waiting moves if threads are free. It must be called about once a second."""
        if self._closed:
            return
        if self._found:
            self._resume()
        threads = self.settings.threads or len(self._directories)
        while self._waiting and self._running < threads:
            topic_partition, move = next(iter(self._waiting.items()))
            del self._waiting[topic_partition]
            self._running += 1
            move.begin()

    def piece_bytes(self) -> int:
        return max(_PIECE_MIN_BYTES, min(_PIECE_BYTES, self.settings.max_bytes_per_second // _PIECES_PER_SECOND))

    def moved(self, size_bytes: int) -> None:
        if self.settings.max_bytes_per_second > 0:
            self._paced_until_ms = (
                max(self._paced_until_ms, self._around.monotonic_ms())
                + size_bytes * 1000 / self.settings.max_bytes_per_second
            )

    def wait_seconds(self) -> float:
        if self.settings.max_bytes_per_second <= 0:
            return math.inf
        wait_ms = self._paced_until_ms - self._around.monotonic_ms()
        return wait_ms / 1000 if wait_ms >= 1 else 0.0

    def is_busy(self, topic_partition: TopicPartition) -> bool:
        return self._is_busy(topic_partition)

    # -- results ------------------------------------------------------------------------------------------------------

    def relocated(self, move: ReplicaMove, old_directory: Path) -> None:
        self._doomed.add(self._around.monotonic_ms() + move.log.config.file_delete_delay_ms, [old_directory])

    def ended(self, move: ReplicaMove) -> None:
        topic_partition = move.topic_partition
        if self._moves.get(topic_partition) is move:
            del self._moves[topic_partition]
            if self._waiting.pop(topic_partition, None) is None:
                self._running -= 1
        if self._cleaner is not None:
            self._cleaner.go_on(topic_partition)
        if move.removes_copy:
            self._doom(move.future, topic_partition)
        elif move.next_target is not None and not self._closed and not move.log.is_closed:
            try:
                self.move_to(topic_partition, move.next_target)
            except (KafkaStorageError, InvalidTopicException) as error:
                logger.error("%s", error)
        self.look()

    def _doom(self, copy: Path, topic_partition: TopicPartition) -> None:
        """Renames the directory of a copy, and schedules its removal."""
        doomed = doomed_directory(copy.with_name(str(topic_partition)), topic_partition)
        try:
            self._files.rename(copy, doomed)
        except OSError as error:
            logger.warning(
                "%s is a copy that is not needed any more, and cannot be renamed: %s; remove this directory",
                copy,
                error,
            )
            return
        self._doomed.add(self._around.monotonic_ms(), [doomed])

    def _remove(self, move: ReplicaMove, why: str | None) -> None:
        move.removes_copy = True
        move.give_up(why)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Removes the move of a deleted partition. If the last part of the move is running, it finds the log closed
        and ends by itself."""
        move = self._moves.get(topic_partition)
        if move is not None:
            move.removes_copy = True
            if move.may_be_given_up:
                move.give_up(None)

    def lost(self, directory: LogDirectory) -> None:
        """Ends all moves from or to a log directory that has failed."""
        for move in list(self._moves.values()):
            if directory in (move.source, move.target) and move.may_be_given_up:
                move.give_up(f"the log directory {directory.path} is offline")

    def close(self) -> None:
        """Stops all moves; no further move starts. The next start of the broker uses the copied files."""
        self._closed = True
        for move in list(self._moves.values()):
            move.stop()

    @property
    def is_at_work(self) -> bool:
        return bool(self._moves)

    def when_not_ending(self, topic_partition: TopicPartition, then: Callable[[], None]) -> None:
        """Calls `then` at once. If the last part of the partition's move is running, calls it shortly after that part
        has ended, when the log's directory is certain."""
        move = self._moves.get(topic_partition)
        if move is not None and move.state is MoveState.CLOSING:
            self._around.later(BUSY_SECONDS, lambda: self.when_not_ending(topic_partition, then))
        else:
            then()

    def figures(self) -> list[MoveFigures]:
        """Returns the progress of all moves that run or wait."""
        return [
            MoveFigures(
                topic_partition,
                move.source.path,
                move.target,
                move.state.value,
                move.copied_bytes,
                move.log.size_bytes,
                max(0, move.log.log_end_offset - move.end_offset),
            )
            for topic_partition, move in self._moves.items()
        ]
