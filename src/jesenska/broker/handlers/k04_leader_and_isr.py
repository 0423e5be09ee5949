"""LeaderAndIsr (key 4), versions 0-7: a controller orders which replicas this broker has, and names their leaders.

    2      the epoch of this broker's registration (KIP-380)
    5      topic ids
    7      an answer by topic id

Refused as a whole: STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH; CLUSTER_AUTHORIZATION_FAILED by a broker whose tree is
not shared. By partition: STALE_CONTROLLER_EPOCH for a leader epoch that is not newer, INCONSISTENT_TOPIC_ID if this
broker has data of another topic of that name, UNKNOWN_TOPIC_OR_PARTITION if it is not a replica, KAFKA_STORAGE_ERROR
if the log cannot be made."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import PeerFamily
from jesenska.broker.requests.gate import handles
from jesenska.controller.effects import TopicPartitions
from jesenska.controller.orders.requests import Orderer, leader_and_isr_response, read_leader_and_isr
from jesenska.wire.messages.k04_leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


@handles(LeaderAndIsrRequest, PeerFamily)
def handle(uses: PeerFamily, request: LeaderAndIsrRequest, context: Context) -> Outcome:
    return _obey(uses, request, context)


async def _obey(uses: PeerFamily, request: LeaderAndIsrRequest, context: Context) -> LeaderAndIsrResponse:
    orderer = Orderer(request.controller_id, request.controller_epoch, request.broker_epoch)
    topics: tuple[TopicPartitions, ...] = ()
    try:
        uses.require_peers()
        topics = read_leader_and_isr(request, context.version)
        errors = await uses.orders.lead_and_follow(orderer, topics)
    except KafkaError as error:
        refused = {TopicPartition(part.topic.name, number): error.code for part in topics for number in part.numbers}
        return leader_and_isr_response(context.version, error.code, topics, refused)
    return leader_and_isr_response(context.version, ErrorCode.NONE, topics, errors)
