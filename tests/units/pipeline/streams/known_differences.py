"""Intended differences between jesenska's answers and Kafka Streams': each is a row of the table in docs/streams.md,
under the same title."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.units.pipeline.streams.topology_spec import Json


@dataclass(frozen=True, slots=True)
class Known:
    """A difference by its title. `concerns` is True for the descriptions in which it may occur, `is_this` for an
    actual one: it gets the part that differs, the expected value and jesenska's."""

    title: str
    concerns: Callable[[Json], bool]
    is_this: Callable[[str, Any, Any], bool]


def _has(description: Json, **arguments: Any) -> bool:
    """True if a step, or its windows, has these arguments."""
    return any(arguments.items() <= (step | step.get("windows", {})).items() for step in _plain_steps(description))


def _jumps_and_closes(description: Json) -> bool:
    return _has(description, emit="when closed") and not description["name"].endswith("time without jumps")


def _plain_steps(description: Json) -> list[Json]:
    return [
        {name: value for name, value in step.items() if not isinstance(value, list)} for step in description["steps"]
    ]


def _no_result_is_lost(part: str, expected: Any, ours: Any) -> bool:
    """True if the results of Kafka Streams are among jesenska's, in each key's order, and jesenska's have each window
    of a key once."""
    windows = [json.dumps(record[0], sort_keys=True) for record in ours]
    in_order = all(
        _is_among([record for record in expected if record[0]["key"] == key], ours)
        for key in {record[0]["key"] for record in expected}
    )
    return part.startswith("output") and in_order and len(windows) == len(set(windows))


def _is_among(some: list[Any], all_of_them: list[Any]) -> bool:
    """True if some are among them, in that order."""
    rest = iter(all_of_them)
    return all(one in rest for one in some)


def _only_empty_values(part: str, expected: Any, ours: Any) -> bool:
    """True if Kafka Streams has no value wherever jesenska has an empty value of the other table, in the changelog
    too."""
    return part.startswith("internal") or json.loads(json.dumps(ours).replace(",)", ",null)")) == expected


KNOWN: tuple[Known, ...] = (
    Known("Results on window close: none is lost when time jumps", _jumps_and_closes, _no_result_is_lost),
    Known(
        "Empty values in foreign-key joins",
        lambda description: description["name"] == "foreign values that are empty",
        _only_empty_values,
    ),
)


def known(description: Json, difference: tuple[str, Any, Any]) -> Known | None:
    """Returns the row of the table for the difference, if there is one."""
    part, expected, ours = difference
    for item in KNOWN:
        if item.concerns(description) and item.is_this(part, expected, ours):
            return item
    return None
