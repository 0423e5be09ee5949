"""Clients that ask for transactions or for the new group protocol give up at once, with a word that says what is
wrong, and do not try until they time out."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jesenska.testing import BrokerProcess
from tests.conformance.conftest import need_modules
from tests.peers.tools import Tools

pytestmark = pytest.mark.conformance

#: Long before any client's own time-out, which is 20 seconds and more.
_AT_ONCE_SECONDS = 15.0


@contextmanager
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < _AT_ONCE_SECONDS


def test_confluent_kafka_gives_up_a_transaction_at_once(broker: BrokerProcess) -> None:
    need_modules("confluent_kafka")
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "confluent"})
    with at_once(), pytest.raises(KafkaException, match="Transactional Id authorization failed"):
        producer.init_transactions(60)


def test_kafka_python_gives_up_a_transaction_at_once(broker: BrokerProcess) -> None:
    need_modules("kafka")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer
        from kafka.errors import TransactionalIdAuthorizationFailedError

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="kafka-python")
    try:
        with at_once(), pytest.raises(TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
    finally:
        producer.close()


def test_aiokafka_gives_up_a_transaction_at_once(broker: BrokerProcess) -> None:
    need_modules("aiokafka")
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    async def work() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="aiokafka")
        try:
            with pytest.raises(KafkaError, match="TransactionalIdAuthorizationFailed"):
                await asyncio.wait_for(producer.start(), 60)
        finally:
            await producer.stop()

    with at_once():
        asyncio.run(work())


def test_java_gives_up_a_transaction_at_once(tools: Tools, broker: BrokerProcess) -> None:
    by_release = "--producer-props" if tools.release.startswith("3") else "--command-property"
    with at_once():
        outcome = tools.run(
            "kafka-producer-perf-test",
            *(
                "--topic",
                "refused",
                "--num-records",
                10,
                "--record-size",
                10,
                "--throughput",
                -1,
                "--transactional-id",
                "java",
                "--transaction-duration-ms",
                100,
            ),
            *(by_release, f"bootstrap.servers={broker.bootstrap}"),
        )
    assert "TransactionalIdAuthorizationException" in outcome.output + outcome.errors


def test_the_log_says_what_was_asked_for_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    need_modules("confluent_kafka")
    from confluent_kafka import KafkaException, Producer

    with BrokerProcess(tmp_path_factory.mktemp("refused") / "data") as broker:
        for _ in range(2):
            with pytest.raises(KafkaException):
                Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "client.id": "shop"}).init_transactions(60)
    assert broker.log.count("client 'shop' at 127.0.0.1 asked for transactions, which this broker does not serve yet") == 1


def test_java_gives_up_the_new_group_protocol_at_once(tools: Tools, broker: BrokerProcess) -> None:
    client = "--consumer-property" if tools.release.startswith("3") else "--command-property"
    with at_once():
        outcome = tools.run(
            "kafka-console-consumer",
            *("--bootstrap-server", broker.bootstrap, "--topic", "refused", "--timeout-ms", 60_000, client, "group.protocol=consumer"),
        )
    assert "UnsupportedVersionException" in outcome.output + outcome.errors
