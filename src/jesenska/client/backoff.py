"""Pauses that grow: how long a client waits before it tries again (KIP-144, KIP-580), and how long it waits for a
connection (KIP-601).

Each failure doubles the time up to a limit, and a fifth of it is left to chance, so that many clients do not come back
at the same moment."""

from __future__ import annotations

from dataclasses import dataclass

_JITTER = 0.2
#: Beyond so many failures the limit holds for any first time.
_DOUBLINGS_MAX = 40


@dataclass(frozen=True, slots=True)
class Backoff:
    """`first_seconds` after the first failure, twice as long after each further one, at most `longest_seconds`. A
    first time above the limit is the limit."""

    first_seconds: float
    longest_seconds: float

    def seconds(self, failures: int, chance: float) -> float:
        """The time after so many failures in a row (0 as 1), a fifth less (`chance` 0) to a fifth more (1), and never
        above the limit."""
        plain = min(self.first_seconds, self.longest_seconds) * 2.0 ** min(max(0, failures - 1), _DOUBLINGS_MAX)
        return min(plain * (1 - _JITTER + 2 * _JITTER * chance), self.longest_seconds)
