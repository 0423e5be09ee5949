"""Reads and writes the checkpoints of one log directory, and the marker of a clean shutdown. A checkpoint is a small
text file with one offset for each partition.

    recovery-point-offset-checkpoint    all records before this offset are synced; recovery starts here
    log-start-offset-checkpoint         first offset that may be read, if it is not the first segment's base offset
    replication-offset-checkpoint       high watermark
    cleaner-offset-checkpoint           first offset that was not compacted yet
    jesenska-cut-logs                   logs that have lost their ends, and their end offsets; only if there are any

Each file has the form

    0                       version
    2                       number of lines that follow
    orders 0 1234           topic, partition, offset
    orders 1 99

A leader-epoch-checkpoint (see leader_epochs) begins in the same way and has other lines. Files are replaced as a whole
(written under another name, synced, renamed, directory synced), so after a crash there is either the old file or the
new file.

    .kafka_cleanshutdown    {"version":0,"brokerEpoch":-1}

is written last at a clean shutdown and removed first at a start. If it is missing, logs are recovered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.files import FileLayer

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CUT_LOGS = "jesenska-cut-logs"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_VERSION = "0"
_T = TypeVar("_T")


def read_entries(text: str, path: Path, parse: Callable[[list[str]], _T]) -> list[_T]:
    """Returns the parsed lines of a checkpoint file; an empty file has no lines. Raises KafkaStorageError, which names
    the file, if a line is not valid."""
    lines = text.split("\n")
    if lines == [""]:
        return []
    try:
        if lines[0].strip() != _VERSION:
            raise ValueError(f"version {lines[0]!r} is not known")
        count = int(lines[1])
        body = [line for line in lines[2:] if line.strip()]
        if count != len(body):
            raise ValueError(f"it should have {count} entries and has {len(body)}")
        return [parse(line.split()) for line in body]
    except (ValueError, IndexError) as error:
        raise KafkaStorageError(
            f"The checkpoint file {path} cannot be read ({error}); remove it, so that it is built again."
        ) from error


def write_entries(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([_VERSION, str(len(body)), *body, ""]).encode()


def _parse_offset(fields: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = fields
    return TopicPartition(topic, int(partition)), int(offset)


class OffsetCheckpoint:
    """A checkpoint file with one offset for each partition of a log directory."""

    __slots__ = ("_files", "path")

    def __init__(self, path: Path, files: FileLayer) -> None:
        self.path = path
        self._files = files

    def read(self) -> dict[TopicPartition, int]:
        """Returns the offsets by partition. The result is empty if there is no file."""
        try:
            data = self._files.read_file(self.path)
        except FileNotFoundError:
            return {}
        return dict(read_entries(data.decode("utf-8", "replace"), self.path, _parse_offset))

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the file and syncs it. The call waits for the disk."""
        self._files.replace_file(
            self.path, write_entries(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        )


class CleanShutdownMarker:
    """The marker file of a clean shutdown: it exists if the last shutdown of the broker on this directory was
    clean."""

    __slots__ = ("_files", "path")

    def __init__(self, directory: Path, files: FileLayer) -> None:
        self.path = directory / CLEAN_SHUTDOWN
        self._files = files

    def exists(self) -> bool:
        """Returns true if the marker file exists. Its content is ignored, because releases before 3.x leave it
        empty."""
        return self.path.exists()

    def broker_epoch(self) -> int:
        """Returns the broker epoch of the clean shutdown; -1 if it is unknown."""
        try:
            value = json.loads(self._files.read_file(self.path))
            return int(value["brokerEpoch"])
        except (OSError, ValueError, KeyError, TypeError):
            return -1

    def write(self, broker_epoch: int = -1) -> None:
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._files.replace_file(self.path, content.encode())

    def remove(self) -> None:
        self._files.unlink(self.path)
        self._files.fsync_directory(self.path.parent)
