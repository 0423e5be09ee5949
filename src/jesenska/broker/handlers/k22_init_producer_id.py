"""InitProducerId (key 22), versions 0-5. Each line is what a version adds:

  3      a producer may send its current id and epoch (KIP-360); a producer without a transactional id still gets a new
         id, as in Kafka
  4      PRODUCER_FENCED in place of INVALID_PRODUCER_EPOCH
  5      TRANSACTION_ABORTABLE is permitted, but never answered

Producer ids come in blocks of 1000 that the broker claims in the metadata tree (ZooKeeper's nodes), so no id is given
out twice, even after a crash. If the tree cannot be reached and the block is used up, producers get
COORDINATOR_LOAD_IN_PROGRESS and must try again. A broker of Kafka answers the same while its controller does not
answer.

For a transactional id, the transaction coordinator (`transactions.coordinator`) answers the same producer id with a
higher epoch, and aborts the open transaction of the previous producer.

Not supported: version 6 with two-phase commit (KIP-939), which Apache Kafka 4.3.1 does not announce either."""

from __future__ import annotations

import asyncio
import logging

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TransactionFamily
from jesenska.broker.requests.gate import handles
from jesenska.coordination.shard import Token
from jesenska.metadata.producer_ids import ProducerIdsExhausted
from jesenska.metadata.tree_operations import TreeError
from jesenska.transactions.events import InitProducer, Producer, ProducerAnswer
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger(__name__)

_FIRST_WITH_FENCED = 4


@handles(InitProducerIdRequest, TransactionFamily)
def handle(uses: TransactionFamily, request: InitProducerIdRequest, context: Context) -> Outcome:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _new_id(uses)
    if not request.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= uses.in_force.config.integer("transaction.max.timeout.ms"):
        return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    return _transactional(uses, request, context)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


async def _transactional(
    uses: TransactionFamily, request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse:
    name = request.transactional_id
    assert name is not None
    expected = None if request.producer_id == -1 else Producer(request.producer_id, request.producer_epoch)
    answered: asyncio.Future[ProducerAnswer] = asyncio.get_running_loop().create_future()

    def reply(answer: ProducerAnswer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def make(token: Token) -> InitProducer:
        return InitProducer(token, name, request.transaction_timeout_ms, expected, uses.features.transaction_version)

    try:
        await uses.producer_ids.claim()
        uses.transactions.submit(name, make, reply)
    except KafkaError as refusal:
        return _refused(refusal.code)
    except (TreeError, ProducerIdsExhausted) as failure:
        logger.warning(
            "a transactional producer could not get a producer id: %s",
            failure,
            extra={"once_a_minute": ("", "no producer id")},
        )
        return _refused(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if isinstance(failure, TreeError) else ErrorCode.UNKNOWN_SERVER_ERROR
        )
    answer = await answered
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and context.version < _FIRST_WITH_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return InitProducerIdResponse(
        error_code=error, producer_id=answer.producer.producer_id, producer_epoch=answer.producer.epoch
    )


async def _new_id(uses: TransactionFamily) -> InitProducerIdResponse:
    try:
        producer_id = await uses.producer_ids.new()
    except (TreeError, ProducerIdsExhausted) as error:
        logger.warning(
            "a producer could not get a producer id: %s", error, extra={"once_a_minute": ("", "no producer id")}
        )
        code = (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if isinstance(error, TreeError) else ErrorCode.UNKNOWN_SERVER_ERROR
        )
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
