"""Where our answers differ from Kafka Streams' on purpose: each is a row of the table in docs/streams.md, under the
same title."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.pipeline.streams.topology_spec import Json


@dataclass(frozen=True, slots=True)
class Known:
    """A difference by its title. `concerns` says of which descriptions it may be met, `is_this` that one is it: it is
    given what is expected and what is ours."""

    title: str
    part: str
    concerns: Callable[[Json], bool]
    is_this: Callable[[Any, Any], bool]


KNOWN: tuple[Known, ...] = ()


def known(description: Json, difference: tuple[str, Any, Any]) -> Known | None:
    """What the difference is, if it is one of the table."""
    name, expected, ours = difference
    for item in KNOWN:
        if name.split()[0] == item.part and item.concerns(description) and item.is_this(expected, ours):
            return item
    return None
