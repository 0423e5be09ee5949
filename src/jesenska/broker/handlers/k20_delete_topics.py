"""DeleteTopics (key 20), versions 0-6.

    5      error messages; a client above its quota of changes is refused (KIP-599)
    6      by name or by id; an id that is not known answers UNKNOWN_TOPIC_ID

A topic that is named twice (by its name, by its id, by either) is INVALID_REQUEST, answered once and not deleted, as
in Kafka 4.

A time-out that is over when the request comes (0 or less) is REQUEST_TIMED_OUT, and nothing is deleted; in version 0
it is deleted and answered so.

The topic is gone for every request before the answer leaves; its files are removed after file.delete.delay.ms.
"""

from __future__ import annotations

import uuid

from jesenska.base.errors import ErrorCode, InvalidRequestError, NotControllerError, UnknownTopicIdError
from jesenska.base.identifiers import NO_UUID
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import TopicFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.mutations import Mutations
from jesenska.broker.slices import Slices
from jesenska.controller.plans.topics import duplicates
from jesenska.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)

_FIRST_STRICT = 5
_FIRST_WITH_IDS = 6


@handles(DeleteTopicsRequest, TopicFamily)
def handle(uses: TopicFamily, request: DeleteTopicsRequest, context: Context) -> Outcome:
    return _delete(uses, request, context)


async def _delete(uses: TopicFamily, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    wanted = (
        request.topics
        if context.version >= _FIRST_WITH_IDS
        else [DeleteTopicsRequestTopic(name=name) for name in request.topic_names]
    )
    by_name = [item.name for item in wanted if item.name is not None and item.topic_id == NO_UUID]
    by_id = [item.topic_id for item in wanted if item.name is None and item.topic_id != NO_UUID]
    twice, twice_by_id = duplicates(by_name), duplicates(by_id)
    late = request.timeout_ms <= 0
    if late and context.version and not (twice.issuperset(by_name) and twice_by_id.issuperset(by_id)):
        return DeleteTopicsResponse(
            responses=[
                DeleteTopicsResponseTopic(
                    name=item.name, topic_id=item.topic_id, error_code=ErrorCode.REQUEST_TIMED_OUT
                )
                for item in wanted
            ]
        )
    #: Topics that are named by their id, and by their name too.
    both = {topic.name for topic in map(uses.view.by_id.get, by_id) if topic is not None} & set(by_name)
    response = DeleteTopicsResponse()
    between = Slices(uses.clock)
    mutations = Mutations(context, uses.clock.monotonic(), is_strict=context.version >= _FIRST_STRICT)
    answered: set[str | uuid.UUID] = set()
    for item in wanted:
        await between()
        answer = DeleteTopicsResponseTopic(name=item.name, topic_id=item.topic_id)
        try:
            if item.name is not None and item.topic_id != NO_UUID:
                raise InvalidRequestError("You may not specify both topic name and topic id.")
            if item.name is None and item.topic_id == NO_UUID:
                raise InvalidRequestError("Neither topic name nor id were specified.")
            known = uses.view.by_id.get(item.topic_id) if item.name is None else uses.view.topics.get(item.name)
            once = item.topic_id if item.name is None else item.name
            if once in twice or once in twice_by_id:
                # Answered once, and not deleted: Kafka's controller does not guess which was meant.
                if once in answered:
                    continue
                answered.add(once)
                raise InvalidRequestError(f"Duplicate topic {'id' if item.name is None else 'name'}.")
            if known is not None and known.name in both:
                if known.name in answered:
                    continue
                answered.add(known.name)
                answer.name, answer.topic_id = known.name, known.topic_id
                raise InvalidRequestError("The provided topic name maps to an ID that was already supplied.")
            if not uses.controller.is_controller:
                raise NotControllerError
            if known is None and item.name is None:
                raise UnknownTopicIdError("This server does not host this topic ID.")
            if known is not None:
                answer.name, answer.topic_id = known.name, known.topic_id
            mutations.check()
            partitions = 0 if known is None else len(known.partitions)
            await uses.controller.delete(answer.name or "")
            mutations.count(partitions)
            log_change(context, f"topic {answer.name} was deleted")
            if late:
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT  # it is gone, but no client waits for that
        except Exception as error:
            refused = as_kafka_error(error)
            answer.error_code, answer.error_message = refused.code, refused.message or None
        response.responses.append(answer)
    return response
