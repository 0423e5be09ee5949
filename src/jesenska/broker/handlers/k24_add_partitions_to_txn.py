"""AddPartitionsToTxn (key 24), versions 0-5. Each line is what a version adds:

  0-3    a producer adds partitions to its transaction before it writes to them
  2      PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH
  4      several transactions in a request. Brokers send this version, to add partitions for clients or to verify them
         (KIP-890)
  5      TRANSACTION_ABORTABLE is permitted; as in Kafka, it is answered in version 4, too

If one of the partitions does not exist, no partition is added. A missing partition is answered
UNKNOWN_TOPIC_OR_PARTITION, an existing partition OPERATION_NOT_ATTEMPTED. If a request names a transaction twice,
the partitions of the last place are added, but the answer lists the partitions of the first place, as in Apache
Kafka. If that place names a partition twice, the answer to an addition lists it twice. For a verification, or if
partitions do not exist, each partition is answered once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import TransactionFamily
from jesenska.broker.requests.gate import handles
from jesenska.transactions.events import AddPartitions, Producer, ProducerAnswer
from jesenska.transactions.transaction import RAISES_EPOCH
from jesenska.wire.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    AddPartitionsToTxnResponseTransaction,
)

_FIRST_WITH_FENCED = 2
_FIRST_WITH_SEVERAL = 4

Results = dict[TopicPartition, ErrorCode]


class _Request:
    """A request with several transactions, and the number of transactions that have no result yet."""

    def __init__(self, context: Context, count: int) -> None:
        self._context = context
        self._lacking = count
        self.response = AddPartitionsToTxnResponse()
        self.is_later = False

    def put(self, answer: AddPartitionsToTxnResponseTransaction, topics: list[AddPartitionsToTxnResponseTopic]) -> None:
        answer.topic_results = topics
        self._lacking -= 1
        if self.is_later and not self._lacking:
            self._context.answer(self.response)

    @property
    def is_done(self) -> bool:
        return not self._lacking


@handles(AddPartitionsToTxnRequest, TransactionFamily)
def handle(uses: TransactionFamily, request: AddPartitionsToTxnRequest, context: Context) -> Outcome:
    version = context.version
    if version < _FIRST_WITH_SEVERAL:
        return _one(uses, request, context)
    work = _Request(context, len(request.transactions))
    keys_of = {item.transactional_id: _keys(item.topics) for item in request.transactions}
    topics_of = {item.transactional_id: item.topics for item in reversed(request.transactions)}
    for item in request.transactions:
        keys = keys_of[item.transactional_id]
        answer = AddPartitionsToTxnResponseTransaction(transactional_id=item.transactional_id)
        work.response.results_by_transaction.append(answer)
        producer = Producer(item.producer_id, item.producer_epoch)
        done = partial(work.put, answer)
        missing = _missing(uses, keys)
        if missing:
            done(_once_each(missing))
        elif item.verify_only:
            done(_once_each(_verified(uses, item.transactional_id, producer, keys)))
        else:
            _add(
                uses,
                item.transactional_id,
                producer,
                keys,
                RAISES_EPOCH,
                partial(_answer_added, done, topics_of[item.transactional_id]),
            )
    if work.is_done:
        return work.response
    work.is_later = True
    return LATER


def _one(uses: TransactionFamily, request: AddPartitionsToTxnRequest, context: Context) -> Outcome:
    keys = _keys(request.v3_and_below_topics)
    answered: list[AddPartitionsToTxnResponse] = []
    waits = False

    def done(error: ErrorCode) -> None:
        if error is ErrorCode.PRODUCER_FENCED and context.version < _FIRST_WITH_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        response = AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_as_asked(request.v3_and_below_topics, error)
        )
        if waits:
            context.answer(response)
        else:
            answered.append(response)

    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    missing = _missing(uses, keys)
    if missing:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_once_each(missing))
    _add(uses, request.v3_and_below_transactional_id, producer, keys, 0, done)
    if answered:
        return answered[0]
    waits = True
    return LATER


def _add(
    uses: TransactionFamily,
    transactional_id: str,
    producer: Producer,
    keys: Sequence[TopicPartition],
    client_version: int,
    done: Callable[[ErrorCode], None],
) -> None:
    if not transactional_id:
        done(ErrorCode.INVALID_REQUEST)
        return

    def reply(answer: ProducerAnswer) -> None:
        done(answer.error)

    partitions = frozenset(keys)
    try:
        uses.transactions.submit(
            transactional_id,
            lambda token: AddPartitions(token, transactional_id, producer, partitions, client_version),
            reply,
        )
    except KafkaError as error:
        done(error.code)


def _verified(
    uses: TransactionFamily, transactional_id: str, producer: Producer, keys: Sequence[TopicPartition]
) -> Results:
    if not transactional_id:
        return dict.fromkeys(keys, ErrorCode.INVALID_REQUEST)
    try:
        return uses.transactions.verify(transactional_id, producer, keys)
    except KafkaError as error:
        return dict.fromkeys(keys, error.code)


def _keys(topics: Sequence[AddPartitionsToTxnRequestTopic]) -> list[TopicPartition]:
    return list(dict.fromkeys(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions))


def _missing(uses: TransactionFamily, keys: Sequence[TopicPartition]) -> Results:
    """Returns the error of each partition if at least one of them does not exist; an empty mapping if all exist."""
    missing = {key for key in keys if not uses.view.has(key)}
    if not missing:
        return {}
    return {
        key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if key in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
        for key in keys
    }


def _answer_added(
    done: Callable[[list[AddPartitionsToTxnResponseTopic]], None],
    topics: Sequence[AddPartitionsToTxnRequestTopic],
    error: ErrorCode,
) -> None:
    done(_as_asked(topics, error))


def _as_asked(
    topics: Sequence[AddPartitionsToTxnRequestTopic], error: ErrorCode
) -> list[AddPartitionsToTxnResponseTopic]:
    return [
        AddPartitionsToTxnResponseTopic(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponsePartition(partition_index=number, partition_error_code=error)
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def _once_each(results: Results) -> list[AddPartitionsToTxnResponseTopic]:
    topics: dict[str, AddPartitionsToTxnResponseTopic] = {}
    for key, error in results.items():
        topic = topics.setdefault(key.topic, AddPartitionsToTxnResponseTopic(name=key.topic))
        topic.results_by_partition.append(
            AddPartitionsToTxnResponsePartition(partition_index=key.partition, partition_error_code=error)
        )
    return list(topics.values())
