"""Damage in a segment's file: the error that names the segment, and what becomes of bytes that recovery cuts off after
an orderly stop.

An orderly stop leaves whole batches and nothing else, so damage behind one is the disk's doing, and what is cut off
was once acknowledged. It is not removed but renamed, for somebody to look at:

    00000000000000001180.log.cut            a segment behind the damage, as it was
    00000000000000001180.log.4711.cut       the end of a damaged segment's file, from position 4711 on

Neither name is one that Apache Kafka or jesenska reads. After a crash what is cut off was never acknowledged as
synced; it is removed. What is damaged, and refused to readers, is found in `checked_batches` and refused in `reading`.
"""

from __future__ import annotations

import os
from pathlib import Path

from jesenska.base.errors import CorruptMessageError
from jesenska.log.disk.files import FileLayer

CUT_SUFFIX = ".cut"
_COPY_BYTES = 4 * 1024 * 1024


class DamagedSegmentError(CorruptMessageError):
    """A segment's file holds no whole batch where there should be one. `base_offset` is the segment's."""

    def __init__(self, base_offset: int, message: str) -> None:
        super().__init__(message)
        self.base_offset = base_offset


def keep_end(files: FileLayer, path: Path, descriptor: int, position: int, file_bytes: int) -> Path:
    """Copies a file's bytes from `position` on into a file of their own, synced; its path."""
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
    """Gives a file a name under which nobody reads it; its path."""
    target = path.with_name(path.name + CUT_SUFFIX)
    files.rename(path, target)
    return target
