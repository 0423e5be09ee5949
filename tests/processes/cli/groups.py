"""Groups as tests see them from outside, through our own client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from jesenska.base.errors import InvalidReplicationFactorError, KafkaError, TopicAlreadyExistsError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.group_administration import GroupDescription
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess

Value = TypeVar("Value")


class Reachable(Protocol):
    """A broker, ours or Apache Kafka's."""

    @property
    def bootstrap(self) -> str: ...


def ask(broker: Reachable, work: Callable[[Cluster], Awaitable[Value]]) -> Value:
    async def main() -> Value:
        cluster = Cluster(broker.bootstrap)
        try:
            async with asyncio.timeout(100):
                return await work(cluster)
        finally:
            await cluster.close()

    return asyncio.run(main())


async def _create(cluster: Cluster, topic: str, partitions: int) -> None:
    """Apache Kafka listens before it has registered. Repeats the request while there is no broker yet."""
    while True:
        (error,) = (await Admin(cluster).create_topics([NewTopic(topic, partitions, 1)])).values()
        if error is None or isinstance(error, TopicAlreadyExistsError):
            return
        if not error.retriable and not isinstance(error, InvalidReplicationFactorError):
            raise error
        await asyncio.sleep(0.1)


def fill(
    broker: Reachable, topic: str, partitions: int, count: int, start: int = 0, timestamp_ms: int | None = None
) -> None:
    """Fills a topic with this many numbers, the same count in each partition. Creates the topic if it does not
    exist."""

    async def work(cluster: Cluster) -> None:
        await _create(cluster, topic, partitions)
        async with Producer(cluster) as producer:
            sent = [
                await producer.send(topic, b"%d" % number, partition=number % partitions, timestamp_ms=timestamp_ms)
                for number in range(start, start + count)
            ]
            await producer.flush()
        assert all(future.result().offset >= 0 for future in sent)

    ask(broker, work)


def committed(broker: Reachable, group: str) -> dict[TopicPartition, int]:
    async def work(cluster: Cluster) -> dict[TopicPartition, int]:
        return {key: item.offset for key, item in (await Admin(cluster).list_group_offsets(group)).items()}

    return ask(broker, work)


def describe(broker: BrokerProcess, group: str) -> GroupDescription | KafkaError:
    async def work(cluster: Cluster) -> GroupDescription | KafkaError:
        return (await Admin(cluster).describe_groups([group]))[group]

    return ask(broker, work)


def group_state(broker: BrokerProcess, group: str) -> str:
    found = describe(broker, group)
    assert isinstance(found, GroupDescription), found
    return found.state


def commit(broker: BrokerProcess, group: str, offsets: dict[TopicPartition, int]) -> None:
    async def work(cluster: Cluster) -> None:
        results = await Admin(cluster).alter_group_offsets(group, offsets)
        assert results == dict.fromkeys(offsets)

    ask(broker, work)


def until_shared(broker: BrokerProcess, group: str, members: int, partitions: int) -> GroupDescription:
    """Asks until the group is stable and each of its members has as many partitions as the others."""

    async def work(cluster: Cluster) -> GroupDescription:
        while True:
            found = (await Admin(cluster).describe_groups([group]))[group]
            if isinstance(found, GroupDescription) and found.state == "Stable":
                shares = [len(member.assignment) for member in found.members]
                if shares == [partitions // members] * members:
                    return found
            await asyncio.sleep(0.05)

    return ask(broker, work)


def until_committed(broker: Reachable, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Asks until the group has committed these offsets."""

    async def work(cluster: Cluster) -> None:
        while {key: item.offset for key, item in (await Admin(cluster).list_group_offsets(group)).items()} != offsets:
            await asyncio.sleep(0.05)

    ask(broker, work)
