"""Evaluates column expressions over many records at once. The results are the same as those of `evaluate` in
dsl/expressions.py, which evaluates an expression for one record.

Arrow computes an operator if its result for the operands' types is the same as the result in Python. For all other
operands, the operator's Python function is called for each record. It is also called if Arrow raises an error, such as
for a result beyond 64 bits. For the following operators, Arrow is used only in the named case, since its results
differ in other cases:

    lower, upper        texts of ASCII only: Arrow has no special casing (ß, İ, final sigma)
    int with float      ints up to 2^53: Arrow rounds a larger int to a double first
    // and %            ints
    cast of text        plain digits: Arrow accepts other spellings of numbers than Python

Operands are evaluated for every record, even if `coalesce` needs an operand only for some records. If an operand
raises an error, the micro-batch cannot be processed on the columns path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jesenska.pipeline.streams.dsl import expressions
from jesenska.pipeline.streams.dsl.expressions import OPERATORS, Expression, roots_of
from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams_on_spark.columns.value_columns import (
    Column,
    Objects,
    WindowedKeys,
    from_values,
    taken,
    to_values,
    together,
)
from jesenska.pipeline.streams_on_spark.tasks.path_refusals import OtherWayError

_STRING, _BINARY, _LONG, _DOUBLE, _BOOL, _NULL = (
    pa.string(),
    pa.binary(),
    pa.int64(),
    pa.float64(),
    pa.bool_(),
    pa.null(),
)
#: Integers up to this value can be converted to doubles without loss.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is the same for all records."""

    value: Any


Operand: TypeAlias = "pa.Array | Objects | Constant"


def evaluate(expression: Expression, roots: Mapping[str, Column], count: int) -> Column:
    """Returns a column with the values of the expression for `count` records."""
    if expression.operator == "root":
        return roots[expression.operands[0]]
    if not count:
        return pa.nulls(0)
    return _column(_Evaluation(roots, count).of(expression), count)


