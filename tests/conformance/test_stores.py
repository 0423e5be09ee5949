"""The same tests for every `Store`: the embedded one, our server through our client, Apache ZooKeeper through our
client."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from jesenska.base.clock import ManualClock, system_random
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.store import ChrootStore, SessionState, Store
from jesenska.metadata.tree_operations import (
    OPEN_ACL,
    Acl,
    BadArgumentsError,
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    SetAcl,
    SetData,
    TreeCode,
)
from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore, connect
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.session import ClientSession
from jesenska.metadata.zookeeper.streams import SystemStreams
from tests.conformance.conftest import need
from tests.peers.zookeeper import ZooKeeper
from tests.served_tree import served

_ROOTS = itertools.count()


class Opened(Protocol):
    async def open(self) -> Store: ...

    async def expire(self, store: Store) -> None: ...


class Embedded:
    """Stores of the embedded tree."""

    def __init__(self, tree: EmbeddedTree) -> None:
        self._tree = tree
        self._stores: list[Store] = []

    async def open(self) -> Store:
        inner = await self._tree.session()
        self._stores.append(inner)
        if not await inner.exists("/root"):
            await inner.create("/root")
        return ChrootStore(inner, "/root")

    async def expire(self, store: Store) -> None:
        await self._tree.expire(store.session_id)

    async def close(self) -> None:
        await self._tree.close()


class Served:
    """Stores over a socket, each through a proxy of its own that can be cut."""

    def __init__(self, port: int, root: str) -> None:
        self._port, self._root = port, root
        self.inner: dict[int, ZooKeeperStore] = {}
        self.proxies: dict[int, Proxy] = {}

    async def open(self, session_timeout_ms: int = 4000, auth: tuple[tuple[str, bytes], ...] = ()) -> Store:
        proxy = Proxy(self._port)
        await proxy.start()
        where = ConnectString((("127.0.0.1", proxy.port),))
        inner = await ZooKeeperStore.connect(
            where, session_timeout_ms=session_timeout_ms, connect_timeout_ms=30_000, auth=auth
        )
        self.inner[inner.session_id], self.proxies[inner.session_id] = inner, proxy
        with contextlib.suppress(NodeExistsError):
            await inner.create(self._root)
        return ChrootStore(inner, self._root)

    async def expire(self, store: Store) -> None:
        """Closes the session from another connection, which knows its password, while its own is cut."""
        inner, proxy = self.inner[store.session_id], self.proxies[store.session_id]
        proxy.cut()
        other = ClientSession(ConnectString((("127.0.0.1", self._port),)), 4000, (), SystemStreams(), system_random())
        other.session_id, other.password = inner.session_id, inner._session.password
        await other.open(30_000)
        await other.close()
        proxy.mend()

    async def close(self) -> None:
        for inner in self.inner.values():
            await inner.close()
        for proxy in self.proxies.values():
            await proxy.stop()


class Proxy:
    """Passes bytes on, until it is cut; then it takes no connection until it is mended."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._takes = True
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._takes:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._pass_on(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
        sink.close()

    def cut(self) -> None:
        self._takes = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        self._takes = True

    async def stop(self) -> None:
        self.cut()
        self._server.close()
        while self._tasks:
            await asyncio.wait(set(self._tasks))


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Lets the loop go round until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    need("java", "mvn")
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


Run = Callable[[Callable[[Any], Coroutine[Any, Any, None]]], None]


@contextlib.asynccontextmanager
async def ours(path: Path) -> AsyncIterator[Served]:
    async with served(path) as server:
        stores = Served(server.port, "/root")
        try:
            yield stores
        finally:
            await stores.close()


@contextlib.asynccontextmanager
async def real(port: int) -> AsyncIterator[Served]:
    stores = Served(port, f"/root-{next(_ROOTS)}")
    try:
        yield stores
    finally:
        await stores.close()


@contextlib.asynccontextmanager
async def embedded() -> AsyncIterator[Embedded]:
    stores = Embedded(EmbeddedTree.simulated(ManualClock()))
    try:
        yield stores
    finally:
        await stores.close()


def run_in(manager: Callable[[], contextlib.AbstractAsyncContextManager[Any]]) -> Run:
    def run(body: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            async with manager() as stores, asyncio.timeout(90):
                await body(stores)

        asyncio.run(main())

    return run


@pytest.fixture(params=["ours", "zookeeper"])
def over_a_socket(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    if request.param == "ours":
        return run_in(lambda: ours(tmp_path / "tree.db"))
    port = request.getfixturevalue("zookeeper").port
    return run_in(lambda: real(port))


@pytest.fixture(params=["embedded", "ours", "zookeeper"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    if request.param == "embedded":
        return run_in(embedded)
    if request.param == "ours":
        return run_in(lambda: ours(tmp_path / "tree.db"))
    port = request.getfixturevalue("zookeeper").port
    return run_in(lambda: real(port))


async def refused(error: type[Exception], work: Awaitable[Any]) -> Any:
    with pytest.raises(error) as caught:
        await work
    return caught.value


def test_operations_do_what_their_names_say(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store = await stores.open()
        created = await store.create("/a", b"x")
        assert created.path == "/a"
        assert created.stat is not None
        assert (created.stat.version, created.stat.data_length, created.stat.num_children) == (0, 1, 0)
        assert await store.get("/a") == (b"x", created.stat)
        assert await store.exists("/a") == created.stat
        stat = await store.set("/a", b"yy", 0)
        assert (stat.version, stat.data_length, stat.czxid) == (1, 2, created.stat.czxid)
        assert stat.mzxid > stat.czxid
        await store.create("/a/c")
        await store.create("/a/b")
        names, stat = await store.children("/a")
        assert names == ["b", "c"]
        assert (stat.cversion, stat.num_children, stat.version) == (2, 2, 1)
        await store.delete("/a/b")
        assert (await store.children("/a"))[1].cversion == 3
        assert await store.exists("/a/b") is None
        await store.sync("/a")
        await store.close()
        assert store.state is SessionState.CLOSED
        await refused(SessionExpiredError, store.get("/a"))

    anywhere(body)


def test_refusals_have_their_names(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store = await stores.open()
        await store.create("/a")
        await store.create("/a/b")
        await store.create("/e", ephemeral=True)
        await refused(NodeExistsError, store.create("/a"))
        await refused(NoNodeError, store.create("/none/b"))
        await refused(NoNodeError, store.get("/none"))
        await refused(NoNodeError, store.children("/none"))
        await refused(NoNodeError, store.set("/none", b""))
        await refused(NoNodeError, store.delete("/none"))
        await refused(BadVersionError, store.set("/a", b"", 5))
        await refused(BadVersionError, store.delete("/a/b", 5))
        await refused(NotEmptyError, store.delete("/a"))
        await refused(NoChildrenForEphemeralsError, store.create("/e/x"))
        for path in ("a", "/a/", "/a//b", "/a/../b", "/a\x00"):
            await refused(BadArgumentsError, store.create(path))
            await refused(BadArgumentsError, store.exists(path))
        await refused(BadArgumentsError, store.create("/large", bytes(1024 * 1024 + 1)))

    anywhere(body)


def test_sequential_nodes_count_up_and_never_again(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store = await stores.open()
        await store.create("/s")
        results = await asyncio.gather(*[store.create("/s/n-", sequential=True) for _ in range(20)])
        assert [result.path for result in results] == [f"/s/n-{number:010d}" for number in range(20)]
        await store.delete("/s/n-0000000019")
        assert (await store.create("/s/", sequential=True, ephemeral=True)).path == "/s/0000000020"

    anywhere(body)


def test_operations_are_done_in_the_order_of_their_calls(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store = await stores.open()
        await store.create("/a")
        work: list[Any] = []
        for number in range(100):
            work += [store.set("/a", b"%d" % number, number), store.get("/a")]
        found = await asyncio.gather(*work)
        assert [data for data, _ in found[1::2]] == [b"%d" % number for number in range(100)]

    anywhere(body)


def test_a_multi_is_done_as_a_whole_or_not_at_all(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store = await stores.open()
        await store.create("/a", b"x")
        results = await store.multi(
            [Check("/a", 0), Create("/a/s-", sequential=True), SetData("/a", b"y", 0), Create("/b"), Delete("/b", 0)]
        )
        assert [result.path for result in results] == ["/a", "/a/s-0000000000", "/a", "/b", "/b"]
        assert [result.stat is None for result in results] == [True, False, False, False, True]
        assert results[2].stat is not None
        assert results[2].stat.version == 1
        assert results[2].stat.mzxid == (await store.exists("/a/s-0000000000")).czxid  # type: ignore[union-attr]
        error = await refused(MultiError, store.multi([Create("/c"), Check("/a", 0), Delete("/a")]))
        assert error.index == 1
        assert isinstance(error.error, BadVersionError)
        assert error.codes == (TreeCode.OK, TreeCode.BAD_VERSION, TreeCode.RUNTIME_INCONSISTENCY)
        assert await store.exists("/c") is None
        assert isinstance((await refused(MultiError, store.multi([Delete("/none")]))).error, NoNodeError)
        assert isinstance((await refused(MultiError, store.multi([Create("bad")]))).error, BadArgumentsError)
        assert await store.multi([]) == ()

    anywhere(body)


def test_a_watch_hears_once_and_before_the_answer_that_shows_the_change(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store, other = await stores.open(), await stores.open()
        heard: list[WatchEvent] = []
        await store.create("/a")
        await store.get("/a", heard.append)
        await store.exists("/a", heard.append)
        await store.exists("/later", heard.append)
        await store.children("/a", heard.append)
        for change in (
            lambda: other.set("/a", b"1"),
            lambda: other.set("/a", b"2"),
            lambda: other.create("/a/b"),
            lambda: other.create("/a/c"),
            lambda: other.create("/later"),
            lambda: other.delete("/later"),
        ):
            await change()
        await store.sync()
        assert (await store.get("/a"))[0] == b"2"
        assert heard == [
            WatchEvent(EventType.NODE_DATA_CHANGED, "/a"),
            WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/a"),
            WatchEvent(EventType.NODE_CREATED, "/later"),
        ]
        heard.clear()
        # One's own change: heard before its answer.
        await store.get("/a/b", heard.append)
        await store.children("/a/b", heard.append)
        await store.children("/a", heard.append)
        await store.delete("/a/b")
        assert heard == [WatchEvent(EventType.NODE_DELETED, "/a/b"), WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/a")]
        heard.clear()
        await refused(NoNodeError, store.get("/a/b", heard.append))
        await store.create("/a/b")
        assert heard == []

    anywhere(body)


def test_ephemeral_nodes_go_with_their_session(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store, other = await stores.open(), await stores.open()
        created = await store.create("/e", ephemeral=True)
        assert created.stat is not None
        assert created.stat.ephemeral_owner == store.session_id
        await store.create("/e2", ephemeral=True)
        heard: list[WatchEvent] = []
        await other.sync()
        assert await other.exists("/e", heard.append) is not None
        await store.close()
        await until(lambda: bool(heard))
        assert heard == [WatchEvent(EventType.NODE_DELETED, "/e")]
        assert await other.exists("/e2") is None

    anywhere(body)


def test_a_session_that_the_store_ends_is_expired(anywhere: Run) -> None:
    async def body(stores: Opened) -> None:
        store, other = await stores.open(), await stores.open()
        states: list[SessionState] = []
        store.on_state(states.append)
        await store.create("/e", ephemeral=True)
        await stores.expire(store)
        await until(lambda: store.state is SessionState.EXPIRED)
        assert states[-1] is SessionState.EXPIRED
        assert SessionState.LOST not in states
        await refused(SessionExpiredError, store.create("/x"))
        await other.sync()
        assert await other.exists("/e") is None
        await store.close()
        assert store.state is SessionState.EXPIRED

    anywhere(body)


def test_only_who_may_reads_and_writes(over_a_socket: Run) -> None:
    async def body(stores: Served) -> None:
        store = await stores.open(auth=(("digest", b"u:p"),))
        other = await stores.open()
        again = await stores.open(auth=(("digest", b"u:p"),))
        await store.create("/a", b"secret", acl=(Acl(31, "auth", ""),))
        assert (await store.get("/a"))[0] == b"secret"
        await other.sync()
        await again.sync()
        await refused(NoAuthError, other.get("/a"))
        await refused(NoAuthError, other.set("/a", b""))
        await refused(NoAuthError, other.create("/a/b"))
        assert isinstance((await refused(MultiError, other.multi([Create("/x"), Check("/a")]))).error, NoAuthError)
        assert isinstance((await refused(MultiError, other.multi([SetAcl("/a", OPEN_ACL)]))).error, NoAuthError)
        assert (await again.get("/a"))[0] == b"secret"
        ((_, stat),) = await again.multi([SetAcl("/a", OPEN_ACL)])
        assert stat is not None
        assert stat.aversion == 1
        await other.sync()
        assert (await other.get("/a"))[0] == b"secret"
        assert isinstance(
            (await refused(MultiError, other.multi([Create("/x"), SetAcl("/a", OPEN_ACL)]))).error, BadArgumentsError
        )

    over_a_socket(body)


def test_a_session_survives_its_connection_and_hears_what_changed_meanwhile(over_a_socket: Run) -> None:
    async def body(stores: Served) -> None:
        store, other = await stores.open(), await stores.open()
        states: list[SessionState] = []
        store.on_state(states.append)
        session_id = store.session_id
        heard: list[WatchEvent] = []
        for path in ("/data", "/gone", "/parent", "/same"):
            await store.create(path)
        await store.create("/e", ephemeral=True)
        await store.get("/data", heard.append)
        await store.get("/gone", heard.append)
        await store.children("/parent", heard.append)
        await store.exists("/made", heard.append)
        await store.get("/same", heard.append)
        await store.exists("/never", heard.append)
        proxy = stores.proxies[session_id]
        proxy.cut()
        await until(lambda: store.state is SessionState.SUSPENDED)
        await refused(ConnectionLossError, store.get("/data"))
        await other.set("/data", b"1")
        await other.delete("/gone")
        await other.create("/parent/child")
        await other.create("/made")
        assert heard == []
        proxy.mend()
        await until(lambda: store.state is SessionState.CONNECTED)
        assert store.session_id == session_id
        assert (await store.exists("/e")) is not None
        assert set(heard) == {
            WatchEvent(EventType.NODE_DATA_CHANGED, "/data"),
            WatchEvent(EventType.NODE_DELETED, "/gone"),
            WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/parent"),
            WatchEvent(EventType.NODE_CREATED, "/made"),
        }
        assert len(heard) == 4
        heard.clear()
        await other.set("/same", b"2")
        await other.create("/never")
        await other.set("/data", b"3")
        await store.sync()
        assert heard == [WatchEvent(EventType.NODE_DATA_CHANGED, "/same"), WatchEvent(EventType.NODE_CREATED, "/never")]
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    over_a_socket(body)


def test_what_is_in_flight_when_the_connection_ends_fails(over_a_socket: Run) -> None:
    async def body(stores: Served) -> None:
        store = await stores.open()
        await store.create("/a")
        work = [asyncio.ensure_future(store.set("/a", b"%d" % number)) for number in range(5)]
        await asyncio.sleep(0)
        stores.proxies[store.session_id].cut()
        for result in await asyncio.gather(*work, return_exceptions=True):
            assert isinstance(result, ConnectionLossError)

    over_a_socket(body)


def test_a_silent_store_is_lost_and_then_expired(over_a_socket: Run) -> None:
    async def body(stores: Served) -> None:
        store, other = await stores.open(400), await stores.open()
        states: list[SessionState] = []
        store.on_state(states.append)
        await store.create("/e", ephemeral=True)
        heard: list[WatchEvent] = []
        await other.sync()
        assert await other.exists("/e", heard.append) is not None
        proxy = stores.proxies[store.session_id]
        proxy.cut()
        await until(lambda: store.state is SessionState.LOST)
        await until(lambda: bool(heard))
        proxy.mend()
        await until(lambda: store.state is SessionState.EXPIRED)
        assert states == [SessionState.SUSPENDED, SessionState.LOST, SessionState.EXPIRED]

    over_a_socket(body)


def test_a_quiet_session_is_kept_alive_by_pings(over_a_socket: Run) -> None:
    async def body(stores: Served) -> None:
        store, other = await stores.open(1500), await stores.open()
        states: list[SessionState] = []
        store.on_state(states.append)
        await store.create("/e", ephemeral=True)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        # For nearly two of its timeouts only the other one asks for something. A machine that stands still for a while
        # holds pings up too: then it begins anew.
        while (now := loop.time()) < begun + 2.7:
            await other.sync()
            if loop.time() > now + 0.2:
                states.clear()
                begun = loop.time()
        assert states == []  # a connection without pings would have been given up
        assert await other.exists("/e") is not None

    over_a_socket(body)


def test_a_connect_string_names_servers_and_a_chroot(over_a_socket: Run) -> None:
    async def body(stores: Served) -> None:
        await stores.open()
        nobody = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        closed = nobody.sockets[0].getsockname()[1]
        store = await connect(f"127.0.0.1:{closed},127.0.0.1:{stores._port}{stores._root}", session_timeout_ms=4000)
        await store.create("/a")
        assert "a" in (await store.children("/"))[0]
        await store.close()
        with pytest.raises(ConnectionLossError, match="gives no session"):
            await connect(f"127.0.0.1:{closed}", session_timeout_ms=4000, connect_timeout_ms=200)
        nobody.close()

    over_a_socket(body)
