"""TLS between two framed connections over a socket pair: all data arrives, whatever its size and kind."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.regions import FileRegion
from jesenska.net.connection import FramedConnection, ReadBuffer
from jesenska.net.tls_transport import HandshakeTurns, TlsTransport, tls_client, tls_server
from jesenska.net.transport import Piece, PlainTransport, TransportFor
from jesenska.security.authority import new_authority
from jesenska.security.tls import SessionSlot, TlsSessions, TlsSettings, client_context, server_context
from jesenska.security.x500 import subject_name

_AUTHORITY = new_authority("test", datetime.now(UTC))
_OTHER = new_authority("other", datetime.now(UTC))


#: The ends that the current test has.
_ENDS: list[End] = []


def settings(name: str, *hosts: str, trusted: str = _AUTHORITY.pem, **more: Any) -> TlsSettings:
    pem = _AUTHORITY.issue(name, hosts, datetime.now(UTC))
    return TlsSettings(keystore_type="PEM", keystore_key=pem, truststore_certificates=trusted)._replace(**more)


class OpenFile:
    """A file whose region is sent."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.released = 0

    def fileno(self) -> int:
        return self.file.fileno()

    def acquire(self) -> None:
        """Does nothing when another region of the file is sent."""

    def release(self) -> None:
        self.released += 1


class End:
    """One end of a connection: its frames, and the reason why it was closed."""

    def __init__(self, sock: socket.socket, transport_for: TransportFor) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.connection = FramedConnection(
            asyncio.get_running_loop(),
            sock,
            ReadBuffer(),
            1 << 26,
            self._frame,
            self._close,
            None,
            transport_for,
            reads_in_parts=True,
        )

        _ENDS.append(self)

    def _frame(self, view: memoryview) -> bool:
        self.frames.put_nowait(bytes(view))
        return True

    def _close(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)

    def send(self, data: bytes) -> None:
        self.connection.send([len(data).to_bytes(4, "big"), data], len(data) + 4)


class Both:
    """A server and a client that are connected."""

    def __init__(
        self,
        server: ssl.SSLContext,
        client: ssl.SSLContext,
        name: str = "localhost",
        sockets: tuple[socket.socket, socket.socket] | None = None,
        slot: SessionSlot | None = None,
    ) -> None:
        ours, theirs = sockets or socket.socketpair()
        self.certificates: list[bytes | None] = []
        turns = HandshakeTurns(asyncio.get_running_loop())
        self.server = End(ours, tls_server(lambda: server, turns, self.certificates.append))
        self.client = End(theirs, tls_client(client, name, slot))


def tcp_pair(receive_buffer_bytes: int) -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection; the first has a receive buffer of this size, 0 for the system's choice."""
    with socket.socket() as listening:
        if receive_buffer_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        theirs = socket.create_connection(listening.getsockname())
        return listening.accept()[0], theirs


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(30):
                await body()
        finally:
            for end in _ENDS:
                end.connection.close()
            _ENDS.clear()

    asyncio.run(main())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("size", [0, 1, 16_384, 70_000, 3_000_000])
def test_frames_of_each_size_arrive_in_both_directions(version: str, size: int) -> None:
    async def body() -> None:
        only: dict[str, Any] = {"enabled_protocols": (version,)}
        both = Both(server_context(settings("broker", "localhost", **only)), client_context(settings("anna", **only)))
        data = os.urandom(size)
        both.client.send(data)
        both.client.send(b"next")
        assert await both.server.frames.get() == data
        both.server.send(data)
        assert await both.client.frames.get() == data
        assert await both.server.frames.get() == b"next"
        assert both.certificates == [None]

    run(body)


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("receive_buffer_bytes", [0, 4_096])
def test_the_end_of_a_large_frame_and_a_small_frame_after_it_are_read_at_once(
    secured: bool, receive_buffer_bytes: int
) -> None:
    """A socket that waits for many bytes of a large frame must not wait for bytes that do not come."""

    async def body() -> None:
        sockets = tcp_pair(receive_buffer_bytes)
        if secured:
            contexts = server_context(settings("broker", "localhost")), client_context(settings("anna"))
            both = Both(*contexts, sockets=sockets)
            server, client = both.server, both.client
        else:
            server, client = (End(item, PlainTransport) for item in sockets)
        for size in (1_000_000, 400_000, 131_073, 70_000, 66_000, 20_000, 3):
            data = os.urandom(size)
            client.send(data)
            assert await server.frames.get() == data
            client.send(b"small")
            assert await server.frames.get() == b"small"

    run(body)


