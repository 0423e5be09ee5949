"""Load for the crash tests of the tree's server: sessions that write, number, watch and hold ephemeral nodes, note
every answer, and check each one.

A change whose connection ended before its answer may have happened or not. The client checks this when its session is
back, and continues from there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from jesenska.metadata.store import SessionState
from jesenska.metadata.tree_operations import ConnectionLossError, NodeExistsError, NoNodeError
from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString

T = TypeVar("T")

#: The number of nodes that are watched at a time.
_AHEAD = 100


class Load:
    """The common state of all clients: the number of answers, and the sign to stop."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.stopping = False
        self.answered = 0
        self.sessions: list[Session] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._wanted = 0
        self._reached = asyncio.Event()

    async def session(self) -> Session:
        made = await Session.open(self.address)
        self.sessions.append(made)
        return made

    def start(self, *work: Coroutine[Any, Any, None]) -> None:
        self._tasks += [asyncio.create_task(one) for one in work]

    def answer(self) -> None:
        self.answered += 1
        if self.answered >= self._wanted:
            self._reached.set()

    async def wait_for(self, more: int) -> None:
        """Returns when this number of further changes was answered. Raises the error of a client that fails."""
        self._wanted = self.answered + more
        self._reached.clear()
        reached = asyncio.create_task(self._reached.wait())
        done, _ = await asyncio.wait({reached, *self._tasks}, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        assert done, "the load stands still"
        for task in done - {reached}:
            task.result()

    async def stop(self) -> None:
        self.stopping = True
        async with asyncio.timeout(60):
            await asyncio.gather(*self._tasks)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self.sessions:
            await session.store.close()


class Session:
    """A session that outlives the server: it must never expire."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.store = store
        self.losses = 0
        self._connected = asyncio.Event()
        self._connected.set()
        store.on_state(self._state)

    @staticmethod
    async def open(address: str) -> Session:
        return Session(await ZooKeeperStore.connect(ConnectString.parse(address), session_timeout_ms=60_000))

    def _state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._connected.set()
        else:
            self.losses += 1
            self._connected.clear()

    async def connected(self) -> None:
        async with asyncio.timeout(60):
            while not (self._connected.is_set() and self.store.state is SessionState.CONNECTED):
                assert self.store.state is not SessionState.EXPIRED, "the session was lost with the server"
                self._connected.clear()
                await self._connected.wait()

    async def until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeats a request while there is no answer. The request must be repeatable."""
        while True:
            await self.connected()
            try:
                return await ask()
            except ConnectionLossError:
                continue


class Setter:
    """Writes rising numbers into a node of its own. Each acknowledged number stays, and each write counts once."""

    def __init__(self, load: Load, session: Session, path: str) -> None:
        self._load, self._session, self._path = load, session, path
        self.value = self.version = 0

    async def run(self) -> None:
        store = self._session.store
        await self._session.until_answered(lambda: _create(store, self._path, b"0"))
        while not self._load.stopping:
            await self._session.connected()
            try:
                stat = await store.set(self._path, b"%d" % (self.value + 1))
            except ConnectionLossError:
                await self._look()
                continue
            self.value, self.version = self.value + 1, self.version + 1
            assert stat.version == self.version, (
                f"{self._path}: {self.version} changes were made, {stat.version} are counted"
            )
            self._load.answer()

    async def _look(self) -> None:
        data, stat = await self._session.until_answered(lambda: self._session.store.get(self._path))
        assert int(data) in (self.value, self.value + 1), f"{self._path} holds {data!r} where {self.value} was answered"
        assert stat.version == self.version + int(data) - self.value
        self.value, self.version = int(data), stat.version

    async def check(self, reader: Session) -> None:
        data, stat = await reader.store.get(self._path)
        assert (int(data), stat.version) == (self.value, self.version), f"{self._path} has lost what was answered"


class Numberer:
    """Creates sequential nodes below a parent of several clients and deletes some of them, often the newest. No number
    may be given twice."""

    def __init__(self, load: Load, session: Session, parent: str, name: str, given: dict[str, str]) -> None:
        self._load, self._session, self._parent, self._name, self._given = load, session, parent, name, given
        self._chance = random.Random(name)
        self.kept: dict[str, str] = {}
        self.unknown: set[str] = set()  # tokens
        self.perhaps_deleted: set[str] = set()

    async def run(self) -> None:
        store = self._session.store
        count = 0
        while not self._load.stopping:
            await self._session.connected()
            count += 1
            token = f"{self._name}:{count}"
            try:
                path = (await store.create(f"{self._parent}/n-", token.encode(), sequential=True)).path
            except ConnectionLossError:
                self.unknown.add(token)
                continue
            self._load.answer()
            assert path not in self._given, f"{path} was given to {self._given[path]} and to {token}"
            self._given[path] = token
            if self._chance.random() < 0.5:
                self.kept[path] = token
                continue
            try:
                await store.delete(path)
            except ConnectionLossError:
                self.perhaps_deleted.add(path)
            else:
                self._load.answer()


async def check_numbers(reader: Session, parent: str, numberers: list[Numberer], given: dict[str, str]) -> None:
    """Checks that every node that was answered and not deleted is there with its data. Other nodes may only be those
    of unanswered requests."""
    names, stat = await reader.store.children(parent)
    found = {f"{parent}/{name}": (await reader.store.get(f"{parent}/{name}"))[0].decode() for name in names}
    for one in numberers:
        assert one.kept.items() <= found.items(), (
            f"answered nodes are lost: {sorted(one.kept.items() - found.items())[:5]}"
        )
    kept = {path for one in numberers for path in one.kept}
    perhaps = {path for one in numberers for path in one.perhaps_deleted}
    others = {path: token for path, token in found.items() if path not in kept | perhaps}
    unknown = {token for one in numberers for token in one.unknown}
    assert set(others.values()) <= unknown and not others.keys() & given.keys(), "deleted nodes are there again"
    assert len(set(found.values())) == len(found), "a node was made twice"
    assert stat.num_children == len(found)


class Watcher:
    """Watches the nodes that setters write. Each watch gets one event, only for a real change, and before an answer
    shows that change."""

    def __init__(self, load: Load, session: Session, path: str) -> None:
        self._load, self._session, self._path = load, session, path
        self.heard = 0

    async def run(self) -> None:
        store = self._session.store
        loop = asyncio.get_running_loop()
        while not self._load.stopping:
            await self._session.connected()
            calls: list[WatchEvent] = []
            first: asyncio.Future[None] = loop.create_future()

            def hear(event: WatchEvent, calls: list[WatchEvent] = calls, first: asyncio.Future[None] = first) -> None:
                calls.append(event)
                if not first.done():
                    first.set_result(None)

            try:
                _, armed = await store.get(self._path, hear)
            except (ConnectionLossError, NoNodeError):
                await asyncio.sleep(0)
                continue
            with suppress(ConnectionLossError):
                for _ in range(2):
                    _, stat = await store.get(self._path)
                    assert calls or stat.version == armed.version, (
                        f"version {stat.version} of {self._path} is shown to who was not told of it"
                    )
            while not calls and not self._load.stopping:
                await asyncio.wait((first,), timeout=0.2)
            if not calls:
                return
            _, stat = await self._session.until_answered(lambda: store.get(self._path))
            assert calls == [WatchEvent(EventType.NODE_DATA_CHANGED, self._path)], f"one watch heard {calls}"
            assert stat.version > armed.version, f"{self._path} is told to have changed, and has not"
            self.heard += 1


class InOrder:
    """One session changes nodes one after the other, and another session watches all of them, in random order. It gets
    each event once, in the order of the changes. Even nodes are created (watched by `exists`), odd ones exist and are
    set (watched by `get`)."""

    def __init__(self, load: Load, writer: Session, watcher: Session, parent: str) -> None:
        self._load, self._writer, self._watcher, self._parent = load, writer, watcher, parent
        self._chance = random.Random(parent)
        self.events: list[WatchEvent] = []
        self.changed: list[WatchEvent] = []
        self._hear = self.events.append

    def _path(self, number: int) -> str:
        return f"{self._parent}/{number:07d}"

    async def run(self) -> None:
        await self._writer.until_answered(lambda: _create(self._writer.store, self._parent))
        first = 0
        while not self._load.stopping:
            numbers = list(range(first, first + _AHEAD))
            first += _AHEAD
            for number in numbers[1::2]:
                await self._writer.until_answered(partial(_create, self._writer.store, self._path(number)))
            self._chance.shuffle(numbers)
            for number in numbers:
                await self._watch(self._path(number), is_there=number % 2 == 1)
            for number in sorted(numbers):
                await self._change(number)
                self._load.answer()
        await self.all_heard()

    async def _watch(self, path: str, is_there: bool) -> None:
        # The same callback, should it be asked for twice: it then hears once.
        store = self._watcher.store
        if is_there:
            await self._watcher.until_answered(lambda: store.get(path, self._hear))
        else:
            await self._watcher.until_answered(lambda: store.exists(path, self._hear))

    async def _change(self, number: int) -> None:
        path, store = self._path(number), self._writer.store
        if number % 2 == 0:
            await self._writer.until_answered(lambda: _create(store, path))
            self.changed.append(WatchEvent(EventType.NODE_CREATED, path))
            return
        while True:
            await self._writer.connected()
            try:
                await store.set(path, b"x", 0)
            except ConnectionLossError:
                _, stat = await self._writer.until_answered(lambda: store.get(path))
                if stat.version == 0:
                    continue
            self.changed.append(WatchEvent(EventType.NODE_DATA_CHANGED, path))
            return

    async def all_heard(self) -> None:
        """Checks that every change was reported. The watcher has received all events when its own request is
        answered."""
        await self._watcher.until_answered(self._watcher.store.sync)
        assert len(self.events) == len(set(self.events)), "a watch was heard twice"
        assert self.events == self.changed, (
            f"heard otherwise than changed, first at {_first_difference(self.events, self.changed)}"
        )


class Holder:
    """Holds ephemeral nodes through all restarts. The nodes that it has created and not deleted exist, and belong to
    it."""

    def __init__(self, load: Load, session: Session, parent: str) -> None:
        self._load, self._session, self._parent = load, session, parent
        self.held: set[str] = set()

    async def run(self) -> None:
        store = self._session.store
        count = 0
        while not self._load.stopping:
            path = f"{self._parent}/{count:06d}"
            await self._session.until_answered(partial(_create, store, path, ephemeral=True))
            self.held.add(path)
            self._load.answer()
            if count % 3:
                self.held.discard(path)
                await self._session.until_answered(partial(_delete, store, path))
            count += 1

    async def check(self, reader: Session) -> None:
        for path in sorted(self.held):
            stat = await reader.until_answered(partial(reader.store.exists, path))
            assert stat is not None, f"{path} is gone though its session is not"
            assert stat.ephemeral_owner == self._session.store.session_id


async def _create(store: ZooKeeperStore, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
    """Creates a node. The request may be repeated, since only this client writes the node."""
    try:
        await store.create(path, data, ephemeral=ephemeral)
    except NodeExistsError:
        pass


async def _delete(store: ZooKeeperStore, path: str) -> None:
    try:
        await store.delete(path)
    except NoNodeError:
        pass


def _first_difference(left: list[WatchEvent], right: list[WatchEvent]) -> str:
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return f"{number}: {left[max(0, number - 2) : number + 3]}, {right[max(0, number - 2) : number + 3]}"
    return f"the end: {len(left)} and {len(right)}"
