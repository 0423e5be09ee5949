"""Each client commits a transaction and aborts another one: a read_committed consumer is given the first whole, and
nothing of the second."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need_modules
from tests.peers.tools import Tools

pytestmark = pytest.mark.conformance

_SECONDS = 30
_COMMITTED, _ABORTED = [b"c%d" % number for number in range(20)], [b"a%d" % number for number in range(20)]


def _confluent(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(_SECONDS)
    for values, end in ((_ABORTED, producer.abort_transaction), (_COMMITTED, producer.commit_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(_SECONDS)
        end(_SECONDS)


def _kafka_python(bootstrap: str, topic: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer

    producer: Any = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    try:
        producer.init_transactions()
        for values, end in ((_ABORTED, producer.abort_transaction), (_COMMITTED, producer.commit_transaction)):
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value)
            producer.flush(_SECONDS)
            end()
    finally:
        producer.close()


def _aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
        await producer.start()
        try:
            for values, end in ((_ABORTED, producer.abort_transaction), (_COMMITTED, producer.commit_transaction)):
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(topic, value)
                await end()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(work(), 60))


def _seen(bootstrap: str, topic: str) -> list[bytes | None]:
    """What a read_committed consumer is given of a topic with one partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "seen",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    try:
        while True:
            message = consumer.poll(_SECONDS)
            assert message is not None, "nothing in time"
            if message.error() is not None:
                return found
            found.append(message.value())
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("module", "write"), [("confluent_kafka", _confluent), ("kafka", _kafka_python), ("aiokafka", _aiokafka)]
)
def test_what_is_committed_is_seen_and_nothing_else(
    broker: BrokerProcess, module: str, write: Callable[[str, str], None]
) -> None:
    need_modules(module, "confluent_kafka")
    topic = f"transactions-of-{module.replace('_', '-')}"
    write(broker.bootstrap, topic)
    assert _seen(broker.bootstrap, topic) == _COMMITTED


def test_javas_performance_tool_writes_in_transactions(tools: Tools, broker: BrokerProcess) -> None:
    by_release = "--producer-props" if tools.release.startswith("3") else "--command-property"
    outcome = tools.run(
        "kafka-producer-perf-test",
        *("--topic", "transactions-of-java", "--num-records", 500, "--record-size", 10, "--throughput", -1),
        *("--transactional-id", f"java-{tools.release}", "--transaction-duration-ms", 50),
        *(by_release, f"bootstrap.servers={broker.bootstrap}"),
    )
    assert "500 records sent" in outcome.output


def test_javas_tool_lists_and_describes_transactions(tools: Tools, broker: BrokerProcess) -> None:
    _confluent(broker.bootstrap, f"described-{tools.release}")
    name = f"described-{tools.release}"
    listed = tools.run("kafka-transactions", "--bootstrap-server", broker.bootstrap, "list")
    assert name in listed.output
    described = tools.run(
        "kafka-transactions", "--bootstrap-server", broker.bootstrap, "describe", "--transactional-id", name
    )
    assert "CompleteCommit" in described.output
    producers = tools.run(
        "kafka-transactions",
        "--bootstrap-server",
        broker.bootstrap,
        "describe-producers",
        "--topic",
        name,
        "--partition",
        0,
    )
    assert "None" in producers.output
