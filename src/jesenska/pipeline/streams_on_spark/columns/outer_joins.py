"""Left and outer joins of two streams on columns.

Partners are found for all records at once (stream_joins.py). But the results for records without a partner depend on
the order of both sides' records. Such a record waits until it finds a partner, or until another record arrives after
its window and grace have passed on stream time. So waiting records are processed one by one, as in the engine
(engine/joins/stream_joins.py). This part uses only numbers and bytes; the joins with None are then computed for all
records at once.

The waiting records are in a store that both sides share: (timestamp, is of the left side, key) -> values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from jesenska.pipeline.streams.plan import StreamStreamJoin
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams_on_spark.columns import column_serdes
from jesenska.pipeline.streams_on_spark.columns.functions import ColumnFunction
from jesenska.pipeline.streams_on_spark.columns.record_columns import Records
from jesenska.pipeline.streams_on_spark.columns.steps import Leaving, MicroBatch, Step, table_of
from jesenska.pipeline.streams_on_spark.columns.stream_joins import Partners, Side, joined, partners_of, turns_of
from jesenska.pipeline.streams_on_spark.columns.value_columns import Column, Indices, is_null, taken, together
from jesenska.pipeline.streams_on_spark.stores.state_file import Rows, StateTable
from jesenska.pipeline.streams_on_spark.stores.state_stores import packed_parts, parts_in
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work

_NEVER = 2**63 - 1
Where = tuple[int, bool, bytes]
"""timestamp, is of the left side, key"""


@dataclass(slots=True)
class _Coming:
    """The records of one side of the join. `left_alone` contains the positions of records that are joined with None at
    once. `late` contains the records whose wait has ended: the position of the record at which the wait ended, the key
    in the store, and the value."""

    records: Records
    turns: Indices
    wanted: Any
    at_once: Any  # without a key, on a side that needs no partner
    partners: Partners
    keys: list[bytes]
    values: list[bytes | None]
    left_alone: list[int] = field(default_factory=list)
    late: list[tuple[int, Where, bytes]] = field(default_factory=list)


class _Waiting:
    """The records that wait for a partner, in the order of the store. `_order` also contains keys of records that no
    longer wait. The keys before the index `_first` belong only to such records."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._before = {(n, bool(m), a): value for a, n, m, value, _ in table.ordered()}
        self.values = {where: [part or b"" for part in parts_in(value)] for where, value in self._before.items()}
        self._order = sorted(self.values)
        self._first = 0

    def add(self, where: Where, value: bytes) -> None:
        if where in self.values:
            self.values[where] = [*self.values[where], value]
            return
        self.values[where] = [value]
        place = bisect_left(self._order, where, self._first)
        if place == len(self._order) or self._order[place] != where:
            self._order.insert(place, where)

    def remove(self, where: Where) -> None:
        self.values.pop(where, None)

    def in_order(self) -> Iterator[Where]:
        order, values = self._order, self.values
        while self._first < len(order) and order[self._first] not in values:
            self._first += 1
        if len(order) > 2 * len(values) + 1000:
            order = self._order = sorted(values)
            self._first = 0
        return (order[place] for place in range(self._first, len(order)) if order[place] in values)

    def last(self) -> Where:
        return next(where for where in reversed(self._order) if where in self.values)

    def changes(self) -> tuple[StateTable, Rows, Rows]:
        """Returns the table, the changed rows for the store, and the present contents of the same rows."""
        after = {where: packed_parts(values) for where, values in self.values.items()}
        changed = (where for where in self._before.keys() | after.keys() if self._before.get(where) != after.get(where))
        keys = sorted((a, n, is_left) for n, is_left, a in changed)
        places = [a for a, _, _ in keys], [n for _, n, _ in keys], [int(m) for _, _, m in keys]
        rows, before = ([kept.get((n, is_left, a)) for a, n, is_left in keys] for kept in (after, self._before))
        return self._table, Rows(*places, rows, places[1]), Rows(*places, before, places[1])


def join_outer(work: Work, node: StreamStreamJoin, is_this: bool) -> Step:
    join = _OuterJoin(work, node)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        if node.name not in batch.outer:
            batch.outer[node.name] = join.both(batch)
        leaving: Leaving = batch.outer[node.name][is_this]
        return leaving

    return step


