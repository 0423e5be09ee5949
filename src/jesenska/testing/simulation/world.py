"""Time, order and chance of a simulation: one clock for everybody, one heap of what is to happen, one source of
chance.

Nothing waits. A process that has something to do is stepped until it has not; when none has, the clock moves to what
comes next.
The same seed gives the same order of everything."""

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
#: Rounds of steps without the clock moving after which something turns in circles.
_ROUNDS_AT_ONE_TIME_MAX = 100_000
#: The time of what is not to happen.
NEVER = math.inf


class Program(Protocol):
    """What has steps to make."""

    is_dead: bool
    #: It makes none, whatever has come for it.
    is_paused: bool
    #: Whether something has come for it.
    is_stirred: bool
    #: When it has something to do if nothing comes; `NEVER` where it waits.
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
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._count, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def tell(self, who: str, what: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.now:10.6f}  {who:<12} {what}")

    def run_until(self, done: Callable[[], bool], limit: float) -> bool:
        """Goes on until `done`, or until the clock stands at `limit`; whether it is done."""
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
