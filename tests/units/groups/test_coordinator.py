from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Resign
from jesenska.groups.classic.states import GroupState
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    ErrorAnswer,
    Heartbeat,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Leaving,
    PartitionsAnswer,
    Sync,
    SyncAnswer,
    TopicDeleted,
)
from jesenska.groups.settings import GroupSettings
from tests.units.groups.driver import Driver

T0 = TopicPartition("t", 0)


def heartbeat(driver: Driver, answer: JoinAnswer, instance: str | None = None) -> ErrorCode:
    token = driver.token()
    driver.give(Heartbeat(token, "g", answer.generation_id, answer.member_id, instance))
    return driver.answer(token, ErrorAnswer).error


def leave(driver: Driver, leaving: Leaving, group: str = "g") -> ErrorCode:
    """Returns the result of a leaving member."""
    token = driver.token()
    driver.give(Leave(token, group, (leaving,)))
    ((_, error),) = driver.answer(token, LeaveAnswer).members
    return error


def commit(
    driver: Driver, offset: int, answer: JoinAnswer | None = None, group: str = "g", metadata: str = ""
) -> ErrorCode:
    token = driver.token()
    generation, member = (answer.generation_id, answer.member_id) if answer else (-1, "")
    driver.give(
        CommitOffsets(
            token, group, generation, member, None, ((T0, CommittedOffset(offset, 1, metadata, driver.wall_ms)),)
        )
    )
    return driver.answer(token, PartitionsAnswer).partitions[T0]


def offset_of(driver: Driver, group: str = "g") -> int | None:
    found = driver.coordinator.offsets.committed(group, [T0]).get(T0)
    return found.offset if found is not None else None


def test_a_lone_member_becomes_leader_and_gets_its_assignment_when_it_is_committed() -> None:
    driver = Driver(commit_at_once=False)
    joined = driver.answer(driver.join(), JoinAnswer)
    assert (joined.error, joined.generation_id, joined.leader, joined.protocol_name) == (
        ErrorCode.NONE,
        1,
        joined.member_id,
        "range",
    )
    assert [item.metadata for item in joined.members] == [b"m"]
    token = driver.sync(joined, {joined.member_id: b"all"})
    assert not driver.is_answered(token)
    driver.commit()
    assert driver.assignment(token) == b"all"
    assert driver.coordinator.groups["g"].state is GroupState.STABLE


def test_a_member_without_an_id_is_told_one_first_and_waits_for_nothing() -> None:
    driver = Driver()
    first = driver.answer(driver.join(known=True), JoinAnswer)
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("c-")
    second = driver.answer(driver.join(member=first.member_id), JoinAnswer)
    assert (second.error, second.member_id) == (ErrorCode.NONE, first.member_id)


def test_a_member_id_fits_a_string_of_the_wire_however_long_the_clients_name_is() -> None:
    driver = Driver()
    for client, instance in (("ä" * 32_000, None), ("c", "i" * 32_700)):
        member = driver.answer(driver.join(client=client, instance=instance, group=client[0]), JoinAnswer).member_id
        assert len(member.encode()) < 32_767
        assert member.startswith((instance or client)[:8_000])


def test_a_member_that_was_told_an_id_and_does_not_come_back_is_forgotten() -> None:
    driver = Driver()
    first = driver.answer(driver.join(known=True, session_ms=6_000), JoinAnswer)
    driver.advance(6_001)
    assert driver.answer(driver.join(member=first.member_id), JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_makes_the_first_one_join_again() -> None:
    driver = Driver()
    (first,) = driver.stable_group(1)
    token = driver.join(client="d")
    assert not driver.is_answered(token)
    assert heartbeat(driver, first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = driver.answer(driver.join(member=first.member_id), JoinAnswer)
    second = driver.answer(token, JoinAnswer)
    assert again.generation_id == second.generation_id == 2
    assert again.leader == second.leader == first.member_id
    assert len(again.members) == 2
    assert second.members == ()
    assert heartbeat(driver, second) is ErrorCode.NONE


def test_the_initial_delay_gathers_members_that_come_one_after_another() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3_000))
    first = driver.join()
    driver.advance(2_000)
    second = driver.join(client="d")
    driver.advance(1_500)
    assert not driver.is_answered(first), "someone came in, so the delay begins again"
    driver.advance(3_000)
    assert driver.answer(first, JoinAnswer).generation_id == driver.answer(second, JoinAnswer).generation_id == 1


