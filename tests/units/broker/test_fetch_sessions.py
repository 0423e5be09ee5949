"""Fetch sessions: the rules of ids and epochs, the partitions in each answer, and the sessions that are replaced in a
full cache."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jesenska.base import limits
from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.broker.fetching import fetch_sessions
from jesenska.broker.fetching.fetch_sessions import (
    EVICTION_MS,
    FetchSession,
    FetchSessions,
    SessionPartition,
    next_epoch,
)
from jesenska.replication.partition import Partition
from jesenska.replication.replicas import Replicas
from jesenska.wire.messages.k01_fetch import (
    FetchRequestForgottenTopicsData,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from tests.profiles import examples

TOPIC = "t"


def cache(slots: int = 1000, ids: Sequence[int] = ()) -> FetchSessions:
    given, further = iter(ids), count(100)
    return FetchSessions(slots, lambda: next(given, None) or next(further))


def parts(size: int) -> list[tuple[str, uuid.UUID, SessionPartition]]:
    return [(TOPIC, NO_UUID, SessionPartition(index, 0, -1, 1000)) for index in range(size)]


def begun(sessions: FetchSessions, size: int, now_ms: int = 0, *, is_follower: bool = False) -> FetchSession | None:
    return sessions.create(parts(size), is_follower, False, now_ms)


def created(sessions: FetchSessions, size: int, now_ms: int = 0, *, is_follower: bool = False) -> FetchSession:
    session = begun(sessions, size, now_ms, is_follower=is_follower)
    assert session is not None
    return session


def ready_offsets(session: FetchSession) -> list[tuple[int, int]]:
    """Returns the partitions and offsets of the next answer."""
    return [(part.index, part.fetch_offset) for part in session.ready()]


def wanted(*indexes: int, topic: str = TOPIC) -> list[FetchRequestTopic]:
    return [
        FetchRequestTopic(
            topic=topic,
            partitions=[FetchRequestPartition(partition=index, partition_max_bytes=1000) for index in indexes],
        )
    ]


def forgotten(*indexes: int) -> list[FetchRequestForgottenTopicsData]:
    return [FetchRequestForgottenTopicsData(topic=TOPIC, partitions=list(indexes))]


# --- how long a request may wait -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("has_more", "waits_ms"), [(True, [1, 1, 40, 499, 500, 500]), (False, [500] * 6)])
def test_who_lets_go_of_what_it_has_not_read_is_answered_sooner_for_a_while(
    has_more: bool, waits_ms: list[int]
) -> None:
    sessions = cache()
    session = created(sessions, 2)
    assert session.patience_ms(500, 1000) == 500
    session.held(TOPIC, NO_UUID, 1).has_more = has_more
    assert sessions.proceed(session.session_id, 1, False, wanted(0), forgotten(1), 1000) is session
    assert [session.patience_ms(500, 1000 + passed) for passed in (0, 1, 40, 499, 500, 9000)] == waits_ms
    assert session.patience_ms(0, 1040) == 0


# --- ids and epochs --------------------------------------------------------------------------------------------------


def test_a_session_goes_on_epoch_by_epoch() -> None:
    sessions = cache()
    session = created(sessions, 2)
    assert session.epoch == 1
    for epoch in (1, 2, 3):
        assert sessions.proceed(session.session_id, epoch, False, [], [], 0) is session
    assert sessions.proceed(session.session_id, 3, False, [], [], 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.proceed(session.session_id, 5, False, [], [], 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.proceed(session.session_id, 4, False, [], [], 0) is session


def test_the_epoch_after_the_last_is_one() -> None:
    sessions = cache()
    session = created(sessions, 1)
    session.epoch = 2**31 - 1
    assert sessions.proceed(session.session_id, 2**31 - 1, False, [], [], 0) is session
    assert session.epoch == 1


def test_an_unknown_or_ended_session_is_not_found() -> None:
    sessions = cache()
    session = created(sessions, 1)
    assert sessions.proceed(session.session_id + 1, 1, False, [], [], 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    sessions.end(session.session_id)
    assert session.closed
    assert sessions.proceed(session.session_id, 1, False, [], [], 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix() -> None:
    sessions = cache()
    session = created(sessions, 1)
    assert sessions.proceed(session.session_id, 1, True, [], [], 0) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert session.epoch == 1


def test_ids_are_never_zero_and_never_given_twice() -> None:
    sessions = cache(ids=[7, 7, 7, 8, 7, 8, 9])
    assert [created(sessions, 1).session_id for _ in range(3)] == [7, 8, 9]


def test_a_partition_that_a_request_names_twice_is_held_once_as_it_was_named_last() -> None:
    sessions = cache()
    twice = [(TOPIC, NO_UUID, SessionPartition(0, offset, -1, 1000)) for offset in (3, 5)]
    session = sessions.create([*twice, (TOPIC, NO_UUID, SessionPartition(1, 7, -1, 1000))], False, False, 0)
    assert session is not None
    assert (session.size, ready_offsets(session)) == (2, [(0, 5), (1, 7)])


def test_in_a_session_with_topic_ids_partitions_are_wanted_and_forgotten_by_id() -> None:
    sessions = cache()
    first, second, third = (uuid.UUID(int=number) for number in (1, 2, 3))
    session = sessions.create(
        [("", topic_id, SessionPartition(0, 0, -1, 1000)) for topic_id in (first, second)], False, True, 0
    )
    assert session is not None
    more = [
        FetchRequestTopic(topic_id=topic_id, partitions=[FetchRequestPartition(partition=4, partition_max_bytes=1000)])
        for topic_id in (second, third)
    ]
    gone = [FetchRequestForgottenTopicsData(topic_id=first, partitions=[0])]
    assert sessions.proceed(session.session_id, 1, True, more, gone, 0) is session
    assert [(part.topic_id, part.index) for part in session.partitions()] == [(second, 0), (second, 4), (third, 4)]


def test_a_session_that_has_forgotten_everything_ends() -> None:
    sessions = cache()
    session = created(sessions, 2)
    assert sessions.proceed(session.session_id, 1, False, [], forgotten(0, 1), 0) is session
    assert session.closed
    assert len(sessions) == sessions.partitions == 0


# --- the cache -------------------------------------------------------------------------------------------------------


def test_a_full_cache_gives_no_session_to_a_newcomer_of_the_same_time() -> None:
    sessions = cache(2)
    created(sessions, 1)
    created(sessions, 1)
    assert begun(sessions, 50) is None
    assert len(sessions) == 2


def test_a_session_unused_for_two_minutes_gives_way_to_any() -> None:
    sessions = cache(2)
    old, kept = created(sessions, 50), created(sessions, 50)
    assert sessions.proceed(kept.session_id, 1, False, [], [], EVICTION_MS) is kept
    assert begun(sessions, 1, EVICTION_MS) is None
    assert begun(sessions, 1, EVICTION_MS + 1) is not None
    assert old.closed
    assert not kept.closed


def test_after_two_minutes_the_smallest_gives_way_to_a_larger_one_only() -> None:
    sessions = cache(2)
    small, large = created(sessions, 3), created(sessions, 10)
    now_ms = EVICTION_MS + 1
    for session in (small, large):
        assert sessions.proceed(session.session_id, 1, False, [], [], now_ms) is session
    assert begun(sessions, 3, now_ms) is None
    assert begun(sessions, 4, now_ms) is not None
    assert small.closed
    assert not large.closed


def test_a_session_is_weighed_by_what_it_has_now() -> None:
    sessions = cache(2)
    grows, stays = created(sessions, 1), created(sessions, 3)
    now_ms = EVICTION_MS + 1
    assert sessions.proceed(stays.session_id, 1, False, [], [], now_ms) is stays
    assert sessions.proceed(grows.session_id, 1, False, wanted(1, 2, 3, 4), [], now_ms) is grows
    assert begun(sessions, 4, now_ms) is not None
    assert stays.closed
    assert not grows.closed


def test_followers_replace_consumers_at_once_and_never_the_reverse() -> None:
    sessions = cache(2)
    consumer, follower = created(sessions, 100), created(sessions, 1, is_follower=True)
    assert begun(sessions, 1, is_follower=True) is not None
    assert consumer.closed
    assert begun(sessions, 100, EVICTION_MS // 2) is None
    now_ms = EVICTION_MS + 1
    assert sessions.proceed(follower.session_id, 1, False, [], [], now_ms) is follower
    created(sessions, 1, now_ms)  # takes the place of the follower's that was not used
    assert not follower.closed
    assert begun(sessions, 100, now_ms) is None


def test_a_session_that_has_ended_is_none_of_those_that_can_give_way() -> None:
    sessions = cache(2)
    ended, large = created(sessions, 1), created(sessions, 5)
    sessions.end(ended.session_id)
    small = created(sessions, 3)
    created(sessions, 1, is_follower=True)
    assert (small.closed, large.closed, len(sessions)) == (True, False, 2)


def test_without_slots_there_are_no_sessions() -> None:
    assert begun(cache(0), 1) is None


def test_what_sessions_hold_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits.FETCH_SESSION_PARTITIONS_MAX <= limits.FETCH_SESSIONS_PARTITIONS_MAX
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSION_PARTITIONS_MAX", 10)
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSIONS_PARTITIONS_MAX", 15)
    sessions = cache()
    assert begun(sessions, 11) is None
    first = created(sessions, 10)
    assert begun(sessions, 6) is None
    assert sessions.proceed(first.session_id, 1, False, wanted(10), [], 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert first.closed
    one, other = created(sessions, 8), created(sessions, 7)
    assert sessions.proceed(one.session_id, 1, False, [], [], 0) is one
    assert sessions.proceed(one.session_id, 2, False, wanted(8), [], 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert one.closed
    assert sessions.partitions == other.size == 7


def test_a_name_that_no_topic_can_have_is_not_kept() -> None:
    sessions = cache()
    assert sessions.create([("x" * 250, NO_UUID, SessionPartition(0, 0, -1, 1))], False, False, 0) is None
    session = created(sessions, 1)
    assert (
        sessions.proceed(session.session_id, 1, False, wanted(0, topic="x" * 250), [], 0)
        is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


# --- what a client learns --------------------------------------------------------------------------------------------


class _There:
    """A partition whose facts are set by hand."""

    def __init__(self, index: int) -> None:
        key = TopicPartition(TOPIC, index)
        self.partition = Partition(key, NO_UUID, Replicas(key, 0, (0,), 1, 30_000), lambda key: None, lambda: 0)
        self.log_start_offset = self.high_watermark = 0
        self.failure = ErrorCode.NONE

    def gets(self, records: int) -> None:
        self.high_watermark += records
        self.partition.changed()

    def answer(self, offset: int, max_records: int) -> FetchResponsePartition:
        answer = FetchResponsePartition(
            partition_index=self.partition.topic_partition.partition,
            high_watermark=-1,
            log_start_offset=-1,
            records=b"",
        )
        if self.failure is not ErrorCode.NONE:
            answer.error_code = self.failure
        elif not self.log_start_offset <= offset <= self.high_watermark:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            answer.high_watermark, answer.log_start_offset = self.high_watermark, self.log_start_offset
            answer.records = bytes(min(max_records, self.high_watermark - offset))
        return answer


_COUNT = 6
_INDEXES = st.integers(0, _COUNT - 1)


class _Client(RuleBasedStateMachine):
    """A client in a session applies the answers; after each answer it must know the same as after a full fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.there = [_There(index) for index in range(_COUNT)]
        self.woken: list[FetchSession] = []
        self.sessions = FetchSessions(1, lambda: 1, self.woken.append)
        self.session: FetchSession | None = None
        self.epoch = 0
        self.positions: dict[int, int] = {}
        #: Partitions that were moved or added since the last request, and those to be forgotten.
        self.moved: set[int] = set()
        self.to_forget: set[int] = set()
        #: Error, high watermark, log start offset as the client knows them.
        self.known: dict[int, tuple[int, int, int]] = {}

    @initialize(indexes=st.sets(_INDEXES, min_size=1), limit=st.integers(1, 20))
    def begins(self, indexes: set[int], limit: int) -> None:
        self.positions = dict.fromkeys(sorted(indexes), 0)
        self._begin(limit)

    def _begin(self, limit: int) -> None:
        found = []
        made: list[SessionPartition] = []
        left = limit
        for index, offset in self.positions.items():
            part = SessionPartition(index, offset, -1, 1000)
            part.partition = self.there[index].partition
            answer = self.there[index].answer(offset, left)
            left -= len(answer.records or b"")
            made.append(part)
            found.append((part, answer))
        self.sessions.end(1)
        self.session = self.sessions.create([(TOPIC, NO_UUID, part) for part in made], False, False, 0)
        assert self.session is not None
        for part, answer in found:
            self.session.note_answer(part, answer)
        self.epoch = 1
        self.moved, self.to_forget, self.known = set(), set(), {}
        self._apply([answer for _, answer in found])

    def _apply(self, answers: list[FetchResponsePartition]) -> None:
        for answer in answers:
            index = answer.partition_index
            self.known[index] = (answer.error_code, answer.high_watermark, answer.log_start_offset)
            if answer.records:
                self.positions[index] += len(answer.records)
                self.moved.add(index)

    @rule(index=_INDEXES, records=st.integers(1, 30))
    def records_come(self, index: int, records: int) -> None:
        self.there[index].gets(records)

    @rule(index=_INDEXES)
    def the_log_start_moves(self, index: int) -> None:
        there = self.there[index]
        if there.log_start_offset < there.high_watermark:
            there.log_start_offset += 1
            there.partition.changed()

    @rule(
        index=_INDEXES,
        failure=st.sampled_from([ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR]),
    )
    def it_fails_or_is_mended(self, index: int, failure: ErrorCode) -> None:
        self.there[index].failure = failure
        self.there[index].partition.changed()

    @rule(index=_INDEXES, back=st.integers(0, 10))
    def the_client_seeks(self, index: int, back: int) -> None:
        if index in self.positions:
            self.positions[index] = max(0, self.positions[index] - back)
            self.moved.add(index)

    @rule(index=_INDEXES)
    def the_client_wants_one_more_or_less(self, index: int) -> None:
        if index not in self.positions:
            self.positions[index] = self.there[index].log_start_offset
            self.moved.add(index)
            self.to_forget.discard(index)
        elif len(self.positions) > 1:
            del self.positions[index]
            self.moved.discard(index)
            self.to_forget.add(index)

    @rule(limit=st.integers(1, 20))
    def a_new_session_begins(self, limit: int) -> None:
        self._begin(limit)

    @rule(limit=st.sampled_from([1, 5, 1000]))
    def fetches(self, limit: int) -> None:
        topics = [
            FetchRequestTopic(
                topic=TOPIC,
                partitions=[
                    FetchRequestPartition(partition=index, fetch_offset=self.positions[index], partition_max_bytes=1000)
                    for index in self.moved
                ],
            )
        ]
        gone = [FetchRequestForgottenTopicsData(topic=TOPIC, partitions=sorted(self.to_forget))]
        session = self.sessions.proceed(1, self.epoch, False, topics, gone, 0)
        assert session is self.session is not None
        self.epoch = next_epoch(self.epoch)
        for index in self.to_forget:
            self.known.pop(index, None)
        self.moved, self.to_forget = set(), set()
        had_records = {index for index, offset in self.positions.items() if self.there[index].answer(offset, 1).records}
        told = []
        left = limit
        for part in session.ready():
            part.partition = self.there[part.index].partition
            answer = self.there[part.index].answer(part.fetch_offset, left)
            left -= len(answer.records or b"")
            if session.must_tell(part, answer):
                told.append(answer)
        self._apply(told)
        for index, offset in self.positions.items():
            if index not in self.moved:
                full = self.there[index].answer(offset, 1000)
                assert self.known[index] == (full.error_code, full.high_watermark, full.log_start_offset)
            else:
                _, high_watermark, log_start_offset = self.known[index]
                assert (high_watermark, log_start_offset) == (
                    self.there[index].high_watermark,
                    self.there[index].log_start_offset,
                )
        if limit == 1000:
            assert had_records <= self.moved, "with room for everything, all records come"
        elif had_records:
            assert had_records & self.moved, "something comes"

    @rule()
    def everyone_has_a_turn(self) -> None:
        self.fetches(1)
        hungry = {index for index, offset in self.positions.items() if self.there[index].answer(offset, 1).records}
        served: set[int] = set()
        for _ in hungry:
            self.fetches(1)
            served |= self.moved
        assert hungry <= served, "with room for one, each has its turn"

    @invariant()
    def what_is_idle_is_watched(self) -> None:
        if self.session is None:
            return
        ready = set(self.session.ready())
        for part in self.session.partitions():
            if part not in ready:
                assert part.partition is not None
                assert part in part.partition._watchers
        assert self.session.size == len(self.session.partitions())


