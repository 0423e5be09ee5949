"""The rules of one partition's replicas: who leads, who is in sync, up to where all of them have the log, and what a write with acks=all asks for.

    in sync           a follower that has had the whole log within replica.lag.time.max.ms. It was there when it fetched at the log end offset, or when it
                      fetched where the log ended at its fetch before: then it had all of that at the earlier time (KIP-16).
    comes back        a follower that has reached the high watermark, and the start of the leader's epoch
    high watermark    the lowest log end offset of all in sync. It never goes back while one broker leads. A follower that has not fetched since
                      this broker began to lead holds it where it is. With the leader alone in sync it is the log end offset.
    proposed ISR      stands until the controller has taken or refused it. Until then the high watermark waits for everybody who is in either,
                      while min.insync.replicas counts those who are in the old one (KIP-497).
    epochs            a client that sends a leader epoch is refused if it knows an older or a newer leader (KIP-320)

A decider: it knows no log and no clock. Times are milliseconds that the caller takes from a monotonic clock. Sources: the chapter "Replication" of the
documents, KIP-16, KIP-320, KIP-497.
"""

from __future__ import annotations

from collections.abc import Sequence

from jesenska.base.errors import FencedLeaderEpochError, NotEnoughReplicasError, NotLeaderOrFollowerError, UnknownLeaderEpochError
from jesenska.base.identifiers import TopicPartition

NO_LEADER = -1
_UNKNOWN = -1


class Follower:
    """What a leader knows of a follower; -1 where it knows nothing yet."""

    __slots__ = ("caught_up_at_ms", "fetched_at_ms", "leader_end_at_fetch", "log_end_offset")

    def __init__(self, caught_up_at_ms: int) -> None:
        self.log_end_offset = _UNKNOWN
        #: When it last had the whole log; for one that was in sync when this broker began to lead, that moment.
        self.caught_up_at_ms = caught_up_at_ms
        self.fetched_at_ms = _UNKNOWN
        self.leader_end_at_fetch = _UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)
        elif self.leader_end_at_fetch != _UNKNOWN and offset >= self.leader_end_at_fetch:
            self.caught_up_at_ms = max(self.caught_up_at_ms, self.fetched_at_ms)
        self.log_end_offset = offset
        self.fetched_at_ms = now_ms
        self.leader_end_at_fetch = leader_end_offset


