"""OffsetCommit (key 8), versions 0-10.

    0      offsets in the tree, /consumers/GROUP/offsets/TOPIC/PARTITION, as consumers of 0.8 keep them
    1      the group's log; a timestamp for each partition
    2-4    a retention time for the whole commit, from 5 on the broker's setting
    6      leader epochs
    7      static members
    8      compact
    9      STALE_MEMBER_EPOCH for the new group protocol; GROUP_ID_NOT_FOUND if a member commits for an unknown group
    10     topic ids

The answer leaves when the offsets are committed in the group's log. A topic that does not exist is
UNKNOWN_TOPIC_OR_PARTITION for its partitions, the rest is committed. If a partition is named twice each offset is
judged by its own metadata, and the last good one stays; in version 1 only the last counts and is answered once, if the
partition exists. A known topic without partitions is not answered; one that is named twice is answered once if
anything in the request is unknown. A group with members takes a commit without a member if all of it is of branches
(groups.offsets).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.coordinators.tree_offsets import commit_to_tree
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.controller.plans.branches import BRANCH_OF
from jesenska.groups.events import CommitOffsets, CommittedOffset, PartitionsAnswer, Response
from jesenska.groups.offsets.group_offsets import is_metadata_too_large
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_INT64_MAX = 2**63 - 1
#: Kafka 3.9, the last that serves this version, keeps the offsets to commit in a map.
_WITH_MAP = 1
_FIRST_WITH_NOT_FOUND = 9
_FIRST_WITH_IDS = 10


@handles(OffsetCommitRequest, GroupFamily)
def handle(uses: GroupFamily, request: OffsetCommitRequest, context: Context) -> Outcome:
    version, now_ms = context.version, uses.clock.now_ms()
    offsets: list[tuple[TopicPartition, CommittedOffset]] = []
    errors: dict[tuple[int, int], ErrorCode] = {}
    places: dict[tuple[int, int], TopicPartition] = {}
    unknown: set[int] = set()
    too_large: set[tuple[int, int]] = set()
    limit = uses.in_force.config.integer("offset.metadata.max.bytes")
    for at, topic in enumerate(request.topics):
        known = uses.view.by_id.get(topic.topic_id) if version >= _FIRST_WITH_IDS else uses.view.topics.get(topic.name)
        if known is None:
            unknown.add(at)
        for number, item in enumerate(topic.partitions):
            if known is None or not 0 <= item.partition_index < len(known.partitions):
                missing_id = known is None and version >= _FIRST_WITH_IDS
                errors[at, number] = ErrorCode.UNKNOWN_TOPIC_ID if missing_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            key = places[at, number] = TopicPartition(known.name, item.partition_index)
            # Version 1 may have its own time; -1 means now.
            stamp = item.commit_timestamp if version == 1 and item.commit_timestamp >= 0 else now_ms
            # A retention that overflows is for ever.
            expires = min(now_ms + request.retention_time_ms, _INT64_MAX) if request.retention_time_ms >= 0 else -1
            value = CommittedOffset(
                item.committed_offset, item.committed_leader_epoch, item.committed_metadata or "", stamp, expires
            )
            offsets.append((key, value))
            if is_metadata_too_large(value.metadata, limit):
                too_large.add((at, number))

    unanswered: set[tuple[int, int]] = set()
    if version == _WITH_MAP:
        offsets = list(dict(offsets).items())
        unanswered = set(places) - set({key: place for place, key in places.items()}.values())

    def error_of(
        place: tuple[int, int], partitions: dict[TopicPartition, ErrorCode], otherwise: ErrorCode
    ) -> ErrorCode:
        if place in errors:
            return errors[place]
        if place in too_large and otherwise is ErrorCode.NONE:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return partitions.get(places[place], otherwise)

    def build(partitions: dict[TopicPartition, ErrorCode], otherwise: ErrorCode) -> OffsetCommitResponse:
        response = OffsetCommitResponse()
        merges = bool(errors or unknown) or version <= 1
        answered: dict[tuple[str, uuid.UUID], OffsetCommitResponseTopic] = {}
        for at, topic in enumerate(request.topics):
            if at not in unknown and not topic.partitions:
                continue
            answer = answered.get((topic.name, topic.topic_id)) if merges else None
            if answer is None:
                answer = answered[topic.name, topic.topic_id] = OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id
                )
                response.topics.append(answer)
            answer.partitions += [
                OffsetCommitResponsePartition(
                    partition_index=item.partition_index,
                    error_code=error_of((at, number), partitions, otherwise),
                )
                for number, item in enumerate(topic.partitions)
                if (at, number) not in unanswered
            ]
        return response

    if version == 0:
        return _to_tree(
            uses,
            request.group_id,
            [(key, value) for key, value in offsets if not is_metadata_too_large(value.metadata, limit)],
            build,
        )

    def reply(response: Response) -> None:
        assert isinstance(response, PartitionsAnswer)
        context.answer(build(response.partitions, response.error))

    if not offsets:
        return build({}, ErrorCode.NONE)
    make = partial(
        CommitOffsets,
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=tuple(offsets),
        knows_missing_group=version >= _FIRST_WITH_NOT_FOUND,
        is_of_branches=all(BRANCH_OF in uses.view.topics[key.topic].config.overrides for key, _ in offsets),
    )
    try:
        uses.groups.submit(request.group_id, make, reply)
    except KafkaError as error:
        return build({}, error.code)
    return LATER


async def _to_tree(
    uses: GroupFamily,
    group_id: str,
    offsets: list[tuple[TopicPartition, CommittedOffset]],
    build: Callable[[dict[TopicPartition, ErrorCode], ErrorCode], OffsetCommitResponse],
) -> OffsetCommitResponse:
    results = {}
    for key, value in offsets:
        results[key] = await commit_to_tree(uses.store, group_id, key, value.offset)
    return build(results, ErrorCode.NONE)
