"""The logical plan of a topology while the program builds it. Each operation adds a node. Later nodes decide some
fields of earlier nodes. A table gets a store if a later node looks up its values. A table sends old values if a later
node needs old values. Both requirements are passed on to the tables from which the table is computed.

Two source nodes of the same topics become one node, as in Kafka Streams. The finished plan has the order in which
Kafka Streams writes the processors of a topology: by the time at which a node was added (or used again), parents
before children."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from jesenska.pipeline.streams.locations import refused
from jesenska.pipeline.streams.names import NameCounter
from jesenska.pipeline.streams.plan import (
    Node,
    Plan,
    Repartition,
    Store,
    StreamGlobalTableJoin,
    StreamSource,
    StreamStreamJoin,
    StreamTableJoin,
    Table,
)


class TableFacts:
    """The facts known so far about one table: `kept` (True if the table has a store), `sends_old_values`, and the
    parent tables.

    kind           condition for sending old values
    "source"       the table has a store; if a later node requires old values, the table gets a store
    "aggregate"    none: an aggregation always has a store
    "derived"      (filter, map_values, transform_values) the table has a store, or its parent table sends old values
    "join"         none: both parent tables are required to send old values
    "suppress"     the parent table sends old values
    """

    def __init__(self, kind: str, *parents: TableFacts, kept: bool = False) -> None:
        self.kind = kind
        self.parents = parents
        self.kept = kept
        self.sends_old_values = False
        self._answered = False

    def send_old_values(self, must: bool) -> bool:
        """Makes the table send old values. Returns True if it sends them. If `must` is False, the table sends old
        values only if this needs no additional store."""
        if self._answered:
            return True
        match self.kind:
            case "source":
                if not must and not self.kept:
                    return False
                self.kept = True
                self.sends_old_values = True
            case "aggregate":
                self.sends_old_values = True
            case "derived":
                if self.kept or self.parents[0].send_old_values(must):
                    self.sends_old_values = True
                if not self.sends_old_values:
                    return False
            case "join":
                for parent in self.parents:
                    parent.send_old_values(True)
                self.sends_old_values = True
            case "suppress":
                if not self.parents[0].send_old_values(must):
                    return False
        self._answered = True
        return True

    def look_up(self) -> None:
        """Notes that a later node looks up values of the table by key. So the table gets a store, or the tables from
        which it is computed get stores."""
        if self.kind == "source":
            self.kept = True
        elif self.kind == "suppress" or (self.kind in ("derived", "join") and not self.kept):
            for parent in self.parents:
                parent.look_up()


@dataclass(frozen=True, slots=True)
class Makers:
    """The classes of streams, tables and groups. Operations use them to create objects of another kind, such as a
    table from a stream."""

    stream: Callable[..., Any]
    table: Callable[..., Any]
    grouped_stream: Callable[..., Any]
    grouped_table: Callable[..., Any]


class Construction:
    """All nodes of one StreamsBuilder, with the facts about its tables."""

    def __init__(self, make: Makers) -> None:
        self.make = make
        self.names = NameCounter()
        self._nodes: dict[str, Node] = {}
        self._order: dict[str, int] = {}
        self._next = 0
        self._tables: dict[str, TableFacts] = {}
        self._copartitioned: list[frozenset[str]] = []

    def add(self, node: Node, facts: TableFacts | None = None) -> None:
        if node.name in self._nodes:
            raise refused(f"there are two operations of the name {node.name}: give one of them another name.")
        self._nodes[node.name] = node
        self.add_again(node.name)
        if facts is not None:
            self._tables[node.name] = facts

    def add_table(self, node: Table, facts: TableFacts, sources: frozenset[str]) -> Any:
        """Adds a node whose output is a table. Returns the table object for the program."""
        self.add(node, facts)
        return self.make.table(self, node.name, facts, key=node.key, value=node.value, sources=sources)

    def add_again(self, name: str) -> None:
        """Notes that a later operation uses the node once more. Kafka Streams then writes the node later in the
        description of the topology."""
        # Kafka Streams counts a node with two parents once for each parent.
        self._next += max(1, len(self._nodes[name].inputs))
        self._order[name] = self._next

    def change(self, name: str, **changes: Any) -> None:
        self._nodes[name] = replace(self._nodes[name], **changes)

    def must_have(self, operation: str, thing: Any) -> None:
        """Raises TopologyError if the stream, table or group was made by another StreamsBuilder."""
        if thing.name not in self._nodes or self._nodes[thing.name] is not thing._construction._nodes.get(thing.name):
            raise refused(
                f"{operation} got {thing!r}, which another StreamsBuilder has made: use one StreamsBuilder for a "
                "topology."
            )

    def node(self, name: str) -> Node:
        return self._nodes[name]

    def known(self, name: str) -> Node | None:
        """Returns the node of the name `name`, or None if there is no such node."""
        return self._nodes.get(name)

    def copartition(self, sources: Iterable[str]) -> frozenset[str]:
        """Records that the topics of these sources must have the same number of partitions."""
        group = frozenset(sources)
        self._copartitioned.append(group)
        return group

    def plan(self) -> Plan:
        """Returns the finished plan."""
        merged = self._merged_sources()
        nodes = {
            name: replace(node, inputs=tuple(merged.get(input_, input_) for input_ in node.inputs))
            for name, node in self._nodes.items()
            if name not in merged
        }
        relaxed = _above_relaxed_joins(nodes)
        finished = []
        for node in _ordered(nodes, self._order):
            facts = self._tables.get(node.name)
            if isinstance(node, Table) and facts is not None:
                node = replace(node, materialized=facts.kept, sends_old_values=facts.sends_old_values)
            if isinstance(node, Repartition):
                node = replace(node, drops_null_keys=node.name not in relaxed)
            finished.append(node)
        _check_stores(finished)
        groups = (frozenset(merged.get(name, name) for name in group) for group in self._copartitioned)
        return Plan(tuple(finished), tuple(groups))

    def _merged_sources(self) -> dict[str, str]:
        """Returns the names of source nodes whose topics an earlier source node already reads. The value of each name
        is the name of the earlier node, which takes over the children."""
        first_of: dict[str, StreamSource] = {}
        merged: dict[str, str] = {}
        for node in self._nodes.values():
            if not isinstance(node, StreamSource):
                continue
            for what in (f"pattern {node.pattern}",) if node.pattern is not None else node.topics:
                first = first_of.setdefault(what, node)
                if first is node:
                    continue
                if first.topics != node.topics:
                    raise refused(
                        f"topic {what} is read by two sources, of {', '.join(first.topics)} ({first.made_at}) and of "
                        f"{', '.join(node.topics)} "
                        f"({node.made_at}): let both read the same topics."
                    )
                if first.offset_reset != node.offset_reset:
                    raise refused(
                        f"{what} is read by two sources with different offset_reset ({first.made_at} and "
                        f"{node.made_at}): give both the same."
                    )
                merged[node.name] = first.name
        return merged


def _ordered(nodes: dict[str, Node], order: dict[str, int]) -> list[Node]:
    children: dict[str, list[str]] = {}
    for node in nodes.values():
        for parent in node.inputs:
            children.setdefault(parent, []).append(node.name)
    waiting = [(order[node.name], node.name) for node in nodes.values() if not node.inputs]
    heapq.heapify(waiting)
    written: dict[str, Node] = {}
    while waiting:
        _, name = heapq.heappop(waiting)
        if name in written or any(parent not in written for parent in nodes[name].inputs):
            continue
        written[name] = nodes[name]
        for child in children.get(name, ()):
            heapq.heappush(waiting, (order[child], child))
    return list(written.values())


def _above_relaxed_joins(nodes: dict[str, Node]) -> set[str]:
    """Returns the names of all nodes before left and outer joins of streams. These joins also need records with null
    keys, so the nodes must not drop them."""
    above: set[str] = set()

    def climb(name: str) -> None:
        for parent in nodes[name].inputs:
            if parent not in above:
                above.add(parent)
                climb(parent)

    for node in nodes.values():
        if isinstance(node, StreamStreamJoin | StreamTableJoin | StreamGlobalTableJoin) and node.kind != "inner":
            climb(node.name)
    return above


def _check_stores(nodes: list[Node]) -> None:
    seen: dict[str, Store] = {}
    for store in Plan(tuple(nodes)).stores():
        if seen.setdefault(store.name, store) is not store:
            raise refused(f"there are two stores of the name {store.name}: give one of them another name.")
