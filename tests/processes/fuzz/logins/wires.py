"""An exchange of a hostile client is a generator: it yields what to send (a `Step`), and gets what came back, or None
once the broker has closed the connection. So one thread runs hundreds of exchanges at once (`sender`).

A wire sends frames and returns the broker's frames: `PlainWire` as they are, `TlsWire` through TLS."""

from __future__ import annotations

import ssl
from collections.abc import Generator
from enum import Enum
from typing import Final, NamedTuple, Protocol

from jesenska.wire.codec import encode
from jesenska.wire.headers import request_head
from jesenska.wire.language import Message
from jesenska.wire.messages.k03_metadata import MetadataRequest
from jesenska.wire.registry import APIS


class Wants(Enum):
    """What an exchange waits for after it has sent something."""

    NOTHING = "nothing"
    BYTES = "bytes"
    FRAME = "frame"
    END = "the end of the connection"


class Step(NamedTuple):
    """Bytes to send, and what to wait for. With `ends`, the client closes its sending side."""

    data: bytes
    wants: Wants
    ends: bool = False


Steps = Generator[Step, bytes | None, bytes | None]
#: The correlation id of the request that shows if a client was let in.
PROBE_ID: Final = 0x7E577E57


def frame(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """A request with its length in front."""
    api = APIS[request.api_key]
    head = request_head(api.key, version, correlation_id, "hostile", api.request_header_version(version))
    body = bytes(head) + encode(request, version)
    return len(body).to_bytes(4, "big") + body


PROBE: Final = frame(MetadataRequest(topics=[]), 1, PROBE_ID)


class Wire(Protocol):
    def open(self) -> Steps:
        """Begins; returns None if the broker has closed the connection."""

    def ask(self, data: bytes, *, ends: bool = False) -> Steps:
        """Sends bytes and returns the next frame of the broker, without its length."""

    def drip(self, data: bytes, size: int) -> Steps:
        """Sends bytes in pieces of this size, and returns the next frame of the broker."""


class PlainWire:
    """A connection without TLS."""

    def open(self) -> Steps:
        yield from ()
        return b""

    def ask(self, data: bytes, *, ends: bool = False) -> Steps:
        return (yield Step(data, Wants.FRAME, ends))

    def drip(self, data: bytes, size: int) -> Steps:
        cut = len(data) - min(size, len(data))
        for start in range(0, cut, size):
            if (yield Step(data[start : min(start + size, cut)], Wants.NOTHING)) is None:
                return None
        return (yield Step(data[cut:], Wants.FRAME))


class TlsWire:
    """A connection with TLS, which is always right by itself."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._frames = bytearray()
        self._has_ended = False

    def open(self) -> Steps:
        while True:
            try:
                self.object.do_handshake()
            except ssl.SSLWantReadError:
                came = yield Step(self._outgoing.read(), Wants.BYTES)
                if came is None:
                    return None
                self._incoming.write(came)
            except ssl.SSLError:
                return None
            else:
                return b""

    def ask(self, data: bytes, *, ends: bool = False) -> Steps:
        if not self._wrote(data):
            return None
        step = Step(self._outgoing.read(), Wants.BYTES, ends)
        while True:
            size = int.from_bytes(self._frames[:4], "big") + 4
            if len(self._frames) >= max(size, 4):
                found = bytes(self._frames[4:size])
                del self._frames[:size]
                return found
            if self._has_ended or (came := (yield step)) is None:
                return None
            step = Step(b"", Wants.BYTES)
            self._incoming.write(came)
            try:
                while piece := self.object.read(1 << 16):
                    self._frames += piece
                self._has_ended = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                self._has_ended = True

    def drip(self, data: bytes, size: int) -> Steps:
        for start in range(0, len(data), size):
            if not self._wrote(data[start : start + size]):
                return None
            if (yield Step(self._outgoing.read(), Wants.NOTHING)) is None:
                return None
        return (yield from self.ask(b""))

    def _wrote(self, data: bytes) -> bool:
        """Encrypts bytes. Returns False if the broker has ended the TLS connection."""
        try:
            self.object.write(data)
        except ssl.SSLError:
            return False
        return True


def probe(wire: Wire) -> Generator[Step, bytes | None, bool]:
    """Returns True if the broker serves a request of this client."""
    for _ in range(3):
        # Answers to earlier requests may come first.
        answer = yield from wire.ask(PROBE, ends=True)
        if answer is None:
            return False
        if answer[:4] == PROBE_ID.to_bytes(4, "big"):
            return len(answer) > 8
    return False
