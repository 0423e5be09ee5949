"""A follower and its leader, with a network that the test controls. With any loss of requests and answers and any
change of leaders, the follower's log becomes its leader's, and no batch is appended twice or left out."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.log.disk.leader_epochs import LeaderEpochs
from jesenska.replication.follower.fetch_session import NEW_AT_ONCE, FollowerSession, SessionRequest, Wanted
from jesenska.replication.follower.fetcher import (
    FIRST_PAUSE_MS,
    AskWhere,
    Cut,
    Fetcher,
    FollowerState,
    PartitionAnswer,
    Position,
    Received,
    Work,
    cut_offset,
)

PAUSE_MS = 1000
KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ID = uuid.UUID(int=7)


class Log:
    """The leader epoch of each record, from `start` on; if it leads, its own epoch begins at its end at the latest."""

    def __init__(self, epochs: Sequence[int] = (), start: int = 0, leads_in: int = -1) -> None:
        self.epochs = list(epochs)
        self.start = start
        self.leads_in = leads_in

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    @property
    def table(self) -> LeaderEpochs:
        table = LeaderEpochs()
        for offset, epoch in enumerate(self.epochs, self.start):
            if epoch != table.latest_epoch:
                table.assign(epoch, offset)
        if self.leads_in > table.latest_epoch:
            table.assign(self.leads_in, self.end)
        return table

    def position(self) -> Position:
        return Position(self.end, self.start, self.epochs[-1] if self.epochs else -1)

    def from_offset(self, offset: int) -> list[int]:
        return self.epochs[offset - self.start :]

    def cut(self, offset: int) -> None:
        del self.epochs[max(0, offset - self.start) :]


def answer_of(leader: Log, wanted: Wanted, at_most: int = 3) -> PartitionAnswer:
    """Returns a leader's answer about a partition; its records are the bytes of their epochs."""
    if not leader.start <= wanted.offset <= leader.end:
        return PartitionAnswer(wanted.topic_partition, ErrorCode.OFFSET_OUT_OF_RANGE, -1, leader.start, None, None)
    if wanted.last_epoch >= 0:
        epoch, end = leader.table.end_offset_for(wanted.last_epoch, leader.end)
        if epoch >= 0 and (epoch < wanted.last_epoch or end < wanted.offset):
            return PartitionAnswer(wanted.topic_partition, 0, leader.end, leader.start, (epoch, end), None)
    return PartitionAnswer(
        wanted.topic_partition, 0, leader.end, leader.start, None, bytes(leader.from_offset(wanted.offset)[:at_most])
    )


def carry_out(work: Work, log: Log, leader: Log) -> None:
    """Carries out a follower's work on its log."""
    if isinstance(work, Received):
        assert isinstance(work.records, bytes | None)
        log.epochs += list(work.records or b"")
    elif isinstance(work, Cut):
        log.cut(cut_offset(log.table, log.end, work.epoch, work.end_offset))
    elif log.end > leader.end:
        log.cut(leader.end)
    else:
        log.epochs, log.start = [], leader.start


_HISTORIES = st.lists(st.integers(0, 6), max_size=12).map(sorted)


@given(shared=_HISTORIES, mine=_HISTORIES, theirs=_HISTORIES)
def test_a_log_is_cut_until_it_is_a_beginning_of_the_leaders(
    shared: list[int], mine: list[int], theirs: list[int]
) -> None:
    """For any records beyond the shared ones, no epoch was written by two leaders."""
    last = shared[-1] if shared else 0
    leader = Log(shared + [last + 2 * epoch + 2 for epoch in theirs], leads_in=99)
    follower = Log(shared + [last + 2 * epoch + 1 for epoch in mine])
    following, rounds = Fetcher(PAUSE_MS), 0
    following.follow(KEY, ID, 99, follower.position())
    while follower.epochs != leader.epochs or follower.end != leader.end:
        rounds += 1
        assert rounds < 60
        request = following.next_request(0)
        assert request is not None
        for work in following.answered(0, 5, [answer_of(leader, wanted) for wanted in request.wanted], 0):
            if isinstance(work, Cut):
                before = follower.end
                carry_out(work, follower, leader)
                assert len(shared) <= follower.end < before
            else:
                carry_out(work, follower, leader)
        following.done(KEY, 99, follower.position())


