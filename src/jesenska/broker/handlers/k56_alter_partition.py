"""AlterPartition (key 56), versions 0-3: the leader of a partition asks the controller for another ISR (KIP-497). Each
line is what a version adds:

  0      topics by name
  1      a flag that the leader has recovered from an unclean election (KIP-704), which is always true here
  2      topics by id; INELIGIBLE_REPLICA in place of OPERATION_NOT_ATTEMPTED (KIP-841)
  3      broker epochs of the ISR's members (KIP-903), which brokers in ZooKeeper mode leave out

jesenska's brokers write ISRs to the metadata tree themselves (`replication.leader.isr_changes`); brokers of Apache
Kafka 2.7 and later send this request. A broker that is not the controller answers NOT_CONTROLLER. If the broker epoch
is not that of the sender's newest registration, the answer is STALE_BROKER_EPOCH. A request for the current ISR is
answered like a successful change, since an earlier answer may have been lost."""

from __future__ import annotations

from jesenska.base.errors import (
    ClusterAuthorizationFailedError,
    ErrorCode,
    IneligibleReplicaError,
    InvalidRequestError,
    KafkaError,
    NotControllerError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import PeerFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.slices import Slices
from jesenska.controller.events import IsrProposed
from jesenska.wire.messages.k56_alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)

_FIRST_WITH_IDS, _FIRST_WITH_EPOCHS = 2, 3
_RECOVERED = 0


@handles(AlterPartitionRequest, PeerFamily)
def handle(uses: PeerFamily, request: AlterPartitionRequest, context: Context) -> Outcome:
    return _propose(uses, request, context.version)


async def _propose(uses: PeerFamily, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
    response, between = AlterPartitionResponse(), Slices(uses.clock)
    try:
        uses.require_peers()
        if uses.controller.facts.broker_epochs.get(request.broker_id) != request.broker_epoch:
            return AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        for topic in request.topics:
            answer = AlterPartitionResponseTopic(topic_name=topic.topic_name, topic_id=topic.topic_id)
            name = _name(uses, topic, version)
            for partition in topic.partitions:
                await between()
                answer.partitions.append(await _partition(uses, request.broker_id, name, partition, version))
            response.topics.append(answer)
    except (ClusterAuthorizationFailedError, NotControllerError) as error:
        return AlterPartitionResponse(error_code=error.code)
    return response


def _name(uses: PeerFamily, topic: AlterPartitionRequestTopic, version: int) -> str | None:
    """Returns the name of the topic, or None if its id is unknown."""
    if version < _FIRST_WITH_IDS:
        return topic.topic_name
    found = uses.controller.facts.topic_by_id(topic.topic_id)
    return None if found is None else found.name


async def _partition(
    uses: PeerFamily, leader: int, name: str | None, asked: AlterPartitionRequestPartition, version: int
) -> AlterPartitionResponsePartition:
    number = asked.partition_index
    if name is None:
        return AlterPartitionResponsePartition(partition_index=number, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    isr = tuple(
        asked.new_isr if version < _FIRST_WITH_EPOCHS else (member.broker_id for member in asked.new_isr_with_epochs)
    )
    try:
        if asked.leader_recovery_state != _RECOVERED:
            raise InvalidRequestError(f"The leader of {name}-{number} has recovered.")
        at, epochs = TopicPartition(name, number), (asked.leader_epoch, asked.partition_epoch)
        known = await uses.controller.propose_isr(lambda token: IsrProposed(token, leader, at, *epochs, isr))
    except IneligibleReplicaError:
        code = ErrorCode.INELIGIBLE_REPLICA if version >= _FIRST_WITH_IDS else ErrorCode.OPERATION_NOT_ATTEMPTED
        return AlterPartitionResponsePartition(partition_index=number, error_code=code)
    except KafkaError as error:
        return AlterPartitionResponsePartition(partition_index=number, error_code=error.code)
    state = known.state
    return AlterPartitionResponsePartition(
        partition_index=number,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=known.version,
    )
