"""Finds a free port for a child process, and keeps it reserved.

A socket that is bound but does not listen reserves a port: the operating system does not choose this port for other
processes. A client that connects while the child restarts is refused immediately. The child can also bind the port,
because both sockets set SO_REUSEADDR. This works only on Linux. On other systems two sockets cannot be bound to the
same port, so a port is found but not reserved."""

from __future__ import annotations

import errno
import socket
import sys

from jesenska.net.listener import PortTakenError, listening_socket


class ReservedPort:
    """A reserved port at a host ("" for all addresses), until `close` is called."""

    def __init__(self, host: str, port: int) -> None:
        """Checks that a port is free, and reserves it. If `port` is 0, the operating system chooses a port. Raises
        JesenskaError with one sentence; if the port is in use, its subclass PortTakenError."""
        # Another process may listen at the port and allow others to bind it. So the port is tested by listening for a
        # moment.
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
        """Ends the reservation of the port."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
