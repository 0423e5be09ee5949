"""Several brokers on one loop and one tree: the settings of a cluster. tests/cluster has the tests of killed
processes."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.broker.server import Broker, Serving
from jesenska.broker.settings.derived_settings import link_settings_of
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster as ClientCluster
from jesenska.config.layers import BrokerConfig
from jesenska.controller.context import PartitionView, TopicView
from jesenska.controller.effects import TopicPartitions
from jesenska.controller.orders.requests import Metadata, Orderer
from jesenska.controller.plans.topics import TopicCreation
from jesenska.metadata.nodes import PartitionStateNode, TopicNode
from jesenska.replication.follower.link import LinkSettings
from jesenska.wire.messages.k07_controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tests.processes.broker.test_shared_tree import on, run, until
from tests.raw_connection import RawConnection
from tests.served_tree import served


class Cluster:
    """Brokers by their ids. `stop` ends one, and `start` starts it again on the same data."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self._data = data
        self._settings = settings
        self.brokers: dict[int, Broker] = {}

    async def start(self, *broker_ids: int, **settings: str) -> None:
        made = []
        for broker_id in broker_ids:
            own = {
                "broker.id": str(broker_id),
                "log.dirs": str(self._data / str(broker_id)),
                "listeners": "PLAINTEXT://127.0.0.1:0",
            }
            self.brokers[broker_id] = broker = Broker(
                BrokerConfig({"offsets.topic.num.partitions": "1", **own, **self._settings, **settings})
            )
            made.append(broker.start())
        await asyncio.gather(*made)
        await until(lambda: all(broker.view.brokers.keys() == self.brokers.keys() for broker in self.brokers.values()))

    async def stop(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    @property
    def controller(self) -> Broker:
        return next(broker for broker in self.brokers.values() if broker.control.controller.is_controller)

    async def create(self, partitions: int, replicas: int) -> None:
        await self.controller.control.controller.create(TopicCreation("t", partitions, replicas))
        await until(lambda: all("t" in broker.view.topics for broker in self.brokers.values()))

    def leaders(self, broker: Broker) -> list[int]:
        return [partition.leader for partition in broker.view.topics["t"].partitions]


@contextlib.asynccontextmanager
async def cluster(data: Path, count: int, settings: dict[str, str] | None = None) -> AsyncIterator[Cluster]:
    async with served() as server:
        made = Cluster(data, on(server) | (settings or {}))
        try:
            await made.start(*range(1, count + 1))
            yield made
        finally:
            for broker_id in list(made.brokers):
                await made.stop(broker_id)


def with_cluster(
    data: Path, count: int, work: Callable[[Cluster], Awaitable[None]], settings: dict[str, str] | None = None
) -> None:
    async def main() -> None:
        async with cluster(data, count, settings) as made:
            await work(made)

    run(main)


def test_a_follower_asks_as_its_settings_say() -> None:
    config = BrokerConfig(
        {
            "replica.fetch.wait.max.ms": "11",
            "replica.fetch.min.bytes": "12",
            "replica.fetch.max.bytes": "13",
            "replica.fetch.response.max.bytes": "14",
            "replica.fetch.backoff.ms": "15",
            "replica.socket.timeout.ms": "16",
        }
    )
    assert link_settings_of(7, config) == LinkSettings(
        7, wait_max_ms=11, min_bytes=12, partition_max_bytes=13, response_max_bytes=14, backoff_ms=15, timeout_ms=16
    )


def test_the_links_to_a_leader_are_as_many_as_set_also_while_running(tmp_path: Path) -> None:
    async def work(brokers: Cluster) -> None:
        await brokers.create(20, 2)
        one = brokers.brokers[1]
        assert len(one.replication.links) == 2
        await one.control.controller.alter_broker("", {"num.replica.fetchers": "1"}, validate_only=False)
        await until(lambda: all(len(broker.replication.links) == 1 for broker in brokers.brokers.values()))

    with_cluster(tmp_path, 2, work, {"num.replica.fetchers": "2"})


def test_a_broker_that_stops_hands_over_what_it_leads_unless_that_is_switched_off(tmp_path: Path) -> None:
    async def work(brokers: Cluster) -> None:
        await brokers.create(4, 2)
        await brokers.stop(1)
        assert brokers.leaders(brokers.brokers[2]) == [2] * 4
        # In order, and not after it was gone: each partition has begun one epoch, and no more.
        assert [partition.leader_epoch for partition in brokers.brokers[2].view.topics["t"].partitions] == [1] * 4

    with_cluster(tmp_path / "on", 2, work, {"controlled.shutdown.enable": "true"})

    async def without(brokers: Cluster) -> None:
        await brokers.create(4, 2)
        told = []
        other = brokers.brokers[2]
        stop_wanted = other.control.controller.stop_wanted
        other.control.controller.stop_wanted = lambda broker_id: told.append(broker_id) or stop_wanted(broker_id)  # type: ignore[method-assign,func-returns-value]
        await brokers.stop(1)
        await until(lambda: brokers.leaders(other) == [2] * 4)
        assert not told

    with_cluster(tmp_path / "off", 2, without, {"controlled.shutdown.enable": "false"})


@pytest.mark.parametrize("retries", [0, 2])
def test_the_controller_is_asked_again_to_take_over_as_often_as_set(tmp_path: Path, retries: int) -> None:
    async def work(brokers: Cluster) -> None:
        asked = []
        stopping = brokers.brokers.pop(1)

        async def refuse(serving: Serving) -> list[object]:
            asked.append(1)
            return [object()]

        stopping._ask_to_stop = refuse  # type: ignore[method-assign,assignment]
        await stopping.stop()
        assert len(asked) == 1 + retries

    with_cluster(
        tmp_path,
        2,
        work,
        {"controlled.shutdown.max.retries": str(retries), "controlled.shutdown.retry.backoff.ms": "10"},
    )


def test_first_replicas_lead_again_after_a_while(tmp_path: Path) -> None:
    async def work(brokers: Cluster) -> None:
        await brokers.create(4, 2)
        wanted = brokers.leaders(brokers.brokers[1])
        assert sorted(wanted) == [1, 1, 2, 2]
        await brokers.stop(2)
        await brokers.start(2)
        await until(lambda: brokers.leaders(brokers.brokers[1]) == wanted)

    with_cluster(
        tmp_path,
        2,
        work,
        {
            "auto.leader.rebalance.enable": "true",
            "leader.imbalance.check.interval.seconds": "1",
            "leader.imbalance.per.broker.percentage": "10",
        },
    )


def test_a_broker_that_does_not_answer_the_controller_is_asked_again(tmp_path: Path) -> None:
    """Without controller.socket.timeout.ms, the controller would wait for the first answer forever."""

    async def work(brokers: Cluster) -> None:
        other = next(broker for broker in brokers.brokers.values() if not broker.control.controller.is_controller)
        update, calls = other.control.orders.update_metadata, []

        async def slow(*arguments: object) -> None:
            calls.append(1)
            if len(calls) == 1:
                await asyncio.Event().wait()
            await update(*arguments)  # type: ignore[arg-type]

        other.control.orders.update_metadata = slow  # type: ignore[method-assign,assignment]
        await brokers.create(1, 1)
        assert len(calls) >= 2

    with_cluster(tmp_path, 2, work, {"controller.socket.timeout.ms": "300"})


def test_only_the_controller_takes_a_stop(tmp_path: Path) -> None:
    async def work(brokers: Cluster) -> None:
        for broker in brokers.brokers.values():
            host, port = broker.endpoint_for("PLAINTEXT")

            def ask(host: str = host, port: int = port) -> int:
                with RawConnection(f"{host}:{port}") as connection:
                    answer = connection.ask(ControlledShutdownRequest(broker_id=1), 3, ControlledShutdownResponse)
                    return answer.error_code

            code = await asyncio.to_thread(ask)
            assert code == (
                ErrorCode.NONE if broker.control.controller.is_controller else ErrorCode.STALE_CONTROLLER_EPOCH
            )

    with_cluster(tmp_path, 2, work)


def test_a_client_that_asks_another_broker_than_the_controller_finds_it(tmp_path: Path) -> None:
    async def work(brokers: Cluster) -> None:
        other = next(broker for broker in brokers.brokers.values() if not broker.control.controller.is_controller)
        client = ClientCluster(
            ",".join("{}:{}".format(*broker.endpoint_for("PLAINTEXT")) for broker in brokers.brokers.values())
        )
        try:
            await client.refresh([])
            client.controller_id = other.broker_id
            assert await Admin(client).create_topics([NewTopic("asked", 1, 2)]) == {"asked": None}
        finally:
            await client.close()

    with_cluster(tmp_path, 2, work)


def test_a_partition_number_that_is_far_away_takes_no_memory(tmp_path: Path) -> None:
    async def work(brokers: Cluster) -> None:
        await brokers.create(1, 1)
        other = next(broker for broker in brokers.brokers.values() if not broker.control.controller.is_controller)
        leader = brokers.controller.broker_id  # a broker learns of the replicas that it has itself by another order
        orderer = Orderer(leader, other.control.orders.fence.controller_epoch)
        state = PartitionView(PartitionStateNode(leader, 0, (leader,), 1))
        far, near = (
            TopicView(name, TopicNode({number: (leader,)}, uuid.uuid4()), 0, {number: state})
            for name, number in (("far", 2**31 - 1), ("near", 3))
        )
        told = Metadata(
            (TopicPartitions(far, (2**31 - 1,)), TopicPartitions(near, (3,))),
            (),
            brokers.controller.control.controller.facts.brokers,
        )
        await other.control.orders.update_metadata(orderer, told)
        assert "far" not in other.view.topics
        await other.control.orders.update_metadata(orderer, Metadata(told.topics[1:], (), told.brokers))
        assert [partition.leader for partition in other.view.topics["near"].partitions] == [-1, -1, -1, leader]

    with_cluster(tmp_path, 2, work)


def test_replicas_of_which_clients_are_told_later_than_of_others_are_kept(tmp_path: Path) -> None:
    async def work(brokers: Cluster) -> None:
        await brokers.create(1, 1)
        other = next(broker for broker in brokers.brokers.values() if not broker.control.controller.is_controller)
        orderer = Orderer(brokers.controller.broker_id, other.control.orders.fence.controller_epoch)
        state = PartitionView(PartitionStateNode(other.broker_id, 0, (other.broker_id,), 1))
        topic = TopicView(
            "later", TopicNode({0: (other.broker_id,), 1: (other.broker_id,)}, uuid.uuid4()), 0, {0: state, 1: state}
        )
        assert await other.control.orders.lead_and_follow(orderer, [TopicPartitions(topic, (0, 1))]) == {}
        facts = brokers.controller.control.controller.facts
        for number in (0, 1):
            await other.control.orders.update_metadata(
                orderer, Metadata((TopicPartitions(topic, (number,)),), (), facts.brokers)
            )
        assert [partition.is_served for partition in other.view.topics["later"].partitions] == [True, True]

    with_cluster(tmp_path, 2, work)
