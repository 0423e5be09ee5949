"""An application that starts again: with clean_up and kafka-streams-application-reset, from the beginning or from the
offsets that the tool has set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.cli.kafka.groups import kafka_streams_application_reset
from jesenska.pipeline.streams import StreamsError, Topology
from jesenska.pipeline.streams_on_spark import KafkaStreams
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.word_count import settings, word_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_an_application_begins_anew_where_its_offsets_are_set(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, sink = topics.create(), topics.create()
    name, topology = f"anew-{source}", word_count(source, sink)
    topics.send(source, [b"one two", b"two three", b"three three"])

    def application() -> KafkaStreams:
        return KafkaStreams(topology, settings(topics.bootstrap, tmp_path, name), spark=spark)

    def counts(streams: KafkaStreams) -> dict[str, int]:
        streams.process_available()
        return dict(streams.store("counts").all())

    def reset(*arguments: str) -> None:
        flags = ["--bootstrap-server", topics.bootstrap, "--application-id", name]
        assert kafka_streams_application_reset.main([*flags, *arguments]) == 0

    with application() as streams:
        assert counts(streams) == {"one": 1, "two": 2, "three": 3}
        with pytest.raises(StreamsError, match="RUNNING: close the application first"):
            streams.clean_up()
    # The offsets that the application itself has committed only show its progress.
    reset("--state-dir", str(tmp_path))
    with application() as streams:
        assert counts(streams) == {"one": 1, "two": 2, "three": 3}
    assert application().clean_up() is True
    assert application().clean_up() is False
    reset("--input-topics", source, "--to-offset", "1")
    with application() as streams:
        assert counts(streams) == {"two": 1, "three": 3}


def test_a_state_of_another_topology_says_how_to_begin_anew(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, sink, other = topics.create(), topics.create(), topics.create()
    config = settings(topics.bootstrap, tmp_path, f"changed-{source}")

    def run(topology: Topology) -> None:
        with KafkaStreams(topology, config, spark=spark) as streams:
            streams.explain()

    run(word_count(source, sink))
    with pytest.raises(StreamsError, match="start again with kafka-streams-application-reset --state-dir"):
        run(word_count(source, other))
