"""Keeps the memory of a server process small while it runs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress

#: The numbers of two parameters of mallopt (glibc's malloc.h), and their values for a server: see `Memory`.
_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES = -3, 1024 * 1024
_M_ARENA_MAX, _ARENAS = -8, 2
#: The interval in seconds between collections of garbage, and the share of the event loop's time that they may take.
#: The more objects were made since the start, the longer one collection takes, and the longer the interval becomes.
_CLEAN_SECONDS, _CLEAN_SHARE = 15.0, 0.001
#: Collections of the youngest objects before one of the middle generation, and collections of that before one of all
#: objects. The latter takes long with many partitions, and would come while partitions are created. So it is left to
#: `Memory`, which limits its share of the time.
_LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG = 5, 2**31 - 1


class Memory:
    """Returns free memory to the operating system. Python's garbage collector is not enough for that. It looks for
    reference cycles after a number of new objects, and nearly never among old objects. In a quiet server the objects
    of deleted topics and failed requests would stay for hours. In a busy server it would check all objects while
    thousands of partitions are created, none of which is garbage.

    glibc's malloc gives each thread its own arena, keeps ever larger blocks after the first large block is freed, and
    returns only the end of a heap. So memory would grow with the peak of each thread. With other allocators nothing is
    changed."""

    def __init__(self) -> None:
        self._trim: Callable[[int], object] | None = None
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_ARENA_MAX, _ARENAS)
            library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
            self._trim = library.malloc_trim

    def keep_small(self, loop: asyncio.AbstractEventLoop, young_objects: int) -> None:
        """Collects garbage and returns memory repeatedly while the loop runs. New objects are checked after
        `young_objects` allocations."""
        gc.set_threshold(young_objects, _LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG)
        self._clean(loop)

    def _clean(self, loop: asyncio.AbstractEventLoop) -> None:
        begun = loop.time()
        gc.collect()
        if self._trim is not None:
            self._trim(0)
        loop.call_later(max(_CLEAN_SECONDS, (loop.time() - begun) / _CLEAN_SHARE), self._clean, loop)
