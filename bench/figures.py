"""Figures of rows: gathered round by round, printed as a table of medians or as JSON.

A row's figure is the median of its rounds, its ratio the median of the rounds' ratios: two brokers are measured
minutes apart on a machine whose speed drifts. A ratio is jesenska over Apache Kafka, so above 1 is better where the
unit is a rate and worse everywhere else.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
#: Units that are only in the JSON: the table would be twice as long.
DETAILS = ("broker user s", "broker system s", "loop lag p99 ms")
#: Figures below this are too near to 0 for a ratio.
_NO_RATIO_BELOW = 0.005


class Cpu(NamedTuple):
    """Seconds that a process has used, all its threads together."""

    #: In steps of a hundredth of a second, as `/proc` has them.
    user: float
    system: float
    #: In nanoseconds' steps.
    total: float

    def since(self, earlier: Cpu) -> Cpu:
        return Cpu(self.user - earlier.user, self.system - earlier.system, self.total - earlier.total)


def cpu(pid: int) -> Cpu:
    """The CPU time of a running process, on Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # The clock of clock_getcpuclockid(3) for another process; Python has no function for it.
    return Cpu(int(fields[11]) / _TICKS, int(fields[12]) / _TICKS, time.clock_gettime(~pid << 3 | 2))


def resident_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


@dataclass
class Figures:
    """Figures of one broker: by row and unit, one list entry for each time that the row ran."""

    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def add(self, row: str, unit: str, value: float) -> None:
        self.values.setdefault((row, unit), []).append(value)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """The ratio of each round, without rounds whose figure is too near to 0."""
    return [mine / other for mine, other in zip(ours, theirs, strict=False) if other > _NO_RATIO_BELOW]


def _ratio(ours: list[float], theirs: list[float]) -> float | None:
    ratios = _ratios(ours, theirs)
    return median(ratios) if ratios else None


def _ratio_with_spread(ours: list[float], theirs: list[float]) -> str:
    """The median of the rounds' ratios, with the smallest and the largest if there are several."""
    ratios = _ratios(ours, theirs)
    if not ratios:
        return "-"
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{median(ratios):.2f}{spread}"


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def table(sides: Mapping[str, Figures], heading: str) -> str:
    """Rows in the order in which they ran; with two sides, the ratio of the first over the second, and its spread over
    the rounds."""
    names, all_figures = list(sides), list(sides.values())
    two = len(names) == 2
    lines = [
        heading,
        "",
        f"| row | figure | {' | '.join(names)} |" + (" ratio |" if two else ""),
        "|---|---|" + "---|" * (len(names) + two),
    ]
    keys = dict.fromkeys(key for figures in all_figures for key in figures.values if key[1] not in DETAILS)
    for key in keys:
        found = [figures.values.get(key, []) for figures in all_figures]
        cells = [_text(median(values) if values else None) for values in found]
        if two:
            cells.append(_ratio_with_spread(found[0], found[1]))
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def as_json(sides: Mapping[str, Figures], heading: str) -> str:
    """Every single value, with the medians and ratios of `table`."""
    first, *others = sides.values()
    rows = []
    for row, unit in dict.fromkeys(key for figures in sides.values() for key in figures.values):
        found = {name: figures.values.get((row, unit), []) for name, figures in sides.items()}
        rows.append(
            {
                "row": row,
                "unit": unit,
                "values": found,
                "medians": {name: median(values) for name, values in found.items() if values},
                "ratio": _ratio(first.values.get((row, unit), []), others[0].values.get((row, unit), []))
                if others
                else None,
            }
        )
    return json.dumps({"run": heading, "rows": rows}, indent=1)
