"""Chooses the next record of a task among the topics that have unprocessed records. The first records of all these
topics are compared, and the record with the smallest timestamp is taken.

If timestamps are equal, the order is that of Java's PriorityQueue, as in Kafka Streams. It is a heap of topics: a
topic is removed when its record is taken, and added again if it has more records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jesenska.pipeline.streams.records import Headers, Record, RecordMetadata


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as bytes, as it is in its topic."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    partition: int = 0


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record that was read from a topic, with the source node that processes it. `record` is None if the record
    could not be read and is skipped."""

    source: str
    metadata: RecordMetadata
    record: Record | None
    raw: RawRecord | None = None

    @property
    def timestamp(self) -> int:
        return -1 if self.record is None else self.record.timestamp


class TopicQueue:
    """The unprocessed records of one topic, in order. The first record is already deserialized. `read` deserializes a
    record; it returns None for a record that is skipped."""

    def __init__(
        self, read: Callable[[RawRecord, int], ReadRecord | None], skipped: Callable[[RawRecord], ReadRecord]
    ) -> None:
        self._read = read
        self._skipped = skipped
        self._waiting: deque[RawRecord] = deque()
        self._head: ReadRecord | None = None
        self._partition_time_ms = -1

    def add(self, raw: RawRecord) -> None:
        self._waiting.append(raw)
        self._read_head()

    def take(self) -> ReadRecord:
        taken = self._head
        assert taken is not None
        self._head = None
        self._partition_time_ms = max(self._partition_time_ms, taken.timestamp)
        self._read_head()
        return taken

    @property
    def head_timestamp(self) -> int:
        return -1 if self._head is None else self._head.timestamp

    def __len__(self) -> int:
        return len(self._waiting) + (self._head is not None)

    def _read_head(self) -> None:
        last_skipped: RawRecord | None = None
        while self._head is None and self._waiting:
            raw = self._waiting.popleft()
            self._head = self._read(raw, self._partition_time_ms)
            if self._head is None:
                last_skipped = raw
        if self._head is None and last_skipped is not None:
            self._head = self._skipped(last_skipped)


class TopicHeap:
    """The topics that have waiting records, ordered as in Java's PriorityQueue."""

    def __init__(self) -> None:
        self._heap: list[TopicQueue] = []

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, queue: TopicQueue) -> None:
        heap = self._heap
        heap.append(queue)
        at = len(heap) - 1
        while at > 0:
            parent = (at - 1) // 2
            if queue.head_timestamp >= heap[parent].head_timestamp:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = queue

    def pop(self) -> TopicQueue:
        heap = self._heap
        first = heap[0]
        last = heap.pop()
        if heap:
            at, half = 0, len(heap) // 2
            while at < half:
                child = 2 * at + 1
                if child + 1 < len(heap) and heap[child].head_timestamp > heap[child + 1].head_timestamp:
                    child += 1
                if last.head_timestamp <= heap[child].head_timestamp:
                    break
                heap[at] = heap[child]
                at = child
            heap[at] = last
        return first


class Punctuations:
    """The scheduled punctuations of a task, sorted by time."""

    def __init__(self) -> None:
        self._scheduled: list[Punctuation] = []

    def add(self, punctuation: Punctuation) -> None:
        self._scheduled.append(punctuation)
        self._scheduled.sort(key=lambda scheduled: scheduled.at_ms)

    def punctuate(self, now_ms: int, call: Callable[[Punctuation, int], Any]) -> None:
        """Calls each punctuation that is due once. Then schedules it again: its time is increased by multiples of its
        interval until it is in the future."""
        while self._scheduled and self._scheduled[0].at_ms <= now_ms:
            due = self._scheduled.pop(0)
            if due.cancelled:
                continue
            call(due, now_ms)
            if not due.cancelled:
                following = due.at_ms + due.interval_ms
                if now_ms >= following:
                    following = due.at_ms + ((now_ms - due.at_ms) // due.interval_ms + 1) * due.interval_ms
                due.at_ms = following
                self.add(due)


@dataclass(eq=False)
class Punctuation:
    node: str
    at_ms: int
    interval_ms: int
    punctuator: Callable[[int], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True
