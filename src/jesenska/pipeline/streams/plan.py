"""The logical plan: the operations of a topology in Kafka Streams' terms, independent of how they are run.

A plan is a tuple of nodes; every node comes after its inputs. The test driver runs the plan as Kafka Streams'
processors (`lowering.py`), and streams_on_spark runs it on Spark. Nodes are immutable, and refer to each other by
name:

    name       Kafka Streams' name of the node, unique in the plan. An operation that is several processors in Kafka
               Streams (a join, a repartition) is one node here: `name` is the processor that gives the result, and the
               other processors' names are fields of their own
    inputs     names of the nodes whose output this node processes. A join has this side first, then the other side
    made_at    the line of the user's program that asked for the operation
    key,       the serdes of the node's output, if they are known; None means the default serde of the settings.
    value      A source reads with these serdes; a sink, a repartition or a store writes with them

The output of a node is a stream of records (`Stream` nodes) or the changes of a table (`Table` nodes). A table has at
most one value for each key; a change to None deletes the key. `materialized` is True if the table is stored in
`store`. `sends_old_values` is True if its changes also contain the old value. Keys of windowed tables are
`records.Windowed`.

Null values, timestamps and late records are treated as in Kafka Streams 3.9; each node's docstring describes its
rules. By default a record keeps its timestamp and its headers, and records with null keys or values are passed on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jesenska.pipeline.streams.dsl.functions import Function
from jesenska.pipeline.streams.dsl.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    Suppressed,
    TimeWindows,
)
from jesenska.pipeline.streams.locations import Location
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.timestamps import TimestampExtractor


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A state store.

    kind             contents
    "key-value"      the latest value of each key, with its timestamp if `timestamped`
    "window"         a value for each key and start of a window, or several values if `retain_duplicates`
    "session"        a value for each key and session
    "buffer"         updates that `suppress` holds back, in the order of their timestamps
    "outer-join"     records of a stream-stream join that have no partner yet, in the order of their timestamps
    "subscription"   for each foreign key of a foreign-key join, the primary keys of the records that refer to it

    A window or a session expires when it is `retention_ms` older than the largest timestamp in the store. With None,
    nothing expires. `window_size_ms` is the size of the windows. If `logging`, every change is also written to the
    compacted topic `<application.id>-<name>-changelog`. `given_name` is False if the name was generated. Such a store
    is not meant to be queried, since its name may change with the topology.
    """

    name: str
    kind: str
    key: Serde | None = None
    value: Serde | None = None
    timestamped: bool = True
    retention_ms: int | None = None
    window_size_ms: int | None = None
    retain_duplicates: bool = False
    logging: bool = True
    changelog_config: tuple[tuple[str, str], ...] = ()
    given_name: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    inputs: tuple[str, ...] = ()
    made_at: Location
    key: Serde | None = None
    value: Serde | None = None


class Stream(Node):
    """A node whose output is a stream of records."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Node):
    """A node whose output is the changes of a table."""

    store: Store | None = None
    materialized: bool = False
    sends_old_values: bool = False


# Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource(Stream):
    """Reads the records of topics: the named topics, or all topics whose whole name matches `pattern` (a Java regular
    expression). Records that the serdes cannot read are passed to the deserialization exception handler."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource(Table):
    """Reads a topic as a table: a key has the value of its last record in the topic. Records with null keys are
    dropped. `source_name` is the name of the processor that reads the topic. Changes contain old values only if the
    table is `materialized`."""

    source_name: str
    topic: str
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTableSource(Table):
    """Reads a topic as a global table: every instance of the application has all records of the topic. A global table
    always has a store, and the store never has a changelog topic."""

    source_name: str
    topic: str
    timestamp_extractor: TimestampExtractor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalStore(Node):
    """Reads a topic with a processor of the user's program, which fills a global store. Every instance of the
    application has the whole store. The node has no output."""

    source_name: str
    topic: str
    store: Store
    supplier: Callable[[], Any]
    timestamp_extractor: TimestampExtractor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStore(Node):
    """A state store that processors use. `name` is the name of the store."""

    store: Store


