"""OffsetFetch (key 9), versions 0-10: answers the committed offsets of a group. Each line is what a version adds:

0      from the metadata tree (see OffsetCommit); a partition without an offset is answered UNKNOWN_TOPIC_OR_PARTITION
1      from the offsets topic; a partition without an offset is answered with -1 and no error
2      a null list of topics asks for all partitions with committed offsets; an error for the whole answer
5      leader epochs
6      compact encoding
7      `require_stable`: UNSTABLE_OFFSET_COMMIT if an open transaction has committed an offset for the partition
8      several groups at once
9      member id and epoch, for groups of the new protocol: ignored here
10     topic ids
"""

from __future__ import annotations

from collections.abc import Container

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import NO_UUID, TopicPartition
from jesenska.broker.coordinators.tree_offsets import fetch_from_tree
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.events import CommittedOffset
from jesenska.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_FIRST_WITH_WHOLE_ERROR = 2
_FIRST_WITH_SEVERAL = 8
_FIRST_WITH_IDS = 10
_NO_OFFSET = CommittedOffset(-1, -1, "", -1)


@handles(OffsetFetchRequest, GroupFamily)
def handle(uses: GroupFamily, request: OffsetFetchRequest, context: Context) -> Outcome:
    if context.version == 0:
        return _from_tree(uses, request)
    if context.version >= _FIRST_WITH_SEVERAL:
        return OffsetFetchResponse(
            groups=[_group(uses, item, context.version, request.require_stable) for item in request.groups]
        )
    return _one_group(uses, request, context.version)


async def _from_tree(uses: GroupFamily, request: OffsetFetchRequest) -> OffsetFetchResponse:
    response = OffsetFetchResponse()
    wanted: dict[str, dict[int, None]] = {}
    for asked in request.topics or ():
        if asked.partition_indexes:
            wanted.setdefault(asked.name, {}).update(dict.fromkeys(asked.partition_indexes))
    for name, numbers in wanted.items():
        partitions = []
        topic = uses.view.topics.get(name)
        for number in numbers:
            if topic is None or not 0 <= number < len(topic.partitions):
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                partitions.append(
                    OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata="", error_code=missing
                    )
                )
                continue
            offset, error = await fetch_from_tree(uses.store, request.group_id, TopicPartition(name, number))
            partitions.append(
                OffsetFetchResponsePartition(
                    partition_index=number, committed_offset=offset, metadata="", error_code=error
                )
            )
        response.topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return response


def _one_group(uses: GroupFamily, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    asked = (
        None
        if request.topics is None
        else [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    )
    try:
        found = uses.groups.coordinator_of(request.group_id).offsets.committed(request.group_id, asked)
    except KafkaError as error:
        response = OffsetFetchResponse(error_code=error.code if version >= _FIRST_WITH_WHOLE_ERROR else ErrorCode.NONE)
        if version < _FIRST_WITH_WHOLE_ERROR:
            response.topics = _as_asked(request, {}, error.code)
        return response
    unstable = (
        uses.groups.coordinator_of(request.group_id).offsets.unstable(request.group_id)
        if request.require_stable
        else set()
    )
    return OffsetFetchResponse(
        topics=_all_of(found, unstable) if asked is None else _as_asked(request, found, ErrorCode.NONE, unstable)
    )


def _as_asked(
    request: OffsetFetchRequest,
    found: dict[TopicPartition, CommittedOffset],
    error: ErrorCode,
    unstable: Container[TopicPartition] = (),
) -> list[OffsetFetchResponseTopic]:
    """Returns the answer with topics and partitions as in the request: a partition that is named twice is answered
    twice."""
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                _old_partition(number, _NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                if TopicPartition(topic.name, number) in unstable
                else _old_partition(number, found.get(TopicPartition(topic.name, number), _NO_OFFSET), error)
                for number in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]


def _all_of(
    found: dict[TopicPartition, CommittedOffset], unstable: Container[TopicPartition]
) -> list[OffsetFetchResponseTopic]:
    topics: dict[str, OffsetFetchResponseTopic] = {}
    for key, value in found.items():
        shown = _old_partition(
            key.partition,
            *((_NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT) if key in unstable else (value, ErrorCode.NONE)),
        )
        topics.setdefault(key.topic, OffsetFetchResponseTopic(name=key.topic)).partitions.append(shown)
    return list(topics.values())


def _old_partition(number: int, value: CommittedOffset, error: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=number,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=error,
    )


def _group(
    uses: GroupFamily, asked: OffsetFetchRequestGroup, version: int, require_stable: bool
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=asked.group_id)
    by_id = version >= _FIRST_WITH_IDS
    try:
        coordinator = uses.groups.coordinator_of(asked.group_id)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    unstable = coordinator.offsets.unstable(asked.group_id) if require_stable else set()
    if asked.topics is None:
        topics: dict[str, OffsetFetchResponseGroupTopic] = {}
        for key, value in coordinator.offsets.committed(asked.group_id, None).items():
            known = uses.view.topics.get(key.topic)
            if by_id and known is None:
                continue
            topic = topics.setdefault(
                key.topic, OffsetFetchResponseGroupTopic(name=key.topic, topic_id=known.topic_id if known else NO_UUID)
            )
            topic.partitions.append(_partition(key, value, ErrorCode.NONE, unstable))
        answer.topics = list(topics.values())
        return answer
    for wanted in asked.topics:
        name: str | None = wanted.name
        if by_id:
            known = uses.view.by_id.get(wanted.topic_id)
            name = known.name if known is not None else None
        keys = [TopicPartition(name or "", number) for number in wanted.partition_indexes]
        found = coordinator.offsets.committed(asked.group_id, keys) if name is not None else {}
        code = ErrorCode.NONE if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
        partitions = [_partition(key, found.get(key, _NO_OFFSET), code, unstable) for key in keys]
        answer.topics.append(
            OffsetFetchResponseGroupTopic(name=wanted.name, topic_id=wanted.topic_id, partitions=partitions)
        )
    return answer


def _partition(
    key: TopicPartition, value: CommittedOffset, error: ErrorCode, unstable: Container[TopicPartition]
) -> OffsetFetchResponseGroupTopicPartition:
    if key in unstable:
        value, error = _NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return OffsetFetchResponseGroupTopicPartition(
        partition_index=key.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=error,
    )
