"""Distributes ranges of offsets over Spark tasks. Small ranges share tasks, as many as there are cores; a large range
has a task of its own.

A task costs Spark about 20 ms, no matter how much it reads. So fifty ranges with one record each are read by fewer
than fifty tasks. The bytes of a range are estimated: its number of offsets times the average size of a record of its
topic in the log. The largest of the small ranges are assigned first, each to the task that has the fewest bytes. A
range is never split here, and a task reads its ranges one after the other, so the order within a partition is
preserved."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jesenska.base.limits import SOURCE_PACKED_BYTES
from jesenska.pipeline.connector.planning import OffsetRange

#: The assumed size of a record in topics whose records could not be sampled.
_USUAL_RECORD_BYTES = 1024.0


@dataclass(frozen=True, slots=True)
class Task:
    """The ranges of offsets that one Spark task reads, one after the other."""

    ranges: tuple[OffsetRange, ...]

    @property
    def size(self) -> int:
        """Returns the number of offsets in all ranges of the task."""
        return sum(item.size for item in self.ranges)

    def __str__(self) -> str:
        return ", ".join(map(str, self.ranges))


def apart(ranges: Sequence[OffsetRange]) -> list[Task]:
    """Returns tasks that each contain a single range, one task for each range."""
    return [Task((item,)) for item in ranges]


def pack(ranges: Sequence[OffsetRange], record_bytes: Mapping[str, float], cores: int) -> list[Task]:
    """Returns tasks that cover all ranges. `record_bytes` contains the average size of a record by topic; 1024 bytes
    are assumed for a topic without an entry."""
    if len(ranges) <= cores:
        return apart(ranges)
    sizes = [item.size * record_bytes.get(item.topic, _USUAL_RECORD_BYTES) for item in ranges]
    small = [index for index, size in enumerate(sizes) if size < SOURCE_PACKED_BYTES]
    count = min(len(small), max(cores, round(sum(sizes[index] for index in small) / SOURCE_PACKED_BYTES)))
    tasks: list[list[int]] = [[index] for index, size in enumerate(sizes) if size >= SOURCE_PACKED_BYTES]
    dealt: list[list[int]] = [[] for _ in range(count)]
    least = [(0.0, number) for number in range(count)]
    for index in sorted(small, key=lambda index: (-sizes[index], index)):
        held, number = least[0]
        dealt[number].append(index)
        heapq.heapreplace(least, (held + sizes[index], number))
    tasks += [sorted(members) for members in dealt if members]
    return [Task(tuple(ranges[index] for index in members)) for members in sorted(tasks)]
