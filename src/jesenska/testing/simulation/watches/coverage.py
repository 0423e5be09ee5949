"""Counts, over all seeds of a run, how often each fault hit a broker in each state.

A broker usually is in several states when a fault hits it: it leads one partition and follows in other partitions.
Each of these states is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

#: The states in which a broker can be hit.
STATES: Final = ("controller", "leader", "follower in sync", "follower out of sync", "starting", "coordinator")
#: The faults, with the names that `schedule` uses.
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
    """The counts of faults by the state of the broker."""

    def __init__(self) -> None:
        self.counts: Counter[Cell] = Counter()

    def met(self, states: list[str], fault: str) -> None:
        """Counts a fault that hit a broker in these states."""
        for state in states:
            self.counts[state, fault] += 1


def as_json(counts: Mapping[Cell, int]) -> dict[str, dict[str, int]]:
    """Returns the counts by state, then by fault. Combinations that never occurred have the count 0."""
    return {state: {fault: counts.get((state, fault), 0) for fault in FAULTS} for state in STATES}


def as_table(counts: Mapping[Cell, int]) -> str:
    """Returns a text table with a line for each state and a column for each fault."""
    first = max(map(len, STATES))
    lines = [" " * first + "".join(f"  {fault}" for fault in FAULTS)]
    for state in STATES:
        cells = (f"  {counts.get((state, fault), 0):>{len(fault)}}" for fault in FAULTS)
        lines.append(f"{state:<{first}}" + "".join(cells))
    return "\n".join(lines)
