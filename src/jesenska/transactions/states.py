"""The states of a transactional id in its records, and the step for each request in each state.

    state              meaning
    Empty              a producer has the id; there is no transaction
    Ongoing            partitions have been added to a transaction
    PrepareCommit      the commit is decided, and end markers are being written
    PrepareAbort       the abort is decided, and end markers are being written
    CompleteCommit     every end marker is written: the transaction is committed, and the next transaction may begin
    CompleteAbort      every end marker is written: the transaction is aborted, and the next transaction may begin
    Dead               the id is being removed
    PrepareEpochFence  not used: Kafka has this state in memory before an abort; here the abort is one step

    state            step                       goes to
    Empty            BEGIN                      Empty
                     ADD_FIRST                  Ongoing
                     PREPARE_ABORT_OF_NOTHING   PrepareAbort
                     FORGET                     Dead
    Ongoing          ADD                        Ongoing
                     PREPARE_COMMIT             PrepareCommit
                     PREPARE_ABORT              PrepareAbort
                     FENCE                      PrepareAbort
    PrepareCommit    COMPLETE_COMMIT            CompleteCommit
    PrepareAbort     COMPLETE_ABORT             CompleteAbort
    CompleteCommit   BEGIN                      Empty
                     ADD_FIRST                  Ongoing
                     PREPARE_ABORT_OF_NOTHING   PrepareAbort
                     FORGET                     Dead
    CompleteAbort    BEGIN                      Empty
                     ADD_FIRST                  Ongoing
                     PREPARE_ABORT_OF_NOTHING   PrepareAbort
                     FORGET                     Dead

No other step changes the state. `HAPPENS` has the step for each request, or the error that is answered. `LEADS_TO` has
the state of the record after a step.

A decision becomes durable with the record PrepareCommit or PrepareAbort. From then on it is carried out, even after a
crash. While there is work on an id, the table in `progress` has the answers to requests, and these rows are not used.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto

from jesenska.base.errors import ErrorCode


class TransactionState(IntEnum):
    """The states of a transactional id. Their values are the numbers in records."""

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
        """Returns the name of the state as it is in answers to clients, such as "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class Asked(IntEnum):
    """The requests about a transactional id. A producer whose epoch is raised with each transaction (KIP-890) has
    separate requests: a request with its current epoch is about the current transaction, and a request with its
    previous epoch repeats an earlier request. The values are integers because they are looked up for each request."""

    #: InitProducerId: a producer begins.
    INIT = auto()
    #: Partitions are added.
    ADD = auto()
    #: Commit without raising the epoch.
    COMMIT = auto()
    #: Abort without raising the epoch.
    ABORT = auto()
    #: Commit, and raise the epoch.
    COMMIT_AND_RAISE = auto()
    #: Abort, and raise the epoch.
    ABORT_AND_RAISE = auto()
    #: A repeated commit, in the previous epoch.
    COMMIT_AGAIN = auto()
    #: A repeated abort, in the previous epoch.
    ABORT_AGAIN = auto()
    #: The transaction has timed out.
    TIME_OUT = auto()
    #: The id has not been used for the expiration time.
    EXPIRE = auto()
    #: Every end marker is written.
    MARKED = auto()


class Step(Enum):
    """The steps: the results of requests about a transactional id."""

    NOTHING = "nothing"
    BEGIN = "the producer gets a raised epoch, or another id"
    FENCE = "the epoch is raised, and the transaction aborted"
    ADD_FIRST = "a transaction begins, with the partitions"
    ADD = "the partitions are in the transaction, if they are not yet"
    PREPARE_COMMIT = "the commit is decided"
    PREPARE_ABORT = "the abort is decided"
    PREPARE_ABORT_OF_NOTHING = "an abort is decided that has no transaction: it raises the epoch"
    COMPLETE_COMMIT = "the commit is complete"
    COMPLETE_ABORT = "the abort is complete"
    REPEAT = "it is answered as it was the first time"
    NO_REPEAT = "it repeats nothing: it is checked as a request in a wrong epoch"
    FORGET = "the id is forgotten"


_CONCURRENT, _INVALID, _FENCED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)

