"""A broker that follows several others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jesenska.base.clock import SystemClock
from jesenska.base.identifiers import TopicPartition
from jesenska.log.log_config import LogConfig
from jesenska.replication.follower.links import FollowerLinks
from jesenska.wire.messages.k01_fetch import FetchRequest
from tests.on_a_loop import on_a_loop
from tests.units.log.log_harness import LogHarness
from tests.units.net.fake_channel import FakeChannel
from tests.units.replication.test_follower_link import SETTINGS, TOPIC_ID, Leader, content_of

KEYS = [TopicPartition("t", number) for number in range(6)]


class Cluster:
    """Leaders 0 and 2, and a follower of both."""

    def __init__(self, directory: Path, per_leader: int = 1) -> None:
        self.leaders = {number: Leader(directory / f"leader-{number}") for number in (0, 2)}
        self.logs = {
            key: LogHarness(directory / f"follower-{key.partition}", LogConfig(segment_bytes=1000)).log for key in KEYS
        }
        self.channels: list[tuple[int, FakeChannel]] = []
        self._changed = asyncio.Event()
        self.links = FollowerLinks(self._connect, SystemClock(), SETTINGS, per_leader, lambda key: self._changed.set())

    async def _connect(self, leader_id: int) -> Any:
        self.channels.append((leader_id, FakeChannel(self.leaders[leader_id].answer, {FetchRequest.api_key: 18})))
        return self.channels[-1][1]

    def follow(self, key: TopicPartition, leader_id: int) -> None:
        leader = self.leaders[leader_id]
        if key not in leader.logs:
            leader.make(key)
        self.links.follow(key, self.logs[key], TOPIC_ID, leader_id, leader.leader_epoch)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.05)
                except TimeoutError:
                    pass

    async def until_same(self, key: TopicPartition, leader_id: int) -> None:
        ours, theirs = self.logs[key], self.leaders[leader_id].logs[key]
        await self.until(
            lambda: (ours.log_end_offset, ours.high_watermark) == (theirs.log_end_offset, theirs.high_watermark)
        )
        assert content_of(ours) == content_of(theirs)


@on_a_loop
async def test_each_partition_is_followed_from_its_leader_over_one_link(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for key in KEYS:
        cluster.follow(key, key.partition % 2 * 2)
    for key in KEYS:
        cluster.leaders[key.partition % 2 * 2].append(key, 3)
    for key in KEYS:
        await cluster.until_same(key, key.partition % 2 * 2)
    assert sorted(leader_id for leader_id, _ in cluster.channels) == [0, 2]
    assert len(cluster.links) == 2
    cluster.links.close()


@on_a_loop
async def test_several_links_to_a_leader_share_its_partitions(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, per_leader=3)
    for key in KEYS:
        cluster.follow(key, 0)
        cluster.leaders[0].append(key)
    for key in KEYS:
        await cluster.until_same(key, 0)
    assert 1 < len(cluster.links) <= 3
    assert len(cluster.channels) == len(cluster.links)
    cluster.links.close()


@on_a_loop
async def test_a_partition_that_is_led_by_another_goes_to_the_other_link_and_an_empty_link_ends(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    key = KEYS[0]
    cluster.follow(key, 0)
    cluster.leaders[0].append(key, 2)
    await cluster.until_same(key, 0)
    # Broker 2 has the same log, and leads it in the next epoch.
    second = cluster.leaders[2]
    second.make(key)
    second.append(key, 2)
    second.lead_again(2)
    cluster.links.follow(key, cluster.logs[key], TOPIC_ID, 2, 2)
    assert cluster.links.leader_of(key) == 2
    assert len(cluster.links) == 1
    assert cluster.channels[0][1].closed
    second.append(key)
    await cluster.until_same(key, 2)
    cluster.links.leave(key)
    assert len(cluster.links) == 0
    assert cluster.links.leader_of(key) is None
    assert cluster.links.state(key) is None
    second.append(key)
    assert cluster.logs[key].log_end_offset == 3
    cluster.links.close()
