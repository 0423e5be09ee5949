"""Opens and accepts the connections of ZooKeeper's protocol, through the operating system or a substitute in a
simulation. A stream is a connection with an asyncio transport and protocol at each end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl

#: Makes the asyncio protocol for this end of a stream.
MakeProtocol = Callable[[], asyncio.Protocol]
#: Returns the present TLS context of a server.
ContextOf = Callable[[], "ssl.SSLContext"]


class StreamServer(Protocol):
    """A listening server: it accepts streams until it is closed. Accepted streams stay open after that."""

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class Streams(Protocol):
    async def open_stream(self, make: MakeProtocol, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Opens a stream to a server, with the protocol that `make` returns at this end. With `tls` the stream is
        encrypted. Raises OSError if the server does not answer, and ssl.SSLError (an OSError) if the TLS handshake
        fails."""

    async def serve_streams(
        self, make: MakeProtocol, listening: socket.socket, tls: ContextOf | None = None
    ) -> StreamServer:
        """Accepts streams on a listening socket, which is closed with the returned server. `make` returns the protocol
        for each stream. With `tls`, which returns the TLS context for a new stream, the streams are encrypted."""
        ...


class SystemStreams:
    """Streams over the operating system's TCP sockets."""

    async def open_stream(self, make: MakeProtocol, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        await asyncio.get_running_loop().create_connection(make, host, port, ssl=tls)

    async def serve_streams(
        self, make: MakeProtocol, listening: socket.socket, tls: ContextOf | None = None
    ) -> StreamServer:
        if tls is not None:
            from jesenska.metadata.zookeeper.tls_streams import TlsServer

            return await TlsServer.open(make, listening, tls)
        return await asyncio.get_running_loop().create_server(make, sock=listening)
