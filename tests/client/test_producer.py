from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from jesenska.base.errors import CorruptMessageError, InvalidRequestError, MessageTooLargeError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.admin import Admin, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.partitioner import partition_of_key
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess
from tests.log.log_harness import make_batch


def with_topic(broker: BrokerProcess, topic: str, work: Callable[[Cluster], Awaitable[None]], **config: str) -> None:
    async def run() -> None:
        cluster = Cluster(broker.bootstrap)
        try:
            settings = {name.replace("_", "."): value for name, value in config.items()}
            await Admin(cluster).create_topics([NewTopic(topic, 1, 1, settings)])
            await work(cluster)
        finally:
            await cluster.close()

    asyncio.run(run())


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_is_too_large_for_its_topic_goes_in_parts(broker: BrokerProcess, idempotent: bool) -> None:
    topic = f"split-{idempotent}"

    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, batch_size=100_000, linger_seconds=0.05, enable_idempotence=idempotent) as producer:
            values = [bytes([number]) * 300 for number in range(50)]
            sent = [await producer.send(topic, value, headers=[("number", value[:1])]) for value in values]
            sent.append(await producer.send(topic, b"behind"))
            await producer.flush()
            assert [(await one).offset for one in sent] == list(range(51))
            again = await producer.send(topic, b"later")
            assert (await again).offset == 51
        async with Consumer(cluster) as consumer:
            await consumer.assign({TopicPartition(topic, 0): 0})
            read: list[bytes | None] = []
            while len(read) < 52:
                for records in (await consumer.poll(5)).values():
                    read += [record.value for record in records]
        assert read == [*values, b"behind", b"later"]

    with_topic(broker, topic, work, max_message_bytes="2000")


def test_a_record_that_is_too_large_alone_fails_and_those_beside_it_do_not(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, batch_size=100_000, linger_seconds=0.05) as producer:
            before = await producer.send("split-around", b"before")
            large = await producer.send("split-around", bytes(5000))
            after = await producer.send("split-around", b"after")
            with pytest.raises(MessageTooLargeError):
                await large
            assert (await before).offset == 0
            assert (await after).offset == 1

    with_topic(broker, "split-around", work, max_message_bytes="2000")


def test_a_send_that_waits_for_room_ends_when_the_producer_closes(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        producer = Producer(cluster, buffer_memory=1000, linger_seconds=100)
        await producer.send("no-room", bytes(900))
        # Its batch is on its way to a broker that is not asked for an answer any more.
        waiting = asyncio.create_task(producer.send("no-room", bytes(900)))
        await asyncio.sleep(0)
        await producer.close(flush=False)
        async with asyncio.timeout(10):
            with pytest.raises(InvalidRequestError, match="closed"):
                await waiting

    with_topic(broker, "no-room", work)


def test_a_batch_is_sent_again_as_often_as_retries_says(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        async with Producer(cluster, acks=1, retries=2, delivery_timeout_seconds=1000) as producer:
            pauses: list[int] = []
            cluster.retry_pause_seconds = lambda failures: pauses.append(failures) or 0.0  # type: ignore[method-assign,func-returns-value]
            broken = make_batch()
            broken[-1] ^= 1
            refused = await producer.send_batch("few-retries", 0, broken)
            async with asyncio.timeout(20):
                with pytest.raises(CorruptMessageError):
                    await refused
            assert pauses == [1, 2]

    with_topic(broker, "few-retries", work)


class _Drawn(random.Random):
    """Draws the partition behind the one that the key would have."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return (partition_of_key(b"k", 3) + 1) % 3


def test_keys_choose_the_partition_unless_they_are_to_be_ignored(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        await Admin(cluster).create_topics([NewTopic("keys-ignored", 3, 1)])
        for ignored in (False, True):
            async with Producer(cluster, ignore_keys=ignored, random_source=_Drawn(1)) as producer:
                sent = await producer.send("keys-ignored", b"value", b"k")
                assert (await sent).partition == (partition_of_key(b"k", 3) + ignored) % 3

    with_topic(broker, "keys-are-there", work)
