"""The checkers of transactions find violations, and nothing in a correct history."""

from __future__ import annotations

import pytest

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.faults import check
from jesenska.testing.faults.history import ClientHistory, from_line, to_line
from jesenska.testing.faults.transaction_checkers import ABORTED, LOST_TRANSACTION, TORN
from tests.processes.testing.made_history import MadeHistory

_KEY, _OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
_HALF, _OTHER_HALF = ("t", 0, b"from"), ("t", 1, b"to")


class Told:
    """A history in the making: the producer of one transaction, and a reader."""

    def __init__(self) -> None:
        self.made = MadeHistory()
        self.producer: ClientHistory = self.made.client("w")
        self.reader: ClientHistory = self.made.client("r")
        self.producer.transactional()

    def send(self, *records: tuple[str, int, bytes]) -> None:
        for record in records:
            self.producer.sending(*record)

    def end(self, *records: tuple[str, int, bytes], commits: bool = True, answered: bool = True) -> None:
        number = self.producer.ending(records, commits=commits)
        if answered:
            self.producer.ended(number, commits=commits)

    def read_all(self, first: list[tuple[int, bytes | None]], second: list[tuple[int, bytes | None]]) -> None:
        self.reader.full_read([_KEY, _OTHER])
        self.reader.polled(_KEY, first)
        self.reader.polled(_OTHER, second)
        self.reader.full_read_ended({_KEY: (0, 10), _OTHER: (0, 10)})

    def kinds(self) -> list[str]:
        return [finding.kind for finding in check(self.made.operations)]


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_committed_transaction_that_is_read_whole_is_right(told: Told) -> None:
    told.send(_HALF, _OTHER_HALF)
    told.end(_HALF, _OTHER_HALF)
    told.reader.stable({_KEY: 0, _OTHER: 4})
    told.read_all([(0, b"from")], [(3, b"to")])
    assert told.kinds() == []
    assert [from_line(to_line(operation)) for operation in told.made.operations] == told.made.operations


def test_a_transfer_of_which_one_half_stays_away_is_torn(told: Told) -> None:
    told.send(_HALF, _OTHER_HALF)
    told.end(_HALF, _OTHER_HALF, answered=False)
    told.read_all([(0, b"from")], [])
    (finding,) = check(told.made.operations)
    assert finding.kind == TORN
    assert finding.sentence == "Of transaction 2 of w the last full reads have 'from' of t-0, and not 'to' of t-1."


def test_a_last_stable_offset_within_a_transaction_tears_it(told: Told) -> None:
    records = [("t", 0, b"from"), ("t", 0, b"to")]
    told.send(*records)
    told.end(*records)
    told.reader.polled(_KEY, [(4, b"from")])
    told.reader.stable({_KEY: 5})
    told.read_all([(4, b"from"), (5, b"to")], [])
    (finding,) = check(told.made.operations)
    assert (finding.kind, finding.offsets) == (TORN, (4, 5, 5))


def test_a_last_stable_offset_at_which_another_transaction_begins_is_right(told: Told) -> None:
    records = [("t", 0, b"from"), ("t", 0, b"to")]
    told.send(*records)
    told.end(*records)
    told.reader.polled(_KEY, [(4, b"from")])
    told.reader.stable({_KEY: 5})
    told.read_all([(4, b"from"), (6, b"to")], [])
    assert told.kinds() == []


@pytest.mark.parametrize("end", [4, 6])
def test_a_last_stable_offset_before_or_behind_a_transaction_is_right(told: Told, end: int) -> None:
    records = [("t", 0, b"from"), ("t", 0, b"to")]
    told.send(*records)
    told.end(*records)
    told.reader.stable({_KEY: end})
    told.read_all([(4, b"from"), (5, b"to")], [])
    assert told.kinds() == []


def test_a_record_of_an_aborted_transaction_must_not_be_read(told: Told) -> None:
    told.send(_HALF)
    told.end(_HALF, commits=False)
    told.reader.polled(_KEY, [(0, b"from")])
    (finding,) = check(told.made.operations)
    assert finding.kind == ABORTED
    assert finding.sentence == "r was given 'from' at offset 0 of t-0, of transaction 1 of w, which was aborted."


def test_a_record_must_not_be_read_before_its_commit_is_asked_for(told: Told) -> None:
    told.send(_HALF)
    told.reader.polled(_KEY, [(0, b"from")])
    assert told.kinds() == [ABORTED]


def test_an_abort_that_was_answered_after_a_commit_that_was_not_is_the_outcome(told: Told) -> None:
    told.send(_HALF)
    told.end(_HALF, answered=False)
    told.end(_HALF, commits=False)
    told.read_all([(0, b"from")], [])
    assert told.kinds() == [ABORTED]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_without_an_answer_is_right_either_way(told: Told, is_there: bool) -> None:
    told.send(_HALF, _OTHER_HALF)
    told.end(_HALF, _OTHER_HALF, answered=False)
    told.read_all([(0, b"from")] if is_there else [], [(0, b"to")] if is_there else [])
    assert told.kinds() == []


def test_a_transaction_whose_commit_was_answered_must_be_there(told: Told) -> None:
    told.send(_HALF, _OTHER_HALF)
    told.end(_HALF, _OTHER_HALF)
    told.read_all([], [])
    assert told.kinds() == [LOST_TRANSACTION]


def test_what_was_committed_after_the_last_full_read_began_is_not_missed(told: Told) -> None:
    told.send(_HALF)
    told.reader.full_read([_KEY])
    told.end(_HALF)
    told.reader.full_read_ended({_KEY: (0, 0)})
    assert told.kinds() == []
