"""Computes the order in which the records of several topics are processed. The next record is always the first record
of the topic whose first record has the smallest timestamp, as in the engine (engine/queues.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jesenska.pipeline.streams.engine.queues import TopicHeap
from jesenska.pipeline.streams_on_spark.columns.value_columns import Indices


def turns(times: Sequence[Indices]) -> list[Indices]:
    """Returns the turn of each record of each topic: the record's number in the order of processing. `times` contains
    the timestamps of each topic's records, in the order of the topic. If records of two topics have equal timestamps,
    the order of topics in `times` decides which record is first."""
    if len(times) == 1:
        return [np.arange(len(times[0]))]
    return _of_two(*times) if len(times) == 2 else _of_many(times)


def _of_two(first: Indices, second: Indices) -> list[Indices]:
    """Returns the turns of the records of two topics.

    If a record has a smaller timestamp than an earlier record of its topic, it is processed right after the record
    before it. So each topic is cut into blocks. A block begins with a record whose timestamp is at least as large as
    all timestamps before it. Blocks are sorted by the timestamp of their first record. If both topics have blocks with
    the same timestamp, the topics alternate. The topic that did not have the previous turn begins."""
    sides = (first, second)
    reached = [np.maximum.accumulate(times) for times in sides]
    leads = [times == highest for times, highest in zip(sides, reached, strict=True)]
    moments = np.unique(np.concatenate(reached))
    moment_of = [np.searchsorted(moments, highest) for highest in reached]
    blocks = [np.bincount(moment_of[side][leads[side]], minlength=len(moments)) for side in (0, 1)]
    # The topic that had the last turn of a timestamp does not begin at the next timestamp. If both topics have the
    # same number of blocks, the topic that began before begins again.
    uneven = np.where(blocks[0] != blocks[1], np.arange(len(moments)), -1)
    decided_by = np.concatenate([[-1], np.maximum.accumulate(uneven)[:-1]])
    begins = np.where(decided_by < 0, 0, blocks[0][decided_by] > blocks[1][decided_by])  # 0: the first topic
    most = int(max(blocks[0].max(), blocks[1].max())) + 1
    keys = []
    for side in (0, 1):
        counted = np.cumsum(leads[side])
        before = np.cumsum(blocks[side]) - blocks[side]
        block = counted - 1 - before[moment_of[side]]
        keys.append((moment_of[side] * most + block) * 2 + (begins[moment_of[side]] != side))
    places = np.argsort(np.concatenate(keys), kind="stable")
    found = np.empty(len(places), np.int64)
    found[places] = np.arange(len(places))
    return [found[: len(first)], found[len(first) :]]


class _Waiting:
    """The records of one topic that wait for their turn in the order of processing."""

    def __init__(self, times: list[int]) -> None:
        self._times = iter(times)
        self.turns: list[int] = []
        self.head_timestamp = next(self._times)

    def take(self, turn: int) -> bool:
        """Assigns `turn` to the first waiting record. Returns True if more records wait."""
        self.turns.append(turn)
        self.head_timestamp = next(self._times, -1)
        return self.head_timestamp >= 0


def _of_many(times: Sequence[Indices]) -> list[Indices]:
    heap: Any = TopicHeap()
    topics = [_Waiting(one.tolist()) for one in times]
    for topic in topics:
        heap.push(topic)
    turn = 0
    while len(heap):
        topic = heap.pop()
        if topic.take(turn):
            heap.push(topic)
        turn += 1
    return [np.array(topic.turns, np.int64) for topic in topics]
