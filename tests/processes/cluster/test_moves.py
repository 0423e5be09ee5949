"""Replicas of leaders and followers move between the log directories of their brokers while brokers stop and start. No
acknowledged record is lost, and all replicas have the same log at the end."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from jesenska.base.errors import KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.testing.faults.load import cluster_of
from tests.cluster.cluster import SECONDS, BrokerCluster, until
from tests.cluster.loaded import loaded
from tests.cluster.view import View

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

_DIRECTORIES = ("one", "two", "three")
_PARTITIONS = 3
_SETTINGS = {"log.segment.bytes": "40000"}


def home(cluster: BrokerCluster, broker_id: int, key: TopicPartition) -> str:
    """The log directory of a replica on a broker."""
    names = [
        path.parent.name
        for path in cluster.brokers[broker_id].data.glob(f"*/{key}")
        if (path / "partition.metadata").exists()
    ]
    return names[-1]


def move(cluster: BrokerCluster, broker_id: int, key: TopicPartition, directory: str) -> KafkaError | None:
    async def ask() -> KafkaError | None:
        client = cluster_of(cluster.brokers[broker_id].address, "test")
        try:
            path = cluster.brokers[broker_id].data / directory
            return (await Admin(client).alter_replica_log_dirs(broker_id, {key: str(path)}))[key]
        finally:
            await client.close()

    return asyncio.run(ask())


def following(name: str) -> str:
    return _DIRECTORIES[(_DIRECTORIES.index(name) + 1) % len(_DIRECTORIES)]


def has_moved(cluster: BrokerCluster, broker_id: int, key: TopicPartition, target: str) -> None:
    data = cluster.brokers[broker_id].data
    until(
        lambda: (data / target / str(key)).is_dir() and not list(data.glob(f"*/{key}.*-future")),
        f"{key} of broker {broker_id} is in {target}",
        SECONDS,
    )


def is_led_by_others(broker_id: int, view: View) -> bool:
    return all(view.of("t", number).leader not in (-1, broker_id) for number in range(_PARTITIONS))


def test_replicas_of_leaders_and_followers_move_under_load(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", log_dirs=_DIRECTORIES, settings=_SETTINGS) as cluster:
        cluster.create("t", _PARTITIONS)
        with loaded(cluster, "t", tmp_path, partitions=_PARTITIONS, members=1) as load:
            load.wait_for(50)
            for number in range(_PARTITIONS):
                key = TopicPartition("t", number)
                before = cluster.view().of("t", number)
                for broker_id in cluster.brokers:
                    target = following(home(cluster, broker_id, key))
                    assert move(cluster, broker_id, key, target) is None
                    has_moved(cluster, broker_id, key, target)
                after = cluster.view().of("t", number)
                assert (after.leader, after.leader_epoch, sorted(after.isr)) == (
                    before.leader,
                    before.leader_epoch,
                    sorted(before.isr),
                )
                load.wait_for(20)
        assert sum(broker.log.count("has moved from") for broker in cluster.brokers.values()) == 3 * _PARTITIONS


def test_replicas_move_while_leaders_are_killed_and_followers_cut_their_logs(tmp_path: Path) -> None:
    """The copying is throttled, so that elections, truncations and restarts happen during it."""
    settings = {**_SETTINGS, "replica.alter.log.dirs.io.max.bytes.per.second": "200000"}
    with BrokerCluster(tmp_path / "cluster", log_dirs=_DIRECTORIES, settings=settings) as cluster:
        cluster.create("t", _PARTITIONS)
        with loaded(cluster, "t", tmp_path, partitions=_PARTITIONS) as load:
            load.wait_for(200)
            targets: dict[tuple[int, TopicPartition], str] = {}
            for number in range(_PARTITIONS):
                key = TopicPartition("t", number)
                for broker_id in cluster.brokers:
                    targets[broker_id, key] = following(home(cluster, broker_id, key))
                    assert move(cluster, broker_id, key, targets[broker_id, key]) is None
            for broker_id in list(cluster.brokers):
                cluster.brokers[broker_id].kill()
                cluster.until(partial(is_led_by_others, broker_id))
                load.wait_for(30)
                cluster.brokers[broker_id].start()
                cluster.until_whole()
            for (broker_id, key), target in targets.items():
                has_moved(cluster, broker_id, key, target)
            load.wait_for(50)


def test_a_replica_that_a_broker_does_not_have_is_made_where_it_is_wanted(tmp_path: Path) -> None:
    with BrokerCluster(tmp_path / "cluster", log_dirs=_DIRECTORIES) as cluster:
        for broker_id in cluster.brokers:
            error = move(cluster, broker_id, TopicPartition("t", 0), "three")
            assert type(error).__name__ == "UnknownTopicOrPartitionError"
        cluster.create("t", 1)
        assert {home(cluster, broker_id, TopicPartition("t", 0)) for broker_id in cluster.brokers} == {"three"}
