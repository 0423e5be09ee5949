"""Reads the load of a cluster for a balance: where replicas are, how large they are, and how fast they grow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from jesenska.base.errors import JesenskaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import TopicInfo
from jesenska.controller.plans.balance import BalancedBroker, PartitionLoad


class Loads(NamedTuple):
    """The brokers that are up, and the partitions of the cluster. `leaders` are the present leaders."""

    brokers: tuple[BalancedBroker, ...]
    partitions: tuple[PartitionLoad, ...]
    leaders: Mapping[TopicPartition, int]


class _Disks(NamedTuple):
    #: The largest replica of each partition in bytes, and the brokers whose log directories take no new replicas.
    sizes: Mapping[TopicPartition, int]
    closed: frozenset[int]


async def read_loads(admin: Admin, leaving: frozenset[int], sample_seconds: float) -> Loads:
    """Returns the loads. The rates are the growth of the replicas within `sample_seconds`; 0 leaves them out. Raises
    JesenskaError if a partition has no leader, or a leaving broker is not in the cluster and has no replica."""
    topics = await admin.topics()
    disks = await _read_disks(admin)
    rates: dict[TopicPartition, float] = {}
    if sample_seconds > 0:
        await asyncio.sleep(sample_seconds)
        later = await _read_disks(admin)
        rates = {key: max(0, size - disks.sizes.get(key, size)) / sample_seconds for key, size in later.sizes.items()}
        disks = later
    partitions, leaders = _partitions(topics, disks.sizes, rates)
    known = {*admin.cluster.nodes, *(broker_id for load in partitions for broker_id in load.replicas)}
    for broker_id in leaving - known:
        raise JesenskaError(
            f"There is no broker {broker_id}: the cluster has {', '.join(map(str, sorted(admin.cluster.nodes)))}."
        )
    nodes = admin.cluster.nodes
    brokers = tuple(
        BalancedBroker(
            broker_id,
            nodes[broker_id].rack if broker_id in nodes else None,
            leaves=broker_id in leaving,
            closed=broker_id in disks.closed,
        )
        for broker_id in sorted(nodes.keys() | leaving)
    )
    return Loads(brokers, partitions, leaders)


def _partitions(
    topics: Mapping[str, TopicInfo], sizes: Mapping[TopicPartition, int], rates: Mapping[TopicPartition, float]
) -> tuple[tuple[PartitionLoad, ...], dict[TopicPartition, int]]:
    loads, leaders = [], {}
    for name in sorted(topics):
        for partition in topics[name].partitions:
            key = partition.topic_partition
            if partition.leader < 0:
                raise JesenskaError(f"{key} has no leader: start its brokers first.")
            leaders[key] = partition.leader
            loads.append(PartitionLoad(key, partition.replicas, sizes.get(key, 0), rates.get(key, 0.0)))
    return tuple(loads), leaders


async def _read_disks(admin: Admin) -> _Disks:
    sizes: dict[TopicPartition, int] = {}
    closed = set()
    for broker_id in sorted(admin.cluster.nodes):
        directories = await admin.describe_log_dirs(broker_id)
        for directory in directories:
            for key, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes[key] = max(sizes.get(key, 0), replica.size_bytes)
        if directories and all(directory.is_cordoned for directory in directories):
            closed.add(broker_id)
    return _Disks(sizes, frozenset(closed))
