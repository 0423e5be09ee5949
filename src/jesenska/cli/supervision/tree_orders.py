"""The orders of a supervisor to the process of the metadata tree, over its stdin, and the answers on its stdout. Each
line is one JSON object.

    {"number": 1, "order": "end-session", "path": "/brokers/ids/1"}           end the session that owns this ephemeral
                                                                              node, or a present session that creates
                                                                              the node later
    {"number": 2, "order": "end-session", "session": 144115188075855873}      end this session
    {"number": 3, "order": "guard", "process": 4711, "grace_seconds": 30.0}   end this child of the supervisor when
                                                                              the supervisor has ended
    -> {"ready": true, "host": "127.0.0.1", "port": 40123, "process": 4712}   clients can connect
    -> {"number": 1, "session": 144115188075855873}                           the session that was ended; null: none
    -> {"number": 3}                                                          the order was carried out
    -> {"number": 4, "refused": "..."}                                        nothing was done; the number is null
                                                                              if none could be read
    -> {"number": 5, "later": "..."}                                          nothing was done, but may be later
    -> {"failed": "..."}                                                      the tree's process ends for this reason

The supervisor chooses the numbers, and an answer has the number of its order. An answer is written when its order was
carried out, so answers may be in another sequence than the orders. A line has at most TREE_ORDER_MAX_BYTES."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from jesenska.base.limits import TREE_ORDER_MAX_BYTES
from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import BadArgumentsError

#: The default host at which the tree's process listens.
TREE_HOST = "127.0.0.1"
_NUMBER_MAX = 2**63 - 1
_PROCESS_MAX = 2**31 - 1
_GRACE_SECONDS_MAX = 3600.0


class EndHolder(NamedTuple):
    """An order to end the session that owns the ephemeral node at `path`."""

    number: int
    path: str


class EndSession(NamedTuple):
    """An order to end the session with this id."""

    number: int
    session_id: int


class Guard(NamedTuple):
    """An order to end a process when the supervisor has ended: by SIGTERM, and after the grace time by SIGKILL."""

    number: int
    process: int
    grace_seconds: float


Order = EndHolder | EndSession | Guard


class OrderError(Exception):
    """The error that is raised for a line of the supervisor that is not a valid order. The message is one sentence.
    `number` is the number of the order, if it could be read."""

    def __init__(self, sentence: str, number: int | None = None) -> None:
        super().__init__(sentence)
        self.number = number


def parse_order(line: bytes) -> Order:
    """Returns the order in a line. Raises OrderError if the line is not a valid order."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise OrderError("The line is not JSON: write one object on each line.") from None
    if not isinstance(said, dict):
        raise OrderError("The line is not a JSON object: write one object on each line.")
    number = _whole(said.pop("number", None), 0, _NUMBER_MAX)
    if number is None:
        raise OrderError("The order has no number: give it one from 0 on.")
    match said.pop("order", None):
        case "end-session" if said.keys() == {"path"}:
            return EndHolder(number, _path(said["path"], number))
        case "end-session" if said.keys() == {"session"}:
            session_id = _whole(said["session"], 1, _NUMBER_MAX)
            if session_id is None:
                raise OrderError("The session is not the id of a session: write a number from 1 on.", number)
            return EndSession(number, session_id)
        case "end-session":
            raise OrderError("end-session ends one session: give its path or its session, and nothing else.", number)
        case "guard" if said.keys() == {"process", "grace_seconds"}:
            process, grace_seconds = _whole(said["process"], 1, _PROCESS_MAX), said["grace_seconds"]
            if process is None:
                raise OrderError("The process is not the id of a process: write a number from 1 on.", number)
            if (
                isinstance(grace_seconds, bool)
                or not isinstance(grace_seconds, int | float)
                or not 0 <= grace_seconds <= _GRACE_SECONDS_MAX
            ):
                raise OrderError(
                    f"grace_seconds is not a time: write a number of seconds from 0 to {_GRACE_SECONDS_MAX:g}.", number
                )
            return Guard(number, process, float(grace_seconds))
        case "guard":
            raise OrderError("guard is about one process: give process and grace_seconds, and nothing else.", number)
        case _:
            raise OrderError("The order is not known: write end-session or guard.", number)


def _whole(value: Any, least: int, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most else None


def _path(value: Any, number: int) -> str:
    if not isinstance(value, str):
        raise OrderError("The path is not a text: write a path that begins with /.", number)
    try:
        check_path(value)
    except BadArgumentsError as error:
        raise OrderError(f"The path is not the path of a node ({error.reason}).", number) from None
    return value


def line_of(**said: Any) -> bytes:
    """Returns an order or an answer as a line of JSON."""
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


class OrderLines:
    """Splits the bytes that arrive on stdin into lines."""

    def __init__(self, limit_bytes: int = TREE_ORDER_MAX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept = bytearray()
        self._is_too_long = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Returns the lines that end within these bytes, without line ends. For a line longer than the limit, None is
        returned."""
        *ends, rest = data.split(b"\n")
        found: list[bytes | None] = []
        for end in ends:
            self._keep(end)
            found.append(None if self._is_too_long else bytes(self._kept))
            self._kept.clear()
            self._is_too_long = False
        self._keep(rest)
        return found

    def _keep(self, piece: bytes) -> None:
        if self._is_too_long or len(self._kept) + len(piece) > self._limit_bytes:
            self._is_too_long = True
            self._kept.clear()
        else:
            self._kept += piece
