"""Mutations that nobody could notice, each with the reason. `equivalent.toml` has them:

    [[mutation]]
    module = "controller/changes/leadership.py"
    function = "Leadership.elect"
    line = "if numbers is not None:"
    change = "is not -> is"
    reason = "why nobody could notice"

Module, function and the text of the line say where it is, so that other lines may come and go above it. The command
prints a mutation that survives in these words.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from tests.mutations.mutation import Mutation

NAMED = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One entry."""

    module: str
    function: str
    line: str
    change: str
    reason: str

    def names(self, mutation: Mutation) -> bool:
        """True if this mutation is meant."""
        return (self.module, self.function, self.line, self.change) == (
            mutation.file,
            mutation.function,
            mutation.text,
            mutation.change,
        )


def equivalents(path: Path) -> list[Equivalent]:
    """What a file names; an entry that lacks something is a ValueError."""
    found = []
    wanted = {field.name for field in fields(Equivalent)}
    for number, entry in enumerate(tomllib.loads(path.read_text()).get("mutation", []), 1):
        if entry.keys() != wanted or not all(isinstance(value, str) for value in entry.values()) or not entry["reason"]:
            raise ValueError(
                f"Entry {number} of {path.name} must have these keys, each with a text: {', '.join(sorted(wanted))}."
            )
        found.append(Equivalent(**entry))
    return found


def that_name_nothing(entries: Iterable[Equivalent], mutations: Iterable[Mutation]) -> list[Equivalent]:
    """Those entries that mean none of the mutations."""
    known = {(one.file, one.function, one.text, one.change) for one in mutations}
    return [entry for entry in entries if (entry.module, entry.function, entry.line, entry.change) not in known]
