"""The functions that a program gives to operations: Python callables and column expressions, with one interface.

A `Function` wraps a callable or an expression (`expression` is None for a callable). Each role has these arguments, in
this order. An argument in brackets is not passed if the callable takes fewer arguments:

    predicate          key, value              filter, branch
    pair mapper        key, value              map, flat_map: gives a pair (or pairs); KTable.group_by
    key mapper         key, value              select_key, group_by, global table joins
    value mapper       [key,] value            map_values, flat_map_values
    action             key, value              peek, foreach
    joiner             [key,] left, right      joins of streams; tables' joiners take the two values alone
    foreign key        value
    initializer                                aggregate
    aggregator         key, value, aggregate   aggregate; adder and subtractor too
    reducer            aggregate, value        reduce; adder and subtractor too
    merger             key, left, right        session aggregates

An expression uses these argument names as its roots. An initializer may also be a plain value such as 0 or ""; a list
or a dict is copied for each use. A pair may be written as a tuple of two expressions."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from jesenska.pipeline.streams.dsl.expressions import Expression, evaluate, of, roots_of
from jesenska.pipeline.streams.locations import Location, here, refused


class Role(Enum):
    """The role of a function in an operation, such as predicate or joiner."""

    PREDICATE = "predicate"
    PAIR_MAPPER = "pair mapper"
    KEY_MAPPER = "key mapper"
    VALUE_MAPPER = "value mapper"
    ACTION = "action"
    JOINER = "joiner"
    TABLE_JOINER = "joiner of tables"
    FOREIGN_KEY = "foreign key"
    INITIALIZER = "initializer"
    AGGREGATOR = "aggregator"
    REDUCER = "reducer"
    MERGER = "merger"
    TOPIC_EXTRACTOR = "topic extractor"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Returns the names of the arguments that a function of this role gets."""
        return _ARGUMENTS[self]

    @property
    def optional(self) -> int:
        """Returns the number of leading arguments that a callable may leave out."""
        return 1 if self in (Role.VALUE_MAPPER, Role.JOINER) else 0


_RECORD = ("key", "value")
_ARGUMENTS: dict[Role, tuple[str, ...]] = {
    Role.PREDICATE: _RECORD,
    Role.PAIR_MAPPER: _RECORD,
    Role.KEY_MAPPER: _RECORD,
    Role.VALUE_MAPPER: _RECORD,
    Role.ACTION: _RECORD,
    Role.TOPIC_EXTRACTOR: _RECORD,
    Role.JOINER: ("key", "left", "right"),
    Role.TABLE_JOINER: ("left", "right"),
    Role.FOREIGN_KEY: ("value",),
    Role.INITIALIZER: (),
    Role.AGGREGATOR: ("key", "value", "aggregate"),
    Role.REDUCER: ("aggregate", "value"),
    Role.MERGER: ("key", "left", "right"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the user's program. Two Function objects are never equal. `call` takes all arguments of the role.
    `expression` is set if the program gave an expression; a pair of expressions has the operator "pair". `source` is
    the object that the program gave."""

    role: Role
    call: Callable[..., Any] = field(repr=False)
    expression: Expression | None
    source: Any
    made_at: Location

    @property
    def is_expression(self) -> bool:
        return self.expression is not None


def function(role: Role, given: Any, operation: str) -> Function:
    """Returns the Function for an object that the program gave to `operation`. Raises TopologyError if the object is
    neither a callable nor an expression."""
    expression = _as_expression(role, given)
    if expression is not None:
        unknown = roots_of(expression) - set(role.arguments)
        if unknown:
            raise refused(
                f"the expression of {operation} cannot use {' or '.join(sorted(unknown))}: it may use "
                f"{', '.join(role.arguments) or 'constants'}."
            )
        return Function(role, _evaluator(role, expression), expression, given, here())
    if callable(given):
        return Function(role, _adapted(role, given, operation), None, given, here())
    if role is Role.INITIALIZER:
        return Function(role, lambda: copy.deepcopy(given), None, given, here())
    if type(given).__module__.startswith("pyspark."):
        raise refused(
            f"{operation} takes no Spark column: write the expression with value and key from "
            "jesenska.pipeline.streams."
        )
    raise refused(f"{operation} takes a function or an expression, and not {given!r}.")


def _as_expression(role: Role, given: Any) -> Expression | None:
    if isinstance(given, Expression):
        return given
    if role is Role.PAIR_MAPPER and isinstance(given, tuple) and len(given) == 2:
        return Expression("pair", of(given[0]), of(given[1]))
    if role is Role.INITIALIZER and (given is None or isinstance(given, bool | int | float | str | bytes)):
        return of(given)
    return None


def _evaluator(role: Role, expression: Expression) -> Callable[..., Any]:
    names = role.arguments
    if expression.operator == "pair":
        first, second = expression.operands
        return lambda *arguments: (
            evaluate(first, roots := dict(zip(names, arguments, strict=True))),
            evaluate(second, roots),
        )
    if role is Role.PREDICATE:
        return lambda *arguments: evaluate(expression, dict(zip(names, arguments, strict=True))) is True
    return lambda *arguments: evaluate(expression, dict(zip(names, arguments, strict=True)))


def _adapted(role: Role, given: Callable[..., Any], operation: str) -> Callable[..., Any]:
    """Returns a callable that takes all arguments of the role, and passes to `given` only the arguments that it
    takes."""
    most, fewest = len(role.arguments), len(role.arguments) - role.optional
    takes = _positional(given)
    if takes is None:  # a builtin without a signature, such as int: the required arguments
        takes = (0, fewest)
    required, possible = takes
    if required > most or possible < fewest:
        wanted = f"({', '.join(role.arguments)})"
        shorter = f" or ({', '.join(role.arguments[role.optional :])})" if role.optional else ""
        raise refused(
            f"the function of {operation} takes {_counted(required if required > most else possible)}: it is called "
            f"with {wanted}{shorter}."
        )
    if role.optional and required < most:
        left_out = role.optional
        return lambda *arguments: given(*arguments[left_out:])
    return given


def _counted(arguments: int) -> str:
    return f"{arguments} argument{'s' if arguments != 1 else ''}"


def _positional(given: Callable[..., Any]) -> tuple[int, int] | None:
    """Returns the smallest and the largest number of positional arguments of a callable. Returns None if the callable
    has no signature."""
    try:
        parameters = inspect.signature(given).parameters.values()
    except (ValueError, TypeError):
        return None
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = sum(parameter.default is parameter.empty for parameter in positional)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return required, 1 << 30
    return required, len(positional)
