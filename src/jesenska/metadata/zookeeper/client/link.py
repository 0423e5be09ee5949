"""A client's connection to one server: frames in both directions, and the answer to the handshake, which has a
different form from all others."""

from __future__ import annotations

import asyncio
from typing import Protocol

from jesenska.base.limits import ZOOKEEPER_ANSWER_MAX_BYTES
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.frames import Frames, framed
from jesenska.metadata.zookeeper.messages import ConnectResponse, MessageError


class LinkOwner(Protocol):
    """The owner of a connection."""

    def welcomed(self, link: Link, response: ConnectResponse) -> None:
        """Handles the server's answer to the handshake."""
        ...

    def frame(self, frame: bytes) -> None:
        """Handles an answer or an event; MessageError ends the connection."""
        ...

    def link_ended(self, link: Link, reason: str) -> None:
        """Handles the end of the connection."""
        ...


class Link(asyncio.Protocol):
    """One connection to one server. Its first frame is the answer to the handshake, all others go to its owner.

    The first frame in an iteration of the loop is sent at once, the others together at the end of the iteration: a
    reader of a whole tree sends a hundred requests in one iteration, and each write costs a system call."""

    def __init__(self, owner: LinkOwner) -> None:
        self._owner = owner
        self._frames = Frames(ZOOKEEPER_ANSWER_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        #: Frames to send at the end of the iteration; None if nothing was sent in this one.
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
                    # The frames after it belong to the session, so the owner takes note of the session first.
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
