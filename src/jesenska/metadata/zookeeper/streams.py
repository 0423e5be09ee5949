"""Where connections of ZooKeeper's protocol come from: the system, or whatever stands for it in a simulation. A stream
is a connection that asyncio's transports and protocols are at its two ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

#: Makes what is at this end of a stream.
MakeProtocol = Callable[[], asyncio.Protocol]


class StreamServer(Protocol):
    """Takes streams until it is closed; those that it has taken stay."""

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class Streams(Protocol):
    async def open_stream(self, make: MakeProtocol, host: str, port: int) -> None:
        """Opens a stream with what `make` gives at this end; OSError if nobody answers."""

    async def serve_streams(self, make: MakeProtocol, listening: socket.socket) -> StreamServer:
        """Takes streams at a socket that listens, which is closed with the server."""
        ...


class SystemStreams:
    """The machine's own."""

    async def open_stream(self, make: MakeProtocol, host: str, port: int) -> None:
        await asyncio.get_running_loop().create_connection(make, host, port)

    async def serve_streams(self, make: MakeProtocol, listening: socket.socket) -> StreamServer:
        return await asyncio.get_running_loop().create_server(make, sock=listening)
