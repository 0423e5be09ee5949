"""Time, order and chance of a simulation: one clock, one heap of future events, one source of chance.

Nothing waits. A process with something to do is stepped until it has nothing; when no process has, the clock moves to
the next event. The same seed gives the same order of everything."""

from __future__ import annotations

import heapq
import math
import random
import uuid
from collections.abc import Callable
from typing import Protocol

from jesenska.base.identifiers import random_uuid

#: 2024-01-01, where every simulation begins.
_BEGIN_MS = 1_704_067_200_000
#: Rounds of steps without the clock moving after which there is an endless loop.
_ROUNDS_AT_ONE_TIME_MAX = 100_000
#: The time of an event that does not happen.
NEVER = math.inf


class Program(Protocol):
    """A program that makes steps."""

    is_dead: bool
    #: True: it makes no steps, even if something has come for it.
    is_paused: bool
    #: True if something has come for it.
    is_stirred: bool
    #: The time at which it has something to do if nothing comes; `NEVER` if it only waits.
    due: float

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
        #: The events, one line each.
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
        """Calls `what` at a time; calls of one time are in the order of the requests."""
        self._count += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._count, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def tell(self, who: str, what: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.now:10.6f}  {who:<12} {what}")

    def run_until(self, done: Callable[[], bool], limit: float) -> bool:
        """Goes on until `done`, or until the clock is at `limit`. Returns True if it is done."""
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
                    raise StuckError(f"time stands still at {self.now:.6f} s")
                continue
            rounds = 0
            if following > limit:
                self.now = max(self.now, limit)
                return done()
            self.now = now = max(now, following)
            while heap and heap[0][0] <= now:
                heapq.heappop(heap)[2]()
        return True
