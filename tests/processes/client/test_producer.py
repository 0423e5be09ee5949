from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from jesenska.base.errors import (
    CorruptMessageError,
    InvalidRequestError,
    MessageTooLargeError,
    NetworkException,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.client_config import ClientConfig
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.partitioner import partition_of_key
from jesenska.client.producer import Producer
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from jesenska.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.processes.client.scripted_broker import ScriptedBroker
from tests.units.log.log_harness import make_batch


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
        async with Producer(
            cluster, batch_size=100_000, linger_seconds=0.05, enable_idempotence=idempotent
        ) as producer:
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
    """Draws the partition after the one that the key would get."""

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


def leader_of_one_partition(port: int = 0) -> ScriptedBroker:
    """A broker that has every topic with one partition, and acknowledges all records at offset 7."""

    def metadata(request: MetadataRequest) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])]
        topics = [MetadataResponseTopic(name=topic.name, partitions=partitions) for topic in request.topics or ()]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=one.port)], controller_id=1, topics=topics
        )

    def produce(request: ProduceRequest) -> ProduceResponse:
        answers = [ProduceResponsePartition(index=0, base_offset=7)]
        return ProduceResponse(
            responses=[
                ProduceResponseTopic(name=topic.name, partition_responses=answers) for topic in request.topic_data
            ]
        )

    one = ScriptedBroker({MetadataRequest: metadata, ProduceRequest: produce}, {MetadataRequest: 8, ProduceRequest: 8})  # type: ignore[dict-item]
    one.port = port
    return one


@asynccontextmanager
async def producing(port: int, *, metadata_max_age_seconds: float = 300, **options: float) -> AsyncIterator[Producer]:
    """A producer without idempotence whose pauses between attempts are short."""
    cluster = Cluster(
        f"127.0.0.1:{port}",
        ClientConfig(
            metadata_max_age_seconds=metadata_max_age_seconds,
            retry_backoff_seconds=0.001,
            retry_backoff_max_seconds=0.001,
            reconnect_backoff_seconds=0.001,
            reconnect_backoff_max_seconds=0.001,
        ),
    )
    producer = Producer(cluster, acks=1, linger_seconds=0, **options)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(30):
            yield producer
    finally:
        await producer.close(flush=False)
        await cluster.close()


async def failed_attempts(cluster: Cluster, count: int) -> None:
    """Returns when this number of attempts to connect in a row have failed."""
    while sum(failures for failures, _ in cluster._failed.values()) < count:
        await asyncio.sleep(0.001)


def test_the_first_record_waits_until_a_broker_answers() -> None:
    async def run() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            port = nobody.getsockname()[1]
            async with producing(port) as producer:
                sending = asyncio.create_task(producer.send("first", b"value"))
                await failed_attempts(producer.cluster, 3)
                assert not sending.done()
                nobody.close()
                async with leader_of_one_partition(port):
                    assert (await (await sending)).offset == 7

    asyncio.run(run())


def test_the_first_record_waits_no_longer_than_max_block() -> None:
    async def run(listens: bool, seconds: float, error: type[Exception], message: str) -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            if listens:
                nobody.listen()
            async with producing(nobody.getsockname()[1], max_block_seconds=seconds) as producer:
                with pytest.raises(error, match=message):
                    await producer.send("first", b"value")

    # The producer knows that no broker answers only when one attempt has ended.
    asyncio.run(run(False, 2.0, NetworkException, "No broker answers"))
    asyncio.run(run(True, 0.2, RequestTimedOutError, "No broker has reported the partitions of topic first within 0.2"))


def test_what_a_broker_answers_of_a_topic_is_not_waited_for(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        async with asyncio.timeout(30), Producer(cluster, create_topics=False) as producer:
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send("never-created", b"value")

    with_topic(broker, "known-to-be-there", work)


@pytest.mark.parametrize("stale", ["forgotten", "old"])
def test_records_are_taken_while_the_broker_is_away(stale: str) -> None:
    """A topic stays known although its metadata must be requested again."""

    async def run() -> None:
        async with (
            leader_of_one_partition() as before,
            producing(before.port, metadata_max_age_seconds=0 if stale == "old" else 300) as producer,
        ):
            assert (await (await producer.send("known", b"before"))).offset == 7
            await before.stop()
            if stale == "forgotten":
                producer.cluster.forget_topic("known")
            meanwhile = [await producer.send("known", b"meanwhile") for _ in range(3)]
            await failed_attempts(producer.cluster, 3)
            assert not any(future.done() for future in meanwhile)
            async with leader_of_one_partition(before.port):
                assert [(await future).offset for future in meanwhile] == [7, 8, 9]

    asyncio.run(run())


def test_a_record_waits_for_room_no_longer_than_max_block(broker: BrokerProcess) -> None:
    async def work(cluster: Cluster) -> None:
        producer = Producer(cluster, buffer_memory=1000, linger_seconds=100)
        await producer.send("no-room-in-time", bytes(900))
        producer.max_block_seconds = 0
        with pytest.raises(RequestTimedOutError, match="buffer of 1000 bytes had no room"):
            await producer.send("no-room-in-time", bytes(900))
        with pytest.raises(RequestTimedOutError, match="buffer of 1000 bytes had no room"):
            await producer.send_batch("no-room-in-time", 0, bytearray(make_batch()) + bytes(900))
        await producer.close(flush=False)

    with_topic(broker, "no-room-in-time", work)
