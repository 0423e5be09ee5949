"""A topology as Kafka Streams' processors: sources, processors and sinks by name, with their edges and stores.
`Topology.describe()` prints it, and the test driver runs it.

Processors that are connected by edges or by a shared store form a sub-topology. Sub-topologies exchange records only
through topics. Sub-topologies are numbered in the order in which their first nodes were added."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jesenska.pipeline.streams.dsl.functions import Function
from jesenska.pipeline.streams.locations import Location, refused
from jesenska.pipeline.streams.plan import Store
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.timestamps import TimestampExtractor

if TYPE_CHECKING:
    from jesenska.pipeline.streams.dsl.processing import Processor


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """A node that reads the named topics, or all topics that match a pattern."""

    name: str
    made_at: Location
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    timestamp_extractor: TimestampExtractor | None = None
    is_global: bool = False
    wrap: Callable[[Serde], Serde] | None = None  # how values of an internal topic are framed around the serde

    @property
    def parents(self) -> tuple[str, ...]:
        return ()


@dataclass(slots=True, kw_only=True)
class ProcessorNode:
    """A node that processes the records of its parents. `make` makes the processor, and `stores` contains the names of
    the stores that the processor may use."""

    name: str
    made_at: Location
    parents: tuple[str, ...]
    make: Callable[[], Processor]
    stores: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """A node that writes the records of its parents to a topic."""

    name: str
    made_at: Location
    parents: tuple[str, ...]
    topic: str | None = None
    topic_extractor: Function | None = None
    key: Serde | None = None
    value: Serde | None = None
    partitioner: Callable[..., int | None] | None = None
    wrap: Callable[[Serde], Serde] | None = None


TopologyNode = SourceNode | ProcessorNode | SinkNode


class ProcessorTopology:
    """The nodes of one topology, in the order in which they were added."""

    def __init__(self) -> None:
        self.nodes: dict[str, TopologyNode] = {}
        self.stores: dict[str, Store] = {}
        self.global_stores: dict[str, str] = {}  # store -> name of the source that feeds it
        self.internal_topics: set[str] = set()  # repartition topics; their names get the application.id in front
        self._topics: dict[str, str] = {}
        self._patterns: list[str] = []
        self._users: dict[str, list[str]] = {}
        self._group: dict[str, str] = {}

    def add_source(self, node: SourceNode) -> None:
        self._add(node)
        if not node.topics and node.pattern is None:
            raise refused(f"the source {node.name} reads nothing: give it a topic or a pattern.")
        for topic in node.topics:
            if topic in self._topics:
                raise refused(
                    f"topic {topic} is read by two sources, {self._topics[topic]} and {node.name}: use one source "
                    "for it, and connect both branches to this source."
                )
            for pattern in self._patterns:
                if re.fullmatch(pattern, topic):
                    raise refused(f"topic {topic} is read by the pattern {pattern!r} already: read it once.")
            self._topics[topic] = node.name
        if node.pattern is not None:
            for topic in self._topics:
                if re.fullmatch(node.pattern, topic):
                    raise refused(
                        f"the pattern {node.pattern!r} matches the topic {topic}, which another source reads: read "
                        f"it once."
                    )
            self._patterns.append(node.pattern)

    def add_processor(self, node: ProcessorNode) -> None:
        self._add(node)
        self._unite(node.name, node.parents)

    def add_sink(self, node: SinkNode) -> None:
        self._add(node)
        self._unite(node.name, node.parents)

    def add_store(self, store: Store, *users: str) -> None:
        known = self.stores.get(store.name)
        if known is not None and known is not store:
            raise refused(f"there are two stores of the name {store.name}: give one of them another name.")
        self.stores[store.name] = store
        for user in users:
            self.connect(user, store.name)

    def connect(self, processor: str, *stores: str) -> None:
        """Allows a processor to use stores. Processors that share a store belong to one sub-topology."""
        node = self.nodes.get(processor)
        if node is None:
            raise refused(f"there is no processor {processor} to connect with a store: add it first.")
        if not isinstance(node, ProcessorNode):
            raise refused(
                f"{processor} is a {'source' if isinstance(node, SourceNode) else 'sink'}, which uses no store: "
                f"connect a processor."
            )
        for store in stores:
            if store in self.global_stores:
                # Every task has the global stores, so they do not join processors to one sub-topology.
                continue
            if store not in self.stores:
                raise refused(
                    f"{processor} uses the store {store}, which is not there: add it with add_state_store first."
                )
            users = self._users.setdefault(store, [])
            if users:
                self._unite(processor, users[:1])
            users.append(processor)
            node.stores[store] = None

    def add_global_store(self, store: Store, source: SourceNode, processor: ProcessorNode) -> None:
        if store.name in self.stores:
            raise refused(f"there are two stores of the name {store.name}: give one of them another name.")
        self.add_source(source)
        self.add_processor(processor)
        processor.stores[store.name] = None
        self.stores[store.name] = store
        self.global_stores[store.name] = source.name

    def sub_topologies(self) -> list[list[str]]:
        """Returns, for each sub-topology, the names of its nodes in the order in which they were added."""
        groups: dict[str, list[str]] = {}
        for name in self.nodes:
            groups.setdefault(self._root(name), []).append(name)
        return list(groups.values())

    def is_global(self, names: list[str]) -> bool:
        """Returns True if the sub-topology with these nodes fills a global store."""
        return any(isinstance(node := self.nodes[name], SourceNode) and node.is_global for name in names)

    def children(self, name: str) -> list[str]:
        return [child.name for child in self.nodes.values() if name in child.parents]

    def _add(self, node: TopologyNode) -> None:
        if node.name in self.nodes:
            raise refused(f"there are two processors of the name {node.name}: give one of them another name.")
        for parent in node.parents:
            if parent == node.name:
                raise refused(f"{node.name} cannot be its own parent: name another one.")
            if parent not in self.nodes:
                raise refused(f"the parent {parent} of {node.name} is not there: add it first.")
            if isinstance(self.nodes[parent], SinkNode):
                raise refused(f"{parent} is a sink, which nothing can come after: give {node.name} another parent.")
        if not isinstance(node, SourceNode) and not node.parents:
            raise refused(f"{node.name} has no parent: name the source or the processor that feeds it.")
        self.nodes[node.name] = node
        self._group[node.name] = node.name

    def _root(self, name: str) -> str:
        while self._group[name] != name:
            name = self._group[name]
        return name

    def _unite(self, name: str, others: tuple[str, ...] | list[str]) -> None:
        for other in others:
            one, two = self._root(name), self._root(other)
            if one != two:
                self._group[one] = two
