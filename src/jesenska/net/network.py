"""Makes sockets of the operating system, or of a simulated network for tests.

A simulated socket behaves like `socket.socket`, as far as the package `net` uses it. It also has a method `send_file`,
with the arguments of `os.sendfile` except the first."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

from jesenska.net.listener import listening_socket


class Network(Protocol):
    def listening_socket(self, host: str, port: int, backlog: int, *, only_v6: bool = False) -> socket.socket:
        """Returns a non-blocking socket that listens on `host:port`. Raises JesenskaError, with a message of one
        sentence, if the socket cannot listen. With `only_v6`, the socket accepts no IPv4 connections."""

    async def connect(self, host: str, port: int, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
        """Returns a connected, non-blocking socket. Raises OSError if the connection cannot be made. For a buffer size
        of -1 the system chooses the size."""


class SystemNetwork:
    """The real network of this machine."""

    def listening_socket(self, host: str, port: int, backlog: int, *, only_v6: bool = False) -> socket.socket:
        return listening_socket(host, port, backlog, only_v6=only_v6)

    async def connect(self, host: str, port: int, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
        loop = asyncio.get_running_loop()
        failure: OSError | None = None
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes)):
                    if size > 0:
                        sock.setsockopt(socket.SOL_SOCKET, option, size)
                await loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failure or OSError("no address")
