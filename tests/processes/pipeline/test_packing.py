"""Small ranges share tasks, and large ones do not. No range is lost or split."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jesenska.base.limits import SOURCE_PACKED_BYTES
from jesenska.pipeline.connector.packing import pack
from jesenska.pipeline.connector.planning import OffsetRange
from tests.processes.pipeline.conftest import Reading, Topics

SIZES = st.lists(st.integers(1, 10**6), max_size=40)


def _ranges(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", number, 5, 5 + size) for number, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 8), st.floats(1, 10**5))
def test_every_range_is_in_one_task_and_in_its_order(sizes: list[int], cores: int, record_bytes: float) -> None:
    ranges = _ranges(sizes)
    tasks = pack(ranges, {"t": record_bytes}, cores)
    assert sorted((item for task in tasks for item in task.ranges), key=lambda item: item.partition) == ranges
    assert all(list(task.ranges) == sorted(task.ranges, key=lambda item: item.partition) for task in tasks)
    assert all(task.ranges for task in tasks)
    assert len(tasks) >= min(cores, len(ranges))
    for task in tasks:
        if len(task.ranges) > 1:
            assert all(item.size * record_bytes < SOURCE_PACKED_BYTES for item in task.ranges)


def test_fifty_small_ranges_make_as_many_tasks_as_there_are_cores() -> None:
    tasks = pack(_ranges([1] * 50), {"t": 100.0}, 4)
    assert sorted(task.size for task in tasks) == [12, 12, 13, 13]


def test_a_large_range_is_a_task_of_its_own_and_the_bytes_of_a_record_count() -> None:
    ranges = _ranges([1000, 10, 10, 10, 10])
    assert [len(task.ranges) for task in pack(ranges, {"t": 100.0}, 2)] == [1, 4]
    assert [len(task.ranges) for task in pack(ranges, {"t": float(SOURCE_PACKED_BYTES)}, 2)] == [1] * 5


def test_tasks_have_about_as_many_bytes() -> None:
    tasks = pack(_ranges([90, 10, 10, 10, 10, 10, 10, 10, 10, 10]), {"t": 100.0}, 2)
    assert sorted(task.size for task in tasks) == [90, 90]


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("partitions", [50, 500])
def test_many_small_partitions_are_read_by_few_tasks(
    reading: Reading, topics: Topics, tmp_path: Path, partitions: int
) -> None:
    topic = topics.create(partitions)
    everywhere = reading.spark.range(2 * partitions).selectExpr(
        "cast(id AS string) AS value", f"cast(id % {partitions} AS int) AS partition"
    )
    everywhere.write.format("jesenska").option("kafka.bootstrap.servers", reading.bootstrap).option(
        "topic", topic
    ).mode("append").save()
    expected = {(topic, number): [0, 1] for number in range(partitions)}
    frame = reading.batch(subscribe=topic)
    assert frame.rdd.getNumPartitions() <= max(2, os.cpu_count() or 1)
    assert reading.offsets(frame) == expected
    assert reading.run(reading.stream(subscribe=topic, startingOffsets="earliest"), tmp_path) == expected
    assert reading.batch(subscribe=topic, minPartitions=partitions).rdd.getNumPartitions() == partitions
