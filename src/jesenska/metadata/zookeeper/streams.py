"""The source of connections of ZooKeeper's protocol: the system, or a substitute in a simulation. A stream is a
connection with asyncio's transports and protocols at its two ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

#: Makes the protocol at this end of a stream.
MakeProtocol = Callable[[], asyncio.Protocol]


class StreamServer(Protocol):
    """Accepts streams until it is closed; accepted streams stay open."""

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class Streams(Protocol):
    async def open_stream(self, make: MakeProtocol, host: str, port: int) -> None:
        """Opens a stream with the protocol of `make` at this end; OSError if there is no answer."""

    async def serve_streams(self, make: MakeProtocol, listening: socket.socket) -> StreamServer:
        """Accepts streams at a listening socket, which is closed with the server."""
        ...


class SystemStreams:
    """The system's streams."""

    async def open_stream(self, make: MakeProtocol, host: str, port: int) -> None:
        await asyncio.get_running_loop().create_connection(make, host, port)

    async def serve_streams(self, make: MakeProtocol, listening: socket.socket) -> StreamServer:
        return await asyncio.get_running_loop().create_server(make, sock=listening)
