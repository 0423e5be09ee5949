"""The transaction coordinator. One shard has the transactional ids of one partition of `__transaction_state`. This
module does no input or output.

  handle(event, now) -> answers, writes and orders

State that must survive a restart is returned as a `Write`, and changes only in `replay`. `states` has the table of
steps by the state in an id's record, `progress` has the table of the work between two records. `transaction` computes
the values of the next records. The course of a transaction:

  InitProducer     writes a record Empty with the producer's id and epoch
  AddPartitions    writes a record Ongoing with the new partitions, before the producer writes to them
  EndTransaction   writes a record PrepareCommit or PrepareAbort: the decision. When it is committed, the producer is
                   answered, and the order `SendMarkers` is returned
  MarkersWritten   when every partition has its end marker, writes a record CompleteCommit or CompleteAbort

After a crash before the decision, the transaction is open until its producer ends it or the coordinator aborts it
after its timeout. After a crash after the decision, the decision is in a record. The coordinator that loads the record
orders the markers to be written again, which changes nothing in partitions that have the markers already.

Fencing: InitProducerId raises the producer's epoch. If a transaction is open, it is aborted in the raised epoch, and
the producer must send InitProducerId again. The last epoch of a producer is 32766; after that the producer gets
another producer id. Epoch 32767 is reserved for fencing.

Times: a transaction times out `timeout_ms` after its first partition was added. An id is removed
`transactional.id.expiration.ms` after its last change. Both times are measured by the wall clock, and checked
periodically.

Not supported: two-phase commit (KIP-939)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import (
    Answer,
    Committed,
    Failed,
    Late,
    Now,
    OfTransaction,
    Order,
    Resign,
    Tick,
    Token,
    Write,
    client_error,
)
from jesenska.transactions.events import (
    NO_PRODUCER,
    AddPartitions,
    EndTransaction,
    Event,
    InitProducer,
    MarkersWritten,
    Producer,
    ProducerAnswer,
    SendMarkers,
    TransactionWrite,
)
from jesenska.transactions.progress import (
    COMPLETION_FAILED,
    DECISION_LOADED,
    DECISION_WRITTEN,
    GO_ON,
    IGNORE,
    MARKED,
    MARKERS_SENT,
    PROGRESS_HAPPENS,
    RECORD_FAILED,
    RECORD_SENT,
    RECORD_WRITTEN,
    REQUEST,
    RESUME_DUE,
    TIMES_CHECKED,
    ProgressEvent,
)
from jesenska.transactions.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionRecord, TransactionValue
from jesenska.transactions.settings import TransactionSettings
from jesenska.transactions.states import ALLOWED_BEFORE, DECISIONS, HAPPENS, Asked, Step, TransactionState
from jesenska.transactions.transaction import LAST_EPOCH, RAISES_EPOCH, Transaction, completed

#: The pause, in milliseconds, before a failed write of a record is repeated.
_PAUSE_MS = 200


class TransactionCoordinator:
    """One shard of the transaction coordinator. `take_producer_id` returns a new producer id, or None if no id is
    available now; the client then gets COORDINATOR_LOAD_IN_PROGRESS. `transaction_version` returns the cluster's level
    of the feature transaction.version."""

    def __init__(
        self,
        settings: TransactionSettings,
        take_producer_id: Callable[[], int | None],
        transaction_version: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._take_producer_id = take_producer_id
        self._transaction_version = transaction_version
        self._known: dict[str, Transaction] = {}
        self._effects: list[Answer | Write | Order] = []
        #: Transactional ids whose end (commit or abort) is decided. The work on them continues at the first `Tick`
        #: after `_resume_ms`.
        self._to_resume: set[str] = set()
        self._resume_ms: int | None = None
        self._next_abort_ms: int | None = None
        self._next_removal_ms: int | None = None

    def handle(self, event: Event, now: Now) -> list[Answer | Write | Order]:
        """Handles an event, and returns its effects: answers, writes and orders."""
        effects = self._effects = []
        match event:
            case AddPartitions():
                self._add(event, now)
            case EndTransaction():
                self._end(event, now)
            case InitProducer():
                self._init(event, now)
            case MarkersWritten():
                self._marked(event, now)
            case Committed():
                self._written(event.operation, event.in_time, now)
            case Failed():
                self._failed(event.operation, _client_error(event.error), event.in_time, now)
            case Late():
                self._answer(event.operation.token, event.error)
            case Tick():
                self._tick(now)
            case Resign():
                pass
        return effects

    # --- InitProducerId ----------------------------------------------------------------------------------------------

    def _init(self, event: InitProducer, now: Now) -> None:
        transaction = self._known.get(event.transactional_id)
        if transaction is None:
            self._first(event, now)
            return
        error = self._refuse_init(transaction, event.expected)
        happens = error if error is not ErrorCode.NONE else HAPPENS[Asked.INIT][transaction.value.state]
        if isinstance(happens, ErrorCode):
            self._answer(event.token, happens)
        elif happens is Step.FENCE:
            self._fence(transaction, event.token, event.transaction_version, now)
        else:
            self._begin(transaction, event, now)

    def _refuse_init(self, transaction: Transaction, expected: Producer | None) -> ErrorCode:
        happens = PROGRESS_HAPPENS[REQUEST][transaction.progress]
        if isinstance(happens, ErrorCode):
            return happens
        return ErrorCode.NONE if expected is None or transaction.is_known(expected) else ErrorCode.PRODUCER_FENCED

    def _first(self, event: InitProducer, now: Now) -> None:
        """Makes a client the producer of an unknown transactional id. An earlier producer id and epoch in the request
        are ignored."""
        producer_id = self._take_producer_id()
        if producer_id is None:
            self._answer(event.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        value = TransactionValue(
            producer_id, NO_PRODUCER_EPOCH, event.timeout_ms, TransactionState.EMPTY, updated_ms=now.wall_ms
        )
        transaction = self._known[event.transactional_id] = Transaction(event.transactional_id, value)
        self._begin(transaction, event, now)

    def _begin(self, transaction: Transaction, event: InitProducer, now: Now) -> None:
        value, expected = transaction.value, event.expected
        last_epoch = NO_PRODUCER_EPOCH
        # A producer that was fenced with the last epoch cannot get that epoch.
        is_fenced_last = (
            value.producer_epoch == LAST_EPOCH and expected is not None and expected.epoch == transaction.last_epoch
        )
        if transaction.is_exhausted and (
            expected is None or is_fenced_last or expected.epoch == value.producer_epoch < LAST_EPOCH
        ):
            producer_id = self._take_producer_id()
            if producer_id is None:
                self._answer(event.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                return
            producer = Producer(producer_id, 0)
            last_epoch = NO_PRODUCER_EPOCH if expected is None else value.producer_epoch
        elif value.producer_epoch == LAST_EPOCH:
            self._answer(event.token, ErrorCode.PRODUCER_FENCED)
            return
        elif expected is None or value.producer_epoch == NO_PRODUCER_EPOCH or expected.epoch == value.producer_epoch:
            producer = Producer(value.producer_id, value.producer_epoch + 1)
            last_epoch = NO_PRODUCER_EPOCH if expected is None else value.producer_epoch
        elif expected.epoch == transaction.last_epoch:
            # The producer repeats a request whose answer was lost; no other producer has begun since.
            producer, last_epoch = transaction.producer, transaction.last_epoch
        else:
            self._answer(event.token, ErrorCode.PRODUCER_FENCED)
            return
        begun = transaction.begun(producer, event.timeout_ms, now.wall_ms)
        self._write(transaction, begun, event.token, ProducerAnswer(ErrorCode.NONE, producer), last_epoch)

    def _fence(self, transaction: Transaction, token: Token | None, transaction_version: int, now: Now) -> None:
        """Aborts the open transaction in the next producer epoch, which fences the producer. With transaction.version
        2, the only request of the fenced producer that is accepted asks for the new epoch."""
        value = transaction.value
        last_epoch = value.producer_epoch if transaction_version >= RAISES_EPOCH else NO_PRODUCER_EPOCH
        epoch = min(value.producer_epoch + 1, LAST_EPOCH)
        aborted = transaction.prepared(Step.FENCE, epoch, NO_PRODUCER_ID, transaction_version, now.wall_ms)
        self._write(transaction, aborted, token, ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS), last_epoch)

    # --- partitions --------------------------------------------------------------------------------------------------

    def _add(self, event: AddPartitions, now: Now) -> None:
        transaction = self._known.get(event.transactional_id)
        error = self._refuse(transaction, event.producer)
        if transaction is None or error is not ErrorCode.NONE:
            self._answer(event.token, error)
            return
        value = transaction.value
        happens = HAPPENS[Asked.ADD][value.state]
        if isinstance(happens, ErrorCode):
            self._answer(event.token, happens)
        elif happens is Step.ADD and event.partitions <= value.partitions:
            self._answer(event.token, ErrorCode.NONE)
        else:
            added = transaction.added(happens, event.partitions, event.client_version, now.wall_ms)
            self._write(
                transaction, added, event.token, ProducerAnswer(ErrorCode.NONE, event.producer), transaction.last_epoch
            )

    def verify(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Returns an error for each partition: NONE if the partition is in the open transaction, TRANSACTION_ABORTABLE
        if it is not. A record that is being written is not considered, because the partition's leader checks again
        when it appends."""
        transaction = self._known.get(transactional_id)
        error = ErrorCode.NONE
        if transaction is None or transaction.value.producer_id != producer.producer_id:
            error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif transaction.value.producer_epoch != producer.epoch:
            error = ErrorCode.PRODUCER_FENCED
        elif transaction.value.state in DECISIONS:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if transaction is None or error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        known = transaction.value.partitions
        return {key: ErrorCode.NONE if key in known else ErrorCode.TRANSACTION_ABORTABLE for key in partitions}

    def _refuse(self, transaction: Transaction | None, producer: Producer, *, fences_first: bool = False) -> ErrorCode:
        """Returns the error for a request that is refused, else NONE. Normally work in progress is checked first,
        because it may change the producer. With `fences_first` the producer is checked first, because work in progress
        cannot change the producer if epochs are not raised."""
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        happens = PROGRESS_HAPPENS[REQUEST][transaction.progress]
        error = happens if isinstance(happens, ErrorCode) else ErrorCode.NONE
        if error is not ErrorCode.NONE and not fences_first:
            return error
        if transaction.value.producer_id != producer.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # No producer ever gets the last epoch, 32767.
        if not transaction.value.producer_epoch == producer.epoch < LAST_EPOCH:
            return ErrorCode.PRODUCER_FENCED
        return error

    # --- the end of a transaction ------------------------------------------------------------------------------------

    def _end(self, event: EndTransaction, now: Now) -> None:
        transaction = self._known.get(event.transactional_id)
        if transaction is None:
            self._answer(event.token, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            return
        happens = self._step_to_end(transaction, event)
        if happens is Step.REPEAT:
            self._answer(event.token, ErrorCode.NONE, transaction.producer)
        elif isinstance(happens, ErrorCode):
            self._answer(event.token, happens)
        else:
            self._prepare(transaction, happens, event, now)

    def _step_to_end(self, transaction: Transaction, event: EndTransaction) -> Step | ErrorCode:
        raises = event.client_version >= RAISES_EPOCH
        if raises and _is_of_epoch_before(transaction, event.producer):
            again = Asked.COMMIT_AGAIN if event.commits else Asked.ABORT_AGAIN
            happens = HAPPENS[again][transaction.value.state]
            if happens is not Step.NO_REPEAT:
                return happens
        error = self._refuse(transaction, event.producer, fences_first=not raises)
        if error is not ErrorCode.NONE:
            return error
        if raises:
            asked = Asked.COMMIT_AND_RAISE if event.commits else Asked.ABORT_AND_RAISE
        else:
            asked = Asked.COMMIT if event.commits else Asked.ABORT
        return HAPPENS[asked][transaction.value.state]

    def _prepare(self, transaction: Transaction, step: Step, event: EndTransaction, now: Now) -> None:
        epoch, last_epoch, next_producer_id = event.producer.epoch, transaction.last_epoch, NO_PRODUCER_ID
        if event.client_version >= RAISES_EPOCH:
            if transaction.is_exhausted:
                taken = self._take_producer_id()
                if taken is None:
                    self._answer(event.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                    return
                next_producer_id = taken
            epoch, last_epoch = epoch + 1, epoch
        value = transaction.prepared(step, epoch, next_producer_id, event.client_version, now.wall_ms)
        done = completed(value, now.wall_ms)
        answer = ProducerAnswer(ErrorCode.NONE, Producer(done.producer_id, done.producer_epoch))
        self._write(transaction, value, event.token, answer, last_epoch)

    def _decided(self, transaction: Transaction, now: Now) -> None:
        """Carries out a decision (commit or abort) that is in the log: orders the end markers, or completes the
        transaction if no partition needs an end marker."""
        value = transaction.value
        if not value.partitions:
            self._complete(transaction, now)
            return
        transaction.take(MARKERS_SENT)
        transaction.awaited = set(value.partitions)
        commits = HAPPENS[Asked.MARKED][value.state] is Step.COMPLETE_COMMIT
        self._effects.append(
            Order(
                SendMarkers(
                    transaction.transactional_id, transaction.producer, commits, value.partitions, value.client_version
                )
            )
        )

    def _marked(self, event: MarkersWritten, now: Now) -> None:
        transaction = self._known.get(event.transactional_id)
        if transaction is None or transaction.producer != event.producer:
            return
        if PROGRESS_HAPPENS[MARKED][transaction.progress] is IGNORE:
            return
        transaction.awaited -= event.partitions
        if not transaction.awaited:
            self._complete(transaction, now)

    def _complete(self, transaction: Transaction, now: Now) -> None:
        value = completed(transaction.value, now.wall_ms)
        self._write(transaction, value, None, ProducerAnswer(ErrorCode.NONE), transaction.last_epoch)

    # --- writes and their outcomes -----------------------------------------------------------------------------------

    def _write(
        self,
        transaction: Transaction,
        value: TransactionValue | None,
        token: Token | None,
        answer: ProducerAnswer,
        last_epoch: int = -1,
    ) -> None:
        if value is not None:
            assert transaction.value.state in ALLOWED_BEFORE[value.state], (
                f"{transaction.transactional_id}: {transaction.value.state!r} to {value.state!r}"
            )
        transaction.take(RECORD_SENT)
        name = transaction.transactional_id
        self._effects.append(
            Write(name, (TransactionRecord(name, value),), TransactionWrite(token, name, value, answer, last_epoch))
        )

    def _written(self, operation: TransactionWrite, in_time: bool, now: Now) -> None:
        transaction = self._known.get(operation.transactional_id)
        if transaction is not None:
            transaction.last_epoch = operation.last_epoch
            if transaction.value.state in DECISIONS:
                transaction.take(DECISION_WRITTEN)
                self._decided(transaction, now)
            else:
                transaction.take(RECORD_WRITTEN)
        if in_time:
            self._answer(operation.token, operation.answer.error, operation.answer.producer)

    def _failed(self, operation: TransactionWrite, error: ErrorCode, in_time: bool, now: Now) -> None:
        transaction = self._known.get(operation.transactional_id)
        if transaction is not None:
            if transaction.value.state in DECISIONS:
                # The decision (commit or abort) cannot be changed any more, so the write of the completion record is
                # repeated.
                transaction.take(COMPLETION_FAILED)
                self._resume_later(transaction, now.monotonic_ms + _PAUSE_MS)
            else:
                transaction.take(RECORD_FAILED)
                if transaction.value.producer_epoch == NO_PRODUCER_EPOCH:
                    del self._known[operation.transactional_id]
        if in_time:
            self._answer(operation.token, error)

    def _answer(self, token: Token | None, error: ErrorCode, producer: Producer = NO_PRODUCER) -> None:
        if token is not None:
            self._effects.append(Answer(token, ProducerAnswer(error, producer)))

    # --- time --------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """Returns the time of the next `Tick` in milliseconds of the monotonic clock, or None if there is no
        deadline."""
        return min(
            (due for due in (self._resume_ms, self._next_abort_ms, self._next_removal_ms) if due is not None),
            default=None,
        )

    def _resume_later(self, transaction: Transaction, due_ms: int) -> None:
        self._to_resume.add(transaction.transactional_id)
        self._resume_ms = due_ms if self._resume_ms is None else min(self._resume_ms, due_ms)

    def _tick(self, now: Now) -> None:
        if self._resume_ms is not None and self._resume_ms <= now.monotonic_ms:
            self._resume_ms = None
            names, self._to_resume = self._to_resume, set()
            for name in sorted(names):
                transaction = self._known.get(name)
                if transaction is not None and _takes(transaction, RESUME_DUE):
                    self._decided(transaction, now)
        if self._next_abort_ms is not None and self._next_abort_ms <= now.monotonic_ms:
            self._next_abort_ms = now.monotonic_ms + self._settings.abort_interval_ms
            self._abort_old(now)
        if self._next_removal_ms is not None and self._next_removal_ms <= now.monotonic_ms:
            self._next_removal_ms = now.monotonic_ms + self._settings.remove_interval_ms
            self._forget_unused(now)

    def _abort_old(self, now: Now) -> None:
        """Aborts transactions that have timed out, and fences their producers."""
        for transaction in self._known.values():
            value = transaction.value
            if not _takes(transaction, TIMES_CHECKED) or value.started_ms + value.timeout_ms >= now.wall_ms:
                continue
            if HAPPENS[Asked.TIME_OUT][value.state] is Step.FENCE:
                self._fence(transaction, None, self._transaction_version(), now)

    def _forget_unused(self, now: Now) -> None:
        for transaction in self._known.values():
            value = transaction.value
            if not _takes(transaction, TIMES_CHECKED):
                continue
            if value.updated_ms + self._settings.id_expiration_ms > now.wall_ms:
                continue
            if HAPPENS[Asked.EXPIRE][value.state] is Step.FORGET:
                self._write(transaction, None, None, ProducerAnswer(ErrorCode.NONE))

    # --- applying records --------------------------------------------------------------------------------------------

    def replay(self, record: TransactionRecord, now: Now) -> None:
        """Applies a record of the log: when the log is read, and when a record of this coordinator is committed."""
        if record.value is None:
            self._known.pop(record.transactional_id, None)
            return
        transaction = self._known.get(record.transactional_id)
        if transaction is None:
            self._known[record.transactional_id] = Transaction(record.transactional_id, record.value)
        else:
            transaction.value = record.value

    def replay_within(self, record: TransactionRecord, of: OfTransaction, now: Now, *, counts: bool = True) -> None:
        """Does nothing, because no record of `__transaction_state` belongs to a transaction."""

    def replay_end(self, producer_id: int, commits: bool, now: Now) -> None:
        """Does nothing, because no record of `__transaction_state` belongs to a transaction."""

    def finish_replay(self, now: Now) -> None:
        """Called when the log has been read: starts the timers, and continues transactions whose end is decided."""
        self._next_abort_ms = now.monotonic_ms + self._settings.abort_interval_ms
        self._next_removal_ms = now.monotonic_ms + self._settings.remove_interval_ms
        for transaction in self._known.values():
            if transaction.value.state in DECISIONS:
                transaction.take(DECISION_LOADED)
                self._resume_later(transaction, now.monotonic_ms)

    # --- reading -----------------------------------------------------------------------------------------------------

    def get(self, transactional_id: str) -> TransactionValue | None:
        """Returns the value of a transactional id, or None if the id is unknown."""
        transaction = self._known.get(transactional_id)
        if transaction is None or transaction.value.producer_epoch == NO_PRODUCER_EPOCH:
            return None
        return transaction.value

    def all(self) -> list[tuple[str, TransactionValue]]:
        """Returns every known transactional id with its value."""
        return [
            (name, transaction.value)
            for name, transaction in self._known.items()
            if transaction.value.producer_epoch != NO_PRODUCER_EPOCH
        ]


def _takes(transaction: Transaction, event: ProgressEvent) -> bool:
    """Returns True if the event has an effect in the transaction's current progress."""
    return PROGRESS_HAPPENS[event][transaction.progress] is GO_ON


def _is_of_epoch_before(transaction: Transaction, producer: Producer) -> bool:
    """Returns True if a producer may repeat a request that ended its transaction. This request has raised the
    producer's epoch, or has given the producer another producer id."""
    value = transaction.value
    if not _takes(transaction, REQUEST):
        return False
    if value.client_version < RAISES_EPOCH:
        # The last transaction that ended was a transaction of another producer, which has replaced this producer; its
        # end has raised no epoch.
        return False
    if producer.producer_id == value.producer_id:
        return producer.epoch + 1 == value.producer_epoch
    return (
        producer.producer_id == value.previous_producer_id
        and producer.epoch == LAST_EPOCH - 1
        and value.producer_epoch == 0
    )


def _client_error(error: ErrorCode) -> ErrorCode:
    """Returns the error that a client gets for a failed write, as `client_error` does. In addition, the client gets an
    error that it can retry if too few replicas have the write."""
    return (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        else client_error(error)
    )
