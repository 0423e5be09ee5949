"""The partitions of written rows, while a topic gets more partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from jesenska.base.errors import JesenskaError, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.client.client_config import ClientConfig
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import sink_options
from jesenska.pipeline.connector.sink import Packing
from jesenska.pipeline.connector.worker_cache import TopicSettings, WorkerCache

TOPIC = "orders"


class GrowingTopic:
    """A connection whose brokers report these numbers of partitions, one after the other, a second apart. The
    connection already knows the first number."""

    def __init__(self, *counts: int) -> None:
        self._counts = list(counts)
        self.asked = 0
        self.cluster = self
        self.clock = self
        self.options = SimpleNamespace(connections=ClientConfig())

    async def refresh(self, topics: list[str]) -> dict[str, KafkaError]:
        self.asked += 1
        return {}

    async def topic(self, name: str, *, create: bool = False) -> Any:
        return SimpleNamespace(partitions=range(self._counts[min(self.asked, len(self._counts) - 1)]))

    def monotonic(self) -> float:
        return float(self.asked)

    def now_ms(self) -> int:
        return 0

    def retry_pause_seconds(self, attempts: int) -> float:
        return 0.0

    def persist(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work()

        return asyncio.run(run())


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    async def settings(kept: WorkerCache, topic: str) -> TopicSettings:
        return TopicSettings()

    monkeypatch.setattr(WorkerCache, "settings_of", settings)


def placed(connection: GrowingTopic, *partitions: int) -> set[TopicPartition]:
    """Returns the partitions to which rows go that request these partitions."""
    options = sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": TOPIC, "kafka.max.block.ms": "5000"})
    packing = Packing(cast("ClusterThread", connection), options, cast("Any", connection))
    rows = pa.RecordBatch.from_pydict(
        {"value": [b"x"] * len(partitions), "partition": pa.array(partitions, pa.int32())}
    )
    return {key for key, _ in [*packing.add(rows), *packing.rest()]}


def test_a_partition_that_was_added_a_moment_ago_is_asked_for() -> None:
    connection = GrowingTopic(2, 2, 2, 4)
    assert placed(connection, 0, 3) == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 3)}
    assert connection.asked == 3


def test_partitions_that_are_known_are_not_asked_for() -> None:
    connection = GrowingTopic(2)
    assert placed(connection, 0, 1) == {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)}
    assert connection.asked == 0


def test_a_partition_that_does_not_come_is_an_error_when_the_time_is_over() -> None:
    connection = GrowingTopic(2)
    with pytest.raises(
        JesenskaError,
        match=r"asks for partition 7 of the topic orders, which has 2 partitions after 5 s \(kafka\.max\.block\.ms\)",
    ):
        placed(connection, 7)
    assert connection.asked == 5


@pytest.mark.parametrize("key", [None, "k"])
def test_a_record_over_the_largest_request_is_refused(key: str | None) -> None:
    """The limit applies to key and value of one record together."""
    options = sink_options(
        {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": TOPIC, "kafka.max.request.size": "1000"}
    )
    connection = GrowingTopic(1)

    def pack(*sizes: int) -> int:
        packing = Packing(cast("ClusterThread", connection), options, cast("Any", connection))
        columns = {"value": [b"x" * size for size in sizes]} | ({} if key is None else {"key": [key] * len(sizes)})
        return len([*packing.add(pa.RecordBatch.from_pydict(columns)), *packing.rest()])

    largest = 1000 - len(key or "")
    assert pack(largest, largest, 1) == 1
    with pytest.raises(
        JesenskaError,
        match=r"partition 0 of the topic orders has 1001 bytes .* kafka\.max\.request\.size allows \(1000\): raise",
    ):
        pack(1, largest + 1)


def test_no_partition_has_a_negative_number() -> None:
    connection = GrowingTopic(2)
    with pytest.raises(JesenskaError, match="asks for partition -1"):
        placed(connection, -1)
    assert connection.asked == 0
