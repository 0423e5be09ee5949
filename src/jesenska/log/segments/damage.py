"""Damage in a segment's file: the error that names the segment, and the files in which recovery saves the bytes that
it cuts off after a clean shutdown.

A clean shutdown leaves only complete batches. So damage after it is a fault of the disk, and the bytes that are cut
off were acknowledged. They are not deleted but saved, so that an operator can look at them:

    00000000000000001180.log.cut            a segment after the damage, unchanged
    00000000000000001180.log.4711.cut       the end of a damaged segment's file, from position 4711 on

Apache Kafka and jesenska do not read files with these names. After a crash the bytes that are cut off were never
acknowledged as synced, so they are deleted. `checked_batches` finds damaged batches, and `reading` refuses reads of
them."""

from __future__ import annotations

import os
from pathlib import Path

from jesenska.base.errors import CorruptMessageError
from jesenska.log.disk.files import FileLayer

CUT_SUFFIX = ".cut"
_COPY_BYTES = 4 * 1024 * 1024


class DamagedSegmentError(CorruptMessageError):
    """Raised if a segment's file has no complete batch at a position where a batch must be. `base_offset` is the base
    offset of the segment."""

    def __init__(self, base_offset: int, message: str) -> None:
        super().__init__(message)
        self.base_offset = base_offset


def keep_end(files: FileLayer, path: Path, descriptor: int, position: int, file_bytes: int) -> Path:
    """Copies the bytes of a file from `position` on into a new file, syncs the new file, and returns its path."""
    target = path.with_name(f"{path.name}.{position}{CUT_SUFFIX}")
    copy = files.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        at = position
        while at < file_bytes:
            piece = files.pread(descriptor, min(_COPY_BYTES, file_bytes - at), at)
            if not piece:
                break
            files.write_all(copy, piece, at - position)
            at += len(piece)
        files.fsync(copy)
    finally:
        files.close(copy)
    return target


def keep_whole(files: FileLayer, path: Path) -> Path:
    """Renames a file, so that it is no longer read as a segment, and returns the new path."""
    target = path.with_name(path.name + CUT_SUFFIX)
    files.rename(path, target)
    return target
