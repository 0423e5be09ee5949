"""UpdateMetadata (key 6), versions 0-8: the controller sends this broker the metadata of topics, leaders and brokers.
This broker answers its clients' Metadata requests from it. Each line is what a version adds:

    1      endpoints instead of one host and port
    5      the epoch of this broker's registration (KIP-380)
    7      topic ids

The request is refused with STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH. A broker whose metadata tree (ZooKeeper's
nodes) no other broker can use answers CLUSTER_AUTHORIZATION_FAILED."""

from __future__ import annotations

from jesenska.base.errors import KafkaError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import PeerFamily
from jesenska.broker.requests.gate import handles
from jesenska.controller.orders.requests import Orderer, read_update_metadata
from jesenska.wire.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


@handles(UpdateMetadataRequest, PeerFamily)
def handle(uses: PeerFamily, request: UpdateMetadataRequest, context: Context) -> Outcome:
    return _obey(uses, request, context)


async def _obey(uses: PeerFamily, request: UpdateMetadataRequest, context: Context) -> UpdateMetadataResponse:
    orderer = Orderer(request.controller_id, request.controller_epoch, request.broker_epoch)
    try:
        uses.require_peers()
        await uses.orders.update_metadata(orderer, read_update_metadata(request, context.version))
    except KafkaError as error:
        return UpdateMetadataResponse(error_code=error.code)
    return UpdateMetadataResponse()
