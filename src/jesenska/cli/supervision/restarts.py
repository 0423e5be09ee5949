"""Computes the pause before a process that has died is started again. There is no pause after the first death, and
longer ones after repeated deaths. This module only decides; the time is passed in."""

from __future__ import annotations

from jesenska.base.backoff import Backoff

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 30.0
#: The pauses do not vary at random, which only many processes at once would need.
_BACKOFF = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, is_first_at_once=True)


class Restarts:
    """The restarts of one process. The first death has no pause, the second FIRST_PAUSE_SECONDS, each further one
    twice as long, up to LONGEST_PAUSE_SECONDS. If a process has lived for LONGEST_PAUSE_SECONDS, its death counts as
    the first."""

    __slots__ = ("_deaths",)

    def __init__(self) -> None:
        self._deaths = 0

    def pause_seconds(self, lived_seconds: float) -> float:
        """Records that the process has died after this lifetime, and returns the pause before its next start."""
        if lived_seconds >= LONGEST_PAUSE_SECONDS:
            self._deaths = 0
        self._deaths += 1
        return _BACKOFF.seconds(self._deaths)
