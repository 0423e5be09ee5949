"""The tree served to ZooKeeper's clients: connections, answers and watches over an `EmbeddedTree`. This package does
the input and output; the decisions are in `tree` and `sessions`.

    four-letter word -> text -> closed
    ConnectRequest -> session opened or resumed -> requests -> answers, in their order -> CLOSE_SESSION, or the end

A write is decided when it arrives and answered when it is committed. A read waits for the earlier writes of its
client, and is answered from the committed tree. `EmbeddedTree.submit` answers each request at its place among the
transactions, and the events of a transaction are sent when it is committed: a client gets the event of a change before
any answer that shows it, and an answer's zxid is that of the state it shows. Answers and events are written to the
socket together: once after each read from it, once after each commit.

If a client does not read its answers, or sends without waiting for them, the server stops reading from it at a limit.
Events cannot be held back: a client that does not read its events is disconnected at a limit. Ephemeral nodes are
deleted when their session is closed or its timeout has passed without a message, not when a connection ends.

As ZooKeeper 3.8.4 does: a request too short for its type is answered MARSHALLING_ERROR, and bytes after its body are
ignored. An unknown type is answered UNIMPLEMENTED and the connection closed. An identity that is refused is answered
AUTH_FAILED and the connection closed. Differences, on purpose:
- A refused request takes no zxid; its answer has the zxid of the last change.
- A wrong password does not disconnect the session's owner.
- Containers and nodes with a time to live, reconfig, SASL and persistent watches are UNIMPLEMENTED. A multi with a
  node with a time to live is answered MARSHALLING_ERROR.
- CHECK alone is answered (3.8.4 answers only if it fails).
- A rule of an ACL with permissions above 31 is refused (INVALID_ACL).
- A bad path below a missing parent is BAD_ARGUMENTS, not NO_NODE: paths are checked first.
- Frames may have 1 MiB and 64 KiB, so that a node of the largest size fits with its path and ACL (ZooKeeper's
  jute.maxbuffer: 1,048,575 bytes).
- Names of children are sorted. The events of SetWatches are sent in the order of the changes (ZooKeeper: in no order),
  deletions first.
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
    """Serves one tree, which should have been opened with `served`; call `start`, then `stop`. The tree stays open."""

    def __init__(
        self, tree: EmbeddedTree, clock: Clock, config: ServerConfig | None = None, streams: Streams | None = None
    ) -> None:
        super().__init__(tree, clock, config)
        self._streams = streams or SystemStreams()
        self._server: StreamServer | None = None
        self._look: asyncio.TimerHandle | None = None

    async def start(self, listening: socket.socket) -> None:
        """Serves clients at a listening socket, which is closed with the server; `port` is its port."""
        self.started_ms = now_ms = self.now_ms()
        for session_id, timeout_ms in self.tree.tree.sessions.items():
            if session_id >= CLIENT_SESSION_ID_BASE:
                self.sessions.begin(session_id, timeout_ms, None, now_ms)
        self.tree.on_commit(self._committed, self._send_unsent)
        self.port = listening.getsockname()[1]
        self._server = await self._streams.serve_streams(lambda: cast(Any, ZooKeeperConnection(self)), listening)
        self.look_for_expired()

    async def stop(self) -> None:
        """Accepts no more requests and closes all connections. Sessions stay in the tree: their clients can come back
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
        """Ends the sessions whose timeout has passed without a message, and sets a timer for the next ones."""
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
        """Writes the answers and events of one commit together."""
        for connection in list(self.unsent):
            connection.write_out()


def _nothing(error: Exception | None) -> None:
    """Does nothing: no client waits for the end of a session that expired."""
