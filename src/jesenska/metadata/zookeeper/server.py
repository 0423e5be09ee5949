"""The tree served to ZooKeeper's clients: connections, answers and watches over an `EmbeddedTree`. Moves; what it does not decide is in `tree` and `sessions`.

    four-letter word -> text -> closed
    ConnectRequest -> session opened or come back to -> requests -> answers, in their order -> CLOSE_SESSION, or the connection ends

A write is decided when it arrives and answered when it is committed. A read waits for the writes that its client asked for before it, and is answered from
what is committed. `EmbeddedTree.submit` answers each request at its place among the transactions, and a transaction's watches leave when it is committed:
a client hears of a change before any answer that shows it, and an answer's zxid is that of the state it shows. Answers and events go to the socket together:
once for what one read of it brought, once for what one commit answered.

A client that does not take its answers, or that sends without waiting for them, is not read from beyond a limit. Events cannot be held back: one that takes
none of many is disconnected. Ephemeral nodes go when their session is closed or nothing was heard of it for its timeout, not when a connection ends.

As ZooKeeper 3.8.4 does it (it was asked): a request too short for its type is answered MARSHALLING_ERROR, bytes behind its body are ignored, a type that is
unknown is answered UNIMPLEMENTED and the connection closed; an identity that is not taken, too. Differences, on purpose:
- A request that is refused takes no zxid; the zxid then is that of the last change.
- A wrong password does not disconnect the session's owner.
- Containers and nodes with a time to live, reconfig, SASL and persistent watches are UNIMPLEMENTED. A multi with a node with a time to live is answered
  MARSHALLING_ERROR.
- CHECK alone is answered (3.8.4 answers only where it fails).
- A rule of an ACL with permissions above 31 is refused (INVALID_ACL).
- A bad path below a parent that is missing is BAD_ARGUMENTS, not NO_NODE: paths are looked at first.
- Frames may have 1 MiB and 64 KiB, so that a node at its largest fits with its path and ACL (ZooKeeper's jute.maxbuffer: 1,048,575 bytes).
- Names of children are sorted. What SetWatches finds changed is told in the order of the changes (ZooKeeper: in no order), deletions first.
- /zookeeper/config is empty and its aversion 0.
- All nine four-letter words are allowed (4lw.commands.whitelist names them one by one)."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import socket
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from jesenska import __version__
from jesenska.base.clock import Clock
from jesenska.metadata.embedded import CLIENT_SESSION_ID_BASE, EmbeddedTree
from jesenska.metadata.transactions import (
    Result,
    SessionClosed,
    SessionExpiredError,
    Transaction,
)
from jesenska.metadata.tree import CloseSession
from jesenska.metadata.watches import Watches
from jesenska.metadata.zookeeper import words
from jesenska.metadata.zookeeper.connection import Connection
from jesenska.metadata.zookeeper.sessions import Sessions

logger = logging.getLogger(__name__)


class ServerConfig(NamedTuple):
    """What ZooKeeper's configuration calls tickTime, minSessionTimeout, maxSessionTimeout (None: 2 and 20 ticks) and maxClientCnxns (0: no limit)."""

    tick_ms: int = 3000
    min_session_timeout_ms: int | None = None
    max_session_timeout_ms: int | None = None
    max_client_connections: int = 60


class ZooKeeperServer:
    """Serves one tree, which should have been opened with `served`; `start`, then `stop`. The tree stays open."""

    def __init__(self, tree: EmbeddedTree, clock: Clock, config: ServerConfig | None = None) -> None:
        self.tree = tree
        self.clock = clock
        self.config = config or ServerConfig()
        self.sessions: Sessions[Connection] = Sessions(tree.secret, self.config.tick_ms, self.config.min_session_timeout_ms, self.config.max_session_timeout_ms)
        self.watches: Watches[Connection] = Watches()
        self.connections: dict[Connection, None] = {}
        self.by_host: Counter[str] = Counter()
        self.ended_figures = words.Figures()  # of connections that are gone
        self.unsent: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._look: asyncio.TimerHandle | None = None
        self._started_ms = 0.0
        self.port = 0

    async def start(self, listening: socket.socket) -> None:
        """Serves who connects to a socket that listens, which is closed with the server; `port` is its port."""
        self._started_ms = now_ms = self.now_ms()
        for session_id, timeout_ms in self.tree.tree.sessions.items():
            if session_id >= CLIENT_SESSION_ID_BASE:
                self.sessions.begin(session_id, timeout_ms, None, now_ms)
        self.tree.on_commit(self._committed, self._send_unsent)
        self.port = listening.getsockname()[1]
        self._server = await asyncio.get_running_loop().create_server(lambda: cast(Any, Connection(self)), sock=listening)
        self.look_for_expired()

    async def stop(self) -> None:
        """Takes no more requests and closes all connections. Sessions stay in the tree: their clients can come back after a restart."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.end()
            await self._server.wait_closed()
            self._server = None

    def now_ms(self) -> float:
        return self.clock.monotonic() * 1000

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

    def close_session(self, session_id: int, done: Callable[[Exception | None], None]) -> None:
        self.sessions.ending(session_id)

        def closed(_: tuple[Result, ...], error: Exception | None) -> None:
            if error is not None and not isinstance(error, SessionExpiredError):
                self.sessions.not_closed(session_id, self.now_ms())
            done(error)

        self.tree.submit(CloseSession(session_id), closed)

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

    # Figures

    @property
    def figures(self) -> words.Figures:
        """Of all connections since the start."""
        total = words.Figures()
        for some in (self.ended_figures, *(connection.figures for connection in self.connections)):
            total.add(some)
        return total

    def figures_for_words(self) -> words.ServerFigures:
        tree = self.tree.tree
        sessions = self.sessions
        figures = self.figures
        return words.ServerFigures(
            version=f"{words.ZOOKEEPER_VERSION}-jesenska-{__version__}, built on {sys.implementation.name} {platform.python_version()}",
            connections=[connection.figures_for_words() for connection in self.connections],
            received=figures.received,
            sent=figures.sent,
            outstanding=sum(len(connection.slots) for connection in self.connections),
            min_latency_ms=int(figures.min_latency_ms),
            average_latency_ms=figures.average_latency_ms,
            max_latency_ms=int(figures.max_latency_ms),
            zxid=tree.last_zxid,
            nodes=len(tree),
            ephemerals=sum(len(tree.ephemerals(session_id)) for session_id in tree.sessions),
            data_bytes=sum(len(path) + len(node.data or b"") for path, node in tree.walk()),
            sessions=len(tree.sessions),
            watches=len(self.watches),
            watched_paths=self.watches.paths(),
            watching_connections=len(self.watches.watchers()),
            uptime_ms=int(self.now_ms() - self._started_ms),
            configuration={
                "clientPort": str(self.port),
                "tickTime": str(self.config.tick_ms),
                "maxClientCnxns": str(self.config.max_client_connections),
                "minSessionTimeout": str(sessions.min_timeout_ms),
                "maxSessionTimeout": str(sessions.max_timeout_ms),
                "serverId": "0",
            },
            environment={
                "host.name": platform.node(),
                "python.version": platform.python_version(),
                "os.name": platform.system(),
                "os.arch": platform.machine(),
                "os.version": platform.release(),
                "process.id": str(os.getpid()),
            },
        )


def _nothing(error: Exception | None) -> None:
    """Nobody waits for the end of a session that expired."""