# Streams, record by record


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Stream):
    """Forwards the records for which the predicate is True. With `negated`, forwards the records for which it is not
    True."""

    predicate: Function
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey(Stream):
    """Gives each record a new key, and leaves the value unchanged."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(Stream):
    """Gives each record a new key and a new value."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues(Stream):
    """Gives each record a new value. The mapper is also called for null values."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(Stream):
    """Replaces each record by any number of records with new keys and values, in order."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues(Stream):
    """Replaces each record by any number of records with new values, in order. If the mapper returns None, no record
    is forwarded."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek(Stream):
    """Calls the action for each record, and forwards the record unchanged."""

    action: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach(Stream):
    """Calls the action for each record. Forwards no record."""

    action: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Stream):
    """Splits a stream. A record goes to the first of `children` (names of BranchChild nodes) whose predicate is True.
    If there is one child more than predicates, the last child is the default. Without a default, a record for which no
    predicate is True is dropped."""

    predicates: tuple[Function, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchChild(Stream):
    """One of the streams into which a Branch node splits its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Stream):
    """Forwards the records of both inputs. The order between the inputs is not defined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition(Stream):
    """Writes the records to an internal topic (`<application.id>-<topic>`) and reads them again, so that records with
    equal keys are in one partition. `name` is the name of the source node that reads the topic. If `drops_null_keys`,
    records with null keys are dropped, because no later node could use them. If `partitions` is None, the topic has as
    many partitions as the input."""

    topic: str
    filter_name: str
    sink_name: str
    partitions: int | None = None
    partitioner: Callable[..., int | None] | None = None
    drops_null_keys: bool = True
    asked_for: bool = False  # by `repartition()`, and not by an operation that needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Stream):
    """A processor of the user's program, with the stores that it may use. `supplier` makes one processor for each
    task.

    kind                     result of `supplier`
    "process"                Processor: process(record), which may forward any records
    "process-values"         Processor: must not change the key (forwarding another key is an error)
    "transform"              Transformer: transform(key, value) returns a pair or None
    "flat-transform"         Transformer: transform(key, value) returns any number of pairs
    "transform-values"       ValueTransformer: transform(value), or ValueTransformerWithKey: transform(key, value)
    "flat-transform-values"  as for "transform-values", but transform returns any number of values
    """

    supplier: Callable[[], Any]
    kind: str = "process"
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Stream):
    """Writes records to the topic `topic`, or to the topic that `topic_extractor` returns for each record."""

    topic: str | None = None
    topic_extractor: Function | None = None
    partitioner: Callable[..., int | None] | None = None


# Between streams and tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStream(Stream):
    """Turns the changes of a table into records with the new values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTable(Table):
    """Turns a stream into a table. Nulls and the order of records have the same meaning as in TableSource."""


