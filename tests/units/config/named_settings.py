"""Finds the places that name settings: code that reads them, and tests of their effects. Both are found in the syntax
tree, so a comment, a docstring or a table that lists a name does not count.

A name is read if it is the argument of a call (`config.integer("num.partitions")`) or an index (`settings["acks"]`):
as a literal, as a constant of its module, or as an f-string whose parts are such constants. A set of names, or the
value in a table of flags, is not a read.

A test names a setting in a literal (alone, or as `name=value`) or as a keyword in which underscores stand for the
dots."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

#: A part of a name between two dots whose value an f-string takes from elsewhere.
_ANY_PART = "[^.]+"
_WORD = re.compile(r"[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)*")


class NamesRead:
    """The names that these sources read."""

    def __init__(self, sources: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._patterns: set[str] = set()
        for source in sources:
            self._take(ast.parse(source))

    def __contains__(self, name: str) -> bool:
        return name in self._names or any(re.fullmatch(pattern, name) for pattern in self._patterns)

    def _take(self, tree: ast.Module) -> None:
        constants = dict(_constants(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                    self._take_expression(argument, constants)
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                self._take_expression(node.slice, constants)

    def _take_expression(self, node: ast.expr, constants: dict[str, set[str]]) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._names.add(node.value)
        elif isinstance(node, ast.Name):
            self._names |= constants.get(node.id, set())
        # A text without a fixed part of a name could be any name.
        elif isinstance(node, ast.JoinedStr) and any(
            isinstance(part, ast.Constant) and "." in str(part.value) for part in node.values
        ):
            self._patterns.add("".join(_pattern(part, constants) for part in node.values))


def _pattern(part: ast.expr, constants: dict[str, set[str]]) -> str:
    if isinstance(part, ast.Constant):
        return re.escape(str(part.value))
    if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id in constants:
        return f"(?:{'|'.join(re.escape(value) for value in sorted(constants[part.value.id]))})"
    return _ANY_PART


def _constants(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The variables that are assigned literals, each with all its literals."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for variable, value in pairs:
                if isinstance(variable, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.setdefault(variable.id, set()).add(value.value)
    yield from found.items()


def names_in_tests(sources: Iterable[str]) -> set[str]:
    """Every word that may be a setting's name in these sources of tests."""
    found: set[str] = set()
    for source in sources:
        tree = ast.parse(source)
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in documentation and isinstance(node.value, str | bytes):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                found.update(word.removeprefix("kafka.") for word in _WORD.findall(text))
                found.update(_WORD.findall(text))
            elif isinstance(node, ast.keyword) and node.arg is not None:
                found.add(node.arg.replace("_", "."))
    return found


def sources_below(*places: Path) -> list[str]:
    """The sources in these directories, and these files."""
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    return [file.read_text(encoding="utf-8") for file in files]
