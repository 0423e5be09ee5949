"""Divides long work on the event loop into slices, so that other work can run between them."""

from __future__ import annotations

import asyncio

from jesenska.base.clock import Clock

#: How long one slice may occupy the event loop, in seconds.
_SLICE_SECONDS = 0.005


class Slices:
    """Awaited between the steps of long work. When a slice has used up its time, other work on the event loop runs."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._ends = self._monotonic() + _SLICE_SECONDS

    async def __call__(self) -> None:
        if self._monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._monotonic() + _SLICE_SECONDS
