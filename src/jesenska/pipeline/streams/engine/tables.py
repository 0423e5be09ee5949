"""The processors of tables: tables from topics and streams, operations on each key, and lookups of values.

A change of a table contains the old value only if a later node needs old values (`sends_old`). A table with a store
forwards the values that it has stored. The values of a table without a store are computed from its parent table, also
for lookups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams.engine.operator import NULL_KEY, Operator, OperatorContext
from jesenska.pipeline.streams.engine.stateless import pair
from jesenska.pipeline.streams.engine.stores import KeyValueStore, SessionStore, WindowStore
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.records import Change, Record, ValueAndTimestamp, Windowed

Call = Callable[..., Any]


def value_or_none(found: ValueAndTimestamp | None) -> Any:
    return None if found is None else found.value


class ValueGetter:
    """Looks up the value of a key in a table."""

    def init(self, context: OperatorContext) -> None:
        raise NotImplementedError

    def get(self, key: Any) -> ValueAndTimestamp | None:
        raise NotImplementedError


class StoreGetter(ValueGetter):
    """Looks up values in the table's own store."""

    def __init__(self, store_name: str) -> None:
        self.store_name = store_name

    def init(self, context: OperatorContext) -> None:
        self._store = context.get_state_store(self.store_name)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        store = self._store
        if isinstance(store, KeyValueStore):
            return store.get(key)  # type: ignore[no-any-return]
        assert isinstance(key, Windowed)
        if isinstance(store, WindowStore):
            return store.fetch(key.key, key.window.start)  # type: ignore[no-any-return]
        assert isinstance(store, SessionStore)
        value = store.fetch_session(key.key, key.window.start, key.window.end)
        return None if value is None else ValueAndTimestamp(value, key.window.end)


class ComputedGetter(ValueGetter):
    """Computes a table's value from the key and the value in the parent table."""

    def __init__(
        self, parent: ValueGetter, compute: Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]
    ) -> None:
        self._parent = parent
        self._compute = compute

    def init(self, context: OperatorContext) -> None:
        self._parent.init(context)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        return self._compute(key, self._parent.get(key))


def filtered(predicate: Call, negated: bool) -> Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]:
    """Returns the function that computes the values of a filtered table without a store."""

    def compute(key: Any, found: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        return found if found is not None and bool(predicate(key, found.value)) is not negated else None

    return compute


def mapped(mapper: Call) -> Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]:
    """Returns the function that computes the values of a `map_values` table without a store."""

    def compute(key: Any, found: ValueAndTimestamp | None) -> ValueAndTimestamp | None:
        value = None if found is None else mapper(key, found.value)
        return None if found is None or value is None else ValueAndTimestamp(value, found.timestamp)

    return compute


class TableFromRecords(Operator):
    """The processor that turns records into changes of a table: for table sources and `to_table`."""

    def __init__(self, store_name: str | None, sends_old: bool) -> None:
        self.store_name = store_name
        self.sends_old = sends_old

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: KeyValueStore | None = (
            None if self.store_name is None else context.get_state_store(self.store_name)
        )

    def process(self, record: Record) -> None:
        if record.key is None:
            self.context.dropped(NULL_KEY)
            return
        old = None
        if self._store is not None:
            old = value_or_none(self._store.get(record.key))
            self._store.put(
                record.key, None if record.value is None else ValueAndTimestamp(record.value, record.timestamp)
            )
        self.forward_change(record, record.value, old if self.sends_old else None)


class _KeyByKey(Operator):
    """The base class of processors for tables that are computed from another table, key by key. Such a table may have
    a store."""

    def __init__(self, store_name: str | None, sends_old: bool) -> None:
        self.store_name = store_name
        self.sends_old = sends_old

    def init(self, context: Any) -> None:
        super().init(context)
        self._store: KeyValueStore | None = (
            None if self.store_name is None else context.get_state_store(self.store_name)
        )

    def keep_and_forward(self, record: Record, new: Any, old: Any) -> None:
        if self._store is not None:
            self._store.put(record.key, None if new is None else ValueAndTimestamp(new, record.timestamp))
        self.forward_change(record, new, old if self.sends_old else None)

    def old_value(self, record: Record, compute: Callable[[Any, Any], Any]) -> Any:
        """Returns the key's old value in this table: from the table's store or, without a store, computed from the
        parent table's old value."""
        if not self.sends_old:
            return None
        return (
            compute(record.key, record.value.old) if self._store is None else value_or_none(self._store.get(record.key))
        )


