"""How a test and a client in a process of its own talk: JSON, a line each, the same for the clients in Python, Go and
Node.

In, one line:  {"bootstrap": "host:port", "options": {...}, "write": [[topic, codec, [row, ...]], ...], "read":
               [[topic, count], ...]} row: [key, value, timestamp_ms, [[name, value], ...]]; bytes in base64, null
               where there is none
Out:           {"written": topic, "error": null or text}   and   {"read": topic, "rows": [row, ...], "error": null or
                                                                 text}

A member of a group:
In:            {"bootstrap": "host:port", "options": {...}, "group": name, "topic": name}; another line asks it to
               commit what it has read, the end to leave
Out:           the value of each record, a line each

This runs in the interpreter and with the packages of the client: nothing but the standard library here.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

READ_SECONDS = 30.0


class Row(NamedTuple):
    """A record as a client gives or takes it; None for what it does not show."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    headers: list[tuple[str, bytes]] | None = None


def as_json(row: Row) -> list[Any]:
    headers = None if row.headers is None else [[name, _text(value)] for name, value in row.headers]
    return [_text(row.key), _text(row.value), row.timestamp_ms, headers]


def from_json(row: list[Any]) -> Row:
    headers = None if row[3] is None else [(name, _bytes(value) or b"") for name, value in row[3]]
    return Row(_bytes(row[0]), _bytes(row[1]), row[2], headers)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Plan:
    """What the test asks for."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.bootstrap: str = asked["bootstrap"]
        self.options: dict[str, Any] = asked.get("options", {})
        self.group: str = asked.get("group", "")
        self.topic: str = asked.get("topic", "")
        self.write: list[tuple[str, str, list[Row]]] = [
            (topic, codec, [from_json(row) for row in rows]) for topic, codec, rows in asked.get("write", [])
        ]
        self.read: list[tuple[str, int]] = [(topic, count) for topic, count in asked.get("read", [])]


class Asked:
    """What a member of a group is asked for while it reads."""

    def __init__(self) -> None:
        self._commit = threading.Event()
        self._leave = threading.Event()

    def listen(self) -> None:
        for _ in sys.stdin:
            self._commit.set()
        self._leave.set()

    def to_leave(self) -> bool:
        return self._leave.is_set()

    def to_commit(self) -> bool:
        """Once for each time."""
        due = self._commit.is_set()
        self._commit.clear()
        return due


def converse(
    write: Callable[[Plan, str, str, list[Row]], None],
    read: Callable[[Plan, str, int], list[Row]],
    take_part: Callable[[Plan, Asked], Iterable[bytes]],
) -> None:
    """Does what standard input asks for. `take_part` gives values as they come, and commits and leaves when it is
    asked to."""
    plan = Plan(json.loads(sys.stdin.readline()))
    if plan.group:
        asked = Asked()
        threading.Thread(target=asked.listen, daemon=True).start()
        for value in take_part(plan, asked):
            sys.stdout.write(value.decode() + "\n")
            sys.stdout.flush()
        return
    for topic, codec, rows in plan.write:
        try:
            write(plan, topic, codec, rows)
            say(written=topic, error=None)
        except Exception as error:
            say(written=topic, error=f"{type(error).__name__}: {error}")
    for topic, count in plan.read:
        try:
            say(read=topic, rows=[as_json(row) for row in read(plan, topic, count)], error=None)
        except Exception as error:
            say(read=topic, rows=[], error=f"{type(error).__name__}: {error}")
