"""Brokers that want to be controller, on one tree: there is one at a time, each in a newer epoch, and another when it
is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from jesenska.base.clock import ManualClock
from jesenska.broker.controlling.candidacy import Candidacy
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import ControllerNode
from jesenska.metadata.registration import ensure_paths
from jesenska.metadata.store import Store
from jesenska.metadata.tree_operations import ConnectionLossError, Operation, Result
from tests.on_a_loop import on_a_loop

_SECONDS = 30.0


class Candidate:
    """Records the events of one broker's election (an `Elected`)."""

    def __init__(self, broker_id: int, store: Any) -> None:
        self.broker_id = broker_id
        self.store = store
        self.acts_in: int | None = None
        self.follows: int | None = None
        #: False: it cannot begin to be controller.
        self.can_begin = True
        self.changed = asyncio.Event()
        self.candidacy = Candidacy(store, broker_id, ManualClock(), self)

    def is_controller(self) -> bool:
        return self.acts_in is not None

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something that the election brings about."""
        async with asyncio.timeout(_SECONDS):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def begin(self, epoch: int, epoch_version: int) -> None:
        assert self.acts_in is None
        assert epoch_version >= 0
        self.acts_in, self.follows = epoch, None
        self.candidacy.began(epoch, self.can_begin)
        self.changed.set()

    def end(self, epoch: int) -> None:
        assert self.acts_in == epoch
        self.acts_in = None
        self.changed.set()

    def follow(self, broker_id: int) -> None:
        self.follows = broker_id
        self.changed.set()


class _Cluster:
    def __init__(self, tree: EmbeddedTree, brokers: Sequence[Candidate]) -> None:
        self.tree = tree
        self.brokers = list(brokers)

    @property
    def leading(self) -> list[Candidate]:
        return [broker for broker in self.brokers if broker.acts_in is not None]

    async def agreed(self, after_epoch: int = 0) -> Candidate:
        """Waits for a controller with a newer epoch that all others know. Returns it."""
        async with asyncio.timeout(_SECONDS):
            while True:
                leading = self.leading
                assert len(leading) < 2, "two brokers are controller at a time"
                if leading and (leading[0].acts_in or 0) > after_epoch:
                    others = [broker for broker in self.brokers if broker is not leading[0]]
                    if all(broker.follows == leading[0].broker_id for broker in others):
                        return leading[0]
                waits = [asyncio.ensure_future(broker.changed.wait()) for broker in self.brokers]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait, broker in zip(waits, self.brokers, strict=True):
                    wait.cancel()
                    broker.changed.clear()


@asynccontextmanager
async def _cluster(count: int = 3) -> AsyncIterator[_Cluster]:
    tree = EmbeddedTree.simulated(ManualClock())
    await ensure_paths(await tree.session())
    cluster = _Cluster(tree, [Candidate(number, await tree.session()) for number in range(count)])
    try:
        for broker in cluster.brokers:
            broker.candidacy.session_began()
        yield cluster
    finally:
        for broker in cluster.brokers:
            await broker.candidacy.close()
        await tree.close()


@on_a_loop
async def test_one_of_several_is_controller_and_the_others_know_which() -> None:
    async with _cluster() as cluster:
        controller = await cluster.agreed()
        assert controller.acts_in == 1
        data, _ = await controller.store.get(paths.CONTROLLER)
        assert ControllerNode.decode(data).broker_id == controller.broker_id


@on_a_loop
async def test_when_its_session_ends_another_is_controller_in_the_next_epoch() -> None:
    async with _cluster() as cluster:
        first = await cluster.agreed()
        await cluster.tree.expire(first.store.session_id)
        first.candidacy.session_ended()
        assert first.acts_in is None
        cluster.brokers.remove(first)
        second = await cluster.agreed(1)
        assert second.acts_in == 2
        await first.candidacy.close()


@on_a_loop
async def test_who_comes_back_with_another_session_follows() -> None:
    async with _cluster(2) as cluster:
        first = await cluster.agreed()
        await cluster.tree.expire(first.store.session_id)
        other = next(broker for broker in cluster.brokers if broker is not first)
        await other.until(lambda: other.acts_in is not None)
        # It does not know of it yet: the next session reports it.
        assert first.is_controller()
        first.candidacy._store = first.store = await cluster.tree.session()
        first.candidacy.session_began()
        assert not first.is_controller()
        assert await cluster.agreed(1) is other


@on_a_loop
async def test_a_controller_that_cannot_begin_gives_the_place_to_another() -> None:
    async with _cluster() as cluster:
        first = await cluster.agreed()
        others = [broker for broker in cluster.brokers if broker is not first]
        others[0].can_begin = False
        await cluster.tree.expire(first.store.session_id)
        first.candidacy.session_ended()
        cluster.brokers.remove(first)
        second = await cluster.agreed(1)
        # A candidate that could not begin may have tried several times.
        assert second is others[1]
        await first.candidacy.close()


@on_a_loop
async def test_who_has_lost_the_place_without_its_session_ends_and_a_newer_epoch_begins() -> None:
    async with _cluster() as cluster:
        first = await cluster.agreed()
        await first.store.delete(paths.CONTROLLER)
        assert (await cluster.agreed(1)).acts_in == 2


@on_a_loop
async def test_a_controller_whose_write_is_refused_is_none_any_more() -> None:
    async with _cluster() as cluster:
        first = await cluster.agreed()
        first.candidacy.fenced(0)
        assert first.is_controller()
        first.candidacy.fenced(1)
        assert not first.is_controller()
        assert (await cluster.agreed(1)).acts_in == 2


class _LosesTheFirstClaim:
    """A store that does its first multi but does not answer it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._has_lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        results = await self._store.multi(operations)
        if not self._has_lost:
            self._has_lost = True
            raise ConnectionLossError(paths.CONTROLLER)
        return results


@on_a_loop
async def test_a_claim_whose_answer_is_lost_makes_nobody_controller_and_the_place_free_again() -> None:
    tree = EmbeddedTree.simulated(ManualClock())
    await ensure_paths(await tree.session())
    broker = Candidate(7, _LosesTheFirstClaim(await tree.session()))
    try:
        broker.candidacy.session_began()
        assert (await _Cluster(tree, [broker]).agreed()).acts_in == 2
    finally:
        await broker.candidacy.close()
        await tree.close()
