"""Tables on columns: topics and streams as tables, table operations without a store, and joins of a stream with a
table.

A record of the stream is joined with the table's value at that moment. If the key was changed earlier in this
micro-batch, this is the value of its last change before the record. The order is that in which the engine would
process the records one by one. Without such a change, it is the value in the store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams.plan import (
    Plan,
    StreamTableJoin,
    Table,
    TableFilter,
    TableMapValues,
    TableSource,
    ToTable,
)
from jesenska.pipeline.streams_on_spark.columns.functions import ColumnFunction
from jesenska.pipeline.streams_on_spark.columns.grouped_records import Groups, numbered, stably_sorted
from jesenska.pipeline.streams_on_spark.columns.record_columns import Records, in_order
from jesenska.pipeline.streams_on_spark.columns.steps import Changes, Leaving, MicroBatch, Step, StoreSerdes
from jesenska.pipeline.streams_on_spark.columns.value_columns import Column, Indices, is_null, taken, together
from jesenska.pipeline.streams_on_spark.stores.state_file import rows_of
from jesenska.pipeline.streams_on_spark.stores.state_tables_in_memory import whole_table
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError


def own_store(node: Table) -> str | None:
    """Returns the name of the store with the table's values, or None if the table has no store."""
    return node.store.name if node.materialized and node.store is not None else None


def table_from_records(work: Work, node: TableSource | ToTable) -> Step:
    if node.sends_old_values:
        raise OtherWayError(f"{node.name} sends old values")
    serdes = None if own_store(node) is None or node.store is None else StoreSerdes(work, node.store)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        missing = is_null(records.keys)
        batch.dropped += int(missing.sum())
        records = records.where(~missing)
        if serdes is None or not len(records):
            return records
        return batch.updates(records, _kept(batch, serdes, records))

    return step


def _kept(batch: MicroBatch, serdes: StoreSerdes, records: Records) -> Indices:
    """Schedules the write of each key's last value to the store. Returns the positions of the records with these
    values, without deletions of keys that had no value."""
    values = serdes.value_bytes(records.values)
    key_bytes = serdes.key_bytes(records.keys)
    codes, distinct = numbered(key_bytes)
    keys = distinct.to_pylist()
    last = Groups(codes, len(keys)).last()
    table = batch.file.table(serdes.name)
    before = rows_of(table, keys)
    rows = before._replace(value=values.take(pa.array(last)).to_pylist(), at=records.times[last].tolist())
    batch.writes.append((table, rows, before))
    if serdes.name in batch.looked_up:
        batch.changes[serdes.name] = Changes(key_bytes, values, records.order)
    is_new = np.fromiter((value is None for value in before.value), np.bool_, len(before.value))
    return last[~(is_new & is_null(records.values)[last])]


def filter_table(node: TableFilter) -> Step:
    predicate, negated = ColumnFunction(node.predicate), node.negated
    _check_is_computed(node)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        out = is_null(records.values)
        there = np.flatnonzero(~out)
        some = records.taken(there)
        out[there] = predicate.holds({"key": some.keys, "value": some.values}, len(some)) == negated
        return records.with_values(_without(records.values, out))

    return step


def map_table_values(node: TableMapValues) -> Step:
    mapper = ColumnFunction(node.mapper)
    _check_is_computed(node)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        missing = is_null(records.values)
        if not missing.any():
            return records.with_values(mapper({"key": records.keys, "value": records.values}, len(records)))
        there = records.where(~missing)
        made = mapper({"key": there.keys, "value": there.values}, len(there))
        places = np.where(missing, 0, np.cumsum(~missing))
        return records.with_values(taken(together([pa.nulls(1), made]), places))

    return step


def _check_is_computed(node: TableFilter | TableMapValues) -> None:
    if node.sends_old_values:
        raise OtherWayError(f"{node.name} sends old values")
    if own_store(node) is not None:
        raise OtherWayError(f"{node.name} is a table with a store that is made of another one")


def _without(values: Column, out: np.ndarray[Any, np.dtype[np.bool_]]) -> Column:
    """Returns the values, with None at the positions where `out` is True."""
    if not out.any():
        return values
    return taken(together([pa.nulls(1), values]), np.where(out, 0, np.arange(1, len(out) + 1)))


