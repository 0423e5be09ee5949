"""A small coordinator under random outcomes: it adds numbers up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jesenska.base.errors import ErrorCode
from jesenska.coordination.operations import Append, Appended, AppendFailed, Operations
from jesenska.coordination.shard import (
    Answer,
    Committed,
    Failed,
    Late,
    Marker,
    Now,
    OfTransaction,
    Order,
    Resign,
    Say,
    Tick,
    Write,
    client_error,
)
from tests.profiles import examples

_TIMEOUT_MS = 100


@dataclass(frozen=True)
class Add:
    token: int
    number: int


class Sum:
    """A shard whose `total` changes only in `replay`."""

    def __init__(self) -> None:
        self.total = 0
        self.open: dict[int, list[int]] = {}
        self.told: list[Any] = []

    def handle(self, event: Any, now: Now) -> list[Answer | Write]:
        self.told.append(event)
        match event:
            case Add():
                return [Write("sum", (event.number,), event)]
            case Committed(operation, in_time):
                return [Answer(operation.token, self.total)] if in_time else []
            case Failed(operation, error, in_time):
                return [Answer(operation.token, error)] if in_time else []
            case Late(operation, error):
                return [Answer(operation.token, error)]
        return []

    def replay(self, record: int, now: Now) -> None:
        self.total += record

    def replay_within(self, record: int, of: OfTransaction, now: Now, *, counts: bool = True) -> None:
        self.open.setdefault(of.producer_id, []).append(record if counts else 0)

    def replay_end(self, producer_id: int, commits: bool, now: Now) -> None:
        found = self.open.pop(producer_id, [])
        self.total += sum(found) if commits else 0

    def finish_replay(self, now: Now) -> None:
        """Starts no further work."""

    def next_deadline_ms(self) -> int | None:
        return None


class Sums(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = Sum()
        self.operations = Operations(self.shard, _TIMEOUT_MS)
        self.now_ms = 0
        self.log: list[int] = []
        self.pending: deque[Append] = deque()
        self.begun_ms: dict[int, int] = {}
        self.answers: dict[int, list[Any]] = {}
        self.tokens = 0

    def give(self, event: Any) -> None:
        for effect in self.operations.handle(event, Now(self.now_ms, 0)):
            if isinstance(effect, Answer):
                self.answers.setdefault(effect.token, []).append(effect.response)
            else:
                assert isinstance(effect, Append)
                self.pending.append(effect)

    @rule(number=st.integers(-5, 5))
    def add(self, number: int) -> None:
        self.tokens += 1
        self.begun_ms[self.tokens] = self.now_ms
        self.give(Add(self.tokens, number))

    @precondition(lambda self: self.pending)
    @rule()
    def committed(self) -> None:
        append = self.pending.popleft()
        self.log += append.records
        self.give(Appended(append.number))

    @precondition(lambda self: self.pending)
    @rule()
    def failed(self) -> None:
        self.give(AppendFailed(self.pending.popleft().number, ErrorCode.NOT_ENOUGH_REPLICAS))

    @rule(milliseconds=st.integers(0, 150))
    def time_passes(self, milliseconds: int) -> None:
        end = self.now_ms + milliseconds
        while (due := self.operations.next_deadline_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            self.give(Tick())
        self.now_ms = end

    @invariant()
    def the_state_is_what_the_log_says(self) -> None:
        assert self.shard.total == sum(self.log)

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        assert all(len(found) == 1 for found in self.answers.values())

    @invariant()
    def nobody_waits_longer_than_the_time_out(self) -> None:
        waiting = [begun_ms for token, begun_ms in self.begun_ms.items() if token not in self.answers]
        assert all(self.now_ms - begun_ms < _TIMEOUT_MS for begun_ms in waiting)
        assert len(waiting) <= len(self.pending)


TestSums = Sums.TestCase
TestSums.settings = settings(max_examples=examples(0.6), stateful_step_count=40)


def give(operations: Operations, event: Any, now_ms: int = 0) -> list[Answer | Append | Order | Say]:
    return operations.handle(event, Now(now_ms, 0))


def test_who_waits_is_told_when_the_coordinator_resigns_and_not_a_second_time() -> None:
    operations = Operations(Sum(), _TIMEOUT_MS)
    (append,) = give(operations, Add(7, 1))
    assert isinstance(append, Append)
    assert give(operations, Resign()) == [Answer(7, ErrorCode.NOT_COORDINATOR)]
    assert give(operations, Resign()) == []
    assert give(operations, Tick(), _TIMEOUT_MS) == []


@pytest.mark.parametrize("event", [Appended(1), AppendFailed(1, ErrorCode.NOT_ENOUGH_REPLICAS)])
def test_an_append_that_has_ended_does_not_end_again(event: Appended | AppendFailed) -> None:
    operations = Operations(Sum(), _TIMEOUT_MS)
    give(operations, Add(7, 1))
    assert len(give(operations, event)) == 1
    assert give(operations, event) == []
    assert operations.next_deadline_ms() is None


def test_an_event_of_another_operation_leaves_the_first_one_under_way() -> None:
    operations = Operations(Sum(), _TIMEOUT_MS)
    (first,) = give(operations, Add(7, 1))
    (second,) = give(operations, Add(8, 2))
    assert isinstance(first, Append)
    assert isinstance(second, Append)
    assert give(operations, Appended(first.number)) == [Answer(7, 1)]
    assert give(operations, Appended(second.number)) == [Answer(8, 3)]


@pytest.mark.parametrize(("shards_own_ms", "due_ms"), [(None, 1_100), (1_050, 1_050), (1_100, 1_100), (2_000, 1_100)])
def test_the_shard_is_woken_for_what_is_due_first_of_its_own_and_what_is_under_way(
    shards_own_ms: int | None, due_ms: int
) -> None:
    shard = Sum()
    shard.next_deadline_ms = lambda: shards_own_ms  # type: ignore[method-assign]
    operations = Operations(shard, _TIMEOUT_MS)
    assert operations.next_deadline_ms() == shards_own_ms
    give(operations, Add(7, 1), 1_000)
    assert operations.next_deadline_ms() == due_ms


def test_records_of_a_transaction_wait_in_the_shard_for_its_marker() -> None:
    class InTransactions(Sum):
        def handle(self, event: Any, now: Now) -> list[Answer | Write]:
            if isinstance(event, Add):
                return [Write("sum", (event.number,), event, within=of)]
            return [Write("end", (), event, marker=event)] if isinstance(event, Marker) else []

    of, shard = OfTransaction(5, 0), InTransactions()
    operations = Operations(shard, _TIMEOUT_MS)
    totals = []
    for event in (Add(7, 3), Marker(of, True, 0), Add(8, 4), Marker(of, False, 0)):
        (append,) = give(operations, event)
        assert isinstance(append, Append)
        assert (append.within, append.marker) == ((of, None) if isinstance(event, Add) else (None, event))
        give(operations, Appended(append.number))
        totals.append(shard.total)
    assert totals == [0, 3, 3, 3]
    assert shard.open == {}


def test_an_operation_is_late_when_its_time_is_over_and_not_before() -> None:
    operations = Operations(Sum(), _TIMEOUT_MS)
    give(operations, Add(7, 1), 1_000)
    assert operations.next_deadline_ms() == 1_000 + _TIMEOUT_MS
    assert give(operations, Tick(), 1_000 + _TIMEOUT_MS - 1) == []
    assert give(operations, Tick(), 1_000 + _TIMEOUT_MS) == [Answer(7, ErrorCode.COORDINATOR_NOT_AVAILABLE)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_client_is_told_of_a_write_that_failed_what_it_can_do_about_it(error: ErrorCode, told: ErrorCode) -> None:
    assert client_error(error) is told
