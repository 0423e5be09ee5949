"""Load for the crash tests: producers, ours and librdkafka's, that write numbered records and note the acknowledged
ones, and the checks of the log afterwards.

A record's value is `<producer>:<number>:` and some zeros. Each producer counts from 0 up and spreads its records over
the partitions in turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.client.cluster import Cluster
from jesenska.client.consumer import Consumer
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.raw_connection import RawConnection

TOPIC = "load"
PARTITIONS = 3
#: Records of one producer that may wait for their acknowledgement.
_WINDOW = 1000


class Ledger:
    """The acknowledgements of every producer: the offset of each acknowledged number, by producer and partition."""

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
        """Returns when this number of further records is acknowledged."""
        with self._lock:
            until = self.count + more
            assert self._lock.wait_for(lambda: self.count >= until or self.failures, 60), "the load stands still"
            assert not self.failures, self.failures


async def produce(
    bootstrap: str,
    ledger: Ledger,
    name: str,
    idempotent: bool,
    codec: Codec,
    pause_seconds: float = 0.0,
    partitions: int = PARTITIONS,
) -> None:
    """Produces with our own client: numbers from 0 up, spread over the partitions, until it is stopped. Then it
    delivers everything. Pauses after each hundred."""
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
        async with Producer(
            cluster, enable_idempotence=idempotent, compression=codec, batch_size=4000, delivery_timeout_seconds=120
        ) as producer:
            number = 0
            while not ledger.stopping.is_set():
                await slots.acquire()
                future = await producer.send(
                    TOPIC, f"{name}:{number}:".encode() + bytes(number % 200), partition=number % partitions
                )
                future.add_done_callback(lambda future, number=number: done(number, future))  # type: ignore[misc]
                number += 1
                if number % 100 == 0:
                    await asyncio.sleep(pause_seconds)
            await producer.flush()
    except Exception as error:
        ledger.fail(f"{name}: {error!r}")
    finally:
        await cluster.close()


def produce_with_librdkafka(
    bootstrap: str, ledger: Ledger, name: str, idempotent: bool, pause_seconds: float = 0.0
) -> None:
    """Produces in the same way with confluent-kafka."""
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
        producer.produce(
            TOPIC,
            f"{name}:{number}:".encode() + bytes(number % 200),
            partition=number % PARTITIONS,
            on_delivery=done(number),
        )
        producer.poll(0)
        number += 1
        if pause_seconds and number % 100 == 0:
            ledger.stopping.wait(pause_seconds)
    if producer.flush(120):
        ledger.fail(f"{name}: records were left")


def new_producer_id(broker: BrokerProcess) -> int:
    with RawConnection(broker.bootstrap) as connection:
        answer = connection.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4, InitProducerIdResponse
        )
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id


def read_everything(bootstrap: str) -> dict[int, list[tuple[int, str, int]]]:
    """(offset, producer, number) of every record, by partition."""

    async def work() -> dict[int, list[tuple[int, str, int]]]:
        cluster = Cluster(bootstrap)
        found: dict[int, list[tuple[int, str, int]]] = {partition: [] for partition in range(PARTITIONS)}
        try:
            keys = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
            ends = {
                key: item.offset for key, item in (await list_offsets(cluster, dict.fromkeys(keys, LATEST))).items()
            }
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


def check(ledger: Ledger, found: dict[int, list[tuple[int, str, int]]], idempotent: dict[str, bool]) -> None:
    for partition, records in found.items():
        assert [offset for offset, _, _ in records] == list(range(len(records))), "offsets without gaps"
        by_offset = {offset: (name, number) for offset, name, number in records}
        for producer, once in idempotent.items():
            numbers = [number for _, name, number in records if name == producer]
            acknowledged = ledger.acknowledged[producer, partition]
            assert acknowledged, f"{producer} wrote to partition {partition}"
            lost = set(acknowledged) - set(numbers)
            assert not lost, f"{producer} lost {sorted(lost)[:10]} of partition {partition}"
            misplaced = [
                number for number, offset in acknowledged.items() if by_offset.get(offset) != (producer, number)
            ]
            assert not misplaced, f"{producer} was told wrong offsets of {misplaced[:10]}"
            first_appearances = list(dict.fromkeys(numbers))
            assert first_appearances == sorted(first_appearances), (
                f"{producer} is out of order in partition {partition}"
            )
            if once:
                assert len(numbers) == len(first_appearances), f"{producer} has records twice in partition {partition}"
