"""The dispatcher has all connections of a broker. It accepts new connections within the limits, and closes connections
that are idle or whose clients have disconnected. When the broker stops, it lets the requests that are being handled
finish. `connection` handles each request."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from jesenska.base.clock import Clock
from jesenska.broker.requests.authentication import ListenerSecurity
from jesenska.broker.requests.connection import Connection, SharedByConnections
from jesenska.broker.requests.connection_limits import ConnectionLimits
from jesenska.broker.requests.families import Families
from jesenska.quotas.client_quotas import ClientQuotas
from jesenska.quotas.connection_rates import ConnectionRates

if TYPE_CHECKING:
    from jesenska.broker.requests.authorization.access import Authorizer

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_WARNINGS = 10.0
#: The maximum number of refused connections that wait to be closed.
_DELAYED_MAX = 1000


class Dispatcher:
    """All connections of a broker. `families` has the parts of the broker for the handlers. `security` has the
    security settings of each listener (TLS, SASL) by name. Without an `authorizer` every user may do everything."""

    def __init__(
        self,
        families: Families,
        partition_count: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        max_request_bytes: int,
        limits: ConnectionLimits,
        security: Mapping[str, ListenerSecurity],
        authorizer: Authorizer | None,
        quotas: ClientQuotas,
        rates: ConnectionRates,
    ) -> None:
        self.limits = limits
        self._loop = loop
        self._rates = rates
        #: Refused connections whose address opens connections too fast, with the timers that close them.
        self._delayed: dict[socket.socket, asyncio.TimerHandle] = {}
        self._security = security
        self._shared = SharedByConnections(
            families, partition_count, loop, clock, max_request_bytes, self._forget, authorizer, quotas
        )
        self._monotonic = clock.monotonic
        self.gate = self._shared.gate
        #: The open connections, in the order of arrival.
        self.connections: dict[Connection, None] = {}
        self._by_host: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._refused_at = -_SECONDS_BETWEEN_WARNINGS

    @property
    def lent_bytes(self) -> int:
        """Returns the number of bytes of converted answers that are in memory because they have not been sent."""
        return self._shared.lent_bytes

    def accept(self, sock: socket.socket, client_host: str, listener_name: str) -> float:
        """Accepts a new connection, or closes it if a limit is reached. Returns the time in seconds for which the
        listener must not accept another connection."""
        refused = self.limits.refuse(
            client_host,
            len(self.connections),
            self._by_host[client_host],
            listener_name,
            self._by_listener[listener_name],
        )
        if refused is not None:
            sock.close()
            self._warn(client_host, refused)
            return 0.0
        pause_ms, close_after_ms = self._rates.took(listener_name, client_host)
        if close_after_ms:
            self._close_later(sock, client_host, close_after_ms / 1000)
            return 0.0
        self.limits.size_buffers(sock, client_host)
        self.limits.watch_peer(sock)
        self._by_host[client_host] += 1
        self._by_listener[listener_name] += 1
        connection = Connection(self._shared, sock, client_host, listener_name, self._security[listener_name])
        self.connections[connection] = None
        return pause_ms / 1000

    def _close_later(self, sock: socket.socket, client_host: str, seconds: float) -> None:
        """Closes a connection whose address opens connections too fast, after `seconds`, when the rate is within the
        quota again. Closes it at once if many such connections are waiting."""
        self._warn(client_host, "its address opens more connections than its connection_creation_rate")
        if len(self._delayed) >= _DELAYED_MAX:
            sock.close()
            return

        def close() -> None:
            del self._delayed[sock]
            sock.close()

        self._delayed[sock] = self._loop.call_later(seconds, close)

    def _warn(self, client_host: str, reason: str) -> None:
        if self._refused_at + _SECONDS_BETWEEN_WARNINGS < self._monotonic():
            self._refused_at = self._monotonic()
            logger.warning("a connection from %s was refused: %s", client_host, reason)

    def _forget(self, connection: Connection, reason: str) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._by_listener[connection.listener_name] -= 1
            self._by_host[connection.client_host] -= 1
            if not self._by_host[connection.client_host]:
                del self._by_host[connection.client_host]
        if reason:
            logger.debug("connection from %s closed: %s", connection.client_host, reason)

    def close_idle(self) -> None:
        """Closes connections without traffic for connections.max.idle.ms, and connections whose clients have
        disconnected."""
        now = self._monotonic()
        for connection in list(self.connections):
            connection.look(now)
        idle_before = self.limits.idle_before(now)
        for connection in [item for item in self.connections if item.active_at < idle_before and not item.waits_for_us]:
            connection.framed.close("idle for too long")

    async def close(self, grace_seconds: float) -> None:
        """Waits for requests that are being handled, at most `grace_seconds`, then closes all connections."""
        if self._shared.tasks:
            await asyncio.wait(self._shared.tasks, timeout=grace_seconds)
        for task in list(self._shared.tasks):
            task.cancel()
        for connection in list(self.connections):
            connection.framed.close("the broker stops")
        for sock, timer in self._delayed.items():
            timer.cancel()
            sock.close()
        self._delayed.clear()
