"""Every cell of the table of states, tried on a group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.groups.classic.states import (
    ALLOWED_BEFORE,
    HAPPENS,
    ExpiryDue,
    GroupState,
    MemberGone,
    RebalanceDue,
    Step,
    SyncDue,
)
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ErrorAnswer,
    Heartbeat,
    Join,
    JoinAnswer,
    PartitionsAnswer,
    Sync,
)
from jesenska.groups.settings import GroupSettings
from tests.units.groups.driver import Driver

_KEY = TopicPartition("t", 0)


def _commit(driver: Driver, member: JoinAnswer | None = None) -> int:
    token = driver.token()
    generation, member_id = (member.generation_id, member.member_id) if member else (-1, "")
    driver.give(
        CommitOffsets(token, "g", generation, member_id, None, ((_KEY, CommittedOffset(5, -1, "", driver.wall_ms)),))
    )
    return token


def _driver_in(state: GroupState, check_ms: int = 600_000) -> tuple[Driver, JoinAnswer | None]:
    """A group in that state, and a member of its generation if it has one."""
    driver = Driver(
        GroupSettings(
            initial_rebalance_delay_ms=0, offsets_retention_ms=1_000, offsets_retention_check_interval_ms=check_ms
        )
    )
    member = None
    if state in (GroupState.EMPTY, GroupState.DEAD):
        _commit(driver)
    elif state is GroupState.COMPLETING_REBALANCE:
        (member,) = driver.joined_group(1)
    else:
        (member,) = driver.stable_group(1)
    if state is GroupState.PREPARING_REBALANCE:
        driver.join(client="another")
    if state is GroupState.DEAD:
        driver.commit_at_once = False
        driver.give(DeleteGroup(driver.token(), "g"))
    assert driver.coordinator.groups["g"].state is state
    return driver, member


def _ask(driver: Driver, member: JoinAnswer | None, kind: type) -> int:
    token = driver.token()
    generation, member_id = (member.generation_id, member.member_id) if member else (0, "nobody")
    if kind is Join:
        return driver.join(client="new")
    if kind is CommitOffsets:
        return _commit(driver, member)
    make: dict[type, Callable[[], Sync | Heartbeat | DeleteOffsets | DeleteGroup]] = {
        Sync: lambda: Sync(token, "g", generation, member_id),
        Heartbeat: lambda: Heartbeat(token, "g", generation, member_id),
        DeleteOffsets: lambda: DeleteOffsets(token, "g", (_KEY,)),
        DeleteGroup: lambda: DeleteGroup(token, "g"),
    }
    driver.give(make[kind]())
    return token


def _error(driver: Driver, token: int) -> ErrorCode:
    """Returns the error of an answer; NONE while there is none."""
    answers = driver.answers.get(token)
    if answers is None:
        return ErrorCode.NONE
    (answer,) = answers
    # A group with subscriptions that cannot be read (these name no topics) may want every topic.
    per_partition = (
        [error for error in answer.partitions.values() if error is not ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        if isinstance(answer, PartitionsAnswer)
        else []
    )
    return next(iter(per_partition), answer.error)


_ASKED = (Join, Sync, Heartbeat, CommitOffsets, DeleteOffsets, DeleteGroup)


@pytest.mark.parametrize("kind", _ASKED)
@pytest.mark.parametrize("state", GroupState)
def test_what_a_request_gets_is_what_the_table_says(state: GroupState, kind: type) -> None:
    driver, member = _driver_in(state)
    error = _error(driver, _ask(driver, member, kind))
    happens = HAPPENS[kind][state]
    assert error is (happens if isinstance(happens, ErrorCode) else ErrorCode.NONE)


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE])
def test_a_group_whose_members_go_is_where_the_table_leads(state: GroupState) -> None:
    driver, member = _driver_in(state)
    assert member is not None
    driver.advance(10_000)
    group = driver.coordinator.groups["g"]
    assert member.member_id not in group.members
    # It is alone in its generation, so no other member is waited for: the rebalance after it leaves ends at once.
    assert group.state is (
        GroupState.COMPLETING_REBALANCE if state is GroupState.PREPARING_REBALANCE else GroupState.EMPTY
    )


@pytest.mark.parametrize("state", GroupState)
def test_old_offsets_go_in_the_states_that_the_table_names(state: GroupState) -> None:
    driver, member = _driver_in(
        GroupState.STABLE if state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE) else state,
        5_000,
    )
    happens = HAPPENS[ExpiryDue][state]
    if member is not None:
        # A subscription that can be read, to another topic.
        (live,) = driver.coordinator.groups["g"].members.values()
        live.session_timeout_ms = live.deadline_ms = 10**9
        driver.coordinator.groups["g"].set_protocols(live, (("range", b"\0\0\0\0\0\1\0\1u\xff\xff\xff\xff"),))
        _commit(driver, member)
        if state is not GroupState.STABLE:
            driver.join(client="another", session_ms=1_000_000, rebalance_ms=1_000_000)
        if state is GroupState.COMPLETING_REBALANCE:
            driver.join(member=member.member_id, rebalance_ms=1_000_000, session_ms=1_000_000, protocols=live.protocols)
    assert driver.coordinator.groups["g"].state is state
    driver.advance(5_000)
    group = driver.coordinator.groups.get("g")
    if state is GroupState.DEAD:
        assert [append.name for append in driver.pending] == ["g"], "the deletion alone, no second write"
    elif happens is Step.FORGET_AND_REMOVE:
        assert group is None
    else:
        assert group is not None
        assert (_KEY in group.offsets) is (happens is Step.NOTHING)


def test_the_table_has_an_entry_for_everything_in_every_state() -> None:
    assert set(HAPPENS) == {*_ASKED, MemberGone, RebalanceDue, SyncDue, ExpiryDue}
    assert all(set(row) == set(GroupState) for row in HAPPENS.values())
    assert set(ALLOWED_BEFORE) == set(GroupState)


def test_a_group_that_goes_takes_offsets_along_that_are_on_their_way() -> None:
    driver = Driver(commit_at_once=False)
    committed = _commit(driver)
    deleted = driver.token()
    driver.give(DeleteGroup(deleted, "g"))
    driver.commit()
    driver.commit()
    assert driver.answer(committed, PartitionsAnswer).partitions == {_KEY: ErrorCode.NONE}
    assert driver.answer(deleted, ErrorAnswer).error is ErrorCode.NONE
    assert driver.coordinator.groups == {}
    assert driver.restarted().coordinator.groups == {}
