"""Every cell of the table of states: that it is there, and for the requests also tried on a group."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Now, OfTransaction
from jesenska.groups.classic import states
from jesenska.groups.classic.group import Group
from jesenska.groups.classic.states import HAPPENS, LEADS_TO, GroupEvent, GroupState, Step
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


_REQUESTS: dict[type, GroupEvent] = {
    Join: GroupEvent.JOIN,
    Sync: GroupEvent.SYNC,
    Heartbeat: GroupEvent.HEARTBEAT,
    CommitOffsets: GroupEvent.COMMIT,
    DeleteOffsets: GroupEvent.DELETE_OFFSETS,
    DeleteGroup: GroupEvent.DELETE_GROUP,
}


@pytest.mark.parametrize("kind", _REQUESTS)
@pytest.mark.parametrize("state", GroupState)
def test_what_a_request_gets_is_what_the_table_says(state: GroupState, kind: type) -> None:
    driver, member = _driver_in(state)
    error = _error(driver, _ask(driver, member, kind))
    happens = HAPPENS[_REQUESTS[kind]][state]
    assert error is (happens if isinstance(happens, ErrorCode) else ErrorCode.NONE)


@pytest.mark.parametrize(
    ("event", "within", "generation", "of_branches"),
    [
        (GroupEvent.COMMIT, False, True, False),
        (GroupEvent.COMMIT_WITHIN, True, True, False),
        (GroupEvent.COMMIT_WITHIN, True, False, False),
        (GroupEvent.COMMIT_FROM_OUTSIDE, False, False, False),
        (GroupEvent.COMMIT_OF_BRANCH, False, False, True),
    ],
)
@pytest.mark.parametrize("state", GroupState)
def test_a_commit_gets_what_the_table_says_about_commits_of_its_kind(
    state: GroupState, event: GroupEvent, within: bool, generation: bool, of_branches: bool
) -> None:
    driver, member = _driver_in(state)
    names = member is not None and generation
    token = driver.token()
    driver.give(
        CommitOffsets(
            token,
            "g",
            member.generation_id if member is not None and names else -1,
            member.member_id if member is not None and names else "",
            None,
            ((_KEY, CommittedOffset(5, -1, "", driver.wall_ms)),),
            within=OfTransaction(1, 0) if within else None,
            is_of_branches=of_branches,
        )
    )
    happens = HAPPENS[event][state]
    if happens is Step.WRITE_UNREAD:
        # Subscriptions that cannot be read (these name no topics) may be to any topic.
        assert _error(driver, token) is ErrorCode.UNKNOWN_MEMBER_ID
    else:
        assert _error(driver, token) is (happens if isinstance(happens, ErrorCode) else ErrorCode.NONE)


@pytest.mark.parametrize("within", [None, OfTransaction(1, 0)])
def test_a_group_without_members_takes_no_commit_of_a_generation(within: OfTransaction | None) -> None:
    driver, _ = _driver_in(GroupState.EMPTY)
    token = driver.token()
    offsets = ((_KEY, CommittedOffset(5, -1, "", driver.wall_ms)),)
    driver.give(CommitOffsets(token, "g", 0, "", None, offsets, within=within))
    assert _error(driver, token) is ErrorCode.UNKNOWN_MEMBER_ID


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
    happens = HAPPENS[GroupEvent.EXPIRY_DUE][state]
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


#: The transitions of the table: state, event, step, the state that it goes to.
_TRANSITIONS = {
    (state, event, step, LEADS_TO[step])
    for event, row in HAPPENS.items()
    for state, step in row.items()
    if isinstance(step, Step) and step in LEADS_TO
}


def test_the_table_has_an_entry_for_everything_in_every_state() -> None:
    assert set(HAPPENS) == set(GroupEvent)
    assert all(set(row) == set(GroupState) for row in HAPPENS.values())


def test_every_step_is_in_the_table() -> None:
    assert {cell for row in HAPPENS.values() for cell in row.values() if isinstance(cell, Step)} == set(Step)


def test_the_transitions_are_those_of_the_classic_protocol() -> None:
    empty, preparing, completing, stable, dead = GroupState
    assert {(before, after) for before, _, _, after in _TRANSITIONS} == {
        (empty, preparing),
        (empty, dead),
        (preparing, completing),
        (preparing, empty),
        (completing, stable),
        (completing, preparing),
        (stable, preparing),
        (dead, empty),
    }


def test_every_state_is_reached() -> None:
    reached = {GroupState.EMPTY}
    while following := {after for before, _, _, after in _TRANSITIONS if before in reached} - reached:
        reached |= following
    assert reached == set(GroupState)


def test_the_docstring_draws_the_transitions_of_the_table() -> None:
    drawn, state = set(), ""
    text = (states.__doc__ or "").partition("goes to\n")[2].partition("\n\n")[0]
    for line in text.splitlines():
        *before, event, step, after = re.split(r" {2,}", line.strip())
        state = before[0] if before else state
        drawn.add((GroupState[state], GroupEvent[event], Step[step], GroupState[after]))
    assert drawn == _TRANSITIONS


@pytest.mark.parametrize("event", GroupEvent)
@pytest.mark.parametrize("state", GroupState)
def test_a_group_is_then_in_the_state_that_the_table_leads_to(state: GroupState, event: GroupEvent) -> None:
    group = Group("g", Now(0, 1_000))
    group.state = state
    happens = HAPPENS[event][state]
    if isinstance(happens, ErrorCode) or happens is Step.CANNOT_HAPPEN:
        with pytest.raises(AssertionError, match=f"group g: {event.name}"):
            group.take(event, Now(0, 2_000))
        assert group.state is state
    else:
        assert group.take(event, Now(0, 2_000)) is happens
        assert group.state is LEADS_TO.get(happens, state)
        moves = happens in LEADS_TO and happens is not Step.BRING_BACK
        assert group.state_since_ms == (2_000 if moves else 1_000)


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
