"""The measurements of the performance tools: counts, rates and latencies, in total and by window, and the output lines
of Kafka's tools for them.

Latencies are stored as a count for each whole millisecond, as Kafka's tool prints them; the average and the maximum
are exact. A megabyte is 2**20 bytes, of keys and values only: the overhead of batches, headers and requests is not
counted."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import Any

_MIB = 1024 * 1024
_PERCENTILES = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
_DATE_FIELDS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": ""}
_DATE_PIECES = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


class Latencies:
    """The records that were sent since `began` (a time in seconds) and their latencies. A record's latency is the time
    until its acknowledgement."""

    __slots__ = ("_sum_ms", "began", "bytes_sent", "count", "counts", "max_ms")

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = 0
        self.bytes_sent = 0
        self.max_ms = 0.0
        self._sum_ms = 0.0
        self.counts: Counter[int] = Counter()

    def add(self, latency_ms: float, count: int, bytes_sent: int) -> None:
        """Adds `count` records with this latency. `bytes_sent` is the total size of these records in bytes."""
        self.count += count
        self.bytes_sent += bytes_sent
        self._sum_ms += latency_ms * count
        self.max_ms = max(self.max_ms, latency_ms)
        self.counts[int(latency_ms)] += count

    @property
    def average_ms(self) -> float:
        return self._sum_ms / self.count if self.count else 0.0

    def percentile(self, share: float) -> int:
        """Returns the latency in whole milliseconds that a fraction `share` (0 to 1) of the records did not exceed."""
        wanted, seen = share * self.count, 0
        for latency in sorted(self.counts):
            seen += self.counts[latency]
            if seen >= wanted:
                return latency
        return 0

    def rates(self, now: float) -> tuple[float, float]:
        """Returns the number of records per second, and the number of megabytes per second."""
        seconds = max(now - self.began, 1e-3)
        return self.count / seconds, self.bytes_sent / _MIB / seconds

    def window_line(self, now: float) -> str:
        records, megabytes = self.rates(now)
        return (
            f"{self.count} records sent, {records:.1f} records/sec ({megabytes:.2f} MB/sec), "
            f"{self.average_ms:.1f} ms avg latency, {self.max_ms:.1f} ms max latency."
        )

    def total_line(self, now: float, *, steady: bool = False) -> str:
        records, megabytes = self.rates(now)
        percentiles = ", ".join(f"{self.percentile(share)} ms {name}" for share, name in _PERCENTILES)
        return (
            f"{self.count}{' steady state' if steady else ''} records sent, {records:f} records/sec ({megabytes:.2f} "
            f"MB/sec), "
            f"{self.average_ms:.2f} ms avg latency, {self.max_ms:.2f} ms max latency, {percentiles}."
        )

    def document(self, now: float) -> dict[str, Any]:
        records, megabytes = self.rates(now)
        return {
            "records": self.count,
            "bytes": self.bytes_sent,
            "seconds": now - self.began,
            "recordsPerSecond": records,
            "megabytesPerSecond": megabytes,
            "averageLatencyMs": self.average_ms,
            "maxLatencyMs": self.max_ms,
            "percentilesMs": {name: self.percentile(share) for share, name in _PERCENTILES},
        }


class Consumed:
    """Records that were consumed since `began`, and the time spent in rebalances."""

    __slots__ = ("began", "bytes_read", "count", "rebalance_seconds")

    HEADINGS = (
        "data.consumed.in.MB",
        "MB.sec",
        "data.consumed.in.nMsg",
        "nMsg.sec",
        "rebalance.time.ms",
        "fetch.time.ms",
        "fetch.MB.sec",
        "fetch.nMsg.sec",
    )

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = 0
        self.bytes_read = 0
        self.rebalance_seconds = 0.0

    def add(self, count: int, bytes_read: int) -> None:
        self.count += count
        self.bytes_read += bytes_read

    def cells(self, now: float, total: Consumed | None = None) -> list[str]:
        """Returns the values of the columns HEADINGS. For a window, the columns with amounts show the amounts of
        `total`, as in Kafka's tool."""
        seconds = max(now - self.began, 1e-3)
        fetching = max(seconds - self.rebalance_seconds, 1e-3)
        megabytes, amounts = self.bytes_read / _MIB, total or self
        return [
            f"{amounts.bytes_read / _MIB:.4f}",
            f"{megabytes / seconds:.4f}",
            str(amounts.count),
            f"{self.count / seconds:.4f}",
            str(round(self.rebalance_seconds * 1000)),
            str(round(fetching * 1000)),
            f"{megabytes / fetching:.4f}",
            f"{self.count / fetching:.4f}",
        ]

    def document(self, now: float) -> dict[str, Any]:
        seconds = max(now - self.began, 1e-3)
        fetching = max(seconds - self.rebalance_seconds, 1e-3)
        return {
            "records": self.count,
            "bytes": self.bytes_read,
            "seconds": seconds,
            "rebalanceSeconds": self.rebalance_seconds,
            "megabytesPerSecond": self.bytes_read / _MIB / seconds,
            "recordsPerSecond": self.count / seconds,
            "fetchMegabytesPerSecond": self.bytes_read / _MIB / fetching,
            "fetchRecordsPerSecond": self.count / fetching,
        }


def date_text(milliseconds: int, pattern: str) -> str:
    """Formats a time in the machine's time zone with a pattern of Java's SimpleDateFormat. The letters yyyy MM dd HH
    mm ss SSS are supported; other letters raise ValueError."""
    moment = datetime.fromtimestamp(milliseconds / 1000).astimezone()
    text, end = "", 0
    for match in _DATE_PIECES.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        piece = match[0]
        if piece.startswith("'"):
            text += match[1].replace("''", "'") or "'"
        elif match[2] is None:
            text += piece
        elif piece in _DATE_FIELDS:
            text += moment.strftime(_DATE_FIELDS[piece]) if piece != "SSS" else f"{milliseconds % 1000:03}"
        else:
            raise ValueError(f"the date format's {piece!r} is not known: use yyyy, MM, dd, HH, mm, ss and SSS")
    if end != len(pattern):
        raise ValueError(f"the date format {pattern!r} has an apostrophe that nothing closes")
    return text