# Aggregations


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation(Table):
    """The base class of all aggregations of streams. `operation` is count, reduce or aggregate:

    count      the number of records; `initializer` and `aggregator` are None
    reduce     the first value unchanged, then the results of reducer(aggregate, value)
    aggregate  the results of aggregator(key, value, aggregate), beginning with initializer()
    """

    operation: str
    initializer: Function | None = None
    aggregator: Function | None = None
    reducer: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAggregate(Aggregation):
    """An aggregation with one aggregate for each key. Records with a null key or a null value are dropped. If the
    aggregate is None, the key is deleted. The timestamp of a result is the largest timestamp of the records in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedAggregate(Aggregation):
    """An aggregation with one aggregate for each key and window. Records with null keys are dropped. With
    SlidingWindows, records with null values are also dropped. A record is too late for a window whose end (with
    SlidingWindows: end + 1) is at or below stream time minus grace.

    The timestamp of a result is the largest timestamp of the records in it. If a later record has opened a sliding
    window, the result may have the timestamp of that record."""

    windows: TimeWindows | SlidingWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAggregate(Aggregation):
    """An aggregation with one aggregate for each key and session. A record merges the sessions that it overlaps. Each
    merged session is deleted (a change to None), then the new session is set. Records with null keys are dropped. A
    record is also dropped if its session would end before stream time minus gap minus grace.

    The timestamp of a change is the end of the session, and the change has no headers. `merger` is None for count and
    reduce: counts are added, and the reducer merges values."""

    windows: SessionWindows
    merger: Function | None = None
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class CogroupMerge(Table):
    """The table of a cogroup. Its inputs are the aggregations of the grouped streams (StreamAggregate,
    WindowedAggregate or SessionAggregate nodes). All these aggregations share `store`, so each aggregation continues
    the aggregate that another aggregation has stored for the key. The output is the changes of all inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroupBy(Table):
    """Gives the entries of a table new keys and values, for an aggregation after this node. Each change becomes the
    removal of the old pair and the addition of the new pair. If both pairs have the same key, the removal and the
    addition are one change. Pairs with a null key or a null value are left out."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRepartition(Table):
    """Writes the changes of a TableGroupBy to an internal topic and reads them again. `name` is the name of the source
    node that reads the topic."""

    topic: str
    sink_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAggregate(Table):
    """One aggregate for each key of a grouped table. For each change, `subtractor` removes the old value from the
    aggregate, then `adder` adds the new value.

    count      the number of the table's entries in the group
    reduce     adder(aggregate, value) and subtractor(aggregate, value)
    aggregate  adder(key, value, aggregate) and subtractor(key, value, aggregate), beginning with initializer()

    A result of None deletes the key. The subtractor is not called if the key has no aggregate. If the subtractor
    returns None, an addition in the same change begins with the initial aggregate."""

    operation: str
    initializer: Function | None = None
    adder: Function | None = None
    subtractor: Function | None = None


# Tables, key by key


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter(Table):
    """Keeps the entries for which the predicate is True. Other keys get a change to None. Deletions are forwarded. If
    old values are known, a change from None to None is left out."""

    predicate: Function
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapValues(Table):
    """Gives each key a new value. The mapper is not called for None."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTransformValues(Table):
    """Gives each key a new value, which a ValueTransformerWithKey computes. The transformer may use stores. It is also
    called for the value None."""

    supplier: Callable[[], Any]
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress(Table):
    """Holds updates back in `store`, a buffer with the last update of each key. An update is forwarded when stream
    time has advanced `wait_ms` beyond the time of the update. This time is the end of the window if `final`, else the
    timestamp of the key's first held update. A final result of None is left out."""

    suppressed: Suppressed
    wait_ms: int
    final: bool


