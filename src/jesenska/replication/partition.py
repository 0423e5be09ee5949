"""One partition on this broker: whether it leads, what is committed, and what may be read.

    log start offset <= high watermark <= log end offset

Committed is what every in-sync replica has; consumers see nothing beyond it. On a follower they see nothing beyond
what its leader has told it to be committed. `replication.replicas` holds the rules;
this carries them out on the log: it appends as the leader, moves the log's high watermark, tells whoever waits for
something new, and whoever waits for a commit. Nobody else does.

A mover: it holds the log. How long a write with acks=all may take is for whoever writes to say.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, Protocol

from jesenska.base.errors import KafkaError, KafkaStorageError, NotLeaderOrFollowerError, UnknownLeaderEpochError
from jesenska.base.identifiers import TopicPartition
from jesenska.log.log_config import LogConfig
from jesenska.log.partition.leader_appends import AppendResult, append_or_queue
from jesenska.log.partition.partition_log import PartitionLog
from jesenska.log.partition.reading import ReadResult, read_log
from jesenska.records.batch import BatchHeader, read_header
from jesenska.records.decode import ControlMarker, marker_record
from jesenska.records.encode import encode_batch
from jesenska.replication.replicas import NO_LEADER, Readable, Replicas

#: What acks=all is in a request.
ACKS_ALL = -1

#: What became of a write.
Done = Callable[[AppendResult | KafkaError], None]
#: Why a log could not be synced; None where it could.
Synced = Callable[[KafkaError | None], None]


class Watcher(Protocol):
    """Who wants to be told once when something happens to a partition: it has more records, its offsets moved, it is
    led by another or gone."""

    def changed(self) -> None: ...


class _Uncommitted(NamedTuple):
    """A write with acks=all that is in this log, and not yet in every in-sync replica's."""

    result: AppendResult
    done: Done