class Limit:
    """A throttle of one partition, which a test exceeds."""

    def __init__(self, exceeded: bool = False) -> None:
        self.is_active = True
        self.exceeded = exceeded
        self.recorded_bytes = 0

    def applies_to(self, topic: str, partition: int) -> bool:
        return (topic, partition) == KEY

    def is_exceeded(self, now_ms: int) -> bool:
        return self.exceeded

    def record(self, size_bytes: int, now_ms: int) -> None:
        self.recorded_bytes += size_bytes

    def wait_ms(self, now_ms: int) -> int:
        return 400 if self.exceeded else 0


class Replicating(RuleBasedStateMachine):
    """A partition whose leader's log changes hands, while requests and answers are lost or late, and its throttle is
    exceeded at times, and another partition in the same session."""

    @initialize()
    def begin(self) -> None:
        self.leader, self.log, self.now_ms, self.epoch = Log(leads_in=1), Log(), 0, 1
        self.limit = Limit()
        self.following = Fetcher(PAUSE_MS, self.limit)
        self.following.follow(KEY, ID, self.epoch, self.log.position())
        # It has no writers: there is a request to send even if the other partition wants nothing.
        self.following.follow(OTHER, ID, 1, Position(0, 0, -1))
        self.session = 0
        self.request: SessionRequest | None = None
        self.held: dict[TopicPartition, Wanted] = {}
        self.work: list[Work] = []

    @rule(count=st.integers(1, 5))
    def leader_appends(self, count: int) -> None:
        self.leader.epochs += [self.epoch] * count

    @rule(kept=st.integers(0, 30))
    def another_leads(self, kept: int) -> None:
        """Another leader is elected that lacks the end of the log after `kept`."""
        self.leader.cut(min(self.leader.end, kept))
        self.epoch += 1
        self.leader.leads_in = self.epoch
        if self.epoch < 250:
            self.following.follow(KEY, ID, self.epoch, self.log.position())
        self.work = []

    @rule(gone=st.integers(1, 6))
    def leader_deletes_old_records(self, gone: int) -> None:
        gone = min(gone, len(self.leader.epochs))
        del self.leader.epochs[:gone]
        self.leader.start += gone

    @precondition(lambda self: self.request is None)
    @rule()
    def ask(self) -> None:
        self.request = self.following.next_request(self.now_ms)
        if self.request is None:
            return
        assert self.request.session_id == self.session
        assert not {wanted.topic_partition for wanted in self.request.wanted} & {
            key for key, _ in self.request.forgotten
        }
        if self.request.session_epoch == 0:
            self.held = {}
        self.held.update({wanted.topic_partition: wanted for wanted in self.request.wanted})
        for key, _ in self.request.forgotten:
            del self.held[key]

    @precondition(lambda self: self.request is not None)
    @rule(fenced=st.booleans())
    def answer(self, fenced: bool) -> None:
        self.session = 5
        answers = []
        for wanted in self.held.values():
            if wanted.topic_partition == OTHER:
                continue
            if fenced or wanted.leader_epoch != self.epoch:
                answers.append(
                    PartitionAnswer(wanted.topic_partition, ErrorCode.FENCED_LEADER_EPOCH, -1, -1, None, None)
                )
            else:
                answers.append(answer_of(self.leader, wanted))
        self.request = None
        self.work += self.following.answered(0, 5, answers, self.now_ms)

    @precondition(lambda self: self.request is not None)
    @rule(refused=st.booleans())
    def lose_the_session(self, refused: bool) -> None:
        self.request, self.session, self.held = None, 0, {}
        if refused:
            assert self.following.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [], self.now_ms) == []
        else:
            self.following.lost()

    @precondition(lambda self: bool(self.work))
    @rule(fails=st.booleans())
    def carry_out(self, fails: bool) -> None:
        work = self.work.pop(0)
        assert isinstance(work, Received | Cut | AskWhere)
        if fails:
            self.following.failed(KEY, work.leader_epoch, self.log.position(), self.now_ms)
            return
        carry_out(work, self.log, self.leader)
        self.following.done(KEY, work.leader_epoch, self.log.position())

    @rule(exceeded=st.booleans())
    def traffic_changes(self, exceeded: bool) -> None:
        self.limit.exceeded = exceeded

    @rule()
    def time_passes(self) -> None:
        self.now_ms += PAUSE_MS

    @invariant()
    def works_on_one_thing(self) -> None:
        if hasattr(self, "work"):
            assert len(self.work) <= 1
            assert bool(self.work) <= self.following.is_at_work

    def teardown(self) -> None:
        """When no more messages are lost, the log becomes the leader's."""
        if not hasattr(self, "following") or self.epoch >= 250:
            return
        self.limit.exceeded = False
        if self.request is not None:
            self.lose_the_session(refused=False)
        for _ in range(200):
            while self.work:
                self.carry_out(fails=False)
            start = max(self.log.start, self.leader.start)
            if self.log.end == self.leader.end and self.log.epochs[start - self.log.start :] == self.leader.from_offset(
                start
            ):
                return
            self.time_passes()
            self.ask()
            if self.request is not None:
                self.answer(fenced=False)
        raise AssertionError(
            f"the log {self.log.epochs} from {self.log.start} does not become {self.leader.epochs} from "
            f"{self.leader.start}"
        )


