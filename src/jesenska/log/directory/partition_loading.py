"""Loads, at a broker's start, the partitions in the log directories. A partition is loaded only if it is also in the
metadata tree (ZooKeeper's nodes). Several partitions are loaded at once, in threads. If the last shutdown of a
directory was not clean, its logs are recovered.

    orders-0/                   a partition: its log is loaded, if the metadata know it; otherwise it is named in a
                                warning and not changed
    orders-0.<unique>-delete/   a partition whose topic is deleted: removed by the first tick (housekeeping)
    orders-0.<unique>-future/   the copy of a replica that is moved from another directory: the move continues
                                (replica_moves)

A directory that cannot be read goes offline (`LogDirectory.fail`), with all of its partitions; the partitions of other
directories are loaded.

The marker of a clean shutdown is removed before the first log is loaded. So after a later crash all logs are
recovered. If a partition is in two directories, the start is refused, since it is unknown which directory has the
right log. There is one exception: one of the two directories has a file that names the other directory as the target
of a move (module `copies.future_files`). Then a crash came between two steps of a move, and the directory with that
file is removed. If the other directory cannot be read, the partition is not loaded."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from uuid import UUID

from jesenska.base.identifiers import TopicPartition
from jesenska.base.topic_names import is_legal_topic_name
from jesenska.log.copies.future_files import MOVED_FROM_FILE, MOVED_TO_FILE, moved_from, moved_to
from jesenska.log.directory.directory_lock import LogDirectoryError
from jesenska.log.directory.directory_settings import DirectorySettings
from jesenska.log.directory.log_directory import FailingDirectory, LogDirectory
from jesenska.log.disk.doomed_files import DoomedFiles
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.partition_metadata import read_topic_id
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.closing import DELETE_DIRECTORY_SUFFIX, doomed_directory
from jesenska.log.partition.recovery import LoadedLog, LogLoader, Progress

logger = logging.getLogger(__name__)

_FUTURE = re.compile(r"(.+)-(\d{1,10})\.[0-9a-f]{32}-future\Z")
_IGNORED = {"lost+found"}

#: A function that takes a partition and the topic id in its directory (None if there is none). It returns the
#: partition's settings, or None if the metadata tree does not have the partition.
Known = Callable[[TopicPartition, UUID | None], LogConfig | None]


class LoadProgress(NamedTuple):
    partitions_done: int
    partitions_total: int
    #: Number of bytes that recovery has checked so far.
    checked_bytes: int


class FoundPartition(NamedTuple):
    """A partition that was found in a log directory, and that the metadata tree has."""

    directory: LogDirectory
    topic_partition: TopicPartition
    #: The topic id in the directory; None if the directory is older than topic ids.
    topic_id: UUID | None
    config: LogConfig


class FoundCopy(NamedTuple):
    """The unfinished copy of a replica that was being moved to this log directory."""

    directory: LogDirectory
    topic_partition: TopicPartition
    path: Path


class LoadedPartition(NamedTuple):
    found: FoundPartition
    loaded: LoadedLog
    #: The high watermark from the checkpoint.
    high_watermark: int


def load_partitions(
    directories: Sequence[LogDirectory],
    known: Known,
    settings: DirectorySettings,
    files: FileLayer,
    helpers: Callable[[int, str], Executor],
    doomed: DoomedFiles,
    now_ms: int,
    progress: Callable[[LoadProgress], None] | None = None,
    copies: list[FoundCopy] | None = None,
) -> Iterator[LoadedPartition]:
    """Loads the known partitions, and yields them with their logs. They are loaded in threads; `helpers` makes a pool
    of a given size and name. This takes long after a crash; `progress` is called from the threads. Unfinished copies
    of moved replicas are added to `copies`.

    Raises LogDirectoryError, before anything is changed, if a partition is in two directories. Raises
    KafkaStorageError if a log cannot be opened although the disk can be read."""
    jobs: list[tuple[FoundPartition, LogLoader]] = []
    counted = _Counter(progress)
    usable = [directory for directory in directories if not directory.is_offline]
    for directory in usable:
        with FailingDirectory(directory, directories):
            jobs += _jobs_of(
                directory, known, settings, files, doomed, now_ms, counted.checked, copies if copies is not None else []
            )
    moved = _moved(directories, [found for found, _ in jobs], files)
    jobs = [(found, loader) for found, loader in jobs if found not in moved]
    _refuse_doubles([found for found, _ in jobs])
    for directory in usable:
        with FailingDirectory(directory, directories):
            if directory.was_clean:
                directory.marker.remove()
    jobs = [(found, loader) for found, loader in jobs if not found.directory.is_offline]
    counted.total = len(jobs)
    threads = max(1, settings.recovery_threads_per_data_dir) * len(usable)
    with helpers(threads, "recovery") as pool:
        futures = [pool.submit(counted.done_with, loader.load) for _, loader in jobs]
        for (found, _), future in zip(jobs, futures, strict=True):
            loaded = None
            with FailingDirectory(found.directory, directories):
                loaded = future.result()
            if loaded is None:
                continue
            for note in loaded.notes:
                logger.warning("%s: %s", found.topic_partition, note)
            yield LoadedPartition(
                found, loaded, found.directory.checkpointed(found.directory.high_watermarks, found.topic_partition)
            )
    _remove_moved(moved, files, doomed)


def _jobs_of(
    directory: LogDirectory,
    known: Known,
    settings: DirectorySettings,
    files: FileLayer,
    doomed: DoomedFiles,
    now_ms: int,
    progress: Progress,
    copies: list[FoundCopy],
) -> list[tuple[FoundPartition, LogLoader]]:
    directory.was_clean = directory.marker.exists()
    directory.read_checkpoints()
    return [
        (
            found,
            LogLoader(
                directory.path / str(found.topic_partition),
                found.config,
                files,
                clean=directory.was_clean,
                recovery_point=directory.checkpointed(directory.recovery_points, found.topic_partition),
                log_start_offset=directory.checkpointed(directory.log_start_offsets, found.topic_partition),
                now_ms=now_ms,
                producer_expiration_ms=settings.producer_id_expiration_ms,
                progress=progress,
            ),
        )
        for found in _partitions(directory, known, files, doomed, copies)
    ]


def _partitions(
    directory: LogDirectory, known: Known, files: FileLayer, doomed: DoomedFiles, copies: list[FoundCopy]
) -> Iterator[FoundPartition]:
    for name in files.names(directory.path):
        path = directory.path / name
        if not path.is_dir() or name in _IGNORED:
            continue
        if name.endswith(DELETE_DIRECTORY_SUFFIX):
            doomed.add(0, [path])
            continue
        future = _FUTURE.fullmatch(name)
        if future is not None and is_legal_topic_name(future[1]):
            key = TopicPartition(future[1], int(future[2]))
            if known(key, read_topic_id(path, files)) is not None:
                copies.append(FoundCopy(directory, key, path))
                continue
        topic_partition = TopicPartition.of_directory(name)
        if topic_partition is None or not is_legal_topic_name(topic_partition.topic):
            logger.warning("%s is not a partition of this broker and was not changed", path)
            continue
        topic_id = read_topic_id(path, files)
        config = known(topic_partition, topic_id)
        if config is None:
            logger.warning(
                "%s is not known to the metadata%s and was not changed: move it away if the topic was deleted",
                path,
                "" if topic_id is None else f" with topic id {topic_id}",
            )
            continue
        yield FoundPartition(directory, topic_partition, topic_id, config)


class _Removed(NamedTuple):
    """The real place of a partition's log: the path `path` in the log directory `home`. It is for a directory that no
    longer has the log."""

    home: LogDirectory
    path: Path


def _moved(
    directories: Sequence[LogDirectory], partitions: Sequence[FoundPartition], files: FileLayer
) -> dict[FoundPartition, _Removed]:
    """Finds directories of partitions that are left over from moves that were interrupted by a crash or a disk
    failure. Files in them name the source or the target of the move. Returns for each such directory the place of the
    partition's log."""
    found_at = {_path_of(found).absolute(): found for found in partitions}
    offline = {directory.path.absolute(): directory for directory in directories if directory.is_offline}
    moved: dict[FoundPartition, _Removed] = {}
    for found in partitions:
        path = _path_of(found)
        with FailingDirectory(found.directory, directories):
            successor, origin = moved_to(path, files), moved_from(path, files)
            if successor is not None and successor != path.absolute():
                home = found_at[successor].directory if successor in found_at else offline.get(successor.parent)
                if home is not None:
                    moved[found] = _Removed(home, successor)
                    continue
                files.unlink(path / MOVED_TO_FILE)
            if origin is not None:
                there = found_at.get(origin)
                if there is not None and moved_to(origin, files) != path.absolute():
                    moved[found] = _Removed(there.directory, origin)
                elif there is None and origin.parent in offline:
                    moved[found] = _Removed(offline[origin.parent], origin)
                elif there is None:
                    files.unlink(path / MOVED_FROM_FILE)
    return moved


