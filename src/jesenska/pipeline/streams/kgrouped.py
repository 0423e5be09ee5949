"""Grouped streams and tables, and windows over grouped streams: what aggregations are asked of.

    KGroupedStream        count, reduce, aggregate; windowed_by gives one of the next two
    TimeWindowedKStream   the same for each window of TimeWindows or SlidingWindows
    SessionWindowedKStream  the same for each session; aggregate needs a merger
    KGroupedTable         count, reduce and aggregate with a subtractor

Each takes `store=` (a name, for queries), `key=`, `value=` (the store's serdes; count's values are longs), `logging=`
and `name=`; windowed ones `retention=`, how long windows stay in the store.
"""

from __future__ import annotations

from typing import Any

from jesenska.pipeline.streams.construction import TableFacts
from jesenska.pipeline.streams.durations import Duration
from jesenska.pipeline.streams.functions import Function, Role, function
from jesenska.pipeline.streams.kstream import KStream, repartition_node
from jesenska.pipeline.streams.ktable import KTable
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.materialization import Materialized
from jesenska.pipeline.streams.plan import SessionAggregate, Store, StreamAggregate, TableAggregate, TableGroupBy, TableRepartition, WindowedAggregate
from jesenska.pipeline.streams.serdes import Serde, Serdes
from jesenska.pipeline.streams.windowed_keys import SessionWindowedSerde, TimeWindowedSerde
from jesenska.pipeline.streams.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows


class KGroupedStream:
    """A stream grouped by its keys. Made by `KStream.group_by` and `group_by_key`."""

    def __init__(self, stream: KStream, *, key: Serde | None, value: Serde | None, repartition_prefix: str | None) -> None:
        self._stream = stream
        self._construction = stream._construction
        self._names = stream._names
        self.key_serde = key
        self.value_serde = value
        self._prefix = repartition_prefix
        self._repartition: str | None = None

    def count(self, *, store: str | None = None, key: Serde | None = None, value: Serde | None = None, logging: bool = True, name: str | None = None) -> KTable:
        """How many records each key has."""
        materialized = Materialized(store, key, value, None, logging)
        self._count_again(materialized)
        return self._aggregate("count", "KSTREAM-AGGREGATE-", materialized, name, Serdes.long())

    def reduce(
        self,
        reducer: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """The values of each key combined by `reducer(aggregate, value)`, beginning with the first value."""
        reducing = function(Role.REDUCER, reducer, "reduce")
        return self._aggregate("reduce", "KSTREAM-REDUCE-", Materialized(store, key, value, None, logging), name, self.value_serde, reducer=reducing)

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """The records of each key put together by `aggregator(key, value, aggregate)`, beginning with `initializer()`."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, aggregator, "aggregate")
        materialized = Materialized(store, key, value, None, logging)
        return self._aggregate("aggregate", "KSTREAM-AGGREGATE-", materialized, name, None, initializer=beginning, aggregator=adding)

    def windowed_by(self, windows: TimeWindows | SlidingWindows | SessionWindows) -> Any:
        """Grouped by windows as well: gives a TimeWindowedKStream, or for SessionWindows a SessionWindowedKStream."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        if isinstance(windows, TimeWindows | SlidingWindows):
            return TimeWindowedKStream(self, windows)
        raise refused(f"windowed_by takes TimeWindows, SlidingWindows or SessionWindows, and not {windows!r}.")

    def _count_again(self, materialized: Materialized) -> None:
        """Where count is told of its store but not its name, Kafka Streams takes two numbers for it."""
        if materialized.is_given and materialized.store is None:
            self._names.store("KSTREAM-AGGREGATE-")

    def _aggregate(
        self, operation: str, prefix: str, materialized: Materialized, name: str | None, value: Serde | None, **functions: Function | None
    ) -> KTable:
        store_name = materialized.named(self._names, prefix)
        name = self._names.named(name, prefix)
        kept_in = materialized.key_value_store(store_name, self.key_serde, value)
        parent, sources = self._parent(store_name)
        facts = TableFacts("aggregate", kept=True)
        node = StreamAggregate(
            name=name, inputs=(parent,), made_at=here(), key=kept_in.key, value=kept_in.value, store=kept_in, operation=operation, **functions
        )
        self._construction.add(node, facts)
        return KTable(self._construction, name, facts, key=kept_in.key, value=kept_in.value, sources=sources)

    def _parent(self, store_name: str) -> tuple[str, frozenset[str]]:
        """What feeds the aggregation: the stream, or a repartition of it. One that the program has named serves all
        aggregations of the group."""
        stream = self._stream
        if not stream.repartition_required:
            return stream.name, stream.sources
        node = repartition_node(self._construction, stream.name, self._prefix or store_name, key=self.key_serde, value=self.value_serde)
        if self._repartition is None or self._prefix is None:
            self._construction.add(node)
            self._repartition = node.name
        else:
            self._construction.add_again(self._repartition)
        return self._repartition, frozenset((self._repartition,))


class _Windowed:
    """What both kinds of windowed streams have."""

    def __init__(self, group: KGroupedStream, windows: Any) -> None:
        self._group = group
        self._windows = windows
        self._emit = EmitStrategy.ON_WINDOW_UPDATE

    def emit_strategy(self, strategy: EmitStrategy) -> Any:
        """When results are given: with every update, or once when the window closes."""
        if not isinstance(strategy, EmitStrategy):
            raise refused(f"emit_strategy takes EmitStrategy.ON_WINDOW_UPDATE or EmitStrategy.ON_WINDOW_CLOSE, and not {strategy!r}.")
        self._emit = strategy
        return self


class TimeWindowedKStream(_Windowed):
    """Made by `KGroupedStream.windowed_by`."""

    _windows: TimeWindows | SlidingWindows

    def count(
        self,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """How many records each key has in each window."""
        materialized = Materialized(store, key, value, retention, logging)
        if isinstance(self._windows, TimeWindows):
            self._group._count_again(materialized)
        return self._aggregate("count", "KSTREAM-AGGREGATE-", materialized, name, Serdes.long())

    def reduce(
        self,
        reducer: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """The values of each key and window combined by `reducer(aggregate, value)`."""
        reducing = function(Role.REDUCER, reducer, "reduce")
        materialized = Materialized(store, key, value, retention, logging)
        return self._aggregate("reduce", "KSTREAM-REDUCE-", materialized, name, self._group.value_serde, reducer=reducing)

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """The records of each key and window put together by `aggregator(key, value, aggregate)`."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, aggregator, "aggregate")
        materialized = Materialized(store, key, value, retention, logging)
        return self._aggregate("aggregate", "KSTREAM-AGGREGATE-", materialized, name, None, initializer=beginning, aggregator=adding)

    def _aggregate(
        self, operation: str, prefix: str, materialized: Materialized, name: str | None, value: Serde | None, **functions: Function | None
    ) -> KTable:
        group, windows = self._group, self._windows
        if isinstance(windows, TimeWindows):
            size_ms = windows.size_ms
            shortest_ms = size_ms + windows.grace_ms
        else:
            size_ms = windows.time_difference_ms
            shortest_ms = 2 * size_ms + windows.grace_ms
        store_name = materialized.named(group._names, prefix)
        name = group._names.named(name, prefix)
        kept_in = materialized.window_store(store_name, group.key_serde, value, size_ms, shortest_ms)
        parent, sources = group._parent(store_name)
        key = None if kept_in.key is None else TimeWindowedSerde(kept_in.key, size_ms)
        facts = TableFacts("aggregate", kept=True)
        node = WindowedAggregate(
            name=name,
            inputs=(parent,),
            made_at=here(),
            key=key,
            value=kept_in.value,
            store=kept_in,
            operation=operation,
            windows=windows,
            emit=self._emit,
            **functions,
        )
        group._construction.add(node, facts)
        return KTable(group._construction, name, facts, key=key, value=kept_in.value, sources=sources)


class SessionWindowedKStream(_Windowed):
    """Made by `KGroupedStream.windowed_by`."""

    _windows: SessionWindows

    def count(
        self,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """How many records each session has."""
        materialized = Materialized(store, key, value, retention, logging)
        self._group._count_again(materialized)
        return self._aggregate("count", "KSTREAM-AGGREGATE-", materialized, name, Serdes.long())

    def reduce(
        self,
        reducer: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """The values of each session combined by `reducer(aggregate, value)`; it combines sessions as well."""
        reducing = function(Role.REDUCER, reducer, "reduce")
        materialized = Materialized(store, key, value, retention, logging)
        return self._aggregate("reduce", "KSTREAM-REDUCE-", materialized, name, self._group.value_serde, reducer=reducing)

    def aggregate(
        self,
        initializer: Any,
        aggregator: Any,
        merger: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """The records of each session put together by `aggregator(key, value, aggregate)`; two sessions that a record
        joins become one by `merger(key, left, right)`."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, aggregator, "aggregate")
        merging = function(Role.MERGER, merger, "aggregate")
        materialized = Materialized(store, key, value, retention, logging)
        return self._aggregate("aggregate", "KSTREAM-AGGREGATE-", materialized, name, None, initializer=beginning, aggregator=adding, merger=merging)

    def _aggregate(
        self, operation: str, prefix: str, materialized: Materialized, name: str | None, value: Serde | None, **functions: Function | None
    ) -> KTable:
        group, windows = self._group, self._windows
        store_name = materialized.named(group._names, prefix)
        name = group._names.named(name, prefix)
        kept_in = materialized.session_store(store_name, group.key_serde, value, windows.inactivity_gap_ms + windows.grace_ms)
        parent, sources = group._parent(store_name)
        key = None if kept_in.key is None else SessionWindowedSerde(kept_in.key)
        facts = TableFacts("aggregate", kept=True)
        node = SessionAggregate(
            name=name,
            inputs=(parent,),
            made_at=here(),
            key=key,
            value=kept_in.value,
            store=kept_in,
            operation=operation,
            windows=windows,
            emit=self._emit,
            **functions,
        )
        group._construction.add(node, facts)
        return KTable(group._construction, name, facts, key=key, value=kept_in.value, sources=sources)


class KGroupedTable:
    """A table grouped by new keys. Made by `KTable.group_by`."""

    def __init__(self, table: KTable, select_name: str, *, key: Serde | None, value: Serde | None, name: str | None) -> None:
        self._construction = table._construction
        self._names = table._names
        self._select_name = select_name
        self.key_serde = key
        self.value_serde = value
        self._prefix = name
        self._repartition: str | None = None

    def count(self, *, store: str | None = None, key: Serde | None = None, value: Serde | None = None, logging: bool = True, name: str | None = None) -> KTable:
        """How many keys of the table each group has."""
        return self._aggregate("count", "KTABLE-AGGREGATE-", Materialized(store, key, value, None, logging), name, Serdes.long())

    def reduce(
        self,
        adder: Any,
        subtractor: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """Values put in by `adder(aggregate, value)` and taken out by `subtractor(aggregate, value)`."""
        adding = function(Role.REDUCER, adder, "reduce")
        taking_out = function(Role.REDUCER, subtractor, "reduce")
        materialized = Materialized(store, key, value, None, logging)
        return self._aggregate("reduce", "KTABLE-REDUCE-", materialized, name, self.value_serde, adder=adding, subtractor=taking_out)

    def aggregate(
        self,
        initializer: Any,
        adder: Any,
        subtractor: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> KTable:
        """Values put in by `adder(key, value, aggregate)` and taken out by `subtractor(key, value, aggregate)`."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, adder, "aggregate")
        taking_out = function(Role.AGGREGATOR, subtractor, "aggregate")
        materialized = Materialized(store, key, value, None, logging)
        return self._aggregate("aggregate", "KTABLE-AGGREGATE-", materialized, name, None, initializer=beginning, adder=adding, subtractor=taking_out)

    def _aggregate(
        self, operation: str, prefix: str, materialized: Materialized, name: str | None, value: Serde | None, **functions: Function | None
    ) -> KTable:
        names = self._names
        store_name = materialized.named(names, "KTABLE-AGGREGATE-")
        sink = names.named(name, "KSTREAM-SINK-", "-sink")
        source = names.named(name, "KSTREAM-SOURCE-", "-source")
        name = names.named(name, prefix)
        if self._repartition is None or self._prefix is None:
            repartition = TableRepartition(
                name=source,
                inputs=(self._select_name,),
                made_at=here(),
                key=self.key_serde,
                value=self.value_serde,
                topic=f"{self._prefix or store_name}-repartition",
                sink_name=sink,
            )
            self._construction.add(repartition)
            self._repartition = source
        else:
            self._construction.add_again(self._repartition)
        kept_in: Store = materialized.key_value_store(store_name, self.key_serde, value)
        facts = TableFacts("aggregate", kept=True)
        node = TableAggregate(
            name=name, inputs=(self._repartition,), made_at=here(), key=kept_in.key, value=kept_in.value, store=kept_in, operation=operation, **functions
        )
        self._construction.add(node, facts)
        return KTable(self._construction, name, facts, key=kept_in.key, value=kept_in.value, sources=frozenset((self._repartition,)))


def group_table(table: KTable, mapper: Any, key: Serde | None, value: Serde | None, name: str | None) -> KGroupedTable:
    """What `KTable.group_by` gives."""
    mapping = function(Role.PAIR_MAPPER, mapper, "group_by")
    select = table._names.named(name, "KTABLE-SELECT-")
    table.facts.send_old_values(True)
    table._construction.add(TableGroupBy(name=select, inputs=(table.name,), made_at=here(), key=key, value=value, mapper=mapping, sends_old_values=True))
    return KGroupedTable(table, select, key=key, value=value, name=name)
