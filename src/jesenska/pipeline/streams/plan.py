"""The logical plan: the meaning of a topology, in Kafka Streams' terms, independent of how it runs.

A plan is a tuple of nodes in an order in which every node comes after its inputs. The test driver runs it as Kafka
Streams' processors (`lowering.py`); a compiler to another engine reads the same nodes. Nodes are frozen, and name each
other by their names:

    name       Kafka Streams' name of the node, unique in the plan. An operation that is several processors in Kafka
               Streams (a join, a repartition) is one node here: `name` is the processor that gives the result, and the
               other processors' names are fields of their own
    inputs     names of the nodes whose output it takes, in the operation's own order (a join: this side, other side)
    made_at    the line of the user's program
    key,       the serdes of the node's output, if they are known; None means: the default serde of the settings.
    value      A source reads with them; a sink, a repartition or a store writes with them

The output of a node is a stream of records (`Stream` nodes) or the changes of a table (`Table` nodes). A table has at
most one value for a key, None deletes. `materialized` is True if it is kept in `store`; `sends_old_values` is True if
its changes carry the old value as well. Keys of windowed tables are `records.Windowed`.

Nulls, timestamps and late records are Kafka Streams 3.9's; each node's docstring says them. By default a record keeps
its timestamp and its headers, and null keys and values pass.
"""

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
    "key-value"      the latest value of each key; with the value's time where `timestamped`
    "window"         for a key and the start of a window one value; several where `retain_duplicates`
    "session"        for a key and a session one value
    "buffer"         updates that `suppress` holds back, in the order of their time
    "outer-join"     records of a join of streams that have no partner yet, in the order of their time
    "subscription"   of a foreign-key join: the primary keys that wait for a foreign key

    A window or a session expires when it is `retention_ms` older than the largest time in the store; None for stores
    that keep everything. `window_size_ms` is the windows' size. Every change also goes to the compacted topic
    `<application.id>-<name>-changelog` where `logging`. `given_name` is False where the name was generated; then it
    cannot be queried by contract, though it can by name.
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
    """The records of topics: those named, or all whose name matches `pattern` as a whole (a Java regular expression).
    Records that the serdes cannot read go to the deserialization exception handler."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource(Table):
    """A topic as a table: the latest record of a key counts, in the order of the topic; records with null keys are
    dropped. `source_name` is the processor that reads. Changes carry old values only where `materialized`."""

    source_name: str
    topic: str
    timestamp_extractor: TimestampExtractor | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTableSource(Table):
    """A topic as a table that every instance has whole. Always materialized, without a changelog."""

    source_name: str
    topic: str
    timestamp_extractor: TimestampExtractor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalStore(Node):
    """A topic that a processor of the user's puts into a store that every instance has whole; it has no output."""

    source_name: str
    topic: str
    store: Store
    supplier: Callable[[], Any]
    timestamp_extractor: TimestampExtractor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateStore(Node):
    """A store that processors connect to by its name; `name` is the store's."""

    store: Store


# Streams, record by record


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Stream):
    """Records for which the predicate holds, or does not where `negated`."""

    predicate: Function
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey(Stream):
    """The same values under new keys."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(Stream):
    """A new key and a new value for each record."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues(Stream):
    """A new value for each record; the mapper sees null values."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(Stream):
    """Any number of keys and values for each record, in order."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues(Stream):
    """Any number of values for each record, in order. A result of None gives no record."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek(Stream):
    """The same records; the action sees each."""

    action: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreach(Stream):
    """The action sees each record; nothing leaves."""

    action: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Stream):
    """Splits a stream: a record goes to the first of `children` (names of BranchChild nodes) whose predicate holds.
    One child more than predicates is the default; without it a record that no predicate takes is dropped."""

    predicates: tuple[Function, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchChild(Stream):
    """One of the streams that a Branch gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Stream):
    """The records of both inputs, in no order between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition(Stream):
    """Through an internal topic (`<application.id>-<topic>`), so that records of equal keys meet in one partition.
    `name` is the source that reads it again. Records with null keys are dropped where `drops_null_keys`: no later node
    could use them. `partitions` None: as many as the input has."""

    topic: str
    filter_name: str
    sink_name: str
    partitions: int | None = None
    partitioner: Callable[..., int | None] | None = None
    drops_null_keys: bool = True
    asked_for: bool = False  # by `repartition()`, and not by an operation that needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Stream):
    """A processor of the user's, with the stores that it is connected to. `supplier` makes one for each task.

    kind                     result of `supplier`
    "process"                Processor: process(record), forwards any records
    "process-values"         the same, but the key stays (forwarding another one is an error)
    "transform"              Transformer: transform(key, value) gives a pair or None
    "flat-transform"         … any number of pairs
    "transform-values"       ValueTransformer: transform(value), or ValueTransformerWithKey: transform(key, value)
    "flat-transform-values"  … any number of values
    """

    supplier: Callable[[], Any]
    kind: str = "process"
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Stream):
    """Writes to a topic: the one named, or the one that the function names for each record."""

    topic: str | None = None
    topic_extractor: Function | None = None
    partitioner: Callable[..., int | None] | None = None


# Between streams and tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStream(Stream):
    """The new values of a table's changes, as records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToTable(Table):
    """A stream as a table: as TableSource."""


