"""EndTxn (key 26), versions 0-5: commits or aborts a transaction. The answer is sent when the decision is committed in
`__transaction_state`. The transaction's end markers are written after that. Each line is what a version adds:

  2      PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH
  4      TRANSACTION_ABORTABLE is permitted, but never answered
  5      each transaction raises the producer's epoch, and the answer contains the new epoch (KIP-890); an abort is
         accepted even if there is no transaction
"""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import TransactionFamily
from jesenska.broker.requests.gate import handles
from jesenska.transactions.events import EndTransaction, Producer, ProducerAnswer
from jesenska.transactions.transaction import RAISES_EPOCH
from jesenska.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

_FIRST_WITH_FENCED = 2
_FIRST_WITH_EPOCHS = 5


@handles(EndTxnRequest, TransactionFamily)
def handle(uses: TransactionFamily, request: EndTxnRequest, context: Context) -> Outcome:
    version, name = context.version, request.transactional_id
    if not name:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)

    def reply(answer: ProducerAnswer) -> None:
        error = answer.error
        if error is ErrorCode.PRODUCER_FENCED and version < _FIRST_WITH_FENCED:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            uses.producer_ids.claim_soon()
        context.answer(
            EndTxnResponse(
                error_code=error, producer_id=answer.producer.producer_id, producer_epoch=answer.producer.epoch
            )
        )

    producer = Producer(request.producer_id, request.producer_epoch)
    client_version = RAISES_EPOCH if version >= _FIRST_WITH_EPOCHS else 0
    try:
        uses.transactions.submit(
            name, lambda token: EndTransaction(token, name, producer, request.committed, client_version), reply
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    return LATER
