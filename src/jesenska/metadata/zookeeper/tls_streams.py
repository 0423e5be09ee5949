"""The server's side of TLS for ZooKeeper's protocol: the handshake of each new connection, with limits.

    accepted -> handshake (at most HANDSHAKE_SECONDS) -> the connection's own protocol, with a transport that encrypts

A handshake costs memory and time before anything is known of the client. So at most HANDSHAKES_MAX run at the same
time: the oldest gives way to the newest."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 10.0
HANDSHAKES_MAX: Final = 100


class _Early(asyncio.Protocol):
    """Keeps what a client sends directly after its handshake, until the connection's own protocol is there."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class _Handshake(asyncio.Protocol):
    """One connection until its handshake has ended."""

    def __init__(self, server: TlsServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()  # the bytes belong to the handshake
        self._server.begin(transport)


class TlsServer:
    """A listening server whose streams are encrypted (`StreamServer`). `open` starts it."""

    def __init__(self, make: Callable[[], asyncio.Protocol], context: Callable[[], ssl.SSLContext]) -> None:
        self._make = make
        self._context = context
        self._handshakes: dict[asyncio.Transport, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    @staticmethod
    async def open(
        make: Callable[[], asyncio.Protocol], listening: socket.socket, context: Callable[[], ssl.SSLContext]
    ) -> TlsServer:
        """Accepts streams on a listening socket. `make` returns the protocol of a stream after its handshake, and
        `context` the TLS context for the next handshake."""
        server = TlsServer(make, context)
        server._server = await asyncio.get_running_loop().create_server(lambda: _Handshake(server), sock=listening)
        return server

    def begin(self, transport: asyncio.Transport) -> None:
        """Starts the handshake of an accepted connection."""
        while len(self._handshakes) >= HANDSHAKES_MAX:
            oldest = next(iter(self._handshakes))
            self._handshakes.pop(oldest).cancel()
            oldest.abort()
        task = asyncio.get_running_loop().create_task(self._shake(transport))
        self._handshakes[transport] = task
        task.add_done_callback(lambda _: self._handshakes.pop(transport, None))

    async def _shake(self, transport: asyncio.Transport) -> None:
        early = _Early()
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport, early, self._context(), server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except (OSError, TimeoutError) as error:
            address = transport.get_extra_info("peername")
            reason = getattr(error, "reason", None) or error
            logger.warning(
                "the TLS handshake of %s fails: %s",
                address[0] if address else "a client",
                reason,
                extra={"once_a_minute": (address[0] if address else "", "handshake")},
            )
            transport.abort()
            return
        if encrypted is None or early.is_lost:
            return
        protocol = self._make()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if early.data:
            protocol.data_received(bytes(early.data))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport, task in list(self._handshakes.items()):
            task.cancel()
            transport.abort()

    async def wait_closed(self) -> None:
        if self._server is not None:
            await self._server.wait_closed()
        await asyncio.gather(*self._handshakes.values(), return_exceptions=True)
