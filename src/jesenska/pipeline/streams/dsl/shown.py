"""The display of a stream, a table or a topology: one line of text in a prompt, an HTML table in a notebook."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any

from jesenska.pipeline.streams.dsl.construction import Construction
from jesenska.pipeline.streams.dsl.functions import Function
from jesenska.pipeline.streams.locations import Location
from jesenska.pipeline.streams.plan import GlobalTableSource, Node, StreamSource, Table, TableSource
from jesenska.pipeline.streams.processor_topology import ProcessorTopology, SinkNode, SourceNode, TopologyNode
from jesenska.pipeline.streams.serdes.serde import Serde

#: The largest number of operations in one line. The last operations are shown.
_LAST = 4
_CHARACTERS_MAX = 60


def line_of(kind: str, construction: Construction, name: str, key: Serde | None, value: Serde | None) -> str:
    """Returns one line of text that describes a stream or a table: its operations, beginning with the source, and its
    serdes."""
    steps = [_operation(node) for node in _way_to(construction, name)]
    way = " -> ".join(["…", *steps[-_LAST:]] if len(steps) > _LAST else steps)
    return f"<{kind} {name}{f': {way}' if way else ''}; key {_serde(key)}, value {_serde(value)}>"


def table_of(kind: str, construction: Construction, name: str, key: Serde | None, value: Serde | None) -> str:
    """Returns an HTML table that describes a stream or a table, with one operation in each row."""
    rows = []
    for node in _way_to(construction, name):
        others = [*node.inputs[1:]] if node.inputs else []
        with_others = f" with {', '.join(others)}" if others else ""
        store = node.store.name if isinstance(node, Table) and node.store is not None and node.store.given_name else ""
        rows.append((_operation(node) + with_others, store, _place(node.made_at)))
    caption = f"{kind} {name}: key {_serde(key)}, value {_serde(value)}"
    return _html(caption, ("operation", "store", "written at"), rows)


def topology_line(processors: ProcessorTopology) -> str:
    reads, writes = _topics(processors, list(processors.nodes))
    count, stores = len(processors.sub_topologies()), _listed(processors.stores)
    return f"<Topology: {count} sub-topologies; reads {_listed(reads)}; writes {_listed(writes)}; stores {stores}>"


def topology_tables(processors: ProcessorTopology) -> str:
    """Returns an HTML table for each sub-topology, with one processor in each row."""
    tables = []
    for number, names in enumerate(processors.sub_topologies()):
        reads, writes = _topics(processors, names)
        caption = f"Sub-topology {number}: {_listed(reads)} -> {_listed(writes)}"
        rows = [_processor(processors.nodes[name]) for name in names]
        tables.append(_html(caption, ("processor", "behind", "topics and stores", "written at"), rows))
    return "".join(tables)


def _processor(node: TopologyNode) -> tuple[str, str, str, str]:
    if isinstance(node, SourceNode):
        uses = ", ".join(node.topics) or str(node.pattern)
    elif isinstance(node, SinkNode):
        uses = node.topic or "topics that a function names"
    else:
        uses = ", ".join(node.stores)
    return node.name, ", ".join(node.parents) if not isinstance(node, SourceNode) else "", uses, _place(node.made_at)


def _topics(processors: ProcessorTopology, names: Iterable[str]) -> tuple[list[str], list[str]]:
    nodes = [processors.nodes[name] for name in names]
    reads = [topic for node in nodes if isinstance(node, SourceNode) for topic in (node.topics or (str(node.pattern),))]
    return reads, [node.topic or "…" for node in nodes if isinstance(node, SinkNode)]


def _way_to(construction: Construction, name: str) -> list[Node]:
    """Returns the nodes from the source to the node `name`. If a node has several inputs, only its first input is
    followed."""
    found: list[Node] = []
    at: str | None = name
    while at is not None and (node := construction.known(at)) is not None:
        found.insert(0, node)
        at = node.inputs[0] if node.inputs else None
    return found


def _operation(node: Node) -> str:
    match node:
        case StreamSource(topics=topics, pattern=pattern):
            return ", ".join(topics) if pattern is None else f"topics {pattern}"
        case TableSource(topic=topic) | GlobalTableSource(topic=topic):
            return f"table {topic}"
    given = [value for field in fields(node) if isinstance(value := getattr(node, field.name), Function)]
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", type(node).__name__).lower()
    return f"{name}({', '.join(map(_function, given))})" if given else name


def _function(function: Function) -> str:
    source = (
        function.source
        if function.is_expression
        else getattr(function.source, "__name__", type(function.source).__name__)
    )
    text = str(source) if not isinstance(source, str) else source
    return text if len(text) <= _CHARACTERS_MAX else text[:_CHARACTERS_MAX] + "…"


def _serde(serde: Serde | None) -> str:
    return "by default" if serde is None else repr(serde).removeprefix("Serdes.").removesuffix("()")


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(map(str, names)) or "none"


def _place(at: Location) -> str:
    return f"{Path(at.file).name}, line {at.line}"


def _html(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cells(kind: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f'<{kind} style="text-align: left">{escape(text)}</{kind}>' for text in texts) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return (
        f'<table><caption style="text-align: '
        f'left">{escape(caption)}</caption><thead>{cells("th", head)}</thead><tbody>{body}</tbody></table>'
    )
