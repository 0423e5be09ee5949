"""A port for a child, checked to be free and kept for it.

A socket that is bound and does not listen keeps a port: the system does not choose it for other processes, and a
client that connects while the child restarts is refused at once. The child binds it, too, because both allow that
(SO_REUSEADDR). Linux only: elsewhere two sockets cannot have one port, so a port is found but not kept."""

from __future__ import annotations

import errno
import socket
import sys

from jesenska.net.listener import PortTakenError, listening_socket


class ReservedPort:
    """`port` at a host ("" for all addresses), kept until `close`."""

    def __init__(self, host: str, port: int) -> None:
        """Checks and keeps a port; port 0 has the system choose. JesenskaError with one sentence, PortTakenError for a
        taken port."""
        # A process may listen there and allow others to bind, so the port is tested by listening for a moment.
        with listening_socket(host, port) as listening:
            family, address = listening.family, listening.getsockname()
        self.port: int = address[1]
        self._socket: socket.socket | None = None
        if sys.platform == "linux":
            self._keep(family, address)

    def _keep(self, family: int, address: tuple[object, ...]) -> None:
        kept = socket.socket(family, socket.SOCK_STREAM)
        try:
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if address[0] == "::" and socket.has_dualstack_ipv6():
                kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            kept.bind(address)
        except OSError as error:
            kept.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortTakenError(
                f"Port {self.port} was taken by another process a moment ago: try again.", self.port
            ) from error
        self._socket = kept

    def close(self) -> None:
        """Gives the port up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
