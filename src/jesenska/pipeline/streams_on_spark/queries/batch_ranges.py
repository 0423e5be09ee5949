"""Finds the offsets that a micro-batch reads, and distributes them to tasks.

Before a micro-batch is processed, Spark writes its end offsets to the checkpoint:

    <checkpoint>/offsets/<number of the micro-batch>     a line "v1", a line of settings, a line for each source

A micro-batch begins at the end of the previous micro-batch; the first micro-batch begins at the source's initial
offsets. So the tasks can read the topics themselves: the records do not go through Spark's own reading, its JVM and a
shuffle, which would cost more than most processing. A task gets whole partitions: if it gets a partition of one topic,
it gets the partitions with the same number of all topics."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jesenska.base.identifiers import TopicPartition
from jesenska.pipeline.connector.options import SourceOptions
from jesenska.pipeline.connector.planning import OffsetRange, from_tree
from jesenska.pipeline.streams.errors import StreamsError

Share = tuple[tuple[int, tuple[OffsetRange, ...]], ...]
"""The input of one task: numbers of partitions, each with its ranges of offsets."""

_VERSION = "v1"
#: If a micro-batch has fewer offsets than this, starting a task costs more than reading them.
_FEW = 50_000


class BatchRanges:
    """Finds, on the driver, the offsets of the micro-batches of one query. `options` are the options of the query's
    source."""

    def __init__(self, options: SourceOptions, checkpoint: Path) -> None:
        from jesenska.pipeline.connector.source import JesenskaStreamReader

        self._reader = JesenskaStreamReader(options)
        self._offsets = checkpoint / "offsets"

    def of(self, batch_id: int) -> list[OffsetRange]:
        """Returns the ranges of offsets that this micro-batch reads. Empty ranges are left out."""
        start = self._end_of(batch_id - 1) if batch_id else self._reader.initialOffset()
        tasks = self._reader.partitions(start, self._end_of(batch_id))
        return [found for task in tasks for found in task.value.ranges if found.size]

    def ends_of(self, batch_id: int) -> dict[TopicPartition, int]:
        """Returns the end offset of this micro-batch in every partition. Partitions without new records are
        included."""
        return ends_in(self._offsets / str(batch_id))

    def _end_of(self, batch_id: int) -> Mapping[str, Any]:
        return _end_in(self._offsets / str(batch_id))


def ends_in(path: Path) -> dict[TopicPartition, int]:
    """Returns the end offsets of a micro-batch, read from its file in the checkpoint."""
    return from_tree(_end_in(path)).offsets


def _end_in(path: Path) -> Mapping[str, Any]:
    """Returns the end offsets of a micro-batch, in the form in which the source gave them to Spark."""
    try:
        version, _, *sources = path.read_text().splitlines()
        if version != _VERSION:
            raise ValueError(version)
        return next(found for source in sources if isinstance(found := json.loads(source), dict))
    except (OSError, ValueError, StopIteration) as error:
        raise StreamsError(
            f"Spark's checkpoint {path} cannot be read ({error}): restore the checkpoint, or remove the "
            "application's directory below state.dir, so that the state is restored."
        ) from error


def shares(ranges: Sequence[OffsetRange], cores: int, every: Iterable[int] = ()) -> list[Share]:
    """Distributes ranges to tasks. All ranges with the same partition number go to one task. The partition numbers in
    `every` are always included. With few offsets there are at most as many tasks as cores. With many offsets there are
    at most twice as many tasks, so that one slow task does not leave the other cores idle."""
    by_partition: dict[int, list[OffsetRange]] = {number: [] for number in every}
    for item in ranges:
        by_partition.setdefault(item.partition, []).append(item)
    sizes = {number: sum(item.size for item in members) for number, members in by_partition.items()}
    count = min(len(sizes), cores if sum(sizes.values()) < _FEW else 2 * cores)
    dealt: list[list[int]] = [[] for _ in range(count)]
    least = [(0, task) for task in range(count)]
    for number in sorted(sizes, key=lambda number: (-sizes[number], number)):
        size, task = least[0]
        dealt[task].append(number)
        heapq.heapreplace(least, (size + sizes[number] + 1, task))
    return [tuple((number, tuple(by_partition[number])) for number in sorted(members)) for members in dealt]
