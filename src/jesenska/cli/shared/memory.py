"""Keeps the memory of a server process small while it runs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress

#: The numbers of three parameters of mallopt (glibc's malloc.h), and their values for a server: see `Memory`.
_M_TRIM_THRESHOLD, _KEPT_BYTES = -1, 8 * 1024 * 1024
_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES = -3, 1024 * 1024
_M_ARENA_MAX, _ARENAS = -8, 2
#: The interval in seconds between garbage collections, and the fraction of the event loop's time that they may take.
#: The more objects were made since the start, the longer a collection takes. Then the interval becomes longer.
_CLEAN_SECONDS, _CLEAN_SHARE = 15.0, 0.001
#: The number of collections of the youngest generation before a collection of the middle generation. The second number
#: is that of the middle generation before a collection of all objects, which is practically never reached. Collecting
#: all objects takes long with many partitions, so `Memory` does it and limits its share of the time.
_LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG = 5, 2**31 - 1


class Memory:
    """Returns free memory to the operating system. Python's garbage collector is not enough for this. It looks for
    reference cycles after a number of new objects, and rarely looks among old objects. In a quiet server the objects
    of deleted topics and failed requests would stay in memory for hours. In a busy server the collector would check
    all objects while thousands of partitions are created, although none of them is garbage.

    glibc's malloc gives each thread its own arena, keeps ever larger blocks after the first large block is freed, and
    returns only the end of a heap. So memory would grow with the peak of each thread. This class limits these effects
    of glibc; with other allocators it changes nothing. The end of the heap is kept up to a few megabytes until the
    next collection. Without this limit, each large block that is freed there would be returned at once, and the next
    one would cost a page fault for every 4 KB."""

    def __init__(self) -> None:
        self._trim: Callable[[int], object] | None = None
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_ARENA_MAX, _ARENAS)
            library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
            library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
            self._trim = library.malloc_trim

    def keep_small(self, loop: asyncio.AbstractEventLoop, young_objects: int) -> None:
        """Collects garbage and returns free memory repeatedly while the event loop runs. The youngest objects are
        collected after `young_objects` allocations."""
        gc.set_threshold(young_objects, _LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG)
        self._clean(loop)

    def _clean(self, loop: asyncio.AbstractEventLoop) -> None:
        begun = loop.time()
        gc.collect()
        if self._trim is not None:
            self._trim(0)
        loop.call_later(max(_CLEAN_SECONDS, (loop.time() - begun) / _CLEAN_SHARE), self._clean, loop)
