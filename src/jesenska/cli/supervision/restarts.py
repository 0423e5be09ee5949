"""Computes the pause before a process that has ended unexpectedly is started again. There is no pause after the first
end, and longer and longer pauses after repeated ends. This module only computes: it does not start processes or read
the clock."""

from __future__ import annotations

from jesenska.base.backoff import Backoff

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 30.0
#: The pauses do not vary at random. Random pauses are only needed if many processes restart at the same time.
_BACKOFF = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, is_first_at_once=True)


class Restarts:
    """The restarts of one process. There is no pause after the first end. The pause after the second end is
    FIRST_PAUSE_SECONDS, and each further pause is twice as long, up to LONGEST_PAUSE_SECONDS. If a process has run for
    LONGEST_PAUSE_SECONDS, its end counts as the first end."""

    __slots__ = ("_deaths",)

    def __init__(self) -> None:
        self._deaths = 0

    def pause_seconds(self, lived_seconds: float) -> float:
        """Records that the process has ended after running for `lived_seconds`. Returns the pause in seconds before
        its next start."""
        if lived_seconds >= LONGEST_PAUSE_SECONDS:
            self._deaths = 0
        self._deaths += 1
        return _BACKOFF.seconds(self._deaths)
