"""The streams of a simulation: asyncio transports that use `SimulatedSocket`s, for programs that are written as
asyncio protocols."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jesenska.metadata.zookeeper.streams import ContextOf, MakeProtocol
from jesenska.testing.simulation.machine.network import NetworkOfProcess

if TYPE_CHECKING:
    import socket
    import ssl

_READ_BYTES = 64 * 1024
_HIGH_WATER_BYTES = 64 * 1024


class SimulatedTransport(asyncio.Transport):
    """One end of a stream, on the running event loop."""

    def __init__(self, sock: socket.socket, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": sock.getpeername(), "sockname": sock.getsockname()})
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._protocol = protocol
        self._unsent = bytearray()
        self._read_buffer = memoryview(bytearray(_READ_BYTES))
        self._high_bytes = _HIGH_WATER_BYTES
        self._is_reading = self._is_writing_paused = self._is_closing = self._is_lost = False
        protocol.connection_made(self)
        if not self._is_closing:
            self.resume_reading()

    # --- reading -----------------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._sock.fileno())

    def resume_reading(self) -> None:
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            self._loop.add_reader(self._sock.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            count = self._sock.recv_into(self._read_buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(error)
            return
        if count:
            self._protocol.data_received(bytes(self._read_buffer[:count]))
        elif not self._protocol.eof_received():
            self.close()
        else:
            self.pause_reading()

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        is_idle = not self._unsent
        self._unsent += data
        if is_idle:
            self._send()
            if self._unsent and not self._is_lost:
                self._loop.add_writer(self._sock.fileno(), self._writable)
        if len(self._unsent) > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def _writable(self) -> None:
        self._send()
        if self._is_lost:
            return
        if not self._unsent:
            self._loop.remove_writer(self._sock.fileno())
            if self._is_closing:
                self._lose(None)
                return
        if self._is_writing_paused and len(self._unsent) <= self._high_bytes // 4:
            self._is_writing_paused = False
            self._protocol.resume_writing()

    def _send(self) -> None:
        while self._unsent:
            try:
                sent = self._sock.send(self._unsent)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(error)
                return
            del self._unsent[:sent]

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = _HIGH_WATER_BYTES if high is None else high

    # --- the end -----------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """Closes the stream when all written bytes have been sent."""
        if self._is_closing:
            return
        self.pause_reading()
        self._is_closing = True
        if not self._unsent:
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        """Closes the stream at once."""
        self.pause_reading()
        self._is_closing = True
        self._loop.call_soon(self._lose, None)

    def _lose(self, error: OSError | None) -> None:
        if self._is_lost:
            return
        self.pause_reading()
        self._is_closing = self._is_lost = True
        self._unsent.clear()
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._protocol.connection_lost(error)


class SimulatedStreamServer:
    """Accepts the connections of one listening socket."""

    def __init__(self, make: MakeProtocol, listening: socket.socket) -> None:
        self._make = make
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except BlockingIOError:
                return
            SimulatedTransport(sock, self._make())

    def close(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()

    async def wait_closed(self) -> None:
        """Returns at once, since `close` takes no time."""


class StreamsOfProcess:
    """The streams as one process uses them (the interface `metadata.zookeeper.streams.Streams`)."""

    def __init__(self, network: NetworkOfProcess) -> None:
        self._network = network

    async def open_stream(self, make: MakeProtocol, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        assert tls is None, "the simulated network has no TLS"
        SimulatedTransport(await self._network.connect(host, port, -1, -1), make())

    async def serve_streams(
        self, make: MakeProtocol, listening: Any, tls: ContextOf | None = None
    ) -> SimulatedStreamServer:
        assert tls is None, "the simulated network has no TLS"
        return SimulatedStreamServer(make, listening)