TestReplicating = Replicating.TestCase


def _position(end_offset: int = 0) -> Position:
    return Position(end_offset, 0, -1)


def test_what_is_being_worked_on_is_forgotten_by_the_leader_meanwhile_and_asked_for_again() -> None:
    following = Fetcher(PAUSE_MS)
    for key in (KEY, OTHER):
        following.follow(key, ID, 1, _position())
    assert following.next_request(0) is not None
    work = following.answered(0, 5, [PartitionAnswer(KEY, 0, 1, 0, None, b"\1")], 0)
    assert work == [Received(KEY, 1, b"\1", 1, 0)]
    assert following.next_request(0) == SessionRequest(5, 1, (), ((KEY, ID),))
    following.answered(0, 5, [], 0)
    following.done(KEY, 1, _position(1))
    assert following.next_request(0) == SessionRequest(5, 2, (Wanted(KEY, ID, 1, 1, 0, -1),), ())


@pytest.mark.parametrize(("topic_id", "leader_epoch", "end_offset"), [(ID, 2, 0), (ID, 1, 1), (uuid.UUID(int=8), 1, 0)])
def test_an_answer_about_what_a_partition_was_before_is_for_nobody(
    topic_id: uuid.UUID, leader_epoch: int, end_offset: int
) -> None:
    following = Fetcher(PAUSE_MS)
    following.follow(KEY, ID, 1, _position())
    following.next_request(0)
    following.follow(KEY, topic_id, leader_epoch, _position(end_offset))
    assert following.answered(0, 5, [PartitionAnswer(KEY, 0, 1, 0, None, b"\1")], 0) == []


def test_work_of_an_older_epoch_that_ends_late_changes_nothing() -> None:
    following = Fetcher(PAUSE_MS)
    for leader_epoch in (1, 2):
        following.follow(KEY, ID, leader_epoch, _position())
        following.next_request(0)
        following.answered(0, 5, [PartitionAnswer(KEY, 0, 1, 0, None, b"\1")], 0)
    following.done(KEY, 1, _position(1))
    assert following.state(KEY) is FollowerState.WORKING
    following.failed(KEY, 1, _position(1), 0)
    assert following.is_at_work


