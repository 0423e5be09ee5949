"""The lag of the event loop: how long an arriving request waits before its bytes are read, because the loop is busy.

A timer that is due every 20 ms measures how late it is called. The operating system wakes a process up to a
millisecond late, so the first millisecond is not counted. The times are counted in a histogram of fixed size. The
upper end of each bucket is 12 % (a factor of 2^(1/6)) above the upper end of the previous bucket. So a quantile is too
large by at most 12 %. The maximum is exact. Three spans are measured: since the start, the last minute (logged at
DEBUG), and since the last request for `figures`."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import NamedTuple

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.02
_TIMER_GRAIN_SECONDS = 0.001
_LOGGED_EVERY_SECONDS = 60.0

#: The first bucket counts times up to 0.1 ms. There are 6 buckets for each doubling. The last bucket counts all times
#: over about 26 s.
_FIRST_SECONDS = 0.0001
_BUCKETS_PER_DOUBLING = 6
_BUCKETS = 18 * _BUCKETS_PER_DOUBLING + 2


class LagFigures(NamedTuple):
    """Quantiles of the lag in milliseconds. `seconds` is the length of the measured span."""

    seconds: float
    samples: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, max {self.max_ms:.1f} ms in {self.seconds:.0f} s"


class LagHistogram:
    """A histogram of the lags measured since the time `since` (in seconds)."""

    __slots__ = ("_counts", "_since", "count", "largest")

    def __init__(self, since: float) -> None:
        self._since = since
        self._counts = [0] * _BUCKETS
        self.count = 0
        #: The largest measured lag in seconds.
        self.largest = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        if seconds > self.largest:
            self.largest = seconds
        bucket = (
            0
            if seconds <= _FIRST_SECONDS
            else min(math.ceil(math.log2(seconds / _FIRST_SECONDS) * _BUCKETS_PER_DOUBLING), _BUCKETS - 1)
        )
        self._counts[bucket] += 1

    def quantile(self, part: float) -> float:
        """Returns a lag in seconds that the given part (0 to 1) of all lags did not exceed. The result is the upper
        end of a histogram bucket, or the largest measured lag if this is smaller."""
        wanted = math.ceil(part * self.count)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= wanted and count:
                if bucket == _BUCKETS - 1:
                    break
                return min(_FIRST_SECONDS * 2 ** (bucket / _BUCKETS_PER_DOUBLING), self.largest)
        return self.largest

    def figures(self, now: float) -> LagFigures:
        return LagFigures(
            now - self._since, self.count, self.quantile(0.5) * 1000, self.quantile(0.99) * 1000, self.largest * 1000
        )


class LoopLag:
    """Measures the lag of the event loop from the construction of this object until `close`. With `measures` false,
    measures nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, measures: bool = True) -> None:
        self._loop = loop
        now = loop.time()
        self._since_start, self._since_asked, self._minute = LagHistogram(now), LagHistogram(now), LagHistogram(now)
        self._log_at = now + _LOGGED_EVERY_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        if measures:
            self._wait(now)

    def _wait(self, now: float) -> None:
        self._timer = self._loop.call_at(now + INTERVAL_SECONDS, self._due, now + INTERVAL_SECONDS)

    def _due(self, due: float) -> None:
        now = self._loop.time()
        late = max(0.0, now - due - _TIMER_GRAIN_SECONDS)
        self._since_start.add(late)
        self._since_asked.add(late)
        self._minute.add(late)
        if now >= self._log_at:
            self._log_at = now + _LOGGED_EVERY_SECONDS
            logger.debug("the event loop was late by %s", self._minute.figures(now))
            self._minute = LagHistogram(now)
        self._wait(now)

    def since_start(self) -> LagFigures:
        return self._since_start.figures(self._loop.time())

    def since_asked(self) -> LagFigures:
        """Returns the figures of the lag since the last call. The first call returns the figures since the start."""
        now = self._loop.time()
        found, self._since_asked = self._since_asked.figures(now), LagHistogram(now)
        return found

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
