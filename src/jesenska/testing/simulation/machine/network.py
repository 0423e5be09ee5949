"""A simulated network, without sockets of the operating system. Bytes arrive after a delay and in order. A sender can
send only as many bytes as the receiver has room for. Connections can be cut.

A `SimulatedSocket` has the methods of `socket.socket` that the package `net` uses. The socket's number is not a real
file descriptor: only the simulated event loop can use it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast

from jesenska.base.errors import JesenskaError
from jesenska.testing.simulation.machine.world import World

if TYPE_CHECKING:
    import socket

#: The first number of a simulated socket. It is far larger than descriptors of real files.
_FIRST_NUMBER = 1 << 24
#: The largest number of bytes that are in flight to a socket or unread in it.
_ROOM_BYTES = 256 * 1024
_FIRST_PORT = 9092
_ESTABLISHED, _CLOSE_WAIT, _CLOSED = 1, 8, 7


class Host(Protocol):
    """The program that owns a socket, as the network uses it."""

    name: str
    is_dead: bool
    is_stirred: bool
    sockets: dict[int, SimulatedSocket]

    def stir(self, sock: SimulatedSocket) -> None: ...


class SimulatedSocket:
    """One end of a connection, or a listening socket."""

    def __init__(self, network: SimulatedNetwork, process: Host, address: tuple[str, int]) -> None:
        self.number = network.new_number()
        self.process = process
        self.address = address
        self.peer: SimulatedSocket | None = None
        self.arrived: deque[bytes] = deque()
        self.arrived_bytes = self.travelling_bytes = 0
        #: True if the other side has closed the connection and all bytes from that side have arrived.
        self.at_end = False
        self.is_reset = False
        self.closed = False
        #: Connections that wait to be accepted.
        self.backlog: deque[SimulatedSocket] = deque()
        #: The arrival time of the last bytes that were sent to this socket. Later bytes do not arrive before this
        #: time.
        self.last_arrival = 0.0
        self._network = network
        process.sockets[self.number] = self

    # --- used by an event loop ---------------------------------------------------------------------------------------

    @property
    def is_readable(self) -> bool:
        return bool(self.arrived or self.backlog) or self.at_end or self.is_reset

    @property
    def is_writable(self) -> bool:
        return self.is_reset or self.peer is None or self._room() > 0

    def _room(self) -> int:
        peer = self.peer
        return 0 if peer is None else _ROOM_BYTES - peer.arrived_bytes - peer.travelling_bytes

    # --- methods of a socket -----------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return -1 if self.closed else self.number

    def setblocking(self, flag: bool) -> None:
        """Does nothing: a simulated socket never blocks."""

    def setsockopt(self, *option: Any) -> None:
        """Does nothing: a simulated socket has no options."""

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        state = _CLOSED if self.is_reset else _CLOSE_WAIT if self.at_end else _ESTABLISHED
        return bytes([state]) if size else 0

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def getpeername(self) -> tuple[str, int]:
        return ("peer", 0) if self.peer is None else self.peer.address

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "nobody has come")
        accepted = self.backlog.popleft()
        return accepted, accepted.getpeername()

    def recv_into(self, buffer: memoryview) -> int:
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if not self.arrived:
            if self.at_end:
                return 0
            raise BlockingIOError(errno.EAGAIN, "nothing has arrived")
        head = self.arrived[0]
        count = min(len(head), len(buffer))
        buffer[:count] = head[:count]
        if count == len(head):
            self.arrived.popleft()
        else:
            self.arrived[0] = head[count:]
        peer = self.peer
        if peer is not None and peer._room() <= 0:
            peer.process.stir(peer)  # it waits for room
        self.arrived_bytes -= count
        return count

    def send(self, data: bytes | bytearray | memoryview) -> int:
        if self.is_reset or self.closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        peer = self.peer
        assert peer is not None
        if peer.closed or peer.process.is_dead:
            self._network.reset(self)
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        count = min(len(data), self._room())
        if count <= 0:
            raise BlockingIOError(errno.EAGAIN, "the other side has no room")
        self._network.carry(self, peer, bytes(data[:count]))
        return count

    def sendmsg(self, buffers: Iterable[bytes | bytearray | memoryview], ancillary: object = (), flags: int = 0) -> int:
        return self.send(b"".join(buffers))

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        data = os.pread(descriptor, min(count, max(1, self._room())), position)
        return self.send(data) if data else 0

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.process.sockets.pop(self.number, None)
        self._network.left(self)


class SimulatedNetwork:
    """All connections of a simulation. A process uses the network through the object that `of` returns."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random.random
        self._numbers = _FIRST_NUMBER
        self._listening: dict[tuple[str, int], SimulatedSocket] = {}
        self.connections: list[tuple[SimulatedSocket, SimulatedSocket]] = []
        #: The smallest and the largest delay of bytes, in seconds.
        self.latency = (0.0002, 0.002)
        #: For each pair of a sending and a receiving process, the time until which the bytes are held. None means any
        #: process.
        self._cut_off: dict[tuple[Host | None, Host | None], float] = {}

    def new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def of(self, process: Host) -> NetworkOfProcess:
        return NetworkOfProcess(self, process)

    def listen(self, process: Host, host: str, port: int) -> SimulatedSocket:
        port = port or next(number for number in range(_FIRST_PORT, 65536) if (host, number) not in self._listening)
        if (host, port) in self._listening:
            raise JesenskaError(f"Port {port} is taken by another process.")
        listening = SimulatedSocket(self, process, (host, port))
        self._listening[host, port] = listening
        return listening

    def connect(self, process: Host, host: str, port: int, done: Callable[[SimulatedSocket | None], None]) -> None:
        """Calls `done` after a delay with the new connection, or with None if nothing listens at the address."""

        def arrive() -> None:
            listening = self._listening.get((host, port))
            if process.is_dead:
                return
            if listening is None or listening.process.is_dead:
                process.is_stirred = True
                done(None)
                return
            ours, theirs = (
                SimulatedSocket(self, process, (process.name, 0)),
                SimulatedSocket(self, listening.process, (host, port)),
            )
            ours.peer, theirs.peer = theirs, ours
            self.connections.append((ours, theirs))
            listening.backlog.append(theirs)
            listening.process.stir(listening)
            process.is_stirred = True
            done(ours)

        listening = self._listening.get((host, port))
        self._world.at(
            max(
                self._world.now + self._delay(),
                self._cut_until(process, listening.process if listening is not None else None),
            ),
            arrive,
        )

    def _delay(self) -> float:
        least, most = self.latency
        # The result is the same as that of Random.uniform, without a function call.
        return least + (most - least) * self._random()

    def carry(self, source: SimulatedSocket, target: SimulatedSocket, data: bytes) -> None:
        target.travelling_bytes += len(data)

        def arrive() -> None:
            target.travelling_bytes -= len(data)
            if not target.closed and not target.is_reset:
                target.arrived.append(data)
                target.arrived_bytes += len(data)
                target.process.stir(target)

        self._world.at(self._arrival(source), arrive)

    def _arrival(self, source: SimulatedSocket) -> float:
        """Returns the time at which bytes arrive that are sent now."""
        target = source.peer
        assert target is not None
        arrival = max(source.last_arrival, self._world.now + self._delay())
        if self._cut_off:
            arrival = max(arrival, self._cut_until(source.process, target.process))
        source.last_arrival = arrival
        return arrival

    def _cut_until(self, source: Host, target: Host | None) -> float:
        """Returns the time until which bytes from `source` to `target` are held. Returns 0.0 if they are not held."""
        cuts = self._cut_off
        return (
            max(cuts.get((source, None), 0.0), cuts.get((None, target), 0.0), cuts.get((source, target), 0.0))
            if cuts
            else 0.0
        )

    def cut_off(self, process: Host, seconds: float, *, sends: bool = True, receives: bool = True) -> None:
        """Holds the bytes that a process sends, or that are sent to it, for `seconds`. They arrive afterwards."""
        if sends:
            self._cut(process, None, seconds)
        if receives:
            self._cut(None, process, seconds)

    def hold_back(self, source: Host, target: Host, seconds: float) -> None:
        """Holds the bytes that `source` sends to `target`, for `seconds`."""
        self._cut(source, target, seconds)

    def cut_between(self, one: Host, other: Host, seconds: float) -> None:
        """Holds the bytes between two processes, in both directions, for `seconds`."""
        self._cut(one, other, seconds)
        self._cut(other, one, seconds)

    def _cut(self, source: Host | None, target: Host | None, seconds: float) -> None:
        self._cut_off[source, target] = max(self._cut_off.get((source, target), 0.0), self._world.now + seconds)

    def left(self, gone: SimulatedSocket) -> None:
        """Handles a socket that was closed, by its program or by the end of its process."""
        if self._listening.get(gone.address) is gone:
            del self._listening[gone.address]
            for waiting in list(gone.backlog):
                waiting.close()
            return
        peer = gone.peer
        if peer is None or peer.closed:
            return
        unread = bool(gone.arrived)

        def end() -> None:
            if unread:
                peer.is_reset = True
            else:
                peer.at_end = True
            peer.process.stir(peer)

        self._world.at(self._arrival(gone), end)

    def reset(self, one: SimulatedSocket) -> None:
        """Breaks a connection. Its bytes in flight are lost, and each side gets an error at its next use of the
        connection."""
        for end in (one, one.peer):
            if end is not None:
                end.is_reset = True
                end.process.stir(end)
                end.arrived.clear()
                end.arrived_bytes = 0

    def live(self) -> list[SimulatedSocket]:
        """Returns one end of each open connection."""
        self.connections = [
            pair
            for pair in self.connections
            if not (pair[0].closed or pair[1].closed or pair[0].is_reset or pair[1].is_reset)
        ]
        return [ours for ours, _ in self.connections]


class NetworkOfProcess:
    """The network as one process uses it (the interface `net.network.Network`)."""

    def __init__(self, network: SimulatedNetwork, process: Host) -> None:
        self._network = network
        self._process = process

    def listening_socket(self, host: str, port: int, backlog: int, *, only_v6: bool = False) -> socket.socket:
        return cast("socket.socket", self._network.listen(self._process, host, port))

    async def connect(self, host: str, port: int, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
        connected: asyncio.Future[SimulatedSocket] = asyncio.get_running_loop().create_future()

        def done(found: SimulatedSocket | None) -> None:
            if connected.done():
                if found is not None:
                    found.close()
            elif found is None:
                connected.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))
            else:
                connected.set_result(found)

        self._network.connect(self._process, host, port, done)
        try:
            return cast("socket.socket", await connected)
        except asyncio.CancelledError:
            if connected.done() and not connected.cancelled() and connected.exception() is None:
                connected.result().close()
            raise