@pytest.mark.parametrize(
    "error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_after_an_error_a_partition_is_left_alone_for_a_while(error: ErrorCode) -> None:
    following = Fetcher(PAUSE_MS)
    following.follow(KEY, ID, 1, _position())
    following.next_request(0)
    assert following.answered(0, 5, [PartitionAnswer(KEY, error, -1, -1, None, None)], 0) == []
    assert following.state(KEY) is FollowerState.PAUSED
    assert following.next_request(PAUSE_MS - 1) is None
    assert following.resumes_at_ms == PAUSE_MS
    # The leader has it in its session, but has not noted the follower's position: it is sent once more.
    request = following.next_request(PAUSE_MS)
    assert request is not None
    assert request.wanted == (Wanted(KEY, ID, 1, *_position()),)
    assert following.state(KEY) is FollowerState.FETCHING


def test_a_pause_of_an_older_epoch_does_not_end_the_one_of_this_epoch() -> None:
    following = Fetcher(PAUSE_MS)
    for leader_epoch, now_ms in ((1, 0), (2, 500)):
        following.follow(KEY, ID, leader_epoch, _position())
        following.next_request(now_ms)
        following.answered(0, 5, [PartitionAnswer(KEY, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, None, None)], now_ms)
    assert following.next_request(PAUSE_MS) is None
    assert following.state(KEY) is FollowerState.PAUSED
    assert following.next_request(500 + PAUSE_MS) is not None


def test_a_pause_of_what_is_followed_no_more_ends_without_a_trace() -> None:
    following = Fetcher(PAUSE_MS)
    following.follow(KEY, ID, 1, _position())
    following.next_request(0)
    following.answered(0, 5, [PartitionAnswer(KEY, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, None, None)], 0)
    following.leave(KEY)
    assert following.next_request(PAUSE_MS) is None
    assert (following.resumes_at_ms, len(following)) == (None, 0)


def _refusals(following: Fetcher, error: ErrorCode, now_ms: int, count: int) -> list[int]:
    """The pause of the follower after each refusal, in a series of this length."""
    pauses = []
    for _ in range(count):
        assert following.next_request(now_ms) is not None
        assert following.answered(0, 5, [PartitionAnswer(KEY, error, -1, -1, None, None)], now_ms) == []
        resumes_at_ms = following.resumes_at_ms
        assert resumes_at_ms is not None
        assert following.next_request(resumes_at_ms - 1) is None
        pauses.append(resumes_at_ms - now_ms)
        now_ms = resumes_at_ms
    return pauses


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_a_leader_that_does_not_know_yet_that_it_leads_is_asked_again_soon_and_then_ever_less_often(
    error: ErrorCode,
) -> None:
    following = Fetcher(PAUSE_MS)
    following.follow(KEY, ID, 1, _position())
    longer = [FIRST_PAUSE_MS * 2**number for number in range(6)]
    assert _refusals(following, error, 0, 8) == [*longer, PAUSE_MS, PAUSE_MS]
    # When it leads, and then does not, it begins again; so it does with another epoch.
    resumes_at_ms = following.resumes_at_ms
    assert resumes_at_ms is not None
    following.next_request(resumes_at_ms)
    following.answered(0, 5, [PartitionAnswer(KEY, 0, 1, 0, None, b"\1")], resumes_at_ms)
    following.done(KEY, 1, _position(1))
    assert _refusals(following, error, resumes_at_ms, 2) == longer[:2]
    following.follow(KEY, ID, 2, _position(1))
    assert _refusals(following, error, 9 * PAUSE_MS, 2) == longer[:2]


def test_no_pause_is_longer_than_the_one_that_is_configured() -> None:
    following = Fetcher(FIRST_PAUSE_MS // 2)
    following.follow(KEY, ID, 1, _position())
    assert _refusals(following, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 40) == [FIRST_PAUSE_MS // 2] * 40


def test_where_a_log_starts_by_now_is_said_once_and_nothing_else_changes() -> None:
    following = Fetcher(PAUSE_MS)
    following.follow(KEY, ID, 1, Position(9, 0, 1))
    following.next_request(0)
    following.answered(0, 5, [], 0)
    following.log_starts_at(OTHER, 4)  # not followed here
    following.log_starts_at(KEY, 4)
    assert following.next_request(0) == SessionRequest(5, 1, (Wanted(KEY, ID, 1, 9, 4, 1),), ())
    # The answer to that is about the log as it is.
    (work,) = following.answered(0, 5, [PartitionAnswer(KEY, 0, 10, 0, None, b"\1")], 0)
    assert isinstance(work, Received)
    # A partition with an append under way, or with a pause, sends it when it is requested again.
    following.log_starts_at(KEY, 5)
    assert following.next_request(0) is None
    following.failed(KEY, 1, Position(9, 5, 1), 0)
    following.log_starts_at(KEY, 6)
    assert following.next_request(PAUSE_MS) == SessionRequest(5, 2, (Wanted(KEY, ID, 1, 9, 6, 1),), ())


def test_a_partition_of_another_topic_of_that_name_is_forgotten_and_asked_for() -> None:
    session, other_id = FollowerSession(), uuid.UUID(int=8)
    session.want(Wanted(KEY, ID, 1, 0, 0, -1))
    session.request()
    session.answered(0, 5)
    session.want(Wanted(KEY, other_id, 1, 0, 0, -1))
    assert session.request() == SessionRequest(5, 1, (Wanted(KEY, other_id, 1, 0, 0, -1),), ((KEY, ID),))


def test_a_leader_without_room_for_a_session_is_told_everything_each_time() -> None:
    session, wanted = FollowerSession(), Wanted(KEY, ID, 1, 0, 0, -1)
    session.want(wanted)
    for _ in range(3):
        assert session.request() == SessionRequest(0, 0, (wanted,), ())
        assert session.answered(0, 0)


def test_partitions_that_the_leader_does_not_know_are_named_so_many_at_a_time() -> None:
    keys = [TopicPartition("t", number) for number in range(2 * NEW_AT_ONCE + 1)]
    session = FollowerSession()
    for key in keys:
        session.want(Wanted(key, ID, 1, 0, 0, -1))
    first = session.request()
    assert ([one.topic_partition for one in first.wanted], first.has_more) == (keys[:NEW_AT_ONCE], True)
    session.answered(0, 9)
    # Changes of known partitions are sent at once.
    session.want(Wanted(keys[0], ID, 1, 5, 0, 1))
    second = session.request()
    assert ({one.topic_partition for one in second.wanted}, second.has_more) == (
        {keys[0], *keys[NEW_AT_ONCE : 2 * NEW_AT_ONCE]},
        True,
    )
    session.answered(0, 9)
    third = session.request()
    assert ([one.topic_partition for one in third.wanted], third.has_more) == (keys[-1:], False)
    session.answered(0, 9)
    assert session.request().wanted == ()


def test_a_leader_that_keeps_no_session_is_told_of_many_partitions_in_one_request() -> None:
    keys = [TopicPartition("t", number) for number in range(NEW_AT_ONCE + 1)]
    session = FollowerSession()
    for key in keys:
        session.want(Wanted(key, ID, 1, 0, 0, -1))
    assert session.request().has_more
    session.answered(0, 0)
    alone = session.request()
    assert ([one.topic_partition for one in alone.wanted], alone.has_more) == (keys, False)


def test_a_leader_that_kept_no_session_is_asked_for_one_when_the_connection_is_new() -> None:
    keys = [TopicPartition("t", number) for number in range(NEW_AT_ONCE + 1)]
    session = FollowerSession()
    for key in keys:
        session.want(Wanted(key, ID, 1, 0, 0, -1))
    session.request()
    session.answered(0, 0)
    session.lost()
    first = session.request()
    assert ([one.topic_partition for one in first.wanted], first.has_more) == (keys[:NEW_AT_ONCE], True)


def test_the_epoch_of_a_session_begins_again_at_one() -> None:
    session = FollowerSession()
    session.want(Wanted(KEY, ID, 1, 0, 0, -1))
    session.request()
    session.answered(0, 5)
    session._epoch = 2**31 - 1
    assert session.request().session_epoch == 2**31 - 1
    session.answered(0, 5)
    assert session.request().session_epoch == 1


def _asked(following: Fetcher, now_ms: int) -> list[TopicPartition]:
    """The partitions of the next request."""
    request = following.next_request(now_ms)
    return [] if request is None else [wanted.topic_partition for wanted in request.wanted]


def test_a_throttled_partition_is_not_requested_while_the_limit_is_exceeded() -> None:
    limit = Limit(exceeded=True)
    following = Fetcher(PAUSE_MS, limit)
    for key in (KEY, OTHER):
        following.follow(key, ID, 1, _position())
    assert _asked(following, 0) == [OTHER]
    assert following.state(KEY) is FollowerState.THROTTLED
    assert following.resumes_at_ms == 400
    following.answered(0, 5, [], 0)
    limit.exceeded = False
    assert _asked(following, 400) == [KEY]
    assert following.state(KEY) is FollowerState.FETCHING
    assert following.resumes_at_ms is None


def test_a_replica_in_sync_is_requested_although_the_limit_is_exceeded() -> None:
    limit = Limit()
    following = Fetcher(PAUSE_MS, limit)
    following.follow(KEY, ID, 1, _position())
    assert _asked(following, 0) == [KEY]
    following.answered(0, 5, [PartitionAnswer(KEY, 0, 3, 0, None, b"123")], 0)
    assert limit.recorded_bytes == 3
    limit.exceeded = True
    following.done(KEY, 1, _position(3))
    assert _asked(following, 0) == [KEY]
    # Three more records are committed without this follower.
    following.answered(0, 5, [PartitionAnswer(KEY, 0, 6, 0, None, b"4")], 0)
    following.done(KEY, 1, _position(4))
    assert _asked(following, 0) == []
    assert following.state(KEY) is FollowerState.THROTTLED


def test_a_throttled_partition_that_is_not_followed_any_more_is_forgotten() -> None:
    limit = Limit(exceeded=True)
    following = Fetcher(PAUSE_MS, limit)
    following.follow(KEY, ID, 1, _position())
    assert _asked(following, 0) == []
    following.leave(KEY)
    limit.exceeded = False
    assert _asked(following, 400) == []
    assert following.resumes_at_ms is None
