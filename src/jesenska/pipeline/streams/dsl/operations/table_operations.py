"""The operations of a table, KTable (kinds.py), and the class GlobalKTable, a table that every instance of the
application has as a whole.

The keyword arguments are those of KStream's operations. `store=` names the store of the operation's table. Without
`store=`, the table gets a store only if a later operation needs a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from jesenska.pipeline.streams.dsl import shown
from jesenska.pipeline.streams.dsl.construction import Construction, TableFacts
from jesenska.pipeline.streams.dsl.functions import Function, Role, function
from jesenska.pipeline.streams.dsl.materialization import Materialized, check_serde
from jesenska.pipeline.streams.dsl.processing import ValueTransformerWithKey, check_supplier
from jesenska.pipeline.streams.dsl.windows import Suppressed
from jesenska.pipeline.streams.kafka_names import SaysOurName
from jesenska.pipeline.streams.locations import here, refused
from jesenska.pipeline.streams.names import NameCounter, checked
from jesenska.pipeline.streams.plan import (
    ForeignKeyJoin,
    Node,
    SessionAggregate,
    Store,
    Suppress,
    TableFilter,
    TableGroupBy,
    TableMapValues,
    TableTableJoin,
    TableTransformValues,
    ToStream,
    WindowedAggregate,
)
from jesenska.pipeline.streams.serdes.serde import Serde

StreamT = TypeVar("StreamT")
GroupedT = TypeVar("GroupedT")

_FK = "KTABLE-FK-JOIN-"


class TableOperations(SaysOurName, Generic[StreamT, GroupedT]):
    """A table. This class defines the operations of KTable."""

    _INSTEAD: ClassVar[dict[str, str]] = {
        name: f"to_stream().{name}(…)"
        for name in ("to", "through", "foreach", "peek", "print", "flat_map", "select_key")
    }

    def __init__(
        self,
        construction: Construction,
        name: str,
        facts: TableFacts,
        *,
        key: Serde | None,
        value: Serde | None,
        sources: frozenset[str],
    ) -> None:
        self._construction = construction
        self._names = construction.names
        self.name = name
        self.facts = facts
        self.key_serde = key
        self.value_serde = value
        self.sources = sources

    def __repr__(self) -> str:
        return shown.line_of("KTable", self._construction, self.name, self.key_serde, self.value_serde)

    def _repr_html_(self) -> str:
        return shown.table_of("KTable", self._construction, self.name, self.key_serde, self.value_serde)

    @property
    def queryable_store_name(self) -> str | None:
        """Returns the name of the table's store if the program has named it, else None."""
        store = getattr(self._construction.node(self.name), "store", None)
        return store.name if store is not None and store.given_name else None

    def _then(self, node: Node, facts: TableFacts) -> Self:
        self._construction.add(node, facts)
        return type(self)(self._construction, node.name, facts, key=node.key, value=node.value, sources=self.sources)

    def filter(
        self,
        predicate: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> Self:
        """Returns a table with the entries for which `predicate(key, value)` is True."""
        return self._filter(predicate, False, Materialized(store, key, value, None, logging), name)

    def filter_not(
        self,
        predicate: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> Self:
        """Returns a table with the entries for which `predicate(key, value)` is not True."""
        return self._filter(predicate, True, Materialized(store, key, value, None, logging), name)

    def _filter(self, predicate: Any, negated: bool, materialized: Materialized, name: str | None) -> Self:
        chosen = function(Role.PREDICATE, predicate, "filter_not" if negated else "filter")
        kept_in = self._kept_in(materialized, "KTABLE-FILTER-", self.value_serde)
        name = self._names.named(name, "KTABLE-FILTER-")
        facts = TableFacts("derived", self.facts, kept=kept_in is not None)
        # A filter uses old values only if this needs no additional store. With old values, the filter leaves out
        # changes from None to None.
        facts.sends_old_values = self.facts.send_old_values(False)
        node = TableFilter(
            name=name,
            inputs=(self.name,),
            made_at=here(),
            key=materialized.key or self.key_serde,
            value=materialized.value or self.value_serde,
            store=kept_in,
            predicate=chosen,
            negated=negated,
        )
        return self._then(node, facts)

    def map_values(
        self,
        mapper: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> Self:
        """Returns a table in which each key has a new value: the result of `mapper(value)` or `mapper(key, value)`."""
        mapping = function(Role.VALUE_MAPPER, mapper, "map_values")
        materialized = Materialized(store, key, value, None, logging)
        kept_in = self._kept_in(materialized, "KTABLE-MAPVALUES-", None)
        name = self._names.named(name, "KTABLE-MAPVALUES-")
        facts = TableFacts("derived", self.facts, kept=kept_in is not None)
        node = TableMapValues(
            name=name,
            inputs=(self.name,),
            made_at=here(),
            key=key or self.key_serde,
            value=value,
            store=kept_in,
            mapper=mapping,
        )
        return self._then(node, facts)

    def transform_values(
        self,
        supplier: Callable[[], Any],
        *stores: str,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> Self:
        """Adds a ValueTransformerWithKey of the user's program, connected to the named stores. Returns a table of the
        values that it returns."""
        check_supplier("transform_values", supplier, ValueTransformerWithKey)
        materialized = Materialized(store, key, value, None, logging)
        kept_in = None if store is None else materialized.key_value_store(store, self.key_serde, None)
        name = self._names.named(name, "KTABLE-TRANSFORMVALUES-")
        facts = TableFacts("derived", self.facts, kept=kept_in is not None)
        node = TableTransformValues(
            name=name,
            inputs=(self.name,),
            made_at=here(),
            key=key or self.key_serde,
            value=value,
            store=kept_in,
            supplier=supplier,
            stores=tuple(stores),
        )
        return self._then(node, facts)

    def _kept_in(self, materialized: Materialized, prefix: str, value: Serde | None) -> Store | None:
        """Returns the store of `filter` or `map_values`. Returns None if the program gave no arguments for a store."""
        if materialized.store is None:
            if materialized.is_given:
                self._names.store(prefix)
            return None
        return materialized.key_value_store(materialized.store, self.key_serde, value)

    def to_stream(self, mapper: Any = None, *, key: Serde | None = None, name: str | None = None) -> StreamT:
        """Returns a stream of the table's changes. With a mapper, each record gets a new key: the result of
        `mapper(key, value)`."""
        name = self._names.named(name, "KTABLE-TOSTREAM-")
        self._construction.add(
            ToStream(name=name, inputs=(self.name,), made_at=here(), key=self.key_serde, value=self.value_serde)
        )
        stream = self._construction.make.stream(
            self._construction, name, key=self.key_serde, value=self.value_serde, sources=self.sources
        )
        made: StreamT = stream if mapper is None else stream.select_key(mapper, key=key)
        return made

    def suppress(self, suppressed: Suppressed) -> Self:
        """Returns a table whose updates are held back. `suppressed` is the rule that says when the updates are
        forwarded."""
        if not isinstance(suppressed, Suppressed):
            raise refused(
                "suppress takes the result of Suppressed.until_window_closes or Suppressed.until_time_limit, and "
                f"not {suppressed!r}."
            )
        name = self._names.processor("KTABLE-SUPPRESS-") if suppressed.name is None else checked(suppressed.name)
        final = suppressed.wait_ms is None
        wait_ms = self._grace_ms() if suppressed.wait_ms is None else suppressed.wait_ms
        store_name = self._names.store("KTABLE-SUPPRESS-") if suppressed.name is None else f"{suppressed.name}-store"
        self.facts.send_old_values(True)
        buffer = Store(
            name=store_name,
            kind="buffer",
            key=self.key_serde,
            value=self.value_serde,
            timestamped=False,
            logging=suppressed.buffer.logging,
            given_name=suppressed.name is not None,
        )
        facts = TableFacts("suppress", self.facts, kept=True)
        node = Suppress(
            name=name,
            inputs=(self.name,),
            made_at=here(),
            key=self.key_serde,
            value=self.value_serde,
            store=buffer,
            suppressed=suppressed,
            wait_ms=wait_ms,
            final=final,
        )
        self._construction.add(node, facts)
        return type(self)(
            self._construction, name, facts, key=self.key_serde, value=self.value_serde, sources=frozenset((self.name,))
        )

    def _grace_ms(self) -> int:
        """Returns the time in ms from the end of a window to its closing: the longest grace of the windows from which
        this table is computed."""

        def grace_of(name: str, path: tuple[str, ...]) -> int:
            node = self._construction.node(name)
            if isinstance(node, WindowedAggregate):
                return node.windows.grace_ms
            if isinstance(node, SessionAggregate):
                return node.windows.grace_ms + node.windows.inactivity_gap_ms
            if not node.inputs:
                raise refused(
                    f"until_window_closes needs a windowed table, and {self.name} has no windows "
                    f"({' <- '.join((*path, name))}): "
                    "aggregate by windows first, or use until_time_limit."
                )
            return max(grace_of(parent, (*path, name)) for parent in node.inputs)

        return grace_of(self.name, ())

    def group_by(
        self, mapper: Any, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> GroupedT:
        """Returns the table grouped by new keys. `mapper(key, value)` returns a pair: the key of a group, and the
        value that is added to the group. The changes go through an internal topic; `name` is part of the topic's
        name."""
        check_serde("key", key)
        check_serde("value", value)
        mapping = function(Role.PAIR_MAPPER, mapper, "group_by")
        select = self._names.named(name, "KTABLE-SELECT-")
        node = TableGroupBy(
            name=select,
            inputs=(self.name,),
            made_at=here(),
            key=key,
            value=value,
            mapper=mapping,
            sends_old_values=True,
        )
        self._construction.add(node)
        self.facts.send_old_values(True)
        grouped: GroupedT = self._construction.make.grouped_table(self._construction, node, name)
        return grouped

    # Joins

    def join(
        self,
        other: Self,
        joiner: Any,
        *,
        foreign_key: Any = None,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> Self:
        """Returns a table with the keys that both tables have, and the values `joiner(left, right)`.

        If `foreign_key` is given, it is a function of this table's value. Each entry of this table is then joined with
        the entry of `other` whose key is the returned foreign key."""
        return self._join("inner", other, joiner, foreign_key, Materialized(store, key, value, None, logging), name)

    def left_join(
        self,
        other: Self,
        joiner: Any,
        *,
        foreign_key: Any = None,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> Self:
        """Returns a table with all keys of this table, joined like `join`. The right value is None for a key that the
        other table does not have."""
        return self._join("left", other, joiner, foreign_key, Materialized(store, key, value, None, logging), name)

    def outer_join(
        self,
        other: Self,
        joiner: Any,
        *,
        store: str | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logging: bool = True,
        name: str | None = None,
    ) -> Self:
        """Returns a table with all keys that at least one of the tables has, joined like `join`. The value of the
        table without the key is None."""
        return self._join("outer", other, joiner, None, Materialized(store, key, value, None, logging), name)

    def _join(
        self, kind: str, other: Self, joiner: Any, foreign_key: Any, materialized: Materialized, name: str | None
    ) -> Self:
        operation = {"inner": "join", "left": "left_join", "outer": "outer_join"}[kind]
        joining = function(Role.TABLE_JOINER, joiner, operation)
        if not isinstance(other, TableOperations):
            raise refused(f"{operation} of a table takes a KTable, and not {other!r}.")
        self._construction.must_have(operation, other)
        if foreign_key is not None:
            extractor = function(Role.FOREIGN_KEY, foreign_key, operation)
            return self._join_on_foreign_key(kind, other, extractor, joining, materialized, name)
        # If any argument for the store is given, the store's name is generated before the join's name. Kafka Streams
        # counts its generated names in this order.
        store_name = materialized.named(self._names, "KTABLE-MERGE-") if materialized.is_given else None
        merge_name = self._names.named(name, "KTABLE-MERGE-")
        sources = self._construction.copartition(self.sources | other.sources)
        if kind != "inner":
            self.facts.send_old_values(True)
        if kind == "outer":
            other.facts.send_old_values(True)
        self.facts.look_up()
        other.facts.look_up()
        this_join = self._names.named(name, "KTABLE-JOINTHIS-", "-join-this")
        other_join = self._names.named(name, "KTABLE-JOINOTHER-", "-join-other")
        kept_in = None if store_name is None else materialized.key_value_store(store_name, self.key_serde, None)
        facts = TableFacts("join", self.facts, other.facts, kept=kept_in is not None)
        node = TableTableJoin(
            name=merge_name,
            inputs=(self.name, other.name),
            made_at=here(),
            key=materialized.key or self.key_serde,
            value=materialized.value,
            store=kept_in,
            joiner=joining,
            kind=kind,
            this_join_name=this_join,
            other_join_name=other_join,
        )
        self._construction.add(node, facts)
        return type(self)(self._construction, merge_name, facts, key=node.key, value=node.value, sources=sources)

    def _join_on_foreign_key(
        self,
        kind: str,
        other: Self,
        foreign_key: Function,
        joiner: Function,
        materialized: Materialized,
        name: str | None,
    ) -> Self:
        other.facts.send_old_values(True)
        self.facts.send_old_values(True)
        names = _ForeignKeyNames.of(self._names, name)
        other.facts.look_up()
        self.facts.look_up()
        store_name = materialized.named(self._names, f"{_FK}OUTPUT-")
        of_nodes = dict(names.of_nodes)
        self._construction.copartition(other.sources | {of_nodes["subscription_source"]})
        sources = self._construction.copartition(self.sources | {of_nodes["response_source"]})
        kept_in = materialized.key_value_store(store_name, self.key_serde, None)
        facts = TableFacts("source", kept=materialized.store is not None)
        node = ForeignKeyJoin(
            name=names.result,
            inputs=(self.name, other.name),
            made_at=here(),
            key=kept_in.key,
            value=kept_in.value,
            store=kept_in,
            foreign_key=foreign_key,
            joiner=joiner,
            kind=kind,
            names=names.of_nodes,
            subscription_topic=names.subscription_topic,
            response_topic=names.response_topic,
            subscription_store=Store(name=names.subscription_store, kind="subscription", given_name=name is not None),
            left_key=self.key_serde,
            left_value=self.value_serde,
            foreign_key_serde=other.key_serde,
            right_value=other.value_serde,
        )
        self._construction.add(node, facts)
        return type(self)(self._construction, names.result, facts, key=node.key, value=node.value, sources=sources)


@dataclass(frozen=True, slots=True)
class _ForeignKeyNames:
    """The names of the processors of a foreign-key join. `of_nodes` contains the names of all processors except the
    last processor, which forwards the result."""

    subscription_topic: str
    subscription_store: str
    response_topic: str
    of_nodes: tuple[tuple[str, str], ...]
    result: str

    @classmethod
    def of(cls, names: NameCounter, name: str | None) -> Self:
        """Returns the names. They are generated in the order in which Kafka Streams numbers its processors."""

        def named(prefix: str, suffix: str) -> str:
            return names.named(name, prefix, suffix)

        subscription_topic = named(f"{_FK}SUBSCRIPTION-REGISTRATION-", "-subscription-registration") + "-topic"
        send = named(f"{_FK}SUBSCRIPTION-REGISTRATION-", "-subscription-registration-processor")
        subscription_sink = named("KTABLE-SINK-", "-subscription-registration-sink")
        subscription_source = named("KTABLE-SOURCE-", "-subscription-registration-source")
        subscription_store = named(f"{_FK}SUBSCRIPTION-STATE-STORE-", "-subscription-store")
        receive = named(f"{_FK}SUBSCRIPTION-PROCESSOR-", "-subscription-receive")
        subscription_join = named(f"{_FK}SUBSCRIPTION-PROCESSOR-", "-subscription-join-foreign")
        foreign_join = named(f"{_FK}SUBSCRIPTION-PROCESSOR-", "-foreign-join-subscription")
        response_topic = named(f"{_FK}SUBSCRIPTION-RESPONSE-", "-subscription-response") + "-topic"
        response_sink = named("KTABLE-SINK-", "-subscription-response-sink")
        response_source = named("KTABLE-SOURCE-", "-subscription-response-source")
        resolver = named(f"{_FK}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "-subscription-response-resolver")
        of_nodes = (
            ("send", send),
            ("subscription_sink", subscription_sink),
            ("subscription_source", subscription_source),
            ("receive", receive),
            ("subscription_join", subscription_join),
            ("foreign_join", foreign_join),
            ("response_sink", response_sink),
            ("response_source", response_source),
            ("resolver", resolver),
        )
        return cls(subscription_topic, subscription_store, response_topic, of_nodes, named(f"{_FK}OUTPUT-", "-result"))


class GlobalKTable:
    """A global table: every instance of the application has all of the topic. It is created by
    `StreamsBuilder.global_table`."""

    def __init__(self, construction: Construction, name: str, store: str) -> None:
        self._construction = construction
        self.name = name
        self.store = store

    @property
    def queryable_store_name(self) -> str:
        """Returns the name of the table's store."""
        return self.store

    def __repr__(self) -> str:
        return f"<GlobalKTable {self.name}; store {self.store}>"
