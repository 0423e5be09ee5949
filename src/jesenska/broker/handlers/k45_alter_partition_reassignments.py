"""AlterPartitionReassignments (key 45), versions 0-1: requests to move partitions to other replicas (KIP-455).
jesenska does not move partitions between brokers, so it only answers an error or NONE. Each line is what a version
adds:

  0      a request for the current replicas is answered NONE, a request for other replicas INVALID_REPLICA_ASSIGNMENT,
         and a cancellation (null) NO_REASSIGNMENT_IN_PROGRESS
  1      `allow_replication_factor_change` is answered as in the request; it is true if the request names no topic or
         its timeout has passed

If the request's timeout is 0 or less, the answer is REQUEST_TIMED_OUT."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, shortened
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
    timed_out = request.timeout_ms <= 0
    if timed_out:
        response.error_code, response.allow_replication_factor_change = ErrorCode.REQUEST_TIMED_OUT, True
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            code, message = (
                (ErrorCode.REQUEST_TIMED_OUT, None)
                if timed_out
                else _judged(uses, topic.name, asked.partition_index, asked.replicas)
            )
            answers.append(
                AlterPartitionReassignmentsResponsePartition(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
        response.responses.append(AlterPartitionReassignmentsResponseTopic(name=topic.name, partitions=answers))
    return response


def _judged(uses: TopicFamily, name: str, number: int, replicas: list[int] | None) -> tuple[ErrorCode, str | None]:
    topic = uses.view.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shortened(f"Unable to find a topic named {name}.")
    if not 0 <= number < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}."
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    if not replicas:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
    previous: int | None = None
    for replica in sorted(replicas):
        if replica not in uses.view.brokers:
            message = f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
        if replica == previous:
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {replica} more than once.",
            )
        previous = replica
    if set(replicas) != set(topic.partitions[number].replicas):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{name}-{number} cannot be moved: a lone broker keeps the replicas that a partition has.",
        )
    return ErrorCode.NONE, None
