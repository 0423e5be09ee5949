"""Files that several logs share: a branch has the files of its source under its own names (hard links).

    link        gives a file another name
    share       as `link`; copies the content if the file system has no links
    own_copy    gives a log its own copy of a shared file, before the log changes the file in place

A shared file is never changed in place. Only sealed and synced segments are shared. Three operations change such
files: a truncation, the recovery of a damaged file, and the rebuilding of an index. Each of them first asks
`FileLayer.links` if the file is shared, and then makes its own copy. Renaming and removing change only a name; the
other logs keep the file.

After a crash: `own_copy` syncs the content before it takes the name, so the name leads to the old file or to the new
one. A `.tmp` file may be left over, which the next start removes.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from jesenska.log.disk.files import FileLayer

_COPY_BYTES = 4 * 1024 * 1024
#: The errors of a file system that has no links, or no more of them: another device, not supported, too many names.
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def is_shared(files: FileLayer, path: Path) -> bool:
    """True if another log has the same file."""
    return files.links(path) > 1


def link(files: FileLayer, source: Path, target: Path) -> bool:
    """Gives a file another name; False if the file system has no links, or no more of them."""
    try:
        files.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def share(files: FileLayer, source: Path, target: Path) -> int:
    """Gives a file another name, or copies its content if there are no links. Returns the number of bytes copied and
    synced; 0 for a link."""
    return 0 if link(files, source, target) else copy_file(files, source, target)


def copy_file(files: FileLayer, source: Path, target: Path, size_bytes: int | None = None) -> int:
    """Makes a new file with the beginning of another, or all of it, and syncs it. Returns its size in bytes."""
    descriptor = copy_open(files, source, target, size_bytes)
    try:
        return files.size(descriptor)
    finally:
        files.close(descriptor)


def copy_open(files: FileLayer, source: Path, target: Path, size_bytes: int | None = None) -> int:
    """As `copy_file`, but returns the open file."""
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
    """Returns the path under which a file is written before it takes its name."""
    return path.with_name(path.name + ".tmp")


def own_copy(files: FileLayer, path: Path, size_bytes: int | None = None) -> int:
    """Replaces a file by a copy of it, or of its beginning; the file is unchanged under its other names. Returns the
    open copy."""
    descriptor = copy_open(files, path, temporary(path), size_bytes)
    try:
        files.rename(temporary(path), path)
    except OSError:
        files.close(descriptor)
        raise
    return descriptor
