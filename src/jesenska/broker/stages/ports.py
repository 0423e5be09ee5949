"""The first stage of a start: binds the listeners, so that a port in use is reported before any file is changed."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from jesenska.base.limits import LISTEN_BACKLOG
from jesenska.config.layers import BrokerConfig
from jesenska.config.listeners import Endpoint, Listeners
from jesenska.net.network import Network


class Port(NamedTuple):
    """A listener's name and its listening socket."""

    listener_name: str
    listening: socket.socket


def bind(config: BrokerConfig, listeners: Listeners, network: Network) -> tuple[Port, ...]:
    """Opens the socket of each listener. If a socket cannot be opened, closes all sockets, and raises JesenskaError
    with a message of one sentence."""
    name = "socket.listen.backlog.size"
    # The event loop accepts connections between other work, while Kafka has a thread for this. So the backlog is
    # longer than Kafka's.
    backlog = config.integer(name) if config.is_set(name) else LISTEN_BACKLOG
    ports: list[Port] = []
    try:
        for item in listeners.opened:
            # If another listener has the same port, this IPv6 socket must not accept IPv4 connections, because the
            # other listener accepts them.
            shares = any(other.port == item.port != 0 and other is not item for other in listeners.opened)
            ports.append(Port(item.name, network.listening_socket(item.host, item.port, backlog, only_v6=shares)))
    except BaseException:
        for port in ports:
            port.listening.close()
        raise
    return tuple(ports)


def endpoints_of(listeners: Listeners, ports: Sequence[Port]) -> tuple[Endpoint, ...]:
    """Returns the endpoints that are advertised to clients."""
    numbers = {port.listener_name: port.listening.getsockname()[1] for port in ports}
    return listeners.advertise(numbers, socket.gethostname())
