"""Column expressions: their results for values, for None, and for values of the wrong type."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from jesenska.pipeline.streams import (
    Expression,
    StreamsError,
    TopologyError,
    array,
    coalesce,
    concat,
    if_else,
    key,
    lit,
    struct,
    value,
)
from jesenska.pipeline.streams.dsl.expressions import evaluate, roots_of

ORDER = {
    "id": "o1",
    "amount": 12,
    "price": 2.5,
    "paid": True,
    "note": None,
    "lines": [{"sku": "a"}, {"sku": "b"}],
    "text": " Ab,c ",
}


def _of(expression: Expression, of_value: Any = ORDER) -> Any:
    return evaluate(expression, {"key": "k", "value": of_value})


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (value["amount"] > 10, True),
        (value["amount"] > 10, True),
        (value["amount"] + 1 - 2 * value["amount"], -11),
        (1 + value["price"], 3.5),
        (value["amount"] / 8, 1.5),
        (100 / value["amount"], 100 / 12),
        (-value["amount"] // 5, -3),
        (-value["amount"] % 5, 3),
        (value["amount"] % -5, -3),
        (100 // value["amount"], 8),
        (100 % value["amount"], 4),
        (-value["price"], -2.5),
        ((-value["amount"]).abs(), 12),
        (value["price"].round(), 3.0),
        (lit(2.345).round(2), 2.35),
        (lit(-2.5).round(), -3.0),
        (lit(125).round(-1), 130),
        (value["amount"] == 12.0, True),
        (value["amount"] != "12", True),
        (value["paid"] == 1, False),
        ((value["amount"] > 10) & ~value["paid"], False),
        ((value["amount"] > 10) | value["note"], True),
        (value["amount"].between(12, 13), True),
        (value["id"].is_in("o1", "o2"), True),
        (value["lines"][1]["sku"], "b"),
        (value["lines"][2]["sku"], None),
        (value["lines"][-1], None),
        (value["lines"].length(), 2),
        (value["missing"]["deep"], None),
        (value["text"].strip().lower(), "ab,c"),
        (value["text"].upper().strip(), "AB,C"),
        (value["text"].length(), 6),
        (value["text"].startswith(" A") & value["text"].endswith("c ") & value["text"].contains("b,"), True),
        (value["text"].substring(1, 2), "Ab"),
        (value["text"].replace(",", ";"), " Ab;c "),
        (value["text"].strip().split(","), ["Ab", "c"]),
        (concat(key, "-", value["id"]), "k-o1"),
        (struct(who=key, n=value["amount"] * 2, none=value["note"]), {"who": "k", "n": 24, "none": None}),
        (array(1, value["id"], None), [1, "o1", None]),
        (coalesce(value["note"], value["missing"], "none"), "none"),
        (if_else(value["note"] == 1, "yes", "no"), "no"),
        (if_else(value["paid"], {"state": "paid"}), {"state": "paid"}),
        (value["note"].is_null(), True),
        (value["note"].is_not_null(), False),
        (value["note"].equal_null_safe(None), True),
        (value["id"].equal_null_safe(None), False),
        (value["amount"].cast("string"), "12"),
        (value["paid"].cast("string"), "true"),
        (lit(" 7 ").cast("long"), 7),
        (lit("7.9").cast("int"), 7),
        (lit("seven").cast("long"), None),
        (lit(-7.9).cast("long"), -7),
        (lit(2**40).cast("int"), None),
        (lit("1e3").cast("double"), 1000.0),
        (lit("yes").cast("boolean"), True),
        (lit("perhaps").cast("boolean"), None),
        (lit(b"ab").cast("string"), "ab"),
        (lit("ab").cast("bytes"), b"ab"),
    ],
    ids=str,
)
def test_an_expression_has_its_value(expression: Expression, expected: Any) -> None:
    found = _of(expression)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "expression",
    [
        value + 1,
        value == value,
        value < 1,
        ~value,
        value.upper(),
        concat("a", value),
        value & True,
        value | False,
        value.is_in(1),
        lit(1).is_in(2, value),
        value["a"],
        value[0],
        value.cast("long"),
        lit(1) / 0,
        lit(1) // 0,
        lit(1) % 0,
        lit(2**62) * 2,
        lit(-(2**63)) - 1,
        -lit(-(2**63)),
    ],
    ids=str,
)
def test_none_in_gives_none_and_so_do_zero_divisors_and_results_beyond_64_bits(expression: Expression) -> None:
    assert _of(expression, None) is None


@pytest.mark.parametrize(
    "expression", [value & False, lit(False) & value, value | True, lit(True) | value, lit(1).is_in(1, value)], ids=str
)
def test_what_decides_alone_decides_beside_none(expression: Expression) -> None:
    assert _of(expression, None) is not None


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        (
            value["id"] + 1,
            r"\(value\['id'\] \+ 1\) cannot be computed of 'o1', 1 \('o1' is not a number; concat joins strings\): "
            r"cast the operands",
        ),
        (value["id"] < 1, "'o1' and 1 have no order"),
        (value["paid"] < 1, "True and 1 have no order"),
        (value["paid"] + 1, "True is not a number"),
        (value["amount"].upper(), "12 is not a string"),
        (value["amount"] & True, "12 is not a boolean"),
        (value["amount"]["a"], "12 has no fields, so 'a' is not in it"),
        (value["amount"][0], "12 is not a list, so it has no element 0"),
        (~value["amount"], "12 is not a boolean"),
        (value["amount"].length(), "12 has no length"),
    ],
)
def test_operands_of_the_wrong_type_are_an_error(expression: Expression, sentence: str) -> None:
    with pytest.raises(StreamsError, match=sentence):
        _of(expression)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: bool(value), "has no truth value yet"),
        (lambda: list(value), "is an expression, which cannot be iterated"),
        (
            lambda: value[1.5],  # type: ignore[index]
            "neither the name of a field nor a position",
        ),
        (lambda: value.cast("decimal"), "'decimal' is not a type that cast knows"),
        (lambda: value.split(""), "a separator of at least one character"),
        (lambda: value.substring(-1, 2), "a start and a length of at least 0"),
        (lambda: value + object(), "cannot stand in an expression"),
    ],
)
def test_what_is_no_expression_is_refused_when_it_is_written(make: Any, sentence: str) -> None:
    with pytest.raises(TopologyError, match=sentence):
        make()


def test_the_roots_are_known() -> None:
    assert roots_of(struct(a=key, b=if_else(value["x"] > 1, lit(2), None))) == {"key", "value"}
    assert roots_of(lit(1)) == frozenset()


_numbers = some.none() | some.integers(-(2**63), 2**63 - 1) | some.floats(allow_nan=False, allow_infinity=False)


@given(_numbers, _numbers)
def test_arithmetic_of_any_numbers_gives_a_number_of_64_bits_or_none(one: Any, two: Any) -> None:
    for operator in ("+", "-", "*", "/", "//", "%"):
        try:
            found = evaluate(Expression(operator, lit(one), lit(two)), {})
        except OverflowError:
            pytest.fail(f"{one!r} {operator} {two!r}")
        assert found is None or isinstance(found, float) or -(2**63) <= found < 2**63
        assert found is None or (one is not None and two is not None)


@given(some.none() | some.booleans(), some.none() | some.booleans())
def test_and_and_or_know_three_values(one: bool | None, two: bool | None) -> None:
    both = evaluate(Expression("and", lit(one), lit(two)), {})
    either = evaluate(Expression("or", lit(one), lit(two)), {})
    order = {False: 0, None: 1, True: 2}
    assert both is min((one, two), key=lambda truth: order[truth])
    assert either is max((one, two), key=lambda truth: order[truth])
