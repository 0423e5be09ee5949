"""Describes a piece of a file that is sent to a socket without being read into Python. The log returns such pieces for
Fetch responses. The network layer sends them, by sendfile where that is possible."""

from __future__ import annotations

from typing import Protocol


class SharedFile(Protocol):
    """An open file that several readers share. It is closed when the last reader calls `release`."""

    def fileno(self) -> int: ...

    def acquire(self) -> None:
        """Adds one to the number of readers of this file."""
        ...

    def release(self) -> None:
        """Subtracts one from the number of readers of this file, and closes the file if none is left."""
        ...


class FileRegion:
    """The `size_bytes` bytes at `position` of an open file. The owner of the region must call `release()` exactly
    once."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: SharedFile, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        file.acquire()

    def __len__(self) -> int:
        return self.size_bytes

    def release(self) -> None:
        self.file.release()
