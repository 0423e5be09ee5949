"""The sessions of clients, with their timeouts and connections. This module only decides; the time is passed in.

    begin -> alive -- heard, reattach --> alive
               |
               +-- no message for the timeout: `expired` returns it --> ending -- `closed` --> gone
                                                                           |
                                                                           +-- `not_closed` (the disk is full):
                                                                               returned again in a tick

A session that is ending cannot be resumed, though it is in the tree until its end is committed.

A client sends its id and a password of 16 bytes to come back on another connection; its old connection is then closed.
Passwords are an HMAC of the id with a secret of the tree, so that they need not be stored (ZooKeeper computes them
from the id, too). After a restart every session has its whole timeout again, since no messages could arrive before.

Timeouts are bounded by two and twenty ticks by default, as in ZooKeeper."""

from __future__ import annotations

import heapq
import hmac
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from jesenska.metadata.tree_operations import SessionExpiredError
from jesenska.metadata.zookeeper.messages import PASSWORD_BYTES

C = TypeVar("C", bound=Hashable)


@dataclass(slots=True)
class _Session(Generic[C]):
    timeout_ms: int
    expires_ms: float
    connection: C | None
    ending: bool = False
    look_ms: float = 0.0  # its entry in the heap; other entries with its id are outdated


class Sessions(Generic[C]):
    """The sessions of one server; `C` is the type of its connections."""

    __slots__ = ("_by_id", "_heap", "_secret", "max_timeout_ms", "min_timeout_ms", "tick_ms")

    def __init__(
        self, secret: bytes, tick_ms: int, min_timeout_ms: int | None = None, max_timeout_ms: int | None = None
    ) -> None:
        self._secret = secret
        self.tick_ms = tick_ms
        self.min_timeout_ms = 2 * tick_ms if min_timeout_ms is None else min_timeout_ms
        self.max_timeout_ms = 20 * tick_ms if max_timeout_ms is None else max_timeout_ms
        self._by_id: dict[int, _Session[C]] = {}
        #: (time, id); entries are corrected when their time comes, not at each message of a session.
        self._heap: list[tuple[float, int]] = []

    def negotiated(self, timeout_ms: int) -> int:
        """Returns the timeout that a client gets if it requests this one."""
        return max(self.min_timeout_ms, min(self.max_timeout_ms, timeout_ms))

    def password(self, session_id: int) -> bytes:
        return hmac.digest(self._secret, session_id.to_bytes(8, "big", signed=True), "sha256")[:PASSWORD_BYTES]

    def begin(self, session_id: int, timeout_ms: int, connection: C | None, now_ms: float) -> None:
        """Adds a session that was opened, or (without a connection) one that the tree had when the server started."""
        self._by_id[session_id] = session = _Session(timeout_ms, now_ms + timeout_ms, connection)
        self._look_at(session_id, session)

    def reattach(
        self, session_id: int, password: bytes, timeout_ms: int, connection: C, now_ms: float
    ) -> tuple[int, C | None]:
        """Returns the new timeout of the session, and its old connection; SessionExpiredError if the session is over
        or the password is wrong."""
        session = self._by_id.get(session_id)
        if session is None or session.ending or not hmac.compare_digest(password, self.password(session_id)):
            raise SessionExpiredError("/")
        before, session.connection = session.connection, connection
        session.timeout_ms = self.negotiated(timeout_ms)
        self.heard(session_id, now_ms)
        if session.expires_ms < session.look_ms:
            self._look_at(session_id, session)
        return session.timeout_ms, before

    def heard(self, session_id: int, now_ms: float) -> None:
        """Notes a message from its client."""
        session = self._by_id.get(session_id)
        if session is not None and not session.ending:
            session.expires_ms = now_ms + session.timeout_ms

    def left(self, session_id: int, connection: C) -> None:
        """Notes the end of a connection; the session continues, perhaps on another connection already."""
        session = self._by_id.get(session_id)
        if session is not None and session.connection == connection:
            session.connection = None

    def connection(self, session_id: int) -> C | None:
        session = self._by_id.get(session_id)
        return session.connection if session is not None else None

    def expired(self, now_ms: float) -> list[int]:
        """Returns the sessions whose timeout has passed without a message; each is returned once and must be closed in
        the tree."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            look_ms, session_id = heapq.heappop(self._heap)
            session = self._by_id.get(session_id)
            if session is None or session.ending or session.look_ms != look_ms:
                continue
            if session.expires_ms > now_ms:
                self._look_at(session_id, session)
            else:
                session.ending = True
                found.append(session_id)
        return found

    def next_look_ms(self) -> float | None:
        """Returns the time of the next call of `expired`; None without sessions."""
        return self._heap[0][0] if self._heap else None

    def ending(self, session_id: int) -> None:
        """Notes that its client closes it."""
        session = self._by_id.get(session_id)
        if session is not None:
            session.ending = True

    def not_closed(self, session_id: int, now_ms: float) -> None:
        """Notes that the tree could not record its end: it is tried again in a tick."""
        session = self._by_id.get(session_id)
        if session is not None:
            session.ending = False
            session.expires_ms = now_ms + self.tick_ms
            self._look_at(session_id, session)

    def closed(self, session_id: int) -> C | None:
        """Notes that its end is in the tree; returns its connection."""
        session = self._by_id.pop(session_id, None)
        return session.connection if session is not None else None

    def _look_at(self, session_id: int, session: _Session[C]) -> None:
        session.look_ms = session.expires_ms
        heapq.heappush(self._heap, (session.look_ms, session_id))

    def __len__(self) -> int:
        return len(self._by_id)
