"""StopReplica (key 5), versions 0-4: the controller tells this broker to stop replicas, and to delete or keep the data
of each replica. Each line is what a version adds:

    1      the epoch of this broker's registration (KIP-380)
    3      each partition has its flag to delete the data, and its leader epoch (KIP-570)

The whole request is refused with STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH. A broker whose metadata tree
(ZooKeeper's nodes) no other broker can use answers CLUSTER_AUTHORIZATION_FAILED. Errors of a single partition:
FENCED_LEADER_EPOCH for an older leader epoch, KAFKA_STORAGE_ERROR if the data cannot be deleted."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import PeerFamily
from jesenska.broker.requests.gate import handles
from jesenska.controller.orders.requests import Orderer, Stop, read_stop_replica, stop_replica_response
from jesenska.wire.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse


@handles(StopReplicaRequest, PeerFamily)
def handle(uses: PeerFamily, request: StopReplicaRequest, context: Context) -> Outcome:
    return _obey(uses, request, context)


async def _obey(uses: PeerFamily, request: StopReplicaRequest, context: Context) -> StopReplicaResponse:
    orderer = Orderer(request.controller_id, request.controller_epoch, request.broker_epoch)
    stops: list[Stop] = []
    try:
        uses.require_peers()
        stops = read_stop_replica(request, context.version)
        errors = await uses.orders.stop(orderer, stops)
    except KafkaError as error:
        return stop_replica_response(error.code, (), {})
    return stop_replica_response(ErrorCode.NONE, stops, errors)
