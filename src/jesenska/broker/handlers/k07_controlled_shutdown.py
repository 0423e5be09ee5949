"""ControlledShutdown (key 7), versions 0-3: a broker that is about to stop asks the controller to elect other leaders
for its partitions. The answer names the partitions that the broker still leads, because no other replica is in sync.
Each line is what a version adds:

    2      the epoch of the broker's registration (KIP-380)

Errors: STALE_CONTROLLER_EPOCH if another broker is controller, STALE_BROKER_EPOCH for an earlier registration of the
broker, BROKER_NOT_AVAILABLE for a broker that is not registered."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError, NotControllerError
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import PeerFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k07_controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlledShutdownResponseRemainingPartition,
)

_ANY_EPOCH = -1


@handles(ControlledShutdownRequest, PeerFamily)
def handle(uses: PeerFamily, request: ControlledShutdownRequest, context: Context) -> Outcome:
    return _stop(uses, request)


async def _stop(uses: PeerFamily, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    response = ControlledShutdownResponse()
    try:
        uses.require_peers()
        known = uses.controller.facts.broker_epochs.get(request.broker_id)
        if known is not None and request.broker_epoch != _ANY_EPOCH and request.broker_epoch < known:
            raise KafkaError.of(ErrorCode.STALE_BROKER_EPOCH, "The broker has registered again.")
        stays = await uses.controller.stop_wanted(request.broker_id)
    except NotControllerError:
        response.error_code = ErrorCode.STALE_CONTROLLER_EPOCH
        return response
    except Exception as error:
        response.error_code = as_kafka_error(error).code
        return response
    response.remaining_partitions = [
        ControlledShutdownResponseRemainingPartition(topic_name=name, partition_index=number) for name, number in stays
    ]
    return response
