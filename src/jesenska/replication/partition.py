"""One partition on this broker: whether it leads, what is committed, and what may be read.

    log start offset <= high watermark <= log end offset

Committed is what every in-sync replica has; consumers see nothing beyond it. `replication.replicas` holds the rules; this carries them out on the log:
it appends as the leader, moves the log's high watermark, tells whoever waits for something new, and whoever waits for a commit. Nobody else does.

A mover: it holds the log.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from jesenska.base.errors import KafkaError, KafkaStorageError, NotEnoughReplicasAfterAppendError, NotEnoughReplicasError, NotLeaderOrFollowerError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.log_config import LogConfig
from jesenska.log.partition_log import AppendResult, PartitionLog, ReadResult
from jesenska.records.batch import BatchHeader
from jesenska.replication.replicas import Replicas

#: What acks=all is in a request.
ACKS_ALL = -1

#: What became of a write.
Done = Callable[[AppendResult | KafkaError], None]


class Watcher(Protocol):
    """Who wants to be told once when something happens to a partition: it has more records, its offsets moved, it is led by another or gone."""

    def changed(self) -> None: ...


class _Uncommitted(NamedTuple):
    """A write with acks=all that is in this log, and not yet in every in-sync replica's."""

    result: AppendResult
    done: Done


class Partition:
    """A partition with its replicas. This broker has a log of it, or none: it has no replica, its directory failed, or the topic goes.

    `notify` is called with the partition's name whenever there is something new: records, moved offsets, another leader."""

    __slots__ = ("_log", "_notify", "_replicas", "_uncommitted", "_watchers", "topic_id", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        broker_id: int,
        assigned: Sequence[int],
        min_in_sync: int,
        notify: Callable[[TopicPartition], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._replicas = Replicas(topic_partition, broker_id, assigned, min_in_sync)
        self._log: PartitionLog | None = None
        self._notify = notify
        self._watchers: dict[Watcher, None] = {}
        self._uncommitted: deque[_Uncommitted] = deque()

    # --- what is known of it ------------------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        """The broker that leads it; -1 for none."""
        return self._replicas.leader

    @property
    def leader_epoch(self) -> int:
        return self._replicas.leader_epoch

    @property
    def replicas(self) -> tuple[int, ...]:
        """The brokers that are to have it."""
        return self._replicas.assigned

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas in sync."""
        return self._replicas.isr

    @property
    def leads(self) -> bool:
        """True if this broker leads it and has its log."""
        return self._log is not None and self._replicas.leads

    @property
    def offline_replicas(self) -> list[int]:
        """The replicas whose log cannot be read, as far as this broker knows."""
        return [] if self._log is not None else list(self.replicas)

    @property
    def log_start_offset(self) -> int:
        """-1 without a log."""
        return -1 if self._log is None else self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        """Up to where it is committed."""
        return 0 if self._log is None else self._log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed consumers read; all that is committed until transactions come."""
        return self.high_watermark

    # --- changes of what it is ----------------------------------------------------------------------------------------------------------

    def found_log(self, log: PartitionLog) -> None:
        """This broker has the partition's log."""
        self._log = log
        log.on_log_start_moved = self.changed
        if self._replicas.leads:
            self._begin_to_lead(log)

    def led_by(self, leader: int, leader_epoch: int, isr: Sequence[int], now_ms: int) -> None:
        """The partition's state as the controller wrote it."""
        log = self._log
        begins = self._replicas.led_by(leader, leader_epoch, isr, 0 if log is None else log.log_end_offset, now_ms)
        if begins and log is not None:
            self._begin_to_lead(log)
        if not self._replicas.leads:
            self._fail_uncommitted(NotLeaderOrFollowerError(f"{self.topic_partition} has another leader"))
        self.changed()

    def _begin_to_lead(self, log: PartitionLog) -> None:
        """The leader's epoch begins where its log ends. Clients are told the epoch from now on, and ask where it ends."""
        log.assign_leader_epoch(self._replicas.leader_epoch, log.log_end_offset)
        self._advance(log)

    def assign(self, assigned: Sequence[int], now_ms: int) -> None:
        """Other brokers are to have it."""
        self._replicas.assign(assigned, now_ms)

    def configure(self, log_config: LogConfig, min_in_sync: int) -> None:
        """Settings of its topic."""
        self._replicas.min_in_sync = min_in_sync
        if self._log is not None:
            self._log.config = log_config

    def vanish(self) -> None:
        """The topic goes: requests that wait for it are told to look for its leader elsewhere, and find that there is none."""
        self._log = None
        self._replicas.forget_leader()
        self._fail_uncommitted(NotLeaderOrFollowerError(f"{self.topic_partition} is gone"))
        self.changed()

    # --- reading and writing ------------------------------------------------------------------------------------------------------------

    def leader_log(self, current_leader_epoch: int = -1) -> PartitionLog:
        """The log, if this broker leads the partition and the client's epoch (-1: none sent) is the current one; one below -1 is an old one."""
        log, replicas = self._log, self._replicas
        if log is None:
            if replicas.leader < 0:
                raise NotLeaderOrFollowerError(f"{self.topic_partition} has no leader")
            raise KafkaStorageError(f"the log of {self.topic_partition} is not readable; see the broker's log")
        if current_leader_epoch != -1 or not replicas.leads:
            replicas.require_leader(current_leader_epoch)
        return log

    def append(self, buffer: memoryview, headers: list[BatchHeader], acks: int, now_ms: int, done: Done) -> AppendResult | None:
        """Appends checked batches as the leader. The result, if that is done as `acks` asks (all: every in-sync replica has it); None if it is
        still to wait, and then `done` is called with what became of it. NotEnoughReplicasError before anything is written if acks=all cannot be kept."""
        log = self.leader_log()
        if acks == ACKS_ALL:
            self._replicas.require_in_sync()

        def written(outcome: AppendResult | KafkaError) -> None:
            self._advance(log)
            if isinstance(outcome, KafkaError) or self._is_done(log, acks, outcome, done):
                done(outcome)

        result = log.append_or_queue(buffer, headers, self._replicas.leader_epoch, now_ms, written)
        if result is None:
            return None
        self._advance(log)
        return result if self._is_done(log, acks, result, done) else None

    def _is_done(self, log: PartitionLog, acks: int, result: AppendResult, done: Done) -> bool:
        """Whether a write that is in this log is done; if not, `done` is called when it is committed."""
        if acks != ACKS_ALL or log.high_watermark > result.last_offset:
            return True
        self._uncommitted.append(_Uncommitted(result, done))
        return False

    def read(self, offset: int, max_bytes: int, current_leader_epoch: int, minimum_one_batch: bool, wait: bool = True) -> ReadResult:
        """Committed batches from the one that holds `offset` on; OffsetOutOfRangeError outside the log, ColdError where that could wait for the disk and
        is not to. Any epoch below 0 is none, as Kafka takes it in a fetch."""
        log = self.leader_log(current_leader_epoch if current_leader_epoch >= 0 else -1)
        return log.read(offset, max_bytes, log.high_watermark, minimum_one_batch, wait)

    # --- what is committed --------------------------------------------------------------------------------------------------------------

    def _advance(self, log: PartitionLog) -> None:
        """The log has grown, or a follower has: what everybody in sync has is committed."""
        log.high_watermark = self._replicas.high_watermark(log.high_watermark, log.log_end_offset)
        if self._uncommitted:
            self._answer_committed(log.high_watermark)
        self.changed()

    def _answer_committed(self, high_watermark: int) -> None:
        while self._uncommitted and self._uncommitted[0].result.last_offset < high_watermark:
            write = self._uncommitted.popleft()
            try:
                self._replicas.require_in_sync()
            except NotEnoughReplicasError as error:
                # It is written; the replicas that were to have it have left the ISR meanwhile.
                write.done(NotEnoughReplicasAfterAppendError(error.message))
            else:
                write.done(write.result)

    def _fail_uncommitted(self, error: KafkaError) -> None:
        failed, self._uncommitted = self._uncommitted, deque()
        for write in failed:
            write.done(error)

    # --- followers ----------------------------------------------------------------------------------------------------------------------

    @property
    def proposed_isr(self) -> tuple[int, ...] | None:
        """What the controller is to be asked for; None for nothing."""
        return self._replicas.proposed_isr

    def follower_fetched(self, broker_id: int, offset: int, now_ms: int) -> bool:
        """A follower has everything below `offset`, which may commit something. True if the controller is to be asked for another ISR now."""
        log = self.leader_log()
        proposes = self._replicas.follower_fetched(broker_id, offset, log.log_end_offset, log.high_watermark, now_ms)
        self._look_again(log)
        return proposes

    def drop_lagging(self, max_lag_ms: int, now_ms: int) -> bool:
        """True if the controller is to be asked for an ISR without those that lag behind."""
        return self._log is not None and self._replicas.drop_lagging(self._log.log_end_offset, max_lag_ms, now_ms)

    def isr_written(self, isr: Sequence[int]) -> None:
        """The controller has taken what was proposed, or written another ISR."""
        self._replicas.isr_written(isr)
        if self.leads:
            self._look_again(self.leader_log())

    def proposal_refused(self) -> None:
        """The controller has not taken what was proposed."""
        self._replicas.proposal_refused()
        if self.leads:
            self._look_again(self.leader_log())

    def _look_again(self, log: PartitionLog) -> None:
        """Advances where the high watermark is another one: a fetch of a follower at the end of the log is no news for anybody."""
        if self._replicas.high_watermark(log.high_watermark, log.log_end_offset) != log.high_watermark:
            self._advance(log)

    # --- who is told --------------------------------------------------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        """Tells `watcher` of the next change, once; a second call before that changes nothing."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def changed(self) -> None:
        """There is something new: tells whoever waits for that."""
        self._notify(self.topic_partition)
        if self._watchers:
            watchers, self._watchers = self._watchers, {}
            for watcher in watchers:
                watcher.changed()
