"""Turns a log directory of a KRaft node into one of a broker in ZooKeeper mode, with an archive to undo it.

    kraft-metadata.tar     meta.properties and __cluster_metadata-0 as they were, to be unpacked in the directory
    meta.properties        version 0, with the node's number as the broker's
    __cluster_metadata-0   removed

The steps are done in this order, and each is atomic. Before meta.properties is replaced, Kafka in KRaft mode finds
everything unchanged. Afterwards neither Kafka nor a broker of jesenska starts until the old metadata log is removed; a
repetition of the import removes it. At no time are there partitions beside an empty metadata log: Kafka would treat
them as partitions of deleted topics."""

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
    """Does all steps; JesenskaError if the system refuses one."""
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
    """Removes the metadata log atomically: it is renamed to a name that any broker deletes, then deleted."""
    if not (directory / KRAFT_LOG).exists():
        return
    doomed = doomed_directory(directory / KRAFT_LOG, _PARTITION)
    files.rename(directory / KRAFT_LOG, doomed)
    files.fsync_directory(directory)
    shutil.rmtree(doomed, ignore_errors=True)
