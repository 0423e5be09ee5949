"""The same random logs, compacted by our broker, by Apache Kafka 4.3.1 and by a model in a few lines: the same batches
and records stay, at the same offsets."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.regions import FileRegion
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import TOPIC, ConfigChange
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.log.log_config import LogConfig
from jesenska.records.batch import iter_headers
from jesenska.records.decode import decode_batches
from jesenska.records.encode import encode_batch
from jesenska.records.header import Codec
from jesenska.testing import BrokerProcess
from jesenska.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from jesenska.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka
from tests.profiles import rounds
from tests.raw_connection import RawConnection
from tests.units.log.compaction_model import Model, ModelBatch, ModelRecord

pytestmark = pytest.mark.conformance

_LOGS = rounds(quick=2, ci=12, everything=40)
_SETTINGS = {"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "8000000"}
_SECONDS = 60.0
#: A segment takes this much of the records' time.
_SEGMENT_MS = 1000
#: No share is larger than this: a topic with it is not compacted.
_NEVER, _AT_ONCE = "1.0", "0.0"


@dataclass
class Log:
    """A topic of one partition, and what is to be in it."""

    topic: str
    model: Model
    rng: random.Random
    time_ms: int
    sequences: dict[int, int]

    def batches(self, count: int) -> Iterator[bytes]:
        """More of them; the last one begins a segment of its own."""
        keys = [b"key-%d" % index for index in range(self.rng.choice([1, 3, 12]))]
        offset = self.model.batches[-1].last_offset + 1 if self.model.batches else 0
        for number in range(count + 1):
            self.time_ms += 10 * _SEGMENT_MS if number == count else self.rng.choice([0, 100, 700])
            records = [
                (
                    self.time_ms,
                    self.rng.choice(keys),
                    None if self.rng.random() < 0.2 else self.rng.randbytes(self.rng.choice([0, 5, 60])),
                    (),
                )
                for _ in range(self.rng.choice([1, 1, 2, 5]))
            ]
            producer_id = self.rng.choice([-1, 100, 200])
            sequence = self.sequences.get(producer_id, 0) if producer_id >= 0 else -1
            epoch = 0 if producer_id >= 0 else -1
            codec = self.rng.choice(list(Codec))
            made = [ModelRecord(offset + index, *record[:3]) for index, record in enumerate(records)]
            self.model.batches.append(ModelBatch(made, offset + len(records) - 1, producer_id))
            self.sequences[producer_id] = sequence + len(records)
            offset += len(records)
            yield bytes(
                encode_batch(records, codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            )

    def expected(self) -> list[tuple[Any, ...]]:
        return [
            (batch.last_offset, batch.producer_id, batch.horizon_ms is not None, tuple(batch.records))
            for batch in self.model.batches
        ]

    def compact(self) -> None:
        """Everything but the last batch, which has a segment of its own."""
        last = self.model.batches[-1]
        self.model.compact(last.records[0].offset, self.time_ms)


def new_log(number: int, began_ms: int) -> Log:
    rng = random.Random(number)
    # A tombstone goes with the second compaction that sees it, or with none.
    config = LogConfig(delete=False, compact=True, delete_retention_ms=rng.choice([0, 1 << 40]))
    return Log(f"log-{number}", Model(config), rng, began_ms, {})


@asynccontextmanager
async def _cluster(bootstrap: str) -> AsyncIterator[Cluster]:
    cluster = Cluster(bootstrap)
    try:
        yield cluster
    finally:
        await cluster.close()


class Side:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._connection = RawConnection(bootstrap, _SECONDS)

    def close(self) -> None:
        self._connection.socket.close()

    def create(self, logs: list[Log]) -> None:
        async def create() -> None:
            async with _cluster(self._bootstrap) as cluster:
                topics = [
                    NewTopic(
                        log.topic,
                        1,
                        1,
                        {
                            "cleanup.policy": "compact",
                            "segment.ms": str(_SEGMENT_MS),
                            "min.cleanable.dirty.ratio": _NEVER,
                            "delete.retention.ms": str(log.model.config.delete_retention_ms),
                        },
                    )
                    for log in logs
                ]
                assert set((await Admin(cluster).create_topics(topics)).values()) == {None}

        asyncio.run(create())

    def set_ratio(self, logs: list[Log], ratio: str) -> None:
        async def change() -> None:
            async with _cluster(self._bootstrap) as cluster:
                for log in logs:
                    await Admin(cluster).alter_configs(
                        TOPIC, log.topic, [ConfigChange("min.cleanable.dirty.ratio", ratio)]
                    )

        asyncio.run(change())

    def produce(self, topic: str, batch: bytes) -> None:
        data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=0, records=batch)])
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = self._connection.ask(
                ProduceRequest(acks=1, timeout_ms=20_000, topic_data=[data]), 9, ProduceResponse
            )
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if code == ErrorCode.NONE:
                return
            # Kafka creates a topic a moment after it has said so.
            assert KafkaError.of(code, "").retriable, code
            assert time.monotonic() < deadline, code

    def told(self, topic: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        offset = 0
        while True:
            wanted = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=50, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=[wanted])]
            )
            (partition,) = self._connection.ask(request, 4, FetchResponse).responses[0].partitions
            assert partition.error_code == ErrorCode.NONE
            assert not isinstance(partition.records, FileRegion), "that is for brokers"
            data = bytes(partition.records or b"")
            if not data:
                return found
            for position, header in iter_headers(data):
                records = decode_batches(data[position : position + header.size_bytes])
                told = tuple(
                    ModelRecord(record.offset, record.timestamp_ms, record.key or b"", record.value)
                    for record in records
                )
                found.append((header.last_offset, header.producer_id, header.has_delete_horizon, told))
                offset = header.next_offset

    def wait_for(self, log: Log) -> list[tuple[Any, ...]]:
        """What is in the topic when that is what is expected, or time is over."""
        deadline = time.monotonic() + _SECONDS
        while (found := self.told(log.topic)) != log.expected() and time.monotonic() < deadline:
            pass
        return found


def test_what_a_compaction_leaves_is_what_kafkas_leaves(tmp_path_factory: pytest.TempPathFactory) -> None:
    need("java", "mvn")
    with ExitStack() as stack:
        kafka = stack.enter_context(
            ApacheKafka("4.3.1", tmp_path_factory.mktemp("kafka"), heap="384m", settings=_SETTINGS)
        )
        ours = stack.enter_context(BrokerProcess(tmp_path_factory.mktemp("ours"), settings=_SETTINGS))
        sides = {"ours": Side(ours.bootstrap), "kafka": Side(kafka.bootstrap)}
        for side in sides.values():
            stack.callback(side.close)
        logs = [new_log(number, int(time.time() * 1000) - 10_000_000) for number in range(_LOGS)]
        for side in sides.values():
            side.create(logs)
        for _ in range(2):
            for log in logs:
                for batch in log.batches(log.rng.choice([5, 30])):
                    for side in sides.values():
                        side.produce(log.topic, batch)
            for side in sides.values():
                side.set_ratio(logs, _AT_ONCE)
            for log in logs:
                log.compact()
                for name, side in sides.items():
                    assert side.wait_for(log) == log.expected(), f"{name}: {log.topic}"
            for side in sides.values():
                side.set_ratio(logs, _NEVER)
