"""A client's connection to one ZooKeeper server. It sends and receives frames. It also reads the answer to the
handshake, whose form differs from all other answers."""

from __future__ import annotations

import asyncio
from typing import Protocol

from jesenska.base.limits import ZOOKEEPER_ANSWER_MAX_BYTES
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.frames import Frames, framed
from jesenska.metadata.zookeeper.messages import ConnectResponse, MessageError


class LinkOwner(Protocol):
    """The session that uses a connection: the connection calls it for each frame."""

    def welcomed(self, link: Link, response: ConnectResponse) -> None:
        """Called with the server's answer to the handshake (ConnectResponse)."""
        ...

    def frame(self, frame: bytes) -> None:
        """Called with each later frame: an answer or a watch event. A MessageError raised here ends the connection."""
        ...

    def link_ended(self, link: Link, reason: str) -> None:
        """Called once when the connection has ended."""
        ...


class Link(asyncio.Protocol):
    """A client's connection to one server. The first frame received is the answer to the handshake; all later frames
    are passed to the owner.

    In one iteration of the event loop, the first frame is sent at once, and further frames are sent together at the
    end of the iteration. The reason: a client that reads a whole tree sends a hundred requests in one iteration, and
    each write costs a system call."""

    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        self._frames = Frames(ZOOKEEPER_ANSWER_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        #: Frames to send at the end of the current iteration of the event loop. None if nothing has been sent in this
        #: iteration.
        self._held: list[bytes] | None = None
        self.connected: asyncio.Future[ConnectResponse] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        try:
            while self._transport is not None and (frame := self._frames.next()) is not None:
                if not self.connected.done():
                    self.connected.set_result(messages.read_connected(frame))
                    # Later frames belong to the session, so the owner must get the session's id first.
                    self._owner.welcomed(self, self.connected.result())
                else:
                    self._owner.frame(frame)
        except MessageError as error:
            self.end(f"its answer is not understood: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(str(exc) if exc is not None else "the server closed the connection")

    def send(self, payload: bytes | bytearray) -> None:
        if self._transport is None:
            return
        if self._held is not None:
            self._held.append(framed(payload))
            return
        self._held = []
        asyncio.get_running_loop().call_soon(self._send_held)
        self._transport.write(framed(payload))

    def _send_held(self) -> None:
        held, self._held = self._held, None
        if held and self._transport is not None:
            self._transport.write(b"".join(held))

    def end(self, reason: str) -> None:
        self._send_held()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if not self.connected.done():
            self.connected.cancel()
        if not self.ended.done():
            self.ended.set_result(reason)
            self._owner.link_ended(self, reason)
