"""The state that all connections to a ZooKeeper server share: the sessions, the watches, the open connections, and the
figures for the four-letter words."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from jesenska import __version__
from jesenska.base.clock import Clock
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.tree import CloseSession
from jesenska.metadata.tree_operations import Result, SessionExpiredError
from jesenska.metadata.watches import Watches, WatchEvent
from jesenska.metadata.zookeeper.server import four_letter_words
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.metadata.zookeeper.server.sessions import Sessions
from jesenska.metadata.zookeeper.server.slots import Answer, Slot


class ServerConfig(NamedTuple):
    """A ZooKeeper server's settings: ZooKeeper's tickTime, minSessionTimeout (None: 2 ticks), maxSessionTimeout (None:
    20 ticks), and maxClientCnxns (connections of one host; 0: no limit)."""

    tick_ms: int = 3000
    min_session_timeout_ms: int | None = None
    max_session_timeout_ms: int | None = None
    max_client_connections: int = 60


class ServedConnection:
    """The interface of a client's connection, for the server and the handlers of requests. `ZooKeeperConnection` is
    the only subclass. This is a class and not a Protocol, because compiled code calls methods of a class faster."""

    def __init__(self) -> None:
        self.is_closing_session = False
        self.figures = four_letter_words.Figures()

    def outstanding(self) -> int:
        """Returns the number of requests that are not answered yet."""
        raise NotImplementedError

    def done(self, slot: Slot, answer: Answer) -> None:
        """Takes the answer to a write that was committed or refused."""
        raise NotImplementedError

    def may_see(self, event: WatchEvent) -> bool:
        """Returns True if the client may read the node of an event."""
        raise NotImplementedError

    def send_event(self, event: WatchEvent) -> None:
        """Sends the client the event of one of its watches."""
        raise NotImplementedError

    def admitted(self) -> None:
        """Called when the client has become known: it may use the tree from now on."""
        raise NotImplementedError

    def login_failed(self, reason: str) -> None:
        """Logs that the client could not log in."""
        raise NotImplementedError

    def too_many_watches(self) -> None:
        """Closes the connection because its client has too many watches."""
        raise NotImplementedError

    def write_out(self) -> None:
        """Writes the gathered frames (answers and events) to the socket."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the connection. Gathered answers are still sent; no more requests are read."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends the connection when the server stops. Data that cannot be sent at once is dropped."""
        raise NotImplementedError

    def figures_for_words(self) -> four_letter_words.ConnectionFigures:
        """Returns the figures of this connection for the words `stat` and `cons`."""
        raise NotImplementedError


class Serving:
    """A served tree, with the state that all connections to it share."""

    def __init__(
        self, tree: EmbeddedTree, clock: Clock, config: ServerConfig | None = None, guard: Guard | None = None
    ) -> None:
        self.guard = guard or Guard()
        #: The connections that are not admitted yet, the oldest first.
        self.strangers: dict[ServedConnection, None] = {}
        #: The sessions that no admitted client has used yet.
        self.strange_sessions: set[int] = set()
        self.tree = tree
        self.clock = clock
        self.config = config or ServerConfig()
        self.sessions: Sessions[ServedConnection] = Sessions(
            tree.secret, self.config.tick_ms, self.config.min_session_timeout_ms, self.config.max_session_timeout_ms
        )
        self.watches: Watches[ServedConnection] = Watches()
        self.connections: dict[ServedConnection, None] = {}
        self.by_host: Counter[str] = Counter()
        self.ended_figures = four_letter_words.Figures()  # of connections that have ended
        self.unsent: dict[ServedConnection, None] = {}
        self.started_ms = 0.0
        self.port = self.secure_port = 0

    def now_ms(self) -> float:
        return self.clock.monotonic() * 1000

    def close_session(self, session_id: int, done: Callable[[Exception | None], None]) -> None:
        self.sessions.ending(session_id)

        def closed(_: tuple[Result, ...], error: Exception | None) -> None:
            if error is not None and not isinstance(error, SessionExpiredError):
                self.sessions.not_closed(session_id, self.now_ms())
            done(error)

        self.tree.submit(CloseSession(session_id), closed)

    # Figures

    @property
    def figures(self) -> four_letter_words.Figures:
        """Returns the counts and latencies of all connections since the start, including connections that have
        ended."""
        total = four_letter_words.Figures()
        for some in (self.ended_figures, *(connection.figures for connection in self.connections)):
            total.add(some)
        return total

    def figures_for_words(self) -> four_letter_words.ServerFigures:
        tree = self.tree.tree
        sessions = self.sessions
        figures = self.figures
        return four_letter_words.ServerFigures(
            version=f"{four_letter_words.ZOOKEEPER_VERSION}-jesenska-{__version__}, built on {sys.implementation.name} "
            f"{platform.python_version()}",
            connections=[connection.figures_for_words() for connection in self.connections],
            received=figures.received,
            sent=figures.sent,
            outstanding=sum(connection.outstanding() for connection in self.connections),
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
            uptime_ms=int(self.now_ms() - self.started_ms),
            configuration={
                "clientPort": str(self.port),
                **({"secureClientPort": str(self.secure_port)} if self.secure_port else {}),
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
