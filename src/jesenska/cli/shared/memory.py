"""A server's memory, kept small while it runs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress

#: mallopt's numbers for them (glibc's malloc.h), and what a server wants: see `Memory`.
_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES = -3, 1024 * 1024
_M_ARENA_MAX, _ARENAS = -8, 2
#: How often garbage is looked for and given back to the system, and the share of the loop's time that it may take.
#: Some milliseconds each time; with hundreds of thousands of objects made since the start, a tenth of a second every
#: hundred seconds.
_CLEAN_SECONDS, _CLEAN_SHARE = 15.0, 0.001
#: Looks at the youngest objects before one at those that survived some; and of these before one at all. That one takes
#: half a second with ten thousand partitions, and would come while they are made: it is left to `Memory`, which knows
#: what it takes.
_LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG = 5, 2**31 - 1


class Memory:
    """Gives back what is free. By itself the collector looks for cycles by the number of objects made, at old ones
    nearly never: what deleted topics and failed requests leave would stay for hours in a quiet server. In a busy one
    it would look at everything while thousands of partitions are made, none of which is garbage.

    glibc gives each thread an arena of its own, after the first large block that is freed it keeps ever larger ones,
    and of a heap it gives back the end only: memory grows with the largest moment of each thread. Elsewhere the
    system's allocator is left as it is."""

    def __init__(self) -> None:
        self._trim: Callable[[int], object] | None = None
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_ARENA_MAX, _ARENAS)
            library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
            self._trim = library.malloc_trim

    def keep_small(self, loop: asyncio.AbstractEventLoop, young_objects: int) -> None:
        """Cleans from time to time while the loop runs; what is new is looked at after so many objects."""
        gc.set_threshold(young_objects, _LOOKS_AT_YOUNGEST, _LOOKS_AT_YOUNG)
        self._clean(loop)

    def _clean(self, loop: asyncio.AbstractEventLoop) -> None:
        begun = loop.time()
        gc.collect()
        if self._trim is not None:
            self._trim(0)
        loop.call_later(max(_CLEAN_SECONDS, (loop.time() - begun) / _CLEAN_SHARE), self._clean, loop)
