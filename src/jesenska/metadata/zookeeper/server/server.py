"""A ZooKeeper server: it offers an `EmbeddedTree` (the metadata tree) to ZooKeeper's clients over the network. This
package does the input and output; the decisions are made in `tree` and `sessions`.

  four-letter word -> text -> closed
  ConnectRequest -> session opened or resumed -> requests -> answers, in their order -> CLOSE_SESSION, or the end

A write is decided when it arrives, and answered when it is committed. A read waits for the earlier writes of its
client, and is answered from the committed tree. The events of a transaction are sent when it is committed. So a client
gets the event of a change before any answer that shows the change. A client that may not read the node of an event
does not get the event. The zxid of an answer is the zxid of the last transaction that the answer shows. Answers and
events are gathered before they are written to the socket: once after each read from the socket, and once after each
commit.

If a client does not read its answers, or sends requests without waiting for answers, the server stops reading from it
at a limit. Events cannot be delayed: a client that does not read its events is disconnected at a limit. Ephemeral
nodes are deleted when their session is closed, or when no message has arrived for the session's timeout. The end of a
connection does not delete them.

The following is as in ZooKeeper 3.8.4. A request that is too short for its type is answered MARSHALLING_ERROR. Bytes
after the body of a request are ignored. An unknown type is answered UNIMPLEMENTED, and the connection is closed. A
refused identity is answered AUTH_FAILED, and the connection is closed. These are deliberate differences:
- A refused request takes no zxid; its answer has the zxid of the last change.
- A wrong password does not disconnect the session's owner.
- Containers, nodes with a time to live, reconfig and persistent watches are answered UNIMPLEMENTED. A multi
  that creates a node with a time to live is answered MARSHALLING_ERROR.
- A CHECK outside a multi is always answered (3.8.4 answers it only if it fails).
- An ACL with a permission above 31 is refused (INVALID_ACL).
- A bad path below a missing parent is answered BAD_ARGUMENTS, not NO_NODE, because paths are checked first.
- A frame may be up to 1 MiB and 64 KiB long, so that a node of the largest size fits with its path and ACL
  (ZooKeeper's jute.maxbuffer: 1,048,575 bytes).
- The names of children are sorted. The events of SetWatches are sent in the order of the changes, deletions first
  (ZooKeeper: in no order).
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
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.metadata.zookeeper.server.serving import ServerConfig, Serving
from jesenska.metadata.zookeeper.streams import ContextOf, Streams, StreamServer, SystemStreams

logger = logging.getLogger(__name__)


class ZooKeeperServer(Serving):
    """A ZooKeeper server over one tree. The tree must have been opened with `served`, and stays open after `stop`."""

    def __init__(
        self,
        tree: EmbeddedTree,
        clock: Clock,
        config: ServerConfig | None = None,
        streams: Streams | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(tree, clock, config, guard)
        self._streams = streams or SystemStreams()
        self._servers: list[StreamServer] = []
        self._look: asyncio.TimerHandle | None = None

    async def start(
        self, listening: socket.socket | None, secure: tuple[socket.socket, ContextOf] | None = None
    ) -> None:
        """Starts to serve clients on a listening socket, and sets `port` to the socket's port. `secure` is a second
        socket, for clients with TLS, with the function that returns the TLS context; its port becomes `secure_port`.
        The sockets are closed when the server stops."""
        self.started_ms = now_ms = self.now_ms()
        for session_id, timeout_ms in self.tree.tree.sessions.items():
            if session_id >= CLIENT_SESSION_ID_BASE:
                self.sessions.begin(session_id, timeout_ms, None, now_ms)
        self.tree.on_commit(self._committed, self._send_unsent)
        for one, tls in ((listening, None), secure or (None, None)):
            if one is None:
                continue
            if tls is None:
                self.port = one.getsockname()[1]
            else:
                self.secure_port = one.getsockname()[1]
            make = lambda: cast(Any, ZooKeeperConnection(self))  # noqa: E731
            self._servers.append(await self._streams.serve_streams(make, one, tls))
        self.look_for_expired()

    async def stop(self) -> None:
        """Stops the server: accepts no more requests and closes all connections. Sessions remain in the tree, so that
        their clients can continue them after a restart."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.end()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    # Sessions

    def look_for_expired(self) -> None:
        """Closes the sessions whose timeout has passed without a message from their client, and sets a timer for the
        next check."""
        now_ms = self.now_ms()
        for session_id in self.sessions.expired(now_ms):
            logger.info("session %#x expires: nothing was heard of its client for its timeout", session_id)
            self.close_session(session_id, _nothing)
        due_ms = self.sessions.next_look_ms()
        pause_ms = self.config.tick_ms if due_ms is None else min(max(due_ms - now_ms, 1), self.config.tick_ms)
        if self._look is not None:
            self._look.cancel()
        self._look = asyncio.get_running_loop().call_later(pause_ms / 1000, self.look_for_expired)

    # Committed transactions

    def _committed(self, transaction: Transaction) -> None:
        for connection, event in self.watches.fired(transaction.changes):
            if connection.may_see(event):
                connection.send_event(event)
        for change in transaction.changes:
            if isinstance(change, SessionClosed):
                self.strange_sessions.discard(change.session_id)
                ended = self.sessions.closed(change.session_id)
                if ended is not None and not ended.is_closing_session:
                    ended.close()

    def _send_unsent(self) -> None:
        """Writes the gathered answers and events of all connections to their sockets, once after each commit."""
        for connection in list(self.unsent):
            connection.write_out()


def _nothing(error: Exception | None) -> None:
    """Does nothing with the result: no client waits for the end of an expired session."""
