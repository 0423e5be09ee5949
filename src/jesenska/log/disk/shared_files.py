"""Files that several logs share by hard links. A branch (a topic that begins as a copy of another) has the files of
its source under its own names.

    link        gives a file another name
    share       as `link`; copies the content if the file system has no links
    own_copy    gives a log its own copy of a shared file, before the log changes the file in place

A shared file is never changed in place. Only sealed and synced segments are shared. Three operations change such
files: a truncation, the recovery of a damaged file, and the rebuilding of an index. Each of them first asks
`FileLayer.links` if the file is shared, and then makes its own copy. Renaming and removing change only a name; the
other logs keep the file.

`own_copy` is safe against crashes: it syncs the content before the copy takes the name, so the name always belongs
either to the old file or to the complete copy. After a crash a `.tmp` file may be left over, which the next start
removes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from jesenska.log.disk.files import FileLayer

_COPY_BYTES = 4 * 1024 * 1024
#: Errors of a file system that has no hard links or allows no more of them, or of a link to another device.
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})


def is_shared(files: FileLayer, path: Path) -> bool:
    """Returns true if the file has a second name, so that another log uses the same file."""
    return files.links(path) > 1


def link(files: FileLayer, source: Path, target: Path) -> bool:
    """Gives a file another name by a hard link. Returns false if the file system has no hard links, or allows no more
    of them."""
    try:
        files.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def share(files: FileLayer, source: Path, target: Path) -> int:
    """Gives a file another name, or copies its content if there are no hard links. Returns the number of bytes copied
    and synced; 0 for a link."""
    return 0 if link(files, source, target) else copy_file(files, source, target)


def copy_file(files: FileLayer, source: Path, target: Path, size_bytes: int | None = None) -> int:
    """Copies the first `size_bytes` bytes of a file, or the whole file, to a new file, and syncs the new file. Returns
    the size of the new file in bytes."""
    descriptor = copy_open(files, source, target, size_bytes)
    try:
        return files.size(descriptor)
    finally:
        files.close(descriptor)


def copy_open(files: FileLayer, source: Path, target: Path, size_bytes: int | None = None) -> int:
    """Copies a file like `copy_file`. Returns the open descriptor of the new file."""
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
    """Returns the temporary path under which a file is written before it is renamed to `path`."""
    return path.with_name(path.name + ".tmp")


def own_copy(files: FileLayer, path: Path, size_bytes: int | None = None) -> int:
    """Replaces a shared file by a copy of it, or of its first `size_bytes` bytes. The file's other names keep the old
    file. Returns the open descriptor of the copy."""
    descriptor = copy_open(files, path, temporary(path), size_bytes)
    try:
        files.rename(temporary(path), path)
    except OSError:
        files.close(descriptor)
        raise
    return descriptor
