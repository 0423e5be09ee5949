"""Sessions of clients: who is there, until when, and by which connection. Decides; time comes in.

    begin -> alive -- heard, reattach --> alive
               |
               +-- nothing heard for the timeout: `expired` names it --> ending -- `closed` --> gone
                                                                           |
                                                                           +-- `not_closed` (the disk is full):
                                                                               named again in a tick

A session that is ending cannot be come back to, though it is in the tree until its end is committed.

A client shows its id and a password of 16 bytes to come back on another connection; the connection that it had is then
closed. Passwords are an HMAC of the id with a secret of the tree, so that nothing has to be kept for each (ZooKeeper
computes them from the id, too). After a restart every session has its whole timeout again: nobody could have been
heard.

Timeouts are bounded by two and twenty ticks unless the configuration says otherwise, as in ZooKeeper."""

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
    look_ms: float = 0.0  # its entry in the heap; others with its id are out of date


class Sessions(Generic[C]):
    """The sessions of one server; `C` is what it has as connections."""

    __slots__ = ("_by_id", "_heap", "_secret", "max_timeout_ms", "min_timeout_ms", "tick_ms")

    def __init__(
        self, secret: bytes, tick_ms: int, min_timeout_ms: int | None = None, max_timeout_ms: int | None = None
    ) -> None:
        self._secret = secret
        self.tick_ms = tick_ms
        self.min_timeout_ms = 2 * tick_ms if min_timeout_ms is None else min_timeout_ms
        self.max_timeout_ms = 20 * tick_ms if max_timeout_ms is None else max_timeout_ms
        self._by_id: dict[int, _Session[C]] = {}
        #: (when, id); entries are put right when their time comes, not when a session is heard of.
        self._heap: list[tuple[float, int]] = []

    def negotiated(self, timeout_ms: int) -> int:
        """The timeout that a client gets who asks for that one."""
        return max(self.min_timeout_ms, min(self.max_timeout_ms, timeout_ms))

    def password(self, session_id: int) -> bytes:
        return hmac.digest(self._secret, session_id.to_bytes(8, "big", signed=True), "sha256")[:PASSWORD_BYTES]

    def begin(self, session_id: int, timeout_ms: int, connection: C | None, now_ms: float) -> None:
        """A session that was opened, or (without a connection) one that the tree had when the server started."""
        self._by_id[session_id] = session = _Session(timeout_ms, now_ms + timeout_ms, connection)
        self._look_at(session_id, session)

    def reattach(
        self, session_id: int, password: bytes, timeout_ms: int, connection: C, now_ms: float
    ) -> tuple[int, C | None]:
        """The timeout that the session has from now on, and the connection that it had; SessionExpiredError where it
        is over or the password is another."""
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
        """Something came from its client."""
        session = self._by_id.get(session_id)
        if session is not None and not session.ending:
            session.expires_ms = now_ms + session.timeout_ms

    def left(self, session_id: int, connection: C) -> None:
        """A connection is gone; the session lives on, perhaps on another one already."""
        session = self._by_id.get(session_id)
        if session is not None and session.connection == connection:
            session.connection = None

    def connection(self, session_id: int) -> C | None:
        session = self._by_id.get(session_id)
        return session.connection if session is not None else None

    def expired(self, now_ms: float) -> list[int]:
        """Sessions of which nothing was heard for too long; each is named once and is to be closed in the tree."""
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
        """When `expired` may have something to say; None without sessions."""
        return self._heap[0][0] if self._heap else None

    def ending(self, session_id: int) -> None:
        """Its client closes it."""
        session = self._by_id.get(session_id)
        if session is not None:
            session.ending = True

    def not_closed(self, session_id: int, now_ms: float) -> None:
        """The tree could not take its end: it is to be tried again in a tick."""
        session = self._by_id.get(session_id)
        if session is not None:
            session.ending = False
            session.expires_ms = now_ms + self.tick_ms
            self._look_at(session_id, session)

    def closed(self, session_id: int) -> C | None:
        """The tree has its end; gives the connection that it had."""
        session = self._by_id.pop(session_id, None)
        return session.connection if session is not None else None

    def _look_at(self, session_id: int, session: _Session[C]) -> None:
        session.look_ms = session.expires_ms
        heapq.heappush(self._heap, (session.look_ms, session_id))

    def __len__(self) -> int:
        return len(self._by_id)
