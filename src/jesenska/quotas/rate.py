"""A rate over the last windows, and the time for which a client above its quota waits; Kafka's arithmetic.

The rate is the sum of the samples by the time since the start of the oldest one. That time counts as at least
`samples - 1` windows, so that a burst after a pause is not taken for a high rate. A sample begins with the first
record after the end of the one before, and is dropped `samples` windows after its start.

A client whose rate is above its quota waits for the time after which its rate would be the quota."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Windows(NamedTuple):
    """The samples of a rate: quota.window.num and quota.window.size.seconds."""

    samples: int = 11
    window_ms: int = 1000

    @property
    def all_ms(self) -> int:
        return self.samples * self.window_ms


class Rate:
    """Amounts that are recorded, by the time. Times are in milliseconds."""

    __slots__ = ("_samples", "_windows", "recorded_at_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        #: The start and the sum of each sample, the oldest first.
        self._samples: deque[list[float]] = deque()
        #: Time of the last record; -1 if there was none.
        self.recorded_at_ms = -1

    def record(self, amount: float, now_ms: int) -> None:
        """Adds an amount; a negative one takes back an earlier record."""
        self._drop_old(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._windows.window_ms:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self.recorded_at_ms = now_ms

    def _drop_old(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._windows.all_ms:
            samples.popleft()

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is measured over."""
        self._drop_old(now_ms)
        elapsed = now_ms - int(self._samples[0][0]) if self._samples else 0
        missing = self._windows.samples - 1 - elapsed // self._windows.window_ms
        return max(elapsed + max(missing, 0) * self._windows.window_ms, 1)

    def value(self, now_ms: int) -> float:
        """The amount per second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(sample[1] for sample in self._samples) * 1000 / elapsed_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """The time to wait, for a quota in amounts per second; 0 if the rate is not above it."""
        rate = self.value(now_ms)
        if rate <= quota:
            return 0
        return int((rate - quota) / quota * self.elapsed_ms(now_ms) + 0.5)
