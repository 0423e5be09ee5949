"""The lag of a streaming query, per partition: `lag(query.lastProgress)`.

Spark gives a source written in Python no way to report metrics of its own. But each progress of a query contains, for
each source, the end of its micro-batch (endOffset) and the log end offsets at the time of planning (latestOffset). The
difference is the lag. `offsets_behind_latest` computes from it the metrics of Spark's own Kafka source.

    query.lastProgress
        {"sources": [{"endOffset": {"flights": {"0": 500}}, "latestOffset": {"flights": {"0": 800}}, ...}]}
    lag(query.lastProgress)
        [PartitionLag(source=0, topic="flights", partition=0, end_offset=500, latest_offset=800)]      .lag == 300

The progress may be the object of PySpark (`lastProgress`, `recentProgress`, a listener's `event.progress`), its JSON
text, or the parsed dict. Progress of Spark's own Kafka source is also accepted, since its offsets have the same form.
Sources whose offsets have another form are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jesenska.base.errors import JesenskaError
from jesenska.pipeline.connector.options import TOPIC_ID


@dataclass(frozen=True, slots=True, order=True)
class PartitionLag:
    """The lag of a query in one partition: the query's position, and the end of the log.

    `source` counts the query's sources from 0: a query that joins two streams has two. `end_offset` is None for a
    partition that the query has found but not read yet. This happens when a partition is added while
    minOffsetsPerTrigger makes the query wait."""

    source: int
    topic: str
    partition: int
    end_offset: int | None
    latest_offset: int

    @property
    def lag(self) -> int:
        """Returns the number of offsets between the query's position and the log end offset. For a partition that was
        not read yet, the number is an upper limit, since the partition's earliest records may be deleted."""
        return max(0, self.latest_offset - (self.end_offset or 0))


def lag(progress: Mapping[str, Any] | str | None) -> list[PartitionLag]:
    """Returns the lag of each partition that existed when the progress was made, sorted. Returns an empty list for a
    query without progress (None), or before its first offsets.

    Raises JesenskaError if `progress` is not the progress of a query."""
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
    """Returns the metrics minOffsetsBehindLatest, maxOffsetsBehindLatest and avgOffsetsBehindLatest for each source of
    the query that has a lag. Each metric is a number of offsets: the minimum, maximum or average over the partitions
    of the source, as in Spark's own Kafka source. Raises JesenskaError if `progress` is not the progress of a
    query."""
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
    """Returns the value parsed from JSON if it is a text, else unchanged. PySpark gives offsets as text, while
    progress that was parsed from JSON has them as dicts. Returns None for invalid JSON."""
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
