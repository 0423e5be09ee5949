"""Draws the rooms of the package and their imports: `python -m tests.docs.rooms docs/architecture.md` writes the
drawing between the markers of the page.

A room is a directory of `src/jesenska`. Its floor is one above the highest floor of the rooms that it imports, so a
room without imports of other rooms is on floor 0."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "jesenska"
BEGIN, END = "<!-- script/rooms-doc writes this: begin -->", "<!-- script/rooms-doc writes this: end -->"
_WIDTH = 48


def imports_of_rooms(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Returns the rooms that each room imports, at the top of a module or within a function."""
    found: dict[str, set[str]] = {path.parent.name: set() for path in package.glob("*/__init__.py")}
    for room, others in found.items():
        for path in (package / room).rglob("*.py"):
            others.update(_rooms_named(path.read_text(), package.name) & (found.keys() - {room}))
    return found


def _rooms_named(source: str, package: str) -> set[str]:
    """Returns the names directly below the package that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            names = [f"{package}.{item.name}" for item in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == package and len(parts) > 1:
                found.add(parts[1])
    return found


def floors(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the rooms of each floor, the lowest first. Refuses imports that go in a circle."""
    found: list[list[str]] = []
    below: set[str] = set()
    while len(below) < len(imports):
        floor = sorted(room for room, others in imports.items() if room not in below and others <= below)
        if not floor:
            raise ValueError(f"the rooms {sorted(set(imports) - below)} import each other")
        found.append(floor)
        below.update(floor)
    return found


def drawing(imports: Mapping[str, set[str]]) -> str:
    """Returns the floors as boxes, the highest first, and then a table of the imports."""
    levels = floors(imports)
    line = f"          +{'-' * _WIDTH}+"
    lines = [line]
    for number, level in reversed(list(enumerate(levels))):
        lines += [f"  floor {number} |  {'    '.join(level):<{_WIDTH - 2}}|", line]
    order = [room for level in reversed(levels) for room in level]
    width = max(len(room) for room in order) + 2
    lines += ["", "  imports (a row imports the columns with an x)", ""]
    for number, room in enumerate(order):
        marks = " ".join("x" if other in imports[room] else "." for other in order[:number])
        later = " ".join("x" if other in imports[room] else "." for other in order[number + 1 :])
        lines.append(f"  {chr(ord('a') + number)} {room:<{width}}{' '.join(filter(None, (marks, '#', later)))}")
    letters = " ".join(chr(ord("a") + number) for number in range(len(order)))
    return "\n".join([*lines, f"    {'':<{width}}{letters}"])


def page(text: str, imports: Mapping[str, set[str]]) -> str:
    """Returns the text of a page with the present drawing between the markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no markers for the drawing")
    return f"{before}{begin}\n\n```text\n{drawing(imports)}\n```\n\n{end}{after}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(page(target.read_text(encoding="utf-8"), imports_of_rooms()), encoding="utf-8")
