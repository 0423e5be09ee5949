"""Ends sessions on a served tree because their clients are known to be dead, long before their timeout.

The death of a client may be known before its last request has been read: the request may still be in a socket, and
would create the node after its session was looked up. So the order also applies to later requests: from the order on,
no session that existed then may have that node. Ids of sessions increase, so one number identifies these sessions; the
session of a successor is newer."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.metadata.embedded import CLIENT_SESSION_ID_BASE
from jesenska.metadata.tree_operations import BadArgumentsError, NodeCreated, Result, SessionExpiredError, Transaction
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer

#: Called once: with the session that was ended, with None if there was none, or with the error that prevented it.
Ended = Callable[[int | None, Exception | None], None]
#: Largest number of remembered paths; the oldest is forgotten.
_PATHS_MAX = 1000


class SessionEnds:
    """The ended sessions of one server that has started."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._tree = server.tree
        #: By path: the newest session that may not have it.
        self._newest: dict[str, int] = {}
        self._tree.on_commit(self._committed)

    def end_holder(self, path: str, done: Ended) -> None:
        """Ends the session that holds this ephemeral node, now or as soon as it does. BadArgumentsError if the node
        exists and is not ephemeral."""

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

        # The client's last request may be on its way to the disk.
        self._tree.wait(decided)

    def end(self, session_id: int, done: Ended) -> None:
        """Ends a session."""

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
    """Does nothing: no caller waits for the end of a session that created its node too late."""
