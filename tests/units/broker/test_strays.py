"""Replicas of partitions that were moved to other brokers while their broker was away: deleted when the controller has
sent everything, and a registered broker leads the partition."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.metadata_cache import MetadataCache
from jesenska.broker.replicas.order_receiver import OrderReceiver
from jesenska.broker.replicas.replica_manager import ReplicaManager
from jesenska.controller.orders.requests import Metadata, Orderer, Stop
from jesenska.metadata.nodes import BrokerRegistration
from jesenska.replication.follower.links import FollowerLinks
from tests.on_a_loop import on_a_loop

_ID = uuid.UUID(int=7)
_KEY = TopicPartition("t", 0)
_ORDERER = Orderer(1, 1)


class _Manager(ReplicaManager):
    """Broker 3, which has a log of t-0. The partition is on the brokers 1 and 2."""

    def __init__(self) -> None:
        self.view = MetadataCache("a-cluster", 1)
        self.partition = SimpleNamespace(replicas=(1, 2), leader=-1, leader_epoch=4, topic_partition=_KEY)
        self.view.topics["t"] = cast(Any, SimpleNamespace(topic_id=_ID, partitions=[self.partition]))
        self.logs = {_KEY: SimpleNamespace(topic_id=_ID)}
        core = SimpleNamespace(
            broker_id=3,
            view=self.view,
            directories=SimpleNamespace(logs=self.logs),
            waiting=SimpleNamespace(notify=None),
        )
        super().__init__(cast(Any, core), cast(Any, SimpleNamespace(topic_config=None)), cast(FollowerLinks, None))
        self.stops: list[Stop] = []

    async def update_metadata(self, metadata: Metadata, controller_id: int) -> None:
        self.view.brokers = cast(Any, dict(metadata.brokers))

    async def stop(self, stops: Sequence[Stop]) -> dict[TopicPartition, ErrorCode]:
        self.stops += stops
        for stop in stops:
            self.logs.pop(stop.topic_partition, None)
        return {}


async def _told(receiver: OrderReceiver, brokers: Sequence[int], *, is_all: bool = False) -> None:
    registered = cast(dict[int, BrokerRegistration], dict.fromkeys(brokers))
    await receiver.update_metadata(_ORDERER, Metadata((), (), registered, is_all=is_all))


async def _told_everything(receiver: OrderReceiver, brokers: Sequence[int]) -> None:
    await _told(receiver, brokers, is_all=True)
    await _told(receiver, brokers)


@on_a_loop
async def test_a_moved_replica_is_deleted_when_everything_is_known() -> None:
    manager = _Manager()
    manager.partition.leader = 1
    receiver = OrderReceiver(manager)
    await _told(receiver, [1, 2, 3], is_all=True)
    assert manager.stops == []
    await _told(receiver, [1, 2, 3])
    assert manager.stops == [Stop(_KEY, 4, delete=True)]


@on_a_loop
async def test_a_moved_replica_is_kept_until_a_broker_leads() -> None:
    manager = _Manager()
    receiver = OrderReceiver(manager)
    await _told_everything(receiver, [2, 3])
    assert manager.stops == []
    manager.partition.leader, manager.partition.leader_epoch = 1, 5
    await _told(receiver, [2, 3])
    assert manager.stops == []
    await _told(receiver, [1, 2, 3])
    assert manager.stops == [Stop(_KEY, 5, delete=True)]
    await _told(receiver, [1, 2, 3])
    assert len(manager.stops) == 1


@on_a_loop
async def test_a_replica_that_is_assigned_again_is_kept() -> None:
    manager = _Manager()
    receiver = OrderReceiver(manager)
    await _told_everything(receiver, [2, 3])
    manager.partition.replicas, manager.partition.leader = (3, 1), 1
    await _told(receiver, [1, 2, 3])
    manager.partition.replicas = (1, 2)  # the controller deletes this replica with an order of its own
    await _told(receiver, [1, 2, 3])
    assert manager.stops == []


@on_a_loop
async def test_a_topic_that_is_another_one_now_is_left_alone() -> None:
    manager = _Manager()
    receiver = OrderReceiver(manager)
    await _told_everything(receiver, [2, 3])
    manager.view.topics["t"].topic_id = uuid.UUID(int=8)
    manager.partition.leader = 1
    await _told(receiver, [1, 2, 3])
    assert manager.stops == []
