"""Turns the log directory of a KRaft node into the log directory of a broker in ZooKeeper mode, and makes an archive
from which the old state can be restored.

    kraft-metadata.tar     meta.properties and __cluster_metadata-0 as they were, to be unpacked in the directory
    meta.properties        version 0, with the node's id as the broker id
    __cluster_metadata-0   removed

The steps are done in this order, and each step is atomic. Until meta.properties is replaced, Kafka in KRaft mode can
use the directory as before. After that neither Kafka nor jesenska starts until the old metadata log is removed; if the
import was interrupted there, running it again removes the log. The directory never contains partitions together with
an empty metadata log, since Kafka would then treat the partitions as those of deleted topics."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.files import FileLayer
from jesenska.log.disk.meta_properties import FILE_NAME, KRAFT_LOG, write_meta_properties
from jesenska.log.partition.closing import doomed_directory

ARCHIVE = "kraft-metadata.tar"
_PARTITION = TopicPartition("__cluster_metadata", 0)


def retire(directory: Path, cluster_id: str, broker_id: int, files: FileLayer) -> None:
    """Does the three steps in order. Raises JesenskaError if the operating system refuses a step."""
    try:
        archive(directory, files)
        write_meta_properties(directory, cluster_id, broker_id, files)
        remove_log(directory, files)
    except OSError as error:
        raise JesenskaError(
            f"{error.filename or directory} cannot be written ({error.strerror}): mend that, then import once more."
        ) from error


def archive(directory: Path, files: FileLayer) -> None:
    new = directory / (ARCHIVE + ".new")
    with tarfile.open(new, "w") as packed:
        for name in (FILE_NAME, KRAFT_LOG):
            if (directory / name).exists():
                packed.add(directory / name, arcname=name)
    descriptor = files.open(new, os.O_RDWR)
    try:
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
    files.rename(new, directory / ARCHIVE)
    files.fsync_directory(directory)


def remove_log(directory: Path, files: FileLayer) -> None:
    """Removes the metadata log atomically. First the log's directory is renamed to the name of a deleted partition,
    which any broker would remove. Then the directory is deleted."""
    if not (directory / KRAFT_LOG).exists():
        return
    doomed = doomed_directory(directory / KRAFT_LOG, _PARTITION)
    files.rename(directory / KRAFT_LOG, doomed)
    files.fsync_directory(directory)
    shutil.rmtree(doomed, ignore_errors=True)
