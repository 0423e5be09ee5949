"""LeaderAndIsr (key 4), versions 0-7: the controller tells this broker the partitions of which it has replicas, and
the leaders of these partitions. Each line is what a version adds:

    2      the epoch of this broker's registration (KIP-380)
    5      topic ids
    7      an answer by topic id

The whole request is refused with STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH. A broker whose metadata tree
(ZooKeeper's nodes) no other broker can use answers CLUSTER_AUTHORIZATION_FAILED. Errors of a single partition:

  STALE_CONTROLLER_EPOCH        the leader epoch is not newer than the leader epoch that this broker knows
  INCONSISTENT_TOPIC_ID         this broker has data of another topic with this name
  UNKNOWN_TOPIC_OR_PARTITION    this broker is not among the replicas
  KAFKA_STORAGE_ERROR           the log cannot be created
"""

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
