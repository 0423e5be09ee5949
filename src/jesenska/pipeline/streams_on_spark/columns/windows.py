"""Computes count, reduce and aggregate over tumbling and hopping windows on columns.

Each record is repeated once for each window that contains it, the earliest window first. Stream time is the largest
timestamp that the operation has seen up to the record. A window whose end is at or below stream time minus grace
accepts no more records. The store keeps windows at least for their size and grace, so it still has every window that
accepts records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from jesenska.pipeline.streams.dsl.windows import EmitStrategy, TimeWindows
from jesenska.pipeline.streams.plan import Node, WindowedAggregate
from jesenska.pipeline.streams_on_spark.columns.aggregates import Aggregator
from jesenska.pipeline.streams_on_spark.columns.grouped_records import Groups, dense, numbered
from jesenska.pipeline.streams_on_spark.columns.record_columns import Records
from jesenska.pipeline.streams_on_spark.columns.steps import Leaving, MicroBatch, Step, StoreSerdes, table_of
from jesenska.pipeline.streams_on_spark.columns.value_columns import Indices, WindowedKeys, is_null
from jesenska.pipeline.streams_on_spark.stores.state_file import NO_ROW, Rows
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

#: The largest number of updates (pairs of record and window) that are kept in memory as columns.
_WINDOWS_MAX = 20_000_000


def windows_facts(node: Node) -> Iterator[tuple[str, str, list[int | None]]]:
    """Yields the initial facts of the task about an aggregation over windows (partition_task.py): the kind of fact,
    the name of the store or operator, and the value."""
    if isinstance(node, WindowedAggregate) and node.store is not None:
        yield "operators", node.name, [-1, None]
        yield "stores", node.store.name, [-1, 0]


def aggregate_windows(work: Work, node: WindowedAggregate) -> Step:
    windows, spec = node.windows, node.store
    assert spec is not None and spec.retention_ms is not None
    if not isinstance(windows, TimeWindows):
        raise OtherWayError(f"{node.name} has sliding windows")
    if node.emit is EmitStrategy.ON_WINDOW_CLOSE or node.sends_old_values:
        raise OtherWayError(f"{node.name} gives results on window close, or old values")
    serdes, retention_ms = StoreSerdes(work, spec), spec.retention_ms
    aggregator = Aggregator(node, serdes)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        missing = is_null(records.keys)
        batch.dropped += int(missing.sum())
        records = records.where(~missing)
        if not len(records):
            return None
        known, kept = batch.facts["operators"][node.name], batch.facts["stores"][spec.name]
        stream_time = np.maximum.accumulate(np.maximum(records.times, known[0]))
        known[0] = int(stream_time[-1])
        places, starts = _windows(windows, records.times)
        is_open = starts + windows.size_ms > stream_time[places] - windows.grace_ms
        batch.dropped += int(len(places) - is_open.sum())
        if windows.advance_ms < windows.size_ms or not is_open.all():
            places, starts = places[is_open], starts[is_open]
            records = records.taken(places)
        if not len(records):
            return None
        table = table_of(batch.file, spec)
        groups, before = _grouped(table, serdes.key_bytes(records.keys), starts)
        values, times, last = aggregator.keep(batch, table, records, groups, before)
        kept[0] = max(kept[0], int(starts.max()))
        batch.expired.append((table, kept[0] - retention_ms + 1))
        made = Records(records.rows, WindowedKeys(records.keys, starts, windows.size_ms), values, times, records.order)
        return batch.updates(made, last)

    return step


def _windows(windows: TimeWindows, times: Indices) -> tuple[Indices, Indices]:
    """Returns the position of the record and the start of the window, for each window that contains a record's
    timestamp."""
    size_ms, advance_ms = windows.size_ms, windows.advance_ms
    first = np.maximum(0, times - size_ms + advance_ms) // advance_ms * advance_ms
    counts = np.maximum(0, (times - first) // advance_ms + 1)
    if counts.sum() > _WINDOWS_MAX:
        raise OtherWayError("the records fall into too many windows")
    places = np.repeat(np.arange(len(times)), counts)
    number = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places, first[places] + number * advance_ms


def _grouped(table: Any, key_bytes: pa.Array, starts: Indices) -> tuple[Groups, Rows]:
    """Returns the records grouped by key and window, and the store's row for each group."""
    key_codes, distinct = numbered(key_bytes)
    keys = distinct.to_pylist()
    moments, start_codes = np.unique(starts, return_inverse=True)
    codes, pairs = dense(key_codes * len(moments) + start_codes, len(keys) * len(moments))
    found = {(a, n): (value, at) for a, n, _, value, at in table.of_many(keys, int(moments[0]), int(moments[-1]))}
    key_of = [keys[code] for code in (pairs // len(moments)).tolist()]
    start_of = moments[pairs % len(moments)].tolist()
    rows = [found.get(pair, NO_ROW) for pair in zip(key_of, start_of, strict=True)]
    values, times = zip(*rows, strict=True)
    return Groups(codes, len(pairs)), Rows(key_of, start_of, [0] * len(pairs), values, times)
