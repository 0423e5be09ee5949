"""AlterPartitionReassignments (key 45), versions 0-1: requests to move partitions to other replicas, or to cancel one
(KIP-455). The answer is sent when the moves have begun. Each line is what a version adds:

  0      replicas of null cancel the move of a partition
  1      `allow_replication_factor_change`: if it is false, a request for another number of replicas is refused. It is
         answered as in the request; it is true if the request names no topic or its timeout has passed

If the request's timeout is 0 or less, the answer is REQUEST_TIMED_OUT. The answer is NOT_CONTROLLER if another broker
is controller. If a partition is named several times, each request is answered alone, and the last accepted one
counts."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
)


@handles(AlterPartitionReassignmentsRequest, TopicFamily)
def handle(uses: TopicFamily, request: AlterPartitionReassignmentsRequest, context: Context) -> Outcome:
    return _answered(uses, request)


async def _answered(
    uses: TopicFamily, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    if not request.topics:
        response.error_message, response.allow_replication_factor_change = "", True
        return response
    response.error_message = None
    if not uses.controller.is_controller:
        response.error_code = ErrorCode.NOT_CONTROLLER
        return response
    wanted = [
        (TopicPartition(topic.name, asked.partition_index), None if asked.replicas is None else tuple(asked.replicas))
        for topic in request.topics
        for asked in topic.partitions
    ]
    outcomes: list[tuple[int, str | None]]
    if request.timeout_ms <= 0:
        response.error_code, response.allow_replication_factor_change = ErrorCode.REQUEST_TIMED_OUT, True
        outcomes = [(ErrorCode.REQUEST_TIMED_OUT, None)] * len(wanted)
    else:
        try:
            answers = await uses.controller.alter_reassignments(
                wanted, may_change_factor=request.allow_replication_factor_change
            )
            outcomes = [(0, None) if error is None else (error.code, error.message or None) for error in answers]
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message or None
            outcomes = [(error.code, error.message or None)] * len(wanted)
    answered = iter(outcomes)
    response.responses = [
        AlterPartitionReassignmentsResponseTopic(
            name=topic.name,
            partitions=[
                AlterPartitionReassignmentsResponsePartition(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
                for asked, (code, message) in zip(topic.partitions, answered, strict=False)
            ],
        )
        for topic in request.topics
    ]
    return response
