"""One partition on this broker: its leader, its committed records, and its readable records.

  log start offset <= high watermark <= log end offset

A record is committed when every in-sync replica has it. Consumers read only committed records. From a follower they
read up to the high watermark that the leader has sent to that follower.

`replication.replicas` decides which records are committed. Only this module applies the decisions to the log: it
appends as the leader, moves the high watermark, and notifies the callers that wait for changes or for a commit. The
caller limits the waiting time of a write with acks=all."""

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

#: The number that means acks=all in a Produce request.
ACKS_ALL = -1

#: A function that is called with the outcome of a write.
Done = Callable[[AppendResult | KafkaError], None]
#: A function that is called after a log was synced, with None or the error.
Synced = Callable[[KafkaError | None], None]


class Watcher(Protocol):
    """An object that is notified once, of the next change of a partition: new records, moved offsets, another leader,
    or its removal."""

    def changed(self) -> None: ...


class _Uncommitted(NamedTuple):
    """A write with acks=all that is in this log, but not yet in the log of every in-sync replica."""

    result: AppendResult
    done: Done


class Partition:
    """A partition with its replicas. This broker may have no log of it: because it has no replica, because the log's
    directory has failed, or because the topic is being deleted.

    `notify` is called with the partition's name at every change: new records, moved offsets, another leader.
    `elapsed_ms` returns the time of a monotonic clock in milliseconds."""

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
        #: True if the controller has stopped this replica: the log exists, but does not follow the leader.
        self._is_withdrawn = False
        #: True if the log's directory has failed.
        self._is_offline = False
        self._notify = notify
        self._elapsed_ms = elapsed_ms
        self._watchers: dict[Watcher, None] = {}
        #: The writes with acks=all that are not committed yet; None if there is no such write.
        self._uncommitted: list[_Uncommitted] | None = None

    # --- the present state ------------------------------------------------------------------------------------------

    @property
    def leader(self) -> int:
        """Returns the id of the broker that leads the partition; -1 if the partition has no leader."""
        return self._replicas.leader

    @property
    def leader_epoch(self) -> int:
        return self._replicas.leader_epoch

    @property
    def replicas(self) -> tuple[int, ...]:
        """Returns the ids of the brokers that are assigned as replicas."""
        return self._replicas.assigned

    @property
    def isr(self) -> tuple[int, ...]:
        """Returns the ids of the brokers whose replicas are in sync."""
        return self._replicas.isr

    @property
    def has_log(self) -> bool:
        """Returns True if this broker has the partition's log."""
        return self._log is not None

    @property
    def is_offline(self) -> bool:
        """Returns True if the log of this broker is in a directory that has failed."""
        return self._is_offline

    @property
    def leads(self) -> bool:
        """Returns True if this broker leads the partition."""
        return self._replicas.leads

    @property
    def is_served(self) -> bool:
        """Returns True if this broker leads the partition and has its log."""
        return self._log is not None and self._replicas.leads

    @property
    def follower_log(self) -> PartitionLog | None:
        """Returns the log if another broker leads the partition. Returns None if this broker leads the partition, if
        the partition has no leader, or if this broker has no log."""
        return None if self._replicas.leads or self._replicas.leader == NO_LEADER else self._log

    @property
    def log_start_offset(self) -> int:
        """Returns the log start offset; -1 if this broker has no log."""
        return -1 if self._log is None else self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        """Returns the offset up to which records are committed; 0 if this broker has no log."""
        return 0 if self._log is None else self._log.high_watermark

    @property
    def knows_high_watermark(self) -> bool:
        """Returns False while this broker leads and does not know yet which records were committed under the earlier
        leader."""
        return self._log is None or self._replicas.knows_high_watermark(self._log.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Returns the offset up to which consumers with read_committed read: the first offset of the oldest open
        transaction, or the high watermark if no transaction is open. Returns 0 if this broker has no log."""
        return 0 if self._log is None else self._log.last_stable_offset

    # --- changes of the state ----------------------------------------------------------------------------------------

    def found_log(self, log: PartitionLog) -> None:
        """Sets the partition's log on this broker."""
        self._log = log
        self._is_offline = False
        log.on_log_start_moved = self.changed
        if self._replicas.leads:
            self._replicas.found_log(log.next_offset)
            self._begin_to_lead(log)

    def led_by(self, leader: int, leader_epoch: int, isr: Sequence[int], partition_epoch: int) -> None:
        """Applies the partition's state that the controller has written. A state that is not newer than the known
        state changes nothing."""
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
        """Begins the leader epoch at the end of the log. Queued appends belong to the previous epoch. From now on
        clients get the new epoch, and can ask for its end offset."""
        log.begin_to_lead(self._replicas.leader_epoch)
        self._advance(log)
        if log.has_queued_appends:
            # This broker received the queued records as a follower. Its own followers can fetch them after they are
            # written.
            log.after_queue(self.changed)

    def assign(self, assigned: Sequence[int]) -> None:
        """Changes the brokers that are assigned as replicas."""
        self._replicas.assign(assigned, self._elapsed_ms())
        self._look_again()

    def configure(self, log_config: LogConfig, min_in_sync: int) -> None:
        """Applies the settings of the topic."""
        self._replicas.min_in_sync = min_in_sync
        if self._log is not None:
            self._log.config = log_config
        self._look_again()

    def withdraw(self) -> None:
        """Stops consumers from reading this follower, because the controller has told it to stop following the leader
        (StopReplica). They may read again when the controller tells this broker to lead or follow the partition
        (`take_part`)."""
        self._is_withdrawn = True
        self.changed()

    def take_part(self) -> None:
        self._is_withdrawn = False

    def give_up(self) -> None:
        """Drops this broker's replica. If another broker leads the partition, this leader remains known."""
        self._log = None
        if self._replicas.leads:
            self._replicas.forget_leader()
        self._fail_uncommitted()
        self.changed()

    def lose_log(self) -> None:
        """Handles a failure of the log's directory. The partition cannot be read or written here until the broker is
        started again."""
        self._log = None
        self._is_offline = True
        self._fail_uncommitted()
        self.changed()

    def vanish(self) -> None:
        """Handles the deletion of the topic. Waiting requests get an error after which clients look for the leader,
        and learn that the topic does not exist."""
        self._log = None
        self._replicas.forget_leader()
        self._fail_uncommitted()
        self.changed()

    # --- reading and writing -----------------------------------------------------------------------------------------

    def leader_log(self, current_leader_epoch: int = -1) -> PartitionLog:
        """Returns the log. Raises an error if this broker does not lead the partition, or if the client's leader epoch
        is not the current leader epoch. The epoch -1 means that the client has sent none; lower numbers are refused as
        old epochs."""
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
        """Returns the log of this broker's replica, whether the broker leads or follows. Raises an error if the
        client's leader epoch is not the current leader epoch. Raises the errors of `leader_log` if there is no log."""
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
        """Appends checked batches as the leader. Returns the result if the write is already complete; with acks=all a
        write is complete when every in-sync replica has it. Otherwise returns None, and `done` is called with the
        outcome.

        Raises NotEnoughReplicasError before anything is written if acks=all cannot be satisfied. Raises an error if
        the client's leader epoch is not the current leader epoch (-1: not checked). With `of_client` False the batch
        comes from a coordinator, and its sequence numbers are not checked."""
        log, leader_epoch = self.leader_log(current_leader_epoch), self._replicas.leader_epoch
        if acks == ACKS_ALL:
            self._replicas.require_in_sync()

        def written(outcome: AppendResult | KafkaError) -> None:
            if self._log is not log or not self._replicas.leads or self._replicas.leader_epoch != leader_epoch:
                # Another broker has become leader in the meantime, and this broker may have to cut the batch from its
                # log.
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
        """Ends a producer's transaction as the leader: appends a control batch with the marker that a transaction
        coordinator requests (WriteTxnMarkers). Returns or calls `done` like `append` with acks=all. Raises
        InvalidProducerEpochError if the log has a newer epoch of the producer. Raises
        TransactionCoordinatorFencedError if it has a marker of a newer coordinator."""
        batch = encode_batch(
            [marker_record(marker, now_ms)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=True,
            is_control=True,
        )
        return self.append(memoryview(batch), [read_header(batch)], ACKS_ALL, now_ms, done, current_leader_epoch, False)

    def _is_done(self, log: PartitionLog, acks: int, result: AppendResult, done: Done) -> bool:
        """Returns True if a write that is in this log is complete. Otherwise returns False, and `done` is called when
        the write is committed."""
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
        """Reads committed batches, beginning with the batch that contains `offset`. With `leader_only`, raises an
        error if this broker is a follower. With `stable_only` the read ends before the first open transaction. A
        negative leader epoch is not checked, as in Kafka's Fetch.

        Raises OffsetOutOfRangeError if the offset is outside of the log. Raises ColdError if `wait` is False and the
        read might have to wait for the disk."""
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

    # --- committed records -------------------------------------------------------------------------------------------

    def _advance(self, log: PartitionLog) -> None:
        """Moves the high watermark after this log, or the log of a follower, has grown: records that every in-sync
        replica has are committed."""
        replicas = self._replicas
        now_ms = 0 if replicas.is_alone else self._elapsed_ms()
        log.move_high_watermark(replicas.next_high_watermark(log.high_watermark, log.log_end_offset, now_ms))
        if self._uncommitted:
            self._answer_committed(log.high_watermark)
        self.changed()

    def _look_again(self) -> None:
        """Moves the high watermark and notifies watchers, but only if the high watermark changes. A follower's fetch
        at the end of the log usually changes nothing."""
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
        # The list is not in the order of offsets if a producer has sent a batch again.
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
        """Returns the version of the partition's state that this broker knows."""
        return self._replicas.partition_epoch

    def log_for(self, broker_id: int, current_leader_epoch: int) -> PartitionLog:
        """Returns the log for a fetch of a follower. Raises the errors of `leader_log`. If the fetching broker has no
        replica, raises UnknownLeaderEpochError if it has sent the current epoch, and otherwise
        NotLeaderOrFollowerError. A negative epoch means that the request has no leader epoch."""
        log = self.leader_log(max(current_leader_epoch, -1))
        if not self._replicas.has_follower(broker_id):
            if current_leader_epoch < 0:
                raise NotLeaderOrFollowerError(f"broker {broker_id} has no replica of {self.topic_partition}")
            raise UnknownLeaderEpochError(
                f"broker {broker_id} has no replica of {self.topic_partition}, as far as the leader knows"
            )
        return log

    @property
    def proposed_isr(self) -> tuple[int, ...] | None:
        """Returns the ISR that this leader proposes; None if there is no proposal."""
        return self._replicas.proposed_isr

    def readable_from(self, offset: int) -> list[Readable]:
        """Returns the followers of this leader that consumers may read from this offset on."""
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
        """Records a follower's fetch, which may commit records. The follower has all records from `log_start_offset`
        (-1: not sent) up to `offset`. `leader_end_offset` is this broker's log end offset at the time of the fetch.
        `may_join` is True if the follower's broker is registered; only then the follower may be added to the ISR.
        Returns True if a new ISR must be requested now."""
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
        """Looks for followers that have caught up and are on brokers in `up`, so that they can join the ISR with their
        next requests. Returns True if there is such a follower."""
        log = self._log
        return log is not None and self._replicas.look_for_candidates(
            up, log.log_end_offset, log.high_watermark, self._elapsed_ms()
        )

    @property
    def has_candidates(self) -> bool:
        """Returns True while there may be a follower that joins the ISR with its next request."""
        return self._replicas.has_candidates

    def join(self, broker_id: int, fetch_offset: int) -> bool:
        """Handles a request in a follower's fetch session that does not name this partition. In the session the
        follower has reported `fetch_offset` as its log end offset. Returns True if an ISR with this follower must be
        requested now."""
        log = self._log
        return log is not None and self._replicas.join(
            broker_id, fetch_offset, log.log_end_offset, log.high_watermark, self._elapsed_ms()
        )

    def drop_lagging(self) -> bool:
        """Proposes an ISR without the followers that lag. Returns True if such an ISR must be requested now."""
        return (
            self._log is not None
            and not self._replicas.is_alone
            and self._replicas.drop_lagging(self._log.log_end_offset, self._elapsed_ms())
        )

    def isr_written(self, isr: Sequence[int], leader_epoch: int, partition_epoch: int) -> None:
        """Records the ISR that was written: the proposed ISR, or another ISR that the controller has written."""
        if self._replicas.isr_written(isr, leader_epoch, partition_epoch):
            self._look_again()
            self.changed()  # consumers may have a nearer replica to read from

    def proposal_sent(self) -> None:
        """Records that the proposed ISR is being sent to the controller, or to the metadata tree."""
        self._replicas.proposal_sent()

    def proposal_refused(self, leader_epoch: int, partition_epoch: int) -> None:
        """Drops a proposal that was based on this state and that the controller has certainly refused."""
        if self._replicas.proposal_refused(leader_epoch, partition_epoch):
            self._look_again()

    @property
    def is_to_be_synced(self) -> bool:
        """Returns True while the log must be synced, because the ISR or the proposed ISR is smaller than
        min.insync.replicas."""
        return self._log is not None and self._replicas.is_to_be_synced

    @property
    def waits_for_sync(self) -> bool:
        """Returns True while the proposed ISR must not be written, because the log must be synced first."""
        return self._log is not None and self._replicas.waits_for_sync

    def sync(self, done: Synced) -> None:
        """Syncs the log in the background, and calls `done`. If the sync fails, the log must still be synced."""
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

    # --- watchers ----------------------------------------------------------------------------------------------------

    def watch(self, watcher: Watcher) -> None:
        """Registers `watcher`, which is notified once, of the next change. A second call before the next change has no
        effect."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def changed(self) -> None:
        """Notifies all watchers of a change."""
        self._notify(self.topic_partition)
        if self._watchers:
            watchers, self._watchers = self._watchers, {}
            for watcher in watchers:
                watcher.changed()
