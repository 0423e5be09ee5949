from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from jesenska.base.errors import CorruptMessageError, UnknownTopicOrPartitionError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster, PartitionInfo
from jesenska.client.consumer import Consumer, Fetched
from jesenska.client.offsets import EARLIEST
from jesenska.client.positions import Position
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess


def test_small_polls_lose_nothing_while_the_next_fetch_is_under_way(broker: BrokerProcess) -> None:
    key = TopicPartition("small-polls", 0)

    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        async with Producer(cluster, batch_size=2000) as producer:
            for number in range(20_000):
                await producer.send(key.topic, b"%d" % number, partition=0)
        async with Consumer(cluster, max_partition_bytes=100_000) as consumer:
            await consumer.assign({key: EARLIEST})
            seen: list[int] = []
            while len(seen) < 20_000:
                for records in (await consumer.poll(5, 300)).values():
                    seen += [int(record.value or b"") for record in records]
                for _ in range(5):
                    await asyncio.sleep(0)
            assert seen == list(range(20_000))
            consumer.seek(key, 7_000)
            await asyncio.sleep(0)
            consumer.seek(key, 19_990)
            records = (await consumer.poll(5))[key]
            assert [record.offset for record in records] == list(range(19_990, 20_000))
        await cluster.close()

    asyncio.run(work())


