"""An application whose process is killed continues, and its output is as if it had not been killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.pipeline.streams import StreamsBuilder
from jesenska.pipeline.streams_on_spark import KafkaStreams
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.test_kafka_streams import expected, lines, send, wait_until, written
from tests.processes.pipeline.streams_on_spark.word_count import STRINGS, settings, word_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(300)]

LINES = 150


def test_a_killed_application_goes_on_and_writes_nothing_twice(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, sink = topics.create(2), topics.create(2)
    name = f"killed-{source}"
    given = lines(source, LINES)
    send(topics, given, {source: 2})
    said = tmp_path / "said"
    with said.open("w") as output:
        command = [sys.executable, "-m", "tests.processes.pipeline.streams_on_spark.killed_application"]
        arguments = [topics.bootstrap, str(tmp_path), name, source, sink]
        with subprocess.Popen(
            [*command, *arguments], start_new_session=True, stdout=output, stderr=subprocess.STDOUT
        ) as process:
            try:
                wait_until(
                    lambda: process.poll() is not None or sum(end for _, end in topics.offsets(sink, 2).values()) > 20
                )
                assert process.poll() is None, said.read_text()[-3000:]
            finally:
                os.killpg(process.pid, signal.SIGKILL)
    before = sum(len(values) for values in written(topics, sink, 2).values())
    topology = word_count(source, sink)
    with KafkaStreams(topology, settings(topics.bootstrap, tmp_path, name), spark=spark) as streams:
        streams.process_available()
    found = written(topics, sink, 2, **{"kafka.isolation.level": "read_committed"})
    wanted = expected(topology, given, sink)
    assert before < sum(len(values) for values in wanted.values()), "it was killed when all was done"
    assert {key: [value for value, _ in values] for key, values in found.items()} == {
        key: [value for value, _ in values] for key, values in wanted.items()
    }


def test_state_that_is_begun_anew_is_not_taken_for_the_old_one(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Its micro-batches have the numbers of those that were committed before. It continues where the lost state
    was."""
    source, sink = topics.create(1), topics.create(1)
    builder = StreamsBuilder()
    builder.stream(source, **STRINGS).to(sink)
    for number in range(2):
        send(topics, lines(source, 1, number), {source: 1})
        with KafkaStreams(
            builder.build(), settings(topics.bootstrap, tmp_path, f"anew-{source}"), spark=spark
        ) as streams:
            streams.process_available()
        shutil.rmtree(tmp_path / f"anew-{source}")
    assert written(topics, sink) == expected(builder.build(), lines(source, 2), sink)