class _CountingSocket(socket.socket):
    """Counts its reads."""

    reads = 0

    def recv_into(self, *given: Any) -> int:
        self.reads += 1
        return super().recv_into(*given)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets polls wait for many bytes")
def test_a_large_frame_takes_few_reads_however_small_its_pieces_are() -> None:
    async def body() -> None:
        ours, theirs = tcp_pair(0)
        with theirs:
            counting = _CountingSocket(fileno=ours.detach())
            server = End(counting, PlainTransport)
            theirs.setblocking(False)
            data = (400_000).to_bytes(4, "big") + bytes(400_000)
            for start in range(0, len(data), 2_000):
                await asyncio.get_running_loop().sock_sendall(theirs, data[start : start + 2_000])
                await asyncio.sleep(0)
            assert len(await server.frames.get()) == 400_000
            assert counting.reads < 60

    run(body)


def test_the_beginning_of_a_large_frame_is_read_when_its_owner_asks() -> None:
    async def body() -> None:
        ours, theirs = tcp_pair(0)
        with theirs:
            server = End(ours, PlainTransport)
            connection = server.connection
            theirs.sendall((400_000).to_bytes(4, "big") + bytes(10))
            while connection.progress[0] < 14:
                await asyncio.sleep(0)
            theirs.sendall(bytes(90))
            while connection.progress[0] < 104:
                connection.read_on()
                await asyncio.sleep(0)

    run(body)


def test_pieces_of_a_file_arrive_between_buffers(tmp_path: Path) -> None:
    async def body() -> None:
        both = Both(server_context(settings("broker", "localhost")), client_context(settings("anna")))
        content = os.urandom(1_000_000)
        (tmp_path / "log").write_bytes(content)
        file = OpenFile(tmp_path / "log")
        both.client.send(b"ready")
        await both.server.frames.get()
        pieces: list[Piece] = [(900_008).to_bytes(4, "big"), b"head", FileRegion(file, 10, 900_000), b"tail"]
        both.server.connection.send(pieces, 900_012)
        assert await both.client.frames.get() == b"head" + content[10:900_010] + b"tail"
        assert file.released == 1
        file.file.close()

    run(body)


def test_a_clients_certificate_is_asked_for_and_its_name_is_known() -> None:
    async def body() -> None:
        server = server_context(settings("broker", "localhost", client_auth="required"))
        both = Both(server, client_context(settings("anna")))
        both.client.send(b"x")
        assert await both.server.frames.get() == b"x"
        (certificate,) = both.certificates
        assert certificate is not None
        assert subject_name(certificate) == "CN=anna"

    run(body)


@pytest.mark.parametrize(
    ("server", "client", "name"),
    [
        (settings("broker", "localhost"), settings("anna", trusted=_OTHER.pem), "localhost"),
        (settings("broker", "localhost"), settings("anna"), "another.host"),
        (
            settings("broker", "localhost", client_auth="required"),
            settings("anna", keystore_key=None),
            "localhost",
        ),
        (
            settings("broker", "localhost", client_auth="required", trusted=_OTHER.pem),
            settings("anna"),
            "localhost",
        ),
        (
            settings("broker", "localhost", enabled_protocols=("TLSv1.3",)),
            settings("anna", enabled_protocols=("TLSv1.2",)),
            "localhost",
        ),
    ],
    ids=["authority", "host", "no certificate", "client's authority", "version"],
)
def test_a_peer_that_is_not_trusted_gets_no_frame(server: TlsSettings, client: TlsSettings, name: str) -> None:
    async def body() -> None:
        both = Both(server_context(server), client_context(client), name)
        both.client.send(b"secret")
        reasons = await asyncio.gather(both.server.closed, both.client.closed)
        assert any(reasons)
        assert both.server.frames.empty()

    run(body)


def test_a_host_need_not_be_named_where_endpoints_are_not_identified() -> None:
    async def body() -> None:
        client = client_context(settings("anna", endpoint_identification=""))
        both = Both(server_context(settings("broker", "localhost")), client, "another.host")
        both.client.send(b"x")
        assert await both.server.frames.get() == b"x"

    run(body)


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10\0\x12\0\0" + bytes(20), b"\x16\x03\x01\xff\xff" * 50]
)
def test_bytes_that_are_not_tls_end_the_connection(sent: bytes) -> None:
    async def body() -> None:
        ours, theirs = socket.socketpair()
        turns = HandshakeTurns(asyncio.get_running_loop())
        context = server_context(settings("broker", "localhost"))
        server = End(ours, tls_server(lambda: context, turns, lambda _: None))
        with theirs:
            theirs.sendall(sent)
            assert await server.closed
            assert server.frames.empty()

    run(body)