class _OuterJoin:
    def __init__(self, work: Work, node: StreamStreamJoin) -> None:
        assert node.outer_store is not None
        self._node = node
        self._sides = {is_left: Side(work, node, is_left) for is_left in (True, False)}
        self._outer = {True: True, False: node.kind == "outer"}
        self._spec = node.outer_store
        self._key: Serde = node.outer_store.key or work.config.key_serde
        self._joiner = ColumnFunction(node.joiner)

    def both(self, batch: MicroBatch) -> dict[bool, Records | None]:
        """Returns the output of each side of the join for all records of the micro-batch."""
        coming = self._coming(batch)
        waiting = _Waiting(table_of(batch.file, self._spec))
        self._in_turn(batch, coming, waiting)
        batch.writes.append(waiting.changes())
        return {
            is_left: self._leaving(is_left, coming[is_left]) if is_left in coming else None for is_left in (True, False)
        }

    def _coming(self, batch: MicroBatch) -> dict[bool, _Coming]:
        frames = {is_left: batch.joined.get(side.spec.name) for is_left, side in self._sides.items()}
        turns: dict[bool, Indices] = {True: np.arange(0), False: np.arange(0)}
        there = [is_left for is_left, frame in frames.items() if frame is not None]
        first = frames[there[0]]
        assert first is not None
        turns[there[0]], turns[not there[0]] = turns_of(first, frames[not there[0]])
        found = {}
        for is_left in there:
            records, mine, other = frames[is_left], self._sides[is_left], self._sides[not is_left]
            assert records is not None
            no_key, no_value = is_null(records.keys), is_null(records.values)
            wanted = ~(no_key | no_value)
            at_once = no_key & ~no_value if self._outer[is_left] else np.zeros(len(records), np.bool_)
            batch.dropped += int((~(wanted | at_once)).sum())
            some = records.where(wanted)
            partners = Partners(np.arange(0), np.arange(0), pa.nulls(0))
            if len(some):
                partners = partners_of(batch, self._node, mine, other, some, turns[is_left][wanted], turns[not is_left])
            keys = column_serdes.write(self._key, "", some.keys).to_pylist()
            values = (
                column_serdes.write(mine.serdes.value, "", some.values).to_pylist()
                if self._outer[is_left]
                else [None] * len(some)
            )
            found[is_left] = _Coming(records, turns[is_left], wanted, at_once, partners, keys, values)
        return found

    def _in_turn(self, batch: MicroBatch, coming: dict[bool, _Coming], waiting: _Waiting) -> None:
        windows, names = self._node.windows, (self._node.this_join_name, self._node.other_join_name)
        waits_ms = {True: windows.after_ms, False: windows.before_ms}  # also the distance that side looks ahead
        grace_ms = windows.grace_ms
        stream_time, earliest = batch.facts["operators"][names[0]]
        for is_left, place, number, partners in _events(coming):
            one = coming[is_left]
            at = int(one.records.times[place])
            stream_time = max(stream_time, at)
            if number is None:
                if one.at_once[place]:
                    one.left_alone.append(place)
                continue
            if at == stream_time and earliest + waits_ms[is_left] + grace_ms < stream_time:
                earliest = self._let_go(waiting, one, place, stream_time - grace_ms, waits_ms)
            where = one.keys[number]
            for other_at in partners:
                waiting.remove((other_at, not is_left, where))
            if partners or not self._outer[is_left]:
                continue
            if max(0, at + waits_ms[is_left]) < stream_time:
                one.left_alone.append(place)
            else:
                earliest = min(earliest, at)
                waiting.add((at, is_left, where), one.values[number] or b"")
        for name in names:
            batch.later.append((batch.facts["operators"][name], [stream_time, earliest]))

    def _let_go(self, waiting: _Waiting, one: _Coming, place: int, until: int, waits_ms: dict[bool, int]) -> int:
        """Removes the records whose wait has ended from the waiting records, and adds them to `late`. Returns the
        timestamp of the last record that was checked."""
        earliest = _NEVER
        still_open: set[bool] = set()
        gone = []
        for where in waiting.in_order():
            at, is_left, _ = where
            earliest = at
            if len(still_open) == 2:
                break
            if at + waits_ms[is_left] >= until:
                still_open.add(is_left)
                if not self._outer[False]:  # only one side waits: all that follow are open as well
                    earliest = waiting.last()[0]
                    break
                continue
            one.late += [(place, where, value) for value in waiting.values[where]]
            gone.append(where)
        for where in gone:
            waiting.remove(where)
        return earliest

    def _leaving(self, is_left: bool, one: _Coming) -> Records | None:
        """Returns the output of one side: the records whose wait has ended, and new records joined with their partners
        or with None. An output record is sorted by the new record that caused it."""
        parts, places = [], []
        if one.late:
            parts.append(self._late(one))
            places.append(np.array([place for place, _, _ in one.late], np.int64) * 2)
        if one.left_alone:
            alone = np.array(one.left_alone, np.int64)
            parts.append(self._alone(is_left, one.records.taken(alone)))
            places.append(alone * 2 + 1)
        if len(one.partners.places):
            parts.append(joined(self._joiner, is_left, one.records.where(one.wanted), one.partners))
            places.append(np.flatnonzero(one.wanted)[one.partners.places] * 2 + 1)
        if not parts:
            return None
        order = np.argsort(np.concatenate(places), kind="stable")
        columns = [[getattr(part, name) for part in parts] for name in ("rows", "times")]
        rows, times = (np.concatenate(column) for column in columns)
        turns = tuple(np.concatenate(numbers) for numbers in zip(*(part.order for part in parts), strict=True))
        keys, values = together([part.keys for part in parts]), together([part.values for part in parts])
        return Records(rows, keys, values, times, turns).taken(order)

    def _alone(self, is_left: bool, records: Records) -> Records:
        nothing = pa.nulls(len(records))
        left, right = (records.values, nothing) if is_left else (nothing, records.values)
        return records.with_values(self._joiner({"key": records.keys, "left": left, "right": right}, len(records)))

    def _late(self, one: _Coming) -> Records:
        """Returns the records whose wait has ended, joined with None. Their headers are those of the record at which
        the wait ended."""
        by = one.records.taken(np.array([place for place, _, _ in one.late], np.int64))
        keys = column_serdes.read(self._key, "", pa.array([where[2] for _, where, _ in one.late], pa.binary()))
        times = np.array([where[0] for _, where, _ in one.late], np.int64)
        whose = np.array([where[1] for _, where, _ in one.late], np.bool_)
        made: list[Column] = []
        places = []
        for is_left in (True, False):
            some = np.flatnonzero(whose == is_left)
            data = pa.array([one.late[place][2] for place in some.tolist()], pa.binary())
            values = column_serdes.read(self._sides[is_left].serdes.value, "", data)
            nothing = np.zeros(len(some), np.int64)
            alone = Records(nothing, taken(keys, some), values, nothing)
            made.append(self._alone(is_left, alone).values if len(some) else pa.nulls(0))
            places.append(some)
        back = np.empty(len(whose), np.int64)
        back[np.concatenate(places)] = np.arange(len(whose))
        return Records(by.rows, keys, taken(together(made), back), times, by.order)


