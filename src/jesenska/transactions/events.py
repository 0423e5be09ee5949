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
    """InitProducerId: a producer begins. `expected` is the producer's previous id and epoch if the producer continues
    with them (KIP-360), else None."""

    token: Token
    transactional_id: str
    timeout_ms: int
    expected: Producer | None
    #: The level of transaction.version: with 2, each transaction raises the producer epoch (KIP-890).
    transaction_version: int


class AddPartitions(NamedTuple):
    """A producer is about to write to these partitions. `client_version` is 2 if a partition's leader adds the
    partitions for a client (KIP-890), else 0."""

    token: Token
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class EndTransaction(NamedTuple):
    """EndTxn: the producer commits or aborts. With `client_version` 2 the producer's epoch is raised (KIP-890)."""

    token: Token
    transactional_id: str
    producer: Producer
    commits: bool
    client_version: int = 0


class MarkersWritten(NamedTuple):
    """The end markers of the transaction of `producer` are committed in these partitions, or these partitions no
    longer need an end marker."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]


Event = InitProducer | AddPartitions | EndTransaction | MarkersWritten | Committed | Failed | Late | Resign | Tick


# --- answers and orders ----------------------------------------------------------------------------------------------


class ProducerAnswer(NamedTuple):
    """The answer to a producer that begins, or that ends a transaction. `producer` is the id and epoch that the
    producer must use from now on."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER


class SendMarkers(NamedTuple):
    """An order of the coordinator: write end markers to these partitions, and repeat the write until each partition
    has its marker."""

    transactional_id: str
    producer: Producer
    commits: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionWrite(NamedTuple):
    """The write of a transactional id's record. When the record is committed, the request with this `token` gets
    `answer`; `token` is None if no request waits. `last_epoch` is the producer's previous epoch, which is not in the
    record."""

    token: Token | None
    transactional_id: str
    value: TransactionValue | None
    answer: ProducerAnswer
    last_epoch: int = NO_PRODUCER_EPOCH
