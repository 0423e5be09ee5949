"""Many records as columns: the input and output of the steps on the columns path.

`rows` contains, for each record, the number of the input row from which it was made; the record has the headers of
this row. `order` defines the position of each record if all records of the micro-batch were processed one by one, each
through all steps before the next. It consists of several numbers for each record, which are compared one after the
other:

first      the turn of the input record among the records of all topics (interleaving.py)
then       two numbers for each earlier step with several children: the position of the record in the step's output,
           and the number of the child

So records that come from several steps can be sorted in the order in which the engine would process them, and the
value of a table at the time of a record can be found. In sub-topologies that need neither of these, `order` is
empty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from jesenska.pipeline.streams_on_spark.columns.value_columns import Column, Indices, taken, together

Order = tuple[Indices, ...]


@dataclass(frozen=True, slots=True)
class Records:
    rows: Indices
    keys: Column
    values: Column
    times: Indices
    order: Order = ()

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, places: Indices) -> Records:
        """Returns the records at these positions."""
        order = tuple(numbers[places] for numbers in self.order)
        return Records(
            self.rows[places], taken(self.keys, places), taken(self.values, places), self.times[places], order
        )

    def where(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Records:
        """Returns the records for which the mask is True."""
        return self if mask.all() else self.taken(np.flatnonzero(mask))

    def with_values(self, values: Column) -> Records:
        return replace(self, values=values)

    def with_keys(self, keys: Column) -> Records:
        return replace(self, keys=keys)

    def ordered(self, turns: Indices) -> Records:
        """Returns the records with `turns` as their order."""
        return replace(self, order=(turns,))

    def for_child(self, child: int) -> Records:
        """Returns the records for one of several following steps: their order is extended by their position and the
        number of the child."""
        count = len(self)
        return replace(self, order=(*self.order, np.arange(count), np.full(count, child)))


def merged(parts: Sequence[Records]) -> Records:
    """Returns the records of several steps as one, sorted by their order."""
    if len(parts) == 1:
        return parts[0]
    order, places = in_order([part.order for part in parts])
    whole = Records(
        np.concatenate([part.rows for part in parts]),
        together([part.keys for part in parts]),
        together([part.values for part in parts]),
        np.concatenate([part.times for part in parts]),
        order,
    )
    return whole.taken(places)


def in_order(orders: Sequence[Order]) -> tuple[Order, Indices]:
    """Returns the orders of several parts joined together, and the positions that sort them."""
    depth = max(map(len, orders))

    def numbers(level: int) -> Indices:
        return np.concatenate(
            [order[level] if level < len(order) else np.zeros(len(order[0]), np.int64) for order in orders]
        )

    levels = [numbers(level) for level in range(depth)]
    places = np.argsort(levels[0], kind="stable") if depth == 1 else np.lexsort(levels[::-1])
    return tuple(levels), places


def repeated(records: Records, places: pa.Array, values: Column) -> Records:
    """Returns the records at these positions, with new values. This is the result of flat_map_values."""
    at = places.to_numpy()
    order = tuple(numbers[at] for numbers in records.order)
    return Records(records.rows[at], taken(records.keys, at), values, records.times[at], order)