def _remove_moved(moved: Mapping[FoundPartition, _Removed], files: FileLayer, doomed: DoomedFiles) -> None:
    """Removes directories that are left over from interrupted moves. A directory remains if the partition's log is on
    a disk that cannot be read."""
    for found, (home, log_path) in moved.items():
        path = _path_of(found)
        if home.is_offline:
            logger.error(
                "the log of %s may be in %s, which cannot be read: the partition is offline until "
                "that directory is repaired and the broker is started again",
                path,
                log_path,
            )
        elif not found.directory.is_offline:
            logger.warning("%s is left over from an interrupted move, and is removed: the log is in %s", path, log_path)
            target = doomed_directory(path, found.topic_partition)
            try:
                files.rename(path, target)
            except OSError as error:
                logger.warning("%s cannot be renamed for deletion: %s; the next start tries again", path, error)
            else:
                doomed.add(0, [target])


def _path_of(found: FoundPartition) -> Path:
    return found.directory.path / str(found.topic_partition)


def _refuse_doubles(partitions: Sequence[FoundPartition]) -> None:
    seen: dict[TopicPartition, Path] = {}
    for directory, topic_partition, _, _ in partitions:
        if topic_partition in seen:
            raise LogDirectoryError(
                f"The partition {topic_partition} is in both {seen[topic_partition]} and {directory.path}: move one "
                f"of the two directories away."
            )
        seen[topic_partition] = directory.path


class _Counter:
    """Adds up the bytes that the recovery threads report as checked."""

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
