"""Joins of two tables by their keys. For a change of one table, the other table's value is looked up. The change of
the result has the larger of the two timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.engine.operator import NULL_KEY, Operator, OperatorContext
from jesenska.pipeline.streams.engine.stores import KeyValueStore
from jesenska.pipeline.streams.engine.tables import ValueGetter, value_or_none
from jesenska.pipeline.streams.records import Change, Record, ValueAndTimestamp

Joiner = Callable[[Any, Any], Any]


class JoinTables(Operator):
    """The processor for one side of a join of tables. If a needed value is missing, the result has no entry for the
    key. A missing value that is not needed is passed to the joiner as None. The values that are needed:

                the other side is needed   this side is needed
    inner       yes                        yes
    left, this  no                         yes
    left, other yes                        no      (the other side of a left join)
    outer       no                         no
    """

    def __init__(
        self, other: ValueGetter, joiner: Joiner, *, needs_this: bool, needs_other: bool, sends_old: bool
    ) -> None:
        self._other = other
        self._joiner = joiner
        self._needs_this = needs_this
        self._needs_other = needs_other
        self._sends_old = sends_old

    def init(self, context: Any) -> None:
        super().init(context)
        self._other.init(context)

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.dropped(NULL_KEY)
            return
        change: Change = record.value
        found = self._other.get(record.key)
        other = value_or_none(found)
        if other is None and (self._needs_other or (change.new is None and change.old is None)):
            return
        timestamp = record.timestamp if found is None or other is None else max(record.timestamp, found.timestamp)
        old = self._joined(change.old, other) if self._sends_old else None
        self.forward_change(record, self._joined(change.new, other), old, timestamp)

    def _joined(self, this: Any, other: Any) -> Any:
        if this is None and (self._needs_this or other is None):
            return None
        return self._joiner(this, other)


class MergeTableJoin(Operator):
    """The processor that forwards the changes of both sides as the result, and stores them if the result has a
    store."""

    def __init__(self, store_name: str | None, sends_old: bool) -> None:
        self._name = store_name
        self._sends_old = sends_old

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: KeyValueStore | None = None if self._name is None else context.get_state_store(self._name)

    def process(self, record: Record) -> None:
        change: Change = record.value
        if self._store is not None:
            self._store.put(record.key, None if change.new is None else ValueAndTimestamp(change.new, record.timestamp))
        self.forward_change(record, change.new, change.old if self._sends_old else None)


class JoinedGetter(ValueGetter):
    """Looks up a value of a join without a store: computes it from the values of both tables."""

    def __init__(self, left: ValueGetter, right: ValueGetter, joiner: Joiner, kind: str) -> None:
        self._left, self._right, self._joiner, self._kind = left, right, joiner, kind

    def init(self, context: OperatorContext) -> None:
        self._left.init(context)
        self._right.init(context)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        left = self._left.get(key)
        if left is None and self._kind != "outer":
            return None
        right = self._right.get(key)
        if right is None and (left is None or self._kind == "inner"):
            return None
        value = self._joiner(value_or_none(left), value_or_none(right))
        timestamp = max(side.timestamp for side in (left, right) if side is not None)
        return None if value is None else ValueAndTimestamp(value, timestamp)
