"""A disk that is full, for one process or for a directory.

    limit_file_size    no file of a running process grows beyond a size: a write there fails. Linux; needs no
                       rights beyond those over the process
    SmallDisk          a file system of a few megabytes in memory, that can be filled to its last byte. Needs the right
                       to mount one, which root has

The first answers a write with EFBIG where a full disk answers ENOSPC, and lets other files of the process grow."""

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
    """No file system can be mounted here; one sentence."""


def limit_file_size(pid: int, size_bytes: int | None) -> None:
    """No file of the process grows beyond that size from now on; None ends the limit. Larger files stay, and cannot be
    written beyond the limit either. A new process has no such limit."""
    if sys.platform != "linux":
        raise NotImplementedError("Only Linux can limit the files of another process: use a SmallDisk here.")
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size_bytes is None else size_bytes, most))


@contextmanager
def limited_file_size(pid: int, size_bytes: int) -> Iterator[None]:
    """The limit for as long as the block takes."""
    limit_file_size(pid, size_bytes)
    try:
        yield
    finally:
        limit_file_size(pid, None)


class SmallDisk:
    """A file system of `size_bytes` at `path`, an empty directory, for the `with` block. All its users must have ended
    before the block ends."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes

    def __enter__(self) -> SmallDisk:
        """NoSmallDiskError if it cannot be mounted."""
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
        """Takes all room but `leaving_bytes`, with its own file; takes more when called again."""
        with (self.path / _BALLAST).open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_PIECE_BYTES))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            file.truncate(max(0, file.tell() - leaving_bytes))

    def free(self) -> None:
        """Gives the room back that `fill` has taken."""
        (self.path / _BALLAST).unlink(missing_ok=True)