def looked_up_store(plan: Plan, node: StreamTableJoin) -> str:
    """Returns the name of the store in which the join looks up values. Raises OtherWayError if the table has no
    key-value store of its own."""
    table = plan[node.table]
    assert isinstance(table, Table)
    name = own_store(table)
    if name is None or table.store is None or table.store.kind != "key-value":
        raise OtherWayError(f"{node.name} looks up a table of windows, or one without a store of its own")
    return name


def join_table(work: Work, node: StreamTableJoin) -> Step:
    name = looked_up_store(work.plan, node)
    serdes = StoreSerdes(work, work.processors.stores[name])
    joiner, is_left = ColumnFunction(node.joiner), node.kind == "left"

    def step(batch: MicroBatch, records: Records) -> Leaving:
        no_key = is_null(records.keys)
        dropped = is_null(records.values) | (False if is_left else no_key)
        batch.dropped += int(dropped.sum())
        if dropped.any():
            records, no_key = records.where(~dropped), no_key[~dropped]
        if not len(records):
            return None
        other = _looked_up(batch, serdes, records, no_key)
        if not is_left:
            found = ~is_null(other)
            if not found.all():
                records, other = records.where(found), taken(other, np.flatnonzero(found))
        roots = {"key": records.keys, "left": records.values, "right": other}
        return records.with_values(joiner(roots, len(records)))

    return step


def _looked_up(
    batch: MicroBatch, serdes: StoreSerdes, records: Records, no_key: np.ndarray[Any, np.dtype[np.bool_]]
) -> Column:
    """Returns, for each record, the value that the table has for the record's key. `no_key` is True for records
    without a key."""
    asked = np.flatnonzero(~no_key)
    if not len(asked):
        return pa.nulls(len(records))
    key_bytes = serdes.key_bytes(taken(records.keys, asked) if no_key.any() else records.keys)
    changes = batch.changes.get(serdes.name)
    if changes is None:
        codes, keys = numbered(key_bytes)
        change_of = np.full(len(asked), -1)
        changed = pa.nulls(0, pa.binary())
    else:
        codes, keys = numbered(pa.concat_arrays([changes.keys, key_bytes]))
        order = in_order([changes.order, tuple(numbers[asked] for numbers in records.order)])[1]
        change_of = _last_changes(codes, len(keys), order, len(changes.keys))
        codes, changed = codes[len(changes.keys) :], changes.values
    # The values of the changes come first, followed by the store's values of keys without an earlier change.
    unchanged = change_of < 0
    there = np.zeros(len(keys), np.bool_)
    there[codes[unchanged]] = True
    wanted = np.flatnonzero(there)
    stored = _stored(batch, serdes, keys if len(wanted) == len(keys) else keys.take(pa.array(wanted)))
    values = serdes.values(pa.concat_arrays([changed, stored, pa.nulls(1, pa.binary())]))
    where = np.full(len(records), len(changed) + len(wanted))
    where[asked] = np.where(unchanged, len(changed) + (np.cumsum(there) - 1)[codes], change_of)
    return taken(values, where)


def _stored(batch: MicroBatch, serdes: StoreSerdes, keys: pa.Array) -> pa.Array:
    """Returns the store's values of these keys; null for a key without a value."""
    table = whole_table(batch.file, serdes.name, len(keys))
    if table is None:
        return pa.array(rows_of(batch.file.table(serdes.name), keys.to_pylist()).value, pa.binary())
    places = pc.index_in(keys, value_set=table.column("key").combine_chunks())
    return table.column("value").combine_chunks().take(places)


def _last_changes(codes: Indices, count: int, order: Indices, changes: int) -> Indices:
    """Returns, for each record, the position of the last change of its key that comes before the record. Returns -1
    for a record without such a change. The first `changes` elements of `codes` are the keys of changes, and the other
    elements are the keys of records. `order` contains the positions of changes and records in the order of
    processing."""
    by_key = order[stably_sorted(codes[order], count)]
    is_change = by_key < changes
    latest = np.maximum.accumulate(np.where(is_change, np.arange(len(by_key)), -1))
    begins = np.flatnonzero(np.diff(codes[by_key], prepend=-1))
    begin_of = np.repeat(begins, np.diff(begins, append=len(by_key)))
    found = np.where(latest >= begin_of, by_key[latest], -1)
    answer = np.empty(len(by_key), np.int64)
    answer[by_key] = found
    return answer[changes:]
