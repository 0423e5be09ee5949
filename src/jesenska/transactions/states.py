"""The states of a transactional id, and the steps in each state: two tables.

    Empty              a producer has the id; no transaction
    Ongoing            partitions are in a transaction
    PrepareCommit      it is decided that the transaction is committed; markers are being written
    PrepareAbort       the same for an abort
    CompleteCommit     every marker is written: the transaction was committed; the next one may begin
    CompleteAbort      the same for an abort
    Dead               the id is being forgotten
    PrepareEpochFence  known by name alone: Kafka passes through it in memory on its way to an abort, and here that is
                       one step

A decision is durable with the record PrepareCommit or PrepareAbort: from then on it is carried out, even after a
crash. While a record of an id is on its way into the log, or markers are being written, every request for it is
answered CONCURRENT_TRANSACTIONS, so the rows of PrepareCommit and PrepareAbort matter right after the log was loaded.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from jesenska.base.errors import ErrorCode


class TransactionState(IntEnum):
    """The values are the numbers in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that requests use."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Asked(Enum):
    """The requests about an id. A producer whose epoch is raised with each transaction (KIP-890) has requests of its
    own: with its current epoch it means the current transaction, and with the previous epoch it repeats a request."""

    INIT = "a producer begins"
    ADD = "partitions are added"
    COMMIT = "commit, and keep the epoch"
    ABORT = "abort, and keep the epoch"
    COMMIT_AND_RAISE = "commit, and raise the epoch"
    ABORT_AND_RAISE = "abort, and raise the epoch"
    COMMIT_AGAIN = "commit, in the epoch before"
    ABORT_AGAIN = "abort, in the epoch before"
    TIME_OUT = "the transaction's time is over"
    EXPIRE = "the id was not used for long"
    MARKED = "every marker is written"


class Step(Enum):
    """The step that a request leads to."""

    NOTHING = "nothing"
    BEGIN = "the producer gets a raised epoch, or another id"
    FENCE = "the epoch is raised, and the transaction aborted"
    ADD = "the partitions are in the transaction"
    PREPARE = "the end is decided"
    COMPLETE = "the end is complete"
    REPEAT = "it is answered as it was the first time"
    FORGET = "the id is forgotten"


_S = TransactionState
_CONCURRENT, _INVALID, _FENCED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)

#: In the order of the states: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
_ROWS: dict[Asked, tuple[Step | ErrorCode, ...]] = {
    Asked.INIT: (Step.BEGIN, Step.FENCE, _CONCURRENT, _CONCURRENT, Step.BEGIN, Step.BEGIN),
    Asked.ADD: (Step.ADD, Step.ADD, _CONCURRENT, _CONCURRENT, Step.ADD, Step.ADD),
    Asked.COMMIT: (_INVALID, Step.PREPARE, _CONCURRENT, _INVALID, Step.REPEAT, _INVALID),
    Asked.ABORT: (_INVALID, Step.PREPARE, _INVALID, _CONCURRENT, _INVALID, Step.REPEAT),
    Asked.COMMIT_AND_RAISE: (_INVALID, Step.PREPARE, _FENCED, _FENCED, _INVALID, _INVALID),
    Asked.ABORT_AND_RAISE: (Step.PREPARE, Step.PREPARE, _FENCED, _FENCED, Step.PREPARE, Step.PREPARE),
    Asked.COMMIT_AGAIN: (_FENCED, _FENCED, _CONCURRENT, _INVALID, Step.REPEAT, _INVALID),
    Asked.ABORT_AGAIN: (_FENCED, _FENCED, _INVALID, _CONCURRENT, _INVALID, Step.REPEAT),
    Asked.TIME_OUT: (Step.NOTHING, Step.FENCE, Step.NOTHING, Step.NOTHING, Step.NOTHING, Step.NOTHING),
    Asked.EXPIRE: (Step.FORGET, Step.NOTHING, Step.NOTHING, Step.NOTHING, Step.FORGET, Step.FORGET),
    Asked.MARKED: (Step.NOTHING, Step.NOTHING, Step.COMPLETE, Step.COMPLETE, Step.NOTHING, Step.NOTHING),
}
_BY_TIME = (Asked.TIME_OUT, Asked.EXPIRE, Asked.MARKED)

#: The result of each request in each state: a step, or the error that is answered.
HAPPENS: dict[Asked, dict[TransactionState, Step | ErrorCode]] = {
    asked: dict(
        zip(TransactionState, (*row, *(2 * (Step.NOTHING if asked in _BY_TIME else _CONCURRENT,))), strict=True)
    )
    for asked, row in _ROWS.items()
}

#: The states that may come before the state of a record.
ALLOWED_BEFORE: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # Without partitions an abort needs no transaction before it: it raises the epoch.
    _S.PREPARE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT, _S.PREPARE_EPOCH_FENCE}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
