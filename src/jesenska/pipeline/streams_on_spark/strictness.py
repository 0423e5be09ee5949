"""The rules of `KafkaStreams(…, strict=True)`. It refuses a topology whose results on Spark may differ from those of
Kafka Streams. A difference only in the time of the results is allowed. Each rule belongs to a row of the table "What
is different from Kafka Streams" in docs/streams-on-spark.md.

    rule                                                          refused
    a sub-topology with state reads several topics: a limit       where micro-batches have a limit
      may cut them at different times
    a processor of the program changes its attributes outside     always
      of `init`, or schedules a punctuation there
    a partitioner is used with topics that a function names       always
    punctuations on wall-clock time, and functions of a           with exactly_once_v2
      processor that ask for that time
    global tables and stores                                      with exactly_once_v2

Changes of a processor's attributes are found in its source text: `self.count += 1`, `self.seen[key] = value`,
`self.seen.add(key)`. Changes that other objects make, and functions that use the time or random numbers, are not
found."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.locations import Location
from jesenska.pipeline.streams.plan import Process, TableTransformValues
from jesenska.pipeline.streams.processor_topology import SinkNode, SourceNode
from jesenska.pipeline.streams_on_spark.application import Application
from jesenska.pipeline.streams_on_spark.cutting import SubTopology
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work, dry_task

_IN_INIT = ("__init__", "init", "close")
_CHANGES = frozenset(
    (
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    )
)


def refuse_what_may_differ(application: Application) -> None:
    """Raises StreamsError with a sentence for each part of the topology whose results may differ."""
    found = [
        *_cut_apart(application),
        *_attributes(application),
        *_partitioners(application),
        *(_of_exactly_once(application) if application.is_exactly_once else ()),
    ]
    if found:
        raise StreamsError(" ".join(dict.fromkeys(found)))


def _cut_apart(application: Application) -> Iterator[str]:
    """Yields a sentence for each sub-topology with state that reads several topics in micro-batches of limited size.
    Such micro-batches may contain late records of one topic before early records of another."""
    if application.max_offsets is None:
        return
    processors = application.topology.processors
    groups = processors.sub_topologies()
    for part in application.parts:
        sources = [node for name in groups[part.number] if isinstance(node := processors.nodes[name], SourceNode)]
        if not part.is_global and part.stores and (len(part.reads) > 1 or part.pattern is not None):
            yield (
                f"{sources[-1].made_at}: strict=True refuses that sub-topology {part.number} reads several topics in "
                f"micro-batches of limited size, "
                "since the order among their records then depends on where a micro-batch ends: give "
                "max_offsets_per_trigger=None."
            )


def _attributes(application: Application) -> Iterator[str]:
    """Yields a sentence for each processor that changes its attributes. Each micro-batch makes new processors, so the
    changes would be lost."""
    for node in application.topology.plan:
        if isinstance(node, Process | TableTransformValues):
            for at, what, remedy in _Reader(node.supplier()).findings():
                yield f"{at or node.made_at}: strict=True refuses that {node.name} {what}: {remedy}."


def _partitioners(application: Application) -> Iterator[str]:
    for node in application.topology.processors.nodes.values():
        if isinstance(node, SinkNode) and node.partitioner is not None and node.topic_extractor is not None:
            yield (
                f"{node.made_at}: strict=True refuses a partitioner for topics that a function names, since it "
                f"cannot be asked about "
                "a topic that comes later: name the topic, or leave the partitioner out."
            )


def _of_exactly_once(application: Application) -> Iterator[str]:
    processors = application.topology.processors
    groups = processors.sub_topologies()
    for part in application.parts:
        if part.is_global:
            yield (
                f"{processors.nodes[groups[part.number][0]].made_at}: strict=True refuses a global table with "
                f"exactly_once_v2, since a micro-batch that is "
                "run again may find another value in it: make it a table, with repartition() before the join."
            )
            continue
        for name in _punctuated_by_the_clock(application, part):
            yield (
                f"{processors.nodes[name].made_at}: strict=True refuses the punctuations of {name} on wall-clock "
                f"time with exactly_once_v2, since a "
                "micro-batch that is run again comes at another time: schedule them on stream time."
            )
    for node in application.topology.plan:
        if isinstance(node, Process | TableTransformValues):
            for at in _Reader(node.supplier()).asks_for_the_time():
                yield (
                    f"{at}: strict=True refuses that {node.name} asks for the wall-clock time with exactly_once_v2, "
                    f"since a micro-batch that is "
                    "run again comes at another time: use the record's timestamp."
                )


def _punctuated_by_the_clock(application: Application, part: SubTopology) -> list[str]:
    """Returns the names of the processors that schedule punctuations on wall-clock time in `init`."""
    work = Work.of(application.topology, part.number, application.config, {})
    with dry_task(work) as task:
        return [punctuation.node for punctuation in task._wall_clock._scheduled]


Finding = tuple[Location | None, str, str]
"""the line of the program, what the program does there, what it should do instead"""


class _Reader:
    """Searches the source text of a processor's class."""

    def __init__(self, processor: Any) -> None:
        self._methods: list[tuple[ast.FunctionDef, str, int]] = []
        seen: set[str] = set()
        for kind in type(processor).__mro__:
            if kind.__module__.startswith("jesenska.pipeline.streams.") or kind is object:
                continue
            try:
                lines, first = inspect.getsourcelines(kind)
                tree = ast.parse(textwrap.dedent("".join(lines)))
                file = inspect.getsourcefile(kind) or "?"
            except (OSError, TypeError, SyntaxError):
                continue  # there is no source to read
            body = tree.body[0]
            for method in body.body if isinstance(body, ast.ClassDef) else ():
                if isinstance(method, ast.FunctionDef) and method.name not in seen and method.args.args:
                    seen.add(method.name)
                    self._methods.append((method, file, first - 1))
        self._stores = {name for method, _, _ in self._methods for name in _stores_in(method)}

    def findings(self) -> Iterator[Finding]:
        """Yields changes of attributes and scheduled punctuations outside of `init`."""
        for method, file, before in self._methods:
            if method.name in _IN_INIT:
                continue
            this = method.args.args[0].arg
            for node in ast.walk(method):
                at = Location(file, before + getattr(node, "lineno", 0))
                for name in _changed(node, this):
                    if name not in self._stores:
                        yield (
                            at,
                            f"changes its attribute {name} in {method.name}, and a micro-batch begins with a new one",
                            "keep it in a store",
                        )
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "schedule":
                    yield (
                        at,
                        f"schedules a punctuation in {method.name}, which ends with its micro-batch",
                        "schedule it in init",
                    )

    def asks_for_the_time(self) -> Iterator[Location]:
        """Yields the lines that ask the processor context for the wall-clock time."""
        for method, file, before in self._methods:
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and node.attr == "current_system_time_ms":
                    yield Location(file, before + node.lineno)


def _stores_in(method: ast.FunctionDef) -> Iterator[str]:
    """Yields the names of the attributes to which a store of the context is assigned."""
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and any(
            isinstance(part, ast.Attribute) and part.attr == "get_state_store" for part in ast.walk(node.value)
        ):
            yield from (target.attr for target in node.targets if isinstance(target, ast.Attribute))


def _changed(node: ast.AST, this: str) -> Iterator[str]:
    """Yields the names of the attributes of `this` that a statement or a call changes."""
    targets: list[ast.expr] = []
    match node:
        case ast.Assign(targets=several) | ast.Delete(targets=several):
            targets = list(several)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target, value=ast.expr()) | ast.For(target=target):
            targets = [target]
        case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _CHANGES:
            targets = [value] if isinstance(value, ast.Attribute) else []
    while targets:
        target = targets.pop()
        if isinstance(target, ast.Tuple | ast.List):
            targets += target.elts
        while isinstance(target, ast.Subscript | ast.Starred):
            target = target.value
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == this:
            yield target.attr
