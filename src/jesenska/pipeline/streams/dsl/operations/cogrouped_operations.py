"""Cogrouping: several grouped streams are aggregated to one value for each key, each stream with its own aggregator.
The aggregation can also be done by windows or sessions.

    purchases.cogroup(add_purchase).cogroup(returns, subtract_return).aggregate(0, store="balance")
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

from jesenska.pipeline.streams.dsl.construction import Construction, TableFacts
from jesenska.pipeline.streams.dsl.functions import Function, Role, function
from jesenska.pipeline.streams.dsl.materialization import Materialized
from jesenska.pipeline.streams.dsl.repartitions import repartition_node
from jesenska.pipeline.streams.dsl.windows import SessionWindows, SlidingWindows, TimeWindows
from jesenska.pipeline.streams.durations import Duration
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.plan import CogroupMerge, SessionAggregate, Store, StreamAggregate, WindowedAggregate
from jesenska.pipeline.streams.serdes.serde import Serde

TableT = TypeVar("TableT")
_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"


class CogroupedKStream(SaysOurName, Generic[TableT]):
    """Several grouped streams that are aggregated together. It is created by `KGroupedStream.cogroup`."""

    def __init__(self, group: Any, aggregator: Any) -> None:
        self._construction: Construction = group._construction
        self._groups: dict[Any, Function] = {}
        self._parents: dict[Any, str] = {}
        self.cogroup(group, aggregator)

    def cogroup(self, group: Any, aggregator: Any) -> CogroupedKStream[TableT]:
        """Adds one more grouped stream. `aggregator(key, value, aggregate)` adds its records to the aggregate."""
        if not hasattr(group, "cogroup") or not hasattr(group, "count"):
            raise refused(
                f"cogroup takes a grouped stream, and not {group!r}: group it with group_by or group_by_key first."
            )
        self._construction.must_have("cogroup", group._stream)
        self._groups[group] = function(Role.AGGREGATOR, aggregator, "cogroup")
        return self

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedCogroupedKStream[TableT]: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[TableT]: ...

    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> TimeWindowedCogroupedKStream[TableT] | SessionWindowedCogroupedKStream[TableT]:
        """Returns the cogrouped stream with an additional grouping by windows or sessions."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self, windows)
        if isinstance(windows, TimeWindows | SlidingWindows):
            return TimeWindowedCogroupedKStream(self, windows)
        raise refused(f"windowed_by takes TimeWindows, SlidingWindows or SessionWindows, and not {windows!r}.")

    def aggregate(
        self,
        initializer: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> TableT:
        """Returns a table with one aggregate for each key. The aggregate begins with `initializer()`."""
        materialized = Materialized(store, key, value, None, logging)
        kept_in = materialized.key_value_store(
            materialized.named(self._construction.names, _AGGREGATE), self._key(), None
        )
        return self._build(StreamAggregate, initializer, kept_in, kept_in.key, name)

    def _key(self) -> Serde | None:
        return next((group.key_serde for group in self._groups if group.key_serde is not None), None)

    def _build(
        self, kind: Any, initializer: Any, kept_in: Store, key: Serde | None, name: str | None, **more: Any
    ) -> TableT:
        """Adds an aggregation for each grouped stream, all with the same store, and a node that merges their
        changes."""
        beginning = function(Role.INITIALIZER, initializer, "aggregate")
        construction, made_at = self._construction, here()
        for group in self._groups:
            self._prepare(group, kept_in.name)
        construction.copartition(source for group in self._groups for source in group._stream.sources)
        parts, facts = [], []
        for number, (group, aggregator) in enumerate(self._groups.items()):
            part = construction.names.named(name, _AGGREGATE, f"-cogroup-agg-{number}")
            facts.append(TableFacts("aggregate", kept=True))
            node = kind(
                name=part,
                inputs=(self._parents[group],),
                made_at=made_at,
                key=key,
                value=kept_in.value,
                store=kept_in,
                operation="aggregate",
                initializer=beginning,
                aggregator=aggregator,
                **more,
            )
            construction.add(node, facts[-1])
            parts.append(part)
        merge = construction.names.named(name, "COGROUPKSTREAM-MERGE-", "-cogroup-merge")
        together = TableFacts("join", *facts, kept=True)
        node = CogroupMerge(
            name=merge, inputs=tuple(parts), made_at=made_at, key=key, value=kept_in.value, store=kept_in
        )
        table: TableT = construction.add_table(node, together, frozenset((merge,)))
        return table

    def _prepare(self, group: Any, store_name: str) -> None:
        """Sets the input of the aggregation of `group`: the group's stream, or a repartition of this stream. All
        aggregations of the group use the same repartition node."""
        stream = group._stream
        if not stream.repartition_required:
            self._parents[group] = stream.name
            return
        node = repartition_node(
            self._construction, stream.name, group._prefix or store_name, key=group.key_serde, value=group.value_serde
        )
        if group not in self._parents:
            self._construction.add(node)
            self._parents[group] = node.name


class TimeWindowedCogroupedKStream(Generic[TableT]):
    """A cogrouped stream that is aggregated by time windows or sliding windows. It is created by
    `CogroupedKStream.windowed_by`."""

    def __init__(self, cogrouped: CogroupedKStream[TableT], windows: TimeWindows | SlidingWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self,
        initializer: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> TableT:
        """Returns a table with one aggregate for each key and window. The aggregate begins with `initializer()`."""
        cogrouped, windows = self._cogrouped, self._windows
        materialized = Materialized(store, key, value, retention, logging)
        store_name = materialized.named(cogrouped._construction.names, _AGGREGATE)
        kept_in, serde = materialized.windowed_store(store_name, cogrouped._key(), None, windows)
        return cogrouped._build(WindowedAggregate, initializer, kept_in, serde, name, windows=windows)


class SessionWindowedCogroupedKStream(Generic[TableT]):
    """A cogrouped stream that is aggregated by sessions. It is created by `CogroupedKStream.windowed_by`."""

    def __init__(self, cogrouped: CogroupedKStream[TableT], windows: SessionWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self,
        initializer: Any,
        merger: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        retention: Duration | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> TableT:
        """Returns a table with one aggregate for each key and session. If a record connects two sessions, `merger(key,
        left, right)` merges their aggregates."""
        cogrouped, windows = self._cogrouped, self._windows
        merging = function(Role.MERGER, merger, "aggregate")
        materialized = Materialized(store, key, value, retention, logging)
        store_name = materialized.named(cogrouped._construction.names, _AGGREGATE)
        kept_in, serde = materialized.windowed_store(store_name, cogrouped._key(), None, windows)
        return cogrouped._build(SessionAggregate, initializer, kept_in, serde, name, windows=windows, merger=merging)
