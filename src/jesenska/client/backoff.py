"""Pauses that grow: the time until a client tries again (KIP-144, KIP-580), and the time that it waits for a
connection (KIP-601).

Each failure doubles the time up to a limit. The time varies at random by a fifth, so that many clients do not come
back at the same moment."""

from __future__ import annotations

from dataclasses import dataclass

_JITTER = 0.2
#: After this many failures the limit applies for any first time.
_DOUBLINGS_MAX = 40


@dataclass(frozen=True, slots=True)
class Backoff:
    """A pause that grows: `first_seconds` after the first failure, twice as long after each further one, at most
    `longest_seconds`. If the first time is above the limit, the limit applies."""

    first_seconds: float
    longest_seconds: float

    def seconds(self, failures: int, chance: float) -> float:
        """Returns the time after this many failures in a row (0 counts as 1), from a fifth less (`chance` 0) to a
        fifth more (`chance` 1), and never above the limit."""
        plain = min(self.first_seconds, self.longest_seconds) * 2.0 ** min(max(0, failures - 1), _DOUBLINGS_MAX)
        return min(plain * (1 - _JITTER + 2 * _JITTER * chance), self.longest_seconds)