def test_a_poll_gives_as_many_records_as_max_poll_records_says_unless_it_is_told_otherwise(
    broker: BrokerProcess,
) -> None:
    key = TopicPartition("poll-limit", 0)

    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        async with Producer(cluster) as producer:
            for number in range(30):
                await producer.send(key.topic, b"%d" % number, partition=0)
        async with Consumer(cluster, max_poll_records=7) as consumer:
            await consumer.assign({key: EARLIEST})
            assert [record.offset for record in (await consumer.poll(20))[key]] == list(range(7))
            assert [record.offset for record in (await consumer.poll(20))[key]] == list(range(7, 14))
            assert [record.offset for record in (await consumer.poll(20, 10))[key]] == list(range(14, 24))
        await cluster.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    "fault",
    [UnknownTopicOrPartitionError("another topic is gone"), asyncio.CancelledError()],
    ids=["fails", "given up"],
)
def test_a_poll_that_fails_or_is_given_up_takes_nothing_away(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    """The records that it held are returned by the next poll, before all later ones."""
    key = TopicPartition(f"given-up-{type(fault).__name__}", 0)
    fetch_ahead = Consumer._fetch_ahead
    faults = [fault]

    async def fails(self: Consumer, taken: Mapping[TopicPartition, Position]) -> None:
        if taken and faults:
            raise faults.pop()
        await fetch_ahead(self, taken)

    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        async with Producer(cluster, batch_size=1000) as producer:
            for number in range(300):
                await producer.send(key.topic, b"%d" % number, partition=0)
        async with Consumer(cluster, max_partition_bytes=1500) as consumer:
            await consumer.assign({key: EARLIEST})
            arrived: list[Fetched] = []
            while len(arrived) < 2:
                arrived += await consumer.poll_raw(20)
            consumer.seek(key, 0)
            for fetched in reversed(arrived):
                consumer._put_back(fetched)
            monkeypatch.setattr(Consumer, "_fetch_ahead", fails)
            seen: list[int] = []
            while len(seen) < 300:
                try:
                    found = await consumer.poll(5, 40)
                except (UnknownTopicOrPartitionError, asyncio.CancelledError):
                    continue
                seen += [record.offset for records in found.values() for record in records]
            assert seen == list(range(300))
            assert not faults
        await cluster.close()

    asyncio.run(work())


def test_records_that_cannot_be_read_raise_after_all_others_and_stay_where_they_are(broker: BrokerProcess) -> None:
    keys = [TopicPartition("damaged", number) for number in (0, 1)]

    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        await Admin(cluster).create_topics([NewTopic("damaged", 2)])
        async with Producer(cluster) as producer:
            for key in keys:
                await producer.send(key.topic, b"value", partition=key.partition)
                await producer.flush()
        async with Consumer(cluster) as consumer:
            await consumer.assign(dict.fromkeys(keys, EARLIEST))
            taken = {fetched.topic_partition: fetched for fetched in await consumer.poll_raw(20)}
            while taken.keys() != set(keys):
                taken |= {fetched.topic_partition: fetched for fetched in await consumer.poll_raw(20)}
            damaged = bytearray(taken[keys[1]].data)
            damaged[-1] ^= 1
            for key, data in ((keys[0], taken[keys[0]].data), (keys[1], damaged)):
                consumer.seek(key, 0)
                consumer._put_back(replace(taken[key], data=memoryview(data)))
            assert list(await consumer.poll(20)) == [keys[0]]
            for _ in range(2):
                with pytest.raises(CorruptMessageError):
                    await consumer.poll(0)
            assert consumer.position(keys[1]) == 0
        await cluster.close()

    asyncio.run(work())


def test_one_deleted_topic_of_several_does_not_end_reading(broker: BrokerProcess) -> None:
    keys = [TopicPartition(f"consumer-{name}", 0) for name in ("goes", "stays")]

    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        async with (
            Producer(cluster) as producer,
            Consumer(cluster, max_wait_seconds=0.05) as consumer,
            asyncio.timeout(60),
        ):

            async def sent_and_read(key: TopicPartition, value: bytes) -> None:
                await producer.send(key.topic, value, partition=0)
                await producer.flush()
                while value not in [record.value for record in (await consumer.poll(1)).get(key, [])]:
                    pass

            for key in keys:
                await cluster.topic(key.topic, create=True)
            await consumer.assign(dict.fromkeys(keys, EARLIEST))
            for key in keys:
                await sent_and_read(key, b"before")
            assert await Admin(cluster).delete_topics([keys[0].topic]) == {keys[0].topic: None}
            for number in range(20):
                await sent_and_read(keys[1], b"after %d" % number)
            await Admin(cluster).delete_topics([keys[1].topic])
            with pytest.raises(UnknownTopicOrPartitionError):
                while True:
                    await consumer.poll(1)
        await cluster.close()

    asyncio.run(work())


def test_a_consumer_waits_for_a_broker_that_does_not_know_its_only_topic_yet(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = TopicPartition("not-known-yet", 0)

    async def work() -> None:
        cluster = Cluster(broker.bootstrap)
        async with (
            Producer(cluster) as producer,
            Consumer(cluster, max_wait_seconds=0.05) as consumer,
            asyncio.timeout(60),
        ):
            await producer.send(key.topic, b"before", partition=0)
            await producer.flush()
            await consumer.assign({key: EARLIEST})
            assert [record.value for record in (await consumer.poll(20))[key]] == [b"before"]
            asked = []
            leader_of = Cluster.leader_of

            async def as_after_a_start(
                self: Cluster, wanted: TopicPartition, *, create: bool = False, waits: bool = True
            ) -> PartitionInfo:
                asked.append(wanted)
                if len(asked) <= 3:
                    raise UnknownTopicOrPartitionError("not known yet")
                return await leader_of(self, wanted, create=create, waits=waits)

            monkeypatch.setattr(Cluster, "leader_of", as_after_a_start)
            while len(asked) <= 3:
                assert await consumer.poll(0.1) == {}
            await producer.send(key.topic, b"after", partition=0)
            await producer.flush()
            assert [record.value for record in (await consumer.poll(20))[key]] == [b"after"]
        await cluster.close()

    asyncio.run(work())


def test_a_consumer_waits_while_its_broker_is_away_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    key = TopicPartition("away", 0)

    async def work(broker: BrokerProcess) -> None:
        cluster = Cluster(broker.bootstrap)
        async with (
            Producer(cluster) as producer,
            Consumer(cluster, max_wait_seconds=0.05) as consumer,
            asyncio.timeout(60),
        ):
            await producer.send(key.topic, b"before", partition=0)
            await producer.flush()
            await consumer.assign({key: EARLIEST})
            assert [record.value for record in (await consumer.poll(20))[key]] == [b"before"]
            broker.kill()
            for _ in range(5):
                assert await consumer.poll(0.3) == {}
            # A poll that begins while no broker answers returns the records that arrive afterwards.
            waiting = asyncio.create_task(consumer.poll(40))
            await asyncio.to_thread(broker.start)
            await producer.send(key.topic, b"after", partition=0)
            await producer.flush()
            assert [record.value for record in (await waiting)[key]] == [b"after"]
        await cluster.close()

    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        asyncio.run(work(broker))


def test_a_broker_that_does_not_answer_a_fetch_in_time_is_asked_again(tmp_path: Path) -> None:
    key = TopicPartition("stalled", 0)

    async def work(broker: BrokerProcess) -> None:
        cluster = Cluster(broker.bootstrap, ClientConfig(request_timeout_seconds=0.3))
        async with (
            Producer(Cluster(broker.bootstrap)) as producer,
            Consumer(cluster, max_wait_seconds=0.05) as consumer,
            asyncio.timeout(60),
        ):
            await producer.send(key.topic, b"before", partition=0)
            await producer.flush()
            await consumer.assign({key: EARLIEST})
            assert [record.value for record in (await consumer.poll(20))[key]] == [b"before"]
            os.kill(broker.pid, signal.SIGSTOP)
            for _ in range(4):
                async with asyncio.timeout(8):  # however long connecting may take
                    assert await consumer.poll(0.3) == {}
            os.kill(broker.pid, signal.SIGCONT)
            await producer.send(key.topic, b"after", partition=0)
            await producer.flush()
            assert [record.value for record in (await consumer.poll(40))[key]] == [b"after"]
            await producer.cluster.close()
        await cluster.close()

    with BrokerProcess(tmp_path / "data", warm=True) as broker:
        asyncio.run(work(broker))
