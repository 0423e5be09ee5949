"""Decides how a follower handles the partitions that one other broker leads: its Fetch requests, and the work on its
logs after the answers. This module does no input or output. Times are milliseconds of a monotonic clock.

  state      meaning                                     next state
  FETCHING   records are requested                       WORKING, when an answer has work for the partition
                                                         PAUSED, when the leader answers with an error
  WORKING    records are appended or the log is cut; the   FETCHING, when the work has succeeded (`done`)
             partition is not requested during this time  PAUSED, when the work has failed (`failed`)
  PAUSED     the partition is not requested for a while  FETCHING, when the pause has ended
  THROTTLED  the partition is not requested, because     FETCHING, when the rate is below the limit, or the limit is
             this broker fetches more than               removed
             follower.replication.throttled.rate

Only FETCHING partitions become THROTTLED, and only those that a topic's settings name and that are not in sync: this
log ends below the high watermark of the leader's last answer, or there was no answer yet.

A pause lasts replica.fetch.backoff.ms. A leader may not know yet that it leads, because the controller informs each
broker separately. Then the first pause lasts FIRST_PAUSE_MS, and each later pause is twice as long as the pause
before, up to replica.fetch.backoff.ms. Pauses are short here because a leader cannot acknowledge writes with acks=all
while its followers do not fetch.

An answer may contain for a partition

  records, or new offsets    `Received`: the records are appended; then `done` is called with the log's new position
  a diverging epoch          `Cut`: the log has records that the leader's log does not have. The follower's log is
                             cut to `cut_offset`; then `done` is called
  OFFSET_OUT_OF_RANGE        `AskWhere`: the leader is asked for its log start and end offsets. Then the log is cut to
                             the leader's end, or restarted at the leader's start (`go_on_at`), and `done` is called
  another error              no work: the partition is requested again later. If there is a new leader, the controller
                             sends LeaderAndIsr to this broker

Only answers for the current leader epoch of a partition are used. Older answers are ignored, and so are answers for
partitions that are not followed any more. Sources: KIP-101, KIP-279, KIP-392, KIP-595 (diverging epochs in Fetch)."""

from __future__ import annotations

import heapq
import uuid
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from jesenska.base.backoff import Backoff
from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from jesenska.quotas.replication_throttle import NO_THROTTLE, Throttle
from jesenska.replication.follower.fetch_session import FollowerSession, SessionRequest, Wanted
from jesenska.wire.language import Records

#: The first pause in milliseconds, if the leader does not know yet that it leads.
FIRST_PAUSE_MS = 20
#: The shortest time in milliseconds between two looks at the rate of throttled partitions.
_THROTTLED_MIN_MS = 10
_NOT_LED_YET = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)


class Position(NamedTuple):
    """The position of a follower's log: its end offset, its start offset, and the leader epoch of its last batch (-1
    if it has no batch)."""

    end_offset: int
    log_start_offset: int
    last_epoch: int


class FollowerState(Enum):
    FETCHING = "fetching"
    WORKING = "working"
    PAUSED = "paused"
    THROTTLED = "throttled"


class PartitionAnswer(NamedTuple):
    """A leader's answer to a Fetch request for one partition. `diverging` is None, or an epoch and its end offset on
    the leader: after that offset the two logs may differ."""

    topic_partition: TopicPartition
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: Records


class Received(NamedTuple):
    """Work on a log: append these records, if there are any, and then take over the leader's high watermark and log
    start offset."""

    topic_partition: TopicPartition
    leader_epoch: int
    records: Records
    high_watermark: int
    log_start_offset: int


class Cut(NamedTuple):
    """Work on a log: cut the records that the leader does not have. `epoch` is the leader's newest epoch that is not
    newer than the last epoch of the follower's log. `end_offset` is the end of this epoch on the leader."""

    topic_partition: TopicPartition
    leader_epoch: int
    epoch: int
    end_offset: int


class AskWhere(NamedTuple):
    """Work on a log: ask the leader for its log start and end offsets, because the leader has no records at the
    requested offset."""

    topic_partition: TopicPartition
    leader_epoch: int


Work = Received | Cut | AskWhere


class _Followed:
    """A partition that this broker follows."""

    __slots__ = ("leader_epoch", "leader_high_watermark", "position", "refusals", "state", "topic_id")

    def __init__(self, topic_id: uuid.UUID, leader_epoch: int, position: Position) -> None:
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.position = position
        self.state = FollowerState.FETCHING
        #: The high watermark in the leader's last answer; None if there was no answer yet.
        self.leader_high_watermark: int | None = None
        #: The number of consecutive answers in which the leader's broker has answered that it does not lead the
        #: partition.
        self.refusals = 0

    @property
    def is_in_sync(self) -> bool:
        """Returns True if the log has all records that were committed when the leader last answered."""
        return self.leader_high_watermark is not None and self.position.end_offset >= self.leader_high_watermark


