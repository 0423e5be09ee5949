"""Encodes and decodes the records of `__transaction_state`, which store transactional ids, in Apache Kafka's format.

  key     version 0, INT16   transactional id
  value   version, INT16     producer id and epoch, timeout, state, partitions, times; null: the id is removed

Apache Kafka up to 3.9 writes version 0 of the value; Kafka 4.x also writes version 0 if transaction.version is 0.
Version 1 adds, as tagged fields, the previous and the next producer id, and how the client ends transactions. Both
versions can be read. As in Kafka, the previous producer epoch is in no version. So a producer that repeats
InitProducerId after the coordinator has moved to another broker is fenced."""

from __future__ import annotations

from typing import NamedTuple

from jesenska.base.errors import CorruptMessageError
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.coordination.shard import KeyValue
from jesenska.transactions.states import TransactionState
from jesenska.wire.codec import MalformedMessageError, decode, encode
from jesenska.wire.language import INT8, INT16, INT32, INT64, STRING, Array, Message, Struct, field

TRANSACTIONS_TOPIC = "__transaction_state"
NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_TIME = -1, -1, -1
_KEY_VERSION = 0


class TransactionLogKey(Message, key=0):
    transactional_id: str = field(STRING)


class TransactionPartitions(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(Array(INT32))


class TransactionLogValue(Message, key=0, versions=(0, 1), flexible=1):
    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=-1, ignorable=True)
    next_producer_id: int = field(INT64, since=1, tag=1, default=-1, ignorable=True)
    producer_epoch: int = field(INT16)
    next_producer_epoch: int = field(INT16, since=1, tag=3, default=-1, ignorable=True)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[TransactionPartitions] | None = field(Array(TransactionPartitions), nullable=0)
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, since=1, tag=2, ignorable=True)


class TransactionValue(NamedTuple):
    """The state of a transactional id, as it is in the id's record. This value is immutable."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIME
    #: When the transaction began; NO_TIME before the first transaction of this epoch.
    started_ms: int = NO_TIME
    #: The previous producer id, and the producer id that is used after the transaction's end is complete.
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    #: 2 if the transaction's end raises the epoch (KIP-890), else 0.
    client_version: int = 0


class TransactionRecord(NamedTuple):
    """The decoded record of a transactional id. `value` is None if the id is removed."""

    transactional_id: str
    value: TransactionValue | None


def encode_record(record: TransactionRecord, version: int) -> KeyValue:
    """Returns the encoded record, with its value in this version."""
    key = _versioned(_KEY_VERSION, TransactionLogKey(transactional_id=record.transactional_id))
    value = record.value
    if value is None:
        return KeyValue(key, None)
    topics = numbers_by_topic(value.partitions)
    # In a state without a transaction, the list of partitions is null.
    partitions = (
        None
        if value.state is TransactionState.EMPTY
        else [TransactionPartitions(topic=name, partition_ids=ids) for name, ids in topics.items()]
    )
    message = TransactionLogValue(
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=value.updated_ms,
        transaction_start_timestamp_ms=value.started_ms,
        client_transaction_version=value.client_version,
    )
    return KeyValue(key, _versioned(version, message))


def read_record(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """Decodes a record. Returns None for kinds of records that only later releases of Kafka know. Raises
    CorruptMessageError for bytes that are not a record."""
    if key is None or len(key) < 2:
        raise CorruptMessageError(f"a record of {TRANSACTIONS_TOPIC} has no key")
    if int.from_bytes(key[:2], "big", signed=True) != _KEY_VERSION:
        return None
    try:
        transactional_id = decode(TransactionLogKey, _KEY_VERSION, key[2:]).transactional_id
        return TransactionRecord(transactional_id, None if value is None else _read_value(value))
    except (MalformedMessageError, ValueError) as error:
        raise CorruptMessageError(f"a record of {TRANSACTIONS_TOPIC} cannot be read: {error}") from error


def _read_value(data: bytes) -> TransactionValue:
    version = int.from_bytes(data[:2], "big", signed=True)
    low, high = TransactionLogValue.versions
    if not low <= version <= high:
        raise CorruptMessageError(f"TransactionLogValue has the version {version}, known are {low} to {high}")
    value = decode(TransactionLogValue, version, data[2:])
    return TransactionValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(item.topic, number)
            for item in value.transaction_partitions or ()
            for number in item.partition_ids
        ),
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _versioned(version: int, message: Message) -> bytes:
    return version.to_bytes(2, "big", signed=True) + encode(message, version)
