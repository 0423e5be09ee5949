"""Pauses that grow: the time until something that has failed is tried again (KIP-144, KIP-580), or until a connection
is given up (KIP-601). Each failure doubles the time up to a limit.

The time varies at random, so that many clients do not come back at the same moment."""

from __future__ import annotations

from collections.abc import Callable

_JITTER = 0.2
#: After this many failures the limit applies for any first time.
_DOUBLINGS_MAX = 40


class Backoff:
    """The pauses after failures: `first_seconds` after the first one, twice as long after each further one, at most
    `longest_seconds`. If the first time is above the limit, the limit applies.

    `chance` draws numbers from 0 to 1. A pause is from a fifth shorter to a fifth longer, and never above the limit,
    as in Kafka's clients; with `is_shortened` it is from half of its length to the whole, at the limit, too. Without
    `chance` it does not vary. With `is_first_at_once` there is no pause after the first failure, and the second has
    the first pause."""

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
        #: The number of the failure that has the first pause.
        self._first_at = 2 if is_first_at_once else 1

    def seconds(self, failures: int) -> float:
        """The pause after this many failures in a row. 0 counts as 1."""
        doublings = max(failures, 1) - self._first_at
        plain = self._first_seconds * 2.0 ** min(doublings, _DOUBLINGS_MAX) if doublings >= 0 else 0.0
        if self._chance is None:
            return min(plain, self.longest_seconds)
        if self._is_shortened:
            return min(plain, self.longest_seconds) * (0.5 + self._chance() / 2)
        return min(plain * (1 - _JITTER + 2 * _JITTER * self._chance()), self.longest_seconds)

    def milliseconds(self, failures: int) -> int:
        """As `seconds`, in milliseconds."""
        return round(1000 * self.seconds(failures))