class Partition:
    """A partition with its replicas. This broker has a log of it, or none: it has no replica, its directory failed, or
    the topic is being deleted.

    `notify` is called with the partition's name whenever there is something new: records, moved offsets, another
    leader. `elapsed_ms` is a clock that nobody sets."""

    __slots__ = (
        "_elapsed_ms",
        "_is_offline",
        "_is_withdrawn",
        "_log",
        "_notify",
        "_replicas",
        "_uncommitted",
        "_watchers",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        replicas: Replicas,
        notify: Callable[[TopicPartition], None],
        elapsed_ms: Callable[[], int],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._replicas = replicas
        self._log: PartitionLog | None = None
        #: The log is there, and nobody follows the leader with it.
        self._is_withdrawn = False
        #: The log's directory has failed.
        self._is_offline = False
        self._notify = notify
        self._elapsed_ms = elapsed_ms
        self._watchers: dict[Watcher, None] = {}
        #: None where nothing waits.
        self._uncommitted: list[_Uncommitted] | None = None

    # --- what is known of it -----------------------------------------------------------------------------------------

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
    def has_log(self) -> bool:
        """True if this broker has the partition's log."""
        return self._log is not None

    @property
    def is_offline(self) -> bool:
        """True if this broker has had its log in a directory that has failed."""
        return self._is_offline

    @property
    def leads(self) -> bool:
        """True if this broker leads it."""
        return self._replicas.leads

    @property
    def is_served(self) -> bool:
        """True if this broker leads it and has its log."""
        return self._log is not None and self._replicas.leads

    @property
    def follower_log(self) -> PartitionLog | None:
        """The log of a partition that another broker leads; None where this broker leads it or nobody does, or where
        it has no log."""
        return None if self._replicas.leads or self._replicas.leader == NO_LEADER else self._log

    @property
    def log_start_offset(self) -> int:
        """-1 without a log."""
        return -1 if self._log is None else self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        """Up to where it is committed."""
        return 0 if self._log is None else self._log.high_watermark

    @property
    def knows_high_watermark(self) -> bool:
        """False while this broker leads and does not know yet what was committed under the leader before."""
        return self._log is None or self._replicas.knows_high_watermark(self._log.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Up to where read_committed consumers read: before the first record of a transaction that is not decided."""
        return 0 if self._log is None else self._log.last_stable_offset

    # --- changes of what it is ---------------------------------------------------------------------------------------

    def found_log(self, log: PartitionLog) -> None:
        """This broker has the partition's log."""
        self._log = log
        self._is_offline = False
        log.on_log_start_moved = self.changed
        if self._replicas.leads:
            self._replicas.found_log(log.next_offset)
            self._begin_to_lead(log)

    def led_by(self, leader: int, leader_epoch: int, isr: Sequence[int], partition_epoch: int) -> None:
        """The partition's state as the controller wrote it; one that is not newer than what is known changes
        nothing."""
        log, replicas = self._log, self._replicas
        end_offset = None if log is None else log.next_offset
        begins = replicas.led_by(leader, leader_epoch, isr, partition_epoch, end_offset, self._elapsed_ms())
        if not replicas.leads:
            self._fail_uncommitted()
            self.changed()
        elif log is not None and begins:
            self._begin_to_lead(log)
        else:
            self._look_again()

    def _begin_to_lead(self, log: PartitionLog) -> None:
        """The leader's epoch begins where its log ends, with what is queued in the epoch before. Clients are told the
        epoch from now on, and ask where it ends."""
        log.begin_to_lead(self._replicas.leader_epoch)
        self._advance(log)
        if log.has_queued_appends:
            # What this broker was sent as a follower is told to its own followers when it is written.
            log.behind_queue(self.changed)

    def assign(self, assigned: Sequence[int]) -> None:
        """The brokers that are to hold replicas are others now."""
        self._replicas.assign(assigned, self._elapsed_ms())
        self._look_again()

    def configure(self, log_config: LogConfig, min_in_sync: int) -> None:
        """Settings of its topic."""
        self._replicas.min_in_sync = min_in_sync
        if self._log is not None:
            self._log.config = log_config
        self._look_again()

    def withdraw(self) -> None:
        """The leader is not followed here any more: consumers are to read elsewhere, until this broker is told again
        to lead or to follow (`take_part`)."""
        self._is_withdrawn = True
        self.changed()

    def take_part(self) -> None:
        self._is_withdrawn = False

    def give_up(self) -> None:
        """This broker has no replica any more. Who leads is known still, if it is another."""
        self._log = None
        if self._replicas.leads:
            self._replicas.forget_leader()
        self._fail_uncommitted()
        self.changed()

    def lose_log(self) -> None:
        """The log's directory has failed: nothing can be read or written here, until the broker is started again."""
        self._log = None
        self._is_offline = True
        self._fail_uncommitted()
        self.changed()

    def vanish(self) -> None:
        """The topic is being deleted: requests that wait for it are told to look for its leader elsewhere, and find
        that there is none."""
        self._log = None
        self._replicas.forget_leader()
        self._fail_uncommitted()
        self.changed()

    # --- reading and writing -----------------------------------------------------------------------------------------

    def leader_log(self, current_leader_epoch: int = -1) -> PartitionLog:
        """The log, if this broker leads the partition and the client's epoch is the current one. -1 is none; numbers
        below it are refused as old epochs."""
        log, replicas = self._log, self._replicas
        if log is None:
            if not replicas.leads and not self._is_offline:
                raise replicas.not_leader()
            raise KafkaStorageError(f"the log of {self.topic_partition} is not readable; see the broker's log")
        if current_leader_epoch != -1:
            replicas.require_epoch(current_leader_epoch)
        if not replicas.leads:
            raise replicas.not_leader()
        return log

    def replica_log(self, current_leader_epoch: int = -1) -> PartitionLog:
        """The log of the replica that this broker has, whoever leads the partition, if the client's epoch is the
        current one; the errors of `leader_log`."""
        log, replicas = self._log, self._replicas
        if log is None:
            return self.leader_log(current_leader_epoch)
        if self._is_withdrawn and not replicas.leads:
            raise replicas.not_leader()
        if current_leader_epoch != -1:
            replicas.require_epoch(current_leader_epoch)
        return log

    def append(
        self,
        buffer: memoryview,
        headers: list[BatchHeader],
        acks: int,
        now_ms: int,
        done: Done,
        current_leader_epoch: int = -1,
        of_client: bool = True,
    ) -> AppendResult | None:
        """Appends checked batches as the leader. The result, if that is done as `acks` asks (all: every in-sync
        replica has it); None if it is still to wait, and then `done` is called with what became of it.
        NotEnoughReplicasError before anything is written if acks=all cannot be kept; an error too for whoever takes
        another leader epoch for the current one (-1: any). What is not `of_client` is a coordinator's: its sequence
        numbers say nothing."""
        log, leader_epoch = self.leader_log(current_leader_epoch), self._replicas.leader_epoch
        if acks == ACKS_ALL:
            self._replicas.require_in_sync()

        def written(outcome: AppendResult | KafkaError) -> None:
            if self._log is not log or not self._replicas.leads or self._replicas.leader_epoch != leader_epoch:
                # Led by another meanwhile, which may cut it off again.
                done(self._replicas.not_leader() if acks == ACKS_ALL else outcome)
                return
            self._advance(log)
            if isinstance(outcome, KafkaError) or self._is_done(log, acks, outcome, done):
                done(outcome)

        result = append_or_queue(log, buffer, headers, leader_epoch, now_ms, written, of_client)
        if result is None:
            return None
        self._advance(log)
        return result if self._is_done(log, acks, result, done) else None

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: ControlMarker,
        now_ms: int,
        done: Done,
        current_leader_epoch: int = -1,
    ) -> AppendResult | None:
        """Ends a producer's transaction as the leader, by a control batch that says how: what a transaction
        coordinator asks for (WriteTxnMarkers). As `append` with acks=all. InvalidProducerEpochError if the log knows a
        newer epoch of the producer, TransactionCoordinatorFencedError if it has a marker of a newer coordinator."""
        batch = encode_batch(
            [marker_record(marker, now_ms)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
        return self.append(memoryview(batch), [read_header(batch)], ACKS_ALL, now_ms, done, current_leader_epoch, False)

    def _is_done(self, log: PartitionLog, acks: int, result: AppendResult, done: Done) -> bool:
        """Whether a write that is in this log is done; if not, `done` is called when it is committed."""
        if acks != ACKS_ALL or log.high_watermark > result.last_offset:
            return True
        if self._uncommitted is None:
            self._uncommitted = []
        self._uncommitted.append(_Uncommitted(result, done))
        return False

    def read(
        self,
        offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        minimum_one_batch: bool,
        wait: bool = True,
        leader_only: bool = True,
        stable_only: bool = False,
    ) -> ReadResult:
        """Committed batches from the one that holds `offset` on; OffsetOutOfRangeError outside the log, ColdError
        where that could wait for the disk and is not to. Any epoch below 0 is none, as Kafka takes it in a fetch. A
        follower gives what it knows to be committed, unless it is `leader_only`. With `stable_only` nothing from the
        first transaction on that is not decided."""
        epoch = current_leader_epoch if current_leader_epoch >= 0 else -1
        log = self.leader_log(epoch) if leader_only else self.replica_log(epoch)
        return read_log(
            log,
            offset,
            max_bytes,
            log.last_stable_offset if stable_only else log.high_watermark,
            minimum_one_batch,
            wait,
        )

    # --- what is committed -------------------------------------------------------------------------------------------

    def _advance(self, log: PartitionLog) -> None:
        """The log has grown, or a follower has: what everybody in sync has is committed."""
        replicas = self._replicas
        now_ms = 0 if replicas.is_alone else self._elapsed_ms()
        log.move_high_watermark(replicas.next_high_watermark(log.high_watermark, log.log_end_offset, now_ms))
        if self._uncommitted:
            self._answer_committed(log.high_watermark)
        self.changed()

    def _look_again(self) -> None:
        """Advances where the high watermark is another one: a fetch of a follower at the end of the log is no news for
        anybody."""
        log, replicas = self._log, self._replicas
        if log is None or not replicas.leads:
            return
        if (
            replicas.next_high_watermark(log.high_watermark, log.log_end_offset, self._elapsed_ms())
            != log.high_watermark
        ):
            self._advance(log)
        elif self._uncommitted:
            self._answer_committed(log.high_watermark)

    def _answer_committed(self, high_watermark: int) -> None:
        # Not in the order of their offsets where a batch was sent again.
        waiting = self._uncommitted or ()
        committed = [write for write in waiting if write.result.last_offset < high_watermark]
        if not committed:
            return
        self._uncommitted = [write for write in waiting if write.result.last_offset >= high_watermark] or None
        for write in committed:
            write.done(write.result)

    def _fail_uncommitted(self) -> None:
        failed, self._uncommitted = self._uncommitted or (), None
        for write in failed:
            write.done(self._replicas.not_leader())

    # --- followers ---------------------------------------------------------------------------------------------------

    @property
    def partition_epoch(self) -> int:
        """The version of the state that this broker knows."""
        return self._replicas.partition_epoch

    def log_for(self, broker_id: int, current_leader_epoch: int) -> PartitionLog:
        """The log, for a broker that has a replica: NotLeaderOrFollowerError for any other, UnknownLeaderEpochError
        where that one tells the current epoch, and the errors of `leader_log`. Any epoch below 0 is none."""
        log = self.leader_log(max(current_leader_epoch, -1))
        if not self._replicas.has_follower(broker_id):
            if current_leader_epoch < 0:
                raise NotLeaderOrFollowerError(f"broker {broker_id} has no replica of {self.topic_partition}")
            raise UnknownLeaderEpochError(
                f"broker {broker_id} has no replica of {self.topic_partition} that its leader knows of"
            )
        return log

    @property
    def proposed_isr(self) -> tuple[int, ...] | None:
        """What the controller is to be asked for; None for nothing."""
        return self._replicas.proposed_isr

    def readable_from(self, offset: int) -> list[Readable]:
        """The followers of this leader that consumers may read from that offset on."""
        return self._replicas.readable_from(offset)

    def follower_fetched(
        self,
        broker_id: int,
        offset: int,
        leader_end_offset: int,
        current_leader_epoch: int = -1,
        *,
        may_join: bool = True,
        log_start_offset: int = -1,
    ) -> bool:
        """A follower has everything from `log_start_offset` (-1: it does not say) up to `offset`, which may commit
        something; `leader_end_offset` is where the log ended when its fetch was read. True if the controller is to be
        asked for another ISR now, which the follower `may_join` where its broker is registered."""
        log = self.leader_log(current_leader_epoch)
        proposes = self._replicas.follower_fetched(
            broker_id,
            offset,
            leader_end_offset,
            log.high_watermark,
            self._elapsed_ms(),
            may_join=may_join,
            log_start_offset=log_start_offset,
        )
        self._look_again()
        return proposes

    def look_for_candidates(self, up: Container[int]) -> bool:
        """True if followers on brokers that are `up` have caught up, and are to join the ISR when their next requests
        come."""
        log = self._log
        return log is not None and self._replicas.look_for_candidates(
            up, log.log_end_offset, log.high_watermark, self._elapsed_ms()
        )

    @property
    def has_candidates(self) -> bool:
        """True while such a follower may be there."""
        return self._replicas.has_candidates

    def join(self, broker_id: int, fetch_offset: int) -> bool:
        """A request of a follower came, in a fetch session in which it has said that its log ends there. True if the
        controller is to be asked for an ISR with it now."""
        log = self._log
        return log is not None and self._replicas.join(
            broker_id, fetch_offset, log.log_end_offset, log.high_watermark, self._elapsed_ms()
        )

    def drop_lagging(self) -> bool:
        """True if the controller is to be asked for an ISR without those that lag behind."""
        return (
            self._log is not None
            and not self._replicas.is_alone
            and self._replicas.drop_lagging(self._log.log_end_offset, self._elapsed_ms())
        )

    def isr_written(self, isr: Sequence[int], leader_epoch: int, partition_epoch: int) -> None:
        """The controller has taken what was proposed, or written another ISR."""
        if self._replicas.isr_written(isr, leader_epoch, partition_epoch):
            self._look_again()
            self.changed()  # consumers may have a nearer replica to read from

    def proposal_sent(self) -> None:
        """What is proposed is on its way to the controller, or to the tree."""
        self._replicas.proposal_sent()

    def proposal_refused(self, leader_epoch: int, partition_epoch: int) -> None:
        """The controller has certainly not taken what was proposed on top of that state."""
        if self._replicas.proposal_refused(leader_epoch, partition_epoch):
            self._look_again()

    @property
    def is_to_be_synced(self) -> bool:
        """True while its log is to be synced since too few replicas are in sync, or are to be."""
        return self._log is not None and self._replicas.is_to_be_synced

    @property
    def waits_for_sync(self) -> bool:
        """True while what is proposed is not to be written, since the log is to be synced before."""
        return self._log is not None and self._replicas.waits_for_sync

    def sync(self, done: Synced) -> None:
        """Syncs the log, in the background. Where that fails it is to be synced still."""
        log, standing = self._log, self._replicas.standing
        if log is None:
            done(None)
            return

        def ended(failure: KafkaError | None) -> None:
            if failure is None and self._log is log:
                self._replicas.synced(standing)
            done(failure)

        if log.is_synced:
            ended(None)
        else:
            log.flush(ended)

    # --- who is told -------------------------------------------------------------------------------------------------

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
