"""ElectLeaders (key 43), versions 0-2: elections that a client requests (KIP-183, KIP-460). Each line is what a
version adds:

  0      election of the preferred leader
  1      unclean election (type 1); an error for the whole answer
  2      compact encoding

A preferred election elects the partition's first replica. It is answered ELECTION_NOT_NEEDED if this replica leads
already, and PREFERRED_LEADER_NOT_AVAILABLE if it is offline or not in sync. An unclean election is answered
ELECTION_NOT_NEEDED if the partition has a leader. Otherwise it elects a replica that is online, even if that replica
lacks committed records. If no replica is online, the answer is ELIGIBLE_LEADERS_NOT_AVAILABLE.

Only the controller elects; other brokers answer NOT_CONTROLLER. If `topic_partitions` is null, elections are held for
all partitions, and the answer names every topic, with its failed partitions. If the request's timeout is 0 or less,
the answer is REQUEST_TIMED_OUT."""

from __future__ import annotations

from collections.abc import Mapping

from jesenska.base.errors import ErrorCode, KafkaError, shortened
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.slices import Slices
from jesenska.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)

_PREFERRED, _UNCLEAN = 0, 1
_FIRST_WITH_ERROR = 1
_SENTENCES: Mapping[int, str] = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
}


@handles(ElectLeadersRequest, TopicFamily)
def handle(uses: TopicFamily, request: ElectLeadersRequest, context: Context) -> Outcome:
    whole: tuple[ErrorCode, str | None] | None = None
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    if request.timeout_ms <= 0:
        whole = ErrorCode.REQUEST_TIMED_OUT, None
    elif request.election_type not in (_PREFERRED, _UNCLEAN):
        whole = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
    elif not uses.controller.is_controller:
        whole = ErrorCode.NOT_CONTROLLER, None
    if whole is None:
        return _elect(uses, request)
    response = ElectLeadersResponse()
    if context.version >= _FIRST_WITH_ERROR:
        response.error_code = whole[0]
    for topic in request.topic_partitions or ():
        results = [
            ElectLeadersResponsePartition(partition_id=number, error_code=whole[0], error_message=whole[1])
            for number in topic.partitions
        ]
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=topic.topic, partition_result=results))
    return response


async def _elect(uses: TopicFamily, request: ElectLeadersRequest) -> ElectLeadersResponse:
    if request.election_type == _PREFERRED:
        return await _elect_preferred(uses, request)
    response, between = ElectLeadersResponse(), Slices(uses.clock)
    if request.topic_partitions is not None:
        for topic in request.topic_partitions:
            results = []
            for number in topic.partitions:
                await between()
                results.append(_result(number, *await _outcome(uses, topic.topic, number)))
            response.replica_election_results.append(
                ElectLeadersResponseTopic(topic=topic.topic, partition_result=results)
            )
        return response
    for name, known in list(uses.view.topics.items()):
        results = []
        for number, partition in enumerate(known.partitions):
            await between()
            if partition.leader < 0:
                results.append(_result(number, *await _outcome(uses, name, number)))
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=name, partition_result=results))
    return response


async def _elect_preferred(uses: TopicFamily, request: ElectLeadersRequest) -> ElectLeadersResponse:
    asked = None
    if request.topic_partitions is not None:
        asked = [
            TopicPartition(topic.topic, number) for topic in request.topic_partitions for number in topic.partitions
        ]
    response = ElectLeadersResponse()
    try:
        errors = await uses.controller.elect_preferred(asked)
    except KafkaError as error:
        response.error_code = error.code
        return response
    if request.topic_partitions is not None:
        named = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    else:
        failed: dict[str, list[int]] = {name: [] for name in uses.view.topics}
        for name, number in errors:
            failed.setdefault(name, []).append(number)
        named = list(failed.items())
    for name, numbers in named:
        results = [_result(number, *_preferred_outcome(uses, name, number, errors)) for number in numbers]
        response.replica_election_results.append(ElectLeadersResponseTopic(topic=name, partition_result=results))
    return response


def _preferred_outcome(
    uses: TopicFamily, name: str, number: int, errors: Mapping[TopicPartition, type[KafkaError] | None]
) -> tuple[ErrorCode, str | None]:
    unknown, error = _unknown(uses, name, number), errors.get(TopicPartition(name, number))
    if unknown is not None:
        return unknown
    return (ErrorCode.NONE, None) if error is None else (error.code, _SENTENCES.get(error.code))


def _result(number: int, code: ErrorCode, message: str | None) -> ElectLeadersResponsePartition:
    return ElectLeadersResponsePartition(partition_id=number, error_code=code, error_message=message)


def _unknown(uses: TopicFamily, name: str, number: int) -> tuple[ErrorCode, str | None] | None:
    topic = uses.view.topics.get(name)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shortened(f"No such topic as {name}")
    if not 0 <= number < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
    return None


async def _outcome(uses: TopicFamily, name: str, number: int) -> tuple[ErrorCode, str | None]:
    """Requests an unclean election for a partition. Returns the error code and message for the answer."""
    unknown = _unknown(uses, name, number)
    if unknown is not None:
        return unknown
    if uses.view.topics[name].partitions[number].leader >= 0:
        return ErrorCode.ELECTION_NOT_NEEDED, _SENTENCES[ErrorCode.ELECTION_NOT_NEEDED]
    try:
        if await uses.controller.elect_uncleanly(name, number):
            return ErrorCode.NONE, None
    except KafkaError as error:
        return error.code, str(error)
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
