"""The functions of `named_functions.py` that can be written as expressions. Keys are strings, and values have the
types of the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jesenska.pipeline.streams import aggregate, coalesce, concat, if_else, key, left, lit, right, value
from jesenska.pipeline.streams.dsl.expressions import Expression


def _text(given: Expression) -> Expression:
    return coalesce(given.cast("string"), "null")


def _size(given: Expression) -> Expression:
    return coalesce(given.length(), 0)


_FIRST_LETTER = if_else(value.length() > 0, value.substring(0, 1), None)

PREDICATES: dict[str, Expression] = {
    "value is there": value.is_not_null(),
    "key is there": key.is_not_null(),
    "key is not b": ~key.equal_null_safe("b"),
    "long value": _size(value) > 2,
    "odd length": _size(value) % 2 == 1,
    "even number": value % 2 == 0,
    "above one": value > 1,
    "always": lit(True),
}

#: Of key and value: to a value, to a key, to a pair.
FUNCTIONS: dict[str, Any] = {
    "upper": value.upper(),
    "length": value.length(),
    "or none": coalesce(value, "none"),
    "null if even": if_else(_size(value) % 2 == 0, None, value),
    "text": value.cast("string"),
    "plus one": value + 1,
    "with key": concat(_text(key), "=", _text(value)),
    "key": key,
    "value": value,
    "first letter": _FIRST_LETTER,
    "constant": lit("all"),
    "null key if even": if_else(_size(value) % 2 == 0, None, key),
    "swap": (value, key),
    "first letter and value": (_FIRST_LETTER, value),
    "key and length": (key, value.length()),
    "constant and value": (lit("all"), value),
    "number and key": (_text(value), _text(key)),
}

#: Of two values.
OF_TWO: dict[str, Callable[[Expression, Expression], Expression]] = {
    "pair": lambda one, other: concat("(", _text(one), ",", _text(other), ")"),
    "append": lambda one, other: concat(_text(one), "+", _text(other)),
    "cut": lambda one, other: concat(_text(one), "-", _text(other)),
    "merge": lambda one, other: concat(_text(one), "|", _text(other)),
    "newest": lambda one, other: other,
    "oldest": lambda one, other: one,
    "null if longer than five": lambda one, other: if_else(
        _size(one) + _size(other) > 5, None, concat(_text(one), "+", _text(other))
    ),
    "add length": lambda one, other: one + _size(other),
    "cut length": lambda one, other: one - _size(other),
    "sum": lambda one, other: one + other,
    "difference": lambda one, other: one - other,
}

#: The names of the two arguments in a reduction or an aggregate, and in a join or a merger of sessions.
OF_AGGREGATES, OF_SIDES = (aggregate, value), (left, right)
