"""The file `partition.metadata`, which has the topic id of a partition's directory. By the topic id a directory that
is left over from a deleted topic is distinguished from the directory of a new topic with the same name.

    version: 0
    topic_id: 9tbXHgBvRzO0K-63RUy5HQ

The file is written when the directory is created, and replaced as a whole. A directory without the file (written
before Kafka 2.8, or just before a crash) gets the topic id with which the partition is opened."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import uuid_from_text, uuid_to_text
from jesenska.log.disk.files import FileLayer

FILE_NAME = "partition.metadata"
_WHOLE_BYTES = len("version: 0\ntopic_id: ") + 22


def read_topic_id(directory: Path, files: FileLayer) -> UUID | None:
    """Returns the topic id in the directory; None if the file is missing or incomplete. Raises KafkaStorageError if
    the content is not valid."""
    path = directory / FILE_NAME
    try:
        text = files.read_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    if len(text.rstrip("\0")) < _WHOLE_BYTES:
        # The file was created just before a crash of the machine: its name survived the crash, but not all of its
        # content.
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        if int(fields["version"]) != 0:
            raise ValueError(f"version {fields['version'].strip()} is not known")
        return uuid_from_text(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise KafkaStorageError(
            f"The file {path} does not name a topic id ({error}); restore it, or move the directory away if the "
            f"topic is gone."
        ) from error


def write_topic_id(directory: Path, topic_id: UUID, files: FileLayer, *, sync: bool = False) -> None:
    """Writes the topic id into the directory. Without `sync` the log's first flush makes the file durable, so that
    creating many partitions does not wait for the disk each time."""
    files.replace_file(directory / FILE_NAME, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode(), sync=sync)
