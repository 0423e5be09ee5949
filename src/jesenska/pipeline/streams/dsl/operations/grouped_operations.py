"""The aggregations of grouped streams and tables. kinds.py derives the program's classes from the classes here:

    KGroupedStream          count, reduce, aggregate; windowed_by returns one of the next two classes
    TimeWindowedKStream     count, reduce, aggregate for each window of TimeWindows or SlidingWindows
    SessionWindowedKStream  count, reduce, aggregate for each session; aggregate needs a merger
    KGroupedTable           count, reduce and aggregate with a subtractor

Each operation takes `store=` (a name, for queries), `key=` and `value=` (the store's serdes; count's values are
longs), `logging=` and `name=`. Windowed operations take `retention=`, the time for which windows stay in the store.
"""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar, overload

from jesenska.pipeline.streams.dsl.construction import Construction, TableFacts
from jesenska.pipeline.streams.dsl.functions import Role, function
from jesenska.pipeline.streams.dsl.materialization import Materialized
from jesenska.pipeline.streams.dsl.operations.cogrouped_operations import CogroupedKStream
from jesenska.pipeline.streams.dsl.repartitions import repartition_node
from jesenska.pipeline.streams.dsl.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from jesenska.pipeline.streams.durations import Duration
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.plan import (
    SessionAggregate,
    Store,
    StreamAggregate,
    TableAggregate,
    TableGroupBy,
    TableRepartition,
    WindowedAggregate,
)
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.serdes.serdes import Serdes

TableT = TypeVar("TableT")


class GroupedStreamOperations(SaysOurName, Generic[TableT]):
    """A stream grouped by key. This class defines the operations of KGroupedStream."""

    def __init__(self, stream: Any, *, key: Serde | None, value: Serde | None, repartition_prefix: str | None) -> None:
        self._stream = stream
        self._construction: Construction = stream._construction
        self._names = self._construction.names
        self.key_serde = key
        self.value_serde = value
        self._prefix = repartition_prefix
        self._repartition: str | None = None

    def count(
        self,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> TableT:
        """Returns a table with the number of records of each key."""
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
    ) -> TableT:
        """Returns a table with one value for each key. `reducer(aggregate, value)` combines the values, beginning with
        the first value."""
        reducing = function(Role.REDUCER, reducer, "reduce")
        return self._aggregate(
            "reduce",
            "KSTREAM-REDUCE-",
            Materialized(store, key, value, None, logging),
            name,
            self.value_serde,
            reducer=reducing,
        )

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
    ) -> TableT:
        """Returns a table with one aggregate for each key. `aggregator(key, value, aggregate)` adds each record,
        beginning with `initializer()`."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, aggregator, "aggregate")
        materialized = Materialized(store, key, value, None, logging)
        return self._aggregate(
            "aggregate", "KSTREAM-AGGREGATE-", materialized, name, None, initializer=beginning, aggregator=adding
        )

    def cogroup(self, aggregator: Any) -> CogroupedKStream[TableT]:
        """Returns a cogrouped stream, to which other grouped streams can be added. `aggregator(key, value, aggregate)`
        adds the records of this stream."""
        return CogroupedKStream(self, aggregator)

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedKStream[TableT]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[TableT]: ...

    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> TimeWindowedKStream[TableT] | SessionWindowedKStream[TableT]:
        """Returns the stream with an additional grouping by windows: a TimeWindowedKStream, or for SessionWindows a
        SessionWindowedKStream."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows)
        if isinstance(windows, TimeWindows | SlidingWindows):
            return TimeWindowedKStream(self, windows)
        raise refused(f"windowed_by takes TimeWindows, SlidingWindows or SessionWindows, and not {windows!r}.")

    def _count_again(self, materialized: Materialized) -> None:
        """Takes a second number for the name of the count if its store is configured but not named. Kafka Streams also
        does so, and the generated names must be the same as in Kafka Streams."""
        if materialized.is_given and materialized.store is None:
            self._names.store("KSTREAM-AGGREGATE-")

    def _aggregate(
        self,
        operation: str,
        prefix: str,
        materialized: Materialized,
        name: str | None,
        value: Serde | None,
        **functions: Any,
    ) -> TableT:
        store_name = materialized.named(self._names, prefix)
        name = self._names.named(name, prefix)
        kept_in = materialized.key_value_store(store_name, self.key_serde, value)
        parent, sources = self._parent(store_name)
        node = StreamAggregate(
            name=name,
            inputs=(parent,),
            made_at=here(),
            key=kept_in.key,
            value=kept_in.value,
            store=kept_in,
            operation=operation,
            **functions,
        )
        table: TableT = self._construction.add_table(node, TableFacts("aggregate", kept=True), sources)
        return table

    def _parent(self, store_name: str) -> tuple[str, frozenset[str]]:
        """Returns the name of the aggregation's input node, and the source nodes of this input. The input is the
        stream, or a repartition of the stream. A repartition that the program has named is used by all aggregations of
        the group."""
        stream = self._stream
        if not stream.repartition_required:
            return stream.name, stream.sources
        node = repartition_node(
            self._construction, stream.name, self._prefix or store_name, key=self.key_serde, value=self.value_serde
        )
        if self._repartition is None or self._prefix is None:
            self._construction.add(node)
            self._repartition = node.name
        else:
            self._construction.add_again(self._repartition)
        return self._repartition, frozenset((self._repartition,))


