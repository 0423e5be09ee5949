"""The memory of a server, kept small while it runs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress

#: mallopt's numbers of these parameters (glibc's malloc.h), and their values for a server: see `Memory`.
_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES = -3, 1024 * 1024
_M_ARENA_MAX, _ARENAS = -8, 2
#: Interval of collections of garbage, which is returned to the system, and the share of the loop's time that they may
#: take. The more objects were made since the start, the longer one collection takes, and the longer the interval.
_CLEAN_SECONDS, _CLEAN_SHARE = 15.0, 0.001
#: Collections of the youngest objects before one of the middle generation; and collections of that before one of all
#: objects. A collection of all takes long with many partitions, and would come while partitions are created: it is
#: left to `Memory`, which limits its share of the time.
_LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG = 5, 2**31 - 1


class Memory:
    """Returns free memory to the system. By itself the collector looks for cycles by the number of new objects, and
    nearly never among old ones: the objects of deleted topics and failed requests would stay for hours in a quiet
    server. In a busy server it would check all objects while thousands of partitions are created, none of which is
    garbage.

    glibc gives each thread its own arena, keeps ever larger blocks after the first large block is freed, and returns
    only the end of a heap: memory grows with the peak of each thread. With other allocators nothing is changed."""

    def __init__(self) -> None:
        self._trim: Callable[[int], object] | None = None
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_ARENA_MAX, _ARENAS)
            library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
            self._trim = library.malloc_trim

    def keep_small(self, loop: asyncio.AbstractEventLoop, young_objects: int) -> None:
        """Cleans repeatedly while the loop runs; new objects are checked after `young_objects` allocations."""
        gc.set_threshold(young_objects, _LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG)
        self._clean(loop)

    def _clean(self, loop: asyncio.AbstractEventLoop) -> None:
        begun = loop.time()
        gc.collect()
        if self._trim is not None:
            self._trim(0)
        loop.call_later(max(_CLEAN_SECONDS, (loop.time() - begun) / _CLEAN_SHARE), self._clean, loop)
