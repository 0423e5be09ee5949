"""InitProducerId (key 22), versions 0-5.

    3      a producer may name the id and epoch that it had (KIP-360); without transactions it gets a new id all the
           same, as in Kafka
    4, 5   new error codes for transactions

Ids come in blocks of 1000 that are claimed in the tree, so none is ever handed out twice, whatever crashes. While the
tree is out of reach and the last block used up, producers are told to try again (COORDINATOR_LOAD_IN_PROGRESS, as
Kafka's brokers do whose controller does not answer).

Left out: transactional ids (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, at which every client gives up at once).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode
from jesenska.broker.connection import Context, Outcome
from jesenska.broker.gate import handles
from jesenska.metadata.producer_ids import ProducerIdsExhausted
from jesenska.metadata.tree_operations import TreeError
from jesenska.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from jesenska.broker.services import Services

logger = logging.getLogger(__name__)


@handles(InitProducerIdRequest, 0, 5)
def handle(broker: Services, request: InitProducerIdRequest, context: Context) -> Outcome:
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    return _new_id(broker)


async def _new_id(broker: Services) -> InitProducerIdResponse:
    try:
        producer_id = await broker.producer_ids.new()
    except (TreeError, ProducerIdsExhausted) as error:
        logger.warning("a producer gets no id: %s", error)
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if isinstance(error, TreeError) else ErrorCode.UNKNOWN_SERVER_ERROR
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
