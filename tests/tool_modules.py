"""The modules of our command line tools, by the names of the tools."""

from __future__ import annotations

from pathlib import Path

from jesenska import cli

_ROOM = Path(cli.__file__).parent


def module_of_tool(name: str) -> str:
    """The module of a tool such as `kafka-topics` or `kafka_topics`, whose `main` is the tool."""
    (file,) = _ROOM.rglob(f"{name.replace('-', '_')}.py")
    return ".".join(("jesenska", "cli", *file.relative_to(_ROOM).with_suffix("").parts))
