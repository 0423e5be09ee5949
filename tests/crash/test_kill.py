"""The broker is killed with SIGKILL in the middle of a load, again and again, and starts again on the same port and data. Producers know nothing of it
but their retries. JESENSKA_CRASHES says how often."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.admin import Admin, NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

CRASHES = int(os.environ.get("JESENSKA_CRASHES", "5"))
_TOPIC = "load"
_PARTITIONS = 3
#: Records of one producer that may wait for their acknowledgement.
_WINDOW = 1000


class Ledger:
    """What every producer was told: the offset of each acknowledged number, by producer and partition."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self.acknowledged: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        self.failures: list[str] = []
        self.count = 0
        self.stopping = threading.Event()

    def acknowledge(self, producer: str, partition: int, number: int, offset: int) -> None:
        with self._lock:
            self.acknowledged[producer, partition][number] = offset
            self.count += 1
            self._lock.notify_all()

    def fail(self, what: str) -> None:
        with self._lock:
            self.failures.append(what)
            self._lock.notify_all()

    def wait_for(self, more: int) -> None:
        """Returns when so many more records are acknowledged."""
        with self._lock:
            until = self.count + more
            assert self._lock.wait_for(lambda: self.count >= until or self.failures, 60), "the load stands still"
            assert self.failures == []


async def _load(bootstrap: str, ledger: Ledger, name: str, idempotent: bool, codec: Codec) -> None:
    """Our own client: numbers from 0 up, spread over the partitions, until told to stop; then everything is delivered."""
    cluster = Cluster(bootstrap)
    slots = asyncio.Semaphore(_WINDOW)

    def done(number: int, future: asyncio.Future[Any]) -> None:
        slots.release()
        error = future.exception()
        if error is not None:
            ledger.fail(f"{name} {number}: {error!r}")
        else:
            result = future.result()
            ledger.acknowledge(name, result.partition, number, result.offset)

    try:
        async with Producer(cluster, enable_idempotence=idempotent, compression=codec, batch_size=4000, delivery_timeout_seconds=120) as producer:
            number = 0
            while not ledger.stopping.is_set():
                await slots.acquire()
                future = await producer.send(_TOPIC, f"{name}:{number}:".encode() + bytes(number % 200), partition=number % _PARTITIONS)
                future.add_done_callback(lambda future, number=number: done(number, future))  # type: ignore[misc]
                number += 1
                if number % 100 == 0:
                    await asyncio.sleep(0)
            await producer.flush()
    except Exception as error:
        ledger.fail(f"{name}: {error!r}")
    finally:
        await cluster.close()


def _load_librdkafka(bootstrap: str, ledger: Ledger, name: str, idempotent: bool) -> None:
    """The same with confluent-kafka."""
    from confluent_kafka import Producer as Librdkafka

    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": idempotent,
        "max.in.flight": 5 if idempotent else 1,
        "message.timeout.ms": 120_000,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 50,
        "compression.type": "lz4",
        "log_level": 0,
    }
    producer = Librdkafka(settings)

    def done(number: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                ledger.fail(f"{name} {number}: {error}")
            else:
                ledger.acknowledge(name, message.partition(), number, message.offset())

        return delivered

    number = 0
    while not ledger.stopping.is_set():
        if len(producer) >= _WINDOW:
            producer.poll(0.1)
            continue
        producer.produce(_TOPIC, f"{name}:{number}:".encode() + bytes(number % 200), partition=number % _PARTITIONS, on_delivery=done(number))
        producer.poll(0)
        number += 1
    if producer.flush(120):
        ledger.fail(f"{name}: records were left")


def _new_producer_id(broker: BrokerProcess) -> int:
    with RawConnection(broker.bootstrap) as connection:
        answer = connection.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4, InitProducerIdResponse)
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id


