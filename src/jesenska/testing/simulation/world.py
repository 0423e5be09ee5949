"""Time, order and chance of a simulation: one clock for everybody, one heap of what is to happen, one source of
chance.

Nothing waits. While a process has something to do it is stepped; when none has, the clock moves to what comes next.
The same seed gives the same order of everything."""

from __future__ import annotations

import heapq
import random
import uuid
from collections.abc import Callable
from typing import Protocol

from jesenska.base.identifiers import random_uuid

#: 2024-01-01, where every simulation begins.
_BEGIN_MS = 1_704_067_200_000
#: Steps without the clock moving after which something turns in circles.
_STEPS_AT_ONE_TIME_MAX = 1_000_000


class Program(Protocol):
    """What has steps to make."""

    is_dead: bool
    #: Whether something has come for it.
    is_stirred: bool
    #: When it has something to do if nothing comes; None for never.
    due: float | None

    def step(self) -> None: ...


class StuckError(Exception):
    """Time does not move, or nothing is left to happen."""


class World:
    """Everything of one simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)  # noqa: S311
        #: Seconds since the beginning.
        self.now = 0.0
        self.processes: list[Program] = []
        #: What happened, one line each.
        self.trace: list[str] = []
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    # --- chance ------------------------------------------------------------------------------------------------------

    def new_uuid(self) -> uuid.UUID:
        return random_uuid(lambda: uuid.UUID(int=self.random.getrandbits(128), version=4))

    # --- time --------------------------------------------------------------------------------------------------------

    def wall_ms(self) -> int:
        return _BEGIN_MS + int(self.now * 1000)

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Has something happen at a time; those of one time happen in the order in which they were asked for."""
        self._count += 1
        heapq.heappush(self._heap, (max(when, self.now), self._count, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def tell(self, who: str, what: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.now:10.6f}  {who:<12} {what}")

    def run_until(self, done: Callable[[], bool], limit: float) -> bool:
        """Goes on until `done`, or until the clock stands at `limit`; whether it is done."""
        steps = 0
        while not done():
            moved = False
            now = self.now
            for process in list(self.processes):
                if (process.is_stirred or ((due := process.due) is not None and due <= now)) and not process.is_dead:
                    process.step()
                    moved = True
            if moved:
                steps += 1
                if steps > _STEPS_AT_ONE_TIME_MAX:
                    raise StuckError(f"time stands still at {self.now:.6f} s")
                continue
            steps = 0
            following = self._next_time()
            if following is None or following > limit:
                self.now = max(self.now, limit)
                return done()
            self.now = max(self.now, following)
            while self._heap and self._heap[0][0] <= self.now:
                heapq.heappop(self._heap)[2]()
        return True

    def _next_time(self) -> float | None:
        times = [due for process in self.processes if (due := process.due) is not None]
        if self._heap:
            times.append(self._heap[0][0])
        return min(times, default=None)
