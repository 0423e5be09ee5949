"""The same raw requests to our server and to Apache ZooKeeper 3.8.4: what is answered is the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.metadata.tree_operations import OPEN_ACL, TreeCode
from jesenska.metadata.watches import EventType
from jesenska.metadata.zookeeper.messages import (
    SYNC_CONNECTED,
    AuthPacket,
    CreateRequest,
    OpCode,
    SetDataRequest,
    WatchableRequest,
    WatcherEvent,
    WatcherKind,
    WatchesRequest,
    WhoAmIResponse,
    Xid,
)
from tests.conformance.conftest import need
from tests.peers.zookeeper import ZooKeeper
from tests.raw_tree_client import Raw
from tests.served_tree import ServedTree

pytestmark = pytest.mark.conformance


@pytest.fixture(params=["ours", "ZooKeeper"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    with contextlib.ExitStack() as stack:
        if request.param == "ours":
            yield stack.enter_context(ServedTree(tmp_path / "tree.db")).server.port
        else:
            need("java", "mvn")
            yield stack.enter_context(ZooKeeper(tmp_path)).port


async def ended(*clients: Raw) -> None:
    for client in clients:
        Raw.made.remove(client)
        await client.end()


def test_watches_are_looked_up_and_removed(port: int) -> None:
    async def body() -> None:
        raw = await Raw.open(port)

        async def code(kind: OpCode, watcher: int, path: str = "/a") -> int:
            return int((await raw.ask(kind, WatchesRequest(path, watcher)))[0].error)

        await raw.ask(OpCode.CREATE, CreateRequest("/a", b"", OPEN_ACL, 0))
        for kind in WatcherKind:
            assert await code(OpCode.CHECK_WATCHES, kind) == TreeCode.NO_WATCHER
            assert await code(OpCode.REMOVE_WATCHES, kind) == TreeCode.NO_WATCHER
        await raw.ask(OpCode.GET_DATA, WatchableRequest("/a", True))
        assert [await code(OpCode.CHECK_WATCHES, kind) for kind in WatcherKind] == [TreeCode.NO_WATCHER, 0, 0]
        await raw.ask(OpCode.GET_CHILDREN, WatchableRequest("/a", True))
        assert [await code(OpCode.CHECK_WATCHES, kind) for kind in WatcherKind] == [0, 0, 0]
        assert await code(OpCode.CHECK_WATCHES, WatcherKind.ANY, "/other") == TreeCode.NO_WATCHER
        assert await code(OpCode.REMOVE_WATCHES, WatcherKind.DATA) == 0
        assert [await code(OpCode.CHECK_WATCHES, kind) for kind in WatcherKind] == [0, TreeCode.NO_WATCHER, 0]
        # The watch on data is gone, the other one is heard.
        assert (await raw.ask(OpCode.SET_DATA, SetDataRequest("/a", b"x", -1)))[0].xid == raw.xid
        raw.send(OpCode.CREATE, CreateRequest("/a/b", b"", OPEN_ACL, 0))
        header, event = await raw.reply(WatcherEvent)
        assert (header.xid, event) == (Xid.NOTIFICATION, (EventType.NODE_CHILDREN_CHANGED, SYNC_CONNECTED, "/a"))
        await raw.reply()
        await raw.ask(OpCode.GET_DATA, WatchableRequest("/a", True))
        await raw.ask(OpCode.GET_CHILDREN, WatchableRequest("/a", True))
        assert await code(OpCode.REMOVE_WATCHES, WatcherKind.ANY) == 0
        assert await code(OpCode.CHECK_WATCHES, WatcherKind.ANY) == TreeCode.NO_WATCHER
        await ended(raw)

    asyncio.run(asyncio.wait_for(body(), 60))


def test_a_client_is_told_who_it_is(port: int) -> None:
    async def body() -> None:
        raw = await Raw.open(port)
        header, answer = await raw.ask(OpCode.WHO_AM_I, answer=WhoAmIResponse)
        assert (header.error, answer.identities) == (0, (("ip", "127.0.0.1"),))
        await raw.ask(OpCode.AUTH, AuthPacket(0, "digest", b"milena:secret"), xid=Xid.AUTH)
        header, answer = await raw.ask(OpCode.WHO_AM_I, answer=WhoAmIResponse)
        assert (header.error, sorted(answer.identities)) == (0, [("digest", "milena"), ("ip", "127.0.0.1")])
        await ended(raw)

    asyncio.run(asyncio.wait_for(body(), 60))
