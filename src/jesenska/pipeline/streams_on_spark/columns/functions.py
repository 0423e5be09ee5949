"""Functions of the program over columns: an expression is evaluated for all records at once, a Python function is
called for each record, in their order.

A Python function of one step is called for all records of a micro-batch before any function of the next step. This
makes no difference as long as values do not change while they wait. So these functions are called with immutable
values (strings, bytes, numbers, booleans, None, keys of windows). Other values, such as those of JSON, end the columns
path for the micro-batch. So does a function that returns one mutable object several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jesenska.pipeline.streams.dsl.expressions import Expression
from jesenska.pipeline.streams.dsl.functions import Function
from jesenska.pipeline.streams.records import Windowed
from jesenska.pipeline.streams_on_spark.columns import expressions
from jesenska.pipeline.streams_on_spark.columns.value_columns import Column, Objects, from_values, to_values
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

_UNCHANGEABLE = frozenset((str, bytes, int, float, bool, type(None), Windowed))


class ColumnFunction:
    """A function of an operation. `expression` is None for a Python function."""

    def __init__(self, function: Function | None) -> None:
        assert function is not None
        self.expression: Expression | None = function.expression
        self._call = function.call
        self._arguments = function.role.arguments

    def __call__(self, roots: Mapping[str, Column], count: int) -> Column:
        """Returns the result for each record."""
        if self.expression is not None:
            return expressions.evaluate(self.expression, roots, count)
        return from_values(self.each(roots, count))

    def holds(self, roots: Mapping[str, Column], count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns the result for each record, as a predicate."""
        if self.expression is not None:
            return expressions.holds(self.expression, roots, count)
        return np.fromiter(map(bool, self.each(roots, count)), np.bool_, count)

    def each(self, roots: Mapping[str, Column], count: int) -> list[Any]:
        """Returns the results of a Python function for each record, one by one."""
        made = list(map(self._call, *(unchangeable(roots[name]) for name in self._arguments)))
        check_distinct(made)
        return made


def unchangeable(column: Column) -> Sequence[Any]:
    """Returns the values, for a Python function."""
    values = to_values(column)
    if isinstance(column, Objects) and not _UNCHANGEABLE.issuperset(map(type, values)):
        raise OtherWayError("a Python function gets objects that can change")
    return values


def check_distinct(made: Sequence[Any]) -> None:
    """OtherWayError if a mutable object is there twice."""
    if not _UNCHANGEABLE.issuperset(map(type, made)):
        changeable = [id(one) for one in made if type(one) not in _UNCHANGEABLE]
        if len(set(changeable)) < len(changeable):
            raise OtherWayError("a Python function has given the same object twice")