def _events(coming: dict[bool, _Coming]) -> Iterator[tuple[bool, int, int | None, list[int]]]:
    """Yields all records of both sides in the order of processing. For each record it yields the side, the position,
    the number among the records that look for a partner (else None), and the timestamps of its partners."""
    sides = list(coming)
    turns = np.concatenate([coming[is_left].turns for is_left in sides])
    whose = np.repeat(np.arange(len(sides)), [len(coming[is_left].records) for is_left in sides])
    places = np.concatenate([np.arange(len(coming[is_left].records)) for is_left in sides])
    numbers, bounds, times = {}, {}, {}
    for is_left in sides:
        one = coming[is_left]
        numbers[is_left] = np.where(one.wanted, np.cumsum(one.wanted) - 1, -1).tolist()
        bounds[is_left] = np.searchsorted(one.partners.places, np.arange(len(one.keys) + 1)).tolist()
        times[is_left] = one.partners.times.tolist()
    order = np.argsort(turns, kind="stable")
    for side, place in zip(whose[order].tolist(), places[order].tolist(), strict=True):
        is_left = sides[side]
        number = numbers[is_left][place]
        if number < 0:
            yield is_left, place, None, []
        else:
            first, last = bounds[is_left][number], bounds[is_left][number + 1]
            yield is_left, place, number, times[is_left][first:last]
