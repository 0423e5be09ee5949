"""The server at the level of bytes: order, limits, words, restarts, hostile peers. The view of clients is tested in
tests/conformance."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import ManualClock, SystemClock
from jesenska.base.limits import ZOOKEEPER_OUTSTANDING_MAX, ZOOKEEPER_REQUEST_MAX_BYTES
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.journal import JournalFullError
from jesenska.metadata.tree import Tree
from jesenska.metadata.tree_operations import OPEN_ACL, Acl, Transaction, TreeCode
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.frames import framed
from jesenska.metadata.zookeeper.messages import (
    AuthPacket,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    GetDataResponse,
    OpCode,
    PathRequest,
    PathResponse,
    Reader,
    ReplyHeader,
    RequestHeader,
    SetDataRequest,
    SubRequest,
    SubResponse,
    VersionRequest,
    WatchableRequest,
    WatcherEvent,
    Xid,
)
from jesenska.metadata.zookeeper.server import connection as connection_module
from jesenska.metadata.zookeeper.server import four_letter_words
from jesenska.metadata.zookeeper.server.connection import ZooKeeperConnection
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.net.listener import listening_socket
from tests.raw_tree_client import Raw
from tests.served_tree import QUICK, served


def run(body: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(60):
                await body
        finally:
            while Raw.made:
                await Raw.made.pop().end()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_answers_come_in_order_each_with_the_state_of_its_place(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path / "tree.db") as server:
            raw = await Raw.open(server.port)
            raw.send(OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 0))
            for number in range(200):
                raw.send(OpCode.SET_DATA, SetDataRequest("/a", b"%d" % number, number))
                raw.send(OpCode.GET_DATA, WatchableRequest("/a", False))
                raw.send(OpCode.SET_DATA, SetDataRequest("/a", b"", 10_000))
                raw.send(OpCode.PING, xid=Xid.PING)
            created, _ = await raw.reply(PathResponse)
            for number in range(200):
                written, _ = await raw.reply()
                assert (written.xid, written.zxid, written.error) == (
                    3 * number + number + 2,
                    created.zxid + number + 1,
                    0,
                )
                read, found = await raw.reply(GetDataResponse)
                assert read.zxid == found.stat.mzxid == written.zxid
                assert found.data == b"%d" % number
                assert (await raw.reply())[0].error == TreeCode.BAD_VERSION
                assert (await raw.reply())[0].xid == Xid.PING

    run(body())


def test_an_event_comes_before_an_answer_that_shows_its_change(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(tmp_path / "tree.db") as server:
            raw, other = await Raw.open(server.port), await Raw.open(server.port)
            await other.ask(OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 0))
            for number in range(50):
                _, before = await raw.ask(OpCode.GET_DATA, WatchableRequest("/a", True), answer=GetDataResponse)
                other.send(OpCode.SET_DATA, SetDataRequest("/a", b"%d" % number, -1))
                heard = False
                while True:
                    raw.send(OpCode.GET_DATA, WatchableRequest("/a", False))
                    frame = await raw.frame()
                    if messages.read(ReplyHeader, Reader(frame)).xid == Xid.NOTIFICATION:
                        heard = True
                        frame = await raw.frame()
                    reader = Reader(frame)
                    messages.read(ReplyHeader, reader)
                    if messages.read(GetDataResponse, reader).stat.version > before.stat.version:
                        break
                assert heard
                await other.reply()

    run(body())


class SlowJournal:
    """A journal whose commits wait for a release."""

    def __init__(self) -> None:
        self.let_go = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.failure: Exception | None = None

    def commit(self, transactions: Sequence[Transaction]) -> None:
        self.begun.release()
        assert self.let_go.acquire(timeout=30)
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        pass


def test_nothing_is_answered_before_its_commit_and_a_full_disk_is_told() -> None:
    async def body() -> None:
        journal = SlowJournal()
        tree = EmbeddedTree(Tree(), SystemClock(), journal, ThreadPoolExecutor(max_workers=1))
        server = ZooKeeperServer(tree, SystemClock(), QUICK)
        await server.start(listening_socket("127.0.0.1", 0))
        journal.let_go.release()
        raw = await Raw.open(server.port)
        other = asyncio.ensure_future(Raw.open(server.port))
        assert await asyncio.to_thread(journal.begun.acquire, timeout=30)
        assert await asyncio.to_thread(journal.begun.acquire, timeout=30)
        journal.let_go.release()
        reader = await other
        raw.send(OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 0))
        raw.send(OpCode.EXISTS, WatchableRequest("/a", False))
        assert await asyncio.to_thread(journal.begun.acquire, timeout=30)
        assert (await reader.ask(OpCode.EXISTS, WatchableRequest("/a", False)))[0].error == TreeCode.NO_NODE
        journal.let_go.release()
        assert (await raw.reply())[0].error == 0
        assert (await raw.reply())[0].error == 0
        assert (await reader.ask(OpCode.EXISTS, WatchableRequest("/a", False)))[0].error == 0
        journal.failure = JournalFullError("The disk is full.")
        raw.send(OpCode.CREATE, CreateRequest("/b", b"", OPEN_ACL, 0))
        raw.send(OpCode.EXISTS, WatchableRequest("/b", False))
        journal.let_go.release()
        assert (await raw.reply())[0].error == TreeCode.CONNECTION_LOSS
        assert (await raw.reply())[0].error == TreeCode.NO_NODE
        journal.failure = None
        for _ in range(10):
            journal.let_go.release()
        assert (await raw.ask(OpCode.CREATE, CreateRequest("/b", b"", OPEN_ACL, 0)))[0].error == 0
        await server.stop()
        await tree.close()

    run(body())


def test_sessions_and_their_nodes_survive_a_restart(tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "tree.db"
        async with served(path) as server:
            raw, gone = await Raw.open(server.port), await Raw.open(server.port, timeout_ms=2000)
            await raw.ask(OpCode.CREATE, CreateRequest("/mine", b"", OPEN_ACL, 1))
            await gone.ask(OpCode.CREATE, CreateRequest("/gone", b"", OPEN_ACL, 1))
            zxid = (await raw.ask(OpCode.PING, xid=Xid.PING))[0].zxid
        async with served(path) as server:
            again = await Raw.open(server.port, raw.session.session_id, raw.session.password, zxid)
            assert again.session == raw.session
            await again.ask(OpCode.EXISTS, WatchableRequest("/gone", True))
            event = messages.read(WatcherEvent, Reader((await again.frame())[16:]))
            assert event == WatcherEvent(2, 3, "/gone")  # the event was not read
            assert (await again.ask(OpCode.EXISTS, WatchableRequest("/mine", False)))[0].error == 0
            wrong = await Raw.open(server.port, raw.session.session_id, bytes(16), zxid)
            assert wrong.session == ConnectResponse(0, 0, 0, bytes(16))
            assert await wrong.is_closed()
            late = await Raw.open(server.port, gone.session.session_id, gone.session.password, zxid)
            assert late.session.timeout_ms == 0
            ahead = await Raw.plain(server.port)
            ahead.write(ConnectRequest(0, zxid + 1000, 4000, 0, bytes(16)))
            assert await ahead.is_closed()
        # Without a server no client can come back: sessions are closed.
        tree = await EmbeddedTree.open(path, ManualClock())
        assert tree.tree.exists("/mine") is None
        assert tree.tree.sessions == {}
        await tree.close()

    run(body())


def test_a_session_on_another_connection_leaves_the_first(tmp_path: Path) -> None:
    async def body() -> None:
        async with served() as server:
            raw = await Raw.open(server.port)
            await raw.ask(OpCode.GET_DATA, WatchableRequest("/", True))
            again = await Raw.open(server.port, raw.session.session_id, raw.session.password)
            assert await raw.is_closed()
            assert (await again.ask(OpCode.PING, xid=Xid.PING))[0].error == 0
            assert len(server.watches) == 0
            header, _ = await again.ask(OpCode.CLOSE_SESSION)
            assert header.error == 0
            assert await again.is_closed()
            assert (await Raw.open(server.port, raw.session.session_id, raw.session.password)).session.timeout_ms == 0

    run(body())


def test_one_host_has_so_many_connections(tmp_path: Path) -> None:
    async def body() -> None:
        async with served(config=ServerConfig(tick_ms=1000, max_client_connections=3)) as server:
            raws = [await Raw.open(server.port) for _ in range(3)]
            refused = await Raw.plain(server.port)
            assert await refused.is_closed()
            await raws[0].end()
            await until(lambda: len(server.connections) == 2)
            assert (await Raw.open(server.port)).session.session_id > 0

    run(body())


def test_frames_have_a_limit_and_what_is_no_message_is_told(tmp_path: Path) -> None:
    async def body() -> None:
        async with served() as server:
            for length in (-1, ZOOKEEPER_REQUEST_MAX_BYTES + 1, 0x7FFFFFFF):
                raw = await Raw.open(server.port)
                raw.writer.write(struct.pack(">i", length))
                assert await raw.is_closed()
            raw = await Raw.open(server.port)
            assert (await raw.ask(OpCode.GET_DATA))[0].error == TreeCode.MARSHALLING_ERROR
            assert (await raw.ask(OpCode.GET_DATA, WatchableRequest("/", False), behind=b"abc"))[0].error == 0
            assert (await raw.ask(OpCode.CREATE_TTL, CreateRequest("/t", b"", OPEN_ACL, 5), behind=bytes(8)))[
                0
            ].error == TreeCode.UNIMPLEMENTED
            assert (await raw.ask(OpCode.CREATE, CreateRequest("/t", b"", OPEN_ACL, 4)))[
                0
            ].error == TreeCode.UNIMPLEMENTED
            assert (await raw.ask(OpCode.CREATE, CreateRequest("/t", b"", OPEN_ACL, 7)))[
                0
            ].error == TreeCode.BAD_ARGUMENTS
            assert (await raw.ask(99))[0].error == TreeCode.UNIMPLEMENTED
            assert await raw.is_closed()

    run(body())


def test_multis_are_answered_as_zookeeper_shapes_them() -> None:
    async def body() -> None:
        async with served() as server:
            raw = await Raw.open(server.port)

            async def multi(kind: OpCode, *requests: SubRequest) -> tuple[SubResponse, ...]:
                header, answer = await raw.ask(kind, behind=bytes(messages.write_multi(bytearray(), requests)))
                assert header.error == 0
                return messages.read_multi_response(Reader(answer))

            create = SubRequest(OpCode.CREATE, CreateRequest("/m", b"x", OPEN_ACL, 0))
            bad = SubRequest(OpCode.CHECK, VersionRequest("/m", 7))
            delete = SubRequest(OpCode.DELETE, VersionRequest("/m", -1))
            codes = [answer.error for answer in await multi(OpCode.MULTI, create, bad, delete)]
            assert codes == [TreeCode.OK, TreeCode.BAD_VERSION, TreeCode.RUNTIME_INCONSISTENCY]
            assert await multi(OpCode.MULTI, create) == (SubResponse(OpCode.CREATE, 0, PathResponse("/m")),)
            assert [answer.error for answer in await multi(OpCode.MULTI, create)] == [TreeCode.NODE_EXISTS]
            read = SubRequest(OpCode.GET_DATA, WatchableRequest("/m", False))
            none = SubRequest(OpCode.GET_DATA, WatchableRequest("/none", False))
            found = await multi(OpCode.MULTI_READ, read, none, read)
            assert [answer.error for answer in found] == [0, TreeCode.NO_NODE, 0]
            assert await multi(OpCode.MULTI, delete) == (SubResponse(OpCode.DELETE, 0, messages.EmptyResponse()),)
            assert await multi(OpCode.MULTI) == ()

    run(body())


def test_null_data_are_told_from_no_bytes(tmp_path: Path) -> None:
    """Apache Kafka creates nodes with null data, and checks whether they were written since."""

    async def body() -> None:
        path = tmp_path / "tree.db"
        zxid = 0
        for _ in range(2):
            async with served(path) as server:
                raw = await Raw.open(server.port, zxid=zxid)
                for node, data in (("/null", None), ("/none", b"")):
                    await raw.ask(OpCode.CREATE, CreateRequest(node, data, OPEN_ACL, 0))
                    header, found = await raw.ask(
                        OpCode.GET_DATA, WatchableRequest(node, False), answer=GetDataResponse
                    )
                    assert found.data == data
                    assert found.stat.data_length == 0
                    zxid = header.zxid

    run(body())


def test_identities_are_shown_and_rules_kept_from_others() -> None:
    async def body() -> None:
        async with served() as server:
            raw, other = await Raw.open(server.port), await Raw.open(server.port)
            assert (await raw.ask(OpCode.AUTH, AuthPacket(0, "digest", b"u:p"), xid=Xid.AUTH))[0] == ReplyHeader(
                Xid.AUTH, 0, 0
            )
            rules = (Acl(31, "auth", ""), Acl(1, "ip", "127.0.0.0/8"))
            assert (await raw.ask(OpCode.CREATE, CreateRequest("/a", b"", rules, 0)))[0].error == 0
            _, seen = await raw.ask(OpCode.GET_ACL, PathRequest("/a"), answer=messages.GetAclResponse)
            assert seen.acl == (Acl(31, "digest", "u:Jq7wMyA/w2Vd5WIDAKdu4OIIFEQ="), Acl(1, "ip", "127.0.0.0/8"))
            _, seen = await other.ask(OpCode.GET_ACL, PathRequest("/a"), answer=messages.GetAclResponse)
            assert seen.acl == (Acl(31, "digest", "u:x"), Acl(1, "ip", "127.0.0.0/8"))
            assert (await other.ask(OpCode.GET_DATA, WatchableRequest("/a", False)))[0].error == 0
            assert (await other.ask(OpCode.SET_DATA, SetDataRequest("/a", b"", -1)))[0].error == TreeCode.NO_AUTH
            assert (await other.ask(OpCode.CREATE, CreateRequest("/b", b"", (Acl(31, "auth", ""),), 0)))[
                0
            ].error == TreeCode.INVALID_ACL
            assert (await other.ask(OpCode.AUTH, AuthPacket(0, "sesame", b"open"), xid=Xid.AUTH))[
                0
            ].error == TreeCode.AUTH_FAILED
            assert await other.is_closed()

    run(body())


async def word(port: int, text: bytes) -> str:
    raw = await Raw.plain(port)
    raw.writer.write(text)
    return (await raw.reader.read()).decode()


def test_four_letter_words_are_answered() -> None:
    async def body() -> None:
        async with served() as server:
            raw = await Raw.open(server.port)
            await raw.ask(OpCode.CREATE, CreateRequest("/e", b"x", OPEN_ACL, 1))
            await raw.ask(OpCode.GET_DATA, WatchableRequest("/e", True))
            assert await word(server.port, b"ruok") == "imok"
            assert await word(server.port, b"isro") == "rw"
            srvr = await word(server.port, b"srvr")
            assert srvr.startswith("Zookeeper version: 3.8.4-")
            assert "\nMode: standalone\nNode count: 5\n" in srvr
            assert "Zxid: 0x2\n" in srvr
            assert "[1](queued=0,recved=3,sent=2)\n" in await word(server.port, b"stat")
            assert f"sid={raw.session.session_id:#x},lop=GETD," in await word(server.port, b"cons")
            monitored = dict(line.split("\t") for line in (await word(server.port, b"mntr")).splitlines())
            assert monitored["zk_znode_count"] == "5"
            assert (
                monitored["zk_ephemerals_count"]
                == monitored["zk_watch_count"]
                == monitored["zk_global_sessions"]
                == "1"
            )
            assert f"clientPort={server.port}\ntickTime=100\n" in await word(server.port, b"conf")
            assert await word(server.port, b"wchs") == "1 connections watching 1 paths\nTotal watches:1\n"
            assert (await word(server.port, b"envi")).startswith("Environment:\nzookeeper.version=3.8.4-")
            assert len(four_letter_words.WORDS) == 9

    run(body())


def test_a_peer_that_reads_nothing_is_not_read_from_and_harms_nobody() -> None:
    async def body() -> None:
        async with served() as server:
            bystander, raw = await Raw.open(server.port), await Raw.open(server.port)
            await bystander.ask(OpCode.CREATE, CreateRequest("/large", bytes(500_000), OPEN_ACL, 0))
            # Answers of 5 GB, if they were all made.
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(10_000):
                raw.send(OpCode.GET_DATA, WatchableRequest("/large", False))
            connection = next(reversed(server.connections))
            assert isinstance(connection, ZooKeeperConnection)
            await until(lambda: connection._is_paused)
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() < 3_000_000
            assert len(connection.slots) <= ZOOKEEPER_OUTSTANDING_MAX
            for _ in range(20):
                assert (await bystander.ask(OpCode.PING, xid=Xid.PING))[0].error == 0
            assert connection._transport.get_write_buffer_size() < 3_000_000
            await raw.end()
            await until(lambda: len(server.connections) == 1)

    run(body())


def test_a_peer_that_takes_no_events_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "ZOOKEEPER_UNSENT_EVENTS_BYTES", 1_000_000)

    async def body() -> None:
        async with served() as server:
            bystander, raw = await Raw.open(server.port), await Raw.open(server.port, timeout_ms=4000)
            names = ["/" + str(number) + "x" * 500_000 for number in range(60)]
            for name in names:
                await raw.ask(OpCode.EXISTS, WatchableRequest(name, True))
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for name in names:  # events of 30 MB
                assert (await bystander.ask(OpCode.CREATE, CreateRequest(name, b"", OPEN_ACL, 0)))[0].error == 0
            assert len(server.connections) == 1
            assert len(server.watches) == 0

    run(body())


@pytest.mark.parametrize("seed", range(6))
def test_hostile_bytes_close_their_own_connection_at_most(seed: int) -> None:
    chance = random.Random(seed)

    def hostile() -> bytes:
        kind = chance.choice(list(OpCode))
        body: bytes | bytearray = chance.choice(
            [
                bytearray(),
                bytearray(chance.randbytes(chance.randrange(60))),
                messages.write(
                    bytearray(),
                    CreateRequest(chance.choice(["/x", "", "x", "/x/", "/\0"]), b"", OPEN_ACL, chance.randrange(-2, 9)),
                ),
                messages.write(bytearray(), WatchableRequest("/x", True)),
                messages.write_multi(bytearray(), [SubRequest(OpCode.CHECK, VersionRequest("/", -1))]),
            ]
        )
        mutated = bytearray(messages.write(bytearray(), RequestHeader(chance.randrange(-10, 10), kind)) + body)
        if chance.random() < 0.5:
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        return framed(mutated) if chance.random() < 0.95 else bytes(mutated)

    async def body() -> None:
        problems: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(repr(context)))
        async with served() as server:
            bystander = await Raw.open(server.port)
            await bystander.ask(OpCode.CREATE, CreateRequest("/kept", b"x", OPEN_ACL, 0))
            for _ in range(30):
                raw = await Raw.open(server.port)
                for _ in range(20):
                    raw.writer.write(hostile())
                with contextlib.suppress(ConnectionError):
                    await raw.writer.drain()
                if chance.random() < 0.5:
                    raw.writer.write_eof()
                    await raw.is_closed()
                await raw.end()
                answer, found = await bystander.ask(
                    OpCode.GET_DATA, WatchableRequest("/kept", False), answer=GetDataResponse
                )
                assert answer.error == 0
                assert found.data == b"x"
        assert problems == []

    run(body())
