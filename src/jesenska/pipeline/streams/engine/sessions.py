"""The aggregation by sessions.

A record starts as a session of its own. All sessions of its key that are within the gap are merged into it, in the
order of their ends. Each of them is deleted, with a change to None, and the merged session is stored. If the record is
inside an existing session and does not extend it, this session is updated.

Stream time is the largest timestamp that this operator has seen. A record is late if its merged session ends before
stream time minus gap minus grace."""

from __future__ import annotations

from typing import Any

from jesenska.pipeline.streams.dsl.windows import EmitStrategy
from jesenska.pipeline.streams.engine.aggregates import beginning_and_step
from jesenska.pipeline.streams.engine.operator import NULL_KEY, Operator
from jesenska.pipeline.streams.engine.stores import SessionStore
from jesenska.pipeline.streams.plan import SessionAggregate
from jesenska.pipeline.streams.records import Change, Record, SessionWindow, Window, Windowed


class AggregateSessions(Operator):
    remembers = ("_stream_time_ms", "_emitted_up_to_ms")

    def __init__(self, node: SessionAggregate) -> None:
        assert node.store is not None
        self._name = node.store.name
        self._sends_old = node.sends_old_values
        self._on_close = node.emit is EmitStrategy.ON_WINDOW_CLOSE
        self._gap_ms, self._grace_ms = node.windows.inactivity_gap_ms, node.windows.grace_ms
        self._initializer, self._aggregator = beginning_and_step(node)
        self._merger = _merger(node)
        self._stream_time_ms = -1
        self._emitted_up_to_ms: int | None = None

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: SessionStore = context.get_state_store(self._name)
        if self._on_close:
            self._store.keep_until_emitted()

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.dropped(NULL_KEY)
            return
        at = record.timestamp
        self._stream_time_ms = max(self._stream_time_ms, at)
        close_time_ms = self._stream_time_ms - self._grace_ms - self._gap_ms
        alone = SessionWindow(at, at)
        window: Window = alone
        aggregate = self._initializer()
        merged = []
        for session, value in self._store.find_sessions(record.key, at - self._gap_ms, at + self._gap_ms):
            merged.append((session, value))
            aggregate = self._merger(record.key, aggregate, value)
            window = SessionWindow(min(window.start, session.window.start), max(window.end, session.window.end))
        if window.end < close_time_ms:
            self.context.dropped(
                f"its session [{window.start},{window.end}] is closed: stream time is {self._stream_time_ms}"
            )
        else:
            if window != alone:
                for session, value in merged:
                    self._store.remove(session)
                    self._forward(session, None, value)
            aggregate = self._aggregator(record.key, record.value, aggregate)
            session = Windowed(record.key, window)
            self._store.put(session, aggregate)
            self._forward(session, aggregate, None)
        self._emit_closed(record, close_time_ms)

    def _forward(self, session: Windowed, new: Any, old: Any) -> None:
        if not self._on_close:
            self.context.forward(Record(session, Change(new, old if self._sends_old else None), session.window.end))

    def _emit_closed(self, record: Record, close_time_ms: int) -> None:
        before = self._emitted_up_to_ms
        if not self._on_close or (before is not None and before >= close_time_ms) or close_time_ms < 1:
            return
        from_ms = max(0, -1 if before is None else before)
        if close_time_ms - 1 < from_ms:
            return
        for session, value in list(self._store.sessions_ending(from_ms, close_time_ms - 1)):
            self.context.forward(Record(session, Change(value, None), session.window.end, record.headers))
        self._emitted_up_to_ms = close_time_ms
        self._store.emitted(close_time_ms - 1)


def _merger(node: SessionAggregate) -> Any:
    if node.operation == "count":
        return lambda key, left, right: left + right
    if node.operation == "reduce":
        assert node.reducer is not None
        reducer = node.reducer.call
        # In a reduction, the merged aggregate is None before the first session is merged.
        return lambda key, left, right: right if left is None else reducer(left, right)
    assert node.merger is not None
    return node.merger.call
