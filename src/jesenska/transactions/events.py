"""The events that a transaction coordinator receives, and the answers and orders that it gives: plain data, without
logic."""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Committed, Failed, Late, Resign, Tick, Token
from jesenska.transactions.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionValue


class Producer(NamedTuple):
    """A producer as requests name it."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


# --- in --------------------------------------------------------------------------------------------------------------


class InitProducer(NamedTuple):
    """A producer begins. `expected` is its previous id and epoch, if it continues (KIP-360)."""

    token: Token
    transactional_id: str
    timeout_ms: int
    expected: Producer | None
    #: The client can end transactions with a raised epoch, and so does this broker (KIP-890).
    transaction_version: int


class AddPartitions(NamedTuple):
    """A producer is about to write to these partitions. `client_version` is 2 if a leader adds them for a client."""

    token: Token
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class EndTransaction(NamedTuple):
    """The producer commits or aborts. With `client_version` 2 its epoch is raised."""

    token: Token
    transactional_id: str
    producer: Producer
    commits: bool
    client_version: int = 0


class MarkersWritten(NamedTuple):
    """Markers of the end that `producer` names are committed in these partitions, or not needed any more."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


Event = InitProducer | AddPartitions | EndTransaction | MarkersWritten | Committed | Failed | Late | Resign | Tick


# --- out -------------------------------------------------------------------------------------------------------------


class ProducerAnswer(NamedTuple):
    """The answer to a producer that begins, or ends a transaction; `producer` is its id and epoch from now on."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER


class SendMarkers(NamedTuple):
    """An order: write markers to these partitions, repeated until each has its marker."""

    transactional_id: str
    producer: Producer
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionWrite(NamedTuple):
    """A record that is being written, and the work that follows. The request with this `token` gets `answer`; None if
    no request waits. `last_epoch` is the previous epoch, which no record holds."""

    token: Token | None
    transactional_id: str
    value: TransactionValue | None
    answer: ProducerAnswer
    last_epoch: int = NO_PRODUCER_EPOCH
