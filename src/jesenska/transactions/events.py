"""The events that a transaction coordinator gets, and the answers and orders that it gives, as plain data."""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.errors import ErrorCode
from jesenska.base.identifiers import TopicPartition
from jesenska.coordination.shard import Committed, Failed, Late, Resign, Tick, Token
from jesenska.transactions.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TransactionValue


class Producer(NamedTuple):
    """A producer as requests name it: producer id and epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


# --- events ----------------------------------------------------------------------------------------------------------


class InitProducer(NamedTuple):
    """InitProducerId: a producer begins. `expected` is its previous id and epoch if it continues (KIP-360), else
    None."""

    token: Token
    transactional_id: str
    timeout_ms: int
    expected: Producer | None
    #: The level of transaction.version: with 2, each transaction raises the producer epoch (KIP-890).
    transaction_version: int


class AddPartitions(NamedTuple):
    """A producer is about to write to these partitions. `client_version` is 2 if a leader adds them for a client, else
    0."""

    token: Token
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class EndTransaction(NamedTuple):
    """EndTxn: the producer commits or aborts. With `client_version` 2 its epoch is raised."""

    token: Token
    transactional_id: str
    producer: Producer
    commits: bool
    client_version: int = 0


class MarkersWritten(NamedTuple):
    """The end markers of the transaction of `producer` are committed in these partitions, or no longer needed
    there."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


Event = InitProducer | AddPartitions | EndTransaction | MarkersWritten | Committed | Failed | Late | Resign | Tick


# --- answers and orders ----------------------------------------------------------------------------------------------


class ProducerAnswer(NamedTuple):
    """The answer to a producer that begins, or that ends a transaction. `producer` is its id and epoch from now on."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER


class SendMarkers(NamedTuple):
    """An order: write end markers to these partitions, and repeat that until each partition has its marker."""

    transactional_id: str
    producer: Producer
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionWrite(NamedTuple):
    """The write of a record, and what follows it. When it is committed, the request with this `token` gets `answer`;
    None if no request waits. `last_epoch` is the producer's previous epoch, which is not in the record."""

    token: Token | None
    transactional_id: str
    value: TransactionValue | None
    answer: ProducerAnswer
    last_epoch: int = NO_PRODUCER_EPOCH
