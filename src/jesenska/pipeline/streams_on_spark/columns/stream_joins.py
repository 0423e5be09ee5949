"""Joins of two streams on columns: stores the records of both sides, finds partners, and makes inner joins.

Each side stores its records. The partners of a record are the earlier records of the other side that have its key, are
within the windows, and are still in the other side's store. They are sorted by timestamp, and records of one timestamp
by the order in which they were stored.

A side's store is read from its segments (state_segments.py) and from its table, for the times that the windows of this
micro-batch cover. Records of the micro-batch are added, each with its turn in the order of processing; stored records
have the turn -1. All these records are sorted by key, timestamp and sequence number, so that the possible partners of
a record are next to each other. Partners with a later turn than the record, and partners whose retention had already
passed, are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams.plan import Node, Store, StreamStreamJoin
from jesenska.pipeline.streams_on_spark.columns.functions import ColumnFunction
from jesenska.pipeline.streams_on_spark.columns.record_columns import Records, in_order
from jesenska.pipeline.streams_on_spark.columns.steps import Leaving, MicroBatch, Step, StoreSerdes, table_of
from jesenska.pipeline.streams_on_spark.columns.value_columns import Column, Indices, is_null
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

_NEVER = 2**63 - 1
_SEQUENCE_MAX = 2**31 - 1
#: The number of pairs that are checked at the same time.
_PAIRS_AT_ONCE = 2_000_000
_NAMES = ["a", "n", "m", "value", "at"]
_KINDS = [pa.binary(), pa.int64(), pa.int64(), pa.binary(), pa.int64()]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def join_facts(node: Node) -> Iterator[tuple[str, str, list[int | None]]]:
    """Yields the initial facts of the task about a join (partition_task.py): the kind of fact, the name of the store
    or operator, and the value."""
    if isinstance(node, StreamStreamJoin):
        for name in (node.this_join_name, node.other_join_name):
            yield "operators", name, [-1, _NEVER]
        for store in (node.this_store, node.other_store):
            yield "stores", store.name, [-1, 0]


class Side:
    """One side of a join of streams: its store and serdes."""

    def __init__(self, work: Work, node: StreamStreamJoin, is_this: bool) -> None:
        self.is_this = is_this
        self.spec: Store = node.this_store if is_this else node.other_store
        assert self.spec.retention_ms is not None
        self.retention_ms = self.spec.retention_ms
        self.serdes = StoreSerdes(work, self.spec)


@dataclass(frozen=True, slots=True)
class Put:
    """The rows that one side stores in this micro-batch. `observed` is the largest timestamp in the store after each
    record of the side. `there` is True for the records that are stored."""

    observed: Indices
    there: Mask
    rows: pa.Table


def keep_for_join(work: Work, node: StreamStreamJoin, is_this: bool) -> Step:
    if node.this_store.name == node.other_store.name:
        raise OtherWayError(f"{node.name} has one store for both sides")
    side = Side(work, node, is_this)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        batch.joined[side.spec.name] = records
        if node.kind == "inner":
            latest = int(records.times.max())
            for name in (node.this_join_name, node.other_join_name):
                known = batch.facts["operators"][name]
                known[0] = max(known[0], latest)
        put = _put(batch, side, records)
        kept = batch.facts["stores"][side.spec.name]
        batch.puts[side.spec.name] = put
        batch.later.append((kept, [int(put.observed[-1]), kept[1] + int((~is_null(records.keys)).sum())]))
        batch.segments.append(
            (
                batch.file.segments(side.spec.name),
                put.rows,
                side.retention_ms,
                int(put.observed[-1]) - side.retention_ms + 1,
            )
        )
        return records

    return step


def _put(batch: MicroBatch, side: Side, records: Records) -> Put:
    """Returns the rows that one side stores. Records past the store's retention, and records whose value is None, are
    not stored. They still use sequence numbers, as in the engine."""
    observed, sequence = batch.facts["stores"][side.spec.name]
    has_key = ~is_null(records.keys)
    if sequence + len(records) > _SEQUENCE_MAX:
        raise OtherWayError("the numbers of the store begin anew")
    latest = np.maximum.accumulate(np.maximum(np.where(has_key, records.times, -1), observed))
    numbers = sequence + np.cumsum(has_key)
    is_refused = has_key & (records.times <= latest - side.retention_ms)
    batch.dropped += int(is_refused.sum())
    there = has_key & ~is_null(records.values) & ~is_refused
    put = records.where(there)
    times = pa.array(put.times, pa.int64())
    columns = [
        side.serdes.key_bytes(put.keys),
        times,
        pa.array(numbers[there], pa.int64()),
        side.serdes.value_bytes(put.values),
        times,
    ]
    return Put(latest, there, pa.table(columns, names=_NAMES))


def join_streams(work: Work, node: StreamStreamJoin, is_this: bool) -> Step:
    other = Side(work, node, not is_this)
    mine = Side(work, node, is_this)
    joiner = ColumnFunction(node.joiner)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        all_turns, other_turns = turns_of(records, batch.joined.get(other.spec.name))
        wanted = ~(is_null(records.keys) | is_null(records.values))
        batch.dropped += int(len(records) - wanted.sum())
        if not wanted.any():
            return None
        found = partners_of(batch, node, mine, other, records.where(wanted), all_turns[wanted], other_turns)
        return joined(joiner, is_this, records.where(wanted), found) if len(found.places) else None

    return step


@dataclass(frozen=True, slots=True)
class Partners:
    """Pairs of records and their partners. `places` contains the position of the record in each pair; `times` and
    `values` contain the partner's timestamp and value. A record with several partners has several pairs."""

    places: Indices
    times: Indices
    values: Column


