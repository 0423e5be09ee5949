"""A file's content as memory, read by the system as it is looked at."""

from __future__ import annotations

import mmap
from pathlib import Path


def content_of(path: Path) -> memoryview:
    """The whole file, to be read only. It is let go of with the last view of it; errors may still hold one."""
    if not path.stat().st_size:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
