"""Aggregations without windows, of grouped streams and of grouped tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.engine.operator import NULL_KEY_OR_VALUE, Operator
from jesenska.pipeline.streams.engine.stores import KeyValueStore
from jesenska.pipeline.streams.engine.tables import value_or_none
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Aggregation, TableAggregate
from jesenska.pipeline.streams.records import Record, ValueAndTimestamp

Call = Callable[..., Any]


def beginning_and_step(node: Aggregation) -> tuple[Call, Call]:
    """Returns two functions for an aggregation: initializer(), and aggregator(key, value, aggregate). For count and
    reduce, which have no such functions, equivalent functions are returned."""
    if node.operation == "count":
        return (lambda: 0), (lambda key, value, aggregate: aggregate + 1)
    if node.operation == "reduce":
        assert node.reducer is not None
        reducer = node.reducer.call
        return (lambda: None), (lambda key, value, aggregate: value if aggregate is None else reducer(aggregate, value))
    assert node.initializer is not None and node.aggregator is not None
    return node.initializer.call, node.aggregator.call


class AggregateRecords(Operator):
    """The processor for count, reduce and aggregate of a grouped stream."""

    def __init__(self, node: Aggregation) -> None:
        assert node.store is not None
        self.store_name = node.store.name
        self.sends_old = node.sends_old_values
        self.initializer, self.aggregator = beginning_and_step(node)

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: KeyValueStore = context.get_state_store(self.store_name)

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            self.context.dropped(NULL_KEY_OR_VALUE)
            return
        found = self._store.get(record.key)
        if found is None:
            old, timestamp = self.initializer(), record.timestamp
        else:
            old, timestamp = found.value, max(record.timestamp, found.timestamp)
        new = self.aggregator(record.key, record.value, old)
        if self.sends_old:
            # The value is read from the store again, since the aggregator may have changed the object that it got. If
            # the key had no value, the old value is a new initial aggregate.
            old = self.initializer() if found is None else self._store.get(record.key).value
        self._store.put(record.key, None if new is None else ValueAndTimestamp(new, timestamp))
        self.forward_change(record, new, old if self.sends_old else None, timestamp)


class AggregateTable(Operator):
    """The processor for count, reduce and aggregate of a grouped table. For each change it removes the old value from
    the aggregate and adds the new value."""

    def __init__(self, node: TableAggregate) -> None:
        assert node.store is not None
        self.store_name = node.store.name
        self.sends_old = node.sends_old_values
        self.initializer, self._adder, self._subtractor = _functions(node)

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: KeyValueStore = context.get_state_store(self.store_name)

    def process(self, record: Record) -> None:
        if record.key is None:
            raise StreamsError(
                f"the aggregation with the store {self.store_name} got a record without a key: filter out null "
                "keys before the aggregation."
            )
        change = record.value
        found = self._store.get(record.key)
        timestamp = record.timestamp
        aggregate = value_or_none(found)
        if change.old is not None and found is not None:
            aggregate = self._subtractor(record.key, change.old, aggregate)
            timestamp = max(timestamp, found.timestamp)
        if change.new is not None:
            aggregate = self._adder(record.key, change.new, self.initializer() if aggregate is None else aggregate)
            if found is not None:
                timestamp = max(timestamp, found.timestamp)
        old = value_or_none(self._store.get(record.key)) if self.sends_old else None
        self._store.put(record.key, None if aggregate is None else ValueAndTimestamp(aggregate, timestamp))
        self.forward_change(record, aggregate, old, timestamp)


def _functions(node: TableAggregate) -> tuple[Call, Call, Call]:
    """Returns three functions for an aggregation of a table: initializer(), adder(key, value, aggregate) and
    subtractor(key, value, aggregate). For count and reduce, equivalent functions are returned."""
    if node.operation == "count":
        return (lambda: 0), (lambda key, value, aggregate: aggregate + 1), (lambda key, value, aggregate: aggregate - 1)
    assert node.adder is not None and node.subtractor is not None
    add, subtract = node.adder.call, node.subtractor.call
    if node.operation == "reduce":
        return (
            (lambda: None),
            (lambda key, value, aggregate: value if aggregate is None else add(aggregate, value)),
            (lambda key, value, aggregate: subtract(aggregate, value)),
        )
    assert node.initializer is not None
    return node.initializer.call, add, subtract
