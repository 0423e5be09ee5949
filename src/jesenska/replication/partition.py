"""One partition on this broker: whether it leads, what is committed, and what may be read.

    log start offset <= high watermark <= log end offset

Committed is what every in-sync replica has; consumers see nothing beyond it. With this broker alone in the ISR that is everything in the log, so
the high watermark follows the log end offset at each append. Followers, their progress and the ISR's changes come with the cluster; leader
epochs are checked already (KIP-320), since clients send them.

This is a mover: it holds the log. The rules of ISR and high watermark will be modules of their own that import neither this nor asyncio.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from jesenska.base.errors import (
    FencedLeaderEpochError,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.log.partition_log import AppendResult, PartitionLog, ReadResult
from jesenska.records.batch import BatchHeader


class Watcher(Protocol):
    """Who wants to be told once when something happens to a partition: it has more records, its offsets moved, it is led by another or gone."""

    def changed(self) -> None: ...


class Partition:
    """A partition with its replicas; `log` is None where this broker has none, or its directory failed."""

    __slots__ = (
        "_watchers",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "min_in_sync_replicas",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        replicas: Sequence[int],
        leader: int,
        leader_epoch: int,
        isr: Sequence[int],
        log: PartitionLog | None,
        min_in_sync_replicas: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.replicas = tuple(replicas)
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = tuple(isr)
        self.log: PartitionLog | None = None
        self.min_in_sync_replicas = min_in_sync_replicas
        self.high_watermark = 0
        self._watchers: dict[Watcher, None] = {}
        if log is not None:
            self.found_log(log)

    def found_log(self, log: PartitionLog) -> None:
        """This broker has the partition's log, and leads it: its epoch begins where the log ends."""
        self.log = log
        log.on_log_start_moved = self.changed
        log.assign_leader_epoch(self.leader_epoch, log.log_end_offset)
        self._advance(log)

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed consumers read; all that is committed until transactions come."""
        return self.high_watermark

    def leader_log(self, current_leader_epoch: int = -1) -> PartitionLog:
        """The log, if this broker leads the partition and the client's epoch (-1: none sent) is the current one; one below -1 is an old one."""
        log = self.log
        if log is None:
            if self.leader < 0:
                raise NotLeaderOrFollowerError(f"{self.topic_partition} has no leader")
            raise KafkaStorageError(f"the log of {self.topic_partition} is not readable; see the broker's log")
        if current_leader_epoch != -1 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
            raise UnknownLeaderEpochError(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        return log

    def append(
        self, buffer: memoryview, headers: list[BatchHeader], acks: int, now_ms: int, done: Callable[[AppendResult | KafkaError], None]
    ) -> AppendResult | None:
        """Appends checked batches as the leader; None if the write waits, and then `done` is called with what became of it.
        NotEnoughReplicasError before anything is written if acks=all cannot be kept."""
        log = self.log
        if log is None:
            log = self.leader_log()
        if acks == -1 and len(self.isr) < self.min_in_sync_replicas:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, min.insync.replicas asks for {self.min_in_sync_replicas}"
            )

        def written(outcome: AppendResult | KafkaError) -> None:
            self._advance(log)
            done(outcome)

        result = log.append_or_queue(buffer, headers, self.leader_epoch, now_ms, written)
        if result is not None:
            self._advance(log)
        return result

    def _advance(self, log: PartitionLog) -> None:
        """What is in the log of the only in-sync replica is committed."""
        self.high_watermark = log.high_watermark = log.log_end_offset
        if self._watchers:
            self.changed()

    def watch(self, watcher: Watcher) -> None:
        """Tells `watcher` of the next change, once; a second call before that changes nothing."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def changed(self) -> None:
        """Tells whoever watches."""
        if self._watchers:
            watchers, self._watchers = self._watchers, {}
            for watcher in watchers:
                watcher.changed()

    def read(self, offset: int, max_bytes: int, current_leader_epoch: int, minimum_one_batch: bool, wait: bool = True) -> ReadResult:
        """Committed batches from the one that holds `offset` on; OffsetOutOfRangeError outside the log, ColdError where that could wait for the disk and
        is not to. Any epoch below 0 is none, as Kafka takes it in a fetch."""
        return self.leader_log(current_leader_epoch if current_leader_epoch >= 0 else -1).read(offset, max_bytes, self.high_watermark, minimum_one_batch, wait)
