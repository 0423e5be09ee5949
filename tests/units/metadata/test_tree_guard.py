"""Logins at the tree's server, and the limits for clients that have not logged in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jesenska.metadata.acl import SUPER, Identity, completed, permits
from jesenska.metadata.store import SessionState
from jesenska.metadata.tree_operations import (
    ACL_ALL,
    OPEN_ACL,
    READ,
    Acl,
    InvalidAclError,
    NoAuthError,
    SessionExpiredError,
    TreeCode,
)
from jesenska.metadata.zookeeper.client.access import TreeAccess, TreeLogin
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.messages import (
    AuthPacket,
    CreateRequest,
    OpCode,
    SaslToken,
    WatchableRequest,
    Xid,
)
from jesenska.metadata.zookeeper.server import guard as guards
from jesenska.metadata.zookeeper.server.guard import STRANGERS_REQUEST_MAX_BYTES, Guard
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.security.digest_md5 import DigestMd5Client
from tests.raw_tree_client import Raw
from tests.served_tree import served

_CLOSED = TreeCode.SESSION_CLOSED_REQUIRE_SASL_AUTH


def closed_guard(login_seconds: float = 30.0) -> Guard:
    return Guard({"kafka": "secret"}, required=frozenset({"sasl"}), login_seconds=login_seconds)


def run(body: Callable[[ZooKeeperServer], Awaitable[None]], guard: Guard) -> None:
    async def main() -> None:
        async with served(guard=guard) as server, asyncio.timeout(20):
            try:
                await body(server)
            finally:
                for raw in Raw.made:
                    await raw.end()
                Raw.made.clear()

    asyncio.run(main())


async def log_in(raw: Raw, user: str = "kafka", password: str = "secret") -> int:
    """Logs in by SASL; returns the error code of the last answer."""
    client = DigestMd5Client(user, password, "c")
    token = client.step(None)
    while token is not None:
        header, answer = await raw.ask(OpCode.SASL, SaslToken(token), answer=SaslToken)
        if header.error:
            assert answer == b"\xff\xff\xff\xff"  # Java's client reads a token after every header
            return header.error
        token = client.step(answer.token)
    return 0


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_stranger_is_refused_and_leaves_nothing_in_the_tree() -> None:
    async def body(server: ZooKeeperServer) -> None:
        for kind, message in (
            (OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 1)),
            (OpCode.GET_DATA, WatchableRequest("/", True)),
            (OpCode.PING, None),
            (OpCode.WHO_AM_I, None),
            (12345, None),
        ):
            raw = await Raw.open(server.port)
            header, _ = await raw.ask(kind, *(() if message is None else (message,)))
            assert (header.error, header.zxid) == (_CLOSED, 0)
            assert await raw.is_closed()
        assert server.tree.tree.exists("/a") is None
        await until(lambda: not server.tree.tree.sessions)
        assert not server.strangers

    run(body, closed_guard())


def test_a_session_goes_on_if_its_client_logs_in_on_a_second_connection() -> None:
    async def body(server: ZooKeeperServer) -> None:
        first = await Raw.open(server.port)
        session_id, password = first.session.session_id, first.session.password
        second = await Raw.open(server.port, session_id, password)
        assert await first.is_closed()
        assert await log_in(second) == 0
        assert (await second.ask(OpCode.GET_DATA, WatchableRequest("/", False)))[0].error == 0
        assert list(server.tree.tree.sessions) == [session_id]
        # A stranger that does the same, and does not log in, leaves nothing.
        first = await Raw.open(server.port)
        third = await Raw.open(server.port, first.session.session_id, first.session.password)
        assert await first.is_closed()
        await third.end()
        await until(lambda: list(server.tree.tree.sessions) == [session_id])
        assert not server.strange_sessions

    run(body, closed_guard())


def test_a_client_that_logs_in_is_served_and_known_by_its_name() -> None:
    async def body(server: ZooKeeperServer) -> None:
        raw = await Raw.open(server.port)
        assert await log_in(raw) == 0
        own = (Acl(ACL_ALL, "auth", ""),)
        assert (await raw.ask(OpCode.CREATE, CreateRequest("/a", b"x" * 100_000, own, 0)))[0].error == 0
        assert server.tree.tree.acl("/a")[0] == (Acl(ACL_ALL, "sasl", "kafka"),)
        assert not server.strangers
        assert len(server.tree.tree.sessions) == 1

    run(body, closed_guard())


@pytest.mark.parametrize(("required", "code"), [(True, _CLOSED), (False, TreeCode.AUTH_FAILED)])
def test_a_wrong_password_ends_the_connection(required: bool, code: TreeCode, caplog: pytest.LogCaptureFixture) -> None:
    async def body(server: ZooKeeperServer) -> None:
        for user, password in (("kafka", "wrong"), ("stranger", "secret")):
            raw = await Raw.open(server.port)
            assert await log_in(raw, user, password) == code
            assert await raw.is_closed()

    run(body, closed_guard() if required else Guard({"kafka": "secret"}))
    assert "unknown user or wrong password" in caplog.text
    assert "secret" not in caplog.text


def test_an_identity_of_another_scheme_does_not_admit() -> None:
    async def body(server: ZooKeeperServer) -> None:
        raw = await Raw.open(server.port)
        assert (await raw.ask(OpCode.AUTH, AuthPacket(0, "digest", b"u:p"), xid=Xid.AUTH))[0].error == 0
        assert (await raw.ask(OpCode.GET_DATA, WatchableRequest("/", False)))[0].error == _CLOSED

    run(body, closed_guard())

    async def by_digest(server: ZooKeeperServer) -> None:
        raw = await Raw.open(server.port)
        assert (await raw.ask(OpCode.AUTH, AuthPacket(0, "digest", b"u:p"), xid=Xid.AUTH))[0].error == 0
        assert (await raw.ask(OpCode.GET_DATA, WatchableRequest("/", False)))[0].error == 0

    run(by_digest, Guard(required=frozenset({"digest"})))


def test_a_server_without_users_answers_a_login_with_null() -> None:
    async def body(server: ZooKeeperServer) -> None:
        raw = await Raw.open(server.port)
        header, answer = await raw.ask(OpCode.SASL, SaslToken(b""), answer=SaslToken)
        assert (header.error, answer.token) == (0, None)
        with pytest.raises(NoAuthError, match="takes no logins"):
            await connected(server.port, TreeLogin("kafka", "secret"))

    run(body, Guard())


def test_a_stranger_has_little_time_and_short_requests() -> None:
    async def slow(server: ZooKeeperServer) -> None:
        for raw in (await Raw.plain(server.port), await Raw.open(server.port)):
            assert await raw.is_closed()
        await until(lambda: not server.tree.tree.sessions)

    run(slow, closed_guard(0.05))

    async def long(server: ZooKeeperServer) -> None:
        raw = await Raw.open(server.port)
        raw.writer.write((STRANGERS_REQUEST_MAX_BYTES + 1).to_bytes(4, "big"))
        assert await raw.is_closed()

    run(long, closed_guard())


def test_the_oldest_of_many_strangers_gives_way() -> None:
    async def body(server: ZooKeeperServer) -> None:
        raws = [await Raw.open(server.port) for _ in range(4)]
        assert await raws[0].is_closed()
        assert await log_in(raws[3]) == 0
        assert len(server.strangers) == 2

    run(body, Guard({"kafka": "secret"}, required=frozenset({"sasl"}), strangers_max=3))


def test_a_stranger_gets_no_figures_of_the_tree() -> None:
    async def answer_to(port: int, word: bytes) -> bytes:
        raw = await Raw.plain(port)
        raw.writer.write(word)
        raw.writer.write_eof()
        return await raw.reader.read()

    async def body(server: ZooKeeperServer) -> None:
        assert await answer_to(server.port, b"ruok") == b"imok"
        assert await answer_to(server.port, b"mntr") == b""

    run(body, closed_guard())


async def connected(port: int, login: TreeLogin | None) -> ZooKeeperStore:
    return await ZooKeeperStore.connect(
        ConnectString((("127.0.0.1", port),)),
        session_timeout_ms=2000,
        connect_timeout_ms=5000,
        access=TreeAccess(login=login),
    )


def test_our_client_logs_in_again_on_each_connection_before_other_requests() -> None:
    async def body(server: ZooKeeperServer) -> None:
        store = await connected(server.port, TreeLogin("kafka", "secret"))
        await store.create("/a", ephemeral=True, acl=(Acl(ACL_ALL, "auth", ""),))
        heard: list[object] = []
        await store.get("/a", heard.append)
        session_id = store.session_id
        for _ in range(3):
            states: list[SessionState] = []
            store.on_state(states.append)
            for connection in list(server.connections):
                connection.close()
            await until(lambda: states == [SessionState.SUSPENDED, SessionState.CONNECTED])  # noqa: B023
            assert store.session_id == session_id
            assert await store.exists("/a") is not None
        await store.set("/a", b"x")
        await store.sync()
        assert len(heard) == 1
        await store.close()
        assert not server.tree.tree.sessions

    run(body, closed_guard())


def test_our_client_without_the_right_login_fails_with_the_reason() -> None:
    async def body(server: ZooKeeperServer) -> None:
        with pytest.raises(NoAuthError, match="refuses the login"):
            await connected(server.port, TreeLogin("kafka", "wrong"))
        store = await connected(server.port, None)
        with pytest.raises(NoAuthError, match="only clients that log in"):
            await store.get("/")
        with pytest.raises(NoAuthError, match="only clients that log in"):
            await store.get("/")
        await store.close()

    run(body, closed_guard())


def test_a_login_that_is_refused_later_is_tried_again_until_the_session_ends() -> None:
    async def body(server: ZooKeeperServer) -> None:
        store = await connected(server.port, TreeLogin("kafka", "secret"))
        server.guard._users["kafka"] = "another"
        for connection in list(server.connections):
            connection.close()
        await until(lambda: store.state is SessionState.SUSPENDED)
        await until(lambda: store.state is not SessionState.SUSPENDED)
        assert store.state in (SessionState.LOST, SessionState.EXPIRED)
        await until(lambda: store.state is SessionState.EXPIRED)
        with pytest.raises(SessionExpiredError):
            await store.get("/")

    run(body, closed_guard())


def test_a_superuser_may_do_everything() -> None:
    rule = (Acl(READ, "sasl", "anna"),)
    assert permits(rule, ACL_ALL & ~READ, {SUPER})
    assert permits(rule, READ, {Identity("sasl", "super")})
    assert not permits((Acl(READ, "digest", "u:x"),), READ, {Identity("sasl", "super")})
    guard = Guard(superusers=frozenset({Identity("x509", "CN=root")}))
    assert SUPER in guard.completed(frozenset({Identity("x509", "CN=root")}))
    assert SUPER not in guard.completed(frozenset({Identity("sasl", "CN=root")}))


def test_rules_for_logins_and_certificates_are_stored() -> None:
    identities = frozenset({Identity("ip", "::1"), Identity("sasl", "kafka"), Identity("x509", "CN=a"), SUPER})
    assert completed("/a", (Acl(READ, "auth", ""),), identities) == (
        Acl(READ, "sasl", "kafka"),
        Acl(READ, "x509", "CN=a"),
    )
    for rule in (Acl(1, "sasl", "a@b@c"), Acl(1, "x509", "a"), Acl(1, "super", "")):
        with pytest.raises(InvalidAclError):
            completed("/a", (rule,), identities)


def test_no_secret_is_shown() -> None:
    assert "secret" not in repr(closed_guard())
    assert guards.LOGIN_SECONDS <= 30


def test_rules_of_every_scheme_survive_a_restart(tmp_path: Path) -> None:
    rules = (Acl(ACL_ALL, "sasl", "kafka"), Acl(READ, "world", "anyone"), Acl(1, "x509", "CN=ä"))

    async def main() -> None:
        async with served(tmp_path / "tree.db", guard=Guard({"kafka": "secret"})) as server:
            store = await connected(server.port, TreeLogin("kafka", "secret"))
            await store.create("/a", acl=rules)
            await store.close()
        async with served(tmp_path / "tree.db") as server:
            assert server.tree.tree.acl("/a")[0] == rules

    asyncio.run(main())
