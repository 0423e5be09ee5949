"""The only place where the program asks for the time and for random numbers. All other code receives a `Clock` or a
`Random` through its constructor, so that a simulator can replace both."""

from __future__ import annotations

import time
from random import Random as Random
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Returns the wall-clock time in milliseconds since the Unix epoch. It is used for record timestamps and file
        names."""
        ...

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary start; the value never decreases. It is used for time-outs and
        measurements."""
        ...


class SystemClock:
    """The clock of the operating system."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock for tests whose time changes only when the test calls `advance`."""

    def __init__(self, now_ms: int = 1_600_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._monotonic = 1000.0

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, milliseconds: float) -> None:
        self._now_ms += milliseconds
        self._monotonic += milliseconds / 1000


def system_random() -> Random:
    """Returns a random number generator that the operating system has seeded. It must not be used for secrets."""
    return Random()  # noqa: S311
