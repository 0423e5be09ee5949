"""Divides a topology into its sub-topologies; each sub-topology runs as one query. Finds the topics of the
sub-topologies, the number of partitions of each internal topic, and an order in which the queries can run one after
the other. This module sends no requests to brokers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.plan import Plan, Repartition, TableSource
from jesenska.pipeline.streams.processor_topology import ProcessorNode, SinkNode, SourceNode
from jesenska.pipeline.streams.topology import Topology


@dataclass(frozen=True, slots=True)
class SubTopology:
    """One sub-topology of the application. `reads` and `writes` contain full names of topics. `pattern` is a regular
    expression for further topics that the sub-topology reads. `extracts` is True if it also writes to topics whose
    names a function of the program returns."""

    number: int
    reads: tuple[str, ...]
    pattern: str | None
    writes: tuple[str, ...]
    extracts: bool
    is_global: bool
    stores: tuple[str, ...]
    latest: frozenset[str]  # topics that are read from their end when the application first starts

    def takes(self, topic: str) -> bool:
        return topic in self.reads or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)


def cut(topology: Topology, application_id: str) -> list[SubTopology]:
    """Returns the sub-topologies, with the numbers that `describe()` shows."""
    processors, plan = topology.processors, topology.plan
    reset = {
        node.source_name if isinstance(node, TableSource) else node.name: getattr(node, "offset_reset", None)
        for node in plan
    }

    def full(topic: str) -> str:
        return f"{application_id}-{topic}" if topic in processors.internal_topics else topic

    found = []
    for number, names in enumerate(processors.sub_topologies()):
        nodes = [processors.nodes[name] for name in names]
        sources = [node for node in nodes if isinstance(node, SourceNode)]
        sinks = [node for node in nodes if isinstance(node, SinkNode)]
        patterns = [source.pattern for source in sources if source.pattern is not None]
        found.append(
            SubTopology(
                number=number,
                reads=tuple(full(topic) for source in sources for topic in source.topics),
                pattern="|".join(f"(?:{pattern})" for pattern in patterns) or None,
                writes=tuple(dict.fromkeys(full(sink.topic) for sink in sinks if sink.topic is not None)),
                extracts=any(sink.topic is None for sink in sinks),
                is_global=processors.is_global(names),
                stores=tuple(
                    dict.fromkeys(store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores)
                ),
                latest=frozenset(
                    full(topic) for source in sources if reset.get(source.name) == "latest" for topic in source.topics
                ),
            )
        )
    return found


def in_order(parts: Sequence[SubTopology]) -> tuple[list[SubTopology], bool]:
    """Returns the sub-topologies in an order in which the sub-topologies that write a topic come before those that
    read it. Also returns True if there is a cycle: then the queries must run several times."""
    left, ordered = list(parts), []
    circle = False
    while left:
        ready = [one for one in left if not any(_feeds(other, one) for other in left if other is not one)]
        circle = circle or not ready or any(_feeds(one, one) for one in ready)
        for one in ready or left[:1]:
            left.remove(one)
            ordered.append(one)
    return ordered, circle


def _feeds(writer: SubTopology, reader: SubTopology) -> bool:
    return any(reader.takes(topic) for topic in writer.writes)


def partitions_of_internal_topics(
    topology: Topology, parts: Sequence[SubTopology], application_id: str, known: Mapping[str, int]
) -> dict[str, int]:
    """Returns the number of partitions of each internal topic. `known` contains the number of partitions of all
    existing topics. Raises StreamsError if a topic is missing, or if topics that are joined have different numbers of
    partitions."""
    internal = {f"{application_id}-{topic}" for topic in topology.processors.internal_topics}
    for part in parts:
        for topic in part.reads:
            if topic not in internal and topic not in known:
                raise StreamsError(
                    f"the topic {topic}, which the application reads, does not exist: create it before the "
                    f"application starts."
                )
        if part.pattern is not None and not any(part.takes(topic) for topic in known):
            raise StreamsError(
                f"no topic matches {part.pattern}, which the application reads: create one before the application "
                f"starts."
            )
    counts = {topic: number for topic, number in known.items() if topic not in internal}
    for node in topology.plan:
        if isinstance(node, Repartition) and node.partitions is not None:
            counts[f"{application_id}-{node.topic}"] = node.partitions
    groups = [
        group
        for group in (
            _topics_of(topology.plan, names, application_id, internal) for names in topology.plan.copartitioned
        )
        if len(group) > 1
    ]
    _settle(parts, groups, internal, counts)
    for group in groups:
        if len({counts[topic] for topic in group}) > 1:
            numbers = " and ".join(f"{topic} has {counts[topic]}" for topic in group)
            raise StreamsError(
                f"topics that are joined need equally many partitions, but {numbers}: put repartition() before the "
                f"join, or create a topic anew."
            )
    return {topic: counts[topic] for topic in sorted(internal)}


def _settle(
    parts: Sequence[SubTopology], groups: Sequence[list[str]], internal: set[str], counts: dict[str, int]
) -> None:
    """Sets the number of partitions of every internal topic in `counts`. An internal topic that is joined with other
    topics gets their number. Any other internal topic gets the largest number among the topics that its writers
    read."""
    while missing := sorted(internal - counts.keys()):
        before = len(counts)
        for group in groups:
            given = [counts[topic] for topic in group if topic in counts]
            if given and any(topic in counts and topic not in internal for topic in group):
                for topic in group:
                    counts.setdefault(topic, max(given))
        for topic in missing:
            if topic not in counts:
                writers = [part for part in parts if topic in part.writes]
                if all(one in counts for part in writers for one in part.reads):
                    counts[topic] = max((tasks_of(part, counts) for part in writers), default=1)
        if len(counts) == before:  # a circle of internal topics
            writers = [part for part in parts if missing[0] in part.writes]
            counts[missing[0]] = max((tasks_of(part, counts) for part in writers), default=1)
    for group in groups:
        if all(topic in internal for topic in group):
            most = max(counts[topic] for topic in group)
            counts.update(dict.fromkeys(group, most))


def tasks_of(part: SubTopology, counts: Mapping[str, int]) -> int:
    """Returns the number of the sub-topology's tasks: the largest number of partitions among the topics that it
    reads."""
    return max((number for topic, number in counts.items() if part.takes(topic)), default=1)


def _topics_of(plan: Plan, names: Iterable[str], application_id: str, internal: set[str]) -> list[str]:
    """Returns the topics that the named source nodes read."""
    found: dict[str, None] = {}
    for node in plan:
        if node.name in names or getattr(node, "source_name", node.name) in names:
            topics = getattr(node, "topics", None) or ((node.topic,) if getattr(node, "topic", None) else ())  # type: ignore[attr-defined]
            for topic in topics:
                full = f"{application_id}-{topic}"
                found[full if full in internal else topic] = None
    return list(found)
