"""One transactional id in memory: the value of its record, the state that no record has, and the values that may
follow."""

from __future__ import annotations

from jesenska.base.identifiers import TopicPartition
from jesenska.transactions.events import Producer
from jesenska.transactions.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIME, TransactionValue
from jesenska.transactions.states import TransactionState

LAST_EPOCH = 2**15 - 1
#: Clients of this version have their epoch raised with each transaction (KIP-890).
RAISES_EPOCH = 2


class Transaction:
    """`value` changes when a record is replayed, the rest in between."""

    __slots__ = ("awaited", "is_pending", "last_epoch", "transactional_id", "value")

    def __init__(self, transactional_id: str, value: TransactionValue) -> None:
        self.transactional_id = transactional_id
        self.value = value
        #: The producer's epoch before this one, where it may repeat its request; -1 where it may not.
        self.last_epoch = NO_PRODUCER_EPOCH
        #: A record is on its way into the log, or markers are on their way into their logs.
        self.is_pending = False
        #: Partitions that lack the marker of the decided end; None while no markers are sent.
        self.awaited: set[TopicPartition] | None = None

    @property
    def producer(self) -> Producer:
        return Producer(self.value.producer_id, self.value.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """True if no further epoch can be given to a producer. The last one is kept for fencing it."""
        return self.value.producer_epoch >= LAST_EPOCH - 1

    def is_known(self, expected: Producer) -> bool:
        """True if a producer may continue as `expected`: its id is the current one; or its id is the previous one and
        its epochs were used up, so that it repeats a request which was not answered."""
        value = self.value
        if value.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == value.producer_id:
            return True
        return expected.producer_id == value.previous_producer_id and expected.epoch >= LAST_EPOCH - 1

    # --- values that may follow --------------------------------------------------------------------------------------

    def begun(self, producer: Producer, timeout_ms: int, now_ms: int) -> TransactionValue:
        """The value when a producer begins."""
        value = self.value
        previous = value.producer_id if producer.producer_id != value.producer_id else value.previous_producer_id
        return TransactionValue(
            producer.producer_id,
            producer.epoch,
            timeout_ms,
            TransactionState.EMPTY,
            updated_ms=now_ms,
            started_ms=NO_TIME,
            previous_producer_id=previous,
        )

    def added(self, partitions: frozenset[TopicPartition], client_version: int, now_ms: int) -> TransactionValue:
        """The value with more partitions; the first ones begin the transaction."""
        value = self.value
        goes_on = value.state is TransactionState.ONGOING
        return value._replace(
            state=TransactionState.ONGOING,
            partitions=value.partitions | partitions,
            started_ms=value.started_ms if goes_on else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, epoch: int, next_producer_id: int, client_version: int, *, commits: bool, now_ms: int
    ) -> TransactionValue:
        """The value when the end is decided, with the epoch of its markers."""
        value = self.value
        goes_on = value.state is TransactionState.ONGOING
        return value._replace(
            producer_epoch=epoch,
            state=TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
            started_ms=value.started_ms if goes_on else now_ms,
            updated_ms=now_ms,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )


def completed(value: TransactionValue, now_ms: int) -> TransactionValue:
    """The value when every marker of the end in `value` is written. If the epochs of its producer id are used up, the
    next id takes effect."""
    turns = value.next_producer_id != NO_PRODUCER_ID
    return value._replace(
        producer_id=value.next_producer_id if turns else value.producer_id,
        producer_epoch=0 if turns else value.producer_epoch,
        previous_producer_id=value.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=TransactionState.COMPLETE_COMMIT
        if value.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
