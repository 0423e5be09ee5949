"""Topologies that run on Spark, from topics into topics, compared with the test driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jesenska.pipeline.cluster_thread import connect
from jesenska.pipeline.options import source_options
from jesenska.pipeline.streams import Serdes, StreamsBuilder, Topology, TopologyTestDriver
from jesenska.pipeline.streams.kafka_streams import KafkaStreams, State
from jesenska.pipeline.streams.spark_task import read_ranges
from tests.pipeline.conftest import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRINGS: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}
Given = tuple[str, bytes | None, bytes | None, int]
"""topic, key, value, timestamp"""


class Application:
    """An application of one topology on the tests' session, with a directory of its own."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path, name: str, **settings: Any) -> None:
        self.spark = spark
        self.topics = topics
        self.config = {
            "application.id": name,
            "bootstrap.servers": topics.bootstrap,
            "state.dir": str(directory),
            "commit.interval.ms": 0,
            **{setting.replace("_", "."): value for setting, value in settings.items()},
        }

    def streams(self, topology: Topology, **options: Any) -> KafkaStreams:
        return KafkaStreams(topology, self.config, spark=self.spark, **options)

    def run(self, topology: Topology, **options: Any) -> None:
        """Processes what is there."""
        with self.streams(topology, **options) as streams:
            streams.process_available()


def send(topics: Topics, given: Sequence[Given], partitions: Mapping[str, int]) -> None:
    """Puts the records into their topics, each into the partition of its key."""
    from jesenska.client.partitioner import partition_of_key

    for topic, count in partitions.items():
        for number in range(count):
            mine = [(value, key, None, at) for name, key, value, at in given if name == topic and partition_of_key(key or b"", count) == number]
            if mine:
                topics.send(topic, mine, number)


def written(topics: Topics, topic: str, partitions: int = 1, **options: str) -> dict[bytes | None, list[tuple[bytes | None, int]]]:
    """What a topic has: by key the values with their times."""
    source = source_options({"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic, **options}, streaming=False)
    ends = topics.offsets(topic, partitions)
    found: dict[bytes | None, list[tuple[bytes | None, int]]] = {}
    for record in read_ranges(source, {(topic, number): ends[number] for number in ends}):
        found.setdefault(record.key, []).append((record.value, record.timestamp))
    return found


def expected(topology: Topology, given: Sequence[Given], topic: str) -> dict[bytes | None, list[tuple[bytes | None, int]]]:
    """What the test driver gives for the same."""
    found: dict[bytes | None, list[tuple[bytes | None, int]]] = {}
    with TopologyTestDriver(topology) as driver:
        for name, key, value, at in given:
            driver.pipe_raw(name, key, value, at)
        for record in driver.read_raw(topic):
            found.setdefault(record.key, []).append((record.value, record.timestamp))
    return found


def word_count(source: str, sink: str) -> Topology:
    """As the documents have it."""
    builder = StreamsBuilder()
    words = builder.stream(source, **STRINGS).flat_map_values(lambda line: line.lower().split())
    words.group_by(lambda key, word: word, **STRINGS).count(store="counts").to_stream().to(sink, key=Serdes.string(), value=Serdes.long())
    return builder.build()


LINES = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]


def lines(topic: str, count: int = 3, first: int = 0) -> list[Given]:
    return [(topic, b"%d" % number, LINES[number % 3].encode(), 1000 + number) for number in range(first, first + count)]


def last_values(found: Mapping[bytes | None, Sequence[tuple[bytes | None, int]]]) -> dict[bytes | None, bytes | None]:
    return {key: values[-1][0] for key, values in found.items()}


def test_word_count_goes_on_where_it_was_stopped(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    source, sink = topics.create(2), topics.create(2)
    topology = word_count(source, sink)
    application = Application(spark, topics, tmp_path, f"words-{source}")
    send(topics, lines(source, 6), {source: 2})
    application.run(topology, max_offsets_per_trigger=4)
    send(topics, lines(source, 6, 6), {source: 2})
    application.run(topology)
    found, wanted = written(topics, sink, 2), expected(topology, lines(source, 12), sink)
    assert last_values(found) == last_values(wanted)
    assert {key: [value for value, _ in values] for key, values in found.items()} == {key: [value for value, _ in values] for key, values in wanted.items()}
