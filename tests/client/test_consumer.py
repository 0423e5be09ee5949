from __future__ import annotations

import asyncio

from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST
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


def test_a_poll_gives_as_many_records_as_max_poll_records_says_unless_it_is_told_otherwise(broker: BrokerProcess) -> None:
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
