"""The file `.lock`, which allows only one broker at a time to use a log directory. The lock is an exclusive
`fcntl.lockf` on the whole file. Apache Kafka takes the same kind of lock (Java's FileLock), so jesenska and Kafka
exclude each other; `flock` would not do that. The file contains the broker's process id as text, for
kafka-server-stop; Kafka leaves it empty.

This kind of lock belongs to the process, and is released when *any* descriptor of the file is closed. So this module
remembers the files that its process has locked, and never opens them again. A crash releases the lock."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from jesenska.base.errors import JesenskaError
from jesenska.base.system_errors import cause_of, is_passing, remedy_of
from jesenska.log.disk.files import FileLayer

FILE_NAME = ".lock"
_held: set[tuple[int, int]] = set()
_REMEDIES = {
    "created": "create it for this user, or name another (--data, or log.dirs)",
    "written": "give this user the right to, or name another in log.dirs",
    "read": "check the disk, or name another in log.dirs",
}


class LogDirectoryError(JesenskaError):
    """Raised if the broker cannot use a log directory. The message is one sentence with cause and remedy."""


class UnusableDirectoryError(LogDirectoryError):
    """Raised if the disk does not allow a log directory to be created, read or written (`what` is this word). A broker
    with other directories continues without it. `reason` has only the cause, `remedy` the advice for the operator."""

    def __init__(self, directory: Path, what: str, error: OSError) -> None:
        self.reason = f"it cannot be {what} ({cause_of(error)})"
        self.remedy = _remedy(what, error)
        super().__init__(f"The log directory {directory} cannot be {what} ({cause_of(error)}): {self.remedy}.")


def _remedy(what: str, error: OSError) -> str:
    if isinstance(error, PermissionError):
        # The directory may exist, but this process may have no permission to reach it.
        return (
            "give this user the right to it and to all that is in it (chown -R), or name another (--data, or log.dirs)"
        )
    if is_passing(error):
        return remedy_of(error)
    return _REMEDIES[what]


def make_directory(path: Path, files: FileLayer) -> None:
    """Makes a directory and its missing parents, and syncs their names, so that they survive a crash of the machine.
    The name of an existing directory is also synced, because the process that made the directory may have been killed
    before it synced the name."""
    named = [path]
    while not named[-1].parent.is_dir():
        named.append(named[-1].parent)
    files.mkdir(path)
    for directory in named:
        with suppress(PermissionError):  # a parent that this user may only pass through: it was there before
            files.fsync_directory(directory.parent)


class DirectoryLock:
    __slots__ = ("_descriptor", "_key", "path")

    def __init__(self, directory: Path) -> None:
        """Takes the lock of the directory. Raises LogDirectoryError if another process holds it, or if the file cannot
        be used."""
        self.path = directory / FILE_NAME
        try:
            status = self.path.stat()
        except FileNotFoundError:
            pass
        else:
            if (status.st_dev, status.st_ino) in _held:
                raise self._taken(os.getpid())
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UnusableDirectoryError(directory, "written", error) from error
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            text = os.pread(self._descriptor, 32, 0).strip()
            os.close(self._descriptor)
            raise self._taken(int(text) if text.isdigit() else None) from error
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(self._descriptor)
            raise UnusableDirectoryError(directory, "written", error) from error
        status = os.fstat(self._descriptor)
        self._key = (status.st_dev, status.st_ino)
        _held.add(self._key)

    def _taken(self, pid: int | None) -> LogDirectoryError:
        who = f"process {pid}" if pid is not None else "another process"
        return LogDirectoryError(
            f"The log directory {self.path.parent} is in use by {who}: stop that broker, or name another directory "
            f"in log.dirs."
        )

    def release(self) -> None:
        """Releases the lock. The file remains, empty."""
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1
            _held.discard(self._key)


def owner_pid(directory: Path) -> int | None:
    """Returns the process id of the jesenska broker that holds the directory's lock; None if there is none. It must
    not be called in the process that holds the lock: closing the file there would release the lock."""
    try:
        descriptor = os.open(directory / FILE_NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = os.pread(descriptor, 32, 0).strip()
            return int(text) if text.isdigit() else None
        return None
    finally:
        os.close(descriptor)
