"""The tree served to ZooKeeper's clients: connections, answers and watches over an `EmbeddedTree`. Moves; what it does
not decide is in `tree` and `sessions`.

    four-letter word -> text -> closed ConnectRequest -> session opened or come back to -> requests -> answers, in
    their order -> CLOSE_SESSION, or the connection ends

A write is decided when it arrives and answered when it is committed. A read waits for the writes that its client asked
for before it, and is answered from what is committed. `EmbeddedTree.submit` answers each request at its place among
the transactions, and a transaction's watches leave when it is committed: a client hears of a change before any answer
that shows it, and an answer's zxid is that of the state it shows. Answers and events go to the socket together: once
for what one read of it brought, once for what one commit answered.

A client that does not take its answers, or that sends without waiting for them, is not read from beyond a limit.
Events cannot be held back: one that takes none of many is disconnected. Ephemeral nodes go when their session is
closed or nothing was heard of it for its timeout, not when a connection ends.

As ZooKeeper 3.8.4 does it (it was asked): a request too short for its type is answered MARSHALLING_ERROR, bytes behind
its body are ignored, a type that is unknown is answered UNIMPLEMENTED and the connection closed; an identity that is
not taken, too. Differences, on purpose:
- A request that is refused takes no zxid; the zxid then is that of the last change.
- A wrong password does not disconnect the session's owner.
- Containers and nodes with a time to live, reconfig, SASL and persistent watches are UNIMPLEMENTED. A multi with a
  node with a time to live is answered MARSHALLING_ERROR.
- CHECK alone is answered (3.8.4 answers only where it fails).
- A rule of an ACL with permissions above 31 is refused (INVALID_ACL).
- A bad path below a parent that is missing is BAD_ARGUMENTS, not NO_NODE: paths are looked at first.
- Frames may have 1 MiB and 64 KiB, so that a node at its largest fits with its path and ACL (ZooKeeper's
  jute.maxbuffer: 1,048,575 bytes).
- Names of children are sorted. What SetWatches finds changed is told in the order of the changes (ZooKeeper: in no
  order), deletions first.
- /zookeeper/config is empty and its aversion 0.
- All nine four-letter words are allowed (4lw.commands.whitelist names them one by one)."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, cast

from jesenska.base.clock import Clock
from jesenska.metadata.embedded import CLIENT_SESSION_ID_BASE, EmbeddedTree
from jesenska.metadata.tree_operations import (
    SessionClosed,
    Transaction,
)
from jesenska.metadata.zookeeper.server.connection import ZooKeeperConnection
from jesenska.metadata.zookeeper.server.serving import ServerConfig, Serving
from jesenska.metadata.zookeeper.streams import Streams, StreamServer, SystemStreams

logger = logging.getLogger(__name__)


class ZooKeeperServer(Serving):
    """Serves one tree, which should have been opened with `served`; `start`, then `stop`. The tree stays open."""

    def __init__(
        self, tree: EmbeddedTree, clock: Clock, config: ServerConfig | None = None, streams: Streams | None = None
    ) -> None:
        super().__init__(tree, clock, config)
        self._streams = streams or SystemStreams()
        self._server: StreamServer | None = None
        self._look: asyncio.TimerHandle | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serves who connects to a socket that listens, which is closed with the server; `port` is its port."""
        self.started_ms = now_ms = self.now_ms()
        for session_id, timeout_ms in self.tree.tree.sessions.items():
            if session_id >= CLIENT_SESSION_ID_BASE:
                self.sessions.begin(session_id, timeout_ms, None, now_ms)
        self.tree.on_commit(self._committed, self._send_unsent)
        self.port = listening.getsockname()[1]
        self._server = await self._streams.serve_streams(lambda: cast(Any, ZooKeeperConnection(self)), listening)
        self.look_for_expired()

    async def stop(self) -> None:
        """Takes no more requests and closes all connections. Sessions stay in the tree: their clients can come back
        after a restart."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.end()
            await self._server.wait_closed()
            self._server = None

    # Sessions

    def look_for_expired(self) -> None:
        """Ends the sessions of which nothing was heard for too long, and comes back in time for the next ones."""
        now_ms = self.now_ms()
        for session_id in self.sessions.expired(now_ms):
            logger.info("session %#x expires: nothing was heard of its client for its timeout", session_id)
            self.close_session(session_id, _nothing)
        due_ms = self.sessions.next_look_ms()
        pause_ms = self.config.tick_ms if due_ms is None else min(max(due_ms - now_ms, 1), self.config.tick_ms)
        if self._look is not None:
            self._look.cancel()
        self._look = asyncio.get_running_loop().call_later(pause_ms / 1000, self.look_for_expired)

    # What was committed

    def _committed(self, transaction: Transaction) -> None:
        for connection, event in self.watches.fired(transaction.changes):
            connection.send_event(event)
        for change in transaction.changes:
            if isinstance(change, SessionClosed):
                ended = self.sessions.closed(change.session_id)
                if ended is not None and not ended.is_closing_session:
                    ended.close()

    def _send_unsent(self) -> None:
        """Answers and events of one commit leave together."""
        for connection in list(self.unsent):
            connection.write_out()


def _nothing(error: Exception | None) -> None:
    """Nobody waits for the end of a session that expired."""
