"""DeleteTopics (key 20), versions 0-6.

    5      error messages
    6      by name or by id; an id that is not known answers UNKNOWN_TOPIC_ID

The topic is gone for every request before the answer leaves; its files are removed after file.delete.delay.ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import InvalidRequestError, UnknownTopicIdError
from jesenska.base.identifiers import NO_UUID
from jesenska.broker.dispatch import Context, Outcome, handles
from jesenska.broker.slices import Slices
from jesenska.broker.topics import as_kafka_error
from jesenska.wire.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.server import Broker

_FIRST_WITH_IDS = 6


@handles(DeleteTopicsRequest, 0, 6)
def handle(broker: Broker, request: DeleteTopicsRequest, context: Context) -> Outcome:
    return _delete(broker, request, context)


async def _delete(broker: Broker, request: DeleteTopicsRequest, context: Context) -> DeleteTopicsResponse:
    wanted = request.topics if context.version >= _FIRST_WITH_IDS else [DeleteTopicsRequestTopic(name=name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    between = Slices(broker.clock)
    for item in wanted:
        await between()
        answer = DeleteTopicsResponseTopic(name=item.name, topic_id=item.topic_id)
        response.responses.append(answer)
        try:
            if (item.name is None) == (item.topic_id == NO_UUID):
                raise InvalidRequestError("Name a topic either by its name or by its id.")
            name = item.name
            if name is None:
                topic = broker.view.by_id.get(item.topic_id)
                if topic is None:
                    raise UnknownTopicIdError("This server does not host this topic ID.")
                answer.name = name = topic.name
            else:
                known = broker.view.topics.get(name)
                if known is not None:
                    answer.topic_id = known.topic_id
            await broker.topics.delete(name)
        except Exception as error:
            refused = as_kafka_error(error)
            answer.error_code, answer.error_message = refused.code, refused.message or None
    return response
