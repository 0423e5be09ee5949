"""Functions of the user's program on columns. An expression is evaluated for all records at once; a Python function is
called for each record, in order.

A Python function of one step is called for all records of a micro-batch before any function of the next step is
called. The results are the same as in the engine if values do not change between the two steps. So Python functions
get only immutable values (strings, bytes, numbers, booleans, None, windowed keys). With other values, such as those of
JSON, the micro-batch cannot be processed on the columns path. The micro-batch also cannot be processed on this path if
a function returns the same mutable object several times."""

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
    """The function of an operation, called on columns. `expression` is None for a Python function."""

    def __init__(self, function: Function | None) -> None:
        assert function is not None
        self.expression: Expression | None = function.expression
        self._call = function.call
        self._arguments = function.role.arguments

    def __call__(self, roots: Mapping[str, Column], count: int) -> Column:
        """Returns a column with the result for each record."""
        if self.expression is not None:
            return expressions.evaluate(self.expression, roots, count)
        return from_values(self.each(roots, count))

    def holds(self, roots: Mapping[str, Column], count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns a boolean array: the result of a predicate for each record."""
        if self.expression is not None:
            return expressions.holds(self.expression, roots, count)
        return np.fromiter(map(bool, self.each(roots, count)), np.bool_, count)

    def each(self, roots: Mapping[str, Column], count: int) -> list[Any]:
        """Calls a Python function for each record, and returns the list of results."""
        made = list(map(self._call, *(unchangeable(roots[name]) for name in self._arguments)))
        check_distinct(made)
        return made


def unchangeable(column: Column) -> Sequence[Any]:
    """Returns the values of the column for a Python function. Raises OtherWayError if a value is mutable."""
    values = to_values(column)
    if isinstance(column, Objects) and not _UNCHANGEABLE.issuperset(map(type, values)):
        raise OtherWayError("a Python function gets objects that can change")
    return values


def check_distinct(made: Sequence[Any]) -> None:
    """Raises OtherWayError if the same mutable object is in the list twice."""
    if not _UNCHANGEABLE.issuperset(map(type, made)):
        changeable = [id(one) for one in made if type(one) not in _UNCHANGEABLE]
        if len(set(changeable)) < len(changeable):
            raise OtherWayError("a Python function has given the same object twice")
