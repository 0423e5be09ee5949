"""ISRs that leaders propose, and a tree that others write to and that does not always answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from jesenska.base.clock import ManualClock
from jesenska.base.errors import KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import PartitionStateNode, decode_partitions
from jesenska.metadata.registration import ensure_paths
from jesenska.metadata.store import SessionState, Store
from jesenska.metadata.tree_operations import ConnectionLossError, Stat
from jesenska.replication.leader import isr_changes
from jesenska.replication.leader.isr_changes import IsrChanges
from jesenska.replication.leader.isr_syncs import IsrSyncs
from jesenska.replication.replicas import Replicas
from tests.on_a_loop import on_a_loop

LEADER, FIRST, SECOND = 1, 2, 3
KEY = TopicPartition("t", 0)
PATH = paths.partition_state("t", 0)


class Leading:
    """A partition that broker 1 leads in epoch 4, alone in sync; the second follower is in sync next."""

    def __init__(self, number: int = 0) -> None:
        self.topic_partition = TopicPartition("t", number)
        self.replicas = Replicas(self.topic_partition, LEADER, (LEADER, FIRST, SECOND), 1, 1000)
        self.replicas.led_by(LEADER, 4, (LEADER,), 0, 10, 0)
        #: Syncs under way.
        self.syncs: list[Callable[[KafkaError | None], None]] = []

    @property
    def leader_epoch(self) -> int:
        return self.replicas.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self.replicas.partition_epoch

    @property
    def proposed_isr(self) -> tuple[int, ...] | None:
        return self.replicas.proposed_isr

    @property
    def is_to_be_synced(self) -> bool:
        return self.replicas.is_to_be_synced

    @property
    def waits_for_sync(self) -> bool:
        return self.replicas.waits_for_sync

    def sync(self, done: Callable[[KafkaError | None], None]) -> None:
        standing = self.replicas.standing

        def ended(failure: KafkaError | None) -> None:
            if failure is None:
                self.replicas.synced(standing)
            done(failure)

        self.syncs.append(ended)

    def proposal_sent(self) -> None:
        self.replicas.proposal_sent()

    def isr_written(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        self.replicas.isr_written(isr, leader_epoch, partition_epoch)

    def catches_up(self, broker_id: int) -> None:
        assert self.replicas.follower_fetched(broker_id, 10, 10, 10, 0)


class UncertainStore:
    """A session whose next changes are lost: the requests, or the answers. It may be suspended."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lost_there = self.lost_back = 0
        self.state = SessionState.CONNECTED
        #: Number of requested changes.
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def set(self, path: str, data: bytes, version: int) -> Stat:
        return await self._change(lambda: self._store.set(path, data, version))  # type: ignore[no-any-return]

    async def create(self, path: str, data: bytes, *, sequential: bool) -> Any:
        return await self._change(lambda: self._store.create(path, data, sequential=sequential))

    async def _change(self, change: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        self.asked += 1
        if self.lost_there:
            self.lost_there -= 1
            raise ConnectionLossError("/", "lost")
        done = await change()
        if self.lost_back:
            self.lost_back -= 1
            raise ConnectionLossError("/", "lost")
        return done


class Scene:
    """A tree with partitions' states, and a broker that leads them."""

    def __init__(self, store: Store) -> None:
        self.other = store
        self.store = UncertainStore(store)
        self.syncs = IsrSyncs()
        self.changes = IsrChanges(self.store, LEADER, lambda: 7, self.syncs)  # type: ignore[arg-type]

    @staticmethod
    async def made(partitions: int = 1) -> Scene:
        tree = EmbeddedTree.simulated(ManualClock())
        store: Store = await tree.session()
        await ensure_paths(store)
        await store.create(paths.topic("t"), b"")
        await store.create(paths.partitions("t"), b"")
        for number in range(partitions):
            await store.create(paths.partition("t", number), b"")
            await store.create(paths.partition_state("t", number), PartitionStateNode(LEADER, 4, (LEADER,), 7).encode())
        return Scene(store)

    async def settle(self) -> None:
        async with asyncio.timeout(10):
            while not self.changes.is_idle:
                await asyncio.sleep(0)

    async def state(self) -> tuple[PartitionStateNode, int]:
        data, stat = await self.other.get(PATH)
        return PartitionStateNode.decode(data), stat.version

    async def told(self) -> list[list[TopicPartition]]:
        names = (await self.other.children(paths.ISR_CHANGES))[0]
        return [decode_partitions((await self.other.get(f"{paths.ISR_CHANGES}/{name}"))[0]) for name in sorted(names)]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE_SECONDS", "_TELLING_PAUSE_SECONDS"):
        monkeypatch.setattr(isr_changes, name, 0.0)


@on_a_loop
async def test_a_proposal_is_written_on_top_of_what_is_known_and_told() -> None:
    scene, partition = await Scene.made(), Leading()
    partition.catches_up(FIRST)
    scene.changes.propose(partition)
    await scene.settle()
    assert await scene.state() == (PartitionStateNode(LEADER, 4, (LEADER, FIRST), 7), 1)
    assert (partition.replicas.isr, partition.proposed_isr, partition.partition_epoch) == ((LEADER, FIRST), None, 1)
    assert await scene.told() == [[KEY]]
    partition.catches_up(SECOND)
    scene.changes.propose(partition)
    await scene.settle()
    assert (await scene.state())[0].isr == partition.replicas.isr == (LEADER, FIRST, SECOND)


@on_a_loop
async def test_a_proposal_that_was_taken_back_is_not_written() -> None:
    scene, partition = await Scene.made(), Leading()
    scene.changes.propose(partition)
    await scene.settle()
    assert (await scene.state())[1] == 0
    assert await scene.told() == []


@on_a_loop
async def test_on_top_of_what_the_controller_wrote_in_this_epoch_nothing_is_written() -> None:
    scene, partition = await Scene.made(), Leading()
    partition.catches_up(FIRST)
    await scene.other.set(PATH, PartitionStateNode(LEADER, 4, (LEADER, SECOND), 8).encode())
    scene.changes.propose(partition)
    await scene.settle()
    assert (await scene.state())[1] == 1
    assert (partition.replicas.isr, partition.proposed_isr, partition.partition_epoch) == ((LEADER, SECOND), None, 1)


@pytest.mark.parametrize("leader", [LEADER, FIRST])
@on_a_loop
async def test_who_leads_in_another_epoch_is_for_the_controller_to_say(leader: int) -> None:
    scene, partition = await Scene.made(), Leading()
    partition.catches_up(FIRST)
    await scene.other.set(PATH, PartitionStateNode(leader, 5, (leader,), 8).encode())
    scene.changes.propose(partition)
    await scene.settle()
    assert (await scene.state()) == (PartitionStateNode(leader, 5, (leader,), 8), 1)
    assert (partition.replicas.isr, partition.leader_epoch, partition.proposed_isr) == ((LEADER,), 4, (LEADER, FIRST))


@on_a_loop
async def test_a_partition_that_is_gone_is_left_alone() -> None:
    scene, partition = await Scene.made(), Leading()
    partition.catches_up(FIRST)
    await scene.other.delete(PATH)
    scene.changes.propose(partition)
    await scene.settle()
    assert partition.proposed_isr == (LEADER, FIRST)


@pytest.mark.parametrize("way", ["lost_there", "lost_back"])
@on_a_loop
async def test_a_write_that_was_not_answered_is_written_once(way: str) -> None:
    scene, partition = await Scene.made(), Leading()
    partition.catches_up(FIRST)
    setattr(scene.store, way, 2 if way == "lost_there" else 1)
    scene.changes.propose(partition)
    await scene.settle()
    assert await scene.state() == (PartitionStateNode(LEADER, 4, (LEADER, FIRST), 7), 1)
    assert (partition.replicas.isr, partition.proposed_isr, partition.partition_epoch) == ((LEADER, FIRST), None, 1)


@on_a_loop
async def test_what_could_not_be_told_is_told_later() -> None:
    scene, partition = await Scene.made(), Leading()
    partition.catches_up(FIRST)
    scene.changes.propose(partition)
    while not scene.changes._unreported:
        await asyncio.sleep(0)
    scene.store.lost_there = 3
    await scene.settle()
    assert scene.store.lost_there == 0
    assert await scene.told() == [[KEY]]


@on_a_loop
async def test_many_partitions_are_written_and_named_together() -> None:
    scene = await Scene.made(200)
    partitions = [Leading(number) for number in range(200)]
    for partition in partitions:
        partition.catches_up(FIRST)
        scene.changes.propose(partition)
    assert len(scene.changes._working) == 50
    await scene.settle()
    assert all(partition.replicas.isr == (LEADER, FIRST) for partition in partitions)
    told = await scene.told()
    assert sorted(key for keys in told for key in keys) == sorted(partition.topic_partition for partition in partitions)
    assert len(told) < 200


@on_a_loop
async def test_after_the_end_nothing_is_written() -> None:
    scene, partition = await Scene.made(), Leading()
    partition.catches_up(FIRST)
    scene.changes.propose(partition)
    await scene.changes.close()
    scene.changes.propose(partition)
    assert (await scene.state())[1] == 0


def _shrinking() -> Leading:
    """A leader with all replicas in sync, min.insync.replicas=2, and both followers about to leave the ISR."""
    partition = Leading()
    partition.replicas.min_in_sync = 2
    partition.replicas.led_by(LEADER, 4, (LEADER, FIRST, SECOND), 1, 10, 0)
    assert partition.replicas.drop_lagging(20, 5000)
    return partition


async def _shrinking_scene(partition: Leading) -> Scene:
    scene = await Scene.made()
    await scene.other.set(PATH, PartitionStateNode(LEADER, 4, partition.replicas.isr, 7).encode())
    scene.changes.propose(partition)
    for _ in range(10):
        await asyncio.sleep(0)
    return scene


@on_a_loop
async def test_an_isr_with_too_few_is_written_when_the_log_is_synced() -> None:
    partition = _shrinking()
    scene = await _shrinking_scene(partition)
    assert (await scene.state())[0].isr == (LEADER, FIRST, SECOND)
    (ended,) = partition.syncs
    ended(None)
    await scene.settle()
    assert (await scene.state())[0].isr == partition.replicas.isr == (LEADER,)
    assert len(partition.syncs) == 1


@on_a_loop
async def test_an_isr_with_too_few_is_not_written_while_the_disk_fails() -> None:
    partition = _shrinking()
    scene = await _shrinking_scene(partition)
    partition.syncs.pop()(KafkaStorageError("broken"))
    await scene.settle()
    assert (await scene.state())[0].isr == (LEADER, FIRST, SECOND)
    assert partition.proposed_isr == (LEADER,)
    scene.syncs.try_again()
    partition.syncs.pop()(None)
    await scene.settle()
    assert (await scene.state())[0].isr == (LEADER,)


@on_a_loop
async def test_what_was_told_while_the_log_was_synced_asks_for_another_sync() -> None:
    partition = _shrinking()
    scene = await _shrinking_scene(partition)
    partition.replicas.led_by(LEADER, 5, (LEADER,), 0, 20, 5000)
    partition.syncs.pop()(None)
    partition.syncs.pop()(None)
    await scene.settle()
    assert not partition.is_to_be_synced
    assert (await scene.state())[0].isr == (LEADER, FIRST, SECOND)


async def _synced_while_away() -> tuple[Scene, Leading]:
    """A leader whose session is suspended, and whose log is synced for an ISR that is too small."""
    partition = _shrinking()
    scene = await Scene.made()
    await scene.other.set(PATH, PartitionStateNode(LEADER, 4, partition.replicas.isr, 7).encode())
    scene.store.state = SessionState.SUSPENDED
    scene.changes.propose(partition)
    partition.syncs.pop()(None)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (partition.proposed_isr, scene.store.asked) == ((LEADER,), 0)
    return scene, partition


def _come_back(partition: Leading) -> None:
    for number in (FIRST, SECOND):
        assert not partition.replicas.follower_fetched(number, 20, 20, 10, 5001)


@on_a_loop
async def test_while_the_tree_is_out_of_reach_nothing_is_sent_and_followers_that_are_back_stay() -> None:
    scene, partition = await _synced_while_away()
    _come_back(partition)
    assert partition.proposed_isr is None
    assert partition.replicas.next_high_watermark(10, 20, 5002) == 20
    scene.store.state = SessionState.CONNECTED
    await scene.settle()
    assert (scene.store.asked, (await scene.state())[1]) == (0, 1)


@on_a_loop
async def test_what_could_not_be_sent_is_written_when_the_tree_is_back() -> None:
    scene, partition = await _synced_while_away()
    scene.store.state = SessionState.CONNECTED
    await scene.settle()
    assert (await scene.state())[0].isr == partition.replicas.isr == (LEADER,)


@on_a_loop
async def test_what_was_sent_and_not_answered_stands_while_the_tree_is_out_of_reach() -> None:
    partition = _shrinking()
    scene = await _shrinking_scene(partition)
    scene.store.lost_back = 1
    partition.syncs.pop()(None)
    while not scene.store.asked:
        await asyncio.sleep(0)
    _come_back(partition)
    assert partition.proposed_isr == (LEADER,)
    assert partition.replicas.next_high_watermark(10, 20, 5002) == 10
    await scene.settle()
    assert (await scene.state())[0].isr == partition.replicas.isr == (LEADER,)


@on_a_loop
async def test_a_proposal_that_has_to_wait_for_a_sync_when_it_is_tried_again_is_written_in_the_end() -> None:
    """While the tree does not answer, min.insync.replicas is raised."""
    partition = _shrinking()
    partition.replicas.min_in_sync = 1
    scene = await Scene.made()
    await scene.other.set(PATH, PartitionStateNode(LEADER, 4, partition.replicas.isr, 7).encode())
    scene.store.lost_there = 1000
    scene.changes.propose(partition)
    for _ in range(10):
        await asyncio.sleep(0)
    assert partition.syncs == []
    partition.replicas.min_in_sync = 2
    async with asyncio.timeout(10):
        while not partition.syncs:
            await asyncio.sleep(0)
    scene.store.lost_there = 0
    partition.syncs.pop()(None)
    await scene.settle()
    assert (await scene.state())[0].isr == partition.replicas.isr == (LEADER,)
