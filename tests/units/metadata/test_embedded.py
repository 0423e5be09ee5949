from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.clock import ManualClock
from jesenska.metadata.embedded import EmbeddedTree, StoreFullError
from jesenska.metadata.journal import METADATA_FILE, JournalError, JournalFullError
from jesenska.metadata.store import ChrootStore, SessionState, Store
from jesenska.metadata.tree import Tree
from jesenska.metadata.tree_operations import (
    BadArgumentsError,
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    SetData,
    Transaction,
)
from jesenska.metadata.watches import EventType, WatchEvent


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 60))


class SlowJournal:
    """A journal whose commits wait for a release, and fail on request."""

    def __init__(self) -> None:
        self.commits: list[list[Transaction]] = []
        self.let_go = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.failure: Exception | None = None
        self.closed = False

    def commit(self, transactions: Sequence[Transaction]) -> None:
        self.begun.release()
        assert self.let_go.acquire(timeout=30)
        if self.failure is not None:
            raise self.failure
        self.commits.append(list(transactions))

    def close(self) -> None:
        self.closed = True


def slow_tree() -> tuple[EmbeddedTree, SlowJournal]:
    journal = SlowJournal()
    return EmbeddedTree(Tree(), ManualClock(), journal, ThreadPoolExecutor(max_workers=1)), journal


async def begun(journal: SlowJournal) -> None:
    assert await asyncio.to_thread(journal.begun.acquire, timeout=30)


async def open_slowly(tree: EmbeddedTree, journal: SlowJournal) -> Store:
    journal.let_go.release()
    store = await tree.session()
    await begun(journal)
    return store


def test_operations_do_what_their_names_say(tmp_path: Path) -> None:
    async def body() -> None:
        for tree in (
            EmbeddedTree.simulated(ManualClock()),
            await EmbeddedTree.open(tmp_path / METADATA_FILE, ManualClock()),
        ):
            store: Store = await tree.session()
            assert (await store.create("/a", b"x")).path == "/a"
            assert (await store.create("/a/n-", sequential=True)).path == "/a/n-0000000000"
            assert (await store.get("/a"))[0] == b"x"
            assert (await store.set("/a", b"y", 0)).version == 1
            assert (await store.children("/a"))[0] == ["n-0000000000"]
            with pytest.raises(BadVersionError):
                await store.set("/a", b"z", 0)
            with pytest.raises(NodeExistsError):
                await store.create("/a")
            with pytest.raises(NoNodeError):
                await store.get("/b")
            assert await store.exists("/b") is None
            with pytest.raises(BadArgumentsError):
                await store.exists("b")
            results = await store.multi(
                [Check("/a", 1), SetData("/a", b"z", 1), Create("/b"), Delete("/a/n-0000000000")]
            )
            assert [result.path for result in results] == ["/a", "/a", "/b", "/a/n-0000000000"]
            with pytest.raises(MultiError) as caught:
                await store.multi([Create("/c"), Create("/b")])
            assert caught.value.index == 1
            with pytest.raises(MultiError):
                await store.multi([Create("/b")])
            assert await store.multi([]) == ()
            assert await store.exists("/c") is None
            await store.delete("/b")
            await store.sync()
            await store.close()
            with pytest.raises(SessionExpiredError):
                await store.get("/a")
            await tree.close()

    run(body())


def test_readers_do_not_see_a_change_before_it_is_committed() -> None:
    async def body() -> None:
        tree, journal = slow_tree()
        writer = await open_slowly(tree, journal)
        reader = await open_slowly(tree, journal)
        heard: list[WatchEvent] = []
        await reader.exists("/a", heard.append)
        change = asyncio.ensure_future(writer.create("/a"))
        await begun(journal)
        assert await reader.exists("/a") is None
        assert heard == []
        assert not change.done()
        journal.let_go.release()
        await change
        assert await reader.exists("/a") is not None
        assert heard == [WatchEvent(EventType.NODE_CREATED, "/a")]
        await tree.close()
        assert journal.closed

    run(body())


def test_a_session_reads_its_own_writes_in_order() -> None:
    async def body() -> None:
        tree, journal = slow_tree()
        store = await open_slowly(tree, journal)
        change = asyncio.ensure_future(store.create("/a"))
        await begun(journal)
        read = asyncio.ensure_future(store.exists("/a"))
        await asyncio.sleep(0)
        assert not read.done()
        journal.let_go.release()
        assert await read is not None
        await change
        await tree.close()

    run(body())


def test_what_queues_during_a_commit_is_one_commit_and_a_refusal_waits_its_turn() -> None:
    async def body() -> None:
        tree, journal = slow_tree()
        store = await open_slowly(tree, journal)
        first = asyncio.ensure_future(store.create("/a"))
        await begun(journal)
        others = [asyncio.ensure_future(store.create(f"/a/{number}")) for number in range(5)]
        refused = asyncio.ensure_future(store.create("/a"))
        await asyncio.sleep(0)
        assert not refused.done()
        journal.let_go.release(2)
        await asyncio.gather(first, *others)
        with pytest.raises(NodeExistsError):
            await refused
        assert [len(commit) for commit in journal.commits] == [1, 1, 5]
        await tree.close()

    run(body())


