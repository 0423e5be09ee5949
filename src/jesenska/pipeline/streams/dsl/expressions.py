"""Column expressions over a record: `value["amount"] > 10`, `key.upper()`, `struct(user=key, total=value["n"] * 2)`.

The test driver evaluates an expression in Python (`evaluate`). On Spark it becomes a column with the same meaning,
which runs without Python. The names that an expression may use are called roots:

    key, value     the key and value of the record, or of the table's entry
    left, right    the two values of a join (of this side and of the other), or the two aggregates of a session merger
    aggregate      the aggregate so far

The rules are chosen so that Spark can compute them natively and a Python programmer is not surprised:

- An operator or a function with None (null) among its operands returns None. The exceptions are `is_null`,
  `is_not_null`, `equal_null_safe`, `coalesce`, `if_else`, `struct` and `array`. `&` and `|` are also exceptions:
  `False & None` is False, and `True | None` is True.
- As a predicate (filter, branch, if_else), None counts as False.
- A missing field, or an index outside the list, gives None.
- Integers have 64 bits: a result beyond them is None. `/` gives a double. A divisor of zero gives None. `//` rounds
  down and `%` has the divisor's sign, as in Python.
- Arithmetic takes numbers only. `<`, `<=`, `>` and `>=` take two numbers, two strings, two bytes or two booleans.
  Other operands are an error: use `cast` and `concat`. If two values have different types, `==` is False and `!=` is
  True. Strings are compared by code points.
- `cast` gives None for a value that it cannot read. A double that is cast to an integer loses its fraction.
- `round` rounds halves away from zero.
- Positions count from 0, as in Python.

`and`, `or`, `not` and `a < b < c` cannot be written with expressions (Python asks for a bool at once): use `&`, `|`,
`~`, with parentheses around comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from jesenska.pipeline.streams.errors import StreamsError
from jesenska.pipeline.streams.locations import refused

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
_ROOTS = ("key", "value", "left", "right", "aggregate")
_CASTS = ("string", "bytes", "boolean", "int", "long", "double")


class Expression:
    """A node of an expression: an operator and its operands.

    operator   operands
    "root"     the name of a root
    "literal"  the value
    "field"    an expression and a name or position
    "struct"   pairs of a name and an expression
    "cast"     an expression and the name of a type
    any other  expressions; the operator's function is in `OPERATORS`
    """

    __slots__ = ("operands", "operator")

    def __init__(self, operator: str, *operands: Any) -> None:
        self.operator = operator
        self.operands = operands

    # Comparison
    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("==", self, of(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Expression("!=", self, of(other))

    def __lt__(self, other: Any) -> Expression:
        return Expression("<", self, of(other))

    def __le__(self, other: Any) -> Expression:
        return Expression("<=", self, of(other))

    def __gt__(self, other: Any) -> Expression:
        return Expression(">", self, of(other))

    def __ge__(self, other: Any) -> Expression:
        return Expression(">=", self, of(other))

    def equal_null_safe(self, other: Any) -> Expression:
        """Compares like `==`, but None equals None (True), and None does not equal any other value (False)."""
        return Expression("<=>", self, of(other))

    def is_in(self, *values: Any) -> Expression:
        """Returns True if this expression equals one of the values."""
        return Expression("in", self, *map(of, values))

    def between(self, lowest: Any, highest: Any) -> Expression:
        return Expression("and", self >= lowest, self <= highest)

    def is_null(self) -> Expression:
        return Expression("is_null", self)

    def is_not_null(self) -> Expression:
        return Expression("is_not_null", self)

    # Booleans
    def __and__(self, other: Any) -> Expression:
        return Expression("and", self, of(other))

    def __rand__(self, other: Any) -> Expression:
        return Expression("and", of(other), self)

    def __or__(self, other: Any) -> Expression:
        return Expression("or", self, of(other))

    def __ror__(self, other: Any) -> Expression:
        return Expression("or", of(other), self)

    def __invert__(self) -> Expression:
        return Expression("not", self)

    # Arithmetic
    def __add__(self, other: Any) -> Expression:
        return Expression("+", self, of(other))

    def __radd__(self, other: Any) -> Expression:
        return Expression("+", of(other), self)

    def __sub__(self, other: Any) -> Expression:
        return Expression("-", self, of(other))

    def __rsub__(self, other: Any) -> Expression:
        return Expression("-", of(other), self)

    def __mul__(self, other: Any) -> Expression:
        return Expression("*", self, of(other))

    def __rmul__(self, other: Any) -> Expression:
        return Expression("*", of(other), self)

    def __truediv__(self, other: Any) -> Expression:
        return Expression("/", self, of(other))

    def __rtruediv__(self, other: Any) -> Expression:
        return Expression("/", of(other), self)

    def __floordiv__(self, other: Any) -> Expression:
        return Expression("//", self, of(other))

    def __rfloordiv__(self, other: Any) -> Expression:
        return Expression("//", of(other), self)

    def __mod__(self, other: Any) -> Expression:
        return Expression("%", self, of(other))

    def __rmod__(self, other: Any) -> Expression:
        return Expression("%", of(other), self)

    def __neg__(self) -> Expression:
        return Expression("negative", self)

    def abs(self) -> Expression:
        return Expression("abs", self)

    def round(self, digits: int = 0) -> Expression:
        return Expression("round", self, of(digits))

    # Fields
    def __getitem__(self, name: str | int) -> Expression:
        """Returns a field of a struct by its name, or an element of a list by its position."""
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise refused(f"{name!r} is neither the name of a field nor a position: write value['name'] or value[0].")
        return Expression("field", self, name)

    def __iter__(self) -> NoReturn:
        raise refused(f"{self} is an expression, which cannot be iterated: use a Python function instead.")

    # Strings
    def lower(self) -> Expression:
        return Expression("lower", self)

    def upper(self) -> Expression:
        return Expression("upper", self)

    def strip(self) -> Expression:
        """Returns the string without spaces (U+0020) at both ends."""
        return Expression("strip", self)

    def length(self) -> Expression:
        """Returns the length: the characters of a string, the bytes of bytes, or the elements of a list."""
        return Expression("length", self)

    def startswith(self, prefix: Any) -> Expression:
        return Expression("startswith", self, of(prefix))

    def endswith(self, suffix: Any) -> Expression:
        return Expression("endswith", self, of(suffix))

    def contains(self, part: Any) -> Expression:
        """Returns True if the string contains the string `part`."""
        return Expression("contains", self, of(part))

    def substring(self, start: int, length: int) -> Expression:
        """Returns at most `length` characters from position `start`, which counts from 0."""
        if start < 0 or length < 0:
            raise refused(
                "substring takes a start and a length of at least 0: give the position from the beginning of the "
                "string."
            )
        return Expression("substring", self, of(start), of(length))

    def replace(self, old: Any, new: Any) -> Expression:
        return Expression("replace", self, of(old), of(new))

    def split(self, separator: str) -> Expression:
        """Returns a list of the parts between separators. The separator is plain text, not a pattern, and must not be
        empty."""
        if not isinstance(separator, str) or not separator:
            raise refused("split takes a separator of at least one character: write value.split(' ').")
        return Expression("split", self, of(separator))

    # Types
    def cast(self, type_name: str) -> Expression:
        """Converts the value to string, bytes, boolean, int, long or double."""
        if type_name not in _CASTS:
            raise refused(f"{type_name!r} is not a type that cast knows: use one of {', '.join(_CASTS)}.")
        return Expression("cast", self, type_name)

    def __bool__(self) -> NoReturn:
        raise refused(
            f"{self} is an expression and has no truth value yet: write & for and, | for or, ~ for not, with "
            "parentheses around comparisons."
        )

    def __len__(self) -> NoReturn:
        raise refused(f"{self} is an expression and has no length yet: write {self}.length().")

    def __contains__(self, part: Any) -> NoReturn:
        raise refused(f"{self} is an expression, which the operator in cannot search: write {self}.contains(…).")

    # Hidden from type checkers, so that they still report unknown names.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_") or name in Expression.__slots__:
                raise AttributeError(f"'Expression' object has no attribute {name!r}", name=name, obj=self)
            raise AttributeError(f"an expression has no {name}: a field is written {self}[{name!r}].", name=name)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        match self.operator, self.operands:
            case "root", (name,):
                return str(name)
            case "literal", (value_,):
                return repr(value_)
            case "field", (of_what, name):
                return f"{of_what}[{name!r}]"
            case "struct", pairs:
                return f"struct({', '.join(f'{name}={operand}' for name, operand in pairs)})"
            case "cast", (what, type_name):
                return f"{what}.cast({type_name!r})"
            case operator, (one, two) if not operator[0].isalpha():
                return f"({one} {operator} {two})"
            case operator, operands:
                return f"{operator}({', '.join(map(str, operands))})"


def of(thing: Any) -> Expression:
    """Returns `thing` as an expression. An expression is returned unchanged. A dict becomes a struct, a list or tuple
    an array, and any other value a literal."""
    if isinstance(thing, Expression):
        return thing
    if thing is None or isinstance(thing, bool | int | float | str | bytes):
        return Expression("literal", thing)
    if isinstance(thing, Mapping):
        return struct(**thing)
    if isinstance(thing, list | tuple):
        return array(*thing)
    raise refused(
        f"{thing!r} cannot stand in an expression: use None, a bool, a number, a string, bytes, or a Python function "
        f"instead."
    )


key, value, left, right, aggregate = (Expression("root", name) for name in _ROOTS)


def lit(constant: Any) -> Expression:
    """Returns an expression with a constant value."""
    return of(constant)


def struct(**fields: Any) -> Expression:
    """Returns a struct (a dict in Python) of named fields."""
    return Expression("struct", *((name, of(field)) for name, field in fields.items()))


def array(*elements: Any) -> Expression:
    return Expression("array", *map(of, elements))


def concat(*parts: Any) -> Expression:
    """Returns one string: the strings of `parts` in order. Returns None if one of the strings is None."""
    return Expression("concat", *map(of, parts))


def coalesce(*choices: Any) -> Expression:
    """Returns the first choice that is not None."""
    return Expression("coalesce", *map(of, choices))


def if_else(condition: Any, then: Any, otherwise: Any = None) -> Expression:
    """Returns `then` if the condition is True, and `otherwise` if it is False or None."""
    return Expression("if_else", of(condition), of(then), of(otherwise))


def roots_of(expression: Expression) -> frozenset[str]:
    """Returns the names of the roots that an expression uses."""
    if expression.operator == "root":
        return frozenset(expression.operands)
    parts: Iterable[Any] = expression.operands
    if expression.operator == "struct":
        parts = (field for _, field in expression.operands)
    return frozenset().union(*(roots_of(part) for part in parts if isinstance(part, Expression)))


def evaluate(expression: Expression, roots: Mapping[str, Any]) -> Any:
    """Returns the value of the expression, computed with the given values of its roots."""
    operator, operands = expression.operator, expression.operands
    match operator:
        case "root":
            return roots[operands[0]]
        case "literal":
            return operands[0]
        case "struct":
            return {name: evaluate(field, roots) for name, field in operands}
        case "field":
            return _field(evaluate(operands[0], roots), operands[1])
        case "cast":
            return _cast(evaluate(operands[0], roots), operands[1])
        case "if_else":
            return evaluate(operands[1] if evaluate(operands[0], roots) is True else operands[2], roots)
        case "coalesce":
            return next((found for operand in operands if (found := evaluate(operand, roots)) is not None), None)
        case "and" | "or":
            return _three_valued(operator, *(evaluate(operand, roots) for operand in operands))
    values = [evaluate(operand, roots) for operand in operands]
    if operator in _OF_NULLS:
        return _OF_NULLS[operator](*values)
    if any(value is None for value in values):
        return None
    try:
        return OPERATORS[operator](*values)
    except TypeError as error:
        raise StreamsError(
            f"{expression} cannot be computed of {', '.join(map(repr, values))} ({error}): cast the operands to "
            f"types that fit."
        ) from error


def _three_valued(operator: str, *operands: Any) -> bool | None:
    for operand in operands:
        if operand is not None and not isinstance(operand, bool):
            raise StreamsError(
                f"{operand!r} is not a boolean: & and | take booleans, such as comparisons in parentheses."
            )
    decisive: bool = operator == "or"
    if any(operand is decisive for operand in operands):
        return decisive
    return None if any(operand is None for operand in operands) else not decisive


def _field(container: Any, name: str | int) -> Any:
    if container is None:
        return None
    if isinstance(name, int):
        if not isinstance(container, list | tuple):
            raise StreamsError(f"{container!r} is not a list, so it has no element {name}: check what the serde gives.")
        return container[name] if 0 <= name < len(container) else None
    if isinstance(container, Mapping):
        return container.get(name)
    if hasattr(type(container), "DESCRIPTOR"):  # a Protobuf message
        return getattr(container, name, None)
    if (fields := getattr(type(container), "__dataclass_fields__", None)) is not None:
        return getattr(container, name) if name in fields else None
    raise StreamsError(
        f"{container!r} has no fields, so {name!r} is not in it: read the value with Serdes.json(), dataclass, avro "
        f"or protobuf."
    )


def _cast(what: Any, type_name: str) -> Any:
    if what is None:
        return None
    match type_name:
        case "string":
            if isinstance(what, bytes):
                return what.decode("utf-8", "replace")
            return str(what).lower() if isinstance(what, bool) else str(what)
        case "bytes":
            return what if isinstance(what, bytes) else str(what).encode()
        case "boolean":
            if isinstance(what, str):
                return {
                    "true": True,
                    "t": True,
                    "yes": True,
                    "y": True,
                    "1": True,
                    "false": False,
                    "f": False,
                    "no": False,
                    "n": False,
                    "0": False,
                }.get(what.strip().lower())
            return bool(what)
    try:
        number = float(what) if type_name == "double" else _integer(what)
    except (ValueError, OverflowError, TypeError):
        return None
    if isinstance(number, float):
        return number
    bits = 31 if type_name == "int" else 63
    return number if -(1 << bits) <= number < 1 << bits else None


def _integer(what: Any) -> int:
    if isinstance(what, str):
        text = what.strip()
        return int(text) if text.lstrip("+-").isdigit() else int(float(text))
    return int(what)


def _number(of_what: Any) -> Any:
    if isinstance(of_what, bool) or not isinstance(of_what, int | float):
        raise TypeError(f"{of_what!r} is not a number" + ("; concat joins strings" if isinstance(of_what, str) else ""))
    return of_what


def _text(of_what: Any) -> str:
    if not isinstance(of_what, str):
        raise TypeError(f"{of_what!r} is not a string")
    return of_what


def _bounded(number: Any) -> Any:
    return number if isinstance(number, float) or LONG_MIN <= number <= LONG_MAX else None


def _arithmetic(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, two: _bounded(compute(_number(one), _number(two)))


def _divided(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, two: None if _number(two) == 0 else _bounded(compute(_number(one), two))


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def compared(one: Any, two: Any) -> bool:
        for kinds in (bool, (int, float), str, bytes):
            if isinstance(one, kinds):
                if not isinstance(two, kinds) or isinstance(two, bool) is not isinstance(one, bool):
                    break
                return compare(one, two)
        raise TypeError(f"{one!r} and {two!r} have no order")

    return compared


def _equal(one: Any, two: Any) -> bool:
    return bool(isinstance(one, bool) is isinstance(two, bool) and one == two)


def _rounded(number: Any, digits: int) -> Any:
    if (
        (isinstance(_number(number), int) and digits >= 0)
        or not math.isfinite(number)
        or abs(number) * 10.0**digits >= 2**52
    ):
        return number
    factor = 10.0**digits
    scaled = abs(number) * factor
    rounded = math.copysign(math.floor(scaled + 0.5), number) / factor
    return int(rounded) if isinstance(number, int) else rounded


def _length(of_what: Any) -> int:
    if not isinstance(of_what, str | bytes | list | tuple):
        raise TypeError(f"{of_what!r} has no length")
    return len(of_what)


def _not(boolean: Any) -> bool:
    if not isinstance(boolean, bool):
        raise TypeError(f"{boolean!r} is not a boolean")
    return not boolean


_OF_NULLS: dict[str, Callable[..., Any]] = {
    "is_null": lambda one: one is None,
    "is_not_null": lambda one: one is not None,
    "<=>": lambda one, two: (one is None) is (two is None) and (one is None or _equal(one, two)),
    "array": lambda *elements: list(elements),
    "in": lambda one, *others: (
        None
        if one is None
        else True
        if any(_equal(one, other) for other in others)
        else None
        if None in others
        else False
    ),
}

#: The function of each operator. It is called only if no operand is None.
OPERATORS: dict[str, Callable[..., Any]] = {
    "==": _equal,
    "!=": lambda one, two: not _equal(one, two),
    "<": _ordered(lambda one, two: one < two),
    "<=": _ordered(lambda one, two: one <= two),
    ">": _ordered(lambda one, two: one > two),
    ">=": _ordered(lambda one, two: one >= two),
    "not": _not,
    "+": _arithmetic(lambda one, two: one + two),
    "-": _arithmetic(lambda one, two: one - two),
    "*": _arithmetic(lambda one, two: one * two),
    "/": _divided(lambda one, two: one / two),
    "//": _divided(lambda one, two: one // two),
    "%": _divided(lambda one, two: one % two),
    "negative": lambda one: _bounded(-_number(one)),
    "abs": lambda one: _bounded(abs(_number(one))),
    "round": _rounded,
    "lower": lambda text: _text(text).lower(),
    "upper": lambda text: _text(text).upper(),
    "strip": lambda text: _text(text).strip(" "),
    "length": _length,
    "startswith": lambda text, prefix: _text(text).startswith(_text(prefix)),
    "endswith": lambda text, suffix: _text(text).endswith(_text(suffix)),
    "contains": lambda text, part: _text(part) in _text(text),
    "substring": lambda text, start, length: _text(text)[start : start + length],
    "replace": lambda text, old, new: _text(text).replace(_text(old), _text(new)) if old else text,
    "split": lambda text, separator: _text(text).split(separator),
    "concat": lambda *parts: "".join(map(_text, parts)),
}