# Aggregations


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation(Table):
    """The base of all aggregations of streams. `operation` is count, reduce or aggregate:

    count      the number of records; `initializer` and `aggregator` are None
    reduce     the first value as it is, then reducer(aggregate, value); `reducer` is set
    aggregate  aggregator(key, value, aggregate), beginning with initializer()
    """

    operation: str
    initializer: Function | None = None
    aggregator: Function | None = None
    reducer: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAggregate(Aggregation):
    """One aggregate for each key. Records with a null key or a null value are dropped. A result of None deletes the
    key. The timestamp of a result is the largest of the records in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedAggregate(Aggregation):
    """One aggregate for each key and window. Records with null keys are dropped, with SlidingWindows those with null
    values as well. A record is dropped from a window whose end (for SlidingWindows: end + 1) is at or below stream
    time minus grace. The timestamp of a result is the largest of the records in it; in a sliding window that a later
    record has opened it may be the later record's."""

    windows: TimeWindows | SlidingWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAggregate(Aggregation):
    """One aggregate for each key and session. A record merges the sessions that it touches: each of them is deleted
    (a change to None), then the merged one is set. Records with null keys are dropped, and those whose session would
    end before stream time minus gap minus grace. The timestamp of a change is the session's end; it has no headers.
    `merger` is None for count (the sum) and reduce (the reducer)."""

    windows: SessionWindows
    merger: Function | None = None
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class CogroupMerge(Table):
    """The table of a cogroup. Its inputs are the aggregations of the streams that are put together (StreamAggregate,
    WindowedAggregate or SessionAggregate, with the operation aggregate). They all share `store`: each continues the
    aggregate that any of them has stored for the key. The output is their changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroupBy(Table):
    """A table under new keys and values, for an aggregation after it: each change becomes the removal of the old pair
    and the addition of the new one; both in one change where the new key is the same. Pairs with a null key or a null
    value are left out."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRepartition(Table):
    """The changes of a TableGroupBy through an internal topic; `name` is the source that reads it again."""

    topic: str
    sink_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAggregate(Table):
    """One aggregate for each key of a grouped table: of a change the old value is taken out with `subtractor`, then
    the new one is put in with `adder`.

    count      the number of keys
    reduce     adder(aggregate, value) and subtractor(aggregate, value)
    aggregate  adder(key, value, aggregate) and subtractor(key, value, aggregate), beginning with initializer()

    A result of None deletes the key. The subtractor is not called while there is no aggregate. If a subtraction gives
    None, an addition in the same change begins with the initial aggregate."""

    operation: str
    initializer: Function | None = None
    adder: Function | None = None
    subtractor: Function | None = None


# Tables, key by key


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter(Table):
    """The keys whose value the predicate takes; for other keys a change to None. Deletions pass. Where old values are
    known, a change from None to None is left out."""

    predicate: Function
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapValues(Table):
    """New values; the mapper does not see None."""

    mapper: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTransformValues(Table):
    """New values from a ValueTransformerWithKey, which sees None as well, with stores."""

    supplier: Callable[[], Any]
    stores: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress(Table):
    """Holds updates back in `store` (a buffer), the last one of each key. `wait_ms` is how long: after the end of the
    window (`final`), or after the timestamp of the first held update, in stream time. A final result of None is left
    out."""

    suppressed: Suppressed
    wait_ms: int
    final: bool


# Joins. `kind` is inner, left or outer.


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoin(Stream):
    """Records of two streams with equal keys, no farther apart than the windows say. A pair has the larger timestamp.
    A record without a partner (left, outer: on that side) is joined with None once its window and grace have passed,
    with its own timestamp, when a later record comes; at once if its window has passed already. Records with null
    values are dropped, and those with null keys, but on an outer side, where they are joined with None at once."""

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
    """Each record with the value that the table has at that moment. `inputs` is the stream; `table` names the table.
    Records with null values or keys are dropped, but in a left join those with a null key and a value, which are
    joined with None."""

    table: str
    joiner: Function
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalTableJoin(Stream):
    """The same with a global table, by a key that `key_selector` takes from the record."""

    table: str
    key_selector: Function
    joiner: Function
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTableJoin(Table):
    """Two tables by their keys; a change on either side gives a change of the result, with the larger timestamp."""

    joiner: Function
    kind: str
    this_join_name: str
    other_join_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyJoin(Table):
    """A table (this side) with the other table by a key that is taken from this side's value. Changes of this side
    and of the other one give changes, keyed as this side. kind is inner or left. A null foreign key has no partner.

    In Kafka Streams this side registers itself with the foreign key through the topic `subscription_topic`, and the
    answer comes back through `response_topic`; an answer counts only if this side's value is still the same. An engine
    that has both sides in one place needs neither. `names` has the processors' names by their part in it."""

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
    """The nodes in order, and groups of sources whose topics must have equally many partitions; `copartitioned_topics`
    has their topics."""

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
        """For each group of topics that must have equally many partitions: the user's topics (and patterns), and the
        internal ones, without the application's id. Internal topics are made to fit the user's. Without internal
        topics the user's must fit each other; if a repartition sets its number of partitions, they must fit that."""
        for group in self.copartitioned:
            given: set[str] = set()
            internal: set[str] = set()
            for name in group:
                for is_internal, topic in self._topics_of(name):
                    (internal if is_internal else given).add(topic)
            yield frozenset(given), frozenset(internal)

    def _topics_of(self, name: str) -> Iterator[tuple[bool, str]]:
        """(is internal, topic) for each topic of a source by its name; for any other node, of its sources."""
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
        """Every store that the plan keeps; one that a cogroup shares as often as it is shared."""
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
