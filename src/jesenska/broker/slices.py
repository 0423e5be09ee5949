"""Divides long work on the event loop into slices, so that other work runs in between."""

from __future__ import annotations

import asyncio

from jesenska.base.clock import Clock

#: How long one slice may keep the event loop.
_SLICE_SECONDS = 0.005


class Slices:
    """Awaited between the steps of long work. It yields the event loop to other work when a slice is over."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._ends = self._monotonic() + _SLICE_SECONDS

    async def __call__(self) -> None:
        if self._monotonic() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._monotonic() + _SLICE_SECONDS
