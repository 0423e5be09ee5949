"""Computes the pauses before a failed action is tried again (KIP-144, KIP-580), and the time limits of attempts to
connect (KIP-601). Each failure doubles the pause or the time limit, up to a maximum.

The pause varies at random, so that many clients do not try again at the same moment."""

from __future__ import annotations

from collections.abc import Callable

_JITTER = 0.2
#: The number of doublings is limited to this, so that the power of two below stays a finite number.
_DOUBLINGS_MAX = 40


class Backoff:
    """Computes the pauses after failures. The pause is `first_seconds` after the first failure. Each further failure
    in a row doubles the pause, up to `longest_seconds`. If `first_seconds` is above the limit, the limit applies.

    `chance` draws numbers from 0 to 1, by which a pause varies; without `chance` a pause does not vary. By default a
    pause is up to a fifth shorter or longer, as in Kafka's clients, and never above the limit. With `is_shortened` a
    pause is between half of its length and its whole length. With `is_first_at_once` there is no pause after the first
    failure, and the pause after the second failure is `first_seconds`."""

    __slots__ = ("_chance", "_first_at", "_first_seconds", "_is_shortened", "longest_seconds")

    def __init__(
        self,
        first_seconds: float,
        longest_seconds: float,
        chance: Callable[[], float] | None = None,
        *,
        is_shortened: bool = False,
        is_first_at_once: bool = False,
    ) -> None:
        self._first_seconds = min(first_seconds, longest_seconds)
        self.longest_seconds = longest_seconds
        self._chance = chance
        self._is_shortened = is_shortened
        #: The number of the failure that is followed by a pause of `first_seconds`.
        self._first_at = 2 if is_first_at_once else 1

    def seconds(self, failures: int) -> float:
        """Returns the pause in seconds after `failures` failures in a row. 0 failures count as 1."""
        doublings = max(failures, 1) - self._first_at
        plain = self._first_seconds * 2.0 ** min(doublings, _DOUBLINGS_MAX) if doublings >= 0 else 0.0
        if self._chance is None:
            return min(plain, self.longest_seconds)
        if self._is_shortened:
            return min(plain, self.longest_seconds) * (0.5 + self._chance() / 2)
        return min(plain * (1 - _JITTER + 2 * _JITTER * self._chance()), self.longest_seconds)

    def milliseconds(self, failures: int) -> int:
        """Returns the pause in milliseconds after `failures` failures in a row."""
        return round(1000 * self.seconds(failures))