def test_a_silent_client_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr("jesenska.net.tls_transport.TLS_HANDSHAKE_SECONDS", 0.05)
        ours, theirs = socket.socketpair()
        context = server_context(settings("broker", "localhost"))
        turns = HandshakeTurns(asyncio.get_running_loop())
        with theirs:
            assert "handshake" in await End(ours, tls_server(lambda: context, turns, lambda _: None)).closed

    run(body)


def test_the_end_of_the_peer_is_the_end_of_the_stream() -> None:
    async def body() -> None:
        both = Both(server_context(settings("broker", "localhost")), client_context(settings("anna")))
        both.client.send(b"x")
        await both.server.frames.get()
        both.client.connection.close()
        assert await both.server.closed == ""

    run(body)


def test_a_paused_connection_goes_on_with_what_is_decrypted_already() -> None:
    async def body() -> None:
        both = Both(server_context(settings("broker", "localhost")), client_context(settings("anna")))
        seen: list[bytes] = []
        taken = asyncio.Event()

        def pauses(view: memoryview) -> bool:
            seen.append(bytes(view))
            taken.set()
            return False

        both.server.connection._on_frame = pauses
        for number in range(300):
            both.client.send(b"%d" % number + bytes(2000))
        for number in range(300):
            await taken.wait()
            taken.clear()
            assert seen[number].rstrip(b"\0") == b"%d" % number
            both.server.connection.resume()

    run(body)


def test_few_steps_of_handshakes_are_made_in_one_turn() -> None:
    async def body() -> None:
        turns = HandshakeTurns(asyncio.get_running_loop())
        assert [turns.take() for _ in range(6)] == [True] * 4 + [False] * 2
        await asyncio.sleep(0)
        assert turns.take()

    run(body)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_second_connection_resumes_the_session_and_its_user_is_known(version: str) -> None:
    async def body() -> None:
        only: dict[str, Any] = {"enabled_protocols": (version,)}
        server = server_context(settings("broker", "localhost", client_auth="required", **only))
        client = client_context(settings("anna", **only))
        slot = SessionSlot()
        found = [await _connected(server, client, slot) for _ in range(3)]
        assert [is_resumed for is_resumed, _ in found] == [False, True, True]
        assert {subject_name(certificate or b"") for _, certificate in found} == {"CN=anna"}

    run(body)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_session_ends_when_the_server_trusts_other_authorities(version: str) -> None:
    async def body() -> None:
        only: dict[str, Any] = {"enabled_protocols": (version,)}
        shown = settings("broker", "localhost", client_auth="required", **only)
        client, slot = client_context(settings("anna", **only)), SessionSlot()
        assert not (await _connected(server_context(shown), client, slot))[0]
        assert slot.session is not None
        distrusts = server_context(shown._replace(truststore_certificates=_OTHER.pem))
        both = Both(distrusts, client, slot=slot)
        both.client.send(b"let me in")
        assert "certificate" in await both.server.closed
        await both.client.closed
        assert both.server.frames.empty()

    run(body)


async def _connected(server: ssl.SSLContext, client: ssl.SSLContext, slot: SessionSlot) -> tuple[bool, bytes | None]:
    """Connects and sends a frame each way. Returns True if the session was resumed, and the client's certificate."""
    both = Both(server, client, slot=slot)
    both.client.send(b"hello")
    assert await both.server.frames.get() == b"hello"
    both.server.send(b"hello")
    await both.client.frames.get()
    transport = both.client.connection.transport
    assert isinstance(transport, TlsTransport)
    is_resumed = transport._object.session_reused
    both.client.connection.close()
    await both.server.closed
    return is_resumed, both.certificates[0]


def test_a_client_keeps_the_sessions_of_the_servers_that_it_met_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jesenska.security.tls.TLS_SESSIONS_MAX", 2)
    sessions = TlsSessions()
    first = sessions.of("one", 1)
    second = sessions.of("one", 2)
    assert sessions.of("one", 1) is first
    sessions.of("two", 1)
    assert sessions.of("one", 1) is first
    assert sessions.of("one", 2) is not second


def test_a_slow_reader_bounds_what_is_encrypted() -> None:
    async def body() -> None:
        both = Both(server_context(settings("broker", "localhost")), client_context(settings("anna")))
        both.client.send(b"x")
        await both.server.frames.get()
        asyncio.get_running_loop().remove_reader(both.client.connection.transport.fileno())
        both.server.send(bytes(20_000_000))
        transport = both.server.connection.transport
        assert isinstance(transport, TlsTransport)
        assert transport.unsent_bytes > 15_000_000
        assert len(transport._wire) < 400_000

    run(body)
