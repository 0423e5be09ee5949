"""DeleteTopics (key 20), versions 0-6. Each line is what a version adds:

  5      error messages; a client above its controller mutation quota is refused (KIP-599)
  6      topics by name or by id; an unknown id is answered UNKNOWN_TOPIC_ID

A topic that is named twice (by name, by id, or by both) is answered once, with INVALID_REQUEST, and is not deleted, as
in Kafka 4.

If the request's timeout is 0 or less, the answer is REQUEST_TIMED_OUT, and no topic is deleted; in version 0 the topic
is deleted in spite of this answer.

When the answer is sent, no request finds the topic any more. The topic's files are deleted after
file.delete.delay.ms."""

from __future__ import annotations

import uuid

from jesenska.base.errors import ErrorCode, InvalidRequestError, NotControllerError, UnknownTopicIdError
from jesenska.base.identifiers import NO_UUID
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.metadata_cache import MetadataCache, Topic
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
    names = _Names(uses.view, wanted)
    late = request.timeout_ms <= 0
    if late and context.version and not names.all_are_duplicates():
        return DeleteTopicsResponse(
            responses=[
                DeleteTopicsResponseTopic(
                    name=item.name, topic_id=item.topic_id, error_code=ErrorCode.REQUEST_TIMED_OUT
                )
                for item in wanted
            ]
        )
    response = DeleteTopicsResponse()
    between = Slices(uses.clock)
    mutations = Mutations(context, uses.clock.monotonic(), is_strict=context.version >= _FIRST_STRICT)
    for item in wanted:
        await between()
        answer = DeleteTopicsResponseTopic(name=item.name, topic_id=item.topic_id)
        try:
            _require_name_or_id(item)
            known = uses.view.by_id.get(item.topic_id) if item.name is None else uses.view.topics.get(item.name)
            if names.is_answered(item, known, answer):
                continue
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
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT  # the topic is deleted, but the client does not wait
        except Exception as error:
            refused = as_kafka_error(error)
            answer.error_code, answer.error_message = refused.code, refused.message or None
        response.responses.append(answer)
    return response


def _require_name_or_id(item: DeleteTopicsRequestTopic) -> None:
    if item.name is not None and item.topic_id != NO_UUID:
        raise InvalidRequestError("You may not specify both topic name and topic id.")
    if item.name is None and item.topic_id == NO_UUID:
        raise InvalidRequestError("Neither topic name nor id were specified.")


class _Names:
    """The names and ids of a request. A topic that is named twice is answered once, and is not deleted: as in Kafka's
    controller, naming a topic twice is treated as a mistake."""

    __slots__ = ("_answered", "_by_id", "_by_name", "_by_name_and_id", "_duplicates")

    def __init__(self, view: MetadataCache, wanted: list[DeleteTopicsRequestTopic]) -> None:
        self._by_name = [item.name for item in wanted if item.name is not None and item.topic_id == NO_UUID]
        self._by_id = [item.topic_id for item in wanted if item.name is None and item.topic_id != NO_UUID]
        self._duplicates: set[str | uuid.UUID] = {*duplicates(self._by_name), *duplicates(self._by_id)}
        #: The names of topics that the request names both by id and by name.
        self._by_name_and_id = {topic.name for topic in map(view.by_id.get, self._by_id) if topic is not None} & set(
            self._by_name
        )
        self._answered: set[str | uuid.UUID] = set()

    def all_are_duplicates(self) -> bool:
        """Returns True if the request contains every name and every id more than once."""
        return self._duplicates.issuperset(self._by_name) and self._duplicates.issuperset(self._by_id)

    def is_answered(
        self, item: DeleteTopicsRequestTopic, known: Topic | None, answer: DeleteTopicsResponseTopic
    ) -> bool:
        """Returns True if the topic is named twice and has been answered already, and False if it is named once.
        Raises InvalidRequestError at the first mention of a topic that is named twice."""
        once = item.topic_id if item.name is None else item.name
        if once in self._duplicates:
            if once in self._answered:
                return True
            self._answered.add(once)
            raise InvalidRequestError(f"Duplicate topic {'id' if item.name is None else 'name'}.")
        if known is not None and known.name in self._by_name_and_id:
            if known.name in self._answered:
                return True
            self._answered.add(known.name)
            answer.name, answer.topic_id = known.name, known.topic_id
            raise InvalidRequestError("The provided topic name maps to an ID that was already supplied.")
        return False
