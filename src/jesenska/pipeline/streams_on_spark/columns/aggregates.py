"""Computes count, reduce and aggregate of a grouped stream on columns. Each record causes one change: the aggregate of
its key after this record, as in the engine. The method depends on the operation:

    count                          the store's count plus the key's records so far
    aggregate + (no aggregate)     of whole numbers: a running sum
    any other expression           the first records of all keys at once, then the second records of all keys, ...
    Python functions               record by record; expressions also, if a key has many records in the micro-batch

If an aggregate becomes None, which deletes the key, the micro-batch cannot be processed on the columns path. The store
is read once and written once for each key of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams.dsl.expressions import Expression, of, roots_of
from jesenska.pipeline.streams.engine.aggregates import beginning_and_step
from jesenska.pipeline.streams.plan import Aggregation
from jesenska.pipeline.streams_on_spark.columns import column_serdes, expressions
from jesenska.pipeline.streams_on_spark.columns.functions import check_distinct, unchangeable
from jesenska.pipeline.streams_on_spark.columns.grouped_records import Groups, numbered
from jesenska.pipeline.streams_on_spark.columns.record_columns import Records
from jesenska.pipeline.streams_on_spark.columns.steps import Changes, Leaving, MicroBatch, Step, StoreSerdes
from jesenska.pipeline.streams_on_spark.columns.value_columns import (
    Column,
    Indices,
    from_values,
    is_null,
    taken,
    to_values,
    together,
)
from jesenska.pipeline.streams_on_spark.stores.state_file import Rows, StateTable, rows_of
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

_SUM_MAX = 2**62
#: Processing one record of every key at once costs about as much as processing this many records one by one.
_TURN = 30
#: If no key has more records than this, the records of all keys are always processed together.
_TURNS_ALWAYS = 20


class Aggregator:
    """Computes the aggregates of all records of a micro-batch."""

    def __init__(self, node: Aggregation, serdes: StoreSerdes) -> None:
        self._serdes = serdes
        self._is_reduce = node.operation == "reduce"
        self._begin, self._call = beginning_and_step(node)
        function = node.reducer if self._is_reduce else node.aggregator
        self._step = _COUNT if node.operation == "count" else function.expression if function is not None else None
        self._added = None if self._step is None else _added(self._step)
        self._kind = column_serdes.kind_of(serdes.value)

    def keep(
        self, batch: MicroBatch, table: StateTable, records: Records, groups: Groups, before: Rows
    ) -> tuple[Column, Indices, Indices]:
        """Returns the aggregate after each record, its timestamp, and the positions of each key's last record.
        Schedules the write of each key's last aggregate to the store. `before` contains the present rows of the
        keys."""
        old = pa.array(before.value, pa.binary())
        values = self.results(records, groups, self._serdes.values(old), is_null(old))
        times = groups.running_max(records.times, np.array(before.at, np.int64))
        last = groups.last()
        rows = before._replace(value=self._serdes.value_bytes(taken(values, last)).to_pylist(), at=times[last].tolist())
        batch.writes.append((table, rows, before))
        return values, times, last

    def results(
        self, records: Records, groups: Groups, before: Column, is_new: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> Column:
        """Returns the aggregate after each record. `before` contains the aggregate of each key in the store. `is_new`
        is True for keys that have no aggregate in the store."""
        if self._added is not None and self._kind == pa.int64():
            made = self._sums(self._added, records, groups, before, is_new)
            if made is not None:
                return made
        turns = int(groups.sizes.max())
        if self._step is None or (turns > _TURNS_ALWAYS and turns * _TURN > len(records)):
            return self._one_by_one(records, groups, before, is_new)
        return self._by_turns(self._step, turns, records, groups, before, is_new)

    def _sums(self, added: Expression, records: Records, groups: Groups, before: Any, is_new: Any) -> Column | None:
        beginning = 0 if self._is_reduce else self._begin()
        if type(beginning) is not int:
            return None
        if added.operator == "literal":
            one = added.operands[0]
            if type(one) is not int or abs(one) >= 2**31:
                return None
            steps = (groups.ranks() + 1) * one
            most = abs(one) * len(records)
        else:
            numbers = expressions.evaluate(added, {"key": records.keys, "value": records.values}, len(records))
            if not isinstance(numbers, pa.Array) or numbers.type != pa.int64() or numbers.null_count:
                return None
            by_key = numbers.to_numpy()[groups.places]
            most = max(abs(int(by_key.max())), abs(int(by_key.min()))) * len(records)
            if most >= _SUM_MAX:
                return None
            running = np.cumsum(by_key)
            earlier = np.concatenate([[0], running])[groups.starts]
            steps = np.empty(len(records), np.int64)
            steps[groups.places] = running - np.repeat(earlier, groups.sizes)
        base = np.where(is_new, beginning, pc.fill_null(before, 0).to_numpy() if before.type == pa.int64() else 0)
        if most + max(abs(int(base.max())), abs(int(base.min()))) >= _SUM_MAX:
            return None
        return pa.array(steps + base[groups.codes])

    def _one_by_one(self, records: Records, groups: Groups, before: Column, is_new: Any) -> Column:
        serde, topic = self._serdes.value, self._serdes.topic
        plain = None if self._kind is None else _PLAIN[self._kind]
        current = [(new, value) for new, value in zip(is_new.tolist(), to_values(before), strict=True)]
        values_of = to_values if self._step is not None else unchangeable
        made = []
        for code, key, value in zip(
            groups.codes.tolist(), values_of(records.keys), values_of(records.values), strict=True
        ):
            missing, old = current[code]
            new = self._call(key, value, self._begin() if missing else old)
            if new is None:
                raise OtherWayError("an aggregate is None")
            made.append(new)
            # The next record of the key gets the aggregate as the store would return it.
            current[code] = False, new if type(new) is plain else serde.deserialize(topic, serde.serialize(topic, new))
        if self._step is None:
            check_distinct(made)
        return from_values(made)

    def _by_turns(
        self, step: Expression, turns: int, records: Records, groups: Groups, before: Column, is_new: Any
    ) -> Column:
        def following(part: Records, aggregate: Column) -> Column:
            return expressions.evaluate(
                step, {"key": part.keys, "value": part.values, "aggregate": aggregate}, len(part)
            )

        ranks = groups.ranks()
        by_rank = np.argsort(ranks, kind="stable")
        ends = np.cumsum(np.bincount(ranks, minlength=turns))
        place_of = np.empty(groups.count, np.int64)  # of a key's record in the turn before
        made: list[Column] = []
        for turn in range(turns):
            places = by_rank[(ends[turn - 1] if turn else 0) : ends[turn]]
            codes = groups.codes[places]
            part = records.taken(places)
            if turn:
                new = following(part, taken(self._serdes.as_read_again(made[-1]), place_of[codes]))
            else:
                new = self._first(following, part, taken(before, codes), is_new[codes])
            if is_null(new).any():
                raise OtherWayError("an aggregate is None")
            made.append(new)
            place_of[codes] = np.arange(len(codes))
        back = np.empty(len(records), np.int64)
        back[by_rank] = np.arange(len(records))
        return taken(together(made), back)

    def _first(
        self, following: Callable[[Records, Column], Column], part: Records, before: Column, is_new: Any
    ) -> Column:
        if not is_new.any():
            return following(part, before)
        if not self._is_reduce:
            values = to_values(before)
            begun = [self._begin() if new else value for new, value in zip(is_new.tolist(), values, strict=True)]
            return following(part, from_values(begun))
        old = np.flatnonzero(~is_new)
        added = following(part.taken(old), taken(before, old))
        places = np.empty(len(part), np.int64)
        new = np.flatnonzero(is_new)
        places[new], places[old] = np.arange(len(new)), len(new) + np.arange(len(old))
        return taken(together([taken(part.values, new), added]), places)


#: The Python type of a serde's values.
_PLAIN = {pa.string(): str, pa.binary(): bytes, pa.int64(): int, pa.float64(): float}
_COUNT = Expression("+", Expression("root", "aggregate"), of(1))


def _added(step: Expression) -> Expression | None:
    """Returns the expression that `step` adds to the aggregate. Returns None if `step` does anything other than this
    addition."""
    if step.operator != "+":
        return None
    for one, other in (step.operands, step.operands[::-1]):
        if one.operator == "root" and one.operands == ("aggregate",) and "aggregate" not in roots_of(other):
            return other  # type: ignore[no-any-return]
    return None


def aggregate(work: Work, node: Aggregation) -> Step:
    assert node.store is not None
    if node.sends_old_values:
        raise OtherWayError(f"{node.name} sends old values")
    serdes = StoreSerdes(work, node.store)
    aggregator = Aggregator(node, serdes)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        missing = is_null(records.keys) | is_null(records.values)
        batch.dropped += int(missing.sum())
        records = records.where(~missing)
        if not len(records):
            return None
        table = batch.file.table(serdes.name)
        key_bytes = serdes.key_bytes(records.keys)
        codes, distinct = numbered(key_bytes)
        keys = distinct.to_pylist()
        groups = Groups(codes, len(keys))
        values, times, last = aggregator.keep(batch, table, records, groups, rows_of(table, keys))
        if serdes.name in batch.looked_up:
            batch.changes[serdes.name] = Changes(key_bytes, serdes.value_bytes(values), records.order)
        return batch.updates(Records(records.rows, records.keys, values, times, records.order), last)

    return step
