"""Writes a description of a topology call by call, and remembers the kind of each node."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.units.pipeline.streams.topology_spec import Json


@dataclass(frozen=True, slots=True)
class Node:
    """The node of a step: `kind` as `topology_spec.kinds` names it."""

    name: str
    kind: str
    key: str = "string"
    value: str = "string"
    size_ms: int | None = None
    store: str | None = None
    windows: Json | None = None

    @property
    def is_windowed(self) -> bool:
        return self.key != "string"


@dataclass(slots=True)
class Sketch:
    """The part of the description that is written so far."""

    name: str
    steps: list[Json] = field(default_factory=list)
    #: Topics that are read, with the type of their values.
    topics: dict[str, str] = field(default_factory=dict)
    nodes: int = 0

    def _write(self, call: str, of: Node | list[Node] | None, made: Node | None, arguments: Json) -> None:
        step: Json = {"do": call}
        if isinstance(of, Node):
            step["of"] = of.name
        elif of is not None:
            step["of"] = [node.name for node in of]
        # An aggregate may begin with null; otherwise None is an argument that is not given.
        step.update({name: value for name, value in arguments.items() if value is not None or name == "initial"})
        if made is not None:
            step["as"] = made.name
            step["key"], step["value"] = made.key, made.value
            if made.size_ms is not None:
                step["size_ms"] = made.size_ms
        self.steps.append(step)

    def fresh(self, prefix: str = "n") -> str:
        self.nodes += 1
        return f"{prefix}{self.nodes}"

    # ---- sources and stores ----

    def stream(self, *topics: str, named: str | None = None, value: str = "string") -> Node:
        made = Node(self.fresh(), "stream", value=value)
        self._write("stream", None, made, {"topics": list(topics), "named": named})
        self.topics.update(dict.fromkeys(topics, made.value))
        return made

    def table(self, topic: str, store: str | None = None, named: str | None = None, value: str = "string") -> Node:
        made = Node(self.fresh(), "table", value=value, store=store)
        self._write("table", None, made, {"topic": topic, "store": store, "named": named})
        self.topics[topic] = made.value
        return made

    def global_table(self, topic: str, store: str | None = None) -> Node:
        made = Node(self.fresh(), "global", store=store)
        self._write("global_table", None, made, {"topic": topic, "store": store})
        self.topics[topic] = made.value
        return made

    def add_store(self, store: str, kind: str = "key value", value: str = "string", **arguments: int) -> str:
        self.steps.append({"do": "add_state_store", "store": store, "kind": kind, "value": value, **arguments})
        return store

    # ---- one node from one ----

    def step(
        self,
        call: str,
        of: Node,
        value: str | None = None,
        key: str | None = None,
        kind: str | None = None,
        **arguments: Any,
    ) -> Node:
        """Adds a call whose node has the same kind and types except for the given ones. A key of another type has no
        size."""
        made = Node(
            self.fresh(),
            kind or of.kind,
            key or of.key,
            value or of.value,
            of.size_ms if key is None else None,
            arguments.get("store"),
            of.windows if key is None else None,
        )
        self._write(call, of, made, arguments)
        return made

    def to(self, of: Node, topic: str, named: str | None = None) -> None:
        self._write("to", of, None, {"topic": topic, "named": named})

    def to_topics(self, of: Node, function: str, topics: list[str], named: str | None = None) -> None:
        """Sends each record to the topic that the function chooses."""
        self._write("to", of, None, {"topics": topics, "function": function, "named": named})

    def foreach(self, of: Node) -> None:
        self._write("foreach", of, None, {"as": self.fresh("witness ")})

    def split(self, of: Node, predicates: list[str], is_default: bool, named: str | None = None) -> list[Node]:
        made = [Node(self.fresh(), "stream", of.key, of.value, of.size_ms) for _ in range(len(predicates) + is_default)]
        step: Json = {
            "do": "split",
            "of": of.name,
            "branches": [[name, node.name] for name, node in zip(predicates, made, strict=False)],
        }
        if is_default:
            step["default"] = made[-1].name
        if named is not None:
            step["named"] = named
        self._typed(step, of)
        return made

    def branch(self, of: Node, predicates: list[str]) -> list[Node]:
        made = [Node(self.fresh(), "stream", of.key, of.value, of.size_ms) for _ in predicates]
        self._typed({"do": "branch", "of": of.name, "predicates": predicates, "as": [node.name for node in made]}, of)
        return made

    def _typed(self, step: Json, of: Node) -> None:
        step["key"], step["value"] = of.key, of.value
        if of.size_ms is not None:
            step["size_ms"] = of.size_ms
        self.steps.append(step)

    # ---- one node from several ----

    def merge(self, one: Node, other: Node, named: str | None = None) -> Node:
        made = Node(self.fresh(), "stream", one.key, one.value, one.size_ms)
        self._write("merge", [one, other], made, {"named": named})
        return made

    def join(self, how: str, left: Node, right: Node, joiner: str = "pair", **arguments: Any) -> Node:
        made = Node(self.fresh(), left.kind, left.key, "string", left.size_ms, arguments.get("store"), left.windows)
        self._write("join", [left, right], made, {"how": how, "joiner": joiner, **arguments})
        return made

    def cogroup(self, grouped: list[Node], aggregators: list[str]) -> Node:
        made = Node(self.fresh(), "cogrouped")
        self._write("cogroup", grouped, made, {"aggregators": aggregators})
        return made

    # ---- groups and windows ----

    def windowed_by(self, of: Node, windows: Json) -> Node:
        kind = windows["kind"]
        key, size = (
            ("session", None)
            if kind == "session"
            else ("window", windows["difference_ms"] if kind == "sliding" else windows["size_ms"])
        )
        made = Node(self.fresh(), "windowed", key, of.value, size, windows=windows)
        self._write("windowed_by", of, made, {"windows": windows})
        return made

    def aggregated(self, call: str, of: Node, value: str | None = None, **arguments: Any) -> Node:
        return self.step(call, of, value, kind="table", **arguments)

    # ---- the end ----

    def end(self, of: Node, topic: str) -> None:
        """Writes a node to a topic: a table as the stream of its changes."""
        stream = self.step("to_stream", of, kind="stream") if of.kind == "table" else of
        self.to(stream, topic)

    def description(self, records: list[Json], **more: Any) -> Json:
        return {"name": self.name, **more, "steps": self.steps, "input": records}
