"""Decides about one partition's replicas: which are in sync, where the high watermark is, and whether a write with
acks=all may be accepted.

    in sync           a follower that has had the whole log within replica.lag.time.max.ms: its fetch was at the log
                      end offset, or at least at the log end offset of the time of its previous fetch, and then it had
                      the whole log at that earlier time (KIP-16). A follower that has the whole log need not fetch it
                      again: it has it until the next append
    comes back        a follower that has reached the high watermark, and the start of the leader's epoch, as reported
                      in its present request. An earlier request does not count: its broker may have crashed since,
                      and have come back with fewer records
    high watermark    the lowest log end offset of all replicas in sync, and of assigned followers that will soon be in
                      sync. It never goes back while one broker leads. It does not move while fewer replicas than
                      min.insync.replicas are in sync, or will be. A follower that has not fetched since this broker
                      began to lead keeps it from moving. With the leader alone it is the log end offset
    proposed ISR      is valid until the controller has accepted or refused it. Until then the high watermark waits for
                      the members of both the old and the new ISR, while min.insync.replicas counts the members of the
                      old one (KIP-497). A proposal that is not sent yet, since the tree is not reachable or the disk
                      is slow, gets those leaving members back that do not lag any more; if it then equals the old
                      ISR, it is dropped
    min.insync        min.insync.replicas, but at most the number of the partition's replicas
    to be synced      the log of each replica in sync, if fewer than min.insync.replicas are in sync, or are proposed:
                      acknowledged records may have no other copy. Such a proposal is written after the log is synced.
                      Nothing is committed in between
    epochs            a client that sends a leader epoch is refused if its epoch is older or newer (KIP-320). The
                      controller's states have their own number in each leader epoch, the partition epoch: a state
                      that is not newer than the known one changes nothing
    read by consumers a follower may be read from an offset on if it is in sync and its log contains that offset, or
                      ends there (KIP-392). `read_replicas` chooses among them

A decider: it knows no log and no clock. Times are milliseconds that the caller takes from a monotonic clock. Sources:
the chapter "Replication" of the documents, KIP-16, KIP-320, KIP-392, KIP-497, KIP-966.
"""

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
    """A follower that consumers may read from, its log end offset, and the last time at which it had the whole log."""

    broker_id: int
    log_end_offset: int
    caught_up_at_ms: int


