"""Decides how a follower handles the partitions that one other broker leads: its requests, and the work after the
answers. A decider: it knows no log, no socket and no clock; times are milliseconds of a monotonic clock.

    state      means                                       becomes
    FETCHING   records are requested                       WORKING, when an answer has something for it
                                                           PAUSED, when the leader answers an error
    WORKING    its log is being appended to or cut; it     FETCHING, when that is done (`done`)
               is requested again when that is done        PAUSED, when it has failed (`failed`)
    PAUSED     it is not requested for a while             FETCHING, when the pause is over

A pause lasts replica.fetch.backoff.ms. The controller informs each broker separately, so a leader may not know yet
that it leads. Then the first pause lasts FIRST_PAUSE_MS and each later one twice as long, up to that limit: a leader
whose followers do not fetch cannot acknowledge writes with acks=all.

An answer has for a partition

    records, or moved offsets    `Received`: to be appended, then `done` with the new position of the log
    a diverging epoch            `Cut`: the log has records that the leader's has not; cut to `cut_offset`, then `done`
    OFFSET_OUT_OF_RANGE          `AskWhere`: the leader is asked for its log start and end offsets; then the log is cut
                                 to its end, or restarted at its start (`go_on_at`), and `done`
    another error                nothing; it is requested again later. The controller reports a new leader

An answer to a request that was sent before the partition got another leader epoch, or was left, is ignored: only
answers for the followed epoch count. Sources: KIP-101, KIP-279, KIP-392, KIP-595 (diverging epochs in Fetch)."""

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
from jesenska.replication.follower.fetch_session import FollowerSession, SessionRequest, Wanted
from jesenska.wire.language import Records

#: First pause for a leader that does not know yet that it leads.
FIRST_PAUSE_MS = 20
_NOT_LED_YET = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
)


class Position(NamedTuple):
    """The position of a follower's log: its end, its start, the epoch of its last batch (-1: it has none)."""

    end_offset: int
    log_start_offset: int
    last_epoch: int


class FollowerState(Enum):
    FETCHING = "fetching"
    WORKING = "working"
    PAUSED = "paused"


class PartitionAnswer(NamedTuple):
    """A leader's answer about a partition; `diverging` is the epoch and the end offset from which on the logs may
    differ, or None."""

    topic_partition: TopicPartition
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int] | None
    records: Records


class Received(NamedTuple):
    """Work: append these records, if there are any, then take over the leader's offsets."""

    topic_partition: TopicPartition
    leader_epoch: int
    records: Records
    high_watermark: int
    log_start_offset: int


class Cut(NamedTuple):
    """Work: cut the log. `epoch` is the leader's newest epoch that is not newer than the log's last epoch, and
    `end_offset` is where it ends on the leader."""

    topic_partition: TopicPartition
    leader_epoch: int
    epoch: int
    end_offset: int


class AskWhere(NamedTuple):
    """Work: ask the leader for its log start and end offsets, because it has no records at the requested offset."""

    topic_partition: TopicPartition
    leader_epoch: int


Work = Received | Cut | AskWhere


class _Followed:
    """A partition that is followed."""

    __slots__ = ("leader_epoch", "position", "refusals", "state", "topic_id")

    def __init__(self, topic_id: uuid.UUID, leader_epoch: int, position: Position) -> None:
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.position = position
        self.state = FollowerState.FETCHING
        #: Number of consecutive answers in which the leader has denied its leadership.
        self.refusals = 0


