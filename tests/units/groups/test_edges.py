"""The behaviour of Apache Kafka 3.9.1 and 4.3.1 in special cases of groups: static leaders, full groups, groups that
are removed, subscriptions of unusual clients, and the cost of a member's request in a large group."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.groups.classic.states import GroupState
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ErrorAnswer,
    JoinAnswer,
    PartitionsAnswer,
    SyncAnswer,
)
from jesenska.groups.settings import GroupSettings
from tests.units.groups.driver import Driver

SUBSCRIBED, OTHER = TopicPartition("t", 0), TopicPartition("other", 0)
_TOPICS = b"\x00\x00\x00\x01\x00\x01t"
_NO_USER_DATA = b"\xff\xff\xff\xff"


def commit(
    driver: Driver,
    key: TopicPartition = SUBSCRIBED,
    group: str = "g",
    answer: JoinAnswer | None = None,
    metadata: str = "",
    expires_ms: int = -1,
) -> ErrorCode:
    token = driver.token()
    generation, member = (answer.generation_id, answer.member_id) if answer else (-1, "")
    driver.give(
        CommitOffsets(
            token,
            group,
            generation,
            member,
            None,
            ((key, CommittedOffset(1, -1, metadata, driver.wall_ms, expires_ms)),),
        )
    )
    return driver.answer(token, PartitionsAnswer).partitions[key]


def delete(driver: Driver, group: str) -> ErrorCode:
    token = driver.token()
    driver.give(DeleteGroup(token, group))
    return driver.answer(token, ErrorAnswer).error


def subscribed(driver: Driver, subscription: bytes) -> JoinAnswer:
    """A stable group of one member with this subscription."""
    joined = driver.answer(driver.join(protocols=(("range", subscription),), session_ms=1_000_000), JoinAnswer)
    driver.sync(joined, {joined.member_id: b""})
    return joined


# --- static members --------------------------------------------------------------------------------------------------


def test_a_static_leader_that_comes_back_with_an_old_version_is_told_its_old_id_as_leader_and_nobody_rebalances() -> (
    None
):
    driver = Driver()
    leader = driver.answer(driver.join(instance="i"), JoinAnswer)
    driver.sync(leader, {leader.member_id: b"mine"}, instance="i")
    back = driver.answer(driver.join(instance="i"), JoinAnswer)
    assert (back.error, back.generation_id, back.leader, back.skip_assignment, back.members) == (
        ErrorCode.NONE,
        1,
        leader.member_id,
        False,
        (),
    )
    assert back.member_id != leader.member_id
    assert driver.coordinator.groups["g"].state is GroupState.STABLE
    assert driver.assignment(driver.sync(back, instance="i")) == b"mine"
    once_more = driver.answer(driver.join(instance="i"), JoinAnswer)
    assert (once_more.leader, once_more.generation_id) == (back.member_id, 1)


# --- groups that are full --------------------------------------------------------------------------------------------


def test_ids_that_were_given_out_and_never_used_take_no_place_in_a_group() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
    for _ in range(5):
        assert driver.answer(driver.join(known=True), JoinAnswer).error is ErrorCode.MEMBER_ID_REQUIRED
    assert not driver.is_answered(driver.join())
    assert not driver.is_answered(driver.join())
    assert driver.answer(driver.join(), JoinAnswer).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_group_that_has_become_too_large_loses_the_members_that_rejoin_last() -> None:
    driver = Driver()
    members = [answer.member_id for answer in driver.stable_group(3)]
    smaller = driver.restarted()
    smaller.coordinator.roster.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)
    tokens = [smaller.join(member=member, protocols=(("range", b"new"),)) for member in members]
    assert [smaller.answer(token, JoinAnswer).error for token in tokens] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert set(smaller.coordinator.groups["g"].members) == set(members[:2])


# --- groups that go --------------------------------------------------------------------------------------------------


def test_a_join_while_the_groups_deletion_waits_for_the_disk_is_told_to_come_again() -> None:
    driver = Driver()
    commit(driver)
    driver.commit_at_once = False
    deleted = driver.token()
    driver.give(DeleteGroup(deleted, "g"))
    assert driver.answer(driver.join(), JoinAnswer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.commit()
    assert driver.answer(deleted, ErrorAnswer).error is ErrorCode.NONE
    assert driver.answer(driver.join(), JoinAnswer).error is ErrorCode.NONE


def test_a_group_without_a_name_can_be_deleted() -> None:
    driver = Driver()
    assert delete(driver, "") is ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(driver, group="") is ErrorCode.NONE
    assert delete(driver, "") is ErrorCode.NONE
    assert driver.coordinator.groups == {}


# --- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("ž" * 4096, ErrorCode.NONE),
        ("ž" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 2048, ErrorCode.NONE),
        ("\U0001f600" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_the_limit_of_metadata_counts_characters_as_java_does(metadata: str, error: ErrorCode) -> None:
    assert commit(Driver(), metadata=metadata) is error


def test_a_commits_own_retention_expires_no_topic_that_a_member_subscribes_to() -> None:
    driver = Driver()
    member = subscribed(driver, b"\x00\x00" + _TOPICS + _NO_USER_DATA)
    for key in (SUBSCRIBED, OTHER):
        assert commit(driver, key, answer=member, expires_ms=driver.wall_ms + 1000) is ErrorCode.NONE
    driver.advance(700_000)
    assert set(driver.coordinator.groups["g"].offsets) == {SUBSCRIBED}


@pytest.mark.parametrize(
    ("subscription", "readable"),
    [
        (b"\x00\x00" + _TOPICS + _NO_USER_DATA, True),
        (b"\x00\x01" + _TOPICS + _NO_USER_DATA, True),
        (b"\x00\x03" + _TOPICS + _NO_USER_DATA, True),
        (b"\x00\x01" + _TOPICS + _NO_USER_DATA + b"\x00\x00\x00\x01", True),
        (b"\x00\x02" + _TOPICS + _NO_USER_DATA + bytes(4), True),
        (b"\xff\xff" + _TOPICS + _NO_USER_DATA, True),
        (b"\x00\x00" + _TOPICS, False),
        (b"\x00\x00\x00\x07", False),
        (b"", False),
    ],
)
def test_a_subscription_is_read_as_the_first_version_whatever_it_says_it_is(
    subscription: bytes, readable: bool
) -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=1000))
    member = subscribed(driver, subscription)
    for key in (SUBSCRIBED, OTHER):
        assert commit(driver, key, answer=member) is ErrorCode.NONE
    # Expiry reads it the same way.
    driver.advance(700_000)
    assert set(driver.coordinator.groups["g"].offsets) == ({SUBSCRIBED} if readable else {SUBSCRIBED, OTHER})
    token = driver.token()
    driver.give(DeleteOffsets(token, "g", (SUBSCRIBED, OTHER)))
    assert driver.answer(token, PartitionsAnswer).partitions == {
        SUBSCRIBED: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        OTHER: ErrorCode.NONE if readable else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_member_whose_sync_was_answered_with_a_rebalance_has_a_whole_session_to_come_back() -> None:
    driver = Driver()
    leader, follower = sorted(driver.joined_group(2), key=lambda item: item.leader != item.member_id)
    waiting = driver.sync(follower)
    driver.advance(9_000)
    driver.join(member=leader.member_id, protocols=(("range", b"new"),), session_ms=100_000)
    assert driver.answer(waiting, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(9_999)
    assert follower.member_id in driver.coordinator.groups["g"].members
    driver.advance(1)
    assert follower.member_id not in driver.coordinator.groups["g"].members


# --- costs -----------------------------------------------------------------------------------------------------------


def steps_of_a_rejoin(members: int) -> int:
    """The number of calls of functions (and steps of generators) that handle the rejoin and the sync of the middle
    member of a group of this size."""
    driver = Driver()
    answers = driver.stable_group(members)
    half = members // 2
    for answer in answers[:half]:
        driver.join(member=answer.member_id, protocols=(("range", b"new"),))
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        driver.join(member=answers[half].member_id, protocols=(("range", b"new"),))
    finally:
        sys.setprofile(None)
    tokens = [driver.join(member=answer.member_id, protocols=(("range", b"new"),)) for answer in answers[half + 1 :]]
    last = driver.answer(tokens[-1], JoinAnswer)
    assert last.generation_id == answers[0].generation_id + 1
    sys.setprofile(count)
    try:
        driver.sync(last)
    finally:
        sys.setprofile(None)
    return steps


def test_a_member_that_rejoins_costs_the_same_in_a_group_of_ten_and_in_one_of_hundreds() -> None:
    assert steps_of_a_rejoin(400) <= steps_of_a_rejoin(10) + 5


# --- branches --------------------------------------------------------------------------------------------------------


def commit_from_outside(driver: Driver, *keys: TopicPartition, is_of_branches: bool = True) -> set[ErrorCode]:
    token = driver.token()
    offsets = tuple((key, CommittedOffset(7, -1, "", driver.wall_ms)) for key in keys)
    driver.give(CommitOffsets(token, "g", -1, "", None, offsets, is_of_branches=is_of_branches))
    return set(driver.answer(token, PartitionsAnswer).partitions.values())


def test_a_group_with_members_takes_offsets_of_a_branch_once_and_of_nothing_else() -> None:
    driver = Driver()
    subscribed(driver, b"\x00\x00" + _TOPICS + _NO_USER_DATA)
    assert commit_from_outside(driver, OTHER, is_of_branches=False) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit_from_outside(driver, OTHER, SUBSCRIBED) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert commit_from_outside(driver, OTHER) == {ErrorCode.NONE}
    assert commit_from_outside(driver, OTHER) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert {key: value.offset for key, value in driver.coordinator.groups["g"].offsets.items()} == {OTHER: 7}
    assert driver.coordinator.groups["g"].state is GroupState.STABLE


def test_offsets_of_a_branch_that_are_on_their_way_are_not_written_twice() -> None:
    driver = Driver(commit_at_once=False)
    joined = driver.answer(
        driver.join(protocols=(("range", b"\x00\x00" + _TOPICS + _NO_USER_DATA),), session_ms=1_000_000), JoinAnswer
    )
    driver.sync(joined, {joined.member_id: b""})
    driver.commit()
    driver.give(
        CommitOffsets(driver.token(), "g", -1, "", None, ((OTHER, CommittedOffset(7, -1, "", 0)),), is_of_branches=True)
    )
    assert commit_from_outside(driver, OTHER) == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_group_that_rebalances_is_to_be_asked_again_for_a_branch() -> None:
    driver = Driver()
    driver.answer(driver.join(protocols=(("range", b"\x00\x00" + _TOPICS + _NO_USER_DATA),)), JoinAnswer)
    assert commit_from_outside(driver, OTHER) == {ErrorCode.REBALANCE_IN_PROGRESS}
    assert commit_from_outside(driver, OTHER, is_of_branches=False) == {ErrorCode.UNKNOWN_MEMBER_ID}


def test_a_group_whose_subscriptions_cannot_be_read_takes_no_offsets_from_outside() -> None:
    driver = Driver()
    subscribed(driver, b"")
    assert commit_from_outside(driver, OTHER) == {ErrorCode.UNKNOWN_MEMBER_ID}
