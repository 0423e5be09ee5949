"""Files that several logs have in common: a branch has the files of its source under names of its own (hard links).

    link        gives a file another name
    share       the same; where the file system has no links, its content is copied
    own_copy    before a log changes a file in place that another one has, too, it gets a file of its own

What is shared is never changed in place. Segments that are sealed and synced are the only ones that are shared, and
these are changed by a truncation, by the recovery of a damaged file, and where an index is built anew: each of them
asks `FileLayer.links` first. Renaming and removing change a name and leave the file to those who have it still.

After a crash: `own_copy` syncs the content before it takes the name, so the name leads to the one file or the other. A
`.tmp` file may be left over, which the next start removes.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from jesenska.log.disk.files import FileLayer

_COPY_BYTES = 4 * 1024 * 1024
#: What a file system says that has no links, or no more of them: another device, not supported, too many names.
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def is_shared(files: FileLayer, path: Path) -> bool:
    """True if another log has the file, too."""
    return files.links(path) > 1


def link(files: FileLayer, source: Path, target: Path) -> bool:
    """Gives a file another name; False where the file system has no links, or no more of them."""
    try:
        files.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def share(files: FileLayer, source: Path, target: Path) -> int:
    """As `link`; 0, or how many bytes were copied and synced where there are no links."""
    return 0 if link(files, source, target) else copy_file(files, source, target)


def copy_file(files: FileLayer, source: Path, target: Path, size_bytes: int | None = None) -> int:
    """A new file with the beginning of another, or all of it, synced; how many bytes that are."""
    descriptor = copy_open(files, source, target, size_bytes)
    try:
        return files.size(descriptor)
    finally:
        files.close(descriptor)


def copy_open(files: FileLayer, source: Path, target: Path, size_bytes: int | None = None) -> int:
    """As `copy_file`; the open file."""
    reading = files.open(source, os.O_RDONLY)
    try:
        left = files.size(reading) if size_bytes is None else size_bytes
        writing = files.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            position = 0
            while left > 0:
                piece = files.pread(reading, min(_COPY_BYTES, left), position)
                if not piece:
                    break
                files.write_all(writing, piece, position)
                position += len(piece)
                left -= len(piece)
            files.fsync(writing)
        except OSError:
            files.close(writing)
            raise
        return writing
    finally:
        files.close(reading)


def temporary(path: Path) -> Path:
    """Where a file is written before it takes the name."""
    return path.with_name(path.name + ".tmp")


def own_copy(files: FileLayer, path: Path, size_bytes: int | None = None) -> int:
    """Puts a copy in the place of a file, or of its beginning: whoever has the file by another name keeps what it is.
    The open copy."""
    descriptor = copy_open(files, path, temporary(path), size_bytes)
    try:
        files.rename(temporary(path), path)
    except OSError:
        files.close(descriptor)
        raise
    return descriptor
