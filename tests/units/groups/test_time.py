"""The wall clock is set while groups are active: nothing that waits may be affected, and stored values keep their
times."""

from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.groups.classic.states import GroupState
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    ErrorAnswer,
    Heartbeat,
    JoinAnswer,
    PartitionsAnswer,
    SyncAnswer,
)
from jesenska.groups.records import GroupRecord, read_record
from jesenska.groups.settings import GroupSettings
from tests.units.groups.driver import Driver

HOUR_MS = 3_600_000
T0 = TopicPartition("t", 0)
SET = pytest.mark.parametrize("set_ms", [-HOUR_MS, HOUR_MS])


def heartbeat(driver: Driver, answer: JoinAnswer) -> ErrorCode:
    token = driver.token()
    driver.give(Heartbeat(token, "g", answer.generation_id, answer.member_id, None))
    return driver.answer(token, ErrorAnswer).error


@SET
def test_a_silent_member_goes_when_its_session_is_over_and_not_before(set_ms: int) -> None:
    driver = Driver()
    silent, live = driver.stable_group(2)
    driver.wall_ahead_ms += set_ms
    driver.advance(9_999)
    assert heartbeat(driver, live) is ErrorCode.NONE
    driver.advance(1)
    assert heartbeat(driver, live) is ErrorCode.REBALANCE_IN_PROGRESS
    assert set(driver.coordinator.groups["g"].members) == {live.member_id}
    assert silent.member_id not in driver.coordinator.groups["g"].members


@SET
def test_a_rebalance_waits_for_its_members_as_long_as_they_asked_for(set_ms: int) -> None:
    driver = Driver()
    _, other = driver.stable_group(2)
    token = driver.join(member=other.member_id, rebalance_ms=5_000, protocols=(("range", b"new"),))
    driver.wall_ahead_ms += set_ms
    driver.advance(9_999)
    assert not driver.is_answered(token)
    driver.advance(30_000)
    assert driver.answer(token, JoinAnswer).error is ErrorCode.NONE


@SET
def test_the_first_rebalance_of_a_group_is_delayed_as_long_as_the_setting_says(set_ms: int) -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3_000))
    token = driver.join()
    driver.wall_ahead_ms += set_ms
    driver.advance(2_999)
    assert not driver.is_answered(token)
    driver.advance(1)
    assert driver.answer(token, JoinAnswer).error is ErrorCode.NONE


@SET
def test_a_member_that_does_not_sync_goes_after_the_rebalance_time_out(set_ms: int) -> None:
    driver = Driver()
    silent, other = driver.joined_group(2)
    waiting = driver.sync(other if silent.leader == silent.member_id else silent)
    driver.wall_ahead_ms += set_ms
    driver.advance(9_000)
    assert not driver.is_answered(waiting)
    driver.advance(30_000)
    assert driver.answer(waiting, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS


@SET
def test_an_id_that_was_given_out_is_kept_for_one_session(set_ms: int) -> None:
    driver = Driver()
    given = driver.answer(driver.join(known=True, session_ms=6_000), JoinAnswer).member_id
    driver.wall_ahead_ms += set_ms
    driver.advance(5_999)
    assert given in driver.coordinator.groups["g"].pending_members
    driver.advance(1)
    assert given not in driver.coordinator.groups["g"].pending_members


@SET
def test_a_rebalance_waits_for_each_id_that_was_given_out_as_long_as_its_session(set_ms: int) -> None:
    driver = Driver()
    for session_ms in (10_000, 20_000):
        driver.join(known=True, session_ms=session_ms)
    token = driver.join(session_ms=60_000, rebalance_ms=60_000)
    driver.wall_ahead_ms += set_ms
    driver.advance(19_999)
    assert not driver.is_answered(token)
    driver.advance(1)
    assert driver.answer(token, JoinAnswer).error is ErrorCode.NONE


@SET
def test_a_commit_that_is_not_written_is_answered_after_its_time_out(set_ms: int) -> None:
    driver = Driver(commit_at_once=False)
    token = driver.token()
    driver.give(CommitOffsets(token, "g", -1, "", None, ((T0, CommittedOffset(1, -1, "", driver.wall_ms)),)))
    driver.wall_ahead_ms += set_ms
    driver.advance(4_999)
    assert not driver.is_answered(token)
    driver.advance(1)
    assert driver.answer(token, PartitionsAnswer).partitions[T0] is ErrorCode.COORDINATOR_NOT_AVAILABLE


@SET
def test_offsets_that_are_old_by_the_wall_clock_go_at_the_next_check(set_ms: int) -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=2 * HOUR_MS, initial_rebalance_delay_ms=0))
    token = driver.token()
    driver.give(CommitOffsets(token, "g", -1, "", None, ((T0, CommittedOffset(1, -1, "", driver.wall_ms)),)))
    driver.wall_ahead_ms += set_ms
    driver.advance(2 * HOUR_MS - set_ms - 1)
    assert "g" in driver.coordinator.groups
    driver.advance(600_000)
    assert "g" not in driver.coordinator.groups


@SET
def test_a_groups_record_has_the_wall_clocks_time(set_ms: int) -> None:
    driver = Driver()
    driver.wall_ahead_ms += set_ms
    driver.stable_group(1)
    found = read_record(driver.log[-1].key, driver.log[-1].value)
    assert isinstance(found, GroupRecord)
    assert found.value is not None
    assert found.value.current_state_timestamp == driver.wall_ms
    assert driver.restarted().coordinator.groups["g"].state is GroupState.STABLE
    assert driver.restarted().coordinator.groups["g"].state_since_ms == driver.wall_ms


def test_a_member_that_is_removed_is_named_in_the_log_with_the_reason() -> None:
    driver = Driver()
    silent, _ = driver.joined_group(2)
    driver.advance(60_000)
    reasons = {line.partition(" is removed: ")[2] for line in driver.lines}
    assert any(line.startswith(f"member {silent.member_id} of group g is removed: ") for line in driver.lines)
    assert reasons <= {
        "it joined, and sent no SyncGroup within 30000 ms",
        "no heartbeat came within its session timeout",
    }
