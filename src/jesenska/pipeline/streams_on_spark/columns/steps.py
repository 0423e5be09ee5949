"""The steps of the columns path that process single records, and the classes that all steps share.

A step is a function. It takes all records that reach a node in a micro-batch, and returns the node's output records.
It is made once for each sub-topology, from the node of the plan. It has no state: the state of a micro-batch is in a
`MicroBatch` object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams.engine.stateless import pair, several
from jesenska.pipeline.streams.plan import (
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapValues,
    Repartition,
    SelectKey,
    Store,
)
from jesenska.pipeline.streams.serdes.serde import Serde
from jesenska.pipeline.streams.topology import changelog_topic
from jesenska.pipeline.streams_on_spark.columns import column_serdes, expressions
from jesenska.pipeline.streams_on_spark.columns.functions import ColumnFunction, check_distinct
from jesenska.pipeline.streams_on_spark.columns.record_columns import Order, Records, repeated
from jesenska.pipeline.streams_on_spark.columns.value_columns import (
    Column,
    Indices,
    Objects,
    WindowedKeys,
    from_values,
    is_null,
)
from jesenska.pipeline.streams_on_spark.stores.state_file import Rows, StateFile, StateTable
from jesenska.pipeline.streams_on_spark.stores.state_segments import StateSegments
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

Leaving = Records | list[Records] | None
"""The records for all following steps; or a list with the records for each following step; or None for no records."""


class MicroBatch:
    """The state that all steps share during one micro-batch of one partition. `facts` contains the facts of the task
    (partition_task.py), such as its stream time. The stores do not change until the end of the micro-batch."""

    def __init__(
        self, file: StateFile | None, facts: dict[str, Any], looked_up: frozenset[str], caches: bool, turns: int
    ) -> None:
        self._file = file
        self._caches = caches
        self._turns = turns
        self.facts = facts
        self.looked_up = looked_up  # stores of tables that a join looks up
        self.dropped = 0
        self.writes: list[tuple[StateTable, Rows, Rows]] = []  # arguments of `put_many` at the end
        self.expired: list[tuple[StateTable, int]] = []  # arguments of `remove_below` after it
        self.segments: list[tuple[StateSegments, pa.Table, int, int]] = []  # rows, their retention, the expiry time
        self.later: list[tuple[list[int], list[int]]] = []  # facts, and their values at the end
        self.puts: dict[str, Any] = {}  # the rows that a side of a join puts, by the store's name
        self.outer: dict[str, Any] = {}  # the output of each side of an outer join, by the join's name
        self.joined: dict[str, Records] = {}  # the input of a side of a join of streams, by its store's name
        self.changes: dict[str, Changes] = {}  # of tables with a store, by the store's name

    def updates(self, records: Records, last: Indices) -> Records:
        """Returns the output of a table with a store. Without a record cache (record_cache.py), the output is all
        changes. With a record cache, it is only the last change of each key, placed after all other records. `last`
        contains the positions of these last changes."""
        if not self._caches:
            return records
        found = records.taken(np.sort(last))
        if not found.order:
            return found
        self._turns += len(found)
        return found.ordered(np.arange(self._turns - len(found), self._turns))

    @property
    def file(self) -> StateFile:
        assert self._file is not None
        return self._file


class Changes:
    """The changes of a table in this micro-batch: the bytes of the keys, the bytes of the values (None for a deleted
    key), and the order of the changes."""

    def __init__(self, keys: pa.Array, values: pa.Array, order: Order) -> None:
        self.keys = keys
        self.values = values
        self.order = order


class Step(Protocol):
    def __call__(self, batch: MicroBatch, records: Records) -> Leaving: ...


class StoreSerdes:
    """The serdes of a store, applied to columns."""

    def __init__(self, work: Work, spec: Store) -> None:
        config = work.config
        self.name = spec.name
        self.spec = spec
        self.topic = changelog_topic(config.application_id, spec.name)
        self.key: Serde = spec.key or config.key_serde
        self.value: Serde = spec.value or config.value_serde

    def key_bytes(self, keys: Column) -> pa.Array:
        return column_serdes.write(self.key, self.topic, keys)

    def value_bytes(self, values: Column) -> pa.Array:
        return column_serdes.write(self.value, self.topic, values)

    def values(self, data: pa.Array) -> Column:
        return column_serdes.read(self.value, self.topic, data)

    def as_read_again(self, values: Column) -> Column:
        """Returns the values as the store would return them after writing them."""
        kind = column_serdes.kind_of(self.value)
        if kind is not None and isinstance(values, pa.Array) and values.type == kind:
            return values
        return self.values(self.value_bytes(values))


#: The order in which the rows of a kind of store are read when they are not looked up by key (state_stores.py).
_ORDERS = {"window": "n, a, m", "outer-join": "n, m, a"}


def table_of(file: StateFile, spec: Store) -> StateTable:
    """Returns the table of the state file that contains the rows of the store."""
    return file.table(spec.name, _ORDERS.get(spec.kind, ""))


def go_on(batch: MicroBatch, records: Records) -> Leaving:
    return records


def filter_records(node: Filter) -> Step:
    predicate, negated = ColumnFunction(node.predicate), node.negated
    return lambda batch, records: records.where(predicate.holds(_roots(records), len(records)) != negated)


def map_records(node: Map) -> Step:
    mapper = ColumnFunction(node.mapper)
    if mapper.expression is None:
        return lambda batch, records: _with_pairs(records, mapper.each(_roots(records), len(records)))
    if mapper.expression.operator != "pair":
        raise OtherWayError(f"{node.name} has an expression that is not a pair")
    key, value = mapper.expression.operands

    def step(batch: MicroBatch, records: Records) -> Leaving:
        roots, count = _roots(records), len(records)
        return records.with_keys(expressions.evaluate(key, roots, count)).with_values(
            expressions.evaluate(value, roots, count)
        )

    return step


def select_key(node: SelectKey) -> Step:
    mapper = ColumnFunction(node.mapper)
    return lambda batch, records: records.with_keys(mapper(_roots(records), len(records)))


def map_values(node: MapValues) -> Step:
    mapper = ColumnFunction(node.mapper)
    return lambda batch, records: records.with_values(mapper(_roots(records), len(records)))


def flat_map(node: FlatMap) -> Step:
    mapper = ColumnFunction(node.mapper)
    if mapper.expression is not None:
        raise OtherWayError(f"{node.name} has an expression that makes pairs")

    def step(batch: MicroBatch, records: Records) -> Leaving:
        made = [list(several(pairs, "pairs")) for pairs in mapper.each(_roots(records), len(records))]
        flat = [one for pairs in made for one in pairs]
        return _with_pairs(repeated(records, _places(made), pa.nulls(len(flat))), flat)

    return step


def flat_map_values(node: FlatMapValues) -> Step:
    mapper = ColumnFunction(node.mapper)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        roots, count = _roots(records), len(records)
        lists = mapper(roots, count) if mapper.expression is not None else Objects(mapper.each(roots, count))
        if isinstance(lists, Objects):
            made = [[] if values is None else list(several(values, "values")) for values in lists.values]
            flat = [value for values in made for value in values]
            check_distinct(flat)
            return repeated(records, _places(made), from_values(flat))
        if isinstance(lists, WindowedKeys):
            raise OtherWayError("a function that must give several values gives the key of a window")
        if lists.type == pa.null():
            return None
        if not pa.types.is_list(lists.type):
            raise OtherWayError("a function that must give several values gives one value")
        return repeated(records, pc.list_parent_indices(lists), lists.flatten())

    return step


def branch(node: Branch) -> Step:
    predicates = [ColumnFunction(predicate) for predicate in node.predicates]
    children = len(node.children)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        found = []
        for predicate in predicates[:children]:
            chosen = predicate.holds(_roots(records), len(records))
            found.append(records.where(chosen))
            records = records.where(~chosen)
        return [*found, records] if children > len(predicates) else found

    return step


def _places(made: Sequence[list[Any]]) -> pa.Array:
    """Returns an array with an entry for each element of the inner lists: the position of the list that contains the
    element."""
    return pa.array(np.repeat(np.arange(len(made)), np.fromiter(map(len, made), np.int64, len(made))), pa.int64())


def _with_pairs(records: Records, pairs: Sequence[Any]) -> Records:
    made = [pair(one) for one in pairs]
    keys, values = [key for key, _ in made], [value for _, value in made]
    check_distinct([*keys, *values])
    return records.with_keys(from_values(keys)).with_values(from_values(values))


def drop_null_keys(node: Repartition) -> Step:
    if not node.drops_null_keys:
        return go_on
    return lambda batch, records: records.where(~is_null(records.keys))


def _roots(records: Records) -> dict[str, Column]:
    return {"key": records.keys, "value": records.values}
