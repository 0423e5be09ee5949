"""The content of a file as memory; the system reads it on access."""

from __future__ import annotations

import mmap
from pathlib import Path


def content_of(path: Path) -> memoryview:
    """Returns the whole file, read-only. It is released with the last view of it; a caught error may still hold
    one."""
    if not path.stat().st_size:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
