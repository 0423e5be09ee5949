from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.transactions import states
from jesenska.transactions.states import ALLOWED_BEFORE, HAPPENS, LEADS_TO, Asked, Step, TransactionState

_S = TransactionState
#: The transitions of the table: state, step, the state that it goes to.
_TRANSITIONS = {
    (state, step, LEADS_TO[step])
    for row in HAPPENS.values()
    for state, step in row.items()
    if isinstance(step, Step) and step in LEADS_TO
}


@pytest.mark.parametrize("asked", Asked)
def test_every_state_has_an_answer_to_everything(asked: Asked) -> None:
    assert set(HAPPENS[asked]) == set(TransactionState)


def test_every_step_is_in_the_table() -> None:
    assert {step for row in HAPPENS.values() for step in row.values() if isinstance(step, Step)} == set(Step)


def test_the_states_that_may_come_before_are_those_of_kafka() -> None:
    between = {_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}
    assert {
        _S.EMPTY: between,
        _S.ONGOING: between | {_S.ONGOING},
        _S.PREPARE_COMMIT: {_S.ONGOING},
        # Without partitions an abort needs no transaction before it: it raises the epoch.
        _S.PREPARE_ABORT: between | {_S.ONGOING},
        _S.COMPLETE_COMMIT: {_S.PREPARE_COMMIT},
        _S.COMPLETE_ABORT: {_S.PREPARE_ABORT},
        _S.DEAD: between,
        _S.PREPARE_EPOCH_FENCE: set(),
    } == ALLOWED_BEFORE


@pytest.mark.parametrize("asked", Asked)
def test_an_end_is_decided_as_it_was_asked_for(asked: Asked) -> None:
    decided = {LEADS_TO[step] for step in HAPPENS[asked].values() if isinstance(step, Step) and step in LEADS_TO}
    if asked in (Asked.COMMIT, Asked.COMMIT_AND_RAISE):
        assert decided == {_S.PREPARE_COMMIT}
    elif asked in (Asked.ABORT, Asked.ABORT_AND_RAISE, Asked.TIME_OUT):
        assert decided == {_S.PREPARE_ABORT}
    elif asked is Asked.INIT:
        assert decided == {_S.EMPTY, _S.PREPARE_ABORT}
    else:
        assert not decided & {_S.PREPARE_COMMIT, _S.PREPARE_ABORT}


def test_every_state_that_records_have_is_reached() -> None:
    reached = {_S.EMPTY}
    while following := {after for before, _, after in _TRANSITIONS if before in reached} - reached:
        reached |= following
    assert reached == set(_S) - {_S.PREPARE_EPOCH_FENCE}


def test_the_docstring_draws_the_transitions_of_the_table() -> None:
    labels = {state.label: state for state in _S}
    drawn, state = set(), ""
    text = (states.__doc__ or "").partition("goes to\n")[2].partition("\n\n")[0]
    for line in text.splitlines():
        *before, step, after = line.split()
        state = before[0] if before else state
        drawn.add((labels[state], Step[step], labels[after]))
    assert drawn == _TRANSITIONS


def test_an_id_that_is_forgotten_or_being_fenced_is_asked_again_later_and_left_alone_by_time() -> None:
    by_time = {Asked.TIME_OUT, Asked.EXPIRE, Asked.MARKED}
    again = {Asked.COMMIT_AGAIN, Asked.ABORT_AGAIN}
    for state in (_S.DEAD, _S.PREPARE_EPOCH_FENCE):
        assert {asked: row[state] for asked, row in HAPPENS.items()} == {
            asked: Step.NOTHING
            if asked in by_time
            else Step.NO_REPEAT
            if asked in again
            else ErrorCode.CONCURRENT_TRANSACTIONS
            for asked in Asked
        }


def test_a_commit_needs_an_open_transaction() -> None:
    for asked in (Asked.COMMIT, Asked.COMMIT_AND_RAISE, Asked.COMMIT_AGAIN):
        decides = {state for state, happens in HAPPENS[asked].items() if happens is Step.PREPARE_COMMIT}
        assert decides == (set() if asked is Asked.COMMIT_AGAIN else {_S.ONGOING})


def test_what_is_decided_is_never_decided_otherwise() -> None:
    for asked, row in HAPPENS.items():
        for state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT):
            completes = Step.COMPLETE_COMMIT if state is _S.PREPARE_COMMIT else Step.COMPLETE_ABORT
            assert row[state] in (Step.NOTHING, completes) or isinstance(row[state], ErrorCode), (asked, state)


def test_states_have_the_names_that_requests_use() -> None:
    assert [state.label for state in TransactionState] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