def test_a_full_disk_refuses_what_waits_and_the_store_goes_on() -> None:
    async def body() -> None:
        tree, journal = slow_tree()
        store = await open_slowly(tree, journal)
        first = asyncio.ensure_future(store.create("/a"))
        await begun(journal)
        second = asyncio.ensure_future(store.create("/a/b"))
        checked = asyncio.ensure_future(store.multi([Check("/a", 0)]))
        waited = asyncio.ensure_future(store.sync())
        await asyncio.sleep(0)
        journal.failure = JournalFullError("The disk is full.")
        journal.let_go.release()
        refused: list[asyncio.Future[Any]] = [first, second, checked]
        for change in refused:
            with pytest.raises(StoreFullError, match="The disk is full"):
                await change
        await waited
        assert store.state is SessionState.CONNECTED
        assert await store.exists("/a") is None
        journal.failure = None
        journal.let_go.release()
        await store.create("/a", b"again")
        assert (await store.get("/a"))[0] == b"again"
        await tree.close()

    run(body())


def test_a_broken_disk_ends_the_store_and_says_so() -> None:
    async def body() -> None:
        tree, journal = slow_tree()
        store = await open_slowly(tree, journal)
        states: list[SessionState] = []
        store.on_state(states.append)
        change = asyncio.ensure_future(store.create("/a"))
        await begun(journal)
        journal.failure = JournalError("The disk is broken.")
        journal.let_go.release()
        with pytest.raises(ConnectionLossError, match="The disk is broken"):
            await change
        assert states == [SessionState.LOST]
        with pytest.raises(ConnectionLossError):
            await store.get("/")
        with pytest.raises(ConnectionLossError):
            await store.create("/b")
        await store.close()
        await tree.close()

    run(body())


def test_a_change_whose_asker_went_away_happens_all_the_same() -> None:
    async def body() -> None:
        tree, journal = slow_tree()
        store = await open_slowly(tree, journal)
        change = asyncio.ensure_future(store.create("/a"))
        await begun(journal)
        change.cancel()
        await asyncio.sleep(0)
        journal.let_go.release()
        await store.sync()
        assert await store.exists("/a") is not None
        await tree.close()

    run(body())


def test_a_session_that_ends_takes_its_nodes_and_watches_with_it() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        one, other = await tree.session(), await tree.session()
        assert one.session_id != other.session_id
        states: list[SessionState] = []
        one.on_state(states.append)
        heard_by_one: list[WatchEvent] = []
        heard_by_other: list[WatchEvent] = []
        await one.create("/e", ephemeral=True)
        await one.exists("/later", heard_by_one.append)
        await other.exists("/e", heard_by_other.append)
        await tree.expire(one.session_id)
        assert states == [SessionState.EXPIRED]
        assert heard_by_other == [WatchEvent(EventType.NODE_DELETED, "/e")]
        await other.create("/later")
        assert heard_by_one == []
        with pytest.raises(SessionExpiredError):
            await one.create("/x")
        await one.close()
        await other.close()
        assert tree.tree.sessions == {}

    run(body())


def test_a_watch_may_ask_again_while_it_is_called_and_a_broken_one_harms_nobody() -> None:
    async def body() -> None:
        problems: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(str(context["exception"])))
        tree = EmbeddedTree.simulated(ManualClock())
        store = await tree.session()
        await store.create("/a")
        heard: list[int] = []
        tasks: list[asyncio.Task[None]] = []

        async def again() -> None:
            _, stat = await store.get("/a", changed)
            heard.append(stat.version)

        def changed(event: WatchEvent) -> None:
            tasks.append(asyncio.get_running_loop().create_task(again()))

        def broken(event: WatchEvent) -> None:
            raise RuntimeError("broken")

        await store.get("/a", broken)
        await store.get("/a", changed)
        for number in range(3):
            await store.set("/a", b"", number)
            await asyncio.gather(*tasks)
        assert heard == [1, 2, 3]
        assert problems == ["broken"]
        await tree.close()

    run(body())


def test_a_chroot_shows_its_part_as_a_whole() -> None:
    async def body() -> None:
        tree = EmbeddedTree.simulated(ManualClock())
        plain = await tree.session()
        await plain.create("/kafka")
        store: Store = ChrootStore(plain, "/kafka")
        heard: list[WatchEvent] = []
        await store.children("/", heard.append)
        await store.children("/", heard.append)
        assert (await store.create("/a", b"x")).path == "/a"
        assert heard == [WatchEvent(EventType.NODE_CHILDREN_CHANGED, "/")]
        assert (await store.children("/"))[0] == ["a"]
        assert (await plain.get("/kafka/a"))[0] == b"x"
        results = await store.multi(
            [Check("/a", 0), SetData("/a", b"y"), Create("/a/s-", sequential=True), Delete("/a/s-0000000000")]
        )
        assert [result.path for result in results] == ["/a", "/a", "/a/s-0000000000", "/a/s-0000000000"]
        assert (await store.get("/a", heard.append))[0] == b"y"
        await store.delete("/a")
        assert heard[-1] == WatchEvent(EventType.NODE_DELETED, "/a")
        assert await store.exists("/a") is None
        await store.sync()
        await store.close()
        assert store.state is SessionState.CLOSED

    run(body())


def test_a_restart_keeps_what_was_answered_and_closes_sessions_that_are_gone(tmp_path: Path) -> None:
    async def body() -> None:
        clock = ManualClock()
        tree = await EmbeddedTree.open(tmp_path / METADATA_FILE, clock)
        store = await tree.session()
        await store.create("/kept", b"x")
        await store.create("/gone", ephemeral=True)
        first_id = store.session_id
        await tree.close()
        assert store.state is SessionState.CLOSED
        tree = await EmbeddedTree.open(tmp_path / METADATA_FILE, clock)
        again = await tree.session()
        assert (await again.get("/kept"))[0] == b"x"
        assert await again.exists("/gone") is None
        assert again.session_id != first_id
        await tree.close()

    run(body())
