"""Finds full reads in a history. The last full read of each partition shows which records are in the log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jesenska.testing.faults.findings import Key
from jesenska.testing.faults.history import FullReadBegan, FullReadEnded, Operation, Polled


@dataclass(slots=True)
class FullRead:
    """The records of a full read of one partition. `start` is the first existing offset and `end` the end offset; both
    are set when the full read has ended."""

    began_ns: int
    start: int = 0
    end: int = 0
    values: dict[int, str | None] = field(default_factory=dict)


def last_full_reads(history: Iterable[Operation]) -> dict[Key, FullRead]:
    """Returns, for each partition, the full read that was the last to end."""
    reading: dict[str, dict[Key, FullRead]] = {}
    done: dict[Key, FullRead] = {}
    for operation in history:
        if isinstance(operation, Polled):
            read = reading.get(operation.client, {}).get((operation.topic, operation.partition))
            if read is not None:
                read.values.update(operation.records)
        elif isinstance(operation, FullReadBegan):
            reading[operation.client] = {
                (topic, partition): FullRead(operation.time_ns) for topic, partition in operation.partitions
            }
        elif isinstance(operation, FullReadEnded):
            begun = reading.pop(operation.client, {})
            for topic, partition, start, end in operation.ranges:
                ended = begun.get((topic, partition))
                if ended is not None:
                    ended.start, ended.end = start, end
                    done[topic, partition] = ended
    return done
