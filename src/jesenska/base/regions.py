"""A piece of a file on its way to a socket. The log hands it out, the transport sends it (sendfile where it can);
nothing in between reads the bytes."""

from __future__ import annotations

from typing import Protocol


class SharedFile(Protocol):
    """An open file that several readers hold; it closes when the last one lets go."""

    def fileno(self) -> int: ...

    def acquire(self) -> None:
        """Counts one more holder."""
        ...

    def release(self) -> None:
        """Counts one holder less; the last one closes the file."""
        ...


class FileRegion:
    """`size_bytes` bytes at `position` of an open file. The holder of the region must call `release()` exactly
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
