"""Truncates many logs together: a broker that becomes a follower may have to truncate thousands of logs. Only a
limited number of truncations runs at once, so that the owner's thread can do other work in between. After all
truncations `LogDirectories` writes the recovery points to the disk, once for all logs.

A log accepts no appends from the moment when it is added to a batch until the caller releases it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from jesenska.base.errors import KafkaError, KafkaStorageError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.partition.partition_log import PartitionLog

#: The number of logs that are truncated at once. It is limited because each truncation has an open file.
_TRUNCATED_AT_ONCE = 64


class TruncationBatch:
    """Runs the truncations of several logs. `wanted` has for each partition the offset, and a flag that is true if the
    log loses all records and continues at that offset. `ended` is called when all truncations have ended, even if some
    have failed."""

    def __init__(
        self,
        wanted: Sequence[tuple[TopicPartition, int, bool]],
        logs: Mapping[TopicPartition, PartitionLog],
        now_ms: int,
        ended: Callable[[TruncationBatch], None],
    ) -> None:
        self.failures: dict[TopicPartition, KafkaError] = {}
        self.held: dict[TopicPartition, PartitionLog] = {}
        #: Partitions whose log start offset was lowered.
        self.lowered: set[TopicPartition] = set()
        self._now_ms = now_ms
        self._ended = ended
        self._under_way = 0
        self._goes_on = False
        self._has_ended = False
        self._wanted: deque[tuple[PartitionLog, int, bool]] = deque()
        for topic_partition, offset, restarts in wanted:
            log = logs.get(topic_partition)
            if log is None:
                self.failures[topic_partition] = KafkaStorageError(f"There is no log of {topic_partition} here.")
                continue
            log.hold()
            self.held[topic_partition] = log
            self._wanted.append((log, offset, restarts))

    def go_on(self) -> None:
        """Starts as many truncations as the limit allows. If a truncation ends immediately, the loop in this function
        starts the next truncation, so that calls are not nested."""
        if self._goes_on:
            return
        self._goes_on = True
        while self._wanted and self._under_way < _TRUNCATED_AT_ONCE:
            log, offset, restarts = self._wanted.popleft()
            self._under_way += 1
            done = partial(self._done, log, log.log_start_offset)
            if restarts:
                log.restart_at(offset, self._now_ms, done)
            else:
                log.truncate_to(offset, self._now_ms, done)
        self._goes_on = False
        if not self._under_way and not self._has_ended:
            self._has_ended = True
            self._ended(self)

    def _done(self, log: PartitionLog, log_start_offset: int, failure: KafkaError | None) -> None:
        self._under_way -= 1
        if failure is not None:
            self.failures[log.topic_partition] = failure
        if log.log_start_offset < log_start_offset:
            self.lowered.add(log.topic_partition)
        self.go_on()