def holds(expression: Expression, roots: Mapping[str, Column], count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns a boolean array: True for each record for which the expression is True. None counts as False."""
    found = evaluate(expression, roots, count)
    if isinstance(found, Objects):
        return np.fromiter((value is True for value in found.values), np.bool_, count)
    if not isinstance(found, pa.Array) or found.type != _BOOL:
        return np.zeros(count, np.bool_)
    return (found.fill_null(False) if found.null_count else found).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _column(operand: Operand, count: int) -> pa.Array | Objects:
    if not isinstance(operand, Constant):
        return operand
    one = from_values([operand.value])
    return Objects([operand.value] * count) if isinstance(one, Objects) else pa.repeat(one[0], count)


class _Evaluation:
    def __init__(self, roots: Mapping[str, Column], count: int) -> None:
        self._roots = roots
        self._count = count

    def of(self, expression: Expression) -> Operand:
        found = self._of(expression)
        return Constant(found.as_py()) if isinstance(found, pa.Scalar) else found

    def _of(self, expression: Expression) -> Any:
        operator, operands = expression.operator, expression.operands
        if operator == "root":
            found = self._roots[operands[0]]
            if isinstance(found, WindowedKeys):
                raise OtherWayError("an expression uses the key of a windowed table")
            return found
        if not roots_of(expression):
            return Constant(expressions.evaluate(expression, {}))
        match operator:
            case "struct":
                return self._struct(operands)
            case "field" | "cast":
                what = self.of(operands[0])
                return self._field(what, operands[1]) if operator == "field" else self._cast(what, operands[1])
            case "if_else":
                try:
                    return self._if_else(*(self.of(operand) for operand in operands))
                except (StreamsError, TypeError):
                    return self._if_else_apart(*operands)
            case "coalesce":
                return self._coalesce([self.of(operand) for operand in operands])
            case "and" | "or":
                return self._three_valued(operator, *(self.of(operand) for operand in operands))
        return self._computed(expression, [self.of(operand) for operand in operands])

    # Operators with a function in OPERATORS

    def _computed(self, expression: Expression, operands: list[Operand]) -> Any:
        operator = expression.operator
        if operator not in expressions._OF_NULLS and any(_is_null(operand) for operand in operands):
            return Constant(None)
        native = _NATIVE.get(operator)
        if native is not None:
            try:
                made = native(*operands)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                made = None
            if made is not None:
                return made
        of_nulls = expressions._OF_NULLS.get(operator)
        if of_nulls is not None:
            return self._each(of_nulls, operands)
        compute = OPERATORS[operator]
        return self._each(
            lambda *values: None if any(value is None for value in values) else compute(*values), operands
        )

    def _each(self, compute: Callable[..., Any], operands: Sequence[Operand]) -> Operand:
        """Computes the operator for each record, with a Python function."""
        columns = [
            [operand.value] * self._count if isinstance(operand, Constant) else to_values(operand)
            for operand in operands
        ]
        return from_values([compute(*values) for values in zip(*columns, strict=True)])

    # Operators with an implementation of their own

    def _struct(self, pairs: Sequence[tuple[str, Expression]]) -> Objects:
        names = [name for name, _ in pairs]
        columns = [to_values(_column(self.of(field), self._count)) for _, field in pairs]
        return Objects([dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)])

    def _field(self, container: Operand, name: str | int) -> Operand:
        return self._each(lambda one: expressions._field(one, name), [container])

    def _cast(self, what: Operand, type_name: str) -> Operand:
        made = None if isinstance(what, Objects | Constant) else _native_cast(what, type_name)
        return made if made is not None else self._each(lambda one: expressions._cast(one, type_name), [what])

    def _if_else(self, condition: Operand, then: Operand, otherwise: Operand) -> Any:
        chosen = _column(condition, self._count)
        if isinstance(chosen, pa.Array):
            if chosen.type != _BOOL:
                return otherwise
            kind = _one_kind([then, otherwise])
            if kind is not None:
                return pc.if_else(chosen.fill_null(False), _typed(then, kind), _typed(otherwise, kind))
        return self._each(lambda one, two, three: two if one is True else three, [chosen, then, otherwise])

    def _if_else_apart(self, condition: Expression, then: Expression, otherwise: Expression) -> Column:
        """Computes each branch of if_else only for the records that take it."""
        chosen = holds(condition, self._roots, self._count)
        parts, places = [], []
        for branch, mask in ((then, chosen), (otherwise, ~chosen)):
            place = np.flatnonzero(mask)
            parts.append(
                evaluate(branch, {name: taken(column, place) for name, column in self._roots.items()}, len(place))
            )
            places.append(place)
        back = np.empty(self._count, np.int64)
        back[np.concatenate(places)] = np.arange(self._count)
        return taken(together(parts), back)

    def _coalesce(self, choices: list[Operand]) -> Any:
        kind = _one_kind(choices)
        if kind is not None:
            return pc.coalesce(*(_typed(choice, kind) for choice in choices))
        return self._each(lambda *values: next((value for value in values if value is not None), None), choices)

    def _three_valued(self, operator: str, one: Operand, two: Operand) -> Any:
        if all(_kind(operand) in (_BOOL, _NULL) for operand in (one, two)):
            combine = pc.and_kleene if operator == "and" else pc.or_kleene
            return combine(_typed(one, _BOOL), _typed(two, _BOOL))
        return self._each(lambda left, right: expressions._three_valued(operator, left, right), [one, two])


# --- types -----------------------------------------------------------------------------------------------------------


def _kind(operand: Operand) -> pa.DataType | None:
    """Returns the Arrow type of an operand. Returns None if its values have no common Arrow type."""
    if isinstance(operand, Objects):
        return None
    if isinstance(operand, Constant):
        one = from_values([operand.value])
        return None if isinstance(one, Objects) else one.type
    return operand.type


def _is_null(operand: Operand) -> bool:
    """Returns True if all values of the operand are None."""
    return bool(_kind(operand) == _NULL)


def _typed(operand: Operand, kind: pa.DataType) -> Any:
    if isinstance(operand, Constant):
        return pa.scalar(operand.value, kind)
    array: Any = operand
    return array if array.type == kind else array.cast(kind)


def _one_kind(operands: Sequence[Operand]) -> pa.DataType | None:
    """Returns the common type of the operands, ignoring operands that are always None."""
    kinds = [_kind(operand) for operand in operands]
    named = {kind for kind in kinds if kind != _NULL}
    if len(named) != 1 or all(isinstance(operand, Constant) for operand in operands):
        return None
    return named.pop()


def _plain(operand: Operand) -> Any:
    """Returns the operand in the form that Arrow's functions accept."""
    return pa.scalar(operand.value) if isinstance(operand, Constant) else operand


def _double(operand: Operand) -> Any:
    """Returns the operand as doubles. Returns None if an int would lose precision."""
    if _kind(operand) == _DOUBLE:
        return _plain(operand)
    if isinstance(operand, Constant):
        return pa.scalar(float(operand.value)) if -_EXACT <= operand.value <= _EXACT else None
    bounds = pc.min_max(operand)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is not None and (least < -_EXACT or most > _EXACT):
        return None
    return operand.cast(_DOUBLE)  # type: ignore[union-attr]


def _as_doubles(one: Operand, two: Operand) -> tuple[Any, Any] | None:
    first, second = _double(one), _double(two)
    return None if first is None or second is None else (first, second)


# --- operators of Arrow ----------------------------------------------------------------------------------------------

Native = Callable[..., Any]
"""Gives the column; None where it is not the one for these types."""

_NUMBERS = (_LONG, _DOUBLE)


def _arithmetic(checked: Native) -> Native:
    """Returns an implementation of an arithmetic operator. It calls `checked` for two ints, and for doubles if the
    result equals Python's."""

    def compute(one: Operand, two: Operand) -> Any:
        kinds = _kind(one), _kind(two)
        if kinds == (_LONG, _LONG):
            return checked(_plain(one), _plain(two))
        if all(kind in _NUMBERS for kind in kinds):
            doubles = _as_doubles(one, two)
            return None if doubles is None else checked(*doubles)
        return None

    return compute


def _without_zeros(divisor: Any) -> Any:
    if isinstance(divisor, pa.Scalar):
        return pa.scalar(None, divisor.type) if divisor.as_py() == 0 else divisor
    return pc.if_else(pc.equal(divisor, pa.scalar(0, divisor.type)), pa.scalar(None, divisor.type), divisor)


def _divided(one: Operand, two: Operand) -> Any:
    if not all(_kind(operand) in _NUMBERS for operand in (one, two)):
        return None
    doubles = _as_doubles(one, two)
    return None if doubles is None else pc.divide(doubles[0], _without_zeros(doubles[1]))


def _rounded_down(compute: Any) -> Native:
    """Returns an implementation of `//` or `%` for ints. It calls numpy, whose results equal Python's."""

    def of_ints(one: Operand, two: Operand) -> Any:
        if _kind(one) != _LONG or _kind(two) != _LONG:
            return None
        divisor = _without_zeros(_plain(two))
        if isinstance(divisor, pa.Scalar):
            by: Any = divisor.as_py()
            if by is None:
                return Constant(None)
            missing = None
        else:
            missing = divisor.is_null().to_numpy(zero_copy_only=False) if divisor.null_count else None
            by = divisor.fill_null(1).to_numpy()
        if isinstance(one, Constant):
            numbers: Any = one.value
        else:
            assert isinstance(one, pa.Array)
            if one.null_count:
                nulls = one.is_null().to_numpy(zero_copy_only=False)
                missing = nulls if missing is None else missing | nulls
            numbers = one.fill_null(0).to_numpy()
        if np.any(np.equal(numbers, -(2**63))) and np.any(np.equal(by, -1)):
            return None
        return pa.array(compute(numbers, by), _LONG, mask=missing)

    return of_ints


def _compared(compare: Native) -> Native:
    """Returns the implementation of a comparison of two numbers, two strings or two bytes."""

    def compute(one: Operand, two: Operand) -> Any:
        kinds = _kind(one), _kind(two)
        if kinds[0] == kinds[1] and kinds[0] in (_LONG, _DOUBLE, _STRING, _BINARY):
            return compare(_plain(one), _plain(two))
        if all(kind in _NUMBERS for kind in kinds):
            doubles = _as_doubles(one, two)
            return None if doubles is None else compare(*doubles)
        return None

    return compute


def _equal(one: Operand, two: Operand) -> Any:
    kinds = _kind(one), _kind(two)
    if None in kinds:
        return None
    if kinds[0] == kinds[1] == _BOOL:
        return pc.equal(_plain(one), _plain(two))
    found = _compared(pc.equal)(one, two)
    if (
        found is not None
        or any(kind not in (_LONG, _DOUBLE, _STRING, _BINARY, _BOOL) for kind in kinds)
        or all(kind in _NUMBERS for kind in kinds)
    ):
        return found
    # Values of different types are not equal. The result is null if a value is null.
    there = pc.and_(*(pc.is_valid(_plain(operand)) for operand in (one, two)))
    return pc.if_else(there, pa.scalar(False), pa.scalar(None, _BOOL))


def _unequal(one: Operand, two: Operand) -> Any:
    found = _equal(one, two)
    return None if found is None else pc.invert(found)


def _equal_null_safe(one: Operand, two: Operand) -> Any:
    if _kind(one) is None or _kind(two) is None:
        return None
    missing = [pc.is_null(_plain(operand)) for operand in (one, two)]
    if _is_null(one) or _is_null(two):
        return pc.and_(*missing)
    same = _equal(one, two)
    return None if same is None else pc.or_(pc.fill_null(same, False), pc.and_(*missing))


def _in(one: Operand, *others: Operand) -> Any:
    if isinstance(one, Constant | Objects) or not others:
        return None
    found = None
    for other in others:
        is_it = pa.scalar(None, _BOOL) if _is_null(other) or _is_null(one) else _equal(one, other)
        if is_it is None:
            return None
        found = is_it if found is None else pc.or_kleene(found, is_it)
    return found


def _is(check: Native) -> Native:
    return lambda operand: None if isinstance(operand, Objects | Constant) else check(operand)


def _of(kind: pa.DataType, compute: Native) -> Native:
    return lambda operand: compute(operand) if _kind(operand) == kind and isinstance(operand, pa.Array) else None


def _of_numbers(compute: Native) -> Native:
    return lambda operand: compute(operand) if _kind(operand) in _NUMBERS and isinstance(operand, pa.Array) else None


def _in_ascii(compute: Native) -> Native:
    """Returns an implementation of a text operator that calls `compute`. It is used only for texts that contain only
    ASCII."""
    return _of(_STRING, lambda texts: compute(texts) if _is_ascii(texts) else None)


def _is_ascii(texts: pa.Array) -> bool:
    data = texts.buffers()[2]
    if data is None or not len(texts):
        return True
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    return bytes(data[int(offsets[texts.offset]) : int(offsets[texts.offset + len(texts)])]).isascii()


def _length(operand: Operand) -> Any:
    if not isinstance(operand, pa.Array):
        return None
    if operand.type == _STRING:
        lengths = pc.utf8_length(operand)
    elif operand.type == _BINARY:
        lengths = pc.binary_length(operand)
    elif pa.types.is_list(operand.type):
        lengths = pc.list_value_length(operand)
    else:
        return None
    return lengths.cast(_LONG)


def _with_text(compute: Callable[..., Any]) -> Native:
    """Returns an implementation of a text operator that calls `compute`. It is used for a column of texts and constant
    texts."""

    def native(texts: Operand, *constants: Operand) -> Any:
        if _kind(texts) != _STRING or not isinstance(texts, pa.Array):
            return None
        if not all(isinstance(constant, Constant) and isinstance(constant.value, str) for constant in constants):
            return None
        return compute(texts, *(constant.value for constant in constants if isinstance(constant, Constant)))

    return native


def _substring(texts: Operand, start: Operand, length: Operand) -> Any:
    if (
        _kind(texts) != _STRING
        or not isinstance(texts, pa.Array)
        or not isinstance(start, Constant)
        or not isinstance(length, Constant)
    ):
        return None
    return pc.utf8_slice_codeunits(texts, start.value, start.value + length.value)


def _concat(*parts: Operand) -> Any:
    if not all(_kind(part) == _STRING for part in parts):
        return None
    return pc.binary_join_element_wise(*map(_plain, parts), pa.scalar("", _STRING))


_NATIVE: dict[str, Native] = {
    "==": _equal,
    "!=": _unequal,
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "<=>": _equal_null_safe,
    "in": _in,
    "is_null": _is(lambda column: pc.is_null(column)),
    "is_not_null": _is(lambda column: pc.is_valid(column)),
    "not": _of(_BOOL, pc.invert),
    "+": _arithmetic(pc.add_checked),
    "-": _arithmetic(pc.subtract_checked),
    "*": _arithmetic(pc.multiply_checked),
    "/": _divided,
    "//": _rounded_down(np.floor_divide),
    "%": _rounded_down(np.mod),
    "negative": _of_numbers(pc.negate_checked),
    "abs": _of_numbers(pc.abs_checked),
    "lower": _in_ascii(pc.ascii_lower),
    "upper": _in_ascii(pc.ascii_upper),
    "strip": _of(_STRING, lambda texts: pc.utf8_trim(texts, " ")),
    "length": _length,
    "startswith": _with_text(lambda texts, prefix: pc.starts_with(texts, prefix)),
    "endswith": _with_text(lambda texts, suffix: pc.ends_with(texts, suffix)),
    "contains": _with_text(lambda texts, part: pc.match_substring(texts, part)),
    "substring": _substring,
    "replace": _with_text(lambda texts, old, new: pc.replace_substring(texts, old, new) if old else texts),
    "split": _with_text(lambda texts, separator: pc.split_pattern(texts, separator)),
    "concat": _concat,
}


def _native_cast(what: pa.Array, type_name: str) -> pa.Array | None:
    kind = what.type
    if kind == _NULL:
        return what
    match type_name:
        case "string":
            if kind == _STRING:
                return what
            if kind in (_LONG, _BOOL):
                return what.cast(_STRING)
        case "bytes":
            if kind in (_STRING, _BINARY):
                return what.cast(_BINARY)
        case "boolean":
            if kind == _BOOL:
                return what
        case "long":
            if kind == _LONG:
                return what
            if kind == _STRING and pc.all(pc.match_substring_regex(what, r"\A-?[0-9]{1,18}\z")).as_py():
                return what.cast(_LONG)
        case "double":
            if kind == _DOUBLE:
                return what
            if kind == _LONG:
                return what.cast(_DOUBLE, safe=False)
            if kind == _STRING and pc.all(pc.match_substring_regex(what, r"\A-?[0-9]{1,15}(\.[0-9]{1,15})?\z")).as_py():
                return what.cast(_DOUBLE)
    return None
