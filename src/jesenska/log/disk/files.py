"""The file system as the log uses it. Every call that changes a disk goes through one small object. So a simulator can
replace it with a disk that loses unsynced data, becomes full, or does only half of a write.

This module has the replacements for calls that an operating system lacks. `posix_fallocate` is missing on macOS, where
the file is written with zeros. A complete flush to the disk needs F_FULLFSYNC on macOS. The probe for data outside of
the page cache (RWF_NOWAIT) is only on Linux; on other systems all data counts as cached.

`replace_file` is safe against crashes: afterwards the file has either the old or the new content, never a mixture. The
new content is synced before it takes the name, and the directory is synced after that. A `.tmp` file may be left over;
code that lists a directory ignores it."""

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
#: File descriptors of the process that are reserved for sockets and other files. All other descriptors up to the
#: process's limit may be used for segments.
_RESERVED_DESCRIPTORS = 512


class FileLayer:
    """Makes the system calls. A subclass may replace any of them. Paths are absolute or relative to the working
    directory; sizes are in bytes."""

    __slots__ = ()

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def pwrite(self, descriptor: int, data: type_buffer, position: int) -> int:
        """Writes at a position in the file. Returns the number of bytes written, which may be less than the length of
        `data`."""
        return os.pwrite(descriptor, data, position)

    def pread(self, descriptor: int, size_bytes: int, position: int) -> bytes:
        return os.pread(descriptor, size_bytes, position)

    def pread_warm(self, descriptor: int, size_bytes: int, position: int) -> bytes | None:
        """Reads like `pread`, but returns None if the read would wait for the disk. The result may be shorter than
        `size_bytes`, but is empty only at the end of the file. If the system or the file system does not support this,
        the read waits."""
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
        """Reserves disk blocks for the first `size_bytes` bytes. So a full disk (ENOSPC) is noticed here and not in
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
        """Syncs a directory, so that created, renamed and removed names in it survive a crash."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Renames a file or directory. An existing file with the target's name is replaced."""
        source.rename(target)

    def link(self, source: Path, target: Path) -> None:
        """Makes a hard link: another name for the file. Raises OSError if the file system has no hard links, or the
        name exists."""
        os.link(source, target)

    def links(self, path: Path) -> int:
        """Returns the number of names (hard links) that the file has; 0 if the file does not exist."""
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
        # Path.iterdir is not used, because it makes a path for each name, which slows the start with many partitions.
        return sorted(os.listdir(path))  # noqa: PTH208

    def read_file(self, path: Path) -> bytes:
        """Returns the whole content of a small file. Raises FileNotFoundError if the file does not exist."""
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
        """Writes all of `data`, by several calls if necessary. Raises OSError if that is not possible."""
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
        """Replaces the whole content of a file by `data`, atomically. Without `sync` a crash of the machine (but not
        of the process) may lose the new content."""
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
    """Raises the process's soft limit of open files to the hard limit. Returns the number of segment files that the
    cache may keep open."""
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


#: Distance between the pages that `probe_cold` checks (the system reads about that much ahead), and the largest number
#: of such pages.
_PROBE_STEP_BYTES = 256 * 1024
_PROBES_MAX = 64


def probe_cold(region: FileRegion) -> bool:
    """Returns true if reading the region would wait for the disk. It checks if the first page, the last page and some
    pages between them are in the page cache. Returns false if the system does not support this."""
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
    """Reads the region, so that its pages are in the page cache. The call waits for the disk, so it runs in a
    thread."""
    descriptor = region.file.fileno()
    buffer = memoryview(bytearray(min(region.size_bytes, _READ_AHEAD_BYTES)))
    position, end = region.position, region.position + region.size_bytes
    while position < end:
        count = os.preadv(descriptor, [buffer[: end - position]], position)
        if count == 0:
            return
        position += count
