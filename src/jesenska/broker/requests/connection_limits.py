"""The limits of connections: their number in total and by address (max.connections, max.connections.per.ip and its
overrides), and their idle time (connections.max.idle.ms). Also the sizes of socket buffers, if the configuration sets
them.

Otherwise the operating system chooses the buffer sizes. The exception is the send buffer to a client on the same
machine: there the system would buffer megabytes, which costs a third more CPU time than sending smaller pieces.
Measurement: a group reads 0.6 million records of 1000 bytes in lz4. With the system's buffer size this takes 0.42 CPU
seconds, with 100 to 400 kB it takes 0.30 to 0.34 CPU seconds, and the rate is 5 to 10 % higher.

`dispatch` applies these limits: it accepts connections, and closes idle connections."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address

from jesenska.base.errors import InvalidConfigError
from jesenska.config.layers import BrokerConfig
from jesenska.config.settings.broker_settings import LISTENER_PREFIX

_UNLIMITED_SECONDS = float("inf")
#: If the setting of a rate has this value, there is no limit.
_UNLIMITED_RATE = 2**31 - 1
#: The size in bytes of the send buffer to a client on the same machine.
_LOCAL_SEND_BYTES = 400_000


class ConnectionLimits:
    """The limits of connections in a configuration. Raises InvalidConfigError if the overrides cannot be parsed."""

    def __init__(self, config: BrokerConfig, listeners: Sequence[str]) -> None:
        prefixes = {name: f"{LISTENER_PREFIX}{name.lower()}." for name in listeners}
        #: The maximum number of connections of each listener that has its own max.connections.
        self._of_listeners = _own(config, prefixes, "max.connections")
        rates: dict[str | None, int] = {None: config.integer("max.connection.creation.rate")}
        rates.update(_own(config, prefixes, "max.connection.creation.rate"))
        #: The limits of new connections per second, by listener. The key None stands for the limit of the whole
        #: broker.
        self.creation_rates = {name: float(rate) for name, rate in rates.items() if rate < _UNLIMITED_RATE}
        idle_ms = config.integer("connections.max.idle.ms")
        self._idle_seconds = idle_ms / 1000 if idle_ms >= 0 else _UNLIMITED_SECONDS
        self._all = config.integer("max.connections")
        self._per_host = config.integer("max.connections.per.ip")
        self._overrides = _overrides(config.string("max.connections.per.ip.overrides") or "")
        self._send_bytes = _explicit(config, "socket.send.buffer.bytes")
        self._receive_bytes = _explicit(config, "socket.receive.buffer.bytes")

    def refuse(self, host: str, connections: int, from_host: int, listener: str, from_listener: int) -> str | None:
        """Returns the reason why another connection from the host is refused, or None if it is accepted. A listener
        may have its own limit, below the broker's."""
        if connections >= self._all:
            return f"max.connections={self._all} is reached"
        own = self._of_listeners.get(listener)
        if own is not None and from_listener >= own:
            return f"max.connections={own} of listener {listener} is reached"
        limit = self._overrides.get(host, self._per_host)
        return (
            f"{limit} connections from one address are allowed (max.connections.per.ip)" if from_host >= limit else None
        )

    def idle_before(self, now: float) -> float:
        """Returns the time (by the clock of `now`) before which a connection's last traffic makes it idle. An idle
        connection is closed if none of its requests is being handled."""
        return now - self._idle_seconds

    def watch_peer(self, sock: socket.socket) -> None:
        """Enables TCP keepalive, as Kafka does: a client that has lost its network would never close the
        connection."""
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def size_buffers(self, sock: socket.socket, host: str) -> None:
        send_bytes = self._send_bytes
        if send_bytes is None and _is_local(host):
            send_bytes = _LOCAL_SEND_BYTES
        for option, size in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, self._receive_bytes)):
            if size is not None and size > 0:
                with suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, option, size)


def _own(config: BrokerConfig, prefixes: Mapping[str, str], setting: str) -> dict[str, int]:
    """Returns the listeners' own values of a setting. `prefixes` has the prefix of each listener's own settings."""
    return {
        name: config.integer(prefix + setting) for name, prefix in prefixes.items() if config.is_set(prefix + setting)
    }


def _explicit(config: BrokerConfig, name: str) -> int | None:
    return config.integer(name) if config.is_set(name) else None


def _is_local(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _overrides(text: str) -> dict[str, int]:
    """Parses limits by address, in the form `host:count,host:count`. Host names are resolved once."""
    found = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        host, _, count = item.rpartition(":")
        if not host or not count.isdigit():
            raise InvalidConfigError(
                f"max.connections.per.ip.overrides holds {item!r}; write address:count, separated by commas."
            )
        try:
            address = socket.gethostbyname(host.strip("[]")) if ":" not in host else host.strip("[]")
        except OSError:
            raise InvalidConfigError(f"max.connections.per.ip.overrides names {host}, which has no address.") from None
        found[address] = int(count)
    return found
