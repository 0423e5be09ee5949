"""The dispatcher: all connections of a broker. It takes new ones within the limits, closes those that are idle or
whose clients have gone, and lets requests in work finish when the broker stops. `connection` handles each request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping

from jesenska.base.clock import Clock
from jesenska.broker.requests.authentication import ListenerSecurity
from jesenska.broker.requests.authorization.access import Authorizer
from jesenska.broker.requests.connection import Connection, SharedByConnections
from jesenska.broker.requests.connection_limits import ConnectionLimits
from jesenska.broker.requests.families import Families

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_WARNINGS = 10.0


class Dispatcher:
    """All connections of a broker, whose handlers get `families`. `security` has the listeners by name; without an
    `authorizer` everyone may do everything."""

    def __init__(
        self,
        families: Families,
        partition_count: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        max_request_bytes: int,
        limits: ConnectionLimits,
        security: Mapping[str, ListenerSecurity],
        authorizer: Authorizer | None = None,
    ) -> None:
        self.limits = limits
        self._security = security
        self._shared = SharedByConnections(
            families, partition_count, loop, clock, max_request_bytes, self._forget, authorizer
        )
        self._monotonic = clock.monotonic
        self.gate = self._shared.gate
        #: The open connections, in the order of arrival.
        self.connections: dict[Connection, None] = {}
        self._by_host: Counter[str] = Counter()
        self._refused_at = -_SECONDS_BETWEEN_WARNINGS

    @property
    def lent_bytes(self) -> int:
        """Memory of converted answers that have not left."""
        return self._shared.lent_bytes

    def accept(self, sock: socket.socket, client_host: str, listener_name: str) -> None:
        """Takes a new connection, or closes it if a limit is reached."""
        refused = self.limits.refuse(client_host, len(self.connections), self._by_host[client_host])
        if refused is not None:
            sock.close()
            if self._refused_at + _SECONDS_BETWEEN_WARNINGS < self._monotonic():
                self._refused_at = self._monotonic()
                logger.warning("a connection from %s was refused: %s", client_host, refused)
            return
        self.limits.size_buffers(sock, client_host)
        self.limits.watch_peer(sock)
        self._by_host[client_host] += 1
        connection = Connection(self._shared, sock, client_host, listener_name, self._security[listener_name])
        self.connections[connection] = None

    def _forget(self, connection: Connection, reason: str) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._by_host[connection.client_host] -= 1
            if not self._by_host[connection.client_host]:
                del self._by_host[connection.client_host]
        if reason:
            logger.debug("connection from %s closed: %s", connection.client_host, reason)

    def close_idle(self) -> None:
        """Closes connections that have neither sent nor taken anything for connections.max.idle.ms, and those of
        clients that have gone."""
        now = self._monotonic()
        for connection in list(self.connections):
            connection.look(now)
        idle_before = self.limits.idle_before(now)
        for connection in [item for item in self.connections if item.active_at < idle_before and not item.waits_for_us]:
            connection.framed.close("idle for too long")

    async def close(self, grace_seconds: float) -> None:
        """Lets requests in work finish for a while, then closes every connection."""
        if self._shared.tasks:
            await asyncio.wait(self._shared.tasks, timeout=grace_seconds)
        for task in list(self._shared.tasks):
            task.cancel()
        for connection in list(self.connections):
            connection.framed.close("the broker stops")
