"""Computes the state of one partition's replicas: the in-sync replicas, the high watermark, and if a write with
acks=all may be accepted.

    in sync           A follower is in sync if it has had the whole log within the last replica.lag.time.max.ms. It has
                      the whole log if it fetches at the log end offset. If it fetches at the offset that was the log
                      end at its previous fetch, it had the whole log at that earlier time (KIP-16). A follower that
                      has the whole log need not fetch again: its log is complete until the next append
    joins the ISR     A follower may join if it has reached the high watermark and the start of the leader's epoch.
                      Only its current request counts, because its broker may have crashed and lost records since an
                      earlier request
    high watermark    The lowest log end offset of all in-sync replicas, and of assigned followers that will soon be in
                      sync. It never decreases while one broker leads. It does not move while the ISR or the proposed
                      ISR is smaller than min.insync.replicas, or while one of these followers has not fetched since
                      this broker began to lead. If the leader is the only replica, the high watermark is the log end
                      offset
    proposed ISR      The ISR that the leader asks for, valid until the controller has accepted or refused it. Until
                      then the high watermark waits for the members of both the old and the new ISR. Writes with
                      acks=all need min.insync.replicas members of the old ISR (KIP-497). A proposal may wait, because
                      the metadata tree (ZooKeeper) is not reachable or the disk is slow. Followers that catch up
                      before it is sent are put back into the proposal. A proposal that equals the old ISR is dropped
    min.insync        min.insync.replicas, but at most the number of the partition's replicas
    to be synced      The log of each in-sync replica must be synced if the ISR or the proposed ISR is smaller than
                      min.insync.replicas, because acknowledged records may have no other copy. A smaller ISR is
                      written only after the sync. No records are committed before the sync
    epochs            A client that sends an older or newer leader epoch is refused (KIP-320). Within a leader epoch,
                      the controller's states are numbered by the partition epoch. A state that is not newer than the
                      known state changes nothing
    read by consumers Consumers may read from a follower that is in sync, at offsets that its log contains and at its
                      log end offset (KIP-392). `read_replicas` chooses one of these followers

This module does no input or output. Times are milliseconds that the caller takes from a monotonic clock. Sources: the
chapter "Replication" of the documentation, KIP-16, KIP-320, KIP-392, KIP-497, KIP-966."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from jesenska.base.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from jesenska.base.identifiers import TopicPartition

NO_LEADER = -1
_UNKNOWN = -1


class Readable(NamedTuple):
    """A follower that consumers may read from, with its log end offset and the last time at which it had the whole
    log."""

    broker_id: int
    log_end_offset: int
    caught_up_at_ms: int


class Follower:
    """The data that the leader has about one follower. A value that is not known is -1."""

    __slots__ = (
        "caught_up_at_ms",
        "fetched_at_ms",
        "is_candidate",
        "leader_end_at_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_at_ms: int) -> None:
        self.log_start_offset = _UNKNOWN
        self.log_end_offset = _UNKNOWN
        #: The last time at which the follower had the whole log, in milliseconds. If the follower was in sync when
        #: this broker began to lead, the first value is the time at which this broker began to lead.
        self.caught_up_at_ms = caught_up_at_ms
        self.fetched_at_ms = _UNKNOWN
        self.leader_end_at_fetch = _UNKNOWN
        #: True if the follower joins the ISR with its next request.
        self.is_candidate = False

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int, log_start_offset: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)
        elif self.leader_end_at_fetch != _UNKNOWN and offset >= self.leader_end_at_fetch:
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.fetched_at_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset
        self.is_candidate = False


#: Shared by all partitions without followers; never changed.
_NO_FOLLOWERS: dict[int, Follower] = {}


class Replicas:
    """The replicas of one partition, as this broker knows them. Other modules change only the fields `min_in_sync` and
    `max_lag_ms`, which are settings."""

    __slots__ = (
        "_epoch_start_offset",
        "_followers",
        "_is_synced",
        "_last_end_offset",
        "_sent",
        "assigned",
        "broker_id",
        "has_candidates",
        "is_alone",
        "isr",
        "leader",
        "leader_epoch",
        "leads",
        "max_lag_ms",
        "min_in_sync",
        "partition_epoch",
        "proposed_isr",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: int,
        assigned: Sequence[int],
        min_in_sync: int,
        max_lag_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.assigned = tuple(assigned)
        self.min_in_sync = min_in_sync
        #: The setting replica.lag.time.max.ms.
        self.max_lag_ms = max_lag_ms
        self.leader = NO_LEADER
        #: True if this broker leads the partition.
        self.leads = False
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        #: The ISR that this leader proposes, until the controller has accepted or refused it; None if there is no
        #: proposal.
        self.proposed_isr: tuple[int, ...] | None = None
        self._followers = _NO_FOLLOWERS
        #: The log end offset at which this broker began to lead; None while it does not lead, or has no log.
        self._epoch_start_offset: int | None = None
        #: The log end offset at the last call of `next_high_watermark`.
        self._last_end_offset = _UNKNOWN
        #: The last proposed ISR that was sent, with the leader epoch and partition epoch on which it is based. The
        #: metadata tree may already contain this ISR.
        self._sent: tuple[int, int, tuple[int, ...] | None] | None = None
        #: True if the ISR or the proposed ISR is too small, and the log was synced for this reason since the last
        #: change of the state and the proposal.
        self._is_synced = False
        #: True if there may be followers that join the ISR with their next requests (`join`).
        self.has_candidates = False
        #: True if this broker leads and has no followers to wait for.
        self.is_alone = False

    # --- the controller's state --------------------------------------------------------------------------------------

    def led_by(
        self,
        leader: int,
        leader_epoch: int,
        isr: Sequence[int],
        partition_epoch: int,
        log_end_offset: int | None,
        now_ms: int,
    ) -> bool:
        """Applies the partition's state that the controller has written, and this broker's log end offset (None
        without a log). Returns True if this broker begins to lead in this leader epoch. A state that is not newer than
        the known state changes nothing."""
        if (leader_epoch, partition_epoch) <= (self.leader_epoch, self.partition_epoch):
            return False
        begins = leader == self.broker_id and leader_epoch != self.leader_epoch
        self.leader, self.leader_epoch, self.isr, self.partition_epoch = (
            leader,
            leader_epoch,
            tuple(isr),
            partition_epoch,
        )
        self.leads = leader == self.broker_id
        self.proposed_isr = None
        self._is_synced = False
        if begins or not self.leads:
            self._epoch_start_offset = log_end_offset if begins else None
            self._followers, self.has_candidates = _NO_FOLLOWERS, False
        self._know_followers(now_ms)
        return begins

    def found_log(self, log_end_offset: int) -> None:
        """Sets the log end offset of this broker, which got the partition's log after it had begun to lead."""
        self._epoch_start_offset = log_end_offset

    def assign(self, assigned: Sequence[int], now_ms: int) -> None:
        """Changes the brokers that are assigned as replicas."""
        self.assigned = tuple(assigned)
        self._know_followers(now_ms)

    def isr_written(self, isr: Sequence[int], leader_epoch: int, partition_epoch: int) -> bool:
        """Records the ISR that was written: the proposed ISR, or another ISR that the controller has written. Returns
        False, and changes nothing, if a newer state is known."""
        if leader_epoch != self.leader_epoch or partition_epoch <= self.partition_epoch:
            return False
        self._is_synced = self._is_synced and self.proposed_isr == tuple(isr)
        self.isr, self.partition_epoch = tuple(isr), partition_epoch
        self.proposed_isr = None
        self._is_synced = self._is_synced and self._has_too_few
        self._count()
        return True

    def proposal_sent(self) -> None:
        """Records that the proposal is being sent. From now on it cannot be changed."""
        self._sent = self.standing

    def proposal_refused(self, leader_epoch: int, partition_epoch: int) -> bool:
        """Drops a proposal that was based on this state and that the controller has certainly refused
        (INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED). The same ISR may be proposed again. Must not be called if the
        outcome of the proposal is unknown. Returns False, and changes nothing, if a newer state is known."""
        if (leader_epoch, partition_epoch) != (self.leader_epoch, self.partition_epoch):
            return False
        self.proposed_isr, self._is_synced = None, False
        self._count()
        return True

    def forget_leader(self) -> None:
        """Records that there is no leader any more, because this broker's replica or the topic is being deleted."""
        self.leader, self.leads = NO_LEADER, False
        self.proposed_isr, self._is_synced = None, False
        self._followers, self.has_candidates = _NO_FOLLOWERS, False
        self._count()

    def _know_followers(self, now_ms: int) -> None:
        if self.leads:
            known = self._followers
            wanted = dict.fromkeys((*self.assigned, *self.isr))
            wanted.pop(self.broker_id, None)
            made = {
                number: known.get(number) or Follower(now_ms if number in self.isr else _UNKNOWN) for number in wanted
            }
            self._followers = made or _NO_FOLLOWERS
        self._count()

    def _count(self) -> None:
        self.is_alone = (
            self.leads and not self._followers and self.isr == (self.broker_id,) and self.proposed_isr is None
        )

    # --- the leader --------------------------------------------------------------------------------------------------

    def require_epoch(self, current_leader_epoch: int) -> None:
        """Raises FENCED_LEADER_EPOCH if the client's leader epoch is too old, and UNKNOWN_LEADER_EPOCH if it is too
        new. The epoch -1 means that the client has sent none."""
        if current_leader_epoch not in (-1, self.leader_epoch):
            kind = FencedLeaderEpochError if current_leader_epoch < self.leader_epoch else UnknownLeaderEpochError
            raise kind(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")

    def not_leader(self) -> NotLeaderOrFollowerError:
        """Returns the error for a client that has mistaken this broker for the leader."""
        who = (
            f"{self.topic_partition} has no leader"
            if self.leader == NO_LEADER
            else f"broker {self.leader} leads {self.topic_partition}"
        )
        return NotLeaderOrFollowerError(who)

    # --- committed records -------------------------------------------------------------------------------------------

    @property
    def _needed_in_sync(self) -> int:
        return min(self.min_in_sync, max(1, len(self.assigned)))

    @property
    def _in_either(self) -> dict[int, None]:
        """Returns the brokers that are in the ISR, in the proposed ISR, or in both."""
        return dict.fromkeys((*self.isr, *(self.proposed_isr or ())))

    def require_in_sync(self) -> None:
        """Raises NotEnoughReplicasError if the ISR is too small for writes with acks=all (min.insync.replicas)."""
        if len(self.isr) < self._needed_in_sync:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, min.insync.replicas asks for "
                f"{self._needed_in_sync}"
            )

    def next_high_watermark(self, current: int, log_end_offset: int, now_ms: int) -> int:
        """Returns the leader's next high watermark. `current` is the current high watermark, and `log_end_offset` is
        the leader's log end offset."""
        if self.is_alone:
            return max(current, log_end_offset)
        if log_end_offset != self._last_end_offset:
            self._appended(log_end_offset, now_ms)
        if self._has_too_few:
            return current
        in_either, lowest = self._in_either, log_end_offset
        for number, follower in self._followers.items():
            if follower.log_end_offset < lowest and (
                number in in_either or self._is_about_to_join(number, follower, log_end_offset, now_ms)
            ):
                lowest = follower.log_end_offset
        return max(current, lowest)

    @property
    def _has_too_few(self) -> bool:
        """Returns True if the ISR, or the proposed ISR, has fewer members than min.insync.replicas requires."""
        needed, proposed = self._needed_in_sync, self.proposed_isr
        return len(self.isr) < needed or (proposed is not None and len(proposed) < needed)

    @property
    def is_to_be_synced(self) -> bool:
        """Returns True while this broker's log must be synced, because too few other replicas have the committed
        records."""
        return not self._is_synced and self._has_too_few and self.broker_id in self.isr

    @property
    def waits_for_sync(self) -> bool:
        """Returns True while the proposal must not be written, because it makes the ISR smaller and the log must be
        synced first."""
        proposed = self.proposed_isr
        return proposed is not None and len(proposed) < len(self.isr) and self.is_to_be_synced

    @property
    def standing(self) -> tuple[int, int, tuple[int, ...] | None]:
        """Returns the leader epoch, the partition epoch and the proposed ISR. The caller of a sync passes these values
        to `synced`, which detects if they have changed since the sync began."""
        return self.leader_epoch, self.partition_epoch, self.proposed_isr

    def synced(self, standing: tuple[int, int, tuple[int, ...] | None]) -> None:
        """Records that this broker's log was synced. `standing` has the values of the property `standing` at the start
        of the sync; if they have changed, the sync is ignored."""
        if standing == self.standing and self._has_too_few:
            self._is_synced = True

    def _appended(self, log_end_offset: int, now_ms: int) -> None:
        """Called after an append. Sets the time at which a follower last had the whole log to `now_ms`, for followers
        that had the whole log before the append."""
        before, self._last_end_offset = self._last_end_offset, log_end_offset
        for follower in self._followers.values():
            if follower.log_end_offset == before != _UNKNOWN:
                follower.caught_up_at_ms = max(follower.caught_up_at_ms, now_ms)

    def knows_high_watermark(self, high_watermark: int) -> bool:
        """Returns False for a leader whose high watermark is below the start of its epoch. The records between these
        two offsets may have been committed under the earlier leader. The leader learns this only when its followers
        have fetched (KIP-207)."""
        return self._epoch_start_offset is None or high_watermark >= self._epoch_start_offset

    def _is_about_to_join(self, number: int, follower: Follower, log_end_offset: int, now_ms: int) -> bool:
        """Returns True for an assigned follower that does not lag. The high watermark must wait for such a follower.
        Otherwise the high watermark would always be higher than the follower's fetch offset, and the follower could
        never join the ISR."""
        return number in self.assigned and not self._lags(follower, log_end_offset, now_ms)

    # --- replicas in sync --------------------------------------------------------------------------------------------

    def has_follower(self, broker_id: int) -> bool:
        """Returns True if this broker leads the partition and the other broker has a replica of it."""
        return broker_id in self._followers

    def readable_from(self, offset: int) -> list[Readable]:
        """Returns the followers that consumers may read from this offset on."""
        return [
            Readable(number, follower.log_end_offset, follower.caught_up_at_ms)
            for number, follower in self._followers.items()
            if number in self.isr and follower.log_start_offset <= offset <= follower.log_end_offset
        ]

    def follower_fetched(
        self,
        broker_id: int,
        offset: int,
        leader_end_offset: int,
        high_watermark: int,
        now_ms: int,
        *,
        may_join: bool = True,
        log_start_offset: int = _UNKNOWN,
    ) -> bool:
        """Records a follower's fetch. The follower has all records from `log_start_offset` (-1: not sent) up to
        `offset`. `leader_end_offset` is this broker's log end offset at the time of the fetch. `may_join` is True if
        the follower's broker is registered; only then the follower may be proposed for the ISR. Returns True if the
        follower is now in the proposed ISR. Raises NotLeaderOrFollowerError if the broker has no replica."""
        follower = self._followers.get(broker_id)
        if follower is None:
            raise NotLeaderOrFollowerError(f"broker {broker_id} has no replica of {self.topic_partition}")
        follower.fetched(offset, leader_end_offset, now_ms, log_start_offset)
        if self.proposed_isr is not None:
            self._keep_caught_up(leader_end_offset, now_ms)
        start = self._epoch_start_offset
        if (
            not may_join
            or broker_id in self.isr
            or self.proposed_isr is not None
            or broker_id not in self.assigned
            or start is None
        ):
            return False
        if offset < high_watermark or offset < start:
            return False
        self.proposed_isr = (*self.isr, broker_id)
        self._count()
        return True

    def look_for_candidates(self, up: Container[int], log_end_offset: int, high_watermark: int, now_ms: int) -> bool:
        """Looks for followers that have caught up with the ISR and are on brokers in `up`. Returns True if there are
        such followers. They join with their next requests (`join`). This is necessary because a follower with the
        whole log no longer names the partition in its fetches, so its fetches do not reach `follower_fetched`."""
        if not self.leads or self.proposed_isr is not None or len(self.isr) >= len(self.assigned):
            return False
        for number, follower in self._followers.items():
            if number in up and self._may_join(number, follower, log_end_offset, high_watermark, now_ms):
                follower.is_candidate = self.has_candidates = True
        return self.has_candidates

    def join(self, broker_id: int, fetch_offset: int, log_end_offset: int, high_watermark: int, now_ms: int) -> bool:
        """Handles a request in a follower's fetch session that does not name this partition. In the session the
        follower has reported `fetch_offset` as its log end offset. Returns True if the follower was waiting to join,
        and is now proposed for the ISR."""
        follower = self._followers.get(broker_id)
        joins = False
        if (
            follower is not None
            and follower.is_candidate
            and follower.log_end_offset == fetch_offset
            and self.proposed_isr is None
        ):
            follower.is_candidate = False
            if self._may_join(broker_id, follower, log_end_offset, high_watermark, now_ms):
                self.proposed_isr, joins = (*self.isr, broker_id), True
                self._count()
        self.has_candidates = any(item.is_candidate for item in self._followers.values())
        return joins

    def _may_join(self, number: int, follower: Follower, log_end_offset: int, high_watermark: int, now_ms: int) -> bool:
        start = self._epoch_start_offset
        return (
            start is not None
            and number not in self.isr
            and number in self.assigned
            and follower.log_end_offset >= max(start, high_watermark)
            and not self._lags(follower, log_end_offset, now_ms)
        )

    def drop_lagging(self, log_end_offset: int, now_ms: int) -> bool:
        """Proposes an ISR without the followers that have not had the whole log for `max_lag_ms`. Returns True if
        there is now a proposal without such followers."""
        if not self.leads or self.proposed_isr is not None:
            return False
        stays = self._who_stays(log_end_offset, now_ms)
        if stays == self.isr:
            return False
        self.proposed_isr, self._is_synced = stays, False
        self._count()
        return True

    def _keep_caught_up(self, log_end_offset: int, now_ms: int) -> None:
        """Puts followers that have caught up back into a proposed ISR from which they were removed, if the proposal is
        not sent yet."""
        proposed = self.proposed_isr
        if proposed is None or len(proposed) >= len(self.isr) or self._sent == self.standing:
            return
        stays = self._who_stays(log_end_offset, now_ms)
        if len(stays) > len(proposed):
            self.proposed_isr, self._is_synced = None if stays == self.isr else stays, False
            self._count()

    def _who_stays(self, log_end_offset: int, now_ms: int) -> tuple[int, ...]:
        """Returns the members of the ISR that do not lag."""
        return tuple(
            number
            for number in self.isr
            if number == self.broker_id or not self._lags(self._followers[number], log_end_offset, now_ms)
        )

    def _lags(self, follower: Follower, log_end_offset: int, now_ms: int) -> bool:
        if follower.caught_up_at_ms == _UNKNOWN:
            return True
        return follower.log_end_offset != log_end_offset and now_ms - follower.caught_up_at_ms > self.max_lag_ms
