"""Global tables and stores in a process that runs tasks. They are read from their topics, stored in memory, and
updated at the beginning of each micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jesenska.pipeline.streams.engine.queues import RawRecord
from jesenska.pipeline.streams.engine.stores import KeyValueStore, SessionStore, WindowStore
from jesenska.pipeline.streams.engine.task import Task
from jesenska.pipeline.streams.records import Record
from jesenska.pipeline.streams_on_spark.tasks.partition_task import Work

Place = tuple[str, int, int, int]
"""topic, partition, first offset, end offset"""
Read = Callable[[Mapping[tuple[str, int], tuple[int, int]]], Iterable[RawRecord]]
"""read(ranges) yields the records from each start offset up to, not including, the end offset"""

_KINDS = {"key-value": KeyValueStore, "window": WindowStore, "session": SessionStore}


class GlobalTables:
    """The global stores of one topology."""

    def __init__(self, work: Work) -> None:
        self._work = work
        names = [
            name for group in work.processors.sub_topologies() if work.processors.is_global(group) for name in group
        ]
        self._task = Task(work.processors, names, work.config, _written, self._make_store, {}, 0, "global", True)
        self._positions: dict[tuple[str, int], int] = {}

    @property
    def stores(self) -> dict[str, Any]:
        return self._task.stores

    def read_to(self, places: Iterable[Place], read: Read) -> None:
        """Reads the records of these partitions up to their end offsets. The first call begins at the first offsets;
        later calls continue from there."""
        ranges = {
            (topic, partition): (self._positions.get((topic, partition), begin), end)
            for topic, partition, begin, end in places
        }
        ranges = {key: (start, end) for key, (start, end) in ranges.items() if start < end}
        if not ranges:
            return
        for record in read(ranges):
            self._task.process_at_once(record)
        self._positions.update({key: end for key, (_, end) in ranges.items()})

    def _make_store(self, name: str, task: Task) -> Any:
        spec = self._work.processors.stores[name]
        kind = _KINDS[spec.kind]
        return kind(
            spec, task.key_serde(spec.key), task.value_serde(spec.value), name, None, lambda: task.timestamp, task.drop
        )


def _written(topic: str, record: Record) -> None:
    raise AssertionError("the processor of a global store cannot write to a topic")
