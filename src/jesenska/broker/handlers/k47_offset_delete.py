"""OffsetDelete (key 47), version 0: removes committed offsets of partitions that no member of the group subscribes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.dispatch import LATER, Context, Outcome, handles
from jesenska.groups.events import DeleteOffsets, PartitionsAnswer, Response
from jesenska.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from jesenska.broker.server import Broker


@handles(OffsetDeleteRequest, 0, 0)
def handle(broker: Broker, request: OffsetDeleteRequest, context: Context) -> Outcome:
    unknown: dict[TopicPartition, ErrorCode] = {}
    wanted = []
    for topic in request.topics:
        known = broker.view.topics.get(topic.name)
        for item in topic.partitions:
            key = TopicPartition(topic.name, item.partition_index)
            if known is None or not 0 <= item.partition_index < len(known.partitions):
                unknown[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(key)

    def reply(response: Response) -> None:
        assert isinstance(response, PartitionsAnswer)
        if response.error is not ErrorCode.NONE:
            context.answer(OffsetDeleteResponse(error_code=response.error))
            return
        errors = {**response.partitions, **unknown}
        context.answer(
            OffsetDeleteResponse(
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=[
                            OffsetDeleteResponsePartition(
                                partition_index=item.partition_index,
                                error_code=errors.get(TopicPartition(topic.name, item.partition_index), ErrorCode.NONE),
                            )
                            for item in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    try:
        broker.groups.submit(request.group_id, DeleteOffsets(reply, request.group_id, tuple(wanted)))
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return LATER
