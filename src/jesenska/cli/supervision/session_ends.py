"""Ends sessions of the metadata tree's server (ZooKeeper's sessions) as soon as their clients are known to have ended,
long before the sessions' timeout.

A client's process may have ended before the server has read the client's last request. This request may still be in a
socket. It could create the client's ephemeral node after the server has looked for the session that owns the node. So
the order to end a session also applies to later requests: from then on, no session that existed at the time of the
order may own that node. Session ids increase, so one session id separates these older sessions from newer sessions. A
restarted client has a newer session."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.metadata.embedded import CLIENT_SESSION_ID_BASE
from jesenska.metadata.tree_operations import BadArgumentsError, NodeCreated, Result, SessionExpiredError, Transaction
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer

#: A function that is called once: with the id of the session that was ended, with None if there was no session, or
#: with the error.
Ended = Callable[[int | None, Exception | None], None]
#: The largest number of stored paths. If there are more, the oldest path is dropped.
_PATHS_MAX = 1000


class SessionEnds:
    """Ends the sessions that own given ephemeral nodes in a server of the metadata tree. If such a node does not exist
    yet, and a session that is older than the order creates it later, that session is ended then."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._tree = server.tree
        #: For each path of a node, the newest session that may not own the node.
        self._newest: dict[str, int] = {}
        self._tree.on_commit(self._committed)

    def end_holder(self, path: str, done: Ended) -> None:
        """Ends the session that owns this ephemeral node: now, or as soon as a session that already exists creates the
        node. Calls `done` with the result; the result is BadArgumentsError if the node exists and is not ephemeral."""

        def decided(_: tuple[Result, ...], error: Exception | None) -> None:
            if error is not None:
                done(None, error)
                return
            tree = self._tree.tree
            node = tree.find(path)
            if node is not None and not node.ephemeral_owner:
                done(None, BadArgumentsError(path, "the node is not ephemeral"))
                return
            self._newest.pop(path, None)
            self._newest[path] = CLIENT_SESSION_ID_BASE | tree.last_zxid
            if len(self._newest) > _PATHS_MAX:
                del self._newest[next(iter(self._newest))]
            if node is None:
                done(None, None)
            else:
                self.end(node.ephemeral_owner, done)

        # The client's last request may be in the process of being written to the disk, so the order waits until it is
        # written.
        self._tree.wait(decided)

    def end(self, session_id: int, done: Ended) -> None:
        """Ends the session with this id."""

        def closed(error: Exception | None) -> None:
            if error is None:
                done(session_id, None)
            else:
                done(None, None if isinstance(error, SessionExpiredError) else error)

        self._server.close_session(session_id, closed)

    def _committed(self, transaction: Transaction) -> None:
        if not self._newest:
            return
        for change in transaction.changes:
            if isinstance(change, NodeCreated) and change.path in self._newest:
                if change.owner and change.owner <= self._newest[change.path]:
                    self._server.close_session(change.owner, _nothing)
                else:
                    del self._newest[change.path]


def _nothing(error: Exception | None) -> None:
    """Does nothing. It is the callback for the end of a session that has created its node later."""