class Follower:
    """The leader's knowledge of a follower; -1 for unknown values."""

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
        #: The last time at which it had the whole log; for a follower that was in sync when this broker began to lead,
        #: that time.
        self.caught_up_at_ms = caught_up_at_ms
        self.fetched_at_ms = _UNKNOWN
        self.leader_end_at_fetch = _UNKNOWN
        #: True if it is to join the ISR with its next request.
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
    """The replicas of one partition as one broker sees them. Other modules change only its fields `min_in_sync` and
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
        #: replica.lag.time.max.ms.
        self.max_lag_ms = max_lag_ms
        self.leader = NO_LEADER
        #: True if this broker leads the partition.
        self.leads = False
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        #: The ISR that this leader has requested from the controller; None without a pending request.
        self.proposed_isr: tuple[int, ...] | None = None
        self._followers = _NO_FOLLOWERS
        #: The log end offset when this broker began to lead; None while it has no log.
        self._epoch_start_offset: int | None = None
        #: The log end offset at the last look at it.
        self._last_end_offset = _UNKNOWN
        #: The last proposal that was sent, with the state on which it is based: it may be written, or be on its way.
        self._sent: tuple[int, int, tuple[int, ...] | None] | None = None
        #: True if the log was synced because too few replicas are in sync, or are proposed.
        self._is_synced = False
        #: True if there may be followers that are to join with their next requests (`join`).
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
        """Takes the partition's state as the controller wrote it, and this broker's log end offset (None without a
        log). True if this broker begins to lead, in this epoch. A state that is not newer than the known one changes
        nothing."""
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
        """Takes the log end offset of this broker, which leads already, and now has its log."""
        self._epoch_start_offset = log_end_offset

    def assign(self, assigned: Sequence[int], now_ms: int) -> None:
        """Changes the brokers that are assigned as replicas."""
        self.assigned = tuple(assigned)
        self._know_followers(now_ms)

    def isr_written(self, isr: Sequence[int], leader_epoch: int, partition_epoch: int) -> bool:
        """Takes the ISR that the controller has accepted, or another one that it has written. False, and nothing is
        changed, if a newer state is known."""
        if leader_epoch != self.leader_epoch or partition_epoch <= self.partition_epoch:
            return False
        self._is_synced = self._is_synced and self.proposed_isr == tuple(isr)
        self.isr, self.partition_epoch = tuple(isr), partition_epoch
        self.proposed_isr = None
        self._is_synced = self._is_synced and self._has_too_few
        self._count()
        return True

    def proposal_sent(self) -> None:
        """Records that the proposal is being sent: from now on it cannot be changed."""
        self._sent = self.standing

    def proposal_refused(self, leader_epoch: int, partition_epoch: int) -> bool:
        """Drops a proposal that the controller has certainly refused, on top of that state (INELIGIBLE_REPLICA,
        OPERATION_NOT_ATTEMPTED): it may be proposed again. Not to be called if the outcome is in doubt. False, and
        nothing is changed, if a newer state is known."""
        if (leader_epoch, partition_epoch) != (self.leader_epoch, self.partition_epoch):
            return False
        self.proposed_isr, self._is_synced = None, False
        self._count()
        return True

    def forget_leader(self) -> None:
        """Records that there is no leader any more: the topic is being deleted."""
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
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client has another epoch (-1: it sent none)."""
        if current_leader_epoch not in (-1, self.leader_epoch):
            kind = FencedLeaderEpochError if current_leader_epoch < self.leader_epoch else UnknownLeaderEpochError
            raise kind(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")

    def not_leader(self) -> NotLeaderOrFollowerError:
        """Returns the error for a client that took this broker for the leader."""
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
        """Raises NotEnoughReplicasError if a write with acks=all requires more replicas in sync than there are."""
        if len(self.isr) < self._needed_in_sync:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {len(self.isr)} in-sync replicas, min.insync.replicas asks for "
                f"{self._needed_in_sync}"
            )

    def next_high_watermark(self, current: int, log_end_offset: int, now_ms: int) -> int:
        """Returns the next high watermark of the leader, whose log end offset is `log_end_offset`; `current` is the
        present one."""
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
        """True if fewer replicas than required are in sync, or will be."""
        needed, proposed = self._needed_in_sync, self.proposed_isr
        return len(self.isr) < needed or (proposed is not None and len(proposed) < needed)

    @property
    def is_to_be_synced(self) -> bool:
        """True while this broker's log must be synced, since too few others have the committed records."""
        return not self._is_synced and self._has_too_few and self.broker_id in self.isr

    @property
    def waits_for_sync(self) -> bool:
        """True while the proposal must not be written, since the log must be synced before."""
        proposed = self.proposed_isr
        return proposed is not None and len(proposed) < len(self.isr) and self.is_to_be_synced

    @property
    def standing(self) -> tuple[int, int, tuple[int, ...] | None]:
        """The state to which `synced` refers: it differs after a new state or a new proposal."""
        return self.leader_epoch, self.partition_epoch, self.proposed_isr

    def synced(self, standing: tuple[int, int, tuple[int, ...] | None]) -> None:
        """Records that this broker's log was synced since the state was `standing`."""
        if standing == self.standing and self._has_too_few:
            self._is_synced = True

    def _appended(self, log_end_offset: int, now_ms: int) -> None:
        """Updates the times of the followers that had the whole log until this append."""
        before, self._last_end_offset = self._last_end_offset, log_end_offset
        for follower in self._followers.values():
            if follower.log_end_offset == before != _UNKNOWN:
                follower.caught_up_at_ms = max(follower.caught_up_at_ms, now_ms)

    def knows_high_watermark(self, high_watermark: int) -> bool:
        """False for a leader whose high watermark is below the start of its epoch: the records between may have been
        committed under the earlier leader, which is known after followers have fetched (KIP-207)."""
        return self._epoch_start_offset is None or high_watermark >= self._epoch_start_offset

    def _is_about_to_join(self, number: int, follower: Follower, log_end_offset: int, now_ms: int) -> bool:
        """True for an assigned follower that keeps up: if the high watermark did not wait for it, it would always be
        ahead of its fetches."""
        return number in self.assigned and not self._lags(follower, log_end_offset, now_ms)

    # --- replicas in sync
    # ---------------------------------------------------------------------------------------------

    def has_follower(self, broker_id: int) -> bool:
        """True for another broker that has a replica of the partition that this one leads."""
        return broker_id in self._followers

    def readable_from(self, offset: int) -> list[Readable]:
        """Returns the followers that consumers may read from that offset on."""
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
        """Records a follower's fetch: it has everything from `log_start_offset` (-1: not sent) up to `offset`;
        `leader_end_offset` is this log's end offset at the time of its fetch. True if the follower is now proposed for
        the ISR. It `may_join` if its broker is registered. NotLeaderOrFollowerError for a broker that has no replica
        here."""
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
        """True if followers on brokers in `up` have caught up with the ISR. They join with their next requests
        (`join`): a follower that has the whole log does not name the partition in its fetches any more, so no later
        fetch reports it."""
        if not self.leads or self.proposed_isr is not None or len(self.isr) >= len(self.assigned):
            return False
        for number, follower in self._followers.items():
            if number in up and self._may_join(number, follower, log_end_offset, high_watermark, now_ms):
                follower.is_candidate = self.has_candidates = True
        return self.has_candidates

    def join(self, broker_id: int, fetch_offset: int, log_end_offset: int, high_watermark: int, now_ms: int) -> bool:
        """Handles a request of a follower in a fetch session in which the follower has reported `fetch_offset` as its
        log's end. True if it is a candidate and is now proposed for the ISR."""
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
        """Proposes that followers that have not had the whole log for `max_lag_ms` leave the ISR. True if that is now
        proposed."""
        if not self.leads or self.proposed_isr is not None:
            return False
        stays = self._who_stays(log_end_offset, now_ms)
        if stays == self.isr:
            return False
        self.proposed_isr, self._is_synced = stays, False
        self._count()
        return True

    def _keep_caught_up(self, log_end_offset: int, now_ms: int) -> None:
        """Keeps followers in the ISR that were to leave it and do not lag any more, if the proposal is not sent
        yet."""
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
