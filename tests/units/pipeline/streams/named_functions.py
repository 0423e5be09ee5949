"""The functions that descriptions of topologies name. `StreamsJudge.java` has the same functions.

A predicate takes key and value. A function takes two arguments: key and value, two values, or an aggregate and a
value, depending on the step that names it. Null is None, and "null" in a text. Keys of windows are written as
key@start/end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[[Any, Any], Any]


def text(value: Any) -> str:
    """The text of a key or a value in Java's form."""
    if value is None:
        return "null"
    if hasattr(value, "window"):
        return f"{value.key}@{value.window.start}/{value.window.end}"
    return str(value)


def _size(value: str | None) -> int:
    return 0 if value is None else len(value)


def _first_letter(value: str | None) -> str | None:
    return value[0] if value else None


def _words(value: str) -> list[str]:
    """Splits as Java does: without empty parts at the end, unless the value is one part."""
    parts = value.split(" ")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts != [""] or not value else []


PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "value is there": lambda key, value: value is not None,
    "key is there": lambda key, value: key is not None,
    "key is not b": lambda key, value: key != "b",
    "long value": lambda key, value: _size(value) > 2,
    "odd length": lambda key, value: _size(value) % 2 == 1,
    "even number": lambda key, value: value is not None and value % 2 == 0,
    "above one": lambda key, value: value is not None and value > 1,
    "always": lambda key, value: True,
}

FUNCTIONS: dict[str, Function] = {
    # To a value.
    "upper": lambda key, value: None if value is None else value.upper(),
    "reverse": lambda key, value: None if value is None else value[::-1],
    "length": lambda key, value: None if value is None else len(value),
    "or none": lambda key, value: "none" if value is None else value,
    "null if even": lambda key, value: None if _size(value) % 2 == 0 else value,
    "text": lambda key, value: None if value is None else text(value),
    "plus one": lambda key, value: None if value is None else value + 1,
    "with key": lambda key, value: f"{text(key)}={text(value)}",
    # To a key.
    "key": lambda key, value: key,
    "value": lambda key, value: value,
    "first letter": lambda key, value: _first_letter(value),
    "topic by length": lambda key, value: "out-even" if _size(value) % 2 == 0 else "out-odd",
    "constant": lambda key, value: "all",
    "null key if even": lambda key, value: None if _size(value) % 2 == 0 else key,
    "window text": lambda key, value: text(key),
    # To a key and a value.
    "swap": lambda key, value: (value, key),
    "first letter and value": lambda key, value: (_first_letter(value), value),
    "key and length": lambda key, value: (key, None if value is None else len(value)),
    "constant and value": lambda key, value: ("all", value),
    "number and key": lambda key, value: (text(value), text(key)),
    # To several: of pairs, then of values.
    "letters": lambda key, value: [(letter, value) for letter in value or ""],
    "twice": lambda key, value: [(key, value), (key, None if value is None else f"{value}'")],
    "words": lambda key, value: [] if value is None else _words(value),
    "each letter": lambda key, value: [] if value is None else list(value) or [""],
    # Of two values.
    "pair": lambda one, other: f"({text(one)},{text(other)})",
    "null if same": lambda one, other: None if one is not None and one == other else f"({text(one)},{text(other)})",
    "append": lambda one, other: f"{text(one)}+{text(other)}",
    "cut": lambda one, other: f"{text(one)}-{text(other)}",
    "merge": lambda one, other: f"{text(one)}|{text(other)}",
    "newest": lambda one, other: other,
    "oldest": lambda one, other: one,
    "larger": lambda one, other: max(one, other),
    "null if longer than five": lambda one, other: (
        None if _size(one) + _size(other) > 5 else f"{text(one)}+{text(other)}"
    ),
    "add length": lambda one, other: one + _size(other),
    "cut length": lambda one, other: one - _size(other),
    "sum": lambda one, other: one + other,
    "difference": lambda one, other: one - other,
}
