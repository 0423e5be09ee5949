"""The operations of a stream of records, KStream (kinds.py).

Operations have Kafka Streams' names, in snake_case. Functions are the first arguments; all others are keywords:

    name=          the operation's name in the topology (Named, Grouped, Joined, Consumed, Produced, …)
    key=, value=   the serdes of the topic or store that the operation writes, and of its output
    store=         the name of the table's store, for queries

A function is a Python callable or a column expression; `functions.py` lists its arguments. After a function has made a
new key or value, the serde of the new key or value is not known. This is so after `map` (key and value), `map_values`
(value) and `select_key` (key). Then the default serdes of the settings are used, as in Kafka Streams. Name other
serdes with key= and value=.

After an operation that makes new keys, the stream must be repartitioned. This is done through an internal topic,
before the next operation that needs equal keys in one partition (an aggregation, or a join with a stream or a table).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, Self, TypeVar

from jesenska.pipeline.streams.dsl import shown
from jesenska.pipeline.streams.dsl.construction import Construction, TableFacts
from jesenska.pipeline.streams.dsl.functions import Function, Role, function
from jesenska.pipeline.streams.dsl.materialization import Materialized, check_serde
from jesenska.pipeline.streams.dsl.operations.table_operations import GlobalKTable, TableOperations
from jesenska.pipeline.streams.dsl.processing import (
    Processor,
    Transformer,
    ValueTransformer,
    ValueTransformerWithKey,
    check_supplier,
)
from jesenska.pipeline.streams.dsl.repartitions import Partitioner, repartition_node
from jesenska.pipeline.streams.dsl.stream_joins import StreamJoinNames, StreamJoinStores
from jesenska.pipeline.streams.dsl.stream_sources import stream_source
from jesenska.pipeline.streams.dsl.windows import JoinWindows
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.names import checked
from jesenska.pipeline.streams.plan import (
    Branch,
    BranchChild,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Process,
    Repartition,
    SelectKey,
    Sink,
    StreamGlobalTableJoin,
    StreamStreamJoin,
    StreamTableJoin,
    ToTable,
)
from jesenska.pipeline.streams.serdes.serde import Serde

TableT = TypeVar("TableT")
GroupedT = TypeVar("GroupedT")
StreamT = TypeVar("StreamT")


class StreamOperations(SaysOurName, Generic[TableT, GroupedT]):
    """A stream of records. This class defines the operations of KStream. It has more than 500 lines, since KStream has
    many operations, and users look for all of them here."""

    _INSTEAD: ClassVar[dict[str, str]] = {
        name: f"group_by_key().{name}(…)" for name in ("count", "reduce", "aggregate", "windowed_by")
    }

    def __init__(
        self,
        construction: Construction,
        name: str,
        *,
        key: Serde | None,
        value: Serde | None,
        sources: frozenset[str],
        repartition_required: bool = False,
    ) -> None:
        self._construction = construction
        self._names = construction.names
        self.name = name
        self.key_serde = key
        self.value_serde = value
        self.sources = sources
        self.repartition_required = repartition_required
        self._repartition_name: str | None = None

    def __repr__(self) -> str:
        return shown.line_of("KStream", self._construction, self.name, self.key_serde, self.value_serde)

    def _repr_html_(self) -> str:
        return shown.table_of("KStream", self._construction, self.name, self.key_serde, self.value_serde)

    def _then(self, node: Node, *, keys_change: bool = False) -> Self:
        """Adds the node to the plan, and returns the stream of its output."""
        self._construction.add(node)
        return type(self)(
            self._construction,
            node.name,
            key=node.key,
            value=node.value,
            sources=self.sources,
            repartition_required=self.repartition_required or keys_change,
        )

    # Operations on single records

    def filter(self, predicate: Any, *, name: str | None = None) -> Self:
        """Returns the stream of the records for which `predicate(key, value)` is True."""
        return self._filter(predicate, False, name)

    def filter_not(self, predicate: Any, *, name: str | None = None) -> Self:
        """Returns the stream of the records for which `predicate(key, value)` is not True."""
        return self._filter(predicate, True, name)

    def _filter(self, predicate: Any, negated: bool, name: str | None) -> Self:
        chosen = function(Role.PREDICATE, predicate, "filter_not" if negated else "filter")
        name = self._names.named(name, "KSTREAM-FILTER-")
        return self._then(
            Filter(
                name=name,
                inputs=(self.name,),
                made_at=here(),
                key=self.key_serde,
                value=self.value_serde,
                predicate=chosen,
                negated=negated,
            )
        )

    def map(
        self, mapper: Any, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> Self:
        """Returns a stream in which each record has the new key and value that `mapper(key, value)` returns as a
        pair."""
        mapping = function(Role.PAIR_MAPPER, mapper, "map")
        _check(key, value)
        name = self._names.named(name, "KSTREAM-MAP-")
        return self._then(
            Map(name=name, inputs=(self.name,), made_at=here(), key=key, value=value, mapper=mapping), keys_change=True
        )

    def map_values(self, mapper: Any, *, value: Serde | None = None, name: str | None = None) -> Self:
        """Returns a stream in which each record has a new value: the result of `mapper(value)` or `mapper(key,
        value)`."""
        mapping = function(Role.VALUE_MAPPER, mapper, "map_values")
        _check(None, value)
        name = self._names.named(name, "KSTREAM-MAPVALUES-")
        return self._then(
            MapValues(name=name, inputs=(self.name,), made_at=here(), key=self.key_serde, value=value, mapper=mapping)
        )

    def flat_map(
        self, mapper: Any, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> Self:
        """Returns a stream in which each record is replaced by all pairs of key and value that `mapper(key, value)`
        returns."""
        mapping = function(Role.PAIR_MAPPER, mapper, "flat_map")
        _check(key, value)
        name = self._names.named(name, "KSTREAM-FLATMAP-")
        return self._then(
            FlatMap(name=name, inputs=(self.name,), made_at=here(), key=key, value=value, mapper=mapping),
            keys_change=True,
        )

    def flat_map_values(self, mapper: Any, *, value: Serde | None = None, name: str | None = None) -> Self:
        """Returns a stream in which each record is replaced by records with all values that `mapper(value)` or
        `mapper(key, value)` returns."""
        mapping = function(Role.VALUE_MAPPER, mapper, "flat_map_values")
        _check(None, value)
        name = self._names.named(name, "KSTREAM-FLATMAPVALUES-")
        return self._then(
            FlatMapValues(
                name=name, inputs=(self.name,), made_at=here(), key=self.key_serde, value=value, mapper=mapping
            )
        )

    def select_key(self, mapper: Any, *, key: Serde | None = None, name: str | None = None) -> Self:
        """Returns a stream in which each record has a new key: the result of `mapper(key, value)`."""
        return self._select_key(mapper, "select_key", key, name)

    def _select_key(self, mapper: Any, operation: str, key: Serde | None, name: str | None) -> Self:
        mapping = function(Role.KEY_MAPPER, mapper, operation)
        _check(key, None)
        name = self._names.named(name, "KSTREAM-KEY-SELECT-")
        return self._then(
            SelectKey(name=name, inputs=(self.name,), made_at=here(), key=key, value=self.value_serde, mapper=mapping),
            keys_change=True,
        )

    def peek(self, action: Any, *, name: str | None = None) -> Self:
        """Returns the unchanged stream. `action(key, value)` is called for each record."""
        seen = function(Role.ACTION, action, "peek")
        name = self._names.named(name, "KSTREAM-PEEK-")
        return self._then(
            Peek(
                name=name, inputs=(self.name,), made_at=here(), key=self.key_serde, value=self.value_serde, action=seen
            )
        )

    def foreach(self, action: Any, *, name: str | None = None) -> None:
        """Calls `action(key, value)` for each record. No operation can follow."""
        seen = function(Role.ACTION, action, "foreach")
        name = self._names.named(name, "KSTREAM-FOREACH-")
        self._construction.add(Foreach(name=name, inputs=(self.name,), made_at=here(), action=seen))

    def print(self, label: str | None = None, *, name: str | None = None) -> None:
        """Prints each record to standard output as `[label]: key, value`. No operation can follow."""
        name = self._names.named(name, "KSTREAM-PRINTER-")
        shown = f"[{label or self.name}]: "

        def show(key: Any, value: Any) -> None:
            print(f"{shown}{key}, {value}")  # noqa: T201

        self._construction.add(
            Foreach(name=name, inputs=(self.name,), made_at=here(), action=function(Role.ACTION, show, "print"))
        )

    # Several streams

    def branch(self, *predicates: Any, name: str | None = None) -> list[Self]:
        """Returns one stream for each predicate. A record goes to the stream of the first predicate that is True for
        this record. If no predicate is True, the record is dropped."""
        if not predicates:
            raise refused("branch needs at least one predicate: give one for each stream that you want.")
        chosen = tuple(function(Role.PREDICATE, predicate, "branch") for predicate in predicates)
        branch_name = self._names.named(name, "KSTREAM-BRANCH-")
        children = tuple(
            self._names.named(name, "KSTREAM-BRANCHCHILD-", f"-predicate-{number}") for number in range(len(predicates))
        )
        made_at = here()
        self._construction.add(
            Branch(
                name=branch_name,
                inputs=(self.name,),
                made_at=made_at,
                key=self.key_serde,
                value=self.value_serde,
                predicates=chosen,
                children=children,
            )
        )
        return [
            self._then(
                BranchChild(
                    name=child, inputs=(branch_name,), made_at=made_at, key=self.key_serde, value=self.value_serde
                )
            )
            for child in children
        ]

    def split(self, *, name: str | None = None) -> BranchedKStream[Self]:
        """Splits the stream into named branches. `split(name="s-").branch(…, name="a").default_branch(name="b")`
        returns {"s-a": stream, "s-b": stream}."""
        name = self._names.named(name, "KSTREAM-BRANCH-")
        self._construction.add(
            Branch(name=name, inputs=(self.name,), made_at=here(), key=self.key_serde, value=self.value_serde)
        )
        return BranchedKStream(self, name)

    def merge(self, other: StreamOperations[Any, Any], *, name: str | None = None) -> Self:
        """Returns one stream with the records of both streams. The new stream has a known serde only if both streams
        have this same serde, as in Kafka Streams."""
        _check_stream("merge", other)
        self._construction.must_have("merge", other)
        name = self._names.named(name, "KSTREAM-MERGE-")
        key = self.key_serde if self.key_serde is other.key_serde else None
        value = self.value_serde if self.value_serde is other.value_serde else None
        self._construction.add(Merge(name=name, inputs=(self.name, other.name), made_at=here(), key=key, value=value))
        return type(self)(
            self._construction,
            name,
            key=key,
            value=value,
            sources=self.sources | other.sources,
            repartition_required=self.repartition_required or other.repartition_required,
        )

    # Topics

    def to(
        self,
        topic: Any,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the records to a topic, or to the topic that `topic(key, value)` returns for each record. The topics
        must exist. No operation can follow."""
        _check(key, value)
        fixed = checked(topic) if isinstance(topic, str) else None
        extractor = function(Role.TOPIC_EXTRACTOR, topic, "to") if fixed is None else None
        name = self._names.named(name, "KSTREAM-SINK-")
        self._construction.add(
            Sink(
                name=name,
                inputs=(self.name,),
                made_at=here(),
                key=key or self.key_serde,
                value=value or self.value_serde,
                topic=fixed,
                topic_extractor=extractor,
                partitioner=partitioner,
            )
        )

    def through(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> Self:
        """Writes the records to a topic of the user and reads them again. `repartition` does this with an internal
        topic."""
        self.to(topic, key=key, value=value, partitioner=partitioner)
        source = stream_source(
            self._construction, (topic,), None, key=key or self.key_serde, value=value or self.value_serde
        )
        return type(self)(
            self._construction, source.name, key=source.key, value=source.value, sources=frozenset((source.name,))
        )

    def repartition(
        self,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> Self:
        """Writes the records to the internal topic `<application.id>-<name>-repartition` and reads them again. The
        topic has `partitions` partitions, by default as many as the input."""
        _check(key, value)
        if partitions is not None and partitions < 1:
            raise refused(f"a topic cannot have {partitions} partitions: give at least 1.")
        prefix = self._names.processor("KSTREAM-REPARTITION-") if name is None else checked(name)
        repartitioned = self._through_internal_topic(
            prefix,
            key,
            value or self.value_serde,
            partitions=partitions,
            partitioner=partitioner,
            asked_for=True,
            default_key=key or self.key_serde,
        )
        self._construction.add(repartitioned)
        return self._after(repartitioned)

    def _through_internal_topic(
        self,
        prefix: str,
        key: Serde | None,
        value: Serde | None,
        *,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        asked_for: bool = False,
        default_key: Serde | None = None,
    ) -> Repartition:
        return repartition_node(
            self._construction,
            self.name,
            prefix,
            key=key or default_key,
            value=value,
            partitions=partitions,
            partitioner=partitioner,
            asked_for=asked_for,
        )

    def _after(self, repartition: Repartition) -> Self:
        return type(self)(
            self._construction,
            repartition.name,
            key=repartition.key,
            value=repartition.value,
            sources=frozenset((repartition.name,)),
        )

    def _repartitioned_for_join(self, prefix: str, key: Serde | None, value: Serde | None) -> Self:
        node = self._through_internal_topic(prefix, key or self.key_serde, value or self.value_serde)
        if self._repartition_name is None or self.name != prefix:
            self._construction.add(node)
            self._repartition_name = node.name
            return self._after(node)
        existing = self._construction.node(self._repartition_name)
        assert isinstance(existing, Repartition)
        return self._after(existing)

    # Tables

    def to_table(
        self,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> TableT:
        """Returns a table of the stream's latest records: a key has the value of its latest record, and a record with
        a null value deletes the key."""
        materialized = Materialized(store, key, value, None, logging)
        made_at = here()
        name = self._names.named(name, "KSTREAM-TOTABLE-")
        store_name = materialized.named(self._names, "KSTREAM-TOTABLE-")
        key, value = key or self.key_serde, value or self.value_serde
        parent, sources = self.name, self.sources
        if self.repartition_required:
            node = self._through_internal_topic(name, key, value)
            self._construction.add(node)
            parent, sources = node.name, frozenset((node.name,))
        facts = TableFacts("source", kept=store is not None)
        kept_in = materialized.key_value_store(store_name, key, value)
        kept = ToTable(name=name, inputs=(parent,), made_at=made_at, key=key, value=value, store=kept_in)
        table: TableT = self._construction.add_table(kept, facts, sources)
        return table

    def group_by(
        self, mapper: Any, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> GroupedT:
        """Returns the stream grouped by the new keys that `mapper(key, value)` returns. The records go through an
        internal topic before the aggregation; `name` is part of the topic's name."""
        selected = self._select_key(mapper, "group_by", key, name)
        grouped: GroupedT = self._construction.make.grouped_stream(
            selected, key=key, value=value or self.value_serde, repartition_prefix=name
        )
        return grouped

    def group_by_key(
        self, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> GroupedT:
        """Returns the stream grouped by the present keys of its records."""
        _check(key, value)
        grouped: GroupedT = self._construction.make.grouped_stream(
            self, key=key or self.key_serde, value=value or self.value_serde, repartition_prefix=name
        )
        return grouped

    # Joins

    def join(
        self,
        other: Any,
        joiner: Any,
        windows: JoinWindows | None = None,
        *,
        key_selector: Any = None,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Joins this stream with a stream, a table or a global table. `joiner(left, right)` or `joiner(key, left,
        right)` computes the value of the result.

        For a join with a stream, `windows` limits the time difference of two records. `key`, `value` and `other_value`
        are the serdes of the join's stores, and `store` is the first part of the stores' names. For a join with a
        table, `key` and `value` are the serdes of the repartition topic, if the stream must be repartitioned. For a
        join with a global table, `key_selector(key, value)` returns the key that is looked up in the table."""
        return self._join(
            "inner",
            other,
            joiner,
            windows,
            key_selector=key_selector,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
            name=name,
        )

    def left_join(
        self,
        other: Any,
        joiner: Any,
        windows: JoinWindows | None = None,
        *,
        key_selector: Any = None,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Joins like `join`, but keeps every record of this stream: a record without a partner is joined with None."""
        return self._join(
            "left",
            other,
            joiner,
            windows,
            key_selector=key_selector,
            key=key,
            value=value,
            other_value=other_value,
            store=store,
            name=name,
        )

    def outer_join(
        self,
        other: StreamOperations[Any, Any],
        joiner: Any,
        windows: JoinWindows | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> Self:
        """Joins with another stream like `join`, but keeps every record of both streams: a record without a partner is
        joined with None."""
        return self._join(
            "outer", other, joiner, windows, key=key, value=value, other_value=other_value, store=store, name=name
        )

    def _join(self, kind: str, other: Any, joiner: Any, windows: JoinWindows | None, **options: Any) -> Self:
        operation = {"inner": "join", "left": "left_join", "outer": "outer_join"}[kind]
        joining = function(Role.JOINER, joiner, operation)
        given = {name: option for name, option in options.items() if option is not None}
        if isinstance(other, StreamOperations | TableOperations | GlobalKTable):
            self._construction.must_have(operation, other)
        if isinstance(other, StreamOperations):
            if not isinstance(windows, JoinWindows):
                raise refused(
                    f"{operation} with a stream needs windows: give JoinWindows(…), which says how far apart two "
                    f"records may be."
                )
            _take_only(operation, given, "a stream", ("key", "value", "other_value", "store", "name"))
            return self._join_stream(kind, other, joining, windows, **given)
        if windows is not None and kind != "outer" and isinstance(other, GlobalKTable):
            raise refused(
                f"{operation} with a global table takes the joiner alone by position: give the function for the "
                f"table's key as key_selector=."
            )
        if windows is not None:
            raise refused(f"{operation} with a table takes no windows: leave them out, or join with a stream.")
        if kind != "outer" and isinstance(other, TableOperations):
            _take_only(operation, given, "a table", ("key", "value", "name"))
            return self._join_table(kind, other, joining, **given)
        if kind != "outer" and isinstance(other, GlobalKTable):
            _take_only(operation, given, "a global table", ("key_selector", "name"))
            if "key_selector" not in given:
                raise refused(
                    f"{operation} with a global table needs key_selector=, a function of key and value that gives "
                    f"the table's key."
                )
            return self._join_global_table(kind, other, joining, operation, **given)
        raise refused(
            f"{operation} of a stream takes "
            f"{'a KStream' if kind == 'outer' else 'a KStream, a KTable or a GlobalKTable'}, and not {other!r}."
        )

    def _join_stream(
        self,
        kind: str,
        other: StreamOperations[Any, Any],
        joiner: Function,
        windows: JoinWindows,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> Self:
        _check(key, value)
        check_serde("other_value", other_value)
        this = self
        if this.repartition_required:
            this = this._repartitioned_for_join(this.name if name is None else checked(f"{name}-left"), key, value)
        if other.repartition_required:
            other = other._repartitioned_for_join(
                other.name if name is None else checked(f"{name}-right"), key, other_value
            )
        sources = self._construction.copartition(this.sources | other.sources)
        names = StreamJoinNames.of(kind, self._names, name)
        key_serde = key or this.key_serde
        stores = StreamJoinStores(kind, names, store, windows, key_serde)
        node = StreamStreamJoin(
            name=names.merge,
            inputs=(this.name, other.name),
            made_at=here(),
            key=key_serde,
            joiner=joiner,
            kind=kind,
            windows=windows,
            this_windowed_name=names.this.windowed,
            other_windowed_name=names.other.windowed,
            this_join_name=names.this.join,
            other_join_name=names.other.join,
            this_store=stores.of(names.this, value or this.value_serde),
            other_store=stores.of(names.other, other_value or other.value_serde),
            outer_store=stores.unmatched(),
        )
        self._construction.add(node)
        return type(self)(self._construction, names.merge, key=key_serde, value=None, sources=sources)

    def _join_table(
        self,
        kind: str,
        table: TableOperations[Any, Any],
        joiner: Function,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> Self:
        _check(key, value)
        this = self._repartitioned_for_join(name or self.name, key, value) if self.repartition_required else self
        sources = self._construction.copartition(this.sources | table.sources)
        name = self._names.named(name, "KSTREAM-LEFTJOIN-" if kind == "left" else "KSTREAM-JOIN-")
        table.facts.look_up()
        key = key or this.key_serde
        self._construction.add(
            StreamTableJoin(
                name=name, inputs=(this.name,), made_at=here(), key=key, table=table.name, joiner=joiner, kind=kind
            )
        )
        return type(self)(self._construction, name, key=key, value=None, sources=sources)

    def _join_global_table(
        self,
        kind: str,
        table: GlobalKTable,
        joiner: Function,
        operation: str,
        *,
        key_selector: Any,
        name: str | None = None,
    ) -> Self:
        selector = function(Role.KEY_MAPPER, key_selector, operation)
        # Kafka Streams also gives an inner join a name with LEFTJOIN.
        name = self._names.named(name, "KSTREAM-LEFTJOIN-")
        return self._then(
            StreamGlobalTableJoin(
                name=name,
                inputs=(self.name,),
                made_at=here(),
                key=self.key_serde,
                table=table.name,
                key_selector=selector,
                joiner=joiner,
                kind=kind,
            )
        )

    # The user's own processors

    def process(
        self,
        supplier: Callable[[], Any],
        *stores: str,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> Self:
        """Adds a Processor of the user's program, connected to the named stores. Returns the stream of the records
        that it forwards."""
        return self._process(supplier, (Processor,), "process", "KSTREAM-PROCESSOR-", stores, key, value, name)

    def process_values(
        self, supplier: Callable[[], Any], *stores: str, value: Serde | None = None, name: str | None = None
    ) -> Self:
        """Adds a Processor of the user's program that leaves the keys unchanged. So no repartition is needed after
        this operation."""
        return self._process(
            supplier, (Processor,), "process-values", "KSTREAM-PROCESSVALUES-", stores, self.key_serde, value, name
        )

    def transform(
        self,
        supplier: Callable[[], Any],
        *stores: str,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> Self:
        """Adds a Transformer of the user's program. For each record, the Transformer returns a pair of key and value,
        or None for no record."""
        return self._process(supplier, (Transformer,), "transform", "KSTREAM-TRANSFORM-", stores, key, value, name)

    def flat_transform(
        self,
        supplier: Callable[[], Any],
        *stores: str,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> Self:
        """Adds a Transformer of the user's program. For each record, the Transformer returns any number of pairs of
        key and value."""
        return self._process(supplier, (Transformer,), "flat-transform", "KSTREAM-TRANSFORM-", stores, key, value, name)

    def transform_values(
        self, supplier: Callable[[], Any], *stores: str, value: Serde | None = None, name: str | None = None
    ) -> Self:
        """Adds a ValueTransformer or ValueTransformerWithKey of the user's program. For each record, it returns the
        new value."""
        return self._process(
            supplier,
            (ValueTransformer, ValueTransformerWithKey),
            "transform-values",
            "KSTREAM-TRANSFORMVALUES-",
            stores,
            self.key_serde,
            value,
            name,
        )

    def flat_transform_values(
        self, supplier: Callable[[], Any], *stores: str, value: Serde | None = None, name: str | None = None
    ) -> Self:
        """Adds a ValueTransformer or ValueTransformerWithKey of the user's program. For each record, it returns any
        number of new values."""
        return self._process(
            supplier,
            (ValueTransformer, ValueTransformerWithKey),
            "flat-transform-values",
            "KSTREAM-TRANSFORMVALUES-",
            stores,
            self.key_serde,
            value,
            name,
        )

    def _process(
        self,
        supplier: Callable[[], Any],
        kinds: tuple[type, ...],
        how: str,
        prefix: str,
        stores: tuple[str, ...],
        key: Serde | None,
        value: Serde | None,
        name: str | None,
    ) -> Self:
        check_supplier(how.replace("-", "_"), supplier, *kinds)
        _check(key, value)
        # If the program names the operation, no number is taken from the counter of generated names, except for
        # transform_values and flat_transform_values. Kafka Streams does the same.
        if how in ("transform-values", "flat-transform-values"):
            name = self._names.named(name, prefix)
        else:
            name = self._names.processor(prefix) if name is None else checked(name)
        node = Process(
            name=name,
            inputs=(self.name,),
            made_at=here(),
            key=key,
            value=value,
            supplier=supplier,
            kind=how,
            stores=tuple(stores),
        )
        return self._then(node, keys_change=how in ("process", "transform", "flat-transform"))


class BranchedKStream(SaysOurName, Generic[StreamT]):
    """The result of `KStream.split`. Add branches, and end with `default_branch` or `no_default_branch`."""

    def __init__(self, source: StreamT, name: str) -> None:
        self._source = source
        self._name = name
        self._branches: dict[str, StreamT] = {}
        self._predicates: list[Function] = []
        self._children: list[str] = []

    def branch(
        self, predicate: Any, *, name: str | None = None, chain: Callable[[StreamT], StreamT | None] | None = None
    ) -> BranchedKStream[StreamT]:
        """Adds a branch for the records for which `predicate(key, value)` is True and which no earlier branch has
        taken. `chain` is called with the branch's stream, and returns the stream that `default_branch` returns for
        this branch. If `chain` returns None, no stream is returned for this branch."""
        self._predicates.append(function(Role.PREDICATE, predicate, "branch"))
        self._add(name, len(self._predicates), chain)
        return self

    def default_branch(
        self, *, name: str | None = None, chain: Callable[[StreamT], StreamT | None] | None = None
    ) -> dict[str, StreamT]:
        """Adds a branch for all records that no earlier branch has taken. Returns the streams of all branches by
        name."""
        self._add(name, 0, chain)
        return self._branches

    def no_default_branch(self) -> dict[str, StreamT]:
        """Drops all records that no branch has taken. Returns the streams of all branches by name."""
        return self._branches

    def _add(self, name: str | None, number: int, chain: Callable[[StreamT], StreamT | None] | None) -> None:
        source: Any = self._source
        child = self._name + (str(number) if name is None else name)
        source._names.processor(child)
        self._children.append(checked(child))
        source._construction.change(self._name, predicates=tuple(self._predicates), children=tuple(self._children))
        stream: StreamT = source._then(
            BranchChild(
                name=child, inputs=(self._name,), made_at=here(), key=source.key_serde, value=source.value_serde
            )
        )
        result = stream if chain is None else chain(stream)
        if result is not None:
            self._branches[child] = result


def _check(key: Serde | None, value: Serde | None) -> None:
    check_serde("key", key)
    check_serde("value", value)


def _check_stream(operation: str, other: Any) -> None:
    if not isinstance(other, StreamOperations):
        raise refused(f"{operation} takes a KStream, and not {other!r}.")


def _take_only(operation: str, given: dict[str, Any], what: str, known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise refused(
                f"{operation} with {what} has no use for {name}=: it takes "
                f"{', '.join(f'{option}=' for option in known)}."
            )
