"""The time, the order of events and the random numbers of a simulation: one clock, one heap of future events, and one
random generator.

Nothing waits in real time. Each process makes steps until it has nothing to do. When no process has anything to do,
the clock moves to the next event. The same seed always gives the same order of events."""

from __future__ import annotations

import heapq
import math
import random
import uuid
from collections.abc import Callable
from typing import Protocol

from jesenska.base.identifiers import random_uuid

#: The simulated time at which every simulation begins: 2024-01-01.
_BEGIN_MS = 1_704_067_200_000
#: If more than this many rounds of steps are made at the same simulated time, a program is in an endless loop.
_ROUNDS_AT_ONE_TIME_MAX = 100_000
#: The time of an event that never happens.
NEVER = math.inf


class Program(Protocol):
    """A program that runs in steps, as the World uses it."""

    is_dead: bool
    #: True if the program makes no steps, even if it has something to do.
    is_paused: bool
    #: True if the program has something to do now.
    is_stirred: bool
    #: The time of the program's next timer; `NEVER` if it only waits for input.
    due: float

    def step(self) -> None: ...


class StuckError(Exception):
    """The error that is raised if a program is in an endless loop, so the clock does not move."""


class World:
    """The clock, the random numbers, the processes and the trace of one simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)  # noqa: S311
        #: The simulated time in seconds since the beginning.
        self.now = 0.0
        self.processes: list[Program] = []
        #: The events, one line for each.
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
        """Calls `what` at the time `when`. Calls for the same time are made in the order in which they were
        requested."""
        self._count += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._count, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def tell(self, who: str, what: str) -> None:
        """Adds a line to the trace."""
        self.trace.append(f"{self.now:10.6f}  {who:<12} {what}")

    def run_until(self, done: Callable[[], bool], limit: float) -> bool:
        """Runs the simulation until `done` returns True, or until the clock reaches `limit`. Returns the last result
        of `done`."""
        rounds = 0
        heap = self._heap
        while not done():
            now = self.now
            moved = False
            following = heap[0][0] if heap else NEVER
            for process in tuple(self.processes):
                if process.is_paused:
                    continue
                if (process.is_stirred or process.due <= now) and not process.is_dead:
                    process.step()
                    moved = True
                elif process.due < following:
                    following = process.due
            if moved:
                rounds += 1
                if rounds > _ROUNDS_AT_ONE_TIME_MAX:
                    raise StuckError(f"the clock does not move from {self.now:.6f} s")
                continue
            rounds = 0
            if following > limit:
                self.now = max(self.now, limit)
                return done()
            self.now = now = max(now, following)
            while heap and heap[0][0] <= now:
                heapq.heappop(heap)[2]()
        return True
