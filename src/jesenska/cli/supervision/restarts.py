"""When a process that has died is started again: at once if that happens once, ever later if it happens again and
again. Decides; time comes in."""

from __future__ import annotations

from jesenska.client.backoff import Backoff

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 30.0
_BACKOFF = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
#: The middle of what chance may make of a pause: who starts one process needs none.
_NO_CHANCE = 0.5


class Restarts:
    """Those of one process. The first death costs no pause, the second FIRST_PAUSE_SECONDS, each further one twice as
    long, up to LONGEST_PAUSE_SECONDS. A process that has lived for LONGEST_PAUSE_SECONDS dies for the first time."""

    __slots__ = ("_deaths",)

    def __init__(self) -> None:
        self._deaths = 0

    def pause_seconds(self, lived_seconds: float) -> float:
        """Takes note of a death after so long a life, and says how long to wait before the next start."""
        if lived_seconds >= LONGEST_PAUSE_SECONDS:
            self._deaths = 0
        self._deaths += 1
        return 0.0 if self._deaths == 1 else _BACKOFF.seconds(self._deaths - 1, _NO_CHANCE)
