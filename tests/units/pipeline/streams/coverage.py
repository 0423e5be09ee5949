"""The contents of a description, as sentences, read only from its steps and its input; and the contents that all
descriptions together must have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.units.pipeline.streams.topology_spec import JOINS, WINDOWS, Json, inputs_of, kinds

_OF_STREAMS = (
    *("filter", "filter_not", "map", "map_values", "flat_map", "flat_map_values", "select_key", "peek", "foreach"),
    *(
        "merge",
        "split",
        "branch",
        "through",
        "repartition",
        "to",
        "to_table",
        "process",
        "process_values",
        "group_by",
        "group_by_key",
    ),
    *("transform", "flat_transform", "transform_values", "flat_transform_values"),
)
_OF_TABLES = ["filter", "filter_not", "map_values", "transform_values", "to_stream", "group_by", "suppress"]
_NULLS = ("null left key", "null left value", "null right key", "null right value")
_ORDERS = ("left first", "right first", "same time", "right out of order", "left out of order")

WANTED = frozenset(
    [
        *("stream", "table", "global_table", "add_state_store", "cogroup of a grouped stream"),
        *(f"{call} of a stream" for call in _OF_STREAMS),
        *(f"{call} of a table" for call in _OF_TABLES),
        *(
            f"{call} of a {grouped}"
            for call in ("count", "reduce", "aggregate")
            for grouped in ("grouped stream", "grouped table", "windowed")
        ),
        *(f"aggregate of a {grouped}" for grouped in ("cogrouped",)),
        *(
            f"{call} of a table with a store"
            for call in ("filter", "filter_not", "map_values", "transform_values", "join", "table", "to_table")
        ),
        *(f"{left}-{right} {how} join, {case}" for left, right, how in JOINS for case in (*_NULLS, *_ORDERS)),
        *(
            f"{kind} windows, {call}, {late}"
            for kind in WINDOWS
            for call in ("count", "reduce", "aggregate")
            for late in ("late within grace", "too late")
        ),
        *(f"suppress until {kind} windows close" for kind in WINDOWS),
        *(f"{kind} windows give results when closed" for kind in WINDOWS),
        *(
            "suppress until a time limit",
            *(
                f"suppress with {bound}, {what}"
                for bound in ("max_records", "max_bytes")
                for what in ("emit early", "shut down")
            ),
        ),
        *(
            f"{call} of a grouped table, {case}"
            for call in ("count", "reduce", "aggregate")
            for case in ("tombstone", "tombstone of nothing", "changed")
        ),
        *("null value aggregated", "null key aggregated"),
        *(f"repartition before {call}" for call in ("a join", "an aggregate", "to_table")),
        *(f"punctuator by {time} time" for time in ("stream", "wall clock")),
        *(
            "window store",
            "key value store",
            "session store",
            "store of a table in a process",
            "records that cannot be read",
        ),
    ]
)


def covered(description: Json) -> set[str]:
    """Returns the contents of a description, in the words of WANTED; there may be more than wanted."""
    found: set[str] = set()
    node_kinds = kinds(description)
    steps = {name: step for step in description["steps"] for name in _names(step)}
    for step in description["steps"]:
        found.update(_calls(step, node_kinds))
        if step["do"] == "join":
            found.update(_join(description, step, steps, node_kinds))
        if step["do"] in ("count", "reduce", "aggregate"):
            found.update(_aggregate(description, step, steps, node_kinds))
        if step["do"] in ("group_by", "to_table") and "function" in step and node_kinds[step["of"]] == "stream":
            found.add("repartition before an aggregate")
        if step["do"] == "to_table" and _has_new_key(step["of"], steps):
            found.add("repartition before to_table")
        if (
            step["do"] == "join"
            and any(_has_new_key(name, steps) for name in step["of"])
            and node_kinds[step["of"][0]] == "stream"
        ):
            found.add("repartition before a join")
    if any(isinstance(record.get("value"), int) for record in description["input"]) and description.get("settings"):
        found.add("records that cannot be read")
    return found


def _names(step: Json) -> list[str]:
    made = step.get("as", [])
    names = [made] if isinstance(made, str) else list(made)
    return names + [name for _, name in step.get("branches", [])] + ([step["default"]] if "default" in step else [])


def _calls(step: Json, node_kinds: dict[str, str]) -> Iterator[str]:
    call = step["do"]
    of = [node_kinds[name] for name in inputs_of(step)]
    yield f"{call} of a {of[0]}" if of else call
    if "store" in step:
        yield f"{call} of a table with a store"
    if call == "add_state_store":
        yield f"{step['kind']} store"
    if call == "process" and step["processor"] == "look up":
        yield "store of a table in a process"
    if "every_ms" in step:
        yield f"punctuator by {step['time']} time"
    if step.get("windows", {}).get("emit") == "when closed":
        yield f"{step['windows']['kind']} windows give results when closed"
    if call == "suppress":
        if step["until"] == "time limit":
            yield "suppress until a time limit"
        for bound in ("max_records", "max_bytes"):
            if bound in step:
                yield f"suppress with {bound}, {step['when_full']}"


def _has_new_key(name: str, steps: dict[str, Json]) -> bool:
    """True if there is a repartition between a change of the key and the next steps."""
    step = steps[name]
    if step["do"] in ("map", "flat_map", "select_key", "process"):
        return True
    if step["do"] in (
        "filter",
        "filter_not",
        "map_values",
        "flat_map_values",
        "peek",
        "merge",
        "split",
        "branch",
        "process_values",
        "group_by_key",
    ):
        return any(_has_new_key(before, steps) for before in inputs_of(step))
    return False


def _topics(name: str, steps: dict[str, Json]) -> list[str]:
    """Returns the topics that a node reads, if it is a source."""
    step = steps[name]
    if step["do"] in ("stream", "table", "global_table"):
        topics: list[str] = step.get("topics") or [step["topic"]]
        return topics
    return []


def _records(description: Json, topics: list[str]) -> list[tuple[int, Json]]:
    return [(at, record) for at, record in enumerate(description["input"]) if record.get("topic") in topics]


def _join(description: Json, step: Json, steps: dict[str, Json], node_kinds: dict[str, str]) -> Iterator[str]:
    left, right = step["of"]
    kind = "foreign" if "foreign_key" in step else node_kinds[right]
    name = f"{node_kinds[left]}-{kind} {step['how']} join"
    sides = {"left": _records(description, _topics(left, steps)), "right": _records(description, _topics(right, steps))}
    if not sides["left"] or not sides["right"]:
        return
    for side, records in sides.items():
        for what in ("key", "value"):
            if any(record[what] is None for _, record in records):
                yield f"{name}, null {side} {what}"
    # A null value is never a key's first record here, so the first value was not null.
    lefts: dict[str | None, tuple[int, int]] = {}
    for at, record in sides["left"]:
        if record["value"] and record["key"] is not None:
            lefts.setdefault(record["value"][0] if kind == "foreign" else record["key"], (at, record["timestamp"]))
    rights: dict[str | None, tuple[int, int]] = {}
    for at, record in sides["right"]:
        if record["value"] and record["key"] is not None:
            rights.setdefault(record["key"], (at, record["timestamp"]))
    for key in lefts.keys() & rights.keys():
        yield f"{name}, {_order(lefts[key], rights[key])}"


def _order(left: tuple[int, int], right: tuple[int, int]) -> str:
    (left_at, left_time), (right_at, right_time) = left, right
    if left_time == right_time:
        return "same time"
    if left_at < right_at:
        return "left first" if left_time < right_time else "right out of order"
    return "right first" if right_time < left_time else "left out of order"


def _aggregate(description: Json, step: Json, steps: dict[str, Json], node_kinds: dict[str, str]) -> Iterator[str]:
    of = steps[step["of"]]
    windows = of.get("windows") if of["do"] == "windowed_by" else None
    grouped = steps[of["of"]] if windows is not None else of
    if grouped["do"] not in ("group_by", "group_by_key"):
        return
    records = _records(description, _topics(grouped["of"], steps))
    if not records:
        return
    if any(record["value"] is None for _, record in records):
        yield "null value aggregated"
    if any(record["key"] is None for _, record in records):
        yield "null key aggregated"
    if node_kinds[step["of"]] == "grouped table":
        yield from (f"{step['do']} of a grouped table, {case}" for case in _changes(record for _, record in records))
    if windows is not None:
        yield from (
            f"{windows['kind']} windows, {step['do']}, {late}"
            for late in _late([record["timestamp"] for _, record in records], windows)
        )
        if any(
            other["do"] == "suppress" and other["of"] == step["as"] and other["until"] == "window closes"
            for other in description["steps"]
        ):
            yield f"suppress until {windows['kind']} windows close"


def _changes(records: Iterator[Json]) -> Iterator[str]:
    table: dict[str, str] = {}
    for record in records:
        key, value = record["key"], record["value"]
        if key is None:
            continue
        if value is None:
            yield "tombstone" if key in table else "tombstone of nothing"
            table.pop(key, None)
        else:
            if table.get(key, value) != value:
                yield "changed"
            table[key] = value


def _late(times: list[int], windows: Json) -> Iterator[str]:
    size: int = windows.get("size_ms") or windows.get("difference_ms") or windows["gap_ms"]
    newest = times[0]
    for before, time in pairwise(times):
        newest = max(newest, before)
        if time < newest - size - windows["grace_ms"]:
            yield "too late"
        elif time < newest and windows["grace_ms"] > 0:
            yield "late within grace"
