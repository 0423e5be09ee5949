"""A listening socket, which accepts connections and passes them to a function. With port 0 the system chooses a port,
which is the attribute `port`."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from jesenska.base.errors import JesenskaError
from jesenska.base.system_errors import is_out_of_descriptors, remedy_of

logger = logging.getLogger(__name__)

#: The maximum number of connections that are accepted in one iteration of the event loop, so that many new connections
#: do not delay other work.
_ACCEPT_MAX = 64
_RETRY_SECONDS = 0.5


class Listener:
    """Accepts connections from a listening socket and passes each to `on_accepted`, with the peer's address.
    `on_accepted` returns the time in seconds for which no further connection is accepted (0.0 for no pause). Closing
    the listener closes its socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        listening: socket.socket,
        on_accepted: Callable[[socket.socket, str], float],
    ) -> None:
        self.name = name
        self._loop = loop
        self._on_accepted = on_accepted
        self._socket = listening
        self.port = listening.getsockname()[1]
        self._retry: asyncio.TimerHandle | None = None
        self._open = False

    def start(self) -> None:
        self._open = True
        self._loop.add_reader(self._socket.fileno(), self._acceptable)

    def _acceptable(self) -> None:
        for _ in range(_ACCEPT_MAX):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                logger.error(
                    "listener %s cannot accept connections: %s; raise the limit of open files (ulimit -n)",
                    self.name,
                    error.strerror,
                )
                self._pause(_RETRY_SECONDS)
                return
            pause_seconds = self._on_accepted(accepted, str(address[0]))
            if pause_seconds > 0:
                self._pause(pause_seconds)
                return

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._retry = self._loop.call_later(seconds, self.start)

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if self._open and self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()


def listening_socket(host: str, port: int, backlog: int = 100, *, only_v6: bool = False) -> socket.socket:
    """Returns a non-blocking socket that listens on `host:port`. An empty host means all interfaces, with IPv4 and
    IPv6 if the system can serve both on one socket. With `only_v6`, an IPv6 socket accepts no IPv4 connections,
    because another socket accepts them on the same port. Raises JesenskaError with one sentence if the socket cannot
    listen, or its subclass PortTakenError if the port is taken."""
    wanted = f"{host or '*'}:{port}"
    try:
        if host == "":
            return _listening(
                socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET,
                ("", port),
                backlog,
                dual=socket.has_dualstack_ipv6(),
            )
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _listening(family, address, backlog, dual=False if only_v6 and family == socket.AF_INET6 else None)
    except socket.gaierror as error:
        raise JesenskaError(
            f"The listener's host {host!r} has no address ({error.strerror}): name an address of this machine."
        ) from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(
                f"Port {port} is taken by another process: stop that process, or choose another port for {wanted}.",
                port,
            ) from error
        if error.errno == errno.EACCES:
            raise JesenskaError(f"This user may not listen on {wanted}: choose a port above 1023.") from error
        if error.errno == errno.EADDRNOTAVAIL:
            raise JesenskaError(f"{host} is not an address of this machine: name one of its addresses.") from error
        if is_out_of_descriptors(error):
            raise JesenskaError(f"Cannot listen on {wanted} ({error.strerror}): {remedy_of(error)}.") from error
        raise JesenskaError(f"Cannot listen on {wanted}: {error.strerror}.") from error


def _listening(family: int, address: tuple[object, ...], backlog: int, dual: bool | None = None) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual is not None and family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening


class PortTakenError(JesenskaError):
    """Raised when the port is already used by another process."""

    def __init__(self, message: str, port: int) -> None:
        super().__init__(message)
        self.port = port
