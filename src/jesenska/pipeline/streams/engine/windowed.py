"""Aggregations by windows of fixed length: tumbling, hopping and sliding windows.

Stream time is the largest timestamp that this operator has seen. A window is closed when its end is at or below stream
time minus grace. A sliding window includes its end, so it is closed when its end is below stream time minus grace.

Each distinct set of records that are at most `time_difference` apart has one sliding window. Each record has a left
window, which ends at the record's timestamp. It also has a right window, which begins one millisecond after this
timestamp, if the right window contains a record. A new record

    1. is added to every existing window of its key that contains its timestamp;
    2. opens the right window of the previous record, if this window does not exist and contains the new record;
    3. opens its own left window, with the aggregate of the window that contains the records before it;
    4. opens its own right window, with the aggregate of later records, if there are later records.

No window begins at a negative time. So records with timestamps up to `time_difference` share one window that begins at
0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jesenska.pipeline.streams.dsl.windows import EmitStrategy, SlidingWindows, TimeWindows
from jesenska.pipeline.streams.engine.aggregates import beginning_and_step
from jesenska.pipeline.streams.engine.operator import NULL_KEY, NULL_KEY_OR_VALUE, Operator
from jesenska.pipeline.streams.engine.stores import WindowStore
from jesenska.pipeline.streams.plan import WindowedAggregate
from jesenska.pipeline.streams.records import Change, Record, TimeWindow, ValueAndTimestamp, Window, Windowed


class _ByWindows(Operator):
    remembers = ("_stream_time_ms", "_emitted_up_to_ms")

    def __init__(self, node: WindowedAggregate) -> None:
        assert node.store is not None
        self._name = node.store.name
        self._sends_old = node.sends_old_values
        self._on_close = node.emit is EmitStrategy.ON_WINDOW_CLOSE
        self._grace_ms = node.windows.grace_ms
        self._initializer, self._aggregator = beginning_and_step(node)
        self._stream_time_ms = -1
        self._emitted_up_to_ms: int | None = None  # the close time of the last emission

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: WindowStore = context.get_state_store(self._name)
        if self._on_close:
            self._store.keep_until_emitted()

    def _forward(self, record: Record, window: Window, new: Any, old: Any, timestamp: int) -> None:
        if not self._on_close:
            change = Change(new, old if self._sends_old else None)
            self.context.forward(Record(Windowed(record.key, window), change, timestamp, record.headers))

    def _late(self, record: Record, window: str) -> None:
        self.context.dropped(
            f"its window {window} is closed: stream time is {self._stream_time_ms} and grace {self._grace_ms} ms"
        )

    def _emit(self, record: Record, from_ms: int, to_ms: int, close_time_ms: int) -> None:
        """Forwards the final results of the windows that begin from `from_ms` to `to_ms`."""
        for windowed, found in list(self._store.fetch_all(from_ms, to_ms)):
            self.context.forward(Record(windowed, Change(found.value, None), found.timestamp, record.headers))
        self._emitted_up_to_ms = close_time_ms
        self._store.emitted(to_ms)

    def _something_closed(self, close_time_ms: int) -> bool:
        return self._on_close and (self._emitted_up_to_ms is None or self._emitted_up_to_ms < close_time_ms)


class AggregateTimeWindows(_ByWindows):
    """The processor for aggregations by TimeWindows."""

    def __init__(self, node: WindowedAggregate) -> None:
        super().__init__(node)
        assert isinstance(node.windows, TimeWindows)
        self._windows = node.windows

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.dropped(NULL_KEY)
            return
        self._stream_time_ms = max(self._stream_time_ms, record.timestamp)
        close_time_ms = self._stream_time_ms - self._grace_ms
        for window in self._windows.windows_for(record.timestamp):
            if window.end <= close_time_ms:
                self._late(record, f"[{window.start},{window.end})")
                continue
            found = self._store.fetch(record.key, window.start)
            if found is None:
                old, timestamp = self._initializer(), record.timestamp
            else:
                old, timestamp = found.value, max(record.timestamp, found.timestamp)
            new = self._aggregator(record.key, record.value, old)
            if self._sends_old:
                old = self._initializer() if found is None else self._store.fetch(record.key, window.start).value
            self._store.put(record.key, None if new is None else ValueAndTimestamp(new, timestamp), window.start)
            self._forward(record, window, new, old, timestamp)
        self._emit_closed(record, close_time_ms)

    def _emit_closed(self, record: Record, close_time_ms: int) -> None:
        to_ms = close_time_ms - self._windows.size_ms
        if not self._something_closed(close_time_ms) or to_ms < 0:
            return
        before = self._emitted_up_to_ms
        from_ms = 0
        if before is not None:
            from_ms = max(0, before - self._windows.size_ms) + 1
            if list(self._windows.windows_for(to_ms)) == list(self._windows.windows_for(from_ms - 1)):
                return
        self._emit(record, from_ms, to_ms, close_time_ms)


class AggregateSlidingWindows(_ByWindows):
    """The processor for aggregations by SlidingWindows."""

    def __init__(self, node: WindowedAggregate) -> None:
        super().__init__(node)
        assert isinstance(node.windows, SlidingWindows)
        self._difference_ms = node.windows.time_difference_ms

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.dropped(NULL_KEY_OR_VALUE)
            return
        self._stream_time_ms = max(self._stream_time_ms, record.timestamp)
        close_time_ms = self._stream_time_ms - self._grace_ms
        if record.timestamp + self._difference_ms < close_time_ms:
            self._late(record, f"[{record.timestamp},{record.timestamp + self._difference_ms}]")
            return
        if record.timestamp < self._difference_ms:
            self._process_early(record, close_time_ms)
            return
        self._process(record, close_time_ms)
        to_ms = close_time_ms - self._difference_ms - 1
        if self._something_closed(close_time_ms) and to_ms >= 0:
            before = self._emitted_up_to_ms
            self._emit(record, 0 if before is None else max(0, before - self._difference_ms), to_ms, close_time_ms)

    def _process(self, record: Record, close_time_ms: int) -> None:
        at = record.timestamp
        starts: set[int] = set()
        left: ValueAndTimestamp | None = None
        right: ValueAndTimestamp | None = None
        left_is_there = right_is_there = False
        previous: int | None = None  # the timestamp of the record before this one
        for start, found in self._latest_first(record, max(0, at - 2 * self._difference_ms)):
            starts.add(start)
            end = start + self._difference_ms
            if start == at + 1:
                right_is_there = True
            elif end > at:
                if right is None:
                    right = found
                self._update(record, TimeWindow(start, end), found, close_time_ms)
            elif end == at:
                left_is_there = True
                self._update(record, TimeWindow(start, end), found, close_time_ms)
                if found.timestamp >= at:
                    return  # a record of this time was there before: all its windows are
                previous = found.timestamp
            else:
                left, previous = found, found.timestamp
                break
        if previous is not None and previous + 1 not in starts and previous + 1 + self._difference_ms >= at:
            self._open_right_of(previous, record, close_time_ms)
        if not left_is_there:
            begins_with_left = left is not None and previous is not None and at - self._difference_ms <= previous
            value = left.value if begins_with_left and left is not None else self._initializer()
            self._update(record, TimeWindow(at - self._difference_ms, at), ValueAndTimestamp(value, at), close_time_ms)
        if not right_is_there and right is not None and right.timestamp > at:
            self._open_own_right(record, right)

    def _process_early(self, record: Record, close_time_ms: int) -> None:
        at = record.timestamp
        starts: set[int] = set()
        combined: ValueAndTimestamp | None = None
        right: ValueAndTimestamp | None = None
        right_is_there = False
        previous: int | None = None
        for start, found in self._earliest_first(record):
            starts.add(start)
            if start == 0:
                combined = found
                if found.timestamp < at:
                    previous = found.timestamp
            elif start <= at:
                right = found
                self._update(record, TimeWindow(start, start + self._difference_ms), found, close_time_ms)
            else:
                right_is_there = True
        if right is None and combined is not None and combined.timestamp > at:
            right = combined
        if not right_is_there and right is not None and right.timestamp > at:
            self._open_own_right(record, right)
        if previous is not None and previous + 1 not in starts:
            self._open_right_of(previous, record, close_time_ms)
        if combined is None:
            combined = ValueAndTimestamp(self._initializer(), at)
        self._update(record, TimeWindow(0, self._difference_ms), combined, close_time_ms)

    def _latest_first(self, record: Record, from_ms: int) -> Iterable[tuple[int, ValueAndTimestamp]]:
        return self._store.backward_fetch(record.key, from_ms, record.timestamp + 1)

    def _earliest_first(self, record: Record) -> Iterable[tuple[int, ValueAndTimestamp]]:
        return list(self._store.fetch(record.key, 0, record.timestamp + 1))

    def _open_own_right(self, record: Record, right: ValueAndTimestamp) -> None:
        """Opens the window that begins one millisecond after the record. The window contains only later records, and
        its aggregate is that of the later records."""
        window = TimeWindow(record.timestamp + 1, record.timestamp + 1 + self._difference_ms)
        self._store.put(record.key, right, window.start)
        self._forward(record, window, right.value, None, right.timestamp)

    def _open_right_of(self, previous: int, record: Record, close_time_ms: int) -> None:
        """Opens the window that begins one millisecond after the previous record. It contains only the new record."""
        window = TimeWindow(previous + 1, previous + 1 + self._difference_ms)
        self._update(record, window, ValueAndTimestamp(self._initializer(), record.timestamp), close_time_ms)

    def _update(self, record: Record, window: Window, found: ValueAndTimestamp, close_time_ms: int) -> None:
        if window.end < close_time_ms:
            self._late(record, f"[{window.start},{window.end}]")
            return
        old = found.value
        new = self._aggregator(record.key, record.value, old)
        timestamp = record.timestamp if old is None else max(record.timestamp, found.timestamp)
        self._store.put(record.key, None if new is None else ValueAndTimestamp(new, timestamp), window.start)
        self._forward(record, window, new, old, timestamp)
