"""Tracks the operations of one shard (the coordinator's part for one partition), from the write of their records until
the shard has handled the outcome. This module does no input or output.

  handle(event, now) -> answers and appends

  Write by the shard   is returned as an `Append` with a number; answers and orders of the shard are returned unchanged
  Appended             the operation's records are applied to the shard, which then gets `Committed`
  AppendFailed         the shard gets `Failed`
  timeout_ms passed    the shard gets `Late`, and later `Committed` or `Failed`

Appends of one shard are committed in their order, because they go to one partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.coordination.shard import (
    Answer,
    Committed,
    Effect,
    Failed,
    Late,
    Marker,
    Now,
    OfTransaction,
    Order,
    Resign,
    Say,
    Shard,
    Tick,
    Write,
)


class Append(NamedTuple):
    """Asks to append these records to the shard's partition, and then to return `Appended` or `AppendFailed` with the
    number."""

    number: int
    name: str
    records: tuple[Any, ...]
    within: OfTransaction | None = None
    marker: Marker | None = None


class Appended(NamedTuple):
    """Event: the records of an `Append` are committed in the log of the shard's partition."""

    number: int


class AppendFailed(NamedTuple):
    """Event: the records of an `Append` could not be written to the log."""

    number: int
    error: ErrorCode


class _UnderWay:
    """A write whose outcome is not known yet."""

    __slots__ = ("in_time", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.in_time = True


class Operations:
    """The operations of one shard. An operation that takes longer than `timeout_ms` is answered
    COORDINATOR_NOT_AVAILABLE."""

    def __init__(self, shard: Shard, timeout_ms: int) -> None:
        self.shard = shard
        self._timeout_ms = timeout_ms
        self._under_way: dict[int, _UnderWay] = {}
        self._last_number = 0
        #: The deadline and number of each operation, earliest deadline first. A finished operation is removed when it
        #: is the first of this queue.
        self._timeouts: deque[tuple[int, int]] = deque()

    def handle(self, event: Any, now: Now) -> list[Answer | Append | Order | Say]:
        """Handles an event of the shard, or `Appended` or `AppendFailed`. Returns its effects."""
        if isinstance(event, Appended):
            return self._appended(event, now)
        if isinstance(event, AppendFailed):
            ended = self._under_way.pop(event.number, None)
            return (
                []
                if ended is None
                else self._begin(self.shard.handle(Failed(ended.write.operation, event.error, ended.in_time), now), now)
            )
        before: list[Answer | Append | Order | Say] = []
        if isinstance(event, Tick):
            before = self._late(now)
        elif isinstance(event, Resign):
            before = self._give_up(self._under_way.values(), ErrorCode.NOT_COORDINATOR, now)
        return before + self._begin(self.shard.handle(event, now), now)

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next `Tick` in milliseconds of the monotonic clock, or None if there is no
        deadline."""
        timeouts = self._timeouts
        while timeouts and timeouts[0][1] not in self._under_way:
            timeouts.popleft()
        due_ms = self.shard.next_deadline_ms()
        if timeouts and (due_ms is None or timeouts[0][0] < due_ms):
            return timeouts[0][0]
        return due_ms

    def _appended(self, event: Appended, now: Now) -> list[Answer | Append | Order | Say]:
        ended = self._under_way.pop(event.number, None)
        if ended is None:
            return []
        write, shard = ended.write, self.shard
        for record in write.records:
            if write.within is None:
                shard.replay(record, now)
            else:
                shard.replay_within(record, write.within, now)
        if write.marker is not None:
            shard.replay_end(write.marker.of.producer_id, write.marker.commits, now)
        return self._begin(self.shard.handle(Committed(ended.write.operation, ended.in_time), now), now)

    def _late(self, now: Now) -> list[Answer | Append | Order | Say]:
        late = []
        while self._timeouts and self._timeouts[0][0] <= now.monotonic_ms:
            operation = self._under_way.get(self._timeouts.popleft()[1])
            if operation is not None:
                late.append(operation)
        return self._give_up(late, ErrorCode.COORDINATOR_NOT_AVAILABLE, now)

    def _give_up(
        self, operations: Iterable[_UnderWay], error: ErrorCode, now: Now
    ) -> list[Answer | Append | Order | Say]:
        effects: list[Answer | Append | Order | Say] = []
        for operation in [item for item in operations if item.in_time]:
            operation.in_time = False
            effects += self._begin(self.shard.handle(Late(operation.write.operation, error), now), now)
        return effects

    def _begin(self, effects: Iterable[Effect], now: Now) -> list[Answer | Append | Order | Say]:
        return [self._append(effect, now) if isinstance(effect, Write) else effect for effect in effects]

    def _append(self, write: Write, now: Now) -> Append:
        self._last_number += 1
        self._under_way[self._last_number] = _UnderWay(write)
        self._timeouts.append((now.monotonic_ms + self._timeout_ms, self._last_number))
        return Append(self._last_number, write.name, write.records, write.within, write.marker)