class _Windowed(SaysOurName, Generic[TableT]):
    """The base class of time-windowed and session-windowed streams."""

    #: The class of the plan's node for an aggregation of this kind of windows.
    _node: type[WindowedAggregate | SessionAggregate]

    def __init__(self, group: GroupedStreamOperations[TableT], windows: Any) -> None:
        self._group = group
        self._windows = windows
        self._emit = EmitStrategy.ON_WINDOW_UPDATE

    def emit_strategy(self, strategy: EmitStrategy) -> Self:
        """Sets the time at which results are forwarded: with every update, or once when the window closes."""
        if not isinstance(strategy, EmitStrategy):
            raise refused(
                f"emit_strategy takes EmitStrategy.ON_WINDOW_UPDATE or EmitStrategy.ON_WINDOW_CLOSE, and not "
                f"{strategy!r}."
            )
        self._emit = strategy
        return self

    def count(
        self,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> TableT:
        """Returns a table with the number of records of each key in each window or session."""
        materialized = Materialized(store, key, value, retention, logging)
        if not isinstance(self._windows, SlidingWindows):
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
    ) -> TableT:
        """Returns a table with one value for each key and window or session. `reducer(aggregate, value)` combines the
        values of records. When sessions are merged, it combines the values of the sessions."""
        reducing = function(Role.REDUCER, reducer, "reduce")
        materialized = Materialized(store, key, value, retention, logging)
        return self._aggregate(
            "reduce", "KSTREAM-REDUCE-", materialized, name, self._group.value_serde, reducer=reducing
        )

    def _aggregate(
        self,
        operation: str,
        prefix: str,
        materialized: Materialized,
        name: str | None,
        value: Serde | None,
        **functions: Any,
    ) -> TableT:
        group = self._group
        store_name = materialized.named(group._names, prefix)
        name = group._names.named(name, prefix)
        kept_in, key = materialized.windowed_store(store_name, group.key_serde, value, self._windows)
        parent, sources = group._parent(store_name)
        node = self._node(
            name=name,
            inputs=(parent,),
            made_at=here(),
            key=key,
            value=kept_in.value,
            store=kept_in,
            operation=operation,
            windows=self._windows,
            emit=self._emit,
            **functions,
        )
        table: TableT = group._construction.add_table(node, TableFacts("aggregate", kept=True), sources)
        return table


class TimeWindowedKStream(_Windowed[TableT]):
    """A stream grouped by key and time window. It is created by `KGroupedStream.windowed_by`."""

    _node = WindowedAggregate

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
    ) -> TableT:
        """Returns a table with one aggregate for each key and window. `aggregator(key, value, aggregate)` adds each
        record."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, aggregator, "aggregate")
        materialized = Materialized(store, key, value, retention, logging)
        return self._aggregate(
            "aggregate", "KSTREAM-AGGREGATE-", materialized, name, None, initializer=beginning, aggregator=adding
        )


class SessionWindowedKStream(_Windowed[TableT]):
    """A stream grouped by key and session. It is created by `KGroupedStream.windowed_by`."""

    _node = SessionAggregate

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
    ) -> TableT:
        """Returns a table with one aggregate for each key and session. `aggregator(key, value, aggregate)` adds each
        record. If a record connects two sessions, `merger(key, left, right)` merges their aggregates."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, aggregator, "aggregate")
        merging = function(Role.MERGER, merger, "aggregate")
        materialized = Materialized(store, key, value, retention, logging)
        return self._aggregate(
            "aggregate",
            "KSTREAM-AGGREGATE-",
            materialized,
            name,
            None,
            initializer=beginning,
            aggregator=adding,
            merger=merging,
        )


class GroupedTableOperations(SaysOurName, Generic[TableT]):
    """A table grouped by new keys. This class defines the operations of KGroupedTable."""

    def __init__(self, construction: Construction, selected: TableGroupBy, name: str | None) -> None:
        self._construction = construction
        self._names = construction.names
        self._select_name = selected.name
        self.key_serde = selected.key
        self.value_serde = selected.value
        self._prefix = name
        self._repartition: str | None = None

    def count(
        self,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> TableT:
        """Returns a table with the number of entries of the original table in each group."""
        return self._aggregate(
            "count", "KTABLE-AGGREGATE-", Materialized(store, key, value, None, logging), name, Serdes.long()
        )

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
    ) -> TableT:
        """Returns a table with one value for each group. `adder(aggregate, value)` adds a value to the group's value,
        and `subtractor(aggregate, value)` removes an old value from it."""
        adding = function(Role.REDUCER, adder, "reduce")
        taking_out = function(Role.REDUCER, subtractor, "reduce")
        materialized = Materialized(store, key, value, None, logging)
        return self._aggregate(
            "reduce", "KTABLE-REDUCE-", materialized, name, self.value_serde, adder=adding, subtractor=taking_out
        )

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
    ) -> TableT:
        """Returns a table with one aggregate for each group. `adder(key, value, aggregate)` adds a value to the
        aggregate, and `subtractor(key, value, aggregate)` removes an old value from it."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        adding = function(Role.AGGREGATOR, adder, "aggregate")
        taking_out = function(Role.AGGREGATOR, subtractor, "aggregate")
        materialized = Materialized(store, key, value, None, logging)
        return self._aggregate(
            "aggregate",
            "KTABLE-AGGREGATE-",
            materialized,
            name,
            None,
            initializer=beginning,
            adder=adding,
            subtractor=taking_out,
        )

    def _aggregate(
        self,
        operation: str,
        prefix: str,
        materialized: Materialized,
        name: str | None,
        value: Serde | None,
        **functions: Any,
    ) -> TableT:
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
        node = TableAggregate(
            name=name,
            inputs=(self._repartition,),
            made_at=here(),
            key=kept_in.key,
            value=kept_in.value,
            store=kept_in,
            operation=operation,
            **functions,
        )
        table: TableT = self._construction.add_table(
            node, TableFacts("aggregate", kept=True), frozenset((self._repartition,))
        )
        return table