class Fetcher:
    """The partitions that this broker follows from one other broker."""

    def __init__(self, pause_ms: int, throttle: Throttle = NO_THROTTLE) -> None:
        """Makes a fetcher without partitions. `pause_ms` is replica.fetch.backoff.ms. `throttle` limits the bytes per
        second that this broker fetches from all leaders together."""
        self._pause_ms = pause_ms
        self._throttle = throttle
        self._backoff = Backoff(FIRST_PAUSE_MS / 1000, pause_ms / 1000)
        self._session = FollowerSession()
        self._followed: dict[TopicPartition, _Followed] = {}
        #: The ends of pauses, the earliest first. Some entries are outdated: their partitions are not followed any
        #: more, or are requested again.
        self._pauses: list[tuple[int, TopicPartition, int]] = []
        self._working: dict[TopicPartition, None] = {}
        #: Partitions that become THROTTLED if the limit is exceeded before they are in sync.
        self._limited: dict[TopicPartition, None] = {}
        self._throttled: dict[TopicPartition, None] = {}
        #: The time at which the rate is looked at again, if there are THROTTLED partitions.
        self._throttled_until_ms = 0

    # --- followed partitions -----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._followed)

    def state(self, topic_partition: TopicPartition) -> FollowerState | None:
        """Returns the state of a partition; None if it is not followed here."""
        followed = self._followed.get(topic_partition)
        return None if followed is None else followed.state

    def follow(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, leader_epoch: int, position: Position
    ) -> None:
        """Begins to follow a partition in this leader epoch, from the position of the follower's log on. Ends
        following it in an older epoch."""
        followed = self._followed[topic_partition] = _Followed(topic_id, leader_epoch, position)
        self._working.pop(topic_partition, None)
        self._want(topic_partition, followed)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Stops following a partition."""
        if self._followed.pop(topic_partition, None) is not None:
            self._working.pop(topic_partition, None)
            self._session.drop(topic_partition)

    def _want(self, topic_partition: TopicPartition, followed: _Followed) -> None:
        followed.state = FollowerState.FETCHING
        if self._throttle.is_active and not followed.is_in_sync and self._throttle.applies_to(*topic_partition):
            self._limited[topic_partition] = None
        end_offset, log_start_offset, last_epoch = followed.position
        self._session.want(
            Wanted(topic_partition, followed.topic_id, followed.leader_epoch, end_offset, log_start_offset, last_epoch)
        )

    def _pause(self, topic_partition: TopicPartition, followed: _Followed, pause_ms: int, now_ms: int) -> None:
        followed.state = FollowerState.PAUSED
        self._session.drop(topic_partition)
        heapq.heappush(self._pauses, (now_ms + pause_ms, topic_partition, followed.leader_epoch))

    def _pause_ms_after(self, error_code: int, followed: _Followed) -> int:
        """Returns the time in milliseconds for which the partition is not requested after an error."""
        if error_code not in _NOT_LED_YET:
            return self._pause_ms
        followed.refusals += 1
        return self._backoff.milliseconds(followed.refusals)

    # --- requests and answers ----------------------------------------------------------------------------------------

    @property
    def resumes_at_ms(self) -> int | None:
        """Returns the time in milliseconds at which the first paused or throttled partition may be requested again;
        None if there is no such partition."""
        if not self._throttled:
            return self._pauses[0][0] if self._pauses else None
        return min(self._pauses[0][0], self._throttled_until_ms) if self._pauses else self._throttled_until_ms

    @property
    def is_at_work(self) -> bool:
        """Returns True while work on at least one log has not ended."""
        return bool(self._working)

    def next_request(self, now_ms: int) -> SessionRequest | None:
        """Returns the content of the next Fetch request; None if no partition must be requested. Partitions whose work
        has not ended are left out, and the leader is asked to forget them."""
        while self._pauses and self._pauses[0][0] <= now_ms:
            _, topic_partition, leader_epoch = heapq.heappop(self._pauses)
            followed = self._followed.get(topic_partition)
            if (
                followed is not None
                and followed.state is FollowerState.PAUSED
                and followed.leader_epoch == leader_epoch
            ):
                self._want(topic_partition, followed)
        if self._limited or self._throttled:
            self._hold_or_release(now_ms)
        for topic_partition in self._working:
            self._session.drop(topic_partition)
        return None if self._session.is_empty else self._session.request()

    def _hold_or_release(self, now_ms: int) -> None:
        """Stops requesting limited partitions if the limit is exceeded. Requests them again otherwise."""
        if self._throttle.is_exceeded(now_ms):
            limited, self._limited = self._limited, {}
            for topic_partition in limited:
                followed = self._followed.get(topic_partition)
                if followed is not None and followed.state is FollowerState.FETCHING and not followed.is_in_sync:
                    followed.state = FollowerState.THROTTLED
                    self._session.drop(topic_partition)
                    self._throttled[topic_partition] = None
            wait_ms = min(self._throttle.wait_ms(now_ms), self._pause_ms)
            self._throttled_until_ms = now_ms + max(wait_ms, _THROTTLED_MIN_MS)
        else:
            throttled, self._throttled = self._throttled, {}
            for topic_partition in throttled:
                followed = self._followed.get(topic_partition)
                if followed is not None and followed.state is FollowerState.THROTTLED:
                    self._want(topic_partition, followed)

    def answered(self, error_code: int, session_id: int, answers: Iterable[PartitionAnswer], now_ms: int) -> list[Work]:
        """Handles the answer to the last request. Returns the work on the logs."""
        if not self._session.answered(error_code, session_id):
            return []
        work: list[Work] = []
        for answer in answers:
            topic_partition = answer.topic_partition
            followed = self._followed.get(topic_partition)
            if (
                followed is None
                or followed.state is not FollowerState.FETCHING
                or not self._was_asked(topic_partition, followed)
            ):
                continue
            found = self._work(answer, followed.leader_epoch)
            if found is None:
                self._pause(topic_partition, followed, self._pause_ms_after(answer.error_code, followed), now_ms)
                continue
            followed.refusals = 0
            followed.state = FollowerState.WORKING
            if isinstance(found, Received):
                followed.leader_high_watermark = found.high_watermark
                if self._throttle.is_active and found.records and self._throttle.applies_to(*topic_partition):
                    self._throttle.record(len(found.records), now_ms)
            self._working[topic_partition] = None
            work.append(found)
        return work

    def _was_asked(self, topic_partition: TopicPartition, followed: _Followed) -> bool:
        """Returns True if the last request named this partition with its current topic id, leader epoch and log end
        offset."""
        sent = self._session.sent(topic_partition)
        return sent is not None and (sent.topic_id, sent.leader_epoch, sent.offset) == (
            followed.topic_id,
            followed.leader_epoch,
            followed.position.end_offset,
        )

    @staticmethod
    def _work(answer: PartitionAnswer, leader_epoch: int) -> Work | None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return AskWhere(answer.topic_partition, leader_epoch)
        if answer.error_code != ErrorCode.NONE:
            return None
        if answer.diverging is not None:
            return Cut(answer.topic_partition, leader_epoch, *answer.diverging)
        return Received(
            answer.topic_partition, leader_epoch, answer.records, answer.high_watermark, answer.log_start_offset
        )

    def lost(self) -> None:
        """Handles the end of the connection, or a request without an answer: the fetch session ends."""
        self._session.lost()

    def log_starts_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Records the follower's new log start offset, which retention or the leader has moved. The next request sends
        the offset to the leader, because the leader directs a consumer to this follower only for records that the
        follower has."""
        followed = self._followed.get(topic_partition)
        if followed is not None and followed.position.log_start_offset != offset:
            followed.position = followed.position._replace(log_start_offset=offset)
            if followed.state is FollowerState.FETCHING:
                self._want(topic_partition, followed)

    # --- outcomes of the work ----------------------------------------------------------------------------------------

    def done(self, topic_partition: TopicPartition, leader_epoch: int, position: Position) -> None:
        """Records that work on a log has succeeded, with the log's new position. Does nothing if the partition is now
        followed in another leader epoch."""
        followed = self._at_work(topic_partition, leader_epoch)
        if followed is not None:
            followed.position = position
            self._want(topic_partition, followed)

    def failed(self, topic_partition: TopicPartition, leader_epoch: int, position: Position, now_ms: int) -> None:
        """Records that work on a log has failed, and pauses the partition."""
        followed = self._at_work(topic_partition, leader_epoch)
        if followed is not None:
            followed.position = position
            self._pause(topic_partition, followed, self._pause_ms, now_ms)

    def _at_work(self, topic_partition: TopicPartition, leader_epoch: int) -> _Followed | None:
        followed = self._followed.get(topic_partition)
        if followed is None or followed.leader_epoch != leader_epoch or followed.state is not FollowerState.WORKING:
            return None
        del self._working[topic_partition]
        return followed


