"""ListPartitionReassignments (key 46), version 0: lists the partitions that are being moved to other replicas
(KIP-455).

The answer is NOT_CONTROLLER if another broker is controller. Partitions that are unknown or not being moved are left
out."""

from __future__ import annotations

from collections.abc import Iterable

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
)


@handles(ListPartitionReassignmentsRequest, TopicFamily)
def handle(uses: TopicFamily, request: ListPartitionReassignmentsRequest, context: Context) -> Outcome:
    response = ListPartitionReassignmentsResponse(error_message=None)
    if not uses.controller.is_controller:
        response.error_code = ErrorCode.NOT_CONTROLLER
        return response
    wanted: Iterable[tuple[str, list[int] | None]]
    if request.topics is None:
        wanted = [(name, None) for name in uses.controller.facts.topics]
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    for name, numbers in wanted:
        moving = _moving(uses, name, numbers)
        if moving:
            response.topics.append(ListPartitionReassignmentsResponseTopic(name=name, partitions=moving))
    return response


def _moving(
    uses: TopicFamily, name: str, numbers: list[int] | None
) -> list[ListPartitionReassignmentsResponsePartition]:
    topic = uses.controller.facts.topics.get(name)
    if topic is None:
        return []
    node = topic.node
    moving = {number for changes in (node.adding, node.removing) for number, brokers in changes.items() if brokers}
    if not moving:
        return []
    return [
        ListPartitionReassignmentsResponsePartition(
            partition_index=number,
            replicas=list(node.replicas[number]),
            adding_replicas=list(node.adding.get(number, ())),
            removing_replicas=list(node.removing.get(number, ())),
        )
        for number in (sorted(moving) if numbers is None else numbers)
        if number in moving and number in node.replicas
    ]
