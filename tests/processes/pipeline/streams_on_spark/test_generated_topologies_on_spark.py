"""A few generated topologies on Spark, each in another way; `python -m tests.processes.pipeline.streams_on_spark` runs
all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes.pipeline.conftest import Topics
from tests.processes.pipeline.streams_on_spark.compared_on_spark import partitions_for, unexplained_on_spark
from tests.processes.pipeline.streams_on_spark.on_spark import HowToRun, OnSpark
from tests.units.pipeline.streams.comparison import beside
from tests.units.pipeline.streams.generated_topologies import named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("name", "expressions", "how"),
    [
        # Its sub-topologies feed each other: one has micro-batches without records first.
        ("names of tables", False, HowToRun()),
        ("word count", True, HowToRun(rounds=2, guarantee="exactly_once_v2")),
        ("count in hopping windows, grace 15", True, HowToRun(max_offsets=7)),
        ("group_by_key and aggregate", False, HowToRun(rounds=2, partitions=2)),
        ("stream-global left join, null right value", False, HowToRun(rounds=2)),
    ],
)
def test_spark_gives_what_kafka_streams_gives(
    name: str, expressions: bool, how: HowToRun, spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    description = {**named(name), "expressions": expressions}
    how = replace(how, partitions=partitions_for(description, how.partitions))
    titles: set[str] = set()
    found = list(unexplained_on_spark(OnSpark(spark, topics, tmp_path), description, how, titles))
    assert not found, "\n".join(beside(*difference) for difference in found)
