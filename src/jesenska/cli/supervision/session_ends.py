"""Ends sessions on a served tree because somebody knows that their clients are dead, long before their timeout says
so.

Who knows of a death may be ahead of what the dead client has sent: its last request may still lie in a socket, and
would make the node after the session that holds it was looked for. So the order holds for whoever comes, too: from the
order on, no session that there was then may have that node. Ids of sessions go up, so one number says which they are;
the session of a successor is a newer one."""

from __future__ import annotations

from collections.abc import Callable

from jesenska.metadata.embedded import CLIENT_SESSION_ID_BASE
from jesenska.metadata.tree_operations import BadArgumentsError, NodeCreated, Result, SessionExpiredError, Transaction
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer

#: Called once: the session that has ended, None where there was none, or the error that kept it from ending.
Ended = Callable[[int | None, Exception | None], None]
#: Paths that are remembered; the oldest is forgotten.
_PATHS_MAX = 1000


class SessionEnds:
    """Those of one server that has started."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._tree = server.tree
        #: By path: the newest session that may not have it.
        self._newest: dict[str, int] = {}
        self._tree.on_commit(self._committed)

    def end_holder(self, path: str, done: Ended) -> None:
        """Ends the session that holds this ephemeral node, now or as soon as it does. BadArgumentsError: the node is
        there and not ephemeral."""

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
    """Nobody waits for the end of a session that took its node too late."""
