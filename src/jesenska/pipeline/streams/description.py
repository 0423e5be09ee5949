"""The text of `Topology.describe()`, exactly as Kafka Streams 3.9 writes it.

Within a sub-topology, the node with the most nodes after it comes first. Nodes with the same number of nodes after
them are sorted by name. The order of the names after an arrow (-->, <--) depends on Java's HashMap and TreeSet. Nodes
are linked in the order of a HashMap of their names. A TreeSet compares the sizes of nodes when a node is added; later
links increase the sizes without changing the order. `hash_order` and `_Tree` imitate this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from jesenska.pipeline.streams.processor_topology import (
    ProcessorNode,
    ProcessorTopology,
    SinkNode,
    SourceNode,
    TopologyNode,
)


def describe(topology: ProcessorTopology) -> str:
    """Returns the description of the whole topology."""
    text = "Topologies:\n "
    for number, names in enumerate(topology.sub_topologies()):
        text += "  " + (
            _global_store(topology, number, names)
            if topology.is_global(names)
            else _sub_topology(topology, number, names)
        )
    return text


def _global_store(topology: ProcessorTopology, number: int, names: list[str]) -> str:
    source, processor = (topology.nodes[name] for name in names)
    assert isinstance(source, SourceNode) and isinstance(processor, ProcessorNode)
    return (
        f"Sub-topology: {number} for global store (will not generate tasks)\n"
        f"    Source: {source.name} (topics: {_listed(source.topics)})\n      --> {processor.name}\n"
        f"    Processor: {processor.name} (stores: {_listed(processor.stores)})\n      --> none\n      <-- "
        f"{source.name}\n"
    )


def _sub_topology(topology: ProcessorTopology, number: int, names: list[str]) -> str:
    described = {name: _Described(topology.nodes[name]) for name in hash_order(hash_order(names))}
    for node in described.values():
        for parent in (described[name] for name in node.node.parents):
            node.predecessors.add(parent)
            parent.successors.add(node)
            parent.grow(node.size)
    lines = [str(node) + "\n" for node in sorted(described.values(), key=lambda node: (-node.size, node.name))]
    return f"Sub-topology: {number}\n" + "".join(f"    {line}" for line in lines) + "\n"


def _listed(names: Iterable[str]) -> str:
    return "[" + ", ".join(hash_order(names)) + "]"


@dataclass(eq=False)
class _Described:
    node: TopologyNode
    size: int = 1
    predecessors: _Tree = field(default_factory=lambda: _Tree())
    successors: _Tree = field(default_factory=lambda: _Tree())

    @property
    def name(self) -> str:
        return self.node.name

    def grow(self, by: int) -> None:
        self.size += by
        for predecessor in self.predecessors:
            predecessor.grow(by)

    def __str__(self) -> str:
        match self.node:
            case SourceNode(name=name, topics=topics, pattern=pattern):
                return (
                    f"Source: {name} (topics: {_listed(topics) if pattern is None else pattern})\n      --> "
                    f"{self.successors}"
                )
            case ProcessorNode(name=name, stores=stores):
                return (
                    f"Processor: {name} (stores: {_listed(stores)})\n      --> {self.successors}\n      <-- "
                    f"{self.predecessors}"
                )
            case SinkNode(name=name, topic=None, topic_extractor=extractor):
                shown = (
                    getattr(extractor.source, "__qualname__", repr(extractor.source))
                    if extractor is not None
                    else "none"
                )
                return f"Sink: {name} (extractor class: {shown})\n      <-- {self.predecessors}"
            case SinkNode(name=name, topic=topic):
                return f"Sink: {name} (topic: {topic})\n      <-- {self.predecessors}"


class _Tree:
    """A red-black tree that works like Java's TreeMap. Imitating it matters, since the nodes' sizes, and with them the
    order, may change after insertion."""

    def __init__(self) -> None:
        self._root: _Entry | None = None

    def add(self, node: _Described) -> None:
        if self._root is None:
            self._root = _Entry(node, None, black=True)
            return
        at: _Entry | None = self._root
        parent = self._root
        goes_left = False
        while at is not None:
            if at.node is node:
                return
            parent = at
            goes_left = (-node.size, node.name) < (-at.node.size, at.node.name)
            at = at.left if goes_left else at.right
        entry = _Entry(node, parent)
        if goes_left:
            parent.left = entry
        else:
            parent.right = entry
        self._balance(entry)

    def _balance(self, entry: _Entry) -> None:
        while (parent := entry.parent) is not None and not parent.black and (grandparent := parent.parent) is not None:
            parent_is_left = grandparent.left is parent
            uncle = grandparent.right if parent_is_left else grandparent.left
            if uncle is not None and not uncle.black:
                parent.black = uncle.black = True
                grandparent.black = False
                entry = grandparent
                continue
            if (parent.right if parent_is_left else parent.left) is entry:
                self._rotate(parent, left=parent_is_left)
                entry, parent = parent, entry
            parent.black = True
            grandparent.black = False
            self._rotate(grandparent, left=not parent_is_left)
        if self._root is not None:
            self._root.black = True

    def _rotate(self, entry: _Entry, left: bool) -> None:
        child = entry.right if left else entry.left
        assert child is not None
        moved = child.left if left else child.right
        if left:
            entry.right, child.left = moved, entry
        else:
            entry.left, child.right = moved, entry
        if moved is not None:
            moved.parent = entry
        child.parent, parent = entry.parent, entry.parent
        entry.parent = child
        if parent is None:
            self._root = child
        elif parent.left is entry:
            parent.left = child
        else:
            parent.right = child

    def __iter__(self) -> Iterator[_Described]:
        yield from _in_order(self._root)

    def __str__(self) -> str:
        return ", ".join(node.name for node in self) or "none"


@dataclass(eq=False)
class _Entry:
    node: _Described
    parent: _Entry | None
    left: _Entry | None = None
    right: _Entry | None = None
    black: bool = False


def _in_order(entry: _Entry | None) -> Iterator[_Described]:
    if entry is not None:
        yield from _in_order(entry.left)
        yield entry.node
        yield from _in_order(entry.right)


def hash_order(names: Iterable[str]) -> list[str]:
    """Returns the strings in the order in which Java iterates over a HashSet to which they were added one by one."""
    capacity = 16
    buckets: list[list[str]] = [[] for _ in range(capacity)]
    for count, name in enumerate(dict.fromkeys(names), 1):
        buckets[_spread(name) & (capacity - 1)].append(name)
        if count > capacity * 3 // 4:
            capacity *= 2
            grown: list[list[str]] = [[] for _ in range(capacity)]
            for bucket in buckets:
                for moved in bucket:
                    grown[_spread(moved) & (capacity - 1)].append(moved)
            buckets = grown
    return [name for bucket in buckets for name in bucket]


def _spread(text: str) -> int:
    """Returns Java's hash code of a string, with its bits mixed as HashMap does."""
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (31 * code + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return code ^ code >> 16