class FilterTable(_KeyByKey):
    def __init__(self, predicate: Call, negated: bool, store_name: str | None, sends_old: bool) -> None:
        super().__init__(store_name, sends_old)
        self._predicate = predicate
        self._negated = negated

    def process(self, record: Record) -> None:
        new = self._computed(record.key, record.value.new)
        old = self.old_value(record, self._computed)
        if self.sends_old and old is None and new is None:
            return
        self.keep_and_forward(record, new, old)

    def _computed(self, key: Any, value: Any) -> Any:
        return value if value is not None and bool(self._predicate(key, value)) is not self._negated else None


class MapTableValues(_KeyByKey):
    def __init__(self, mapper: Call, store_name: str | None, sends_old: bool) -> None:
        super().__init__(store_name, sends_old)
        self._mapper = mapper

    def process(self, record: Record) -> None:
        new = self._computed(record.key, record.value.new)
        self.keep_and_forward(record, new, self.old_value(record, self._computed))

    def _computed(self, key: Any, value: Any) -> Any:
        return None if value is None else self._mapper(key, value)


class TransformTableValues(_KeyByKey):
    """The processor for `transform_values` of a table. The user's transformer is also called for the value None."""

    def __init__(
        self, make: Callable[[], Any], adapt: Callable[[Any], Call], store_name: str | None, sends_old: bool
    ) -> None:
        super().__init__(store_name, sends_old)
        self._transformer = make()
        self._adapt = adapt

    def init(self, context: Any) -> None:
        super().init(context)
        self._transformer.context = context
        self._transformer.init(context)
        self._transform = self._adapt(self._transformer)

    def process(self, record: Record) -> None:
        new = self._transform(record.key, record.value.new)
        self.keep_and_forward(record, new, self.old_value(record, self._transform))

    def close(self) -> None:
        self._transformer.close()


class TransformedGetter(ValueGetter):
    """Looks up values of a `transform_values` table without a store. It has its own transformer object, which computes
    the values from those of the parent table."""

    def __init__(self, parent: ValueGetter, make: Callable[[], Any], adapt: Callable[[Any], Call]) -> None:
        self._parent = parent
        self._transformer = make()
        self._adapt = adapt

    def init(self, context: OperatorContext) -> None:
        self._parent.init(context)
        self._transformer.context = context
        self._transformer.init(context)
        self._transform = self._adapt(self._transformer)

    def get(self, key: Any) -> ValueAndTimestamp | None:
        found = self._parent.get(key)
        value = self._transform(key, value_or_none(found))
        return None if value is None else ValueAndTimestamp(value, -1 if found is None else found.timestamp)


class ChangesToRecords(Operator):
    """The processor for `to_stream`: forwards the new value of each change."""

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(record.value.new))


class RegroupTable(Operator):
    """The processor for `group_by` of a table. For each change it removes the old pair from its group and adds the new
    pair to its group."""

    def __init__(self, mapper: Call) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        if record.key is None:
            raise StreamsError(
                "a table has a record without a key, which cannot be grouped: filter out null keys first."
            )
        change: Change = record.value
        new = None if change.new is None else _whole(self._mapper(record.key, change.new))
        old = None if change.old is None else _whole(self._mapper(record.key, change.old))
        if old is not None and new is not None and old[0] == new[0]:
            self.forward_change(record.with_key(old[0]), new[1], old[1])
            return
        if old is not None:
            self.forward_change(record.with_key(old[0]), None, old[1])
        if new is not None:
            self.forward_change(record.with_key(new[0]), new[1], None)


def _whole(made: Any) -> tuple[Any, Any] | None:
    """Returns the pair that the user's function has made. Returns None if the key or the value in the pair is None."""
    if made is None:
        return None
    key, value = pair(made)
    return None if key is None or value is None else (key, value)
