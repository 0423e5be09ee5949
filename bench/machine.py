"""Keeps the machine's state out of the figures.

A virtual machine gives free memory back to its host, and gets each page again, cleared, when it is first written to:
that costs two seconds and more a gigabyte, and the kernel books it to the writing process. A broker whose records go
into the page cache paid between nothing and half of its CPU seconds for it, depending on earlier rows; so does the
memory of a reading client. So before a row runs, an unused file fills the free memory: the row gets pages of that
file, and they are the machine's own. Unwritten data are synced.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import BinaryIO

_MEMORY = Path("/proc/meminfo")
#: The kernel always keeps some hundred megabytes free.
_LEFT_FREE_BYTES = 512 * 1024**2
_STEP_BYTES = 64 * 1024**2
#: The number of steps without effect after which the memory is full: the kernel frees as much as it gives.
_STEPS_IN_VAIN = 16


class FilledPageCache:
    """A file of holes, as long as the memory of the machine is large: reading it takes memory and no disk.

    Does nothing where `/proc/meminfo` is missing, or where the file is in memory itself.
    """

    def __init__(self, file: BinaryIO) -> None:
        """`file` is empty, and may be written to."""
        self._file = file
        self._size = _memory_bytes("MemTotal") // _STEP_BYTES * _STEP_BYTES
        self._position = 0
        file.truncate(self._size)

    def fill(self, share: float) -> None:
        """Free memory becomes pages of the file, except for half a gigabyte or the kernel's reserve; at most `share`
        of the machine's memory. Takes 2 s a gigabyte, and less if the machine had used it just before."""
        buffer = bytearray(1024**2)
        least, in_vain = _memory_bytes("MemFree"), 0
        for _ in range(0, int(self._size * share), _STEP_BYTES):
            if least <= _LEFT_FREE_BYTES or in_vain == _STEPS_IN_VAIN:
                return
            # The kernel first reuses the pages that were read first, so these come next.
            for offset in range(self._position, self._position + _STEP_BYTES, len(buffer)):
                os.preadv(self._file.fileno(), [buffer], offset)
            self._position = (self._position + _STEP_BYTES) % self._size
            free = _memory_bytes("MemFree")
            least, in_vain = (free, 0) if free < least else (least, in_vain + 1)


def settle(scale: float = 1.0) -> None:
    """Free memory is the machine's own, and no file waits to be written. Takes up to a minute when called first, and
    some seconds from then on. A row at a lower scale writes less, and has that share of the memory settled."""
    os.sync()
    _filled().fill(min(1.0, scale))


@cache
def _filled() -> FilledPageCache:
    """The file of the process. `/tmp` may be in memory, `/var/tmp` is on a disk."""
    return FilledPageCache(tempfile.TemporaryFile(dir="/var/tmp" if os.path.isdir("/var/tmp") else None))


def _memory_bytes(name: str) -> int:
    """A figure of `/proc/meminfo`; 0 without such a file."""
    found = re.search(rf"^{name}: +(\d+) kB$", _MEMORY.read_text(), re.MULTILINE) if _MEMORY.exists() else None
    return int(found[1]) * 1024 if found else 0


def end_in_order() -> None:
    """SIGTERM ends this program as an error does, so that it ends the servers that it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
