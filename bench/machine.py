"""What the machine's state would otherwise put into a figure.

A virtual machine gives free memory back to its host, and gets each page again, cleared, when it is first written to:
that costs two seconds and more a gigabyte, and the kernel books it to whoever wrote. A broker whose records go into
the page cache paid between nothing and half of its CPU seconds for it, by what had run before. So before a row writes,
as much memory as it may fill is written to and let go, and what waits for the disk is synced: both brokers find the
same.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys

#: More than any row writes.
_FILLED_BYTES = 2 * 1024**3


def settle(size_bytes: int = _FILLED_BYTES) -> None:
    """Free memory is the machine's own, and no file waits to be written. Takes up to six seconds."""
    os.sync()
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)) as memory:
        if not hasattr(mmap, "MAP_POPULATE"):
            for position in range(0, size_bytes, mmap.PAGESIZE):
                memory[position] = 1


def end_in_order() -> None:
    """SIGTERM ends this program as an error does, so that it ends the servers that it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
