"""The client by itself: its addresses, and servers that do not follow the protocol. Its behaviour as a store is tested
in tests/conformance."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.metadata.store import SessionState
from jesenska.metadata.tree_operations import ConnectionLossError
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.link import Link
from jesenska.metadata.zookeeper.frames import Frames, framed
from jesenska.metadata.zookeeper.messages import ConnectResponse, MessageError, ReplyHeader, Xid


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("a:1", (("a", 1),), ""),
        ("a", (("a", 2181),), ""),
        ("a:1, b ,[::1]:3/chroot/of/it", (("a", 1), ("b", 2181), ("::1", 3)), "/chroot/of/it"),
        ("[::1]/", (("::1", 2181),), ""),
    ],
)
def test_a_connect_string_is_servers_and_a_chroot(text: str, servers: tuple[tuple[str, int], ...], chroot: str) -> None:
    assert ConnectString.parse(text) == ConnectString(servers, chroot)


@pytest.mark.parametrize("text", ["", "/chroot", ":1/x", "a:0", "a:65536", "a:b", "a:1//x", "a:1/../x"])
def test_what_is_no_connect_string_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        ConnectString.parse(text)


@given(payloads=st.lists(st.binary(max_size=100), max_size=10), cuts=st.lists(st.integers(1, 20), max_size=200))
def test_frames_are_found_however_their_bytes_arrive(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, payloads))
    frames, found = Frames(100), []
    while stream:
        size = cuts.pop() if cuts else len(stream)
        frames.feed(stream[:size])
        stream = stream[size:]
        while (frame := frames.next()) is not None:
            found.append(frame)
    assert found == payloads


@pytest.mark.parametrize("length", [-1, 101, 2**31 - 1])
def test_a_frames_length_is_limited(length: int) -> None:
    frames = Frames(100)
    frames.feed(length.to_bytes(4, "big", signed=True))
    with pytest.raises(MessageError):
        frames.next()


@contextlib.asynccontextmanager
async def strange_server(answer: bytes) -> AsyncIterator[int]:
    """A server that accepts every session, and answers the first request of each connection with these bytes."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.write(framed(messages.write(bytearray(), ConnectResponse(0, 4000, 7, bytes(16)))))
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            writer.write(answer)
            await reader.read()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        while pending := {task for task in tasks if not task.done()}:
            await asyncio.wait(pending)


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        framed(b""),
        framed(b"abc"),
        framed(messages.write(bytearray(), ReplyHeader(99, 1, 0))),
        framed(messages.write(bytearray(), ReplyHeader(1, 1, 0)) + b"abc"),
        framed(messages.write(bytearray(), ReplyHeader(Xid.NOTIFICATION, -1, 0)) + b"\x00"),
        framed(messages.write(bytearray(), ReplyHeader(Xid.SET_WATCHES, 1, -5))),
    ],
)
def test_an_answer_that_is_none_ends_the_connection_and_not_the_store(answer: bytes) -> None:
    async def body() -> None:
        async with asyncio.timeout(30), strange_server(answer) as port:
            store = await ZooKeeperStore.connect(ConnectString((("127.0.0.1", port),)))
            states: list[SessionState] = []
            back = asyncio.Event()

            def changed(state: SessionState) -> None:
                states.append(state)
                if state is SessionState.CONNECTED:
                    back.set()

            store.on_state(changed)
            with pytest.raises(ConnectionLossError):
                await store.get("/")
            await back.wait()
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
            await store.close()

    asyncio.run(body())


def test_what_is_asked_for_in_one_turn_is_sent_in_two_pieces_in_its_order() -> None:
    async def body() -> None:
        transport, link = Mock(asyncio.Transport), Link(Mock())
        link.connection_made(transport)
        for turn in (b"abc", b"d", b"ef"):
            for number in turn:
                link.send(bytes([number]))
            await asyncio.sleep(0)
        sent = [call.args[0] for call in transport.write.call_args_list]
        assert sent == [framed(b"a"), framed(b"b") + framed(b"c"), framed(b"d"), framed(b"e"), framed(b"f")]
        link.send(b"g")
        link.send(b"h")
        link.end("enough")
        assert [call.args[0] for call in transport.write.call_args_list[5:]] == [framed(b"g"), framed(b"h")]
        await asyncio.sleep(0)
        assert transport.write.call_count == 7

    asyncio.run(body())


def test_a_server_that_takes_sessions_and_ends_their_connections_is_asked_ever_more_seldom() -> None:
    """Seven connections in a row: the pauses between them are at least half of their maximum."""

    async def body() -> None:
        times: list[float] = []
        enough = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                writer.write(framed(messages.write(bytearray(), ConnectResponse(0, 4000, 7, bytes(16)))))
                await writer.drain()
                times.append(asyncio.get_running_loop().time())
                if len(times) == 7:
                    enough.set()
            writer.close()

        async with asyncio.timeout(30), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            store = await ZooKeeperStore.connect(ConnectString((("127.0.0.1", server.sockets[0].getsockname()[1]),)))
            await enough.wait()
            await store.close()
        assert times[6] - times[0] >= (0.05 + 0.1 + 0.2 + 0.4 + 0.8) / 2 - 0.05

    asyncio.run(body())


def test_a_server_that_does_not_know_what_the_session_has_seen_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """The server has a tree of its own, or an older copy of the tree. A pause does not help."""

    async def body() -> None:
        connections = 0
        enough = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                if connections == 1:
                    writer.write(framed(messages.write(bytearray(), ConnectResponse(0, 4000, 7, bytes(16)))))
                    writer.write(framed(messages.write(bytearray(), ReplyHeader(Xid.PING, 9, 0))))
                    await writer.drain()
                elif connections == 6:
                    enough.set()
            writer.close()

        async with asyncio.timeout(30), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            store = await ZooKeeperStore.connect(ConnectString((("127.0.0.1", server.sockets[0].getsockname()[1]),)))
            await enough.wait()
            await store.close()

    asyncio.run(body())
    lines = [record for record in caplog.records if "closes every connection of this session" in record.getMessage()]
    # From the third in a row on; the first may be a server that stops.
    assert 2 <= len(lines) <= 4
    assert all(record.levelname == "WARNING" and "once_a_minute" in record.__dict__ for record in lines)
