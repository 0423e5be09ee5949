"""OffsetDelete (key 47), version 0: deletes a group's committed offsets of partitions. Offsets of a topic that a
member of the group subscribes to are not deleted."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.merged_topics import merged_topics
from jesenska.groups.events import DeleteOffsets, PartitionsAnswer, Response
from jesenska.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(OffsetDeleteRequest, GroupFamily)
def handle(uses: GroupFamily, request: OffsetDeleteRequest, context: Context) -> Outcome:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    unknown: dict[TopicPartition, ErrorCode] = {}
    wanted = []
    for topic in request.topics:
        known = uses.view.topics.get(topic.name)
        for item in topic.partitions:
            key = TopicPartition(topic.name, item.partition_index)
            if known is None or not 0 <= item.partition_index < len(known.partitions):
                unknown[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(key)

    def reply(outcome: Response) -> None:
        assert isinstance(outcome, PartitionsAnswer)
        if outcome.error is not ErrorCode.NONE:
            context.answer(OffsetDeleteResponse(error_code=outcome.error))
            return
        errors = {**outcome.partitions, **unknown}
        answers = [
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
            if topic.partitions or topic.name not in uses.view.topics
        ]
        # As in Kafka: a topic that is named twice is answered once if anything in the request is unknown.
        if unknown or any(topic.name not in uses.view.topics for topic in request.topics):
            answers = merged_topics(answers)
        context.answer(OffsetDeleteResponse(topics=answers))

    try:
        uses.groups.submit(request.group_id, lambda token: DeleteOffsets(token, request.group_id, tuple(wanted)), reply)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return LATER
