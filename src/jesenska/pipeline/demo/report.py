"""The demo's output on the terminal: progress while it runs, and the results as tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jesenska.base.clock import Clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Reporter:
    """Writes lines to the terminal. A progress line replaces the previous progress line. If the output is a file or a
    pipe, a new progress line is written every two seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun = clock.monotonic()
        self._live = sys.stdout.isatty()
        self._last = float("-inf")
        self._shown = False

    def say(self, text: str) -> None:
        self._clear()
        print(f"{self._clock.monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def progress(self, text: str) -> None:
        now = self._clock.monotonic()
        if now - self._last < (0.2 if self._live else 2.0):
            return
        self._last = now
        if self._live:
            print(f"\r\x1b[K{now - self._begun:6.1f} s  {text}", end="", flush=True)
            self._shown = True
        else:
            self.say(text)

    def show(self, text: str) -> None:
        self._clear()
        print(text, flush=True)

    def _clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="")
            self._shown = False


def day_of(timestamp_ms: int) -> str:
    """Returns the date of a timestamp in UTC, such as 3 May 2013."""
    day = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return f"{day.day} {day:%B %Y}"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns a table as text. Columns have a fixed width, and numbers are aligned right."""
    texts = [[_text(item) for item in row] for row in rows]
    widths = [
        max(len(head), *(len(row[number]) for row in texts)) if texts else len(head)
        for number, head in enumerate(heads)
    ]
    numeric = [
        bool(rows) and all(isinstance(row[number], int | float) or row[number] is None for row in rows)
        for number in range(len(heads))
    ]

    def line(cells: Sequence[str]) -> str:
        return (
            "  "
            + "  ".join(
                cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(cells, widths, numeric)
            ).rstrip()
        )

    return "\n".join([f"\n{title}", line(heads), line(["-" * width for width in widths]), *map(line, texts)])


def _text(item: Any) -> str:
    if item is None:
        return "-"
    if isinstance(item, float):
        return f"{item:.1f}"
    return f"{item:,}" if isinstance(item, int) else str(item)


def tables(results: dict[str, DataFrame]) -> str:
    """Returns the results as tables for the terminal."""
    from pyspark.sql import functions as F

    delay = F.try_divide(F.sum("dep_delay_sum"), F.sum("departed"))
    carriers = (
        results["by_carrier_hour"]
        .groupBy("key", "name")
        .agg(F.sum("flights"), F.sum("seats"), 100 * F.sum("cancelled") / F.sum("flights"), delay.alias("delay"))
        .orderBy(F.desc_nulls_last("delay"), "key")
        .collect()
    )
    hours = (
        results["by_carrier_hour"]
        .groupBy(F.date_format(F.from_utc_timestamp("hour", "America/New_York"), "HH:00").alias("hour"))
        .agg(F.sum("flights"), 100 * F.sum("cancelled") / F.sum("flights"), delay.alias("delay"))
        .orderBy("hour")
        .collect()
    )
    many = max(1, sum(row[2] for row in carriers) // 2000)
    routes = (
        results["by_route"]
        .where(F.col("flights") >= many)
        .orderBy(F.desc_nulls_last("mean_dep_delay"), "key")
        .select("key", "name", "flights", "mean_dep_delay", "mean_arr_delay")
        .limit(10)
        .collect()
    )
    weather = (
        results["by_weather"]
        .select("key", "flights", 100 * F.col("cancelled") / F.col("flights"), "mean_dep_delay")
        .orderBy("key")
        .collect()
    )
    return "\n".join(
        [
            table(
                "Airlines, the latest first",
                ["", "airline", "flights", "seats", "cancelled %", "mean delay (min)"],
                carriers,
            ),
            table("Hour of departure in New York", ["hour", "flights", "cancelled %", "mean delay (min)"], hours),
            table(
                f"Ten routes with the longest delays (of those with {many} flights or more)",
                ["route", "to", "flights", "delay (min)", "on arrival"],
                routes,
            ),
            table("Visibility at departure", ["visibility", "flights", "cancelled %", "mean delay (min)"], weather),
        ]
    )
