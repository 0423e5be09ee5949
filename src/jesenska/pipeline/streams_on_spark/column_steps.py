"""The steps of the columns path that look at one record at a time, and what all its steps share.

A step takes all records that come to it in a micro-batch and gives those that leave it. It is made from the node of
the plan, once for a sub-topology, and keeps nothing: what a micro-batch knows is in its `MicroBatch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams.engine.stateless import several
from jesenska.pipeline.streams.expressions import Expression
from jesenska.pipeline.streams.functions import Function
from jesenska.pipeline.streams.plan import Branch, Filter, FlatMapValues, Map, MapValues, Repartition, SelectKey, Store
from jesenska.pipeline.streams.serde import Serde
from jesenska.pipeline.streams.topology import changelog_topic
from jesenska.pipeline.streams_on_spark import column_expressions, column_serdes
from jesenska.pipeline.streams_on_spark.column_expressions import NoColumnsError
from jesenska.pipeline.streams_on_spark.partition_task import Work
from jesenska.pipeline.streams_on_spark.record_columns import Order, Records, repeated
from jesenska.pipeline.streams_on_spark.state_file import Rows, StateFile, StateTable
from jesenska.pipeline.streams_on_spark.state_segments import StateSegments
from jesenska.pipeline.streams_on_spark.value_columns import Column, Indices, Objects, from_values, is_null

Leaving = Records | list[Records] | None
"""The records for all that is behind the step; a list has those for each of the steps behind it; None: none leave."""


class MicroBatch:
    """What the steps know of one micro-batch of one partition. `facts` are the task's (partition_task.py). Stores are
    as the micro-batch has found them, until its end."""

    def __init__(self, file: StateFile | None, facts: dict[str, Any], looked_up: frozenset[str], caches: bool, turns: int) -> None:
        self._file = file
        self._caches = caches
        self._turns = turns
        self.facts = facts
        self.looked_up = looked_up  # stores of tables that a join looks up
        self.dropped = 0
        self.writes: list[tuple[StateTable, Rows, Rows]] = []  # what `put_many` is given at the end
        self.expired: list[tuple[StateTable, int]] = []  # what `remove_below` is given behind it
        self.segments: list[tuple[StateSegments, pa.Table, int, int]] = []  # rows, their retention, what has expired
        self.later: list[tuple[list[int], list[int]]] = []  # facts, and what they are at the end
        self.puts: dict[str, Any] = {}  # what a side of a join puts into its store, by the store's name
        self.joined: dict[str, Records] = {}  # what came to a side of a join of streams, by the name of its store
        self.changes: dict[str, Changes] = {}  # of tables with a store, by the store's name

    def updates(self, records: Records, last: Indices) -> Records:
        """What a table with a store sends on: each change, or with a record cache (record_cache.py) the last one of
        each key, whose places are `last`, behind everything else."""
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
    """What came to a table in this micro-batch: keys and values as the store has them (None: deleted)."""

    def __init__(self, keys: pa.Array, values: pa.Array, order: Order) -> None:
        self.keys = keys
        self.values = values
        self.order = order


class Step(Protocol):
    def __call__(self, batch: MicroBatch, records: Records) -> Leaving: ...


class StoreSerdes:
    """How a store's keys and values become bytes."""

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
        """The values as the store gives them back."""
        kind = column_serdes.kind_of(self.value)
        if kind is not None and isinstance(values, pa.Array) and values.type == kind:
            return values
        return self.values(self.value_bytes(values))


#: By which numbers the rows of a kind of store are read beside their keys (state_stores.py).
_ORDERS = {"window": "n, a, m"}


def table_of(file: StateFile, spec: Store) -> StateTable:
    """The store's rows."""
    return file.table(spec.name, _ORDERS.get(spec.kind, ""))


def rows_of(table: StateTable, keys: Sequence[bytes]) -> Rows:
    """The rows of these keys in a key-value store; -1 is the time of one that is not there."""
    found = {a: (value, at) for a, _, _, value, at in table.of_many(keys)}
    zeros = [0] * len(keys)
    if not found:
        return Rows(keys, zeros, zeros, [None] * len(keys), [-1] * len(keys))
    values, times = zip(*[found.get(key, _NO_ROW) for key in keys], strict=True)
    return Rows(keys, zeros, zeros, values, times)


_NO_ROW = (None, -1)


def expression_of(function: Function | None, name: str) -> Expression:
    """The function as an expression; NoColumnsError for a Python function."""
    if function is None or function.expression is None:
        raise NoColumnsError(f"{name} has a Python function")
    return function.expression


def go_on(batch: MicroBatch, records: Records) -> Leaving:
    return records


def filter_records(node: Filter) -> Step:
    predicate, negated = expression_of(node.predicate, node.name), node.negated

    def step(batch: MicroBatch, records: Records) -> Leaving:
        return records.where(_holds(predicate, records) != negated)

    return step


def map_records(node: Map) -> Step:
    pair = expression_of(node.mapper, node.name)
    if pair.operator != "pair":
        raise NoColumnsError(f"{node.name} has an expression that is no pair")
    key, value = pair.operands

    def step(batch: MicroBatch, records: Records) -> Leaving:
        return records.with_keys(_value(key, records)).with_values(_value(value, records))

    return step


def select_key(node: SelectKey) -> Step:
    key = expression_of(node.mapper, node.name)
    return lambda batch, records: records.with_keys(_value(key, records))


def map_values(node: MapValues) -> Step:
    value = expression_of(node.mapper, node.name)
    return lambda batch, records: records.with_values(_value(value, records))


def flat_map_values(node: FlatMapValues) -> Step:
    value = expression_of(node.mapper, node.name)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        lists = _value(value, records)
        if isinstance(lists, pa.Array):
            if lists.type == pa.null():
                return None
            if not pa.types.is_list(lists.type):
                raise NoColumnsError("what should give several values gives one")
            return repeated(records, pc.list_parent_indices(lists), lists.flatten())
        if not isinstance(lists, Objects):
            raise NoColumnsError("what should give several values gives the key of a window")
        made = [[] if values is None else list(several(values, "values")) for values in lists.values]
        places = np.repeat(np.arange(len(made)), np.fromiter(map(len, made), np.int64, len(made)))
        return repeated(records, pa.array(places, pa.int64()), from_values([value for values in made for value in values]))

    return step


def branch(node: Branch) -> Step:
    predicates = [expression_of(predicate, node.name) for predicate in node.predicates]
    children = len(node.children)

    def step(batch: MicroBatch, records: Records) -> Leaving:
        left = np.ones(len(records), np.bool_)
        found = []
        for predicate in predicates[:children]:
            chosen = left & _holds(predicate, records)
            left &= ~chosen
            found.append(records.taken(np.flatnonzero(chosen)))
        if children > len(predicates):
            found.append(records.taken(np.flatnonzero(left)))
        return found

    return step


def drop_null_keys(node: Repartition) -> Step:
    if not node.drops_null_keys:
        return go_on
    return lambda batch, records: records.where(~is_null(records.keys))


def _holds(expression: Expression, records: Records) -> Any:
    return column_expressions.holds(expression, {"key": records.keys, "value": records.values}, len(records))


def _value(expression: Expression, records: Records) -> Column:
    return column_expressions.evaluate(expression, {"key": records.keys, "value": records.values}, len(records))
