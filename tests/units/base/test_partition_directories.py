"""The names of partitions' directories."""

from __future__ import annotations

import pytest

from jesenska.base.identifiers import TopicPartition


@pytest.mark.parametrize(
    "found",
    [
        TopicPartition("t", 0),
        TopicPartition("a-1", 7),
        TopicPartition("__consumer_offsets", 49),
        TopicPartition("t", 2**31 - 1),
    ],
)
def test_a_directory_names_its_partition(found: TopicPartition) -> None:
    assert TopicPartition.of_directory(str(found)) == found


@pytest.mark.parametrize(
    "name",
    [
        "",
        "t",
        "-0",
        "t-",
        "t-x",
        "t-12345678901",
        "t-0.1f-delete",
        "t-0.1f-future",
        "t-0-stray",
        "t-0\n",
        "meta.properties",
    ],
)
def test_other_names_are_no_partitions(name: str) -> None:
    assert TopicPartition.of_directory(name) is None
