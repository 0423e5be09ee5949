"""Descriptions of topologies (tests/units/pipeline/streams/topology_spec.py), run on Spark: from topics of a broker
into topics of a broker, by `KafkaStreams.process_available`.

The ranges of the micro-batches are read from Spark's checkpoint. The same micro-batches without Spark
(micro_batches.py) must have the same results.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jesenska.base.errors import JesenskaError
from jesenska.client.partitioner import partition_of_key
from jesenska.pipeline.connector.options import source_options
from jesenska.pipeline.streams import Record, Topology
from jesenska.pipeline.streams_on_spark import KafkaStreams
from jesenska.pipeline.streams_on_spark.queries.spark_task import read_ranges
from tests.processes.pipeline.streams_on_spark.micro_batches import Happening, Place
from tests.units.pipeline.streams.interpreted import (
    Interpreter,
    failure,
    is_table,
    piped,
    rows,
    shown_description,
    shown_key,
)
from tests.units.pipeline.streams.topology_spec import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.processes.pipeline.conftest import Topics

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class HowToRun:
    """The way to run a topology. `rounds` is the number of parts of the input, each of which is followed by
    `process_available`."""

    rounds: int = 1
    partitions: int = 1
    guarantee: str = "at_least_once"
    max_offsets: int = 500_000


class InterpreterOnSpark(Interpreter):
    """An interpreter whose witnesses write to files, since they run in other processes."""

    def __init__(self, description: Json, directory: Path) -> None:
        super().__init__(description)
        self._directory = directory

    def _witness(self, step: Json) -> Callable[[Any, Any], None]:
        self.seen[step["as"]] = []
        path = str(self._directory / f"{step['as']}.seen")

        def see(key: Any, value: Any) -> None:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps([shown_key(key), value]) + "\n")

        return see

    def read_witnesses(self) -> Json:
        """Adds the records that the witnesses have seen."""
        for name, items in self.seen.items():
            path = self._directory / f"{name}.seen"
            items += [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return self.seen


def with_own_topics(description: Json) -> Json:
    """The same description with topics, and an application, of its own."""
    prefix = f"t{os.getpid()}-{next(_numbers)}-"

    def named(step: Json) -> Json:
        renamed = {"topic": prefix + step["topic"]} if "topic" in step else {}
        return {
            **step,
            **renamed,
            **({"topics": [prefix + topic for topic in step["topics"]]} if "topics" in step else {}),
        }

    return {
        **description,
        "topic_prefix": prefix,
        "settings": {**description.get("settings", {}), "application.id": f"{prefix}judge"},
        "steps": [named(step) for step in description["steps"]],
        "input": [named(happening) for happening in description["input"]],
    }


def topics_of(description: Json) -> set[str]:
    """The topics that its steps name."""
    return {
        topic
        for step in description["steps"]
        for topic in [*step.get("topics", ()), *([step["topic"]] if "topic" in step else ())]
    }


class OnSpark:
    """Runs descriptions in one session against one broker."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path) -> None:
        self._spark = spark
        self._topics = topics
        self._directory = directory

    def outcome(self, description: Json, how: HowToRun) -> tuple[Json, list[Happening]]:
        """Runs a description that has topics of its own. Returns the outcome, and the events in their order."""
        directory = self._directory / description["topic_prefix"]
        directory.mkdir()
        interpreter = InterpreterOnSpark(description, directory)
        found: Json = {}
        try:
            topology = interpreter.topology()
        except JesenskaError as error:
            return {"error": failure("build", -1, error)}, []
        found["describe"] = shown_description(topology)
        for topic in sorted(topics_of(description)):
            self._topics.create(how.partitions, name=topic, retention_ms="-1")  # timestamps are of long ago
        config = {
            **interpreter.settings,
            "bootstrap.servers": self._topics.bootstrap,
            "state.dir": str(directory),
            "processing.guarantee": how.guarantee,
            "commit.interval.ms": 0,
        }
        script: list[Happening] = []
        batches = _Batches(directory / interpreter.settings["application.id"])
        with KafkaStreams(topology, config, spark=self._spark, max_offsets_per_trigger=how.max_offsets) as streams:
            try:
                for given in _rounds(description["input"], how.rounds):
                    self._send(given, how.partitions)
                    script += given
                    streams.process_available()
                    script += batches.new()
            except JesenskaError as error:
                script += batches.new()
                found["error"] = failure("input", -1, error)
            else:
                found["stores"] = _stores(streams, topology)
        found["output"] = {
            topic: interpreter.read(topic, self._written(topic, how.partitions)) for topic in interpreter.written
        }
        found["seen"] = interpreter.read_witnesses()
        return found, script

    def _send(self, given: Sequence[Json], partitions: int) -> None:
        places: dict[Place, list[tuple[Any, ...]]] = {}
        for happening in given:
            if "advance_ms" not in happening:
                topic, record = piped(happening)
                partition = 0 if record.key is None else partition_of_key(record.key, partitions)
                places.setdefault((topic, partition), []).append(
                    (record.value, record.key, record.headers, record.timestamp)
                )
        for (topic, partition), records in places.items():
            self._topics.send(topic, records, partition)

    def _written(self, topic: str, partitions: int) -> Iterator[Record]:
        source = source_options(
            {
                "kafka.bootstrap.servers": self._topics.bootstrap,
                "subscribe": topic,
                "includeHeaders": "true",
                "kafka.isolation.level": "read_committed",
            },
            streaming=False,
        )
        ends = self._topics.offsets(topic, partitions)
        for record in read_ranges(source, {(topic, number): (0, end) for number, (_, end) in ends.items()}):
            yield Record(record.key, record.value, record.timestamp, record.headers)


def _stores(streams: KafkaStreams, topology: Topology) -> Json:
    found = {}
    for name, spec in topology.processors.stores.items():
        if is_table(name):
            found[name] = rows(streams.store(name, timestamped=spec.timestamped).all())
    return found


def _rounds(given: Sequence[Json], count: int) -> Iterator[Sequence[Json]]:
    size = -(-len(given) // count)
    return (given[start : start + size] for start in range(0, len(given), size))


def _places(offsets: Json) -> Iterator[tuple[Place, int]]:
    for topic, partitions in offsets.items():
        if isinstance(partitions, dict):
            yield from (((topic, int(number)), end) for number, end in partitions.items() if number.isdigit())


class _Batches:
    """The micro-batches in Spark's checkpoints below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: set[Path] = set()

    def new(self) -> list[Happening]:
        """The micro-batches that were not returned before, in the order of their time."""
        files = [
            path
            for path in self._directory.glob("*/checkpoint/offsets/*")
            if path.name.isdigit() and path not in self._known
        ]
        self._known.update(files)
        found: list[Happening] = []
        for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
            ends: dict[Place, int] = {}
            for line in path.read_text().splitlines()[2:]:
                offsets = json.loads(line)
                if isinstance(offsets, dict):  # and not those of a clock
                    ends.update(_places(offsets))
            found.append((int(path.parts[-4]), ends))
        return found
