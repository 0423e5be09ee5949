"""Locks the log directories of one Apache Kafka broker, and reads their meta.properties and their partitions, before a
broker of jesenska takes them over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.base.topic_names import is_legal_topic_name
from jesenska.log.directory.directory_lock import DirectoryLock
from jesenska.log.disk.checkpoints import CleanShutdownMarker
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.meta_properties import KRAFT_LOG, MetaProperties, read_meta_properties
from jesenska.log.disk.partition_metadata import read_topic_id


@dataclass(frozen=True, slots=True)
class KafkaDirectory:
    path: Path
    properties: MetaProperties | None
    #: The partitions in the directory, with the topic ids from their partition.metadata files.
    partitions: dict[TopicPartition, UUID | None]
    #: True if the directory's broker was shut down cleanly.
    was_clean: bool


@contextmanager
def locked(paths: Sequence[Path], files: FileLayer) -> Iterator[list[KafkaDirectory]]:
    """Yields the directories, and keeps them locked until the `with` block ends. Raises JesenskaError if a directory
    is in use, missing or named twice."""
    locks: list[DirectoryLock] = []
    try:
        found = []
        for path in paths:
            if not path.is_dir():
                raise JesenskaError(f"There is no directory {path}: name those of Kafka's log.dirs, in their order.")
            if any(path.samefile(other) for other in paths[: len(locks)]):
                raise JesenskaError(f"The directory {path} is named twice: name each of Kafka's log.dirs once.")
            locks.append(DirectoryLock(path))
            found.append(_look(path, files))
        yield found
    finally:
        for lock in locks:
            lock.release()


def _look(path: Path, files: FileLayer) -> KafkaDirectory:
    partitions: dict[TopicPartition, UUID | None] = {}
    for name in files.names(path):
        found = TopicPartition.of_directory(name)
        if found is None or name == KRAFT_LOG or not is_legal_topic_name(found.topic) or not (path / name).is_dir():
            continue
        partitions[found] = read_topic_id(path / name, files)
    return KafkaDirectory(
        path, read_meta_properties(path, files), partitions, CleanShutdownMarker(path, files).exists()
    )


def broker_of(directories: Sequence[KafkaDirectory], wanted: int | None) -> int:
    """Returns the id of the broker that owns the directories. Raises JesenskaError if the directories contain no
    broker id, or different broker ids."""
    said = {
        item.properties.broker_id
        for item in directories
        if item.properties is not None and item.properties.broker_id is not None
    }
    if len(said) > 1:
        raise JesenskaError(
            f"The directories belong to different brokers ({', '.join(map(str, sorted(said)))}): import each "
            f"broker's by itself."
        )
    if not said:
        if wanted is None:
            raise JesenskaError(
                f"{directories[0].path} does not name its broker (it has no meta.properties): give the broker's id "
                "with --broker-id."
            )
        return wanted
    (found,) = said
    if wanted not in (None, found):
        raise JesenskaError(
            f"The directory {directories[0].path} belongs to broker {found}, but --broker-id is {wanted}: leave the "
            "flag out."
        )
    return found


def cluster_of(directories: Sequence[KafkaDirectory]) -> str | None:
    """Returns the cluster id in the directories' meta.properties. Returns None if they contain no cluster id. Raises
    JesenskaError if they contain different cluster ids."""
    said = {
        item.properties.cluster_id
        for item in directories
        if item.properties is not None and item.properties.cluster_id is not None
    }
    if len(said) > 1:
        raise JesenskaError(
            f"The directories belong to different clusters ({', '.join(sorted(said))}): name those of one broker."
        )
    return next(iter(said), None)


def all_partitions(directories: Sequence[KafkaDirectory]) -> dict[TopicPartition, UUID | None]:
    """Returns the partitions of all directories with their topic ids. Raises JesenskaError if a partition is in two
    directories."""
    found: dict[TopicPartition, UUID | None] = {}
    for directory in directories:
        for at, topic_id in directory.partitions.items():
            if at in found:
                raise JesenskaError(f"The partition {at} is in two of the directories: move one of the two away.")
            found[at] = topic_id
    return found
