"""A client of ZooKeeper's protocol that sends and reads messages one by one, for tests of servers."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Any, ClassVar

from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.frames import framed
from jesenska.metadata.zookeeper.messages import (
    ConnectRequest,
    ConnectResponse,
    Message,
    Reader,
    ReplyHeader,
    RequestHeader,
)


class Raw:
    """A connection; whoever runs tests ends all that were `made`."""

    made: ClassVar[list[Raw]] = []

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.xid = 0
        self.session: ConnectResponse
        self.made.append(self)

    @staticmethod
    async def plain(port: int) -> Raw:
        return Raw(*await asyncio.open_connection("127.0.0.1", port))

    @staticmethod
    async def open(
        port: int, session_id: int = 0, password: bytes = bytes(16), zxid: int = 0, timeout_ms: int = 4000
    ) -> Raw:
        raw = await Raw.plain(port)
        raw.write(ConnectRequest(0, zxid, timeout_ms, session_id, password))
        raw.session = messages.read_connected(await raw.frame())
        return raw

    def write(self, *parts: Message, behind: bytes = b"") -> None:
        self.writer.write(framed(messages.write(bytearray(), *parts) + behind))

    def send(self, kind: int, *body: Message, xid: int | None = None, behind: bytes = b"") -> None:
        self.xid += 1
        self.write(RequestHeader(self.xid if xid is None else xid, kind), *body, behind=behind)

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def reply(self, kind: type[Message] | None = None) -> tuple[ReplyHeader, Any]:
        reader = Reader(await self.frame())
        header = messages.read(ReplyHeader, reader)
        body = messages.read(kind, reader) if kind is not None and not header.error else bytes(reader.take(reader.left))
        return header, body

    async def ask(
        self,
        kind: int,
        *body: Message,
        answer: type[Message] | None = None,
        xid: int | None = None,
        behind: bytes = b"",
    ) -> tuple[ReplyHeader, Any]:
        self.send(kind, *body, xid=xid, behind=behind)
        return await self.reply(answer)

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    async def end(self) -> None:
        self.writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
