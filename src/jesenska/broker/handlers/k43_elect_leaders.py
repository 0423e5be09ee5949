"""ElectLeaders (key 43), versions 0-2: leaders by request, where a partition has none (KIP-183, KIP-460).

    0      the preferred leader
    1      also the unclean election (type 1); an error for the whole
    2      compact

Each partition that is led answers ELECTION_NOT_NEEDED. One that is not: PREFERRED_LEADER_NOT_AVAILABLE; the unclean
election lets a replica that is up lead with what it has, ELIGIBLE_LEADERS_NOT_AVAILABLE where none is.
`topic_partitions` null asks for all: every topic is named then, with its failures. A time-out of 0 or less has passed
on arrival: REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode, KafkaError, shortened
from jesenska.broker.connection import Context, Outcome
from jesenska.broker.gate import handles
from jesenska.broker.slices import Slices
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
    if whole is None:
        return _all(broker, request.election_type) if request.topic_partitions is None else _named(broker, request)
    response = ElectLeadersResponse()
    if context.version >= _FIRST_WITH_ERROR:
        response.error_code = whole[0]
    for topic in request.topic_partitions or ():
        results = [ElectLeadersResponsePartition(partition_id=number, error_code=whole[0], error_message=whole[1]) for number in topic.partitions]
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=topic.topic, partition_result=results))
    return response


async def _named(broker: Services, request: ElectLeadersRequest) -> ElectLeadersResponse:
    response, between = ElectLeadersResponse(), Slices(broker.clock)
    for topic in request.topic_partitions or ():
        results = []
        for number in topic.partitions:
            await between()
            results.append(await _elect(broker, topic.topic, number, request.election_type))
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=topic.topic, partition_result=results))
    return response


async def _all(broker: Services, election_type: int) -> ElectLeadersResponse:
    response, between = ElectLeadersResponse(), Slices(broker.clock)
    for name, topic in list(broker.view.topics.items()):
        results = []
        for number, partition in enumerate(topic.partitions):
            await between()
            if not partition.is_served:
                results.append(await _elect(broker, name, number, election_type))
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=name, partition_result=results))
    return response


async def _elect(broker: Services, name: str, number: int, election_type: int) -> ElectLeadersResponsePartition:
    code, message = await _outcome(broker, name, number, election_type)
    return ElectLeadersResponsePartition(partition_id=number, error_code=code, error_message=message)


async def _outcome(broker: Services, name: str, number: int, election_type: int) -> tuple[ErrorCode, str | None]:
    topic = broker.view.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shortened(f"No such topic as {name}")
    if not 0 <= number < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
    if topic.partitions[number].is_served:
        return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
    if election_type == _PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    try:
        if await broker.topics.elect_uncleanly(name, number):
            return ErrorCode.NONE, None
    except KafkaError as error:
        return error.code, str(error)
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
