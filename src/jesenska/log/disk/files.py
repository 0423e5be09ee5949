"""The file system as the log sees it. Every call that changes a disk goes through one small object, so that a
simulator can replace it with a disk that loses data that were not synced, runs full, or does only half of a write.

This module has the replacements for calls that an operating system lacks: `posix_fallocate` (macOS: the file is
written with zeros), a real flush to the platter (macOS needs F_FULLFSYNC), and the probe for cold pages (RWF_NOWAIT is
Linux only; on other systems every page counts as warm).

After a crash: `replace_file` leaves either the old or the new content, never a mixture. The new content is synced
before it takes the name, and the directory is synced after it. A `.tmp` file may be left over; code that lists a
directory ignores it.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jesenska.base.limits import OPEN_SEGMENTS_MAX

if TYPE_CHECKING:
    from jesenska.base.regions import FileRegion

type_buffer = bytes | bytearray | memoryview

_ZEROS = bytes(256 * 1024)
_READ_AHEAD_BYTES = 1024 * 1024
_FULL_FSYNC = getattr(__import__("fcntl"), "F_FULLFSYNC", None) if sys.platform == "darwin" else None
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
#: Number of file descriptors that are kept free for sockets and for files that are not segments, when the limit of
#: open files is divided.
_RESERVED_DESCRIPTORS = 512


class FileLayer:
    """Makes the system calls. A subclass may replace any of them. All paths are absolute or relative to the working
    directory; all sizes are bytes."""

    __slots__ = ()

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def pwrite(self, descriptor: int, data: type_buffer, position: int) -> int:
        """Writes at a position. Returns the number of bytes written, which may be less than asked for."""
        return os.pwrite(descriptor, data, position)

    def pread(self, descriptor: int, size_bytes: int, position: int) -> bytes:
        return os.pread(descriptor, size_bytes, position)

    def pread_warm(self, descriptor: int, size_bytes: int, position: int) -> bytes | None:
        """As `pread`, but returns None instead of waiting for the disk. The result may be shorter than asked for, but
        is empty only at the end of the file. If the system or the file system does not support this, the read
        waits."""
        if not _NOWAIT:
            return self.pread(descriptor, size_bytes, position)
        buffer = bytearray(size_bytes)
        try:
            count = os.preadv(descriptor, [buffer], position, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            return self.pread(descriptor, size_bytes, position)
        return bytes(buffer[:count]) if count < size_bytes else bytes(buffer)

    def pread_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        """Reads into `buffer` and returns the number of bytes read; 0 at the end of the file."""
        return os.preadv(descriptor, [buffer], position)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def modified_ms(self, path: Path) -> float:
        """Returns the time of the last write to the file, in ms since the epoch."""
        return path.stat().st_mtime * 1000

    def set_modified_ms(self, path: Path, modified_ms: float) -> None:
        """Sets the time of the last write to the file, in ms since the epoch."""
        moment_ns = int(modified_ms * 1_000_000)
        os.utime(path, ns=(moment_ns, moment_ns))

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        os.ftruncate(descriptor, size_bytes)

    def allocate(self, descriptor: int, size_bytes: int) -> None:
        """Reserves the blocks of the first `size_bytes` bytes, so that a full disk (ENOSPC) is noticed here and not in
        the middle of an append."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size_bytes)
            return
        position = os.fstat(descriptor).st_size
        while position < size_bytes:
            position += os.pwrite(descriptor, _ZEROS[: size_bytes - position], position)

    def fsync(self, descriptor: int) -> None:
        if _FULL_FSYNC is not None:
            import fcntl

            fcntl.fcntl(descriptor, _FULL_FSYNC)
            return
        os.fsync(descriptor)

    def fsync_directory(self, path: Path) -> None:
        """Makes the names that were created, renamed or removed in a directory survive a crash."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Moves a file or directory; a file of the target's name is replaced."""
        source.rename(target)

    def link(self, source: Path, target: Path) -> None:
        """Gives a file another name; OSError if the file system has no links, or the name is taken."""
        os.link(source, target)

    def links(self, path: Path) -> int:
        """Returns the number of names that the file has; 0 if there is no file."""
        try:
            return path.stat().st_nlink
        except FileNotFoundError:
            return 0

    def unlink(self, path: Path) -> None:
        """Removes a file; a missing file is no error."""
        path.unlink(missing_ok=True)

    def mkdir(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def names(self, path: Path) -> list[str]:
        """Returns the names in a directory, sorted."""
        # Not Path.iterdir: it makes a path for each name, which slows a start with many partitions.
        return sorted(os.listdir(path))  # noqa: PTH208

    def read_file(self, path: Path) -> bytes:
        """Returns the whole content of a small file; FileNotFoundError if there is no file."""
        descriptor = self.open(path, os.O_RDONLY)
        try:
            size_bytes = self.size(descriptor)
            pieces = []
            position = 0
            while position < size_bytes:
                piece = self.pread(descriptor, size_bytes - position, position)
                if not piece:
                    break
                pieces.append(piece)
                position += len(piece)
            return b"".join(pieces)
        finally:
            self.close(descriptor)

    def write_all(self, descriptor: int, data: type_buffer, position: int) -> None:
        """Writes every byte or raises OSError; after a short write it goes on with the rest."""
        written = self.pwrite(descriptor, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            count = self.pwrite(descriptor, view[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count

    def replace_file(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Replaces the content of a file with `data`, all or nothing. Without `sync` a crash of the machine (not of
        the process) may lose it."""
        temporary = path.with_name(path.name + ".tmp")
        descriptor = self.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            self.write_all(descriptor, data, 0)
            if sync:
                self.fsync(descriptor)
        finally:
            self.close(descriptor)
        self.rename(temporary, path)
        if sync:
            self.fsync_directory(path.parent)


def raise_open_file_limit() -> int:
    """Raises the soft limit of open files to the hard one and returns the number of segment files that the cache may
    keep open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 1 << 20
    if sys.platform == "darwin":
        wanted = min(wanted, 10240)
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass
    return max(16, min(OPEN_SEGMENTS_MAX, soft - _RESERVED_DESCRIPTORS))


#: Distance between the pages that `probe_cold` looks at (the system reads about that much ahead), and their largest
#: number.
_PROBE_STEP_BYTES = 256 * 1024
_PROBES_MAX = 64


def probe_cold(region: FileRegion) -> bool:
    """True if reading the region would wait for the disk: the first page, the last page, or one of the probed pages
    between them is not in the page cache. False if the system does not support the probe."""
    size_bytes = region.size_bytes
    if not _NOWAIT or size_bytes == 0:
        return False
    descriptor = region.file.fileno()
    buffer = bytearray(1)
    start, last = region.position, region.position + size_bytes - 1
    step = max(_PROBE_STEP_BYTES, size_bytes // _PROBES_MAX)
    for position in (*range(start, last, step), last):
        try:
            os.preadv(descriptor, [buffer], position, _NOWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def read_ahead(region: FileRegion) -> None:
    """Brings the region's pages into the page cache; blocks, so it runs in a thread."""
    descriptor = region.file.fileno()
    buffer = memoryview(bytearray(min(region.size_bytes, _READ_AHEAD_BYTES)))
    position, end = region.position, region.position + region.size_bytes
    while position < end:
        count = os.preadv(descriptor, [buffer[: end - position]], position)
        if count == 0:
            return
        position += count
