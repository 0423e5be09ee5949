"""Every cell of the table of progress, and the progress of transactions between their records."""

from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.coordination.shard import Order, Tick
from jesenska.transactions import progress
from jesenska.transactions.coordinator import TransactionCoordinator
from jesenska.transactions.progress import PROGRESS_HAPPENS, Progress, ProgressEvent, ProgressStep
from jesenska.transactions.records import TransactionValue, read_record
from jesenska.transactions.states import TransactionState
from jesenska.transactions.transaction import Transaction
from tests.units.transactions.driver import P0, P1, Driver

#: The transitions of the table: progress, event, the progress that it goes to.
_TRANSITIONS = {
    (before, event, after)
    for event, row in PROGRESS_HAPPENS.items()
    for before, after in row.items()
    if isinstance(after, Progress)
}


def test_the_table_has_an_entry_for_everything_in_every_progress() -> None:
    assert set(PROGRESS_HAPPENS) == set(ProgressEvent)
    assert all(set(row) == set(Progress) for row in PROGRESS_HAPPENS.values())


def test_every_progress_is_reached_and_ends() -> None:
    reached = {Progress.IDLE}
    while following := {after for before, _, after in _TRANSITIONS if before in reached} - reached:
        reached |= following
    assert reached == set(Progress)
    ends = {Progress.IDLE}
    while before := {before for before, _, after in _TRANSITIONS if after in ends} - ends:
        ends |= before
    assert ends == set(Progress)


def test_the_docstring_draws_the_transitions_of_the_table() -> None:
    drawn, before = set(), ""
    text = (progress.__doc__ or "").partition("goes to\n")[2].partition("\n\n")[0]
    for line in text.splitlines():
        words = line.partition(":")[0].split()
        before = words[0] if len(words) == 3 else before
        drawn.add((Progress[before], ProgressEvent[words[-2]], Progress[words[-1]]))
    assert drawn == _TRANSITIONS


@pytest.mark.parametrize("event", ProgressEvent)
@pytest.mark.parametrize("before", Progress)
def test_an_id_is_then_where_the_table_leads(before: Progress, event: ProgressEvent) -> None:
    transaction = Transaction("a", TransactionValue(1, 0, 1000, TransactionState.EMPTY))
    transaction.progress = before
    happens = PROGRESS_HAPPENS[event][before]
    if isinstance(happens, Progress):
        transaction.take(event)
        assert transaction.progress is happens
    else:
        with pytest.raises(AssertionError, match=event.name):
            transaction.take(event)
        assert transaction.progress is before


def test_one_request_at_a_time_and_nothing_by_time_while_there_is_work() -> None:
    for at, happens in PROGRESS_HAPPENS[ProgressEvent.REQUEST].items():
        assert happens is (ProgressStep.GO_ON if at is Progress.IDLE else ErrorCode.CONCURRENT_TRANSACTIONS)
    for at, happens in PROGRESS_HAPPENS[ProgressEvent.TIMES_CHECKED].items():
        assert happens is (ProgressStep.GO_ON if at is Progress.IDLE else ProgressStep.IGNORE)


def _progress(coordinator: TransactionCoordinator) -> Progress:
    return coordinator._known["a"].progress


def test_the_progress_of_a_transaction_from_its_decision_to_its_end() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.add(producer, P0, P1)
    driver.at_once = False
    assert _progress(driver.coordinator) is Progress.IDLE
    driver.ask_end(producer, commits=True)
    assert _progress(driver.coordinator) is Progress.WRITING
    driver.commit()
    assert _progress(driver.coordinator) is Progress.MARKING
    driver.mark()
    assert _progress(driver.coordinator) is Progress.WRITING
    driver.fail()
    assert _progress(driver.coordinator) is Progress.DECIDED
    driver.tick(1000)
    assert _progress(driver.coordinator) is Progress.MARKING
    driver.mark()
    driver.commit()
    assert _progress(driver.coordinator) is Progress.IDLE
    assert driver.state() is TransactionState.COMPLETE_COMMIT


def test_a_decision_without_partitions_is_complete_with_the_next_record() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.at_once = False
    driver.ask_end(producer, commits=False, version=2)
    driver.commit()
    assert driver.state() is TransactionState.PREPARE_ABORT
    assert _progress(driver.coordinator) is Progress.WRITING
    driver.commit()
    assert _progress(driver.coordinator) is Progress.IDLE


def test_a_decision_in_the_log_is_carried_out_at_the_first_tick() -> None:
    driver = Driver()
    producer = driver.begin()
    driver.add(producer, P0)
    driver.at_once = False
    driver.ask_end(producer, commits=True)
    driver.commit()
    loaded = TransactionCoordinator(driver.settings, lambda: None, lambda: 2)
    for record in driver.log:
        found = read_record(record.key, record.value)
        assert found is not None
        loaded.replay(found, driver.now)
    loaded.finish_replay(driver.now)
    assert _progress(loaded) is Progress.DECIDED
    (order,) = loaded.handle(Tick(), driver.now)
    assert isinstance(order, Order)
    assert _progress(loaded) is Progress.MARKING
