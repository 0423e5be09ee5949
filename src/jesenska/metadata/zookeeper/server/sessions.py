"""The sessions of a ZooKeeper server's clients, with their timeouts and connections. This module has no clock and does
no input or output; callers pass the time.

    begin -> alive -- heard, reattach --> alive
               |
               +-- no message for the timeout: `expired` returns it --> ending -- `closed` --> gone
                                                                           |
                                                                           +-- `not_closed` (the disk is full):
                                                                               returned again in a tick

A session that is ending cannot be resumed, though it remains in the tree until its end is committed.

To resume a session on another connection, a client sends the session's id and its password of 16 bytes. The old
connection is then closed. A password is an HMAC of the id with the tree's secret, so that it need not be stored. After
a restart of the server every session gets its whole timeout again, since no messages could arrive before.

Timeouts are between two and twenty ticks by default, as in ZooKeeper."""

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
    """The sessions of one server. `C` is the type of its connections."""

    __slots__ = ("_by_id", "_heap", "_secret", "max_timeout_ms", "min_timeout_ms", "tick_ms")

    def __init__(
        self, secret: bytes, tick_ms: int, min_timeout_ms: int | None = None, max_timeout_ms: int | None = None
    ) -> None:
        self._secret = secret
        self.tick_ms = tick_ms
        self.min_timeout_ms = 2 * tick_ms if min_timeout_ms is None else min_timeout_ms
        self.max_timeout_ms = 20 * tick_ms if max_timeout_ms is None else max_timeout_ms
        self._by_id: dict[int, _Session[C]] = {}
        #: A heap of (time of the next check in milliseconds, session id). A message of a session does not change its
        #: entry: the entry is corrected when its time comes.
        self._heap: list[tuple[float, int]] = []

    def negotiated(self, timeout_ms: int) -> int:
        """Returns the timeout in milliseconds that the server grants a client: the requested timeout, within the
        server's bounds."""
        return max(self.min_timeout_ms, min(self.max_timeout_ms, timeout_ms))

    def password(self, session_id: int) -> bytes:
        return hmac.digest(self._secret, session_id.to_bytes(8, "big", signed=True), "sha256")[:PASSWORD_BYTES]

    def begin(self, session_id: int, timeout_ms: int, connection: C | None, now_ms: float) -> None:
        """Adds a session that was just opened, or a session that was in the tree when the server started. In the
        second case `connection` is None."""
        self._by_id[session_id] = session = _Session(timeout_ms, now_ms + timeout_ms, connection)
        self._look_at(session_id, session)

    def reattach(
        self, session_id: int, password: bytes, timeout_ms: int, connection: C, now_ms: float, *, is_heard: bool = True
    ) -> tuple[int, C | None]:
        """Moves a session to a new connection. Returns the new timeout of the session, and its old connection. Raises
        SessionExpiredError if the session has ended or the password is wrong. If `is_heard` is False, the session's
        timeout does not start again: its client must log in first."""
        session = self._by_id.get(session_id)
        if session is None or session.ending or not hmac.compare_digest(password, self.password(session_id)):
            raise SessionExpiredError("/")
        before, session.connection = session.connection, connection
        session.timeout_ms = self.negotiated(timeout_ms)
        if is_heard:
            self.heard(session_id, now_ms)
        if session.expires_ms < session.look_ms:
            self._look_at(session_id, session)
        return session.timeout_ms, before

    def heard(self, session_id: int, now_ms: float) -> None:
        """Records that a message from the session's client arrived: its timeout starts again."""
        session = self._by_id.get(session_id)
        if session is not None and not session.ending:
            session.expires_ms = now_ms + session.timeout_ms

    def left(self, session_id: int, connection: C) -> None:
        """Records that a connection has ended. The session continues. If the session is already on another connection,
        nothing changes."""
        session = self._by_id.get(session_id)
        if session is not None and session.connection == connection:
            session.connection = None

    def connection(self, session_id: int) -> C | None:
        session = self._by_id.get(session_id)
        return session.connection if session is not None else None

    def expired(self, now_ms: float) -> list[int]:
        """Returns the ids of the sessions whose timeout has passed without a message. Each id is returned once, and
        the caller must close the session in the tree."""
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
        """Returns the time in milliseconds at which `expired` must be called next; None if there are no sessions."""
        return self._heap[0][0] if self._heap else None

    def ending(self, session_id: int) -> None:
        """Records that the session's client has asked to close it."""
        session = self._by_id.get(session_id)
        if session is not None:
            session.ending = True

    def not_closed(self, session_id: int, now_ms: float) -> None:
        """Records that the tree could not write the end of the session. `expired` returns the session again after one
        tick."""
        session = self._by_id.get(session_id)
        if session is not None:
            session.ending = False
            session.expires_ms = now_ms + self.tick_ms
            self._look_at(session_id, session)

    def closed(self, session_id: int) -> C | None:
        """Removes a session whose end is committed in the tree. Returns its connection, or None if it has none."""
        session = self._by_id.pop(session_id, None)
        return session.connection if session is not None else None

    def _look_at(self, session_id: int, session: _Session[C]) -> None:
        session.look_ms = session.expires_ms
        heapq.heappush(self._heap, (session.look_ms, session_id))

    def __len__(self) -> int:
        return len(self._by_id)
