"""An application whose state.dir is lost, or is replaced by another directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jesenska.pipeline.streams import StreamsError
from jesenska.pipeline.streams_on_spark import KafkaStreams
from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.test_kafka_streams import expected, lines, send, written
from tests.processes.pipeline.streams_on_spark.word_count import settings, word_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_lost_state_is_restored_and_an_old_one_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path, guarantee: str
) -> None:
    source, sink = topics.create(1), topics.create(1)
    topology, name, copied = word_count(source, sink), f"lost-{source}", tmp_path / "copied"

    def streams(directory: str) -> KafkaStreams:
        config = {**settings(topics.bootstrap, tmp_path / directory, name), "processing.guarantee": guarantee}
        return KafkaStreams(topology, config, spark=spark)

    def is_right(count: int) -> None:
        found, wanted = (
            written(topics, sink, 1, **{"kafka.isolation.level": "read_committed"}),
            expected(topology, lines(source, count), sink),
        )
        assert {key: [value for value, _ in values] for key, values in found.items()} == {
            key: [value for value, _ in values] for key, values in wanted.items()
        }

    send(topics, lines(source, 3), {source: 1})
    with streams("first") as running:
        running.process_available()
        shutil.copytree(tmp_path / "first", copied)
        send(topics, lines(source, 3, 3), {source: 1})
        with streams("second") as other:
            other.explain()  # takes nothing from the one that runs
            running.process_available()
            is_right(6)
            other.process_available()
        is_right(6)
        send(topics, lines(source, 3, 6), {source: 1})
        with pytest.raises(StreamsError, match="another process has continued the application"):
            running.process_available()
    with streams("first") as running, pytest.raises(StreamsError, match="has continued with another state"):
        running.process_available()
    shutil.rmtree(tmp_path / "first")
    with streams("first") as running:
        running.process_available()
        assert dict(running.store("counts").all())["kafka"] == 9
    is_right(9)
    with streams("copied") as running, pytest.raises(StreamsError, match="has continued with another state"):
        running.process_available()


def test_a_directory_that_was_put_back_from_a_copy_and_a_group_that_is_gone_are_refused(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """At least once, where there is no transaction that shows which records were written."""
    source, sink = topics.create(1), topics.create(1)
    config = {
        **settings(topics.bootstrap, tmp_path / "state", f"copied-{source}"),
        "processing.guarantee": "at_least_once",
    }

    def run() -> None:
        with KafkaStreams(word_count(source, sink), config, spark=spark) as streams:
            streams.process_available()

    for first in (0, 3):
        send(topics, lines(source, 3, first), {source: 1})
        run()
        if not first:
            shutil.copytree(tmp_path / "state", tmp_path / "copied")
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copied").rename(tmp_path / "state")
    with pytest.raises(StreamsError, match="has continued with another state"):
        run()
    # Without the group, its progress is unknown.
    shutil.rmtree(tmp_path / "state")
    topics.delete_group(f"copied-{source}")
    with pytest.raises(
        StreamsError, match=r"the topic .* has records of an earlier run .*kafka-streams-application-reset"
    ):
        run()
