"""An application whose state directory, or a part of it, is lost, put back from a copy or exchanged with another
application's. It is refused or gives right results, and never gives wrong results silently.
`tests.processes.crash.lost_and_swapped` does the same with processes that are killed."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from jesenska.pipeline.streams import StreamsError
from jesenska.pipeline.streams_on_spark import KafkaStreams
from tests.processes.crash.harms import STATE_PATHS, all_harms, copy
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.test_kafka_streams import lines, send, written
from tests.processes.pipeline.streams_on_spark.word_count import LINES, named_counts, settings
from tests.profiles import rounds
from tests.tiers import first_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

_ALL = all_harms(STATE_PATHS)
_HARMS = rounds(quick=1, ci=2, everything=len(_ALL))


class Pair:
    """Two applications with the same description, on one source and one sink."""

    def __init__(self, spark: SparkSession, topics: Topics, directory: Path, guarantee: str) -> None:
        self.spark, self.topics, self.directory = spark, topics, directory
        self.source, self.sink = topics.create(2), topics.create(2)
        self.guarantee = guarantee
        self.sent = 0

    def of(self, name: str) -> Path:
        return self.directory / f"{name}-{self.source}"

    def send(self, count: int) -> None:
        send(self.topics, lines(self.source, count, self.sent), {self.source: 2})
        self.sent += count

    def run(self, name: str) -> None:
        with self._streams(name) as streams:
            streams.process_available()

    def _streams(self, name: str) -> KafkaStreams:
        config: dict[str, Any] = {
            **settings(self.topics.bootstrap, self.directory, f"{name}-{self.source}"),
            "processing.guarantee": self.guarantee,
        }
        return KafkaStreams(named_counts(self.source, self.sink, name), config, spark=self.spark)

    def mistakes(self, name: str) -> str:
        """The mistakes in the output and in the store, when all is processed. Empty where all is right."""
        words = " ".join(LINES[number % 3] for number in range(self.sent)).split()
        found = written(self.topics, self.sink, 2, **{"kafka.isolation.level": "read_committed"})
        counts = {
            key.decode(): [int.from_bytes(value or b"", "big") for value, _ in values]
            for key, values in found.items()
            if key is not None
        }
        exactly = self.guarantee == "exactly_once_v2"
        told = []
        for word, count in Counter(words).items():
            steps = counts.get(f"{name} {word}", [])
            if steps[-1:] != [count] or (steps if exactly else sorted(set(steps))) != list(range(1, count + 1)):
                told.append(f"{word} is counted {count} times: {steps}")
        with self._streams(name) as streams:
            if (stored := dict(streams.store("counts").all())) != Counter(words):
                told.append(f"the store has {stored}")
        return "; ".join(told)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_harmed_state_is_refused_or_right(
    spark: SparkSession, topics: Topics, tmp_path: Path, guarantee: str
) -> None:
    """The other application has progressed further than this one, so its files cannot be recognised by being older."""
    seed = first_seed()
    pair = Pair(spark, topics, tmp_path, guarantee)
    older, other = tmp_path / "older", tmp_path / "other"
    pair.send(4)
    pair.run("a")
    copy(pair.of("a"), older)
    pair.send(4)
    pair.run("a")
    told = []
    for harm in Random(seed).sample(_ALL, _HARMS):
        pair.send(4)
        pair.run("b")
        copy(pair.of("b"), other)
        assert harm.do(pair.of("a"), older, other), f"{harm}: there is nothing of that name"
        try:
            pair.run("a")
            outcome = "right"
        except StreamsError as error:
            outcome = f"refused: {error}"
            assert "Query [id" not in outcome, f"{harm}: Spark's own words: {outcome}"
            shutil.rmtree(pair.of("a"))
            pair.run("a")
        wrong = pair.mistakes("a")
        told.append(f"{harm}: {outcome[:400]} {wrong}")
        print(told[-1], flush=True)
        assert not wrong, f"seed {seed}, {told[-1]}"