def partners_of(
    batch: MicroBatch,
    node: StreamStreamJoin,
    mine: Side,
    other: Side,
    records: Records,
    turns: Indices,
    other_turns: Indices,
) -> Partners:
    """Returns the partners of one side's records, in the order in which the engine finds them. No record may have a
    null key or value."""
    windows = node.windows
    back_ms, ahead_ms = (windows.before_ms, windows.after_ms) if mine.is_this else (windows.after_ms, windows.before_ms)
    observed = _observed(batch, other, turns, other_turns)
    lowest = np.maximum(np.maximum(0, records.times - back_ms), observed - other.retention_ms + 1)
    highest = np.maximum(0, records.times + ahead_ms)
    kept, kept_turns = _kept(batch, other, other_turns, int(lowest.min()), int(highest.max()))
    places, partners = _pairs(mine.serdes.key_bytes(records.keys), turns, lowest, highest, kept, kept_turns)
    values = other.serdes.values(_column(kept, "value").take(pa.array(partners)))
    return Partners(places, _column(kept, "n").to_numpy()[partners], values)


def joined(joiner: ColumnFunction, is_this: bool, records: Records, partners: Partners) -> Records:
    """Returns the joined records: each record with the value that the joiner computes for it and its partner."""
    found = records.taken(partners.places)
    roots = {
        "key": found.keys,
        "left" if is_this else "right": found.values,
        "right" if is_this else "left": partners.values,
    }
    return Records(
        found.rows, found.keys, joiner(roots, len(found)), np.maximum(found.times, partners.times), found.order
    )


def turns_of(records: Records, others: Records | None) -> tuple[Indices, Indices]:
    """Returns the turns of the records of both sides: a record with a smaller turn is processed earlier."""
    if others is None or not len(others):
        return np.arange(len(records)), np.arange(0)
    if len(records.order) == len(others.order) == 1:
        return records.order[0], others.order[0]
    places = in_order([records.order, others.order])[1]
    turns = np.empty(len(places), np.int64)
    turns[places] = np.arange(len(places))
    return turns[: len(records)], turns[len(records) :]


def _observed(batch: MicroBatch, other: Side, turns: Indices, other_turns: Indices) -> Indices:
    """Returns, for each record, the largest timestamp in the other side's store at the time when the record is
    processed."""
    before = batch.facts["stores"][other.spec.name][0]
    put = batch.puts.get(other.spec.name)
    if put is None:
        return np.full(len(turns), before)
    return np.concatenate([[before], put.observed])[np.searchsorted(other_turns, turns)]


def _kept(batch: MicroBatch, other: Side, other_turns: Indices, lowest: int, highest: int) -> tuple[pa.Table, Indices]:
    """Returns the other side's records whose timestamps are from `lowest` to `highest`, with their turns."""
    schema = pa.schema(list(zip(_NAMES, _KINDS, strict=True)))
    parts = batch.file.segments(other.spec.name).tables(lowest, highest)
    rows = table_of(batch.file, other.spec).ordered(lowest, highest)
    if rows:
        parts = [
            *parts,
            pa.table(
                [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _KINDS, strict=True)],
                schema=schema,
            ),
        ]
    turns = np.full(sum(part.num_rows for part in parts), -1)
    put = batch.puts.get(other.spec.name)
    if put is not None:
        parts = [*parts, put.rows]
        turns = np.concatenate([turns, other_turns[put.there]])
    return (pa.concat_tables(parts) if parts else schema.empty_table()), turns


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _pairs(
    keys: pa.Array, turns: Indices, lowest: Indices, highest: Indices, kept: pa.Table, kept_turns: Indices
) -> tuple[Indices, Indices]:
    """Returns the positions of the records and the positions of their partners in `kept`, pair by pair, in the order
    in which the engine finds the pairs."""
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    found = pc.index_in(kept.column("a"), value_set=encoded.dictionary)
    known = np.flatnonzero(pc.is_valid(found).combine_chunks().to_numpy(zero_copy_only=False))
    if not len(known):
        return known, known
    kept_codes = found.combine_chunks().take(pa.array(known)).to_numpy().astype(np.int64)
    times = kept.column("n").to_numpy()[known]
    numbers = kept.column("m").to_numpy()[known]
    by_key = np.lexsort((numbers, times, kept_codes))
    known, kept_codes, times = known[by_key], kept_codes[by_key], times[by_key]
    first, last = int(times.min()), int(times.max())
    span = last - first + 2
    if span * (len(encoded.dictionary) + 1) >= 2**63:
        raise OtherWayError("times are too far apart")
    sorted_by = kept_codes * span + (times - first)
    begins = np.searchsorted(sorted_by, codes * span + np.clip(lowest - first, 0, span - 1), "left")
    ends = np.searchsorted(sorted_by, codes * span + np.clip(highest - first, -1, span - 2), "right")
    counts = np.maximum(0, ends - begins)
    found_places, found_partners = [], []
    for part in _in_parts(counts):
        places = np.repeat(np.arange(part.start, part.stop), counts[part])
        partners = np.arange(len(places)) + np.repeat(
            begins[part] - (np.cumsum(counts[part]) - counts[part]), counts[part]
        )
        partners = known[partners]
        came_before = kept_turns[partners] < turns[places]
        found_places.append(places[came_before])
        found_partners.append(partners[came_before])
    return np.concatenate(found_places), np.concatenate(found_partners)


def _in_parts(counts: Indices) -> Iterator[slice]:
    """Yields slices of the records. Each slice has a limited number of pairs to check."""
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _PAIRS_AT_ONCE, "right")))
        yield slice(start, stop)
        start = stop