class Replicas:
    """The replicas of one partition as one broker sees them. Nothing outside changes its fields."""

    __slots__ = (
        "_epoch_start_offset",
        "_followers",
        "_is_alone",
        "assigned",
        "broker_id",
        "isr",
        "leader",
        "leader_epoch",
        "leads",
        "min_in_sync",
        "proposed_isr",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, broker_id: int, assigned: Sequence[int], min_in_sync: int) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.assigned = tuple(assigned)
        self.min_in_sync = min_in_sync
        self.leader = NO_LEADER
        #: True if this broker leads the partition.
        self.leads = False
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        #: What this leader has asked the controller for; None while it waits for nothing.
        self.proposed_isr: tuple[int, ...] | None = None
        self._followers: dict[int, Follower] = {}
        self._epoch_start_offset = 0
        self._is_alone = False

    # --- the controller's word ----------------------------------------------------------------------------------------------------------

    def led_by(self, leader: int, leader_epoch: int, isr: Sequence[int], log_end_offset: int, now_ms: int) -> bool:
        """The state of the partition as the controller wrote it, with this broker's log end offset. True if this broker begins to lead, in this epoch.
        A state of an older epoch changes nothing."""
        if leader_epoch < self.leader_epoch:
            return False
        begins = leader == self.broker_id and (self.leader != leader or self.leader_epoch != leader_epoch)
        self.leader, self.leader_epoch, self.isr = leader, leader_epoch, tuple(isr)
        self.leads = leader == self.broker_id
        self.proposed_isr = None
        if leader != self.broker_id:
            self._followers = {}
        elif begins:
            self._epoch_start_offset = log_end_offset
            self._followers = {}
        self._know_followers(now_ms)
        return begins

    def assign(self, assigned: Sequence[int], now_ms: int) -> None:
        """Other brokers are to have the partition."""
        self.assigned = tuple(assigned)
        self._know_followers(now_ms)

    def isr_written(self, isr: Sequence[int]) -> None:
        """The controller has taken a proposal, or tells that the ISR is another one than was thought."""
        self.isr = tuple(isr)
        self.proposed_isr = None
        self._count()

    def proposal_refused(self) -> None:
        """The controller has not taken the proposal; the next fetch or look may make it again."""
        self.proposed_isr = None
        self._count()

    def forget_leader(self) -> None:
        """Nobody leads: the partition goes."""
        self.leader, self.leads = NO_LEADER, False
        self._followers = {}
        self._count()

    def _know_followers(self, now_ms: int) -> None:
        if self.leads:
            known = self._followers
            wanted = dict.fromkeys((*self.assigned, *self.isr))
            wanted.pop(self.broker_id, None)
            self._followers = {number: known.get(number) or Follower(now_ms if number in self.isr else _UNKNOWN) for number in wanted}
        self._count()

    def _count(self) -> None:
        self._is_alone = self.leads and self.isr == (self.broker_id,) and self.proposed_isr is None

    # --- who leads ----------------------------------------------------------------------------------------------------------------------

    def require_leader(self, current_leader_epoch: int) -> None:
        """NOT_LEADER_OR_FOLLOWER if another broker leads, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client knows another epoch (-1: it sent none)."""
        if current_leader_epoch not in (-1, self.leader_epoch):
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
            raise UnknownLeaderEpochError(f"{self.topic_partition} is at leader epoch {self.leader_epoch}")
        if self.leader != self.broker_id:
            told = f"{self.topic_partition} has no leader" if self.leader == NO_LEADER else f"broker {self.leader} leads {self.topic_partition}"
            raise NotLeaderOrFollowerError(told)

    # --- what is committed --------------------------------------------------------------------------------------------------------------

    def require_in_sync(self) -> None:
        """NotEnoughReplicasError where a write with acks=all asks for more replicas in sync than there are."""
        if len(self.isr) < self.min_in_sync:
            raise NotEnoughReplicasError(f"{self.topic_partition} has {len(self.isr)} in-sync replicas, min.insync.replicas asks for {self.min_in_sync}")

    def high_watermark(self, current: int, log_end_offset: int) -> int:
        """The high watermark of the leader whose log ends there; `current` is what it is so far."""
        if self._is_alone:
            return log_end_offset
        lowest = log_end_offset
        for number in (*self.isr, *(self.proposed_isr or ())):
            if number != self.broker_id:
                follower = self._followers.get(number)
                lowest = min(lowest, _UNKNOWN if follower is None else follower.log_end_offset)
        return max(current, lowest)

    # --- who is in sync -----------------------------------------------------------------------------------------------------------------

    def follower_fetched(self, broker_id: int, offset: int, log_end_offset: int, high_watermark: int, now_ms: int) -> bool:
        """A follower has everything below `offset`. True if it is now proposed for the ISR. NotLeaderOrFollowerError for one that has no replica here."""
        follower = self._followers.get(broker_id)
        if follower is None:
            raise NotLeaderOrFollowerError(f"broker {broker_id} has no replica of {self.topic_partition}")
        follower.fetched(offset, log_end_offset, now_ms)
        if broker_id in self.isr or self.proposed_isr is not None or broker_id not in self.assigned:
            return False
        if offset < high_watermark or offset < self._epoch_start_offset:
            return False
        self.proposed_isr = (*self.isr, broker_id)
        self._count()
        return True

    def drop_lagging(self, log_end_offset: int, max_lag_ms: int, now_ms: int) -> bool:
        """Followers that have not had the whole log for `max_lag_ms` are to leave the ISR. True if that is now proposed."""
        if not self.leads or self._is_alone or self.proposed_isr is not None:
            return False
        stays = tuple(number for number in self.isr if number == self.broker_id or not self._lags(number, log_end_offset, max_lag_ms, now_ms))
        if stays == self.isr:
            return False
        self.proposed_isr = stays
        self._count()
        return True

    def _lags(self, number: int, log_end_offset: int, max_lag_ms: int, now_ms: int) -> bool:
        follower = self._followers.get(number)
        if follower is None:
            return True
        return follower.log_end_offset != log_end_offset and now_ms - follower.caught_up_at_ms > max_lag_ms