def test_a_member_that_does_not_come_to_the_rebalance_is_dropped_when_its_time_is_up() -> None:
    driver = Driver()
    first, second = driver.stable_group(2)
    rejoined = driver.join(member=first.member_id, protocols=(("range", b"changed"),))
    driver.advance(9_000)
    assert heartbeat(driver, second) is ErrorCode.REBALANCE_IN_PROGRESS
    driver.advance(30_001)
    answer = driver.answer(rejoined, JoinAnswer)
    assert answer.error is ErrorCode.NONE
    assert [item.member_id for item in answer.members] == [first.member_id]


def test_a_silent_member_expires_and_the_others_share_anew() -> None:
    driver = Driver()
    first, second = driver.stable_group(2)
    driver.advance(9_000)
    assert heartbeat(driver, first) is ErrorCode.NONE
    driver.advance(1_001)
    assert heartbeat(driver, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.answer(driver.join(member=second.member_id), JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_an_answer_of_ours_does_not_expire() -> None:
    driver = Driver()
    first, second = driver.stable_group(2)
    waiting = driver.join(member=first.member_id, protocols=(("range", b"x"),), rebalance_ms=60_000)
    for _ in range(3):
        driver.advance(8_000)
        assert heartbeat(driver, second) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not driver.is_answered(waiting)
    assert first.member_id in driver.coordinator.groups["g"].members
    driver.join(member=second.member_id)
    assert driver.answer(waiting, JoinAnswer).error is ErrorCode.NONE


def test_members_that_never_sync_are_taken_for_dead() -> None:
    driver = Driver()
    first, second = driver.joined_group(2)
    waiting = driver.sync(second)
    for _ in range(4):
        driver.advance(8_000)
        heartbeat(driver, first)
    assert driver.answer(waiting, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert first.member_id not in driver.coordinator.groups["g"].members


def test_the_last_member_that_leaves_empties_the_group_and_its_offsets_stay() -> None:
    driver = Driver()
    (only,) = driver.stable_group(1)
    assert commit(driver, 7, only) is ErrorCode.NONE
    token = driver.token()
    driver.give(Leave(token, "g", (Leaving(only.member_id),)))
    assert driver.answer(token, LeaveAnswer).members == ((Leaving(only.member_id), ErrorCode.NONE),)
    assert driver.coordinator.groups["g"].state is GroupState.EMPTY
    assert offset_of(driver) == 7
    assert commit(driver, 8) is ErrorCode.NONE


def test_a_member_that_is_alone_keeps_one_of_its_protocols() -> None:
    driver = Driver()
    (only,) = driver.stable_group(1)
    refused = driver.join(member=only.member_id, protocols=(("other", b""),))
    assert driver.answer(refused, JoinAnswer).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    taken = driver.join(member=only.member_id, protocols=(("range", b""), ("other", b"")))
    assert driver.answer(taken, JoinAnswer).error is ErrorCode.NONE


def test_who_names_itself_in_a_group_that_is_not_there_is_unknown_whatever_its_protocols() -> None:
    driver = Driver()
    assert driver.answer(driver.join(member="someone", protocols=()), JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.answer(driver.join(protocols=()), JoinAnswer).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_requests_with_a_wrong_generation_member_or_protocol_are_refused() -> None:
    driver = Driver()
    (only,) = driver.stable_group(1)
    old = JoinAnswer(ErrorCode.NONE, only.member_id, 0)
    stranger = JoinAnswer(ErrorCode.NONE, "nobody", 1)
    assert heartbeat(driver, old) is ErrorCode.ILLEGAL_GENERATION
    assert heartbeat(driver, stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, 1, old) is ErrorCode.ILLEGAL_GENERATION
    assert commit(driver, 1, stranger) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(driver, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.answer(driver.sync(old), SyncAnswer).error is ErrorCode.ILLEGAL_GENERATION
    assert (
        driver.answer(driver.join(protocols=(("other", b""),)), JoinAnswer).error
        is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert driver.answer(driver.join(group=""), JoinAnswer).error is ErrorCode.INVALID_GROUP_ID
    assert driver.answer(driver.join(session_ms=5), JoinAnswer).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert driver.answer(driver.join(member="x", group="new"), JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_assignment_that_cannot_be_stored_starts_the_rebalance_again() -> None:
    driver = Driver(commit_at_once=False)
    joined = driver.answer(driver.join(), JoinAnswer)
    token = driver.sync(joined, {joined.member_id: b"all"})
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.answer(token, SyncAnswer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.coordinator.groups["g"].state is GroupState.PREPARING_REBALANCE
    assert driver.answer(driver.join(member=joined.member_id), JoinAnswer).generation_id == 2


def test_an_offset_counts_only_once_it_is_committed() -> None:
    driver = Driver(commit_at_once=False)
    token = driver.token()
    driver.give(CommitOffsets(token, "g", -1, "", None, ((T0, CommittedOffset(5, -1, "", 0)),)))
    assert offset_of(driver) is None
    assert not driver.is_answered(token)
    driver.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert driver.answer(token, PartitionsAnswer).partitions == {T0: ErrorCode.NOT_COORDINATOR}
    assert offset_of(driver) is None


def test_a_commit_whose_append_takes_too_long_is_answered_and_counts_when_it_is_done() -> None:
    driver = Driver(GroupSettings(offsets_commit_timeout_ms=500), commit_at_once=False)
    token = driver.token()
    driver.give(CommitOffsets(token, "g", -1, "", None, ((T0, CommittedOffset(5, -1, "", 0)),)))
    driver.advance(499)
    assert not driver.is_answered(token)
    driver.advance(1)
    assert driver.answer(token, PartitionsAnswer).partitions == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert offset_of(driver) is None
    driver.commit()
    assert offset_of(driver) == 5
    assert driver.is_answered(token), "and not a second time: `answer` would not have found one answer only"
    assert driver.answer(token, PartitionsAnswer).partitions == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


def test_a_commit_that_is_late_and_then_fails_leaves_nothing() -> None:
    driver = Driver(GroupSettings(offsets_commit_timeout_ms=500), commit_at_once=False)
    token = driver.token()
    driver.give(CommitOffsets(token, "g", -1, "", None, ((T0, CommittedOffset(5, -1, "", 0)),)))
    driver.advance(500)
    driver.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert driver.answer(token, PartitionsAnswer).partitions == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert offset_of(driver) is None


def test_an_append_in_time_leaves_no_time_to_wait_for() -> None:
    driver = Driver(GroupSettings(offsets_commit_timeout_ms=500))
    nothing_to_wait_for = driver.operations.next_deadline_ms()
    assert commit(driver, 1) is ErrorCode.NONE
    assert driver.operations.next_deadline_ms() == nothing_to_wait_for


def test_an_assignment_that_takes_too_long_to_store_starts_the_rebalance_again_and_is_not_used() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, offsets_commit_timeout_ms=500), commit_at_once=False)
    joined = driver.answer(driver.join(), JoinAnswer)
    token = driver.sync(joined, {joined.member_id: b"all"})
    driver.advance(500)
    assert driver.answer(token, SyncAnswer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = driver.answer(driver.join(member=joined.member_id), JoinAnswer)
    assert again.generation_id == 2
    second = driver.sync(again, {again.member_id: b"anew"})
    driver.commit()
    assert not driver.is_answered(second), "the first assignment's record is not this one's"
    driver.commit()
    assert driver.assignment(second) == b"anew"


def test_a_group_whose_deletion_takes_too_long_is_gone_when_it_is_done() -> None:
    driver = Driver(GroupSettings(offsets_commit_timeout_ms=500))
    assert commit(driver, 1) is ErrorCode.NONE
    driver.commit_at_once = False
    token = driver.token()
    driver.give(DeleteGroup(token, "g"))
    driver.advance(500)
    assert driver.answer(token, ErrorAnswer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.commit()
    assert driver.answer(token, ErrorAnswer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "g" not in driver.coordinator.groups


def test_metadata_that_is_too_large_is_refused_for_its_partition() -> None:
    driver = Driver()
    assert commit(driver, 1, metadata="x" * 5000) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert offset_of(driver) is None


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_older_self() -> None:
    driver = Driver()
    first = driver.answer(driver.join(instance="i"), JoinAnswer)
    driver.sync(first, {first.member_id: b"mine"}, instance="i")
    again = driver.answer(driver.join(instance="i", skip=True), JoinAnswer)
    assert again.error is ErrorCode.NONE
    assert again.member_id != first.member_id
    assert again.generation_id == first.generation_id
    assert again.skip_assignment
    assert driver.assignment(driver.sync(again, instance="i")) == b"mine"
    assert heartbeat(driver, first, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert heartbeat(driver, again, "i") is ErrorCode.NONE


def test_a_static_member_that_was_removed_is_nobody_and_comes_back_as_a_new_one() -> None:
    driver = Driver()
    first = driver.answer(driver.join(instance="i"), JoinAnswer)
    assert leave(driver, Leaving("", "i")) is ErrorCode.NONE
    assert leave(driver, Leaving("", "i")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert heartbeat(driver, first, "i") is ErrorCode.UNKNOWN_MEMBER_ID
    again = driver.answer(driver.join(instance="i"), JoinAnswer)
    assert (again.error, again.leader, [item.member_id for item in again.members]) == (
        ErrorCode.NONE,
        again.member_id,
        [again.member_id],
    )


def test_a_static_member_whose_return_cannot_be_written_is_whom_it_was() -> None:
    driver = Driver(commit_at_once=False)
    first = driver.answer(driver.join(instance="i"), JoinAnswer)
    driver.sync(first, {first.member_id: b"mine"}, instance="i")
    driver.commit()
    again = driver.join(instance="i", protocols=(("range", b"m"), ("other", b"")))
    driver.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert driver.answer(again, JoinAnswer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert heartbeat(driver, first, "i") is ErrorCode.NONE
    assert driver.assignment(driver.sync(first, instance="i")) == b"mine"
    refused = driver.join(protocols=(("other", b""),))
    assert driver.answer(refused, JoinAnswer).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_comes_back_into_a_full_group() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, max_size=1))
    first = driver.answer(driver.join(instance="i"), JoinAnswer)
    driver.sync(first, {first.member_id: b""}, instance="i")
    assert driver.answer(driver.join(instance="other"), JoinAnswer).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert driver.answer(driver.join(instance="i"), JoinAnswer).error is ErrorCode.NONE


def test_a_static_member_that_comes_back_during_a_rebalance_waits_for_it_and_nothing_is_written() -> None:
    driver = Driver(commit_at_once=False)
    first = driver.answer(driver.join(instance="i", session_ms=1_000_000), JoinAnswer)
    driver.sync(first, {first.member_id: b""}, instance="i")
    driver.commit()
    newcomer = driver.join(session_ms=1_000_000)
    back = driver.join(instance="i", session_ms=1_000_000)
    assert driver.pending == []
    answers = [driver.answer(token, JoinAnswer) for token in (newcomer, back)]
    assert [(answer.error, answer.generation_id) for answer in answers] == [(ErrorCode.NONE, 2)] * 2
    assert answers[1].member_id != first.member_id


def test_the_leader_is_told_of_each_member_what_it_says_for_the_protocol_that_was_chosen() -> None:
    driver = Driver()
    (only,) = driver.stable_group(1)
    tokens = [
        driver.join(protocols=(("other", b"no"), ("range", b"yes")), session_ms=1_000_000),
        driver.join(member=only.member_id, protocols=(("range", b"mine"),), session_ms=1_000_000),
    ]
    told = driver.answer(tokens[1], JoinAnswer)
    assert told.protocol_name == "range"
    assert [item.metadata for item in told.members] == [b"mine", b"yes"]


def test_a_static_member_whose_return_fails_after_its_group_has_gone_is_told_so() -> None:
    driver = Driver(commit_at_once=False)
    first = driver.answer(driver.join(instance="i"), JoinAnswer)
    driver.sync(first, {first.member_id: b""}, instance="i")
    driver.commit()
    again = driver.join(instance="i")
    assert leave(driver, Leaving("", "i")) is ErrorCode.NONE
    driver.give(DeleteGroup(driver.token(), "g"))
    driver.pending.append(driver.pending.pop(0))
    driver.commit()
    driver.commit()
    assert driver.coordinator.groups == {}
    driver.fail()
    assert driver.answer(again, JoinAnswer).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_another_leads_while_a_static_leader_is_silent_and_goes_on_when_it_is_back() -> None:
    driver = Driver()
    silent = driver.answer(driver.join(instance="i", session_ms=1_000_000), JoinAnswer)
    driver.sync(silent, {silent.member_id: b""}, instance="i")
    token = driver.join(session_ms=1_000_000)
    driver.advance(30_000)
    other = driver.answer(token, JoinAnswer)
    assert (other.generation_id, other.leader) == (2, other.member_id)
    driver.sync(other, {other.member_id: b"all"})
    tokens = [
        driver.join(member=other.member_id, session_ms=1_000_000),
        driver.join(member=silent.member_id, instance="i", session_ms=1_000_000),
    ]
    assert [driver.answer(token, JoinAnswer).leader for token in tokens] == [other.member_id, other.member_id]


def test_a_member_that_leaves_while_its_join_waits_is_told_that_it_is_unknown() -> None:
    driver = Driver()
    first, second = driver.stable_group(2)
    waits = driver.join(member=second.member_id, protocols=(("range", b"new"),))
    assert leave(driver, Leaving(second.member_id)) is ErrorCode.NONE
    assert driver.answer(waits, JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.answer(driver.join(member=first.member_id), JoinAnswer).error is ErrorCode.NONE


def test_who_waits_when_the_coordinator_resigns_is_told_to_look_for_another_one() -> None:
    driver = Driver()
    _, second = driver.stable_group(2)
    joins = driver.join(member=second.member_id, protocols=(("range", b"new"),))
    _, waiting = driver.joined_group(2, "other")
    syncs = driver.sync(waiting, group="other")
    driver.give(Resign())
    assert driver.answer(joins, JoinAnswer).error is ErrorCode.NOT_COORDINATOR
    assert driver.answer(syncs, SyncAnswer).error is ErrorCode.NOT_COORDINATOR


def test_a_group_without_a_name_has_no_members() -> None:
    driver = Driver()
    tokens = [driver.token() for _ in range(3)]
    driver.give(Heartbeat(tokens[0], "", 1, "m", None))
    driver.give(Sync(tokens[1], "", 1, "m"))
    driver.give(Leave(tokens[2], "", (Leaving("m"),)))
    assert [driver.answers[token][0].error for token in tokens] == [ErrorCode.INVALID_GROUP_ID] * 3


def test_only_empty_groups_are_deleted_and_their_offsets_go_with_them() -> None:
    driver = Driver()
    (only,) = driver.stable_group(1)
    commit(driver, 7, only)
    token = driver.token()
    driver.give(DeleteGroup(token, "g"))
    assert driver.answer(token, ErrorAnswer).error is ErrorCode.NON_EMPTY_GROUP
    driver.give(Leave(driver.token(), "g", (Leaving(only.member_id),)))
    token = driver.token()
    driver.give(DeleteGroup(token, "g"))
    assert driver.answer(token, ErrorAnswer).error is ErrorCode.NONE
    assert offset_of(driver) is None
    assert driver.restarted().coordinator.groups == {}
    token = driver.token()
    driver.give(DeleteGroup(token, "g"))
    assert driver.answer(token, ErrorAnswer).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_deleted_by_request_and_with_their_topic() -> None:
    driver = Driver()
    commit(driver, 7)
    token = driver.token()
    driver.give(DeleteOffsets(token, "g", (T0,)))
    assert driver.answer(token, PartitionsAnswer).partitions == {T0: ErrorCode.NONE}
    assert offset_of(driver) is None
    commit(driver, 8)
    driver.give(TopicDeleted("t"))
    assert offset_of(driver) is None
    assert offset_of(driver.restarted()) is None


def test_offsets_of_an_empty_group_expire_and_the_group_with_them() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=100_000, offsets_retention_check_interval_ms=10_000))
    commit(driver, 7)
    driver.advance(95_000)
    assert offset_of(driver) == 7
    driver.advance(20_000)
    assert offset_of(driver) is None
    assert "g" not in driver.coordinator.groups


def test_a_restart_brings_back_members_assignments_and_offsets() -> None:
    driver = Driver()
    first, second = driver.stable_group(2)
    commit(driver, 42, second)
    restarted = driver.restarted()
    assert offset_of(restarted) == 42
    assert heartbeat(restarted, first) is ErrorCode.NONE
    assert restarted.assignment(restarted.sync(second)) == b"a1"
    restarted.advance(10_001)
    assert restarted.coordinator.groups["g"].state in (GroupState.PREPARING_REBALANCE, GroupState.EMPTY)


def test_a_group_that_has_become_empty_is_empty_after_a_restart() -> None:
    driver = Driver()
    (only,) = driver.stable_group(1)
    assert leave(driver, Leaving(only.member_id)) is ErrorCode.NONE
    group = driver.restarted().coordinator.groups["g"]
    assert (group.state, group.generation, group.members, group.protocol, group.leader_id) == (
        GroupState.EMPTY,
        2,
        {},
        None,
        None,
    )


def test_a_restart_forgets_groups_that_have_nothing_and_no_others() -> None:
    driver = Driver()
    commit(driver, 1, group="keeps offsets")
    commit(driver, 1, group="has nothing")
    driver.give(DeleteOffsets(driver.token(), "has nothing", (T0,)))
    driver.stable_group(1, "has a member")
    (gone,) = driver.stable_group(1, "had a member")
    assert leave(driver, Leaving(gone.member_id), "had a member") is ErrorCode.NONE
    assert driver.restarted().coordinator.groups.keys() == {"keeps offsets", "has a member", "had a member"}


@pytest.mark.parametrize("size", [1, 2])
def test_a_full_group_takes_no_more_members(size: int) -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, max_size=size))
    driver.stable_group(size)
    assert driver.answer(driver.join(), JoinAnswer).error is ErrorCode.GROUP_MAX_SIZE_REACHED
