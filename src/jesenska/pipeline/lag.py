"""The lag of a streaming query, per partition: `lag(query.lastProgress)`.

Spark gives a source written in Python no way to report metrics of its own. But each progress of a query holds, for
each source, the end of its micro-batch (endOffset) and the ends of the logs when it was planned (latestOffset); the
difference is the lag. `offsets_behind_latest` makes the metrics of Spark's own Kafka source of it.

    query.lastProgress
        {"sources": [{"endOffset": {"flights": {"0": 500}}, "latestOffset": {"flights": {"0": 800}}, ...}]}
    lag(query.lastProgress)
        [PartitionLag(source=0, topic="flights", partition=0, end_offset=500, latest_offset=800)]      .lag == 300

Works on the progress that PySpark gives (`lastProgress`, `recentProgress`, a listener's `event.progress`), on its JSON
text and on the parsed dict; and on the progress of Spark's own Kafka source, whose offsets have the same form. Sources
whose offsets have another form are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.connector.options import TOPIC_ID


@dataclass(frozen=True, slots=True, order=True)
class PartitionLag:
    """One partition of a query's source: the query's position, and the end of the log.

    `source` counts the query's sources from 0: a query that joins two streams has two. `end_offset` is None for a
    partition that the query has seen but not begun: one that was added while minOffsetsPerTrigger made the query
    wait."""

    source: int
    topic: str
    partition: int
    end_offset: int | None
    latest_offset: int

    @property
    def lag(self) -> int:
        """Offsets that were written and not read; an upper limit for a partition that is not begun."""
        return max(0, self.latest_offset - (self.end_offset or 0))


def lag(progress: Mapping[str, Any] | str | None) -> list[PartitionLag]:
    """Returns the lag of each partition that was there when the progress was made, in order; none for a query without
    progress (None), or before its first offsets.

    JesenskaError if this is no progress."""
    if progress is None:
        return []
    tree = _parsed(progress)
    sources = tree.get("sources") if isinstance(tree, Mapping) else None
    if not isinstance(sources, list | tuple):
        raise JesenskaError(
            "This is not the progress of a streaming query, which has sources: pass query.lastProgress, or its JSON."
        )
    found = []
    for number, source in enumerate(sources):
        ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        found += [
            PartitionLag(number, topic, partition, ends.get((topic, partition)), offset)
            for (topic, partition), offset in latest.items()
        ]
    return sorted(found, key=lambda item: (item.source, item.topic, item.partition))


def offsets_behind_latest(progress: Mapping[str, Any] | str | None) -> list[dict[str, float]]:
    """For each source of the query that has a lag the metrics of Spark's own Kafka source, by their names there:
    minOffsetsBehindLatest, maxOffsetsBehindLatest, avgOffsetsBehindLatest, in offsets over its partitions. Errors as
    in `lag`."""
    by_source: dict[int, list[int]] = {}
    for item in lag(progress):
        by_source.setdefault(item.source, []).append(item.lag)
    return [
        {
            "minOffsetsBehindLatest": min(lags),
            "maxOffsetsBehindLatest": max(lags),
            "avgOffsetsBehindLatest": sum(lags) / len(lags),
        }
        for lags in by_source.values()
    ]


def _parsed(value: Any) -> Any:
    """PySpark hands offsets over as text, JSON that was parsed whole has them as trees."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _offsets(value: Any) -> dict[tuple[str, int], int]:
    tree = _parsed(value)
    if not isinstance(tree, Mapping):
        return {}
    offsets = {}
    for topic, partitions in tree.items():
        if not isinstance(partitions, Mapping):
            return {}
        for partition, offset in partitions.items():
            if partition == TOPIC_ID:
                continue
            if not str(partition).isdecimal() or not isinstance(offset, int) or isinstance(offset, bool):
                return {}
            offsets[topic, int(partition)] = offset
    return offsets