#: For each request, the results in the states Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit,
#: CompleteAbort, in this order.
_ROWS: dict[Asked, tuple[Step | ErrorCode, ...]] = {
    Asked.INIT: (Step.BEGIN, Step.FENCE, _CONCURRENT, _CONCURRENT, Step.BEGIN, Step.BEGIN),
    Asked.ADD: (Step.ADD_FIRST, Step.ADD, _CONCURRENT, _CONCURRENT, Step.ADD_FIRST, Step.ADD_FIRST),
    Asked.COMMIT: (_INVALID, Step.PREPARE_COMMIT, _CONCURRENT, _INVALID, Step.REPEAT, _INVALID),
    Asked.ABORT: (_INVALID, Step.PREPARE_ABORT, _INVALID, _CONCURRENT, _INVALID, Step.REPEAT),
    Asked.COMMIT_AND_RAISE: (_INVALID, Step.PREPARE_COMMIT, _FENCED, _FENCED, _INVALID, _INVALID),
    Asked.ABORT_AND_RAISE: (
        Step.PREPARE_ABORT_OF_NOTHING,
        Step.PREPARE_ABORT,
        _FENCED,
        _FENCED,
        Step.PREPARE_ABORT_OF_NOTHING,
        Step.PREPARE_ABORT_OF_NOTHING,
    ),
    Asked.COMMIT_AGAIN: (Step.NO_REPEAT, Step.NO_REPEAT, _CONCURRENT, _INVALID, Step.REPEAT, _INVALID),
    Asked.ABORT_AGAIN: (Step.NO_REPEAT, Step.NO_REPEAT, _INVALID, _CONCURRENT, _INVALID, Step.REPEAT),
    Asked.TIME_OUT: (Step.NOTHING, Step.FENCE, Step.NOTHING, Step.NOTHING, Step.NOTHING, Step.NOTHING),
    Asked.EXPIRE: (Step.FORGET, Step.NOTHING, Step.NOTHING, Step.NOTHING, Step.FORGET, Step.FORGET),
    Asked.MARKED: (
        Step.NOTHING,
        Step.NOTHING,
        Step.COMPLETE_COMMIT,
        Step.COMPLETE_ABORT,
        Step.NOTHING,
        Step.NOTHING,
    ),
}
#: For some requests, the result in the states Dead and PrepareEpochFence. All other requests get _CONCURRENT in these
#: states.
_IN_THE_OTHERS: dict[Asked, Step | ErrorCode] = {
    Asked.COMMIT_AGAIN: Step.NO_REPEAT,
    Asked.ABORT_AGAIN: Step.NO_REPEAT,
    Asked.TIME_OUT: Step.NOTHING,
    Asked.EXPIRE: Step.NOTHING,
    Asked.MARKED: Step.NOTHING,
}

#: The result of each request in each state: a step, or the error that is answered.
HAPPENS: dict[Asked, dict[TransactionState, Step | ErrorCode]] = {
    asked: dict(zip(TransactionState, (*row, *(2 * (_IN_THE_OTHERS.get(asked, _CONCURRENT),))), strict=True))
    for asked, row in _ROWS.items()
}

#: The state after each step that changes the record.
LEADS_TO: dict[Step, TransactionState] = {
    Step.BEGIN: TransactionState.EMPTY,
    Step.FENCE: TransactionState.PREPARE_ABORT,
    Step.ADD_FIRST: TransactionState.ONGOING,
    Step.ADD: TransactionState.ONGOING,
    Step.PREPARE_COMMIT: TransactionState.PREPARE_COMMIT,
    Step.PREPARE_ABORT: TransactionState.PREPARE_ABORT,
    Step.PREPARE_ABORT_OF_NOTHING: TransactionState.PREPARE_ABORT,
    Step.COMPLETE_COMMIT: TransactionState.COMPLETE_COMMIT,
    Step.COMPLETE_ABORT: TransactionState.COMPLETE_ABORT,
    Step.FORGET: TransactionState.DEAD,
}

#: The states with a decision that is not complete yet.
DECISIONS: frozenset[TransactionState] = frozenset(
    state for state, step in HAPPENS[Asked.MARKED].items() if step is not Step.NOTHING
)

#: For each state of a record, the possible states of the previous record: the states in which a step leads to the
#: state.
ALLOWED_BEFORE: dict[TransactionState, frozenset[TransactionState]] = {
    following: frozenset(
        state
        for row in HAPPENS.values()
        for state, step in row.items()
        if isinstance(step, Step) and LEADS_TO.get(step) is following
    )
    for following in TransactionState
}
