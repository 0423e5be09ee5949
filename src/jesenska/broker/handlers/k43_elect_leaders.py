"""ElectLeaders (key 43), versions 0-2: a lone broker leads what it can, so no election is needed (KIP-183, KIP-460).

    0      the preferred leader
    1      also the unclean election (type 1); an error for the whole
    2      compact

Each partition answers ELECTION_NOT_NEEDED, or PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE where its log cannot be used.
`topic_partitions` null asks for all: every topic is named then, with its failures. A time-out of 0 or less has passed on arrival: REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode, shortened
from jesenska.broker.dispatch import Context, Outcome, handles
from jesenska.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.services import Services

_PREFERRED, _UNCLEAN = 0, 1
_FIRST_WITH_ERROR = 1
_NOT_NEEDED = "Leader election not needed for topic partition."


@handles(ElectLeadersRequest, 0, 2)
def handle(broker: Services, request: ElectLeadersRequest, context: Context) -> Outcome:
    whole: tuple[ErrorCode, str | None] | None = None
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        whole = ErrorCode.REQUEST_TIMED_OUT, None
    elif request.election_type not in (_PREFERRED, _UNCLEAN):
        whole = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    if request.topic_partitions is None and whole is None:
        return _all(broker, request.election_type)
    response = ElectLeadersResponse()
    if whole is not None and context.version >= _FIRST_WITH_ERROR:
        response.error_code = whole[0]
    for topic in request.topic_partitions or ():
        results = []
        for number in topic.partitions:
            code, message = whole if whole is not None else _elect(broker, topic.topic, number, request.election_type)
            results.append(ElectLeadersResponsePartition(partition_id=number, error_code=code, error_message=message))
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=topic.topic, partition_result=results))
    return response


def _all(broker: Services, election_type: int) -> ElectLeadersResponse:
    response = ElectLeadersResponse()
    for name, topic in broker.view.topics.items():
        results = []
        for number, partition in enumerate(topic.partitions):
            if not partition.is_served:
                code, message = _elect(broker, name, number, election_type)
                results.append(ElectLeadersResponsePartition(partition_id=number, error_code=code, error_message=message))
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=name, partition_result=results))
    return response


def _elect(broker: Services, name: str, number: int, election_type: int) -> tuple[ErrorCode, str]:
    topic = broker.view.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shortened(f"No such topic as {name}")
    if not 0 <= number < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
    if topic.partitions[number].is_served:
        return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
    if election_type == _PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