def cut_offset(epochs: LeaderEpochs, log_end_offset: int, epoch: int, end_offset: int) -> int:
    """Returns the offset to which a follower cuts its log. `epoch` is the leader's newest epoch that is not newer than
    the last epoch of the follower's log, and `end_offset` is the end of this epoch on the leader.

    The two logs can agree only up to `end_offset`, and only up to the end of the follower's newest epoch that is not
    newer than `epoch`. If the leader does not have this epoch of the follower, the leader's next answer requires
    another cut."""
    found_epoch, own_end_offset = epochs.end_offset_for(epoch, log_end_offset)
    if found_epoch == UNDEFINED_EPOCH:
        own_end_offset = log_end_offset
    return max(0, min(end_offset, own_end_offset, log_end_offset))


class GoOn(NamedTuple):
    """The offset at which a follower's log continues. If `restarts` is set, all records are removed, and the log
    begins again at this offset. Otherwise the log is cut to this offset."""

    offset: int
    restarts: bool


def go_on_at(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> GoOn | None:
    """Returns the offset at which a follower's log continues, if the leader has no record at the follower's log end
    offset. Returns None if the leader's log contains this offset now.

    If the leader's log ends earlier, the leader was elected without being in sync. If the leader's log starts later,
    the leader has already deleted the records that the follower needs next."""
    if leader_end_offset < log_end_offset:
        return GoOn(leader_end_offset, restarts=False)
    if leader_start_offset > log_end_offset:
        return GoOn(leader_start_offset, restarts=True)
    return None
