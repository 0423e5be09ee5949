"""The consumer's side of fetch sessions: the parts of a request that are repeated or left out; and a consumer with a
broker that keeps or loses the session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jesenska.base.identifiers import TopicPartition
from jesenska.broker.server import Broker
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.fetch_session import Asked, FetchPlan, FetchSessionHandler
from jesenska.client.producer import Producer
from jesenska.config.layers import BrokerConfig

A, B, C = (TopicPartition("t", number) for number in range(3))
PARTITIONS = {"a": A, "b": B, "c": C}


def at(**offsets: int) -> dict[TopicPartition, Asked]:
    return {PARTITIONS[name]: Asked(offset, 4) for name, offset in offsets.items()}


def test_a_partition_whose_leader_epoch_changed_is_said_again() -> None:
    session = FetchSessionHandler()
    session.plan({B: Asked(5, 4), C: Asked(7)})
    session.answered(77)
    assert session.plan({B: Asked(5, 5), C: Asked(7)}).wanted == {B: Asked(5, 5)}


def test_only_what_is_new_or_moved_or_dropped_is_said_again() -> None:
    session = FetchSessionHandler()
    assert session.plan(at(a=0, b=5)) == FetchPlan(0, 0, at(a=0, b=5), [])
    session.answered(77)
    assert session.plan(at(a=0, b=5)) == FetchPlan(77, 1, {}, [])
    session.answered(77)
    assert session.plan(at(a=3, c=0)) == FetchPlan(77, 2, at(a=3, c=0), [B])
    session.answered(77)
    assert session.plan(at(a=3, b=5, c=0)) == FetchPlan(77, 3, at(b=5), [])


def test_after_a_failure_everything_is_said_and_the_old_session_is_named_to_be_ended() -> None:
    session = FetchSessionHandler()
    session.plan(at(a=0))
    session.answered(77)
    session.plan(at(a=1))
    session.failed()
    assert session.plan(at(a=1, b=0)) == FetchPlan(77, 0, at(a=1, b=0), [])
    session.answered(78)
    assert session.plan(at(a=1, b=0)) == FetchPlan(78, 1, {}, [])


def test_without_a_session_everything_is_said_each_time() -> None:
    session = FetchSessionHandler()
    for _ in range(2):
        assert session.plan(at(a=0)) == FetchPlan(0, 0, at(a=0), [])
        session.answered(0)


def test_the_epoch_after_the_last_is_one() -> None:
    session = FetchSessionHandler()
    session.plan(at(a=0))
    session.answered(1)
    session._epoch = 2**31 - 1
    session.answered(1)
    assert session.plan(at(a=0)).epoch == 1


def test_a_consumer_of_many_partitions_keeps_a_session_and_gets_over_its_loss(tmp_path: Path) -> None:
    async def read(consumer: Consumer, count: int) -> set[bytes | None]:
        found: set[bytes | None] = set()
        while len(found) < count:
            for records in (await consumer.poll(10)).values():
                found |= {record.value for record in records}
        return found

    async def main() -> None:
        broker = Broker(
            BrokerConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": "0"})
        )
        await broker.start()
        cluster = Cluster(f"127.0.0.1:{broker.endpoint_for(broker.first_listener_name)[1]}")
        try:
            await Admin(cluster).create_topics([NewTopic("t", 40, 1)])
            async with (
                Consumer(cluster, max_wait_seconds=0.05) as consumer,
                Producer(cluster, linger_seconds=0) as producer,
            ):
                await consumer.assign([TopicPartition("t", number) for number in range(40)])
                while not broker.fetch_sessions._sessions:
                    assert await consumer.poll(0.2) == {}
                (session,) = broker.fetch_sessions._sessions.values()
                assert session.size == 40
                epoch = session.epoch
                for number in (3, 17):
                    await (await producer.send("t", b"%d" % number, partition=number))
                assert await read(consumer, 2) == {b"3", b"17"}
                assert broker.fetch_sessions.get(session.session_id) is session
                assert session.epoch > epoch
                broker.fetch_sessions.close()
                await (await producer.send("t", b"again", partition=3))
                assert await read(consumer, 1) == {b"again"}
                assert consumer.position(TopicPartition("t", 3)) == 2
        finally:
            await cluster.close()
            await broker.stop()

    asyncio.run(main())