TestClient = _Client.TestCase
TestClient.settings = settings(max_examples=examples(1.5), stateful_step_count=60)


def _all_answered(session: FetchSession, there: Sequence[_There]) -> None:
    for part in session.ready():
        part.partition = there[part.index].partition
        session.must_tell(part, there[part.index].answer(part.fetch_offset, 10))


def test_a_fetch_looks_only_at_what_has_something_new() -> None:
    there = [_There(index) for index in range(1000)]
    session = created(cache(), 1000)
    assert len(session.ready()) == 1000
    _all_answered(session, there)
    assert session.ready() == []
    there[17].gets(5)
    assert [part.index for part in session.ready()] == [17]


def test_a_session_that_ends_leaves_nothing_with_its_partitions() -> None:
    there = [_There(index) for index in range(10)]
    sessions = cache()
    session = created(sessions, 10)
    _all_answered(session, there)
    assert sessions.proceed(session.session_id, 1, False, [], forgotten(3), 0) is session
    assert [bool(item.partition._watchers) for item in there] == [index != 3 for index in range(10)]
    sessions.end(session.session_id)
    assert not any(item.partition._watchers for item in there)


def test_who_waits_in_a_session_is_woken_by_news_and_by_its_end() -> None:
    woken: list[FetchSession] = []
    sessions = FetchSessions(1, lambda: 1, woken.append)
    there = [_There(0), _There(1)]
    session = created(sessions, 2)
    _all_answered(session, there)
    wake: Callable[[], None] = there[1].partition.changed
    wake()
    assert woken == [session]
    wake()
    assert woken == [session], "once, until it has been looked at"
    sessions.end(1)
    assert len(woken) == 2


def test_a_nearer_replica_is_told_each_time_and_the_partition_is_idle_when_there_is_none() -> None:
    there = _There(0)
    session = created(cache(), 1)
    (part,) = session.ready()
    part.partition = there.partition
    for _ in range(3):
        answer = there.answer(part.fetch_offset, 10)
        answer.preferred_read_replica = 2
        assert session.must_tell(part, answer)
        assert session.ready() == [part]
    assert not session.must_tell(part, there.answer(part.fetch_offset, 10))
    assert session.ready() == []
