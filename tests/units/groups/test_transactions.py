"""Offsets of transactions, from the commit to the marker."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Marker, OfTransaction
from jesenska.groups.coordinator import GroupCoordinator
from jesenska.groups.events import (
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    EndOffsets,
    ErrorAnswer,
    PartitionsAnswer,
)
from jesenska.groups.records import GroupRecord, OffsetCommitValue, OffsetRecord
from jesenska.groups.settings import GroupSettings
from tests.units.groups.driver import Driver

_KEY, _OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
_FIRST, _SECOND = OfTransaction(1, 0), OfTransaction(2, 0)


def _commit(
    driver: Driver, offset: int, within: OfTransaction | None = None, key: TopicPartition = _KEY, generation: int = -1
) -> ErrorCode:
    token = driver.token()
    value = CommittedOffset(offset, -1, "", driver.wall_ms)
    driver.give(CommitOffsets(token, "g", generation, "", None, ((key, value),), within=within))
    (answer,) = driver.answers[token]
    assert isinstance(answer, PartitionsAnswer)
    return answer.partitions[key]


def _end(driver: Driver, of: OfTransaction, *, commits: bool) -> None:
    token = driver.token()
    driver.give(EndOffsets(token, Marker(of, commits, 0)))
    assert driver.answers[token] == [ErrorAnswer(ErrorCode.NONE)]


def _committed(driver: Driver, key: TopicPartition = _KEY) -> int | None:
    found = driver.coordinator.offsets.committed("g", [key]).get(key)
    return None if found is None else found.offset


def _unstable(driver: Driver) -> set[TopicPartition]:
    return driver.coordinator.offsets.unstable("g")


def test_an_offset_counts_when_its_transaction_is_committed() -> None:
    driver = Driver()
    assert _commit(driver, 3) is ErrorCode.NONE
    assert _commit(driver, 5, _FIRST) is ErrorCode.NONE
    assert (_committed(driver), _unstable(driver)) == (3, {_KEY})
    _end(driver, _FIRST, commits=True)
    assert (_committed(driver), _unstable(driver)) == (5, set())


def test_an_offset_of_an_aborted_transaction_never_counts() -> None:
    driver = Driver()
    _commit(driver, 5, _FIRST)
    _end(driver, _FIRST, commits=False)
    assert (_committed(driver), _unstable(driver)) == (None, set())


def test_transactions_of_several_producers_wait_each_for_itself() -> None:
    driver = Driver()
    _commit(driver, 5, _FIRST)
    _commit(driver, 7, _SECOND, _OTHER)
    _end(driver, _SECOND, commits=True)
    assert (_committed(driver), _committed(driver, _OTHER), _unstable(driver)) == (None, 7, {_KEY})


def test_what_was_committed_outside_of_the_transaction_since_stays() -> None:
    driver = Driver()
    _commit(driver, 5, _FIRST)
    _commit(driver, 4)
    assert _unstable(driver) == {_KEY}
    _end(driver, _FIRST, commits=True)
    assert (_committed(driver), _unstable(driver)) == (4, set())


def test_an_offset_on_its_way_into_the_log_is_unstable_already() -> None:
    driver = Driver()
    _commit(driver, 3)
    driver.commit_at_once = False
    driver.give(
        CommitOffsets(driver.token(), "g", -1, "", None, ((_KEY, CommittedOffset(5, -1, "", 0)),), within=_FIRST)
    )
    assert _unstable(driver) == {_KEY}
    driver.fail()
    assert _unstable(driver) == set()


def test_a_marker_that_is_not_written_changes_nothing_and_says_so() -> None:
    driver = Driver()
    _commit(driver, 5, _FIRST)
    driver.commit_at_once = False
    token = driver.token()
    driver.give(EndOffsets(token, Marker(_FIRST, True, 0)))
    driver.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert driver.answers[token] == [ErrorAnswer(ErrorCode.NOT_COORDINATOR)]
    assert (_committed(driver), _unstable(driver)) == (None, {_KEY})


def test_a_group_that_waits_for_a_transaction_does_not_expire_and_its_offsets_do_not() -> None:
    driver = Driver(GroupSettings(offsets_retention_ms=1000, offsets_retention_check_interval_ms=500))
    _commit(driver, 3)
    _commit(driver, 4, key=_OTHER)
    _commit(driver, 5, _FIRST)
    driver.advance(5000)
    assert (_committed(driver), _committed(driver, _OTHER)) == (3, None)
    _end(driver, _FIRST, commits=True)
    assert _committed(driver) == 5


def test_a_generation_of_a_group_that_is_not_there_is_illegal() -> None:
    driver = Driver()
    assert _commit(driver, 5, _FIRST, generation=3) is ErrorCode.ILLEGAL_GENERATION
    assert _commit(driver, 5, _FIRST) is ErrorCode.NONE


def test_a_group_that_is_deleted_has_no_offsets_of_the_transaction_either() -> None:
    driver = Driver()
    _commit(driver, 3)
    _commit(driver, 5, _FIRST)
    token = driver.token()
    driver.give(DeleteGroup(token, "g"))
    assert driver.answers[token] == [ErrorAnswer(ErrorCode.NONE)]
    _end(driver, _FIRST, commits=True)
    assert _committed(driver) is None


def test_what_is_no_offset_makes_no_group_in_a_transaction() -> None:
    driver = Driver()
    for record in (OffsetRecord("g", _KEY.topic, _KEY.partition, None), GroupRecord("g", None)):
        driver.coordinator.replay_within(record, _FIRST, driver.now)
    assert driver.coordinator.groups == {}


def test_a_commit_whose_append_ends_after_its_group_has_gone_is_answered() -> None:
    driver = Driver(commit_at_once=False)
    token = driver.token()
    driver.give(CommitOffsets(token, "g", -1, "", None, ((_KEY, CommittedOffset(5, -1, "", driver.wall_ms)),)))
    driver.give(DeleteGroup(driver.token(), "g"))
    driver.pending.reverse()
    driver.commit()
    assert driver.coordinator.groups == {}
    driver.fail()
    assert driver.answers[token] == [PartitionsAnswer(ErrorCode.NONE, {_KEY: ErrorCode.COORDINATOR_NOT_AVAILABLE})]


def test_a_group_that_has_only_an_offset_of_an_open_transaction_is_kept_when_its_log_has_been_read() -> None:
    driver = Driver()
    coordinator = GroupCoordinator(driver.settings, lambda: "id")
    value = OffsetCommitValue(offset=5, leader_epoch=-1, metadata="", commit_timestamp=driver.wall_ms)
    coordinator.replay_within(OffsetRecord("g", _KEY.topic, _KEY.partition, value), _FIRST, driver.now)
    coordinator.finish_replay(driver.now)
    assert coordinator.offsets.unstable("g") == {_KEY}
    coordinator.replay_end(_FIRST.producer_id, True, driver.now)
    assert coordinator.offsets.committed("g", [_KEY])[_KEY].offset == 5
