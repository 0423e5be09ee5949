"""Requests that wait: a Fetch for records (`fetch_states` decides when there are enough), and a Produce with acks=all
for the high watermark. Each request waits at most until its timeout.

A waiting request is an object, not a task. It is registered for the partitions or the fetch session that it waits for
(its keys). After an event on a key, the requests registered for it are asked if they can be answered now. The events
of one iteration of the event loop are collected and handled at its end, so that a hundred small appends wake a
consumer once. One timer is used for all timeouts."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

#: Finished requests stay in the heap of deadlines until their deadline, or until there are this many more finished
#: requests than waiting requests.
_DEAD_MAX = 1024


class Waiter(Protocol):
    """The interface of a waiting request. `try_complete` answers the request if possible, and then returns True.
    `expire` is called at the timeout, and answers with the available records or an error. `end` is called when the
    broker stops: it answers if this is useful to the client; otherwise the connection is closed without an answer."""

    def try_complete(self) -> bool: ...

    def expire(self) -> None: ...

    def end(self) -> None: ...


class _Entry:
    __slots__ = ("keys", "live", "waiter")

    def __init__(self, waiter: Waiter, keys: tuple[Hashable, ...]) -> None:
        self.waiter = waiter
        self.keys = keys
        self.live = True


class WaitingRoom:
    """All waiting requests of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watchers: dict[Hashable, dict[_Entry, None]] = {}
        self._deadlines: list[tuple[float, int, _Entry]] = []
        self._counter = 0
        self._live = 0
        self._events: dict[Hashable, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return self._live

    def add(self, waiter: Waiter, keys: Iterable[Hashable], timeout_seconds: float) -> Callable[[], None]:
        """Adds a request that waits for an event on one of the keys, or for the timeout. Returns a function that
        removes the request without an answer."""
        entry = _Entry(waiter, tuple(keys))
        for key in entry.keys:
            self._watchers.setdefault(key, {})[entry] = None
        self._live += 1
        self._counter += 1
        deadline = self._loop.time() + timeout_seconds
        heapq.heappush(self._deadlines, (deadline, self._counter, entry))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer(deadline)
        elif len(self._deadlines) > 2 * self._live + _DEAD_MAX:
            self._deadlines = [item for item in self._deadlines if item[2].live]
            heapq.heapify(self._deadlines)
        return lambda: self._remove(entry)

    def notify(self, key: Hashable) -> None:
        """Reports that a partition or fetch session (the key) has changed. At the end of this iteration of the event
        loop, the requests that wait for this key are asked if they can be answered (`Waiter.try_complete`)."""
        if key in self._watchers:
            if not self._events:
                self._loop.call_soon(self._look)
            self._events[key] = None

    def _look(self) -> None:
        events, self._events = self._events, {}
        for key in events:
            for entry in list(self._watchers.get(key, ())):
                if entry.live and entry.waiter.try_complete():
                    self._remove(entry)

    def _remove(self, entry: _Entry) -> None:
        if not entry.live:
            return
        entry.live = False
        self._live -= 1
        for key in entry.keys:
            watchers = self._watchers.get(key)
            if watchers is not None:
                watchers.pop(entry, None)
                if not watchers:
                    del self._watchers[key]

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._deadlines and (not self._deadlines[0][2].live or self._deadlines[0][0] <= now):
            _, _, entry = heapq.heappop(self._deadlines)
            if entry.live:
                self._remove(entry)
                entry.waiter.expire()
        if self._deadlines:
            self._set_timer(self._deadlines[0][0])

    def close(self) -> None:
        """Ends all waiting requests (`Waiter.end`), because the broker stops."""
        for _, _, entry in sorted(self._deadlines, key=lambda item: item[:2]):
            if entry.live:
                self._remove(entry)
                entry.waiter.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
