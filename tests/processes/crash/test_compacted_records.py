"""The checks of compacted logs find lost records and records that are back, and report nothing else."""

from __future__ import annotations

import pytest

from tests.processes.crash.compacted_records import wrong_with_newest
from tests.processes.crash.disk_workload import SentRecord, Told

#: `a` is written three times, `b` is written and deleted.
SENT = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"a", b"5")]
ACKNOWLEDGED = {offset: SentRecord(key, value, "w", offset) for offset, (key, value) in enumerate(SENT)}


def wrong(
    *offsets: int,
    start: int = 0,
    later: dict[int, tuple[bytes, bytes | None]] | None = None,
    may_be_deleted: bool = False,
) -> str | None:
    found: dict[int, tuple[bytes | None, bytes | None]] = {offset: SENT[offset] for offset in offsets}
    return wrong_with_newest({**found, **(later or {})}, ACKNOWLEDGED, start, lambda record: may_be_deleted)


@pytest.mark.parametrize("offsets", [(0, 1, 2, 3, 4), (2, 3, 4), (3, 4), (4,), (0, 4)])
def test_whatever_compaction_may_leave_is_right(offsets: tuple[int, ...]) -> None:
    assert wrong(*offsets) is None


def test_a_newest_record_that_is_gone_is_lost() -> None:
    assert wrong(0, 2, 3) is not None
    assert wrong(3) is not None


def test_an_older_record_of_a_deleted_key_is_back() -> None:
    assert wrong(1, 4) is not None
    assert wrong(1, 3, 4) is None


def test_a_newer_record_that_nobody_was_told_of_may_stand_for_the_newest() -> None:
    assert wrong(3, later={7: (b"a", b"unknown")}) is None
    assert wrong(4, later={7: (b"b", b"unknown")}) is None
    assert wrong(3, later={7: (b"c", b"unknown")}) is not None


def test_a_tombstone_that_nobody_was_told_of_takes_older_records_along() -> None:
    assert wrong(3, may_be_deleted=True) is None
    assert wrong(2, 3, may_be_deleted=True) is not None


def test_what_retention_has_deleted_is_not_missed() -> None:
    assert wrong(4, start=4) is None
    assert wrong(start=5) is None
    assert wrong(start=4) is not None


def test_a_tombstone_counts_as_possible_only_behind_the_record_and_near_what_was_told() -> None:
    told = Told()
    for number in (3, 200):
        told.send(SentRecord(b"k", None, "w", number))
    assert told.may_be_deleted(SentRecord(b"k", b"v", "w", 2), 2)
    assert not told.may_be_deleted(SentRecord(b"k", b"v", "w", 3), 100)
    assert told.may_be_deleted(SentRecord(b"k", b"v", "w", 3), 190)
    assert not told.may_be_deleted(SentRecord(b"other", b"v", "w", 2), 2)
