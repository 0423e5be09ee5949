"""One Spark session and one broker for all tests of the pipeline; topics have names of their own.

JESENSKA_TEST_BOOTSTRAP=host:port runs the same tests against another broker, such as Apache Kafka's."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.config_administration import TOPIC
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.cluster import Cluster
from jesenska.client.offsets import EARLIEST, LATEST, list_offsets
from jesenska.client.producer import Producer
from jesenska.pipeline.connector.cluster_thread import ClusterThread
from jesenska.pipeline.connector.options import ClientOptions
from jesenska.pipeline.spark.session import SHORT_RUN, session
from jesenska.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_numbers = itertools.count(1)
#: The number of characters of the JVM's output that are shown where it has ended too soon.
_LOG_CHARACTERS = 20_000


class Topics:
    """A client that prepares the topics of the tests. Every call waits for its answer."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._connection = ClusterThread(ClientOptions(bootstrap))

    @property
    def _cluster(self) -> Cluster:
        return self._connection.cluster

    def create(self, partitions: int = 1, *, name: str | None = None, **configs: str) -> str:
        """Creates a topic, with the test's name or a new one. Settings have `_` in place of `.`. Records are kept at
        any age, since tests choose their times."""
        topic = name or f"topic-{os.getpid()}-{next(_numbers)}"
        new = NewTopic(
            topic,
            partitions,
            1,
            {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()},
        )
        self._raise(self._connection.run(Admin(self._cluster).create_topics([new])))

        async def there() -> None:
            while topic not in await self._cluster.topics():
                await asyncio.sleep(0.02)

        self._connection.run(asyncio.wait_for(there(), 20))
        return topic

    def delete(self, topic: str) -> None:
        self._raise(self._connection.run(Admin(self._cluster).delete_topics([topic])))

        async def gone() -> None:
            while topic in await self._cluster.topics():
                await asyncio.sleep(0.02)

        self._connection.run(asyncio.wait_for(gone(), 20))

    def add_partitions(self, topic: str, total: int) -> None:
        self._raise(self._connection.run(Admin(self._cluster).create_partitions({topic: total})))

        async def there() -> None:
            while len((await self._cluster.topics())[topic].partitions) < total:
                await asyncio.sleep(0.02)

        self._connection.run(asyncio.wait_for(there(), 20))

    def send(
        self, topic: str, values: Sequence[bytes | tuple[Any, ...] | None], partition: int = 0, **options: Any
    ) -> None:
        """Sends records to one partition: values, or (value, key, headers, timestamp in ms) up to the last one that is
        needed."""

        async def work() -> None:
            async with Producer(self._cluster, **options) as producer:
                sent = []
                for item in values:
                    value, key, headers, timestamp_ms = (
                        (*item, None, None, None)[:4] if isinstance(item, tuple) else (item, None, None, None)
                    )
                    sent.append(await producer.send(topic, value, key, partition, headers or (), timestamp_ms))
                await producer.flush()
                for future in sent:
                    await future

        self._connection.run(work())

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> None:
        self._raise(
            self._connection.run(Admin(self._cluster).delete_records({TopicPartition(topic, partition): offset}))
        )

    def offsets(self, topic: str, partitions: int = 1) -> dict[int, tuple[int, int]]:
        """The earliest and the latest offset of each partition."""
        keys = [TopicPartition(topic, number) for number in range(partitions)]
        first = self._connection.run(list_offsets(self._cluster, dict.fromkeys(keys, EARLIEST)))
        last = self._connection.run(list_offsets(self._cluster, dict.fromkeys(keys, LATEST)))
        return {key.partition: (first[key].offset, last[key].offset) for key in keys}

    def settings(self, topic: str) -> dict[str, str | None]:
        """The settings of a topic."""
        return {
            entry.name: entry.value
            for entry in self._connection.run(Admin(self._cluster).describe_configs(TOPIC, topic))
        }

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group."""
        found = self._connection.run(Admin(self._cluster).list_group_offsets(group))
        return {(key.topic, key.partition): item.offset for key, item in found.items()}

    def delete_group(self, group: str) -> None:
        self._raise(self._connection.run(Admin(self._cluster).delete_groups([group])))

    @staticmethod
    def _raise(results: Mapping[Any, Any]) -> None:
        for error in results.values():
            if isinstance(error, Exception):
                raise error

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("JESENSKA_TEST_BOOTSTRAP")
    if given:
        return given
    broker: BrokerProcess = request.getfixturevalue("broker")
    return broker.bootstrap


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Iterator[Topics]:
    client = Topics(bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    config = {
        **SHORT_RUN,
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(tmp_path_factory.mktemp("local")),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.streaming.stopTimeout": "30s",
        # A shuffle file that is lost makes Spark drop its executor. In local mode that is the driver, whose heartbeats
        # then fail for ever, and which ends itself after 60 of them, in ten minutes, in the middle of other tests.
        "spark.executor.heartbeat.maxFailures": str(2**31 - 1),
    }
    log = tmp_path_factory.mktemp("spark") / "log"
    made = session("tests", config=config, log=log)
    gateway = made.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    yield made
    if jvm.poll() is not None:
        said = log.read_text(errors="replace")[-_LOG_CHARACTERS:]
        pytest.fail(f"Spark's JVM ended with code {jvm.returncode} before the tests did. {log} ends with:\n{said}")
    made.stop()


class Reading:
    """Queries over the source with the options that every test needs."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def batch(self, **options: Any) -> DataFrame:
        frame: DataFrame = self._with(self.spark.read.format("jesenska"), options).load()
        return frame

    def stream(self, **options: Any) -> DataFrame:
        frame: DataFrame = self._with(self.spark.readStream.format("jesenska"), options).load()
        return frame

    def run(self, frame: DataFrame, checkpoint: Path) -> dict[tuple[str, int], list[int]]:
        """Runs a stream until it has read all records. Returns the offsets of each partition, over all its runs."""
        out = checkpoint / "rows"
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint / "state"))
            .option("path", str(out))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.offsets(self.spark.read.parquet(str(out))) if out.exists() else {}

    @staticmethod
    def offsets(frame: DataFrame) -> dict[tuple[str, int], list[int]]:
        found: dict[tuple[str, int], list[int]] = {}
        for row in frame.select("topic", "partition", "offset").collect():
            found.setdefault((row.topic, row.partition), []).append(row.offset)
        return {key: sorted(offsets) for key, offsets in found.items()}

    def _with(self, reader: Any, options: Mapping[str, Any]) -> Any:
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader


@pytest.fixture
def reading(spark: SparkSession, bootstrap: str) -> Reading:
    return Reading(spark, bootstrap)
