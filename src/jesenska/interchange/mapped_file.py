"""Maps a file into memory, so that the operating system reads it on access."""

from __future__ import annotations

import mmap
from pathlib import Path


def content_of(path: Path) -> memoryview:
    """Returns the content of a file as a read-only memory map. The map is closed when the last view of it is deleted.
    A caught exception may keep a view alive."""
    if not path.stat().st_size:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
