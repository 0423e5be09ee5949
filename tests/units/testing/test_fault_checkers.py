"""Each checker finds its fault in a history that has it and nothing else, and nothing in one that has none."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jesenska.base.identifiers import TopicPartition
from jesenska.testing.faults.checkers import (
    CHECKERS,
    DUPLICATED,
    INCONSISTENT,
    LOST,
    NON_MONOTONIC,
    NOT_READ,
    REORDERED,
    SKIPPED,
    UNEXPECTED,
    WENT_BACK,
    Finding,
    check,
)
from jesenska.testing.faults.history import ClientHistory, Operation
from tests.processes.testing.made_history import PLANTS, CorrectHistory, MadeHistory
from tests.profiles import examples

_KEY, _OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Told:
    """A history in the making: producer p, consumers c and d, and the last reader."""

    def __init__(self) -> None:
        self.made = MadeHistory()
        self.p, self.c, self.d, self.reader = (self.made.client(name) for name in ("p", "c", "d", "reader"))

    def acknowledged(
        self, value: bytes, offset: int, *, key: TopicPartition = _KEY, producer: ClientHistory | None = None
    ) -> None:
        producer = producer or self.p
        number = producer.sending(key.topic, key.partition, value)
        producer.acknowledged(number, key.topic, key.partition, offset, value)

    def read_all(self, *records: tuple[int, bytes | None], start: int = 0, key: TopicPartition = _KEY) -> None:
        self.reader.full_read([key])
        self.reader.polled(key, records)
        self.reader.full_read_ended({key: (start, records[-1][0] + 1 if records else start)})

    def findings(self) -> list[Finding]:
        return check(self.made.operations)

    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings()]


@pytest.fixture
def told() -> Told:
    return Told()


# --- lost ------------------------------------------------------------------------------------------------------------


def test_a_record_that_is_not_in_the_last_full_read_is_lost(told: Told) -> None:
    for offset, value in enumerate((b"a", b"b", b"c")):
        told.acknowledged(value, offset)
    told.read_all((0, b"a"), (2, b"c"))
    assert told.findings() == [
        Finding(LOST, "t", 0, (1,), ("b",), "'b', acknowledged to p at offset 1 of t-0, is not in the last full read.")
    ]


def test_the_end_of_a_log_that_is_lost_is_one_finding(told: Told) -> None:
    for offset in range(30):
        told.acknowledged(b"%d" % offset, offset)
    told.read_all(*((offset, b"%d" % offset) for offset in range(10)))
    (finding,) = told.findings()
    assert (finding.kind, finding.offsets) == (LOST, tuple(range(10, 20)))
    assert (
        finding.sentence
        == "'10', acknowledged to p at offset 10 of t-0, and 19 later records are not in the last full read."
    )


def test_what_the_last_full_read_has_is_not_lost_though_an_earlier_one_had_it_not(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.read_all()
    told.read_all((0, b"a"))
    assert told.kinds() == []


def test_what_an_earlier_full_read_has_is_lost_if_the_last_one_has_it_not(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.read_all((0, b"a"))
    told.read_all()
    assert told.kinds() == [LOST]


def test_a_full_read_that_has_not_ended_does_not_count(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.read_all((0, b"a"))
    told.reader.full_read([_KEY])
    assert told.kinds() == []


def test_what_was_acknowledged_after_the_full_read_began_is_not_lost(told: Told) -> None:
    told.reader.full_read([_KEY])
    told.acknowledged(b"a", 0)
    told.reader.full_read_ended({_KEY: (0, 0)})
    assert told.kinds() == []


def test_sends_that_failed_or_are_unknown_or_have_no_promise_are_not_lost(told: Told) -> None:
    told.p.failed(told.p.sending("t", 0, b"refused"), certain=True)
    told.p.failed(told.p.sending("t", 0, b"gone"), certain=False)
    told.p.sending("t", 0, b"silent")
    weak = told.made.client("weak")
    weak.producer(acks=1, idempotent=False)
    told.acknowledged(b"w", 0, producer=weak)
    told.read_all()
    assert told.kinds() == []


def test_a_record_without_a_value_is_lost_by_its_offset(told: Told) -> None:
    for offset in (0, 1, -1):
        number = told.p.sending("t", 0, None)
        told.p.acknowledged(number, "t", 0, offset, None)
    told.read_all((0, None))
    assert [(finding.kind, finding.offsets) for finding in told.findings()] == [(LOST, (1,))]


def test_a_record_whose_offset_was_not_told_is_found_by_its_value(told: Told) -> None:
    told.acknowledged(b"a", -1)
    told.acknowledged(b"b", -1)
    told.read_all((5, b"a"))
    assert [(finding.kind, finding.values) for finding in told.findings()] == [(LOST, ("b",))]


def test_what_a_retention_has_deleted_is_lost_only_where_there_is_none(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.acknowledged(b"b", 1)
    told.read_all((1, b"b"), start=1)
    assert told.kinds() == [LOST]
    assert check(told.made.operations, trimmed=True) == []


def test_a_partition_without_a_full_read_is_told(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.acknowledged(b"b", 0, key=_OTHER)
    told.read_all((0, b"a"))
    assert [(finding.kind, finding.partition) for finding in told.findings()] == [(NOT_READ, 1)]


# --- duplicated ------------------------------------------------------------------------------------------------------


def test_a_value_at_two_offsets_is_duplicated(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.read_all((0, b"a"), (1, b"a"))
    sentence = "'a' was sent once by an idempotent producer and was read at 2 places: offset 0 of t-0, offset 1 of t-0."
    assert told.findings() == [Finding(DUPLICATED, "t", 0, (0, 1), ("a",), sentence)]


def test_a_value_in_two_partitions_is_duplicated(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.read_all((0, b"a"))
    told.read_all((0, b"a"), key=_OTHER)
    assert told.kinds() == [DUPLICATED]


def test_an_unknown_send_may_stand_there_once_and_not_twice(told: Told) -> None:
    told.p.sending("t", 0, b"a")
    told.p.failed(told.p.sending("t", 0, b"b"), certain=False)
    told.read_all((0, b"a"), (1, b"b"))
    assert told.kinds() == []
    told.d.polled(_KEY, [(2, b"b")])
    assert told.kinds() == [DUPLICATED]


def test_a_value_may_stand_there_as_often_as_it_was_sent(told: Told) -> None:
    for offset in (0, 1):
        told.acknowledged(b"a", offset)
    told.read_all((0, b"a"), (1, b"a"))
    assert told.kinds() == []


def test_a_send_that_certainly_failed_allows_no_second_place(told: Told) -> None:
    told.p.failed(told.p.sending("t", 0, b"a"), certain=True)
    told.acknowledged(b"a", 0)
    told.read_all((0, b"a"), (1, b"a"))
    assert told.kinds() == [DUPLICATED]


def test_two_readers_of_one_offset_are_no_duplicate_and_neither_is_a_second_copy_without_idempotence(
    told: Told,
) -> None:
    told.p.producer(idempotent=False, max_in_flight=1)
    told.acknowledged(b"a", 1)
    told.read_all((0, b"a"), (1, b"a"))
    told.c.polled(_KEY, [(0, b"a")])
    assert told.kinds() == []


# --- reordered -------------------------------------------------------------------------------------------------------


def test_a_record_before_the_one_that_was_sent_before_it_is_reordered(told: Told) -> None:
    told.acknowledged(b"a", 1)
    told.acknowledged(b"b", 0)
    told.read_all((0, b"b"), (1, b"a"))
    sentence = "p sent 'a' before 'b', and in t-0 they have the offsets 1 and 0."
    assert told.findings() == [Finding(REORDERED, "t", 0, (1, 0), ("a", "b"), sentence)]


def test_acknowledgements_in_another_order_are_no_change_of_order(told: Told) -> None:
    one, two = told.p.sending("t", 0, b"a"), told.p.sending("t", -1, b"b")
    told.p.acknowledged(two, "t", 0, 1, b"b")
    told.p.acknowledged(one, "t", 0, 0, b"a")
    told.read_all((0, b"a"), (1, b"b"))
    assert told.kinds() == []


def test_where_no_offset_was_told_the_readers_say_what_the_order_is(told: Told) -> None:
    told.acknowledged(b"a", -1)
    told.acknowledged(b"b", -1)
    told.read_all((0, b"b"), (1, b"a"))
    assert told.kinds() == [REORDERED]


@pytest.mark.parametrize(
    ("acks", "idempotent", "max_in_flight", "found"),
    [(-1, True, 5, 1), (-1, False, 1, 1), (-1, False, 2, 0), (-1, True, 6, 0), (1, False, 1, 0)],
)
def test_only_those_producers_are_judged_that_keep_an_order(
    told: Told, acks: int, idempotent: bool, max_in_flight: int, found: int
) -> None:
    told.p.producer(acks=acks, idempotent=idempotent, max_in_flight=max_in_flight)
    told.acknowledged(b"a", 1)
    told.acknowledged(b"b", 0)
    told.read_all((0, b"b"), (1, b"a"))
    assert told.kinds() == [REORDERED] * found


def test_other_partitions_other_producers_and_records_without_an_answer_have_no_order(told: Told) -> None:
    other = told.made.client("q")
    told.acknowledged(b"a", 5)
    told.acknowledged(b"b", 0, key=_OTHER)
    told.acknowledged(b"c", 1, producer=other)
    told.p.sending("t", 0, b"d")
    told.acknowledged(b"e", 6)
    told.read_all((1, b"c"), (2, b"d"), (5, b"a"), (6, b"e"))
    told.read_all((0, b"b"), key=_OTHER)
    assert told.kinds() == []


# --- inconsistent offsets --------------------------------------------------------------------------------------------


def test_an_offset_that_shows_two_records_is_inconsistent(told: Told) -> None:
    told.c.polled(_KEY, [(7, b"a")])
    told.d.polled(_KEY, [(7, b"b")])
    assert told.findings() == [
        Finding(INCONSISTENT, "t", 0, (7,), ("a", "b"), "Offset 7 of t-0 was shown to c as 'a', and shown to d as 'b'.")
    ]


def test_offsets_in_a_row_that_differ_are_one_finding(told: Told) -> None:
    told.c.polled(_KEY, [(offset, b"one %d" % offset) for offset in range(30)])
    told.d.polled(_KEY, [(offset, b"%s %d" % (b"one" if offset < 20 else b"two", offset)) for offset in range(30)])
    (finding,) = told.findings()
    assert (finding.kind, finding.offsets) == (INCONSISTENT, tuple(range(20, 30)))


def test_another_record_at_an_acknowledged_offset_is_inconsistent(told: Told) -> None:
    told.acknowledged(b"a", 1)
    told.p.sending("t", 0, b"b")
    told.read_all((0, b"a"), (1, b"b"))
    assert [(finding.kind, finding.values) for finding in told.findings()] == [(INCONSISTENT, ("a", "b"))]


def test_two_records_acknowledged_at_one_offset_are_inconsistent(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.acknowledged(b"b", 0)
    told.read_all((0, b"a"), (1, b"b"))
    assert told.kinds() == [INCONSISTENT]


def test_an_acknowledgement_without_all_replicas_promises_no_offset(told: Told) -> None:
    told.p.producer(acks=1, idempotent=False, max_in_flight=5)
    told.acknowledged(b"a", 0)
    told.acknowledged(b"b", 0)
    told.read_all((0, b"b"))
    assert told.kinds() == []


def test_the_same_record_seen_by_all_is_consistent_and_partitions_have_offsets_of_their_own(told: Told) -> None:
    told.c.polled(_KEY, [(0, b"a"), (1, None)])
    told.d.polled(_KEY, [(0, b"a"), (1, None)])
    told.d.polled(_OTHER, [(0, b"b"), (1, b"c")])
    assert told.kinds() == []


# --- non-monotonic ---------------------------------------------------------------------------------------------------


def test_a_consumer_that_goes_back_is_found_once_for_each_time(told: Told) -> None:
    told.c.polled(_KEY, [(offset, b"%d" % offset) for offset in range(5)])
    told.c.polled(_KEY, [(offset, b"%d" % offset) for offset in range(1, 6)])
    told.c.polled(_KEY, [(0, b"0")])
    found = told.findings()
    assert [(finding.kind, finding.offsets) for finding in found] == [(NON_MONOTONIC, (1,)), (NON_MONOTONIC, (0,))]
    assert found[0].sentence == "c was given offset 1 of t-0 where 5 or a later one comes next."


def test_an_offset_below_the_one_that_a_consumer_begins_at_is_found(told: Told) -> None:
    told.c.assigned([_KEY], {_KEY: 3})
    told.c.polled(_KEY, [(2, b"2"), (3, b"3")])
    assert told.kinds() == [NON_MONOTONIC]


def test_a_consumer_may_go_back_where_it_begins_anew(told: Told) -> None:
    told.c.polled(_KEY, [(5, b"5")])
    told.c.assigned([_KEY], {_KEY: None})
    told.c.polled(_KEY, [(3, b"3")])
    told.c.assigned([_KEY, _OTHER], {_OTHER: 0})
    told.c.polled(_KEY, [(4, b"4")])
    told.c.sought(_KEY, 0)
    told.c.polled(_KEY, [(0, b"0")])
    told.d.polled(_KEY, [(0, b"0")])
    told.c.full_read([_KEY])
    told.c.polled(_KEY, [(0, b"0")])
    assert told.kinds() == []


def test_an_assignment_that_keeps_a_partition_keeps_its_position(told: Told) -> None:
    told.c.assigned([_KEY], {_KEY: 5})
    told.c.polled(_KEY, [(5, b"5")])
    told.c.assigned([_KEY, _OTHER], {_OTHER: 0})
    told.c.polled(_KEY, [(5, b"5")])
    assert told.kinds() == [NON_MONOTONIC]


# --- poll skip -------------------------------------------------------------------------------------------------------


def test_a_consumer_that_passes_over_what_others_saw_is_found(told: Told) -> None:
    told.d.polled(_KEY, [(offset, b"%d" % offset) for offset in range(6)])
    told.c.polled(_KEY, [(0, b"0")])
    told.c.polled(_KEY, [(4, b"4"), (5, b"5")])
    sentence = "c was given offset 4 of t-0 where 1 comes next, without '1' at offset 1, and 2 more."
    assert told.findings() == [Finding(SKIPPED, "t", 0, (1, 2, 3), ("1", "2", "3"), sentence)]


def test_a_skip_in_one_poll_and_right_at_the_beginning_is_found(told: Told) -> None:
    told.d.polled(_KEY, [(offset, b"%d" % offset) for offset in range(6)])
    told.c.assigned([_KEY], {_KEY: 0})
    told.c.polled(_KEY, [(1, b"1"), (3, b"3")])
    told.c.sought(_KEY, 4)
    told.c.polled(_KEY, [(5, b"5")])
    assert [(finding.kind, finding.offsets) for finding in told.findings()] == [
        (SKIPPED, (0,)),
        (SKIPPED, (2,)),
        (SKIPPED, (4,)),
    ]


def test_offsets_that_nobody_saw_may_be_passed_over_and_any_where_a_consumer_begins_anew(told: Told) -> None:
    told.d.polled(_KEY, [(offset, b"%d" % offset) for offset in (0, 1, 4, 5, 6)])
    told.c.polled(_KEY, [(1, b"1"), (4, b"4")])
    told.c.assigned([_KEY], {_KEY: None})
    told.c.polled(_KEY, [(6, b"6")])
    assert told.kinds() == []


# --- commits ---------------------------------------------------------------------------------------------------------


def _commit(client: ClientHistory, offset: int, *, back: bool = False) -> None:
    client.committed(client.committing("g", _KEY, offset, back=back), "g", _KEY, offset)


def _find(told: Told, offset: int) -> None:
    told.d.found(told.made.now_ns(), "g", _KEY, offset)


def test_a_commit_that_is_found_lower_has_gone_back(told: Told) -> None:
    _commit(told.c, 5)
    _find(told, 4)
    _find(told, -1)
    assert told.findings() == [
        Finding(WENT_BACK, "t", 0, (5, 4), (), "Group g had committed offset 5 of t-0, and d found 4 there."),
        Finding(WENT_BACK, "t", 0, (5, -1), (), "Group g had committed offset 5 of t-0, and d found nothing there."),
    ]


def test_a_commit_is_found_as_it_is_or_higher(told: Told) -> None:
    _find(told, -1)
    _commit(told.c, 5)
    _find(told, 5)
    _find(told, 9)
    told.d.found(told.made.now_ns(), "other", _KEY, 0)
    told.d.found(told.made.now_ns(), "g", _OTHER, -1)
    assert told.kinds() == []


def test_what_was_found_once_is_not_found_lower(told: Told) -> None:
    _find(told, 9)
    _find(told, 8)
    assert told.kinds() == [WENT_BACK]


def test_a_commit_that_was_answered_while_somebody_asked_may_be_missing(told: Told) -> None:
    began_ns = told.made.now_ns()
    _commit(told.c, 5)
    told.d.found(began_ns, "g", _KEY, -1)
    assert told.kinds() == []


def test_a_lower_commit_does_not_excuse_a_lower_offset_unless_it_was_meant(told: Told) -> None:
    _commit(told.c, 5)
    _commit(told.c, 3)
    _find(told, 3)
    assert told.kinds() == [WENT_BACK]
    _commit(told.c, 2, back=True)
    _find(told, 2)
    assert told.kinds() == [WENT_BACK]


def test_what_is_seen_before_a_commit_goes_back_binds_nobody_behind_it(told: Told) -> None:
    _commit(told.c, 5)
    began_ns = told.made.now_ns()
    _commit(told.c, 2, back=True)
    told.d.found(began_ns, "g", _KEY, 5)
    _find(told, 2)
    assert told.kinds() == []


def test_a_commit_without_an_answer_may_take_effect_late(told: Told) -> None:
    told.c.committing("g", _KEY, 3)
    _commit(told.c, 5)
    _find(told, 3)
    assert told.kinds() == []
    _find(told, 4)
    assert told.kinds() == [WENT_BACK]


# --- unexpected ------------------------------------------------------------------------------------------------------


def test_records_that_were_refused_or_come_from_nowhere_are_unexpected(told: Told) -> None:
    told.p.failed(told.p.sending("t", 0, b"refused"), certain=True)
    told.read_all((0, b"refused"), (1, b"nowhere"))
    assert [finding.sentence for finding in told.findings()] == [
        "reader was given 'refused' at offset 0 of t-0, which was certainly not written.",
        "reader was given 'nowhere' at offset 1 of t-0, which no client has sent.",
    ]
    assert told.kinds() == [UNEXPECTED, UNEXPECTED]


def test_topics_into_which_nobody_sends_may_hold_anything(told: Told) -> None:
    told.acknowledged(b"a", 0)
    told.read_all((0, b"a"), (1, None))
    told.c.polled(TopicPartition("other", 0), [(0, b"x")])
    assert told.kinds() == []


# --- all of them -----------------------------------------------------------------------------------------------------


def test_an_empty_history_is_clean() -> None:
    assert check([]) == []


def test_a_client_that_was_started_again_counts_anew(told: Told) -> None:
    """The numbers of a restarted client are unrelated to its earlier ones."""
    told.p.sending("t", 0, b"unknown")
    told.acknowledged(b"a", 0)
    again = told.made.client("p")
    again.producer()
    told.acknowledged(b"b", 1, producer=again)
    told.read_all((0, b"a"), (1, b"b"))
    assert told.kinds() == []


@settings(max_examples=examples(1.5))
@given(st.integers(0, 2**32))
def test_nothing_is_found_in_a_correct_history(seed: int) -> None:
    assert check(CorrectHistory(Random(seed)).operations) == []


@pytest.mark.parametrize("kind", PLANTS)
@settings(max_examples=examples(0.6))
@given(seed=st.integers(0, 2**32))
def test_one_fault_in_a_correct_history_is_found_by_its_checker_alone(kind: str, seed: int) -> None:
    chance = Random(seed)
    planted = PLANTS[kind](CorrectHistory(chance).operations, chance)
    if planted is not None:
        assert {finding.kind for finding in check(planted)} == {kind}


def test_faults_of_every_kind_are_planted() -> None:
    assert PLANTS.keys() == CHECKERS.keys()
    for kind, plant in PLANTS.items():
        planted = [plant(CorrectHistory(Random(seed)).operations, Random(seed)) for seed in range(100)]
        assert sum(operations is not None for operations in planted) > 30, kind


def test_a_long_history_is_checked_soon(told: Told) -> None:
    """The time is proportional: a quadratic check would take hours here."""
    count = 60_000
    for offset in range(count):
        told.acknowledged(b"%d" % offset, offset)
    for client in (told.c, told.d):
        for first in range(0, count, 5):
            client.polled(_KEY, [(offset, b"%d" % offset) for offset in range(first, first + 5)])
            _commit(client, first + 5)
        # One that skips and one that repeats, all the time.
        for first in range(0, count, 10):
            client.sought(_KEY, first)
            client.polled(_KEY, [(first, b"%d" % first), (first + 2, b"%d" % (first + 2)), (first, b"%d" % first)])
    _find(told, count)
    told.read_all(*((offset, b"%d" % offset) for offset in range(count)))
    operations: list[Operation] = told.made.operations
    began = time.process_time()
    found = check(operations)
    assert time.process_time() - began < 60
    assert {finding.kind for finding in found} == {SKIPPED, NON_MONOTONIC}
    assert len(found) == 2 * 2 * count // 10
