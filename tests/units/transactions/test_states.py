from __future__ import annotations

import pytest

from jesenska.base.errors import ErrorCode
from jesenska.transactions.states import ALLOWED_BEFORE, HAPPENS, Asked, Step, TransactionState

_S = TransactionState
#: The next state of each step.
_LEADS_TO = {
    Step.BEGIN: {_S.EMPTY},
    Step.FENCE: {_S.PREPARE_ABORT},
    Step.ADD: {_S.ONGOING},
    Step.PREPARE: {_S.PREPARE_COMMIT, _S.PREPARE_ABORT},
    Step.COMPLETE: {_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT},
    Step.FORGET: {_S.DEAD},
}


@pytest.mark.parametrize("asked", Asked)
def test_every_state_has_an_answer_to_everything(asked: Asked) -> None:
    assert set(HAPPENS[asked]) == set(TransactionState)


@pytest.mark.parametrize("asked", Asked)
def test_steps_lead_only_to_states_that_may_follow(asked: Asked) -> None:
    for state, happens in HAPPENS[asked].items():
        if not isinstance(happens, Step) or happens not in _LEADS_TO:
            continue
        leads_to = _LEADS_TO[happens]
        if asked in (Asked.COMMIT, Asked.COMMIT_AND_RAISE):
            leads_to = {_S.PREPARE_COMMIT}
        elif asked in (Asked.ABORT, Asked.ABORT_AND_RAISE):
            leads_to = {_S.PREPARE_ABORT}
        elif happens is Step.COMPLETE:
            leads_to = {_S.COMPLETE_COMMIT if state is _S.PREPARE_COMMIT else _S.COMPLETE_ABORT}
        for following in leads_to:
            assert state in ALLOWED_BEFORE[following], f"{state!r} to {following!r}"


def test_an_id_that_is_forgotten_or_being_fenced_is_asked_again_later_and_left_alone_by_time() -> None:
    by_time = {Asked.TIME_OUT, Asked.EXPIRE, Asked.MARKED}
    for state in (_S.DEAD, _S.PREPARE_EPOCH_FENCE):
        assert {asked: row[state] for asked, row in HAPPENS.items()} == {
            asked: Step.NOTHING if asked in by_time else ErrorCode.CONCURRENT_TRANSACTIONS for asked in Asked
        }


def test_a_commit_needs_an_open_transaction() -> None:
    for asked in (Asked.COMMIT, Asked.COMMIT_AND_RAISE, Asked.COMMIT_AGAIN):
        decides = {state for state, happens in HAPPENS[asked].items() if happens is Step.PREPARE}
        assert decides == (set() if asked is Asked.COMMIT_AGAIN else {_S.ONGOING})


def test_what_is_decided_is_never_decided_otherwise() -> None:
    for asked, row in HAPPENS.items():
        for state in (_S.PREPARE_COMMIT, _S.PREPARE_ABORT):
            assert row[state] in (Step.NOTHING, Step.COMPLETE) or isinstance(row[state], ErrorCode), (asked, state)


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
