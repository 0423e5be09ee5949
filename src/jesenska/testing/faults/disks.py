"""Simulates a full disk, for one process or for a directory.

`limit_file_size` limits the size of all files that a running process writes: a write beyond it fails. It works on
Linux, and needs only the rights over the process. There are two differences from a full disk. A write fails with the
error EFBIG instead of ENOSPC, and files that are smaller than the limit can still grow.

`SmallDisk` is a file system of a few megabytes in memory, which can be filled completely. It needs the right to mount
a file system, which root has."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

_BALLAST = "ballast"
_PIECE_BYTES = 4096


class NoSmallDiskError(Exception):
    """The error when no file system can be mounted here. The message is one sentence."""


def limit_file_size(pid: int, size_bytes: int | None) -> None:
    """Limits the size of all files that the process writes to `size_bytes`; None ends the limit. Files that are
    already larger stay, but cannot be written beyond the limit. Other processes, such as a restarted server, are not
    limited."""
    if sys.platform != "linux":
        raise NotImplementedError("Only Linux can limit the files of another process: use a SmallDisk here.")
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size_bytes is None else size_bytes, most))


@contextmanager
def limited_file_size(pid: int, size_bytes: int) -> Iterator[None]:
    """Limits the size of files as `limit_file_size` does, and ends the limit after the block."""
    limit_file_size(pid, size_bytes)
    try:
        yield
    finally:
        limit_file_size(pid, None)


class SmallDisk:
    """A file system of `size_bytes`, mounted at `path` (an empty directory) for the `with` block. All processes that
    use it must end before the block does."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes

    def __enter__(self) -> SmallDisk:
        """Mounts the file system. Raises NoSmallDiskError if this is not possible."""
        if sys.platform != "linux":
            raise NoSmallDiskError("Only Linux has a file system of a given size in memory.")
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.size_bytes}", "jesenska-test", str(self.path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise NoSmallDiskError("No file system can be mounted here: there is no program mount.") from None
        if done.returncode:
            raise NoSmallDiskError(f"No file system can be mounted here: {done.stderr.strip()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        subprocess.run(["umount", str(self.path)], check=True)

    def fill(self, leaving_bytes: int = 0) -> None:
        """Fills the file system with one file, except for `leaving_bytes`. If space has become free since an earlier
        call, a further call fills it."""
        with (self.path / _BALLAST).open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_PIECE_BYTES))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(max(0, file.tell() - leaving_bytes))

    def free(self) -> None:
        """Deletes the file that `fill` has written."""
        (self.path / _BALLAST).unlink(missing_ok=True)