def _read_everything(bootstrap: str) -> dict[int, list[tuple[int, str, int]]]:
    """(offset, producer, number) of every record, by partition."""

    async def work() -> dict[int, list[tuple[int, str, int]]]:
        cluster = Cluster(bootstrap)
        found: dict[int, list[tuple[int, str, int]]] = {partition: [] for partition in range(_PARTITIONS)}
        try:
            keys = [TopicPartition(_TOPIC, partition) for partition in range(_PARTITIONS)]
            ends = {key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(keys, LATEST))).items()}
            async with Consumer(cluster) as consumer:
                await consumer.assign(dict.fromkeys(keys, EARLIEST))
                while any(consumer.position(key) < end for key, end in ends.items()):
                    for key, records in (await consumer.poll(5, 50_000)).items():
                        for record in records:
                            assert record.value is not None
                            name, number, _ = record.value.split(b":", 2)
                            found[key.partition].append((record.offset, name.decode(), int(number)))
        finally:
            await cluster.close()
        return found

    return asyncio.run(work())


def _check(ledger: Ledger, found: dict[int, list[tuple[int, str, int]]], idempotent: dict[str, bool]) -> None:
    for partition, records in found.items():
        assert [offset for offset, _, _ in records] == list(range(len(records))), "offsets without gaps"
        by_offset = {offset: (name, number) for offset, name, number in records}
        for producer, once in idempotent.items():
            numbers = [number for _, name, number in records if name == producer]
            acknowledged = ledger.acknowledged[producer, partition]
            assert acknowledged, f"{producer} wrote to partition {partition}"
            lost = set(acknowledged) - set(numbers)
            assert not lost, f"{producer} lost {sorted(lost)[:10]} of partition {partition}"
            misplaced = [number for number, offset in acknowledged.items() if by_offset.get(offset) != (producer, number)]
            assert not misplaced, f"{producer} was told wrong offsets of {misplaced[:10]}"
            first_appearances = list(dict.fromkeys(numbers))
            assert first_appearances == sorted(first_appearances), f"{producer} is out of order in partition {partition}"
            if once:
                assert len(numbers) == len(first_appearances), f"{producer} has records twice in partition {partition}"


def test_nothing_acknowledged_is_lost_doubled_or_out_of_order_when_the_broker_is_killed(tmp_path: Path) -> None:
    chance = random.Random(1948)
    ledger = Ledger()
    idempotent = {"ours-once": True, "ours-again": False, "ours-gzip": True}
    codecs = {"ours-once": Codec.NONE, "ours-again": Codec.LZ4, "ours-gzip": Codec.GZIP}
    others = {"rdkafka-once": True, "rdkafka-again": False} if importlib.util.find_spec("confluent_kafka") else {}
    handed_out: list[int] = []

    # Small segments: kills meet rolls; short intervals: kills meet checkpoints.
    settings = {"log.segment.bytes": "1048576", "log.flush.offset.checkpoint.interval.ms": "300", "log.flush.interval.messages": "5000"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:

        async def create() -> None:
            cluster = Cluster(broker.bootstrap)
            created = await Admin(cluster).create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])
            await cluster.close()
            assert created == {_TOPIC: None}

        asyncio.run(create())

        async def ours() -> None:
            await asyncio.gather(*(_load(broker.bootstrap, ledger, name, once, codecs[name]) for name, once in idempotent.items()))

        loads = [threading.Thread(target=asyncio.run, args=(ours(),))]
        loads += [threading.Thread(target=_load_librdkafka, args=(broker.bootstrap, ledger, name, once)) for name, once in others.items()]
        for load in loads:
            load.start()
        try:
            for _ in range(CRASHES):
                handed_out += [_new_producer_id(broker) for _ in range(3)]
                ledger.wait_for(chance.randrange(1, 6000))
                broker.kill()
                broker.start()
                new = _new_producer_id(broker)
                assert new not in handed_out
                handed_out.append(new)
            ledger.wait_for(1000)
        finally:
            ledger.stopping.set()
            for load in loads:
                load.join()
        assert ledger.failures == []
        _check(ledger, _read_everything(broker.bootstrap), idempotent | others)
        broker.kill()
        broker.start()  # and what recovery finds is the same
        _check(ledger, _read_everything(broker.bootstrap), idempotent | others)
    assert len(set(handed_out)) == len(handed_out)
    assert handed_out == sorted(handed_out)
