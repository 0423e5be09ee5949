"""`partition.metadata`: the id of the topic that a partition's directory belongs to, so that a directory left over
from a deleted topic is not taken for one of the same name.

    version: 0
    topic_id: 9tbXHgBvRzO0K-63RUy5HQ

Written when the directory is created, replaced as a whole. A directory without it (written before Kafka 2.8, or just
before a crash) takes the id it is opened with.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from jesenska.base.errors import KafkaStorageError
from jesenska.base.identifiers import uuid_from_text, uuid_to_text
from jesenska.log.disk.files import FileLayer

FILE_NAME = "partition.metadata"
_WHOLE_BYTES = len("version: 0\ntopic_id: ") + 22


def read_topic_id(directory: Path, files: FileLayer) -> UUID | None:
    """The topic's id, None if there is no file; KafkaStorageError if it does not make sense."""
    path = directory / FILE_NAME
    try:
        text = files.read_file(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    if len(text.rstrip("\0")) < _WHOLE_BYTES:
        # Created just before the machine went down: the name was kept, the content was not, or not all of it.
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
    """Without `sync` the log's first flush makes it durable: creating many partitions does not wait for the disk at
    each."""
    files.replace_file(directory / FILE_NAME, f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode(), sync=sync)
