"""One transactional id in memory: the value of its last record (with a state of `states`), the progress of the work on
the id (`progress`), and the methods that compute the value of the next record."""

from __future__ import annotations

from jesenska.base.identifiers import TopicPartition
from jesenska.transactions.events import Producer
from jesenska.transactions.progress import PROGRESS_HAPPENS, Progress, ProgressEvent
from jesenska.transactions.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIME, TransactionValue
from jesenska.transactions.states import HAPPENS, LEADS_TO, Asked, Step

LAST_EPOCH = 2**15 - 1
#: The client version with which each transaction raises the producer epoch (KIP-890).
RAISES_EPOCH = 2


class Transaction:
    """A transactional id in memory. `value` changes only when a record is applied; the other fields change between
    records."""

    __slots__ = ("awaited", "last_epoch", "progress", "transactional_id", "value")

    def __init__(self, transactional_id: str, value: TransactionValue) -> None:
        self.transactional_id = transactional_id
        self.value = value
        #: The producer's previous epoch, with which the producer may repeat its last request; -1 if it may not repeat
        #: a request.
        self.last_epoch = NO_PRODUCER_EPOCH
        #: The progress of the work on the id. Only `take` changes it.
        self.progress = Progress.IDLE
        #: While markers are being sent: the partitions whose end marker is not written yet.
        self.awaited: set[TopicPartition] = set()

    def take(self, event: ProgressEvent) -> None:
        """Changes `progress` as the table PROGRESS_HAPPENS says for this event."""
        following = PROGRESS_HAPPENS[event][self.progress]
        assert isinstance(following, Progress), f"{self.transactional_id}: {event!r} in {self.progress!r}"
        self.progress = following

    @property
    def producer(self) -> Producer:
        return Producer(self.value.producer_id, self.value.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """Returns True if no further epoch can be given to a producer. The last epoch is reserved for fencing."""
        return self.value.producer_epoch >= LAST_EPOCH - 1

    def is_known(self, expected: Producer) -> bool:
        """Returns True if a producer may continue with the producer id of `expected`: if this is the current producer
        id, or the previous producer id whose epochs were used up. In the second case the producer repeats a request
        whose answer was lost."""
        value = self.value
        if value.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == value.producer_id:
            return True
        return expected.producer_id == value.previous_producer_id and expected.epoch >= LAST_EPOCH - 1

    # --- values that may follow --------------------------------------------------------------------------------------

    def begun(self, producer: Producer, timeout_ms: int, now_ms: int) -> TransactionValue:
        """Returns the transactional id's next value, after a producer has begun to use the id (InitProducerId)."""
        value = self.value
        previous = value.producer_id if producer.producer_id != value.producer_id else value.previous_producer_id
        return TransactionValue(
            producer.producer_id,
            producer.epoch,
            timeout_ms,
            LEADS_TO[Step.BEGIN],
            updated_ms=now_ms,
            started_ms=NO_TIME,
            previous_producer_id=previous,
        )

    def added(
        self, step: Step, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionValue:
        """Returns the transactional id's next value, after partitions were added to the transaction. The step
        `ADD_FIRST` begins the transaction."""
        value = self.value
        return value._replace(
            state=LEADS_TO[step],
            partitions=value.partitions | partitions,
            started_ms=now_ms if step is Step.ADD_FIRST else value.started_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def prepared(
        self, step: Step, epoch: int, next_producer_id: int, client_version: int, now_ms: int
    ) -> TransactionValue:
        """Returns the transactional id's next value, after the commit or abort was decided. `epoch` is the producer
        epoch of the end markers."""
        value = self.value
        return value._replace(
            producer_epoch=epoch,
            state=LEADS_TO[step],
            started_ms=now_ms if step is Step.PREPARE_ABORT_OF_NOTHING else value.started_ms,
            updated_ms=now_ms,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )


def completed(value: TransactionValue, now_ms: int) -> TransactionValue:
    """Returns the value after every end marker was written. If the epochs of the producer id are used up, the next
    producer id becomes the current producer id."""
    turns = value.next_producer_id != NO_PRODUCER_ID
    step = HAPPENS[Asked.MARKED][value.state]
    assert isinstance(step, Step), "no error is answered to markers"
    return value._replace(
        producer_id=value.next_producer_id if turns else value.producer_id,
        producer_epoch=0 if turns else value.producer_epoch,
        previous_producer_id=value.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=LEADS_TO[step],
        partitions=frozenset(),
        updated_ms=now_ms,
    )
