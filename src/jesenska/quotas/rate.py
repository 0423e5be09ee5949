"""Measures a rate over the last windows of time, and computes how long a client above its quota waits. The arithmetic
is Kafka's.

The rate is the sum of the samples divided by the time since the start of the oldest sample. The divisor is at least
`samples - 1` windows, so that a burst after a pause does not look like a high rate. A new sample begins with the first
amount that is recorded after the end of the previous sample. A sample is dropped `samples` windows after its start.

A client above its quota waits until its rate has decreased to the quota. The time is computed as if the client sent no
further requests."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Windows(NamedTuple):
    """The number and length of a rate's samples: quota.window.num and quota.window.size.seconds."""

    samples: int = 11
    window_ms: int = 1000

    @property
    def all_ms(self) -> int:
        return self.samples * self.window_ms


class Rate:
    """The amounts that were recorded in the last windows, as a sum per sample. Times are in milliseconds."""

    __slots__ = ("_samples", "_windows", "recorded_at_ms")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        #: The start and the sum of each sample, the oldest first.
        self._samples: deque[list[float]] = deque()
        #: The time of the last recorded amount; -1 if no amount was recorded.
        self.recorded_at_ms = -1

    def record(self, amount: float, now_ms: int) -> None:
        """Adds an amount. A negative amount removes an earlier amount again."""
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
        """Returns the time in milliseconds by which the sum of the samples is divided."""
        self._drop_old(now_ms)
        elapsed = now_ms - int(self._samples[0][0]) if self._samples else 0
        missing = self._windows.samples - 1 - elapsed // self._windows.window_ms
        return max(elapsed + max(missing, 0) * self._windows.window_ms, 1)

    def value(self, now_ms: int) -> float:
        """Returns the rate, in amounts per second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(sample[1] for sample in self._samples) * 1000 / elapsed_ms

    @property
    def all_ms(self) -> int:
        """Returns the length of all samples together, in milliseconds."""
        return self._windows.all_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Returns the time in milliseconds to wait for a quota in amounts per second; 0 if the rate is not above the
        quota."""
        rate = self.value(now_ms)
        if rate <= quota:
            return 0
        return int((rate - quota) / quota * self.elapsed_ms(now_ms) + 0.5)


class RateSinceOldest(Rate):
    """A rate whose divisor is the time since the start of the oldest sample, at least one window. So a burst after a
    pause counts as a high rate at once. Kafka measures the traffic between brokers in this way."""

    __slots__ = ()

    def elapsed_ms(self, now_ms: int) -> int:
        self._drop_old(now_ms)
        elapsed = now_ms - int(self._samples[0][0]) if self._samples else 0
        return max(elapsed, self._windows.window_ms)