# Joins. `kind` is inner, left or outer.


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoin(Stream):
    """Joins records of two streams whose keys are equal and whose timestamps differ by no more than the windows allow.
    The result has the larger timestamp.

    In a left or outer join, a record without a partner is joined with None, and keeps its own timestamp. This happens
    when a later record arrives after the record's window and grace have passed. If they have already passed, the
    record is joined at once. Records with null values are dropped. Records with null keys are dropped, except on a
    side whose records need no partner: there they are joined with None at once."""

    joiner: Function
    kind: str
    windows: JoinWindows
    this_windowed_name: str
    other_windowed_name: str
    this_join_name: str
    other_join_name: str
    this_store: Store
    other_store: Store
    outer_store: Store | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableJoin(Stream):
    """Joins each record with the value that the table has at that moment. `inputs` contains the stream, and `table` is
    the name of the table. Records with a null value or key are dropped. In a left join, a record with a null key and a
    value is not dropped but joined with None."""

    table: str
    joiner: Function
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalTableJoin(Stream):
    """Joins each record with a value of a global table. `key_selector` computes the table's key from the record.
    Records with a null key or value are treated as in StreamTableJoin."""

    table: str
    key_selector: Function
    joiner: Function
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTableJoin(Table):
    """Joins two tables by their keys. A change of either table gives a change of the result, with the larger of the
    two timestamps."""

    joiner: Function
    kind: str
    this_join_name: str
    other_join_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyJoin(Table):
    """Joins this table with another table by a foreign key, which is taken from this table's value. Changes of either
    table cause changes of the result, which has this table's keys. `kind` is inner or left. A null foreign key has no
    partner.

    In Kafka Streams this table sends a subscription for the foreign key through the topic `subscription_topic`. The
    other table sends its response through `response_topic`. A response is used only if this table's value has not
    changed since the subscription. An engine that has both tables in one place needs neither topic. `names` contains
    pairs: the role of a processor in the join, and the processor's name."""

    foreign_key: Function
    joiner: Function
    kind: str
    names: tuple[tuple[str, str], ...]
    subscription_topic: str
    response_topic: str
    subscription_store: Store
    left_value: Serde | None = None
    left_key: Serde | None = None
    foreign_key_serde: Serde | None = None
    right_value: Serde | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The nodes of a plan in order, and groups of source nodes whose topics must have the same number of partitions.
    `copartitioned_topics` returns the topics of these groups."""

    nodes: tuple[Node, ...] = ()
    copartitioned: tuple[frozenset[str], ...] = ()
    _by_name: dict[str, Node] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._by_name.update((node.name, node) for node in self.nodes)

    def __getitem__(self, name: str) -> Node:
        return self._by_name[name]

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def copartitioned_topics(self) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """Yields two sets for each group of topics that must have the same number of partitions. The first set
        contains the user's topics (and patterns). The second set contains the internal topics, without the
        application's id in their names. Internal topics are created with as many partitions as the user's topics. If a
        repartition sets its own number of partitions, the user's topics must have this number. Without internal
        topics, all user's topics must have the same number."""
        for group in self.copartitioned:
            given: set[str] = set()
            internal: set[str] = set()
            for name in group:
                for is_internal, topic in self._topics_of(name):
                    (internal if is_internal else given).add(topic)
            yield frozenset(given), frozenset(internal)

    def _topics_of(self, name: str) -> Iterator[tuple[bool, str]]:
        """Yields (is internal, topic) for each topic of the source node `name`. If the node is not a source, yields
        the topics of the source nodes before it."""
        for node in self.nodes:
            match node:
                case StreamSource(name=source) if source == name:
                    yield from ((False, topic) for topic in (node.topics if node.pattern is None else (node.pattern,)))
                    return
                case TableSource(source_name=source) if name in (source, node.name):
                    yield False, node.topic
                    return
                case Repartition(name=source) | TableRepartition(name=source) if source == name:
                    yield True, node.topic
                    return
                case ForeignKeyJoin(names=names):
                    parts = dict(names)
                    if name in (parts["subscription_source"], parts["response_source"]):
                        yield (
                            True,
                            node.subscription_topic if name == parts["subscription_source"] else node.response_topic,
                        )
                        return
        for input_ in self[name].inputs if name in self else ():
            yield from self._topics_of(input_)

    def stores(self) -> Iterator[Store]:
        """Yields every store of the plan. If the aggregations of a cogroup share a store, the store is yielded once
        for each aggregation."""
        for node in self.nodes:
            match node:
                case StreamStreamJoin():
                    yield node.this_store
                    yield node.other_store
                    if node.outer_store is not None:
                        yield node.outer_store
                case ForeignKeyJoin():
                    yield node.subscription_store
                    if node.materialized and node.store is not None:
                        yield node.store
                case StateStore() | GlobalStore():
                    yield node.store
                case Table() if node.materialized and node.store is not None and not isinstance(node, CogroupMerge):
                    yield node.store
