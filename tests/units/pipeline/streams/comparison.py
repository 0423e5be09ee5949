"""Compares two outcomes of one description.

Records of a topic, and those that a witness saw, are compared key by key: those of one key must be the same in the
same order. Between keys their order may differ, as it does between partitions; `in_one_order` also requires that
order, for a driver that runs everything in one place.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.units.pipeline.streams.topology_spec import Json

#: The parts that are compared if Kafka keeps its state in RocksDB.
_ON_DISK = frozenset(("error", "describe", "output", "seen"))


def compared(description: Json) -> frozenset[str] | None:
    """The parts of outcomes that are compared; None for all."""
    return _ON_DISK if description.get("on_disk") else None


def differences(
    expected: Json, ours: Json, *, in_one_order: bool = False, parts: frozenset[str] | None = None
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the differences: the part, the expected value and jesenska's. `parts` names the parts that are compared:
    describe, error, output, seen, stores, dropped; all by default."""
    for part in ("error", "describe", "output", "seen", "internal", "stores", "dropped"):
        if parts is not None and part not in parts:
            continue
        one, other = expected.get(part), ours.get(part)
        if part == "error":
            if _failure(one) != _failure(other):
                yield part, one, other
        elif part in ("output", "seen", "internal"):
            yield from _records(part, one or {}, other or {}, in_one_order)
        elif part == "stores":
            for name in sorted((one or {}).keys() | (other or {}).keys()):
                if (one or {}).get(name) != (other or {}).get(name):
                    yield f"store {name}", (one or {}).get(name), (other or {}).get(name)
        elif one != other:
            yield part, one, other


def _failure(error: Json | None) -> tuple[str, int] | None:
    return None if error is None else (error["when"], error["at"])


def _records(part: str, one: Json, other: Json, in_one_order: bool) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted(one.keys() | other.keys()):
        expected, ours = one.get(name), other.get(name)
        if expected == ours:
            continue
        if expected is None or ours is None or in_one_order or _by_key(expected) != _by_key(ours):
            yield f"{part} {name}", expected, ours


def _by_key(records: list[list[Any]]) -> dict[str, list[list[Any]]]:
    keys = defaultdict(list)
    for record in records:
        keys[json.dumps(record[0], sort_keys=True)].append(record)
    return keys


def written(description: Json) -> str:
    """A description in a readable form."""
    lines = [f"# {description['name']}"]
    if description.get("settings"):
        lines.append(f"settings {description['settings']}")
    for step in description["steps"]:
        arguments = {
            name: value for name, value in step.items() if name not in ("do", "of", "as", "key", "value", "size_ms")
        }
        of = step.get("of", "")
        made = f"{step['as']} = " if "as" in step else ""
        types = f"   <{step['key']}, {step['value']}>" if "key" in step else ""
        lines.append(f"  {made}{step['do']} {of if isinstance(of, str) else ', '.join(of)} {arguments or ''}{types}")
    lines.append("# input")
    for at, record in enumerate(description["input"]):
        if "advance_ms" in record:
            lines.append(f"  {at:3} the clock goes on by {record['advance_ms']} ms")
        else:
            lines.append(
                f"  {at:3} {record['topic']:10} {json.dumps(record['key']):8} {json.dumps(record['value']):12} @ "
                f"{record['timestamp']}"
            )
    return "\n".join(lines)


def beside(name: str, expected: Any, ours: Any) -> str:
    """A difference in a readable form: lines of both sides, with marks at those that differ."""
    one, other = _lines(expected), _lines(ours)
    width = min(76, max((len(line) for line in one), default=0) + 2)
    lines = [f"# {name}: expected, and ours"]
    for at in range(max(len(one), len(other))):
        left = one[at] if at < len(one) else ""
        right = other[at] if at < len(other) else ""
        lines.append(f"{' ' if left == right else '!'} {left:{width}} | {right}")
    return "\n".join(lines)


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    if isinstance(value, list):
        return [json.dumps(item) for item in value]
    return [json.dumps(value)]
