"""Expressions over columns have the same results as record by record: the same values, of the same types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jesenska.pipeline.streams import Expression, coalesce, concat, if_else, key, lit, struct, value
from jesenska.pipeline.streams import array as array_of
from jesenska.pipeline.streams.dsl.expressions import evaluate
from jesenska.pipeline.streams_on_spark.columns import expressions
from jesenska.pipeline.streams_on_spark.columns.value_columns import from_values, to_values
from tests.profiles import examples

_INTS = some.integers(-5, 5) | some.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)])
_FLOATS = some.sampled_from(
    [0.0, -0.0, 1.5, -2.5, 1e300, float("inf"), float("-inf"), float("nan"), 9007199254740992.0]
) | some.floats(-5, 5)
_TEXTS = some.text("aB ,ßİΣς1-é", max_size=5) | some.sampled_from(
    ["12", "-7", "1.5", " 3 ", "1e3", "0x1F", "+5", "true", "١", "1\n"]
)
_BYTES = some.binary(max_size=3)
_OF_KIND: dict[str, Any] = {"int": _INTS, "float": _FLOATS, "text": _TEXTS, "bytes": _BYTES, "bool": some.booleans()}
_MIXED = some.one_of(
    *_OF_KIND.values(), some.lists(_INTS | _TEXTS, max_size=2), some.fixed_dictionaries({"a": _INTS | _TEXTS})
)


@some.composite
def _columns(draw: Any) -> list[tuple[Any, Any]]:
    """Keys and values: of one type each, or of several."""
    kinds = [draw(some.sampled_from([*_OF_KIND.values(), _MIXED])) for _ in range(2)]
    return draw(some.lists(some.tuples(some.none() | kinds[0], some.none() | kinds[1]), min_size=1, max_size=5))  # type: ignore[no-any-return]


_LEAVES = some.sampled_from([key, value, value, key]) | some.one_of(some.none(), *_OF_KIND.values()).map(lit)
_ONE = ["is_null", "is_not_null", "not", "negative", "abs", "lower", "upper", "strip", "length"]
_TWO = [
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "<=>",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "and",
    "or",
    "startswith",
    "endswith",
    "contains",
]


def _larger(parts: Any) -> Any:
    return some.one_of(
        some.builds(Expression, some.sampled_from(_ONE), parts),
        some.builds(Expression, some.sampled_from(_TWO), parts, parts),
        some.builds(lambda one, others: one.is_in(*others), parts, some.lists(parts, max_size=3)),
        some.builds(
            lambda one, name: one.cast(name),
            parts,
            some.sampled_from(["string", "bytes", "boolean", "int", "long", "double"]),
        ),
        some.builds(lambda one, digits: one.round(digits), parts, some.integers(-2, 3)),
        some.builds(
            lambda one, start, size: one.substring(start, size), parts, some.integers(0, 3), some.integers(0, 3)
        ),
        some.builds(lambda one, separator: one.split(separator), parts, some.sampled_from([" ", ",", "ß"])),
        some.builds(
            lambda one, old, new: one.replace(old, new),
            parts,
            some.sampled_from(["", "a", " "]),
            some.sampled_from(["", "xy"]),
        ),
        some.builds(lambda one, name: one[name], parts, some.sampled_from(["a", "b", 0, 1])),
        some.builds(if_else, parts, parts, parts),
        some.builds(lambda several: coalesce(*several), some.lists(parts, min_size=1, max_size=3)),
        some.builds(lambda several: concat(*several), some.lists(parts, min_size=1, max_size=3)),
        some.builds(lambda several: array_of(*several), some.lists(parts, max_size=2)),
        some.builds(lambda one: struct(a=one), parts),
    )


_EXPRESSIONS = some.recursive(_LEAVES, _larger, max_leaves=6)


@settings(max_examples=examples(3), deadline=None)
@given(_EXPRESSIONS, _columns())
def test_columns_have_the_values_that_single_records_have(
    expression: Expression, records: list[tuple[Any, Any]]
) -> None:
    roots = {"key": from_values([one for one, _ in records]), "value": from_values([two for _, two in records])}
    try:
        expected = [evaluate(expression, {"key": one, "value": two}) for one, two in records]
    except Exception:
        return  # the direct path reports it; the columns path may find it or may not need it
    try:
        found = expressions.evaluate(expression, roots, len(records))
    except Exception:
        if _chooses(expression):
            return  # a branch that no record takes may raise
        raise
    assert [repr(one) for one in to_values(found)] == [repr(one) for one in expected]
    assert expressions.holds(expression, roots, len(records)).tolist() == [one is True for one in expected]


def _chooses(expression: Any) -> bool:
    if isinstance(expression, tuple):
        return any(map(_chooses, expression))
    return isinstance(expression, Expression) and (expression.operator == "coalesce" or _chooses(expression.operands))


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        (value.lower().split(" "), pa.list_(pa.string())),
        (value.length() * 2 + 1, pa.int64()),
        (value.length() % 7, pa.int64()),
        (value.length() / 2, pa.float64()),
        (value.startswith("a") & ~value.contains("b"), pa.bool_()),
        (concat(key, "-", value.substring(0, 3).upper()), pa.string()),
        (if_else(value == "a", key, "none"), pa.string()),
        (key.cast("long"), pa.int64()),
    ],
    ids=str,
)
def test_common_expressions_need_no_python_for_each_record(
    expression: Expression, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions._Evaluation, "_each", None)
    found = expressions.evaluate(
        expression, {"key": pa.array(["1", "22", None]), "value": pa.array(["a", None, "a b"])}, 3
    )
    assert isinstance(found, pa.Array) and found.type == kind
