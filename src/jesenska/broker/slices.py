"""Long work done in slices, with other work in between."""

from __future__ import annotations

import asyncio

from jesenska.base.clock import Clock

#: How long a piece may keep the loop.
_SLICE_SECONDS = 0.005


class Slices:
    """To be awaited between two steps of long work: now and then it yields the loop to other work."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._ends = self._monotonic() + _SLICE_SECONDS

    async def __call__(self) -> None:
        if self._monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._monotonic() + _SLICE_SECONDS
