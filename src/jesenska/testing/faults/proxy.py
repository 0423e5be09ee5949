"""A TCP proxy that injects network faults between clients and a broker, or between brokers. It does not use Kafka's
protocol.

    client  --- to the target --->  proxy  --- to the target --->  broker
            <-- to the client ----         <-- to the client ----

    pass       bytes are forwarded as they arrive; this ends every other fault
    delay      each byte is forwarded a number of milliseconds after its arrival, in the same order
    limit      a number of bytes per second is forwarded, over all connections of a direction together
    hold       no bytes are forwarded, and connections stay open, as in a network that loses all packets
    cut        connections are reset at both ends, and bytes that were not forwarded are lost
    refuse     new connections are refused, since the port has no listener

Delay, limit and hold apply to both directions, unless `way` names one. Several faults of a direction apply together:
bytes that are held and delayed are forwarded when neither fault applies. The close of a connection is treated like its
bytes: it is delayed or held, and is forwarded after the bytes. At most about a megabyte of a connection is stored in
each direction; then the sender has to wait.

Clients of Kafka connect to the addresses in the brokers' metadata. So a broker must have the proxy's address as
`advertised.listeners`, or clients bypass the proxy:

    with FaultProxy() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        with BrokerProcess(data, settings=settings) as broker:
            proxy.target = broker.bootstrap
            ... clients connect to proxy.address ...
            proxy.cut()

The proxy has its own event loop in a thread. Its methods may be called from any thread, and return when the fault has
taken effect."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from enum import Enum, Flag, auto
from types import TracebackType
from typing import Any, TypeVar

from jesenska.base.errors import JesenskaError
from jesenska.client.cluster import parse_bootstrap

T = TypeVar("T")

_PIECE_BYTES = 64 * 1024
#: The largest number of pieces of a connection that are stored in each direction.
_PIECES_MAX = 16
#: If a direction has a limit, bytes are forwarded in pieces of at most this fraction of a second's bytes (1/50).
_LIMITED_PIECES_PER_SECOND = 50
_BACKLOG = 128
_CONNECT_SECONDS = 10.0
_CALL_SECONDS = 30.0
#: The socket option for a reset of the connection instead of an orderly close.
_RESET = struct.pack("ii", 1, 0)


class Way(Flag):
    """The directions of a connection."""

    TO_TARGET = auto()
    TO_CLIENT = auto()
    BOTH = TO_TARGET | TO_CLIENT


class _End(Enum):
    """The two ways in which the sender of a direction can end."""

    ORDERLY = auto()
    RESET = auto()


class _Valve:
    """The faults of one direction, which apply to all connections. It is used only on the event loop's thread."""

    def __init__(self) -> None:
        self.held = False
        self.delay_seconds = 0.0
        self.bytes_per_second: float | None = None
        self.passed_bytes = 0
        self._free_at = 0.0
        self._changed = asyncio.Event()

    def change(self, **what: Any) -> None:
        for name, value in what.items():
            setattr(self, name, value)
        self._free_at = 0.0
        # Waiting tasks are woken and check the faults again. Tasks that begin to wait later use the new event.
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def piece_bytes(self) -> int:
        """Returns the largest number of bytes that may be forwarded at once."""
        if self.bytes_per_second is None:
            return _PIECE_BYTES
        return max(1, min(_PIECE_BYTES, int(self.bytes_per_second / _LIMITED_PIECES_PER_SECOND)))

    async def admit(self, arrived_at: float, size: int) -> None:
        """Waits until `size` bytes, which arrived at `arrived_at`, may be forwarded."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            wait: float | None = None
            if not self.held:
                due = max(arrived_at + self.delay_seconds, self._free_at)
                if due <= now:
                    if self.bytes_per_second is not None:
                        self._free_at = now + size / self.bytes_per_second
                    self.passed_bytes += size
                    return
                wait = due - now
            changed = self._changed
            try:
                async with asyncio.timeout(wait):
                    await changed.wait()
            except TimeoutError:
                pass


class _Connection:
    """A client's connection, and the connection to the target that was opened for it."""

    def __init__(self, accepted: socket.socket) -> None:
        self._accepted = accepted
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, address: tuple[str, int] | None, to_target: _Valve, to_client: _Valve) -> None:
        """Forwards bytes until the connection has ended. If the target cannot be reached, the client's connection is
        reset."""
        try:
            try:
                client, to_the_client = await asyncio.open_connection(sock=self._accepted, limit=_PIECE_BYTES)
                self._writers.append(to_the_client)
                if address is None:
                    return
                async with asyncio.timeout(_CONNECT_SECONDS):
                    target, to_the_target = await asyncio.open_connection(*address, limit=_PIECE_BYTES)
            except (OSError, TimeoutError):
                return
            self._writers.append(to_the_target)
            both = [
                asyncio.create_task(self._carry(client, to_the_target, to_target)),
                asyncio.create_task(self._carry(target, to_the_client, to_client)),
            ]
            try:
                # If one direction ends in an orderly way, the other direction continues. A reset ends both directions.
                waiting = set(both)
                while waiting:
                    done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    if any(task.result() is _End.RESET for task in done):
                        return
                for writer in self._writers:
                    writer.close()
            finally:
                for task in both:
                    task.cancel()
                await asyncio.wait(both)
        finally:
            self.reset()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, valve: _Valve) -> _End:
        """Forwards the bytes of one direction, until its end."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes | _End]] = asyncio.Queue(_PIECES_MAX)

        async def read() -> None:
            while True:
                try:
                    piece = await reader.read(_PIECE_BYTES)
                except OSError:
                    await pieces.put((loop.time(), _End.RESET))
                    return
                await pieces.put((loop.time(), piece or _End.ORDERLY))
                if not piece:
                    return

        reading = asyncio.create_task(read())
        try:
            while True:
                arrived_at, piece = await pieces.get()
                if isinstance(piece, _End):
                    await valve.admit(arrived_at, 0)
                    if piece is _End.ORDERLY and not writer.transport.is_closing():
                        writer.write_eof()
                    return piece
                rest = memoryview(piece)
                while rest:
                    size = min(len(rest), valve.piece_bytes)
                    await valve.admit(arrived_at, size)
                    writer.write(rest[:size])
                    await writer.drain()
                    rest = rest[size:]
        except OSError:
            # The receiver of the bytes has closed its connection.
            return _End.RESET
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    def reset(self) -> None:
        """Resets both connections, unless they have ended."""
        if not self._writers:
            _reset_at_close(self._accepted)
            self._accepted.close()
        for writer in self._writers:
            if not writer.transport.is_closing():
                _reset_at_close(writer.transport.get_extra_info("socket"))
                writer.transport.abort()


def _reset_at_close(connection: Any) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)


class FaultProxy:
    """A proxy to `target` (host:port). The target can be set later: until then connections are reset. The proxy
    listens on a free port of `host`. It starts with the `with` block (or `start`) and ends with the block (or
    `close`)."""

    def __init__(self, target: str | None = None, *, host: str = "127.0.0.1") -> None:
        """Prepares the proxy. Raises JesenskaError if the target is not an address."""
        self.host = host
        self.port = 0
        self._target = None if target is None else _address(target)
        self._placeholder: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._listening: socket.socket | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._valves: dict[Way, _Valve] = {}
        self._ended = asyncio.Event()
        self._accepted = 0

    # --- start and end -----------------------------------------------------------------------------------------------

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> FaultProxy:
        """Starts the proxy. Raises OSError if the host is not an address of this machine."""
        assert self._thread is None, "the proxy runs already"
        # This socket reserves the port while no listener uses it. Connections are then refused, and no other process
        # gets the port.
        self._placeholder = self._bound()
        self.port = self._placeholder.getsockname()[1]
        self._valves = {Way.TO_TARGET: _Valve(), Way.TO_CLIENT: _Valve()}
        self._ended = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name=f"fault-proxy-{self.port}", daemon=True)
        self._thread.start()
        ready.wait()
        self._call(self._listen)
        return self

    def _bound(self) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(
            self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio checks the protocol of an accepted socket before it disables Nagle's algorithm.
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind(address)
        except BaseException:
            bound.close()
            raise
        return bound

    def _run(self, ready: threading.Event) -> None:
        async def work() -> None:
            self._loop = asyncio.get_running_loop()
            ready.set()
            await self._ended.wait()

        asyncio.run(work())

    def close(self) -> None:
        """Resets open connections and stops listening."""
        if self._thread is None:
            return

        async def end() -> None:
            await self._stop_listening()
            await self._reset_all()
            self._ended.set()

        self._call(end)
        self._thread.join()
        self._thread = None
        assert self._placeholder is not None
        self._placeholder.close()

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine on the proxy's event loop, and returns its result."""
        assert self._loop is not None and self._thread is not None, "the proxy was not started"
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(_CALL_SECONDS)

    # --- connections -------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = self._bound()
            self._listening.setblocking(False)
            self._listening.listen(_BACKLOG)
            asyncio.get_running_loop().add_reader(self._listening, self._take)

    async def _stop_listening(self) -> None:
        self._take()
        listening, self._listening = self._listening, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()

    def _take(self) -> None:
        """Accepts all client connections that wait in the listener's queue."""
        while self._listening is not None:
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            accepted.setblocking(False)
            self._accepted += 1
            connection = _Connection(accepted)
            task = asyncio.create_task(
                connection.serve(self._target, self._valves[Way.TO_TARGET], self._valves[Way.TO_CLIENT])
            )
            self._connections[task] = connection
            task.add_done_callback(self._connections.pop)

    async def _reset_all(self) -> int:
        self._take()
        connections = dict(self._connections)
        for task, connection in connections.items():
            connection.reset()
            task.cancel()
        if connections:
            await asyncio.wait(connections)
        return len(connections)

    # --- for tests ---------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Returns the proxy's address host:port, for clients and for `advertised.listeners`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str | None:
        """The address host:port of the server, usually a broker, to which new connections are forwarded."""
        if self._target is None:
            return None
        host, port = self._target
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @target.setter
    def target(self, target: str) -> None:
        self._target = _address(target)

    @property
    def connections(self) -> int:
        """Returns the number of open connections."""
        return len(self._connections)

    @property
    def accepted(self) -> int:
        """Returns the number of client connections that were accepted so far."""
        return self._accepted

    def passed_bytes(self, way: Way) -> int:
        """Returns the number of bytes that were forwarded so far, in one direction or in both directions together."""
        return sum(valve.passed_bytes for valve in self._of(way))

    # --- faults ------------------------------------------------------------------------------------------------------

    def _of(self, way: Way) -> Iterable[_Valve]:
        return [valve for one, valve in self._valves.items() if one in way]

    def _change(self, way: Way, **what: Any) -> None:
        async def work() -> None:
            for valve in self._of(way):
                valve.change(**what)

        self._call(work)

    def pass_all(self) -> None:
        """Ends every fault: held and delayed bytes are forwarded at once, and new connections are accepted."""
        self._change(Way.BOTH, held=False, delay_seconds=0.0, bytes_per_second=None)
        self.accept()

    def delay(self, milliseconds: float, way: Way = Way.BOTH) -> None:
        """Delays each byte by `milliseconds`. The value 0 ends the delay, also for bytes that are being delayed."""
        if milliseconds < 0:
            raise ValueError(f"{milliseconds} ms is not a delay: give 0 or more.")
        self._change(way, delay_seconds=milliseconds / 1000)

    def limit(self, bytes_per_second: float | None, way: Way = Way.BOTH) -> None:
        """Limits the bytes that are forwarded per second. None ends the limit."""
        if bytes_per_second is not None and bytes_per_second <= 0:
            raise ValueError(f"{bytes_per_second} bytes a second is not a limit: give a number above 0, or use hold().")
        self._change(way, bytes_per_second=bytes_per_second)

    def hold(self, way: Way = Way.BOTH) -> None:
        """Stops forwarding bytes until `release` is called. New connections are accepted, but their bytes are not
        forwarded."""
        self._change(way, held=True)

    def release(self, way: Way = Way.BOTH) -> None:
        """Ends `hold`: held bytes are forwarded in their order."""
        self._change(way, held=False)

    def cut(self) -> int:
        """Resets every connection. Returns the number of connections."""
        return self._call(self._reset_all)

    def refuse(self) -> None:
        """Refuses new connections. Open connections continue."""
        self._call(self._stop_listening)

    def accept(self) -> None:
        """Accepts new connections again."""
        self._call(self._listen)


def _address(text: str) -> tuple[str, int]:
    addresses = parse_bootstrap(text)
    if len(addresses) != 1:
        raise JesenskaError(
            f"{text!r} names {len(addresses)} addresses: a proxy has one target; give each broker a proxy of its own."
        )
    return addresses[0]
