"""A group belongs to the same partition of the offsets topic on all brokers, however much of the topic they know."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from jesenska.base.clock import ManualClock
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.coordinators.groups import Groups
from jesenska.broker.metadata_cache import MetadataCache
from jesenska.config.layers import BrokerConfig
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC, partition_for
from jesenska.metadata import paths
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import TopicNode

_LEADER = 7
_PARTITIONS = 5


def _group_of(number: int) -> str:
    """A group that belongs to this partition of five."""
    return next(name for name in (f"group-{n}" for n in range(1000)) if partition_for(name, _PARTITIONS) == number)


def _told_of_the_first() -> Any:
    """Returns the state that a broker shares with its groups; it knows only the topic's first partition."""
    view = MetadataCache("", -1)
    first = SimpleNamespace(topic_partition=TopicPartition(OFFSETS_TOPIC, 0), leader=_LEADER, is_served=False)
    view.topics[OFFSETS_TOPIC] = SimpleNamespace(partitions=[first])  # type: ignore[assignment]
    pool = SimpleNamespace(executor=None)
    return SimpleNamespace(
        config=BrokerConfig({}), machine=None, pool=pool, read_region=None, clock=ManualClock(), view=view
    )


async def _nothing(name: str) -> None:
    """Creates no topic."""


def test_partitions_are_counted_in_the_tree_where_a_broker_was_told_of_some() -> None:
    async def body() -> None:
        store = await EmbeddedTree.simulated(ManualClock()).session()
        await store.create(paths.TOPICS.rpartition("/")[0], b"")
        await store.create(paths.TOPICS, b"")
        await store.create(
            paths.topic(OFFSETS_TOPIC), TopicNode(dict.fromkeys(range(_PARTITIONS), (_LEADER,)), None).encode()
        )
        groups = Groups(_told_of_the_first(), store, _nothing)
        await groups.count_partitions()
        groups.take_over()
        assert groups.leader_for(_group_of(0)) == _LEADER
        assert [groups.leader_for(_group_of(number)) for number in range(1, _PARTITIONS)] == [-1] * (_PARTITIONS - 1)

    asyncio.run(body())


def test_a_topic_that_the_tree_does_not_have_yet_has_the_partitions_that_were_told() -> None:
    async def body() -> None:
        groups = Groups(_told_of_the_first(), await EmbeddedTree.simulated(ManualClock()).session(), _nothing)
        await groups.count_partitions()
        groups.take_over()
        assert {groups.leader_for(_group_of(number)) for number in range(_PARTITIONS)} == {_LEADER}

    asyncio.run(body())
