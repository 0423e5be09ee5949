"""The rules of a partition's replicas: in sync, high watermark, epochs."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jesenska.base.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.replication.replicas import Replicas

_KEY = TopicPartition("t", 0)
_LAG_MS = 10_000


def leading(
    isr: tuple[int, ...] = (1, 2, 3), *, end: int = 100, min_in_sync: int = 1, assigned: tuple[int, ...] = (1, 2, 3)
) -> Replicas:
    """Broker 1 leads in epoch 5, from now (time 0) on."""
    replicas = Replicas(_KEY, 1, assigned, min_in_sync, _LAG_MS)
    assert replicas.led_by(1, 5, isr, 0, end, 0)
    return replicas


def test_alone_everything_in_the_log_is_committed() -> None:
    assert leading((1,), assigned=(1,)).next_high_watermark(40, 100, 0) == 100


def test_a_leader_is_alone_while_nobody_else_has_or_is_to_have_a_replica() -> None:
    replicas = leading((1,), assigned=(1,))
    alone = [replicas.is_alone]
    replicas.assign((1, 2), 1)
    alone.append(replicas.is_alone)
    replicas.follower_fetched(2, 100, 100, 100, 1)
    replicas.isr_written((1, 2), 5, 1)
    replicas.assign((1,), 2)
    # Acknowledgements wait for replicas in sync.
    alone.append(replicas.is_alone)
    replicas.isr_written((1,), 5, 2)
    replicas.assign((1,), 3)
    alone.append(replicas.is_alone)
    replicas.led_by(2, 6, (1, 2), 0, 100, 4)
    alone.append(replicas.is_alone)
    assert alone == [True, False, False, True, False]


def test_a_new_leader_knows_the_high_watermark_from_where_its_epoch_began() -> None:
    replicas = leading(end=100)
    assert [replicas.knows_high_watermark(offset) for offset in (99, 100, 101)] == [False, True, True]
    assert replicas.led_by(2, 6, (1, 2), 0, 100, 1) is False
    assert replicas.knows_high_watermark(0)


def test_the_slowest_in_sync_says_what_is_committed() -> None:
    replicas = leading()
    replicas.follower_fetched(2, 90, 100, 40, 1)
    replicas.follower_fetched(3, 70, 100, 40, 1)
    assert replicas.next_high_watermark(40, 100, 1) == 70


def test_one_out_of_sync_holds_nothing_back() -> None:
    replicas = leading((1, 2))
    replicas.follower_fetched(2, 90, 100, 40, 1)
    replicas.follower_fetched(3, 10, 100, 40, 1)
    assert replicas.next_high_watermark(40, 100, 1) == 90


def test_a_follower_that_has_not_fetched_yet_holds_the_high_watermark_where_it_is() -> None:
    replicas = leading()
    replicas.follower_fetched(2, 100, 100, 40, 1)
    assert replicas.next_high_watermark(40, 100, 1) == 40


def test_what_followers_had_under_the_leader_before_counts_no_more() -> None:
    replicas = leading((1, 2))
    replicas.follower_fetched(2, 100, 100, 40, 1)
    assert replicas.led_by(2, 6, (1, 2), 0, 100, 2) is False
    assert replicas.led_by(1, 7, (1, 2), 0, 120, 3) is True
    assert replicas.next_high_watermark(40, 120, 1) == 40


def test_what_followers_had_in_the_epoch_before_counts_no_more_under_the_same_leader() -> None:
    """They may have truncated their logs in the meantime."""
    replicas = leading((1, 2))
    replicas.follower_fetched(2, 100, 100, 40, 1)
    assert replicas.led_by(1, 6, (1, 2), 0, 100, 2) is True
    assert replicas.next_high_watermark(40, 100, 1) == 40


def test_the_same_state_again_begins_nothing() -> None:
    replicas = leading((1, 2))
    replicas.follower_fetched(2, 100, 100, 40, 1)
    assert replicas.led_by(1, 5, (1, 2), 0, 120, 3) is False
    assert replicas.next_high_watermark(40, 120, 1) == 100


def test_a_state_of_an_older_epoch_changes_nothing() -> None:
    replicas = leading()
    assert replicas.led_by(2, 4, (2,), 0, 100, 1) is False
    assert (replicas.leader, replicas.leader_epoch, replicas.isr) == (1, 5, (1, 2, 3))


def test_who_has_had_the_whole_log_of_an_idle_partition_lags_from_the_next_append_on() -> None:
    replicas = leading((1, 2))
    replicas.follower_fetched(2, 100, 100, 40, 1)
    assert replicas.next_high_watermark(40, 100, 1) == 100
    late_ms = 50 * _LAG_MS
    assert not replicas.drop_lagging(100, late_ms)
    assert replicas.next_high_watermark(100, 101, late_ms) == 100
    assert not replicas.drop_lagging(101, late_ms + _LAG_MS)
    assert replicas.drop_lagging(101, late_ms + _LAG_MS + 1)
    assert replicas.proposed_isr == (1,)


def test_who_has_not_had_the_whole_log_for_too_long_is_to_leave() -> None:
    replicas = leading()
    replicas.follower_fetched(2, 100, 100, 40, _LAG_MS)
    replicas.follower_fetched(3, 99, 100, 40, _LAG_MS)
    assert not replicas.drop_lagging(101, _LAG_MS)
    assert replicas.drop_lagging(101, _LAG_MS + 1)
    assert replicas.proposed_isr == (1, 2)


def test_who_has_always_what_was_there_at_its_fetch_before_stays() -> None:
    """It never has the whole log, since records come faster than its fetches, but it is never more than one fetch
    behind."""
    replicas = leading((1, 2))
    now_ms, end = 0, 100
    for _ in range(10):
        replicas.follower_fetched(2, end - 100, end, 40, now_ms)
        now_ms, end = now_ms + _LAG_MS // 2, end + 100
        assert not replicas.drop_lagging(end, now_ms)


def test_who_fetches_and_falls_ever_further_behind_is_to_leave() -> None:
    replicas = leading((1, 2))
    for number in range(1, 4):
        replicas.follower_fetched(2, 50 + number, 100 * number, 40, number * _LAG_MS // 3)
    assert not replicas.drop_lagging(400, _LAG_MS)
    assert replicas.drop_lagging(400, _LAG_MS + 1)


def test_who_has_the_whole_log_stays_though_nothing_was_heard_of_it() -> None:
    replicas = leading((1, 2))
    replicas.follower_fetched(2, 100, 100, 40, 0)
    assert not replicas.drop_lagging(100, 100 * _LAG_MS)


def test_those_in_sync_have_their_time_from_the_beginning_of_the_leadership() -> None:
    replicas = leading()
    assert not replicas.drop_lagging(100, _LAG_MS)
    assert replicas.drop_lagging(100, _LAG_MS + 1)
    assert replicas.proposed_isr == (1,)


@pytest.mark.parametrize(
    ("offset", "high_watermark", "comes"),
    [(79, 80, False), (80, 80, True), (100, 80, True), (59, 50, False), (60, 50, True)],
)
def test_who_has_reached_the_high_watermark_and_the_start_of_the_epoch_comes_back(
    offset: int, high_watermark: int, comes: bool
) -> None:
    replicas = leading((1, 2), end=60)
    assert replicas.follower_fetched(3, offset, 100, high_watermark, 1) is comes
    assert replicas.proposed_isr == ((1, 2, 3) if comes else None)


def test_who_is_proposed_holds_the_high_watermark_back_and_does_not_count_for_acks_all() -> None:
    replicas = leading((1,), min_in_sync=2)
    replicas.follower_fetched(2, 100, 100, 100, 1)
    assert replicas.proposed_isr == (1, 2)
    assert replicas.next_high_watermark(100, 120, 1 + 2 * _LAG_MS) == 100
    with pytest.raises(NotEnoughReplicasError):
        replicas.require_in_sync()
    replicas.isr_written((1, 2), 5, 1)
    replicas.require_in_sync()


def test_who_is_to_leave_holds_the_high_watermark_back_until_the_controller_has_agreed() -> None:
    replicas = leading((1, 2))
    replicas.follower_fetched(2, 80, 100, 40, 1)
    assert replicas.drop_lagging(100, 2 * _LAG_MS)
    late_ms = 2 * _LAG_MS
    assert replicas.next_high_watermark(40, 100, late_ms) == 80
    replicas.isr_written((1,), 5, 1)
    assert replicas.next_high_watermark(80, 100, late_ms) == 100


def test_one_proposal_at_a_time_and_a_refused_one_can_be_made_again() -> None:
    replicas = leading((1, 2))
    assert replicas.follower_fetched(3, 100, 100, 40, 1)
    assert not replicas.follower_fetched(3, 100, 100, 40, 2)
    assert not replicas.drop_lagging(100, 2 * _LAG_MS)
    replicas.proposal_refused(5, 0)
    assert replicas.isr == (1, 2)
    assert replicas.follower_fetched(3, 100, 100, 40, 3)


def test_who_caught_up_while_another_was_proposed_joins_with_its_next_request() -> None:
    """The next fetch need not name the partition."""
    replicas = leading((1,), end=100)
    assert replicas.follower_fetched(2, 100, 100, 100, 1)
    assert not replicas.follower_fetched(3, 100, 100, 100, 2)
    assert not replicas.look_for_candidates({1, 2, 3}, 100, 100, 3), "one proposal at a time"
    assert replicas.isr_written((1, 2), 5, 1)
    assert not replicas.join(3, 100, 100, 100, 3), "nobody has looked for it"
    assert replicas.look_for_candidates({1, 2, 3}, 100, 100, 3)
    assert not replicas.join(2, 100, 100, 100, 4), "it is in sync"
    assert not replicas.join(3, 40, 100, 100, 4), "a session of a log that ends elsewhere"
    assert replicas.has_candidates
    assert replicas.join(3, 100, 100, 100, 4)
    assert (replicas.proposed_isr, replicas.has_candidates) == ((1, 2, 3), False)


def test_a_candidate_joins_only_if_it_still_has_everything() -> None:
    replicas = leading((1,), end=100, assigned=(1, 2))
    assert replicas.follower_fetched(2, 100, 100, 100, 1)
    assert replicas.proposal_refused(5, 0)
    assert replicas.look_for_candidates({1, 2}, 100, 100, 2)
    assert not replicas.join(2, 100, 120, 110, 3), "more is committed by now"
    assert replicas.look_for_candidates({1, 2}, 100, 100, 4)
    # It has crashed, and has come back with fewer records.
    assert not replicas.follower_fetched(2, 40, 100, 100, 5)
    assert not replicas.join(2, 40, 100, 100, 6)
    assert not replicas.look_for_candidates({1, 2}, 100, 100, 7)


def test_who_is_not_up_is_behind_or_has_not_been_heard_of_is_no_candidate() -> None:
    replicas = leading((1,), end=100)
    assert replicas.follower_fetched(2, 100, 100, 100, 1)
    assert replicas.proposal_refused(5, 0)
    replicas.follower_fetched(3, 99, 100, 100, 2)
    assert not replicas.look_for_candidates({1, 3}, 100, 100, 3)
    assert replicas.look_for_candidates({1, 2, 3}, 100, 100, 3)
    assert not replicas.join(3, 99, 100, 100, 4)
    assert replicas.join(2, 100, 100, 100, 4)
    assert replicas.proposed_isr == (1, 2)


def test_a_broker_without_a_replica_is_refused() -> None:
    with pytest.raises(NotLeaderOrFollowerError):
        leading().follower_fetched(4, 100, 100, 40, 1)


def test_a_replica_that_is_assigned_later_may_join() -> None:
    replicas = leading((1, 2))
    replicas.assign((1, 2, 4), 1)
    assert replicas.follower_fetched(4, 100, 100, 40, 1)
    with pytest.raises(NotLeaderOrFollowerError):
        replicas.follower_fetched(3, 100, 100, 40, 1)


def test_the_client_that_knows_an_older_or_a_newer_leader_is_refused() -> None:
    replicas = leading()
    replicas.require_epoch(-1)
    replicas.require_epoch(5)
    with pytest.raises(FencedLeaderEpochError):
        replicas.require_epoch(4)
    with pytest.raises(UnknownLeaderEpochError):
        replicas.require_epoch(6)
    replicas.led_by(2, 6, (2,), 0, 100, 1)
    replicas.require_epoch(6)
    with pytest.raises(FencedLeaderEpochError):
        replicas.require_epoch(5)


def test_acks_all_asks_for_replicas_in_sync() -> None:
    leading(min_in_sync=3).require_in_sync()
    with pytest.raises(NotEnoughReplicasError):
        leading((1, 2), min_in_sync=3).require_in_sync()


def test_a_follower_that_keeps_up_is_waited_for_before_it_is_in_sync() -> None:
    """Otherwise the high watermark would always be ahead of its fetches, and it would never come back."""
    replicas = leading((1,), assigned=(1, 2), end=0)
    high_watermark = end = 0
    for now_ms in range(5):
        has, end = end, end + 10
        high_watermark = replicas.next_high_watermark(high_watermark, end, now_ms)
        if replicas.follower_fetched(2, has, end, high_watermark, now_ms):
            break
    assert replicas.proposed_isr == (1, 2)


def test_fewer_in_sync_than_asked_for_commit_nothing() -> None:
    replicas = leading((1,), min_in_sync=2)
    assert replicas.next_high_watermark(40, 100, 1) == 40


def test_no_more_in_sync_are_asked_for_than_there_are_replicas() -> None:
    leading((1,), min_in_sync=2, assigned=(1,)).require_in_sync()


def test_an_old_answer_of_the_controller_changes_nothing() -> None:
    replicas = leading((1, 2))
    assert replicas.follower_fetched(3, 100, 100, 40, 1)
    assert replicas.led_by(1, 6, (1, 2), 1, 100, 2)
    assert replicas.follower_fetched(3, 100, 100, 40, 3)
    assert not replicas.proposal_refused(5, 0)
    assert not replicas.isr_written((1, 2, 3), 5, 1)
    assert not replicas.led_by(1, 6, (1,), 1, 100, 4)
    assert (replicas.isr, replicas.proposed_isr) == ((1, 2), (1, 2, 3))


def test_nobody_comes_back_while_the_leader_has_no_log() -> None:
    replicas = Replicas(_KEY, 1, (1, 2), 1, _LAG_MS)
    replicas.led_by(1, 0, (1,), 0, None, 0)
    assert not replicas.follower_fetched(2, 100, 100, 0, 1)
    replicas.found_log(100)
    assert replicas.follower_fetched(2, 100, 100, 0, 2)


def _syncs(replicas: Replicas) -> tuple[bool, bool]:
    """Returns whether the log must be synced, and whether the proposed ISR waits for that."""
    return replicas.is_to_be_synced, replicas.waits_for_sync


def test_an_isr_with_too_few_waits_for_a_sync_and_nothing_is_committed_meanwhile() -> None:
    replicas = leading((1, 2), min_in_sync=2)
    assert _syncs(replicas) == (False, False)
    assert replicas.drop_lagging(110, _LAG_MS + 1)
    assert _syncs(replicas) == (True, True)
    replicas.follower_fetched(2, 109, 110, 40, _LAG_MS + 2)
    assert replicas.next_high_watermark(40, 110, _LAG_MS + 2) == 40
    replicas.synced(replicas.standing)
    assert _syncs(replicas) == (False, False)
    assert replicas.next_high_watermark(40, 110, _LAG_MS + 2) == 40
    assert replicas.isr_written((1,), 5, 1)
    assert _syncs(replicas) == (False, False)


def test_a_smaller_isr_that_is_large_enough_waits_for_no_sync() -> None:
    replicas = leading(min_in_sync=2)
    replicas.follower_fetched(2, 100, 100, 40, _LAG_MS)
    assert replicas.drop_lagging(110, _LAG_MS + 1)
    assert replicas.proposed_isr == (1, 2)
    assert not replicas.is_to_be_synced
    assert replicas.next_high_watermark(40, 110, _LAG_MS + 1) == 40
    replicas.follower_fetched(2, 110, 110, 40, _LAG_MS + 2)
    replicas.follower_fetched(3, 110, 110, 40, _LAG_MS + 2)
    assert replicas.next_high_watermark(40, 110, _LAG_MS + 2) == 110


def test_where_one_in_sync_is_enough_nothing_is_synced() -> None:
    replicas = leading()
    assert replicas.drop_lagging(110, _LAG_MS + 1)
    assert not replicas.is_to_be_synced
    assert not leading((1,), min_in_sync=2, assigned=(1,)).is_to_be_synced


def test_who_is_told_that_too_few_are_in_sync_is_to_sync() -> None:
    replicas = leading((1,), min_in_sync=2)
    assert _syncs(replicas) == (True, False)
    replicas.synced(replicas.standing)
    assert _syncs(replicas) == (False, False)
    assert replicas.led_by(1, 6, (1,), 0, 100, 3)
    assert _syncs(replicas) == (True, False)


def test_a_follower_syncs_where_it_is_one_of_too_few_in_sync() -> None:
    replicas = Replicas(_KEY, 2, (1, 2, 3), 3, _LAG_MS)
    replicas.led_by(1, 5, (1, 2), 0, 100, 0)
    assert replicas.is_to_be_synced
    replicas.led_by(1, 5, (1, 3), 1, 100, 0)
    assert not replicas.is_to_be_synced


def test_whoever_comes_back_need_not_wait_for_a_sync() -> None:
    """The disk of the one that is left may fail."""
    replicas = leading((1,), min_in_sync=2)
    assert replicas.follower_fetched(2, 100, 100, 40, 1)
    assert replicas.is_to_be_synced
    assert not replicas.waits_for_sync


def test_a_sync_for_what_stood_before_does_not_count() -> None:
    replicas = leading((1, 2), min_in_sync=2)
    assert replicas.drop_lagging(110, _LAG_MS + 1)
    before = replicas.standing
    assert replicas.led_by(1, 6, (1, 2), 0, 110, _LAG_MS + 2)
    assert replicas.drop_lagging(120, 2 * _LAG_MS + 3)
    replicas.synced(before)
    assert replicas.waits_for_sync


def _two_behind() -> Replicas:
    """Two replicas in sync are required, both followers are to leave the ISR, and the proposal has not been sent
    yet."""
    replicas = leading(min_in_sync=2)
    assert replicas.drop_lagging(110, _LAG_MS + 1)
    assert replicas.proposed_isr == (1,)
    return replicas


def _proposed(replicas: Replicas) -> tuple[int, ...] | None:
    return replicas.proposed_isr


def test_what_nobody_has_sent_is_proposed_no_more_when_the_followers_are_back() -> None:
    replicas = _two_behind()
    assert not replicas.follower_fetched(2, 110, 110, 40, _LAG_MS + 2)
    assert _proposed(replicas) == (1, 2)
    assert _syncs(replicas) == (False, False)
    assert not replicas.follower_fetched(3, 110, 110, 40, _LAG_MS + 3)
    assert _proposed(replicas) is None
    assert replicas.next_high_watermark(40, 110, _LAG_MS + 3) == 110
    assert not replicas.drop_lagging(110, _LAG_MS + 4)


def test_what_was_sent_stands_when_the_followers_are_back() -> None:
    replicas = _two_behind()
    replicas.proposal_sent()
    for number in (2, 3):
        replicas.follower_fetched(number, 110, 110, 40, _LAG_MS + 2)
    assert _proposed(replicas) == (1,)
    assert replicas.next_high_watermark(40, 110, _LAG_MS + 2) == 40
    assert replicas.isr_written((1, 2, 3), 5, 1)
    assert replicas.next_high_watermark(40, 110, _LAG_MS + 3) == 110


def test_who_is_behind_still_is_to_leave_still() -> None:
    replicas = _two_behind()
    replicas.follower_fetched(2, 100, 110, 40, _LAG_MS + 2)
    assert _proposed(replicas) == (1,)
    assert replicas.waits_for_sync


def test_a_sync_counts_still_when_who_is_behind_fetches() -> None:
    replicas = _two_behind()
    replicas.synced(replicas.standing)
    replicas.follower_fetched(2, 100, 110, 40, _LAG_MS + 2)
    assert (_proposed(replicas), replicas.waits_for_sync) == ((1,), False)


def test_a_sync_for_what_is_proposed_no_more_does_not_count() -> None:
    replicas = _two_behind()
    before = replicas.standing
    for number in (2, 3):
        replicas.follower_fetched(number, 110, 110, 40, _LAG_MS + 2)
    assert replicas.drop_lagging(120, 3 * _LAG_MS)
    replicas.follower_fetched(2, 120, 120, 40, 3 * _LAG_MS)
    replicas.synced(before)
    assert _proposed(replicas) == (1, 2)
    assert not replicas.waits_for_sync


_FOLLOWERS = st.sampled_from((2, 3))


class _Leadership(RuleBasedStateMachine):
    """A leader, two followers, and a controller whose answers come late and in any order: committed records are in the
    log of every replica that could be elected, and on the leader's disk if fewer than min.insync.replicas could be.
    The same broker leads in every epoch; the truncation of followers' logs after an election is not part of this."""

    @initialize(isr=st.sampled_from([(1,), (1, 2), (1, 3), (1, 2, 3)]), min_in_sync=st.integers(1, 3))
    def begin(self, isr: tuple[int, ...], min_in_sync: int) -> None:
        self.replicas = leading(isr, end=0, min_in_sync=min_in_sync)
        self.min_in_sync = min_in_sync
        #: The synced end on the leader's disk, and the sync under way: the state at its beginning, and the end of the
        #: log.
        self.synced = 0
        self.syncing: tuple[tuple[int, int, tuple[int, ...] | None], int] | None = None
        self.has_unsent = False
        #: True while the leader does not reach the controller.
        self.is_away = False
        #: The ISR that the controller has written: an election could choose any of these replicas.
        self.written, self.epoch, self.version = isr, 5, 0
        #: Proposals on their way to the controller, with the state that each was made on top of; answers on their way
        #: back.
        self.asked: list[tuple[tuple[int, ...], int, int]] = []
        self.answers: list[tuple[str, tuple[int, ...], int, int]] = []
        self.end = self.high_watermark = self.now_ms = 0
        self.has = {1: 0, 2: 0, 3: 0}

    def _moved(self) -> None:
        high_watermark = self.replicas.next_high_watermark(self.high_watermark, self.end, self.now_ms)
        assert high_watermark >= self.high_watermark
        self.high_watermark = high_watermark

    def _ask(self, proposes: bool) -> None:
        if proposes:
            self.has_unsent = True
            self._send()

    def _send(self) -> None:
        if (
            self.has_unsent
            and not self.is_away
            and self.replicas.proposed_isr is not None
            and not self.replicas.waits_for_sync
        ):
            self.has_unsent = False
            self.replicas.proposal_sent()
            self.asked.append((self.replicas.proposed_isr, self.replicas.leader_epoch, self.replicas.partition_epoch))

    @rule(records=st.integers(1, 5))
    def the_leader_appends(self, records: int) -> None:
        self.end += records
        self.has[1] = self.end
        self._moved()

    @rule(follower=_FOLLOWERS, records=st.integers(0, 5))
    def a_follower_fetches(self, follower: int, records: int) -> None:
        """A follower fetches from its end, and then gets some records."""
        self._ask(
            self.replicas.follower_fetched(follower, self.has[follower], self.end, self.high_watermark, self.now_ms)
        )
        self._moved()
        self._send()
        self.has[follower] = min(self.end, self.has[follower] + records)

    @rule(passes_ms=st.integers(1, 2 * _LAG_MS))
    def time_passes(self, passes_ms: int) -> None:
        self.now_ms += passes_ms
        self._ask(self.replicas.drop_lagging(self.end, self.now_ms))
        self._moved()

    @rule()
    def the_controller_goes_out_of_reach_or_comes_back(self) -> None:
        self.is_away = not self.is_away
        self._send()

    @precondition(lambda self: self.syncing is None)
    @rule()
    def a_sync_begins(self) -> None:
        self.syncing = self.replicas.standing, self.end

    @precondition(lambda self: self.syncing is not None)
    @rule(fails=st.booleans())
    def a_sync_ends(self, fails: bool) -> None:
        assert self.syncing is not None
        (standing, end), self.syncing = self.syncing, None
        if not fails:
            self.synced = max(self.synced, end)
            self.replicas.synced(standing)
        self._send()

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), refuses=st.booleans())
    def the_controller_takes_or_refuses(self, data: st.DataObject, refuses: bool) -> None:
        isr, epoch, version = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        if (epoch, version) != (self.epoch, self.version):
            return  # it was made on top of an old state; the leader hears of the new one
        if refuses:
            self.answers.append(("refused", isr, epoch, version))
        else:
            self.written, self.version = isr, self.version + 1
            self.answers.append(("written", isr, epoch, self.version))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_comes(self, data: st.DataObject) -> None:
        what, isr, epoch, version = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        if what == "refused":
            self.replicas.proposal_refused(epoch, version)
        else:
            self.replicas.isr_written(isr, epoch, version)
        self._moved()

    @rule()
    def an_election(self) -> None:
        self.epoch, self.version = self.epoch + 1, self.version + 1
        self.replicas.led_by(1, self.epoch, self.written, self.version, self.end, self.now_ms)
        self._moved()

    @invariant()
    def whoever_could_be_elected_has_what_is_committed(self) -> None:
        for number in self.written:
            assert self.has[number] >= self.high_watermark, (
                f"broker {number} of the ISR {self.written} has {self.has[number]} of {self.high_watermark}"
            )

    @invariant()
    def what_too_few_have_is_synced(self) -> None:
        if len(self.written) < self.min_in_sync:
            assert self.synced >= self.high_watermark, (
                f"{self.high_watermark} is committed, and the disk of {self.written} holds {self.synced}"
            )

    @invariant()
    def the_leader_is_in_sync(self) -> None:
        assert 1 in self.replicas.isr


TestLeadership = _Leadership.TestCase
