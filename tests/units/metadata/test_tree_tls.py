"""TLS at the tree's server: handshakes and their limits."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jesenska.base.clock import SystemClock
from jesenska.metadata.acl import Identity
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.tree_operations import ACL_ALL, Acl
from jesenska.metadata.zookeeper import tls_streams
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.session import TlsFailedError
from jesenska.metadata.zookeeper.frames import framed
from jesenska.metadata.zookeeper.messages import ConnectRequest, write
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.net.listener import listening_socket
from jesenska.security.authority import new_authority, write_secret
from jesenska.security.tls import TlsSettings, client_context, server_context
from tests.served_tree import QUICK
from tests.units.metadata.test_tree_guard import until


class Files:
    """The certificates of a server and of a client, and their authority's."""

    def __init__(self, directory: Path) -> None:
        authority, now = new_authority("tests", datetime.now(UTC)), datetime.now(UTC)
        self.names = {name: str(directory / f"{name}.pem") for name in ("ca", "server", "client", "other")}
        Path(self.names["ca"]).write_text(authority.pem)
        for name in ("server", "client"):
            write_secret(Path(self.names[name]), authority.issue(name, ["127.0.0.1"], now))
        write_secret(Path(self.names["other"]), new_authority("others", now).issue("other", ["127.0.0.1"], now))

    def settings(self, shown: str | None, protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")) -> TlsSettings:
        return TlsSettings(
            keystore_type="PEM",
            keystore_location=None if shown is None else self.names[shown],
            truststore_type="PEM",
            truststore_location=self.names["ca"],
            client_auth="required",
            enabled_protocols=protocols,
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def run(files: Files, body: Callable[[ZooKeeperServer], Awaitable[None]], shown: str = "server") -> None:
    context = server_context(files.settings(shown))

    async def main() -> None:
        clock = SystemClock()
        tree = EmbeddedTree.simulated(clock)
        server = ZooKeeperServer(tree, clock, QUICK, guard=Guard(required=frozenset({"x509"})))
        await server.start(None, (listening_socket("127.0.0.1", 0), lambda: context))
        try:
            async with asyncio.timeout(20):
                await body(server)
        finally:
            await server.stop()
            await tree.close()

    asyncio.run(main())


def client(files: Files, shown: str | None = "client", protocol: str = "TLSv1.3") -> ssl.SSLContext:
    return client_context(files.settings(shown, (protocol,)))


async def connected(server: ZooKeeperServer, context: ssl.SSLContext, timeout_ms: int = 5000) -> ZooKeeperStore:
    return await ZooKeeperStore.connect(
        ConnectString((("127.0.0.1", server.secure_port),)),
        session_timeout_ms=4000,
        connect_timeout_ms=timeout_ms,
        access=TreeAccess(context, has_certificate=True),
    )


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_a_client_is_known_by_its_certificate(files: Files, protocol: str) -> None:
    async def body(server: ZooKeeperServer) -> None:
        store = await connected(server, client(files, protocol=protocol))
        await store.create("/a", b"x" * 1_000_000, acl=(Acl(ACL_ALL, "auth", ""),))
        assert (await store.get("/a"))[0] == b"x" * 1_000_000
        assert server.tree.tree.acl("/a")[0] == (Acl(ACL_ALL, "x509", "CN=client"),)
        assert Identity("x509", "CN=client").scheme in server.guard.required
        await store.close()

    run(files, body)


@pytest.mark.parametrize("shown", [None, "other"])
def test_a_client_without_a_certificate_of_the_authority_is_refused(
    files: Files, shown: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(server: ZooKeeperServer) -> None:
        with pytest.raises(Exception, match="CONNECTION_LOSS"):
            await connected(server, client(files, shown), 300)
        assert not server.connections

    run(files, body)
    assert "the TLS handshake of 127.0.0.1 fails" in caplog.text


def test_a_server_of_another_authority_is_refused(files: Files) -> None:
    async def body(server: ZooKeeperServer) -> None:
        with pytest.raises(TlsFailedError) as caught:
            await connected(server, client(files), 300)
        assert "certificate" in caught.value.reason

    run(files, body, "other")


def test_what_a_client_sends_together_with_its_handshake_is_not_lost(files: Files) -> None:
    """With TLS 1.3 the first request may arrive in the same read as the end of the handshake."""

    async def body(server: ZooKeeperServer) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client(files).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.secure_port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        tls.write(framed(write(bytearray(), ConnectRequest(0, 0, 4000, 0, bytes(16)))))
        writer.write(outgoing.read())  # the end of the handshake, and the request
        answer = b""
        while not answer:
            incoming.write(await reader.read(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer = tls.read(65536)
        assert int.from_bytes(answer[:4], "big") == len(answer) - 4 == 36
        writer.transport.abort()

    run(files, body)


def test_a_client_that_does_not_shake_hands_is_disconnected(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_streams, "HANDSHAKE_SECONDS", 0.05)

    async def body(server: ZooKeeperServer) -> None:
        for sent in (b"", b"ruok", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.secure_port)
            writer.write(sent)
            with contextlib.suppress(ConnectionError):
                while await reader.read(65536):
                    pass
            writer.transport.abort()
        assert not server.connections

    run(files, body)


def test_the_oldest_of_many_handshakes_gives_way(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_streams, "HANDSHAKES_MAX", 3)

    async def body(server: ZooKeeperServer) -> None:
        silent = [await asyncio.open_connection("127.0.0.1", server.secure_port) for _ in range(3)]
        handshakes = server._servers[0]._handshakes  # type: ignore[attr-defined]
        await until(lambda: len(handshakes) == 3)
        store = await connected(server, client(files))
        await store.create("/a")
        with contextlib.suppress(ConnectionError):
            assert await silent[0][0].read() == b""
        assert len(handshakes) == 2
        await store.close()
        for _, writer in silent:
            writer.transport.abort()

    run(files, body)
