"""A table of counts of each broker state and fault, over all seeds of a run.

A broker that is hit is usually in several states: it leads one partition and follows in other ones. Each counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

#: The states of a broker when it is hit.
STATES: Final = ("controller", "leader", "follower in sync", "follower out of sync", "starting", "coordinator")
#: The faults, by the names of `schedule`.
FAULTS: Final = (
    "killed",
    "power loss",
    "stopped",
    "cut",
    "slow disk",
    "full disk",
    "clock",
    "pause",
    "partition",
    "tree killed",
    "tree cut off",
)

Cell = tuple[str, str]


class Coverage:
    """Counts by state and fault."""

    def __init__(self) -> None:
        self.counts: Counter[Cell] = Counter()

    def met(self, states: list[str], fault: str) -> None:
        """A broker in these states was hit."""
        for state in states:
            self.counts[state, fault] += 1


def as_json(counts: Mapping[Cell, int]) -> dict[str, dict[str, int]]:
    """Returns the counts by state, then by fault; every cell is there."""
    return {state: {fault: counts.get((state, fault), 0) for fault in FAULTS} for state in STATES}


def as_table(counts: Mapping[Cell, int]) -> str:
    """Returns a line for each state, a column for each fault."""
    first = max(map(len, STATES))
    lines = [" " * first + "".join(f"  {fault}" for fault in FAULTS)]
    for state in STATES:
        cells = (f"  {counts.get((state, fault), 0):>{len(fault)}}" for fault in FAULTS)
        lines.append(f"{state:<{first}}" + "".join(cells))
    return "\n".join(lines)
