"""AllocateProducerIds (key 67), version 0: a broker asks the controller for a block of producer ids (KIP-730).

jesenska's brokers claim blocks in the metadata tree themselves (`metadata.producer_ids`); brokers of Apache Kafka 3.0
and later send this request. A broker that is not the controller answers NOT_CONTROLLER. A sender that is not
registered is answered BROKER_ID_NOT_REGISTERED. If the broker epoch in the request is older than the sender's newest
registration, the answer is STALE_BROKER_EPOCH."""

from __future__ import annotations

import logging

from jesenska.base.errors import ClusterAuthorizationFailedError, ErrorCode, NotControllerError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import PeerFamily
from jesenska.broker.requests.gate import handles
from jesenska.metadata.producer_ids import BLOCK_SIZE, ProducerIdsExhausted
from jesenska.metadata.tree_operations import TreeError
from jesenska.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

logger = logging.getLogger(__name__)


@handles(AllocateProducerIdsRequest, PeerFamily)
def handle(uses: PeerFamily, request: AllocateProducerIdsRequest, context: Context) -> Outcome:
    try:
        uses.require_peers()
        known = uses.controller.facts.broker_epochs.get(request.broker_id)
    except (ClusterAuthorizationFailedError, NotControllerError) as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    if known is None:
        return AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if known != request.broker_epoch:
        return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    return _allocate(uses, request.broker_id)


async def _allocate(uses: PeerFamily, broker_id: int) -> AllocateProducerIdsResponse:
    try:
        block = await uses.producer_ids.claim_for(broker_id)
    except (TreeError, ProducerIdsExhausted) as error:
        logger.warning(
            "broker %d could not get producer ids: %s",
            broker_id,
            error,
            extra={"once_a_minute": (str(broker_id), "no producer ids")},
        )
        return AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=BLOCK_SIZE)
