"""AddOffsetsToTxn (key 25), versions 0-4: adds a group's partition of the offsets topic to a transaction, so that the
producer can commit offsets in the transaction. Each line is what a version adds:

  2      PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH
  4      TRANSACTION_ABORTABLE is permitted, but never answered
"""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import TransactionFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.offsets.offsets_topic import OFFSETS_TOPIC
from jesenska.transactions.events import AddPartitions, Producer, ProducerAnswer
from jesenska.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FIRST_WITH_FENCED = 2


@handles(AddOffsetsToTxnRequest, TransactionFamily)
def handle(uses: TransactionFamily, request: AddOffsetsToTxnRequest, context: Context) -> Outcome:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

    def reply(answer: ProducerAnswer) -> None:
        fenced = answer.error is ErrorCode.PRODUCER_FENCED and context.version < _FIRST_WITH_FENCED
        context.answer(AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH if fenced else answer.error))

    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        partition = TopicPartition(OFFSETS_TOPIC, uses.groups.partition_for(request.group_id))
        uses.transactions.submit(
            request.transactional_id,
            lambda token: AddPartitions(token, request.transactional_id, producer, frozenset((partition,))),
            reply,
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return LATER