class Fetcher:
    """The partitions that this broker follows from one other broker."""

    def __init__(self, pause_ms: int) -> None:
        """`pause_ms` is replica.fetch.backoff.ms."""
        self._pause_ms = pause_ms
        self._backoff = Backoff(FIRST_PAUSE_MS / 1000, pause_ms / 1000)
        self._session = FollowerSession()
        self._followed: dict[TopicPartition, _Followed] = {}
        #: Ends of the pauses; some partitions may have been left, or continue already.
        self._pauses: list[tuple[int, TopicPartition, int]] = []
        self._working: dict[TopicPartition, None] = {}

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
        """Follows a partition in this epoch from the position of its log; replaces an older epoch."""
        followed = self._followed[topic_partition] = _Followed(topic_id, leader_epoch, position)
        self._working.pop(topic_partition, None)
        self._want(topic_partition, followed)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Ends the following of a partition."""
        if self._followed.pop(topic_partition, None) is not None:
            self._working.pop(topic_partition, None)
            self._session.drop(topic_partition)

    def _want(self, topic_partition: TopicPartition, followed: _Followed) -> None:
        followed.state = FollowerState.FETCHING
        end_offset, log_start_offset, last_epoch = followed.position
        self._session.want(
            Wanted(topic_partition, followed.topic_id, followed.leader_epoch, end_offset, log_start_offset, last_epoch)
        )

    def _pause(self, topic_partition: TopicPartition, followed: _Followed, pause_ms: int, now_ms: int) -> None:
        followed.state = FollowerState.PAUSED
        self._session.drop(topic_partition)
        heapq.heappush(self._pauses, (now_ms + pause_ms, topic_partition, followed.leader_epoch))

    def _pause_ms_after(self, error_code: int, followed: _Followed) -> int:
        """Returns the time for which nothing is requested after an error."""
        if error_code not in _NOT_LED_YET:
            return self._pause_ms
        followed.refusals += 1
        return self._backoff.milliseconds(followed.refusals)

    # --- requests and answers ----------------------------------------------------------------------------------------

    @property
    def resumes_at_ms(self) -> int | None:
        """The time at which a paused partition is to be requested again; None if there is no paused one."""
        return self._pauses[0][0] if self._pauses else None

    @property
    def is_at_work(self) -> bool:
        """True while received work is being appended or cut."""
        return bool(self._working)

    def next_request(self, now_ms: int) -> SessionRequest | None:
        """Returns the content of the next request; None while nothing is wanted. Partitions with pending work are left
        out: the leader is asked to forget them until it is done."""
        while self._pauses and self._pauses[0][0] <= now_ms:
            _, topic_partition, leader_epoch = heapq.heappop(self._pauses)
            followed = self._followed.get(topic_partition)
            if (
                followed is not None
                and followed.state is FollowerState.PAUSED
                and followed.leader_epoch == leader_epoch
            ):
                self._want(topic_partition, followed)
        for topic_partition in self._working:
            self._session.drop(topic_partition)
        return None if self._session.is_empty else self._session.request()

    def answered(self, error_code: int, session_id: int, answers: Iterable[PartitionAnswer], now_ms: int) -> list[Work]:
        """Returns the work for the answer to the last request."""
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
            self._working[topic_partition] = None
            work.append(found)
        return work

    def _was_asked(self, topic_partition: TopicPartition, followed: _Followed) -> bool:
        """True if an answer to the last request is about the partition as it is followed now, and its present log
        end."""
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
        """Handles the end of the connection, or a request without an answer."""
        self._session.lost()

    def log_starts_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Takes a new log start offset, moved by the log's own retention or the leader's. The leader gets it with the
        next request, since it sends consumers here only for records that are here."""
        followed = self._followed.get(topic_partition)
        if followed is not None and followed.position.log_start_offset != offset:
            followed.position = followed.position._replace(log_start_offset=offset)
            if followed.state is FollowerState.FETCHING:
                self._want(topic_partition, followed)

    # --- outcomes of the work ----------------------------------------------------------------------------------------

    def done(self, topic_partition: TopicPartition, leader_epoch: int, position: Position) -> None:
        """Takes the new position of the log after the work of this epoch is done."""
        followed = self._at_work(topic_partition, leader_epoch)
        if followed is not None:
            followed.position = position
            self._want(topic_partition, followed)

    def failed(self, topic_partition: TopicPartition, leader_epoch: int, position: Position, now_ms: int) -> None:
        """Handles work that has failed; it is tried again later."""
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
    """Returns the offset to which a log is cut. `epoch` is the leader's newest epoch that is not newer than the log's
    last one, and `end_offset` is its end.

    The log agrees with the leader's at most up to there, and up to the end of its own newest epoch that is not newer.
    If the leader does not have that epoch, its answer to the next request has the next cut."""
    found_epoch, own_end_offset = epochs.end_offset_for(epoch, log_end_offset)
    if found_epoch == UNDEFINED_EPOCH:
        own_end_offset = log_end_offset
    return max(0, min(end_offset, own_end_offset, log_end_offset))


class GoOn(NamedTuple):
    """The offset at which a log continues: it is cut to it, or, if it `restarts`, restarted there."""

    offset: int
    restarts: bool


def go_on_at(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> GoOn | None:
    """Returns how a log continues whose end the leader does not have, by the leader's start and end offsets; None if
    the leader has that end by now.

    A leader whose log ends before was elected without being in sync. A leader whose log starts later has deleted the
    next records."""
    if leader_end_offset < log_end_offset:
        return GoOn(leader_end_offset, restarts=False)
    if leader_start_offset > log_end_offset:
        return GoOn(leader_start_offset, restarts=True)
    return None
