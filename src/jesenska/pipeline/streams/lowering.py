"""Translates a logical plan (plan.py) to Kafka Streams' processors. Each node becomes one or more processors with
names, parents and stores, in the order in which Kafka Streams adds them. `describe()` prints the processors, and the
test driver runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jesenska.pipeline.streams.dsl.processing import Processor
from jesenska.pipeline.streams.dsl.windows import SlidingWindows
from jesenska.pipeline.streams.engine import (
    aggregates,
    own_processors,
    sessions,
    stateless,
    suppression,
    tables,
    windowed,
)
from jesenska.pipeline.streams.engine.change_serde import ChangeSerde
from jesenska.pipeline.streams.engine.joins import foreign_keys, stream_joins, table_joins, table_lookups
from jesenska.pipeline.streams.plan import (
    Branch,
    BranchChild,
    CogroupMerge,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    ForeignKeyJoin,
    GlobalStore,
    GlobalTableSource,
    Map,
    MapValues,
    Merge,
    Node,
    Peek,
    Plan,
    Process,
    Repartition,
    SelectKey,
    SessionAggregate,
    Sink,
    StateStore,
    StreamAggregate,
    StreamGlobalTableJoin,
    StreamSource,
    StreamStreamJoin,
    StreamTableJoin,
    Suppress,
    Table,
    TableAggregate,
    TableFilter,
    TableGroupBy,
    TableMapValues,
    TableRepartition,
    TableSource,
    TableTableJoin,
    TableTransformValues,
    ToStream,
    ToTable,
    WindowedAggregate,
)
from jesenska.pipeline.streams.processor_topology import ProcessorNode, ProcessorTopology, SinkNode, SourceNode
from jesenska.pipeline.streams.serdes.serde import Serde


class Defaults:
    """The default serdes of a topology. The driver that runs the topology sets them before processors are made."""

    def __init__(self) -> None:
        self.key: Serde | None = None
        self.value: Serde | None = None

    def of_key(self, serde: Serde | None) -> Serde:
        chosen = serde or self.key
        assert chosen is not None
        return chosen

    def of_value(self, serde: Serde | None) -> Serde:
        chosen = serde or self.value
        assert chosen is not None
        return chosen


def lower(plan: Plan) -> tuple[ProcessorTopology, Defaults]:
    """Returns the processors of a plan, and the object in which the driver sets the default serdes."""
    lowering = _Lowering(plan)
    for node in plan:
        lowering.add(node)
    return lowering.topology, lowering.defaults


class _Lowering:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.topology = ProcessorTopology()
        self.defaults = Defaults()

    def add(self, node: Node) -> None:
        match node:
            case StreamSource():
                self.topology.add_source(
                    SourceNode(
                        name=node.name,
                        made_at=node.made_at,
                        topics=node.topics,
                        pattern=node.pattern,
                        key=node.key,
                        value=node.value,
                        timestamp_extractor=node.timestamp_extractor,
                    )
                )
            case TableSource():
                self._table_source(node)
            case GlobalTableSource() | GlobalStore():
                self._global(node)
            case StateStore():
                self.topology.add_store(node.store)
            case Sink():
                self.topology.add_sink(
                    SinkNode(
                        name=node.name,
                        made_at=node.made_at,
                        parents=node.inputs,
                        topic=node.topic,
                        topic_extractor=node.topic_extractor,
                        key=node.key,
                        value=node.value,
                        partitioner=node.partitioner,
                    )
                )
            case Repartition():
                self._repartition(node)
            case TableRepartition():
                self._table_repartition(node)
            case StreamStreamJoin():
                self._stream_stream_join(node)
            case TableTableJoin():
                self._table_table_join(node)
            case ForeignKeyJoin():
                self._foreign_key_join(node)
            case _:
                self._single(node)

    def _single(self, node: Node) -> None:
        """Adds a node that becomes exactly one processor."""
        made = self._processor_of(node)
        self._processor(node, node.name, node.inputs, made)
        if isinstance(node, Process | TableTransformValues) and node.stores:
            self.topology.connect(node.name, *node.stores)
        if isinstance(node, StreamTableJoin):
            self.topology.connect(node.name, *self._stores_of(node.table))
        if (
            isinstance(node, Table)
            and node.materialized
            and node.store is not None
            and not isinstance(node, CogroupMerge)
        ):
            self.topology.add_store(node.store, node.name)

    def _processor(self, node: Node, name: str, parents: Iterable[str], make: Callable[[], Processor]) -> None:
        self.topology.add_processor(ProcessorNode(name=name, made_at=node.made_at, parents=tuple(parents), make=make))

    def _processor_of(self, node: Node) -> Callable[[], Processor]:
        match node:
            case Filter(predicate=predicate, negated=negated):
                return lambda: stateless.FilterRecords(predicate.call, negated)
            case Map(mapper=mapper):
                return lambda: stateless.MapRecords(mapper.call)
            case SelectKey(mapper=mapper):
                return lambda: stateless.SelectKeys(mapper.call)
            case MapValues(mapper=mapper):
                return lambda: stateless.MapRecordValues(mapper.call)
            case FlatMap(mapper=mapper):
                return lambda: stateless.FlatMapRecords(mapper.call)
            case FlatMapValues(mapper=mapper):
                return lambda: stateless.FlatMapRecordValues(mapper.call)
            case Peek(action=action):
                return lambda: stateless.PeekRecords(action.call)
            case Foreach(action=action):
                return lambda: stateless.ForeachRecord(action.call)
            case Branch(predicates=predicates, children=children):
                return lambda: stateless.BranchRecords([predicate.call for predicate in predicates], children)
            case BranchChild() | Merge() | CogroupMerge():
                return stateless.PassThrough
            case Process(supplier=supplier, kind=kind, name=name):
                return lambda: own_processors.own_processor(name, supplier, kind)
            case ToStream():
                return tables.ChangesToRecords
            case ToTable(sends_old_values=sends_old):
                return lambda: tables.TableFromRecords(_own_store(node), sends_old)
            case TableFilter(predicate=predicate, negated=negated, sends_old_values=sends_old):
                return lambda: tables.FilterTable(predicate.call, negated, _own_store(node), sends_old)
            case TableMapValues(mapper=mapper, sends_old_values=sends_old):
                return lambda: tables.MapTableValues(mapper.call, _own_store(node), sends_old)
            case TableTransformValues(supplier=supplier, sends_old_values=sends_old):
                return lambda: tables.TransformTableValues(
                    supplier, own_processors.transform_of, _own_store(node), sends_old
                )
            case TableGroupBy(mapper=mapper):
                return lambda: tables.RegroupTable(mapper.call)
            case StreamAggregate():
                return lambda: aggregates.AggregateRecords(node)
            case TableAggregate():
                return lambda: aggregates.AggregateTable(node)
            case WindowedAggregate(windows=SlidingWindows()):
                return lambda: windowed.AggregateSlidingWindows(node)
            case WindowedAggregate():
                return lambda: windowed.AggregateTimeWindows(node)
            case SessionAggregate():
                return lambda: sessions.AggregateSessions(node)
            case Suppress():
                return lambda: suppression.SuppressUpdates(node)
            case StreamTableJoin(table=table, joiner=joiner, kind=kind):
                getter = self._getter(table)
                return lambda: table_lookups.LookUpTable(getter(), lambda key, value: key, joiner.call, kind == "left")
            case StreamGlobalTableJoin(table=table, joiner=joiner, kind=kind, key_selector=selector):
                getter = self._getter(table)
                return lambda: table_lookups.LookUpTable(getter(), selector.call, joiner.call, kind == "left")
        raise AssertionError(f"no processor for {type(node).__name__}")

    # Sources

    def _table_source(self, node: TableSource) -> None:
        self.topology.add_source(
            SourceNode(
                name=node.source_name,
                made_at=node.made_at,
                topics=(node.topic,),
                key=node.key,
                value=node.value,
                timestamp_extractor=node.timestamp_extractor,
            )
        )
        sends_old = node.sends_old_values
        self._processor(
            node, node.name, (node.source_name,), lambda: tables.TableFromRecords(_own_store(node), sends_old)
        )
        if node.materialized and node.store is not None:
            self.topology.add_store(node.store, node.name)

    def _global(self, node: GlobalTableSource | GlobalStore) -> None:
        store = node.store
        assert store is not None
        source = SourceNode(
            name=node.source_name,
            made_at=node.made_at,
            topics=(node.topic,),
            key=node.key,
            value=node.value,
            timestamp_extractor=node.timestamp_extractor,
            is_global=True,
        )
        if isinstance(node, GlobalStore):
            make: Callable[[], Processor] = node.supplier
        else:
            name = store.name

            def make() -> Processor:
                return tables.TableFromRecords(name, False)

        processor = ProcessorNode(name=node.name, made_at=node.made_at, parents=(node.source_name,), make=make)
        self.topology.add_global_store(store, source, processor)

    # Internal topics

    def _repartition(self, node: Repartition) -> None:
        drops = node.drops_null_keys
        self.topology.internal_topics.add(node.topic)
        self._processor(node, node.filter_name, node.inputs, lambda: stateless.DropNullKeys(drops))
        self.topology.add_sink(
            SinkNode(
                name=node.sink_name,
                made_at=node.made_at,
                parents=(node.filter_name,),
                topic=node.topic,
                key=node.key,
                value=node.value,
                partitioner=node.partitioner,
            )
        )
        self.topology.add_source(
            SourceNode(name=node.name, made_at=node.made_at, topics=(node.topic,), key=node.key, value=node.value)
        )

    def _table_repartition(self, node: TableRepartition) -> None:
        self.topology.internal_topics.add(node.topic)
        self.topology.add_sink(
            SinkNode(
                name=node.sink_name,
                made_at=node.made_at,
                parents=node.inputs,
                topic=node.topic,
                key=node.key,
                value=node.value,
                wrap=ChangeSerde,
            )
        )
        self.topology.add_source(
            SourceNode(
                name=node.name,
                made_at=node.made_at,
                topics=(node.topic,),
                key=node.key,
                value=node.value,
                wrap=ChangeSerde,
            )
        )

    # Joins

    def _stream_stream_join(self, node: StreamStreamJoin) -> None:
        topology, (this, other) = self.topology, node.inputs
        this_store, other_store = node.this_store, node.other_store
        self._processor(node, node.this_windowed_name, (this,), lambda: stream_joins.KeepForJoin(this_store.name))
        self._processor(node, node.other_windowed_name, (other,), lambda: stream_joins.KeepForJoin(other_store.name))
        times: list[stream_joins.SharedTime] = []

        def this_side() -> Processor:
            times[:] = [stream_joins.SharedTime()]
            return stream_joins.JoinStreams(node, True, times[-1])

        def other_side() -> Processor:
            # A task makes the processors of both sides of the join, this side's processor first.
            return stream_joins.JoinStreams(node, False, times[-1])

        self._processor(node, node.this_join_name, (node.this_windowed_name,), this_side)
        self._processor(node, node.other_join_name, (node.other_windowed_name,), other_side)
        self._processor(node, node.name, (node.this_join_name, node.other_join_name), stateless.PassThrough)
        topology.add_store(this_store, node.this_windowed_name, node.other_join_name)
        topology.add_store(other_store, node.other_windowed_name, node.this_join_name)
        if node.outer_store is not None:
            topology.add_store(node.outer_store, node.this_join_name, node.other_join_name)

    def _table_table_join(self, node: TableTableJoin) -> None:
        this, other = node.inputs
        joiner, sends_old = node.joiner.call, node.sends_old_values
        this_getter, other_getter = self._getter(this), self._getter(other)

        def this_side() -> Processor:
            return table_joins.JoinTables(
                other_getter(),
                joiner,
                needs_this=node.kind != "outer",
                needs_other=node.kind == "inner",
                sends_old=sends_old,
            )

        def other_side() -> Processor:
            return table_joins.JoinTables(
                this_getter(),
                lambda one, two: joiner(two, one),
                needs_this=node.kind == "inner",
                needs_other=node.kind != "outer",
                sends_old=sends_old,
            )

        self._processor(node, node.this_join_name, (this,), this_side)
        self._processor(node, node.other_join_name, (other,), other_side)
        self._processor(
            node,
            node.name,
            (node.this_join_name, node.other_join_name),
            lambda: table_joins.MergeTableJoin(_own_store(node), sends_old),
        )
        self.topology.connect(node.this_join_name, *self._stores_of(other))
        self.topology.connect(node.other_join_name, *self._stores_of(this))
        if node.materialized and node.store is not None:
            self.topology.add_store(node.store, node.name)

    def _foreign_key_join(self, node: ForeignKeyJoin) -> None:
        self.topology.internal_topics |= {node.subscription_topic, node.response_topic}
        self._subscriptions(node)
        self._responses(node)
        sends_old = node.sends_old_values
        resolver = dict(node.names)["resolver"]
        self._processor(node, node.name, (resolver,), lambda: tables.TableFromRecords(_own_store(node), sends_old))
        if node.materialized and node.store is not None:
            self.topology.add_store(node.store, node.name)

    def _subscriptions(self, node: ForeignKeyJoin) -> None:
        """Adds the processors that send this table's foreign keys to the other table as subscriptions. The other table
        answers a subscription when the subscription arrives, and again whenever the value of the foreign key
        changes."""
        topology, defaults, names, store = self.topology, self.defaults, dict(node.names), node.subscription_store
        this, other = node.inputs
        other_getter = self._getter(other)

        def wrap(_: Serde) -> Serde:
            return foreign_keys.SubscriptionSerde(defaults.of_key(node.left_key))

        self._processor(
            node,
            names["send"],
            (this,),
            lambda: foreign_keys.SendSubscriptions(
                node, defaults.of_key(node.foreign_key_serde), defaults.of_value(node.left_value)
            ),
        )
        self._through(node, "subscription", (names["send"],), node.subscription_topic, node.foreign_key_serde, wrap)
        topology.add_store(store)
        self._processor(
            node,
            names["receive"],
            (names["subscription_source"],),
            lambda: foreign_keys.ReceiveSubscriptions(store.name),
        )
        topology.connect(names["receive"], store.name)
        self._processor(
            node,
            names["subscription_join"],
            (names["receive"],),
            lambda: foreign_keys.AnswerSubscriptions(other_getter()),
        )
        topology.connect(names["subscription_join"], *self._stores_of(other))
        self._processor(node, names["foreign_join"], (other,), lambda: foreign_keys.AnswerChanges(store.name))
        topology.connect(names["foreign_join"], store.name)

    def _responses(self, node: ForeignKeyJoin) -> None:
        """Adds the processors for responses: the other table sends its responses to this table, which joins them with
        its own values."""
        defaults, names, this = self.defaults, dict(node.names), node.inputs[0]
        this_getter = self._getter(this)

        def wrap(_: Serde) -> Serde:
            return foreign_keys.ResponseSerde(defaults.of_value(node.right_value))

        answers = (names["subscription_join"], names["foreign_join"])
        self._through(node, "response", answers, node.response_topic, node.left_key, wrap)
        self._processor(
            node,
            names["resolver"],
            (names["response_source"],),
            lambda: foreign_keys.ResolveResponses(
                this_getter(), node.joiner.call, node.kind == "left", defaults.of_value(node.left_value)
            ),
        )
        self.topology.connect(names["resolver"], *self._stores_of(this))

    def _through(
        self,
        node: ForeignKeyJoin,
        what: str,
        parents: tuple[str, ...],
        topic: str,
        key: Serde | None,
        wrap: Callable[[Serde], Serde],
    ) -> None:
        """Adds the sink and the source of the internal topic through which subscriptions or responses are sent. `what`
        is "subscription" or "response"."""
        names = dict(node.names)
        sink, source = names[f"{what}_sink"], names[f"{what}_source"]
        self.topology.add_sink(
            SinkNode(name=sink, made_at=node.made_at, parents=parents, topic=topic, key=key, wrap=wrap)
        )
        self.topology.add_source(SourceNode(name=source, made_at=node.made_at, topics=(topic,), key=key, wrap=wrap))

    # Lookups in tables

    def _getter(self, name: str) -> Callable[[], tables.ValueGetter]:
        """Returns a function that makes a ValueGetter for the table `name`. It reads values from the table's own
        store, or computes them from the values of the parent tables."""
        node = self.plan[name]
        assert isinstance(node, Table)
        store_name = _own_store(node)
        match node:
            case Suppress():
                above = self._getter(node.inputs[0])
                assert node.store is not None
                buffer = node.store.name
                return lambda: suppression.SuppressedGetter(above(), buffer)
            case _ if store_name is not None:
                return lambda: tables.StoreGetter(store_name)
            case TableFilter(predicate=predicate, negated=negated):
                above = self._getter(node.inputs[0])
                return lambda: tables.ComputedGetter(above(), tables.filtered(predicate.call, negated))
            case TableMapValues(mapper=mapper):
                above = self._getter(node.inputs[0])
                return lambda: tables.ComputedGetter(above(), tables.mapped(mapper.call))
            case TableTransformValues(supplier=supplier):
                above = self._getter(node.inputs[0])
                return lambda: tables.TransformedGetter(above(), supplier, own_processors.transform_of)
            case TableTableJoin(joiner=joiner, kind=kind):
                this, other = (self._getter(input_) for input_ in node.inputs)
                return lambda: table_joins.JoinedGetter(this(), other(), joiner.call, kind)
        raise AssertionError(f"{name} cannot be looked up")

    def _stores_of(self, name: str) -> list[str]:
        """Returns the names of the stores that are read when a value of the table `name` is looked up."""
        node = self.plan[name]
        assert isinstance(node, Table)
        own = _own_store(node)
        if own is not None and not isinstance(node, Suppress):
            return [own]
        above = [store for input_ in node.inputs for store in self._stores_of(input_)]
        return list(dict.fromkeys([*([own] if own is not None else []), *above]))


def _own_store(node: Table) -> str | None:
    return node.store.name if node.materialized and node.store is not None else None
