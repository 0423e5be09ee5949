"""Joins of two streams.

Each side stores its records in a window store. A record first looks for partners in the other side's store, and then
is stored in the store of its own side. In a left or outer join, a record without a partner is added to a store that
both sides share. This shared store is sorted by timestamp, side (the other side first) and key. When the record's
window and grace have passed on the stream time that both sides share, the record is joined with None. As soon as the
record has a partner, it is removed from the shared store, together with all other records of its key, side and
timestamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jesenska.pipeline.streams.engine.operator import NULL_KEY_OR_VALUE, Operator
from jesenska.pipeline.streams.engine.ordered import OrderedMap
from jesenska.pipeline.streams.engine.stores import WindowStore
from jesenska.pipeline.streams.plan import StreamStreamJoin
from jesenska.pipeline.streams.records import Record
from jesenska.pipeline.streams.serdes.serde import Serde

_NEVER = 2**63 - 1


class OuterJoinStore:
    """The store of the records that have no partner yet. Its key is (timestamp, True for a record of this side, key
    bytes). An entry contains the records' key and the list of their values."""

    def __init__(self, key: Serde) -> None:
        self._key = key
        self._map: OrderedMap[tuple[Any, list[Any]]] = OrderedMap()

    def where(self, key: Any, timestamp: int, is_left: bool) -> tuple[int, bool, bytes]:
        return timestamp, is_left, self._key.serialize("", key) or b""

    def add(self, key: Any, timestamp: int, is_left: bool, value: Any) -> None:
        where = self.where(key, timestamp, is_left)
        found = self._map.get(where)
        self._map.put(where, (key, [value] if found is None else [*found[1], value]))

    def remove(self, where: tuple[int, bool, bytes]) -> None:
        self._map.remove(where)

    def all(self) -> list[tuple[tuple[int, bool, bytes], Any, Any]]:
        return [(where, key, value) for where, (key, values) in self._map.items() for value in values]

    def approximate_num_entries(self) -> int:
        return len(self._map)


class SharedTime:
    """The stream time that both sides of a join share, and the earliest timestamp in the store of records without a
    partner. Each task has one such object."""

    def __init__(self) -> None:
        self.stream_time_ms = -1
        self.earliest_waiting_ms = _NEVER


class KeepForJoin(Operator):
    """Forwards a record to the join, and then stores it, so that later records of the other side find it."""

    def __init__(self, store_name: str) -> None:
        self._name = store_name

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: WindowStore = context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        self.context.forward(record)
        if record.key is not None:
            self._store.put(record.key, record.value, record.timestamp)


class JoinStreams(Operator):
    """The processor for one side of a join of streams."""

    def __init__(self, node: StreamStreamJoin, is_left: bool, time: SharedTime) -> None:
        windows = node.windows
        self._is_left = is_left
        self._outer = node.kind == "outer" or (is_left and node.kind == "left")
        self._other_store_name = node.other_store.name if is_left else node.this_store.name
        self._outer_store_name = None if node.outer_store is None else node.outer_store.name
        self._back_ms, self._ahead_ms = (
            (windows.before_ms, windows.after_ms) if is_left else (windows.after_ms, windows.before_ms)
        )
        self._waits_ms = {True: windows.after_ms, False: windows.before_ms}  # True: the left side
        self._grace_ms = windows.grace_ms
        self._join = node.joiner.call
        self._time = time

    def init(self, context: Any) -> None:
        super().init(context)
        self._other: WindowStore = context.get_state_store(self._other_store_name)
        self._waiting: OuterJoinStore | None = (
            None if self._outer_store_name is None else context.get_state_store(self._outer_store_name)
        )

    def remembered(self) -> list[int | None]:
        return [self._time.stream_time_ms, self._time.earliest_waiting_ms]

    def remember(self, values: Sequence[int | None]) -> None:
        stream_time_ms, earliest_waiting_ms = values
        assert stream_time_ms is not None and earliest_waiting_ms is not None
        self._time.stream_time_ms, self._time.earliest_waiting_ms = stream_time_ms, earliest_waiting_ms

    def process(self, record: Record) -> None:
        at, time = record.timestamp, self._time
        time.stream_time_ms = max(time.stream_time_ms, at)
        if self._outer and record.key is None and record.value is not None:
            self.context.forward(record.with_value(self._joined(None, record.value, None)))
            return
        if record.key is None or record.value is None:
            self.context.dropped(NULL_KEY_OR_VALUE)
            return
        if self._waiting is not None and at == time.stream_time_ms:
            self._emit_without_partner(record, self._waiting)
        until_ms = max(0, at + self._ahead_ms)
        found_one = False
        for other_at, other in self._other.fetch(record.key, max(0, at - self._back_ms), until_ms):
            found_one = True
            if self._waiting is not None:
                self._waiting.remove(self._waiting.where(record.key, other_at, not self._is_left))
            self.context.forward(
                Record(record.key, self._joined(record.key, record.value, other), max(at, other_at), record.headers)
            )
        if found_one or not self._outer:
            return
        if self._waiting is None or until_ms < time.stream_time_ms:
            self.context.forward(record.with_value(self._joined(record.key, record.value, None)))
        else:
            time.earliest_waiting_ms = min(time.earliest_waiting_ms, at)
            self._waiting.add(record.key, at, self._is_left, record.value)

    def _joined(self, key: Any, this: Any, other: Any) -> Any:
        return self._join(key, this, other) if self._is_left else self._join(key, other, this)

    def _emit_without_partner(self, record: Record, waiting: OuterJoinStore) -> None:
        """Joins records without a partner with None when their window has closed. The earliest timestamp in the store
        is remembered, so that most calls need not search the store. It is updated as in Kafka Streams, so in some
        cases the store is searched although no window has closed."""
        time = self._time
        if time.earliest_waiting_ms + self._ahead_ms + self._grace_ms >= time.stream_time_ms:
            return
        time.earliest_waiting_ms = _NEVER
        open_sides: set[bool] = set()
        previous: tuple[int, bool, bytes] | None = None
        for where, key, value in waiting.all():
            at, is_left, _ = where
            time.earliest_waiting_ms = at
            if len(open_sides) == 2:
                break
            if at + self._waits_ms[is_left] + self._grace_ms >= time.stream_time_ms:
                open_sides.add(is_left)
                continue
            joined = self._join(key, value, None) if is_left else self._join(key, None, value)
            self.context.forward(Record(key, joined, at, record.headers))
            if previous is not None and previous != where:
                waiting.remove(previous)
            previous = where
        if previous is not None:
            waiting.remove(previous)
