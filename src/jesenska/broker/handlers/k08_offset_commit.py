"""OffsetCommit (key 8), versions 0-10. Each line is what a version adds:

  0      offsets are stored as consumers of Kafka 0.8 did: in the metadata tree (ZooKeeper's nodes), at
         /consumers/GROUP/offsets/TOPIC/PARTITION
  1      offsets are stored in the offsets topic; a timestamp for each partition
  2-4    a retention time for the whole commit; from version 5 on the broker's setting applies
  6      leader epochs
  7      static members
  8      compact encoding
  9      STALE_MEMBER_EPOCH for the new group protocol; GROUP_ID_NOT_FOUND if a member commits for an unknown group
  10     topic ids

The answer is sent when the offsets are committed in the group's partition of the offsets topic. Partitions of a topic
that does not exist are answered UNKNOWN_TOPIC_OR_PARTITION; the offsets of other partitions are committed. If a
partition is named twice, the last offset with valid metadata is committed. In version 1 only the last mention counts,
and a known partition is answered once. A known topic without partitions is not answered. A topic that is named twice
is answered once if anything in the request is unknown.

A group with members accepts a commit without a member id if all partitions belong to branches (topics that began as a
copy of another topic; see `groups.offsets`)."""

from __future__ import annotations

from functools import partial

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.base.identifiers import TopicPartition
from jesenska.broker.coordinators.tree_offsets import commit_to_tree
from jesenska.broker.requests.connection import LATER, Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.requests.merged_topics import merged_topics, name_and_id_of
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
#: The version in which only the last mention of a partition counts: Kafka 3.9, the last release with this version,
#: puts the offsets into a map.
_WITH_MAP = 1
_FIRST_WITH_NOT_FOUND = 9
_FIRST_WITH_IDS = 10

_Offsets = list[tuple[TopicPartition, CommittedOffset]]
_Place = tuple[int, int]


@handles(OffsetCommitRequest, GroupFamily)
def handle(uses: GroupFamily, request: OffsetCommitRequest, context: Context) -> Outcome:
    commit = _Commit(uses, request, context)
    offsets = commit.read()
    if context.version == 0:
        return _to_tree(uses, commit, request.group_id, offsets)
    if not offsets:
        return commit.response({}, ErrorCode.NONE)
    make = partial(
        CommitOffsets,
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=tuple(offsets),
        knows_missing_group=context.version >= _FIRST_WITH_NOT_FOUND,
        is_of_branches=all(BRANCH_OF in uses.view.topics[key.topic].config.overrides for key, _ in offsets),
    )
    try:
        uses.groups.submit(request.group_id, make, commit.replied)
    except KafkaError as error:
        return commit.response({}, error.code)
    return LATER


async def _to_tree(uses: GroupFamily, commit: _Commit, group_id: str, offsets: _Offsets) -> OffsetCommitResponse:
    results = {}
    for key, value in offsets:
        if not is_metadata_too_large(value.metadata, commit.metadata_max_bytes):
            results[key] = await commit_to_tree(uses.store, group_id, key, value.offset)
    return commit.response(results, ErrorCode.NONE)


class _Commit:
    """One OffsetCommit request, with the errors that are found before the offsets are committed. A partition is
    identified by its position in the request: (index of the topic, index of the partition)."""

    __slots__ = (
        "_context",
        "_errors",
        "_places",
        "_request",
        "_too_large",
        "_unanswered",
        "_unknown",
        "_uses",
        "metadata_max_bytes",
    )

    def __init__(self, uses: GroupFamily, request: OffsetCommitRequest, context: Context) -> None:
        self._uses = uses
        self._request = request
        self._context = context
        self.metadata_max_bytes = uses.in_force.config.integer("offset.metadata.max.bytes")
        #: The known partitions, by position.
        self._places: dict[_Place, TopicPartition] = {}
        #: The errors of unknown partitions, by position.
        self._errors: dict[_Place, ErrorCode] = {}
        #: The positions of unknown topics.
        self._unknown: set[int] = set()
        self._too_large: set[_Place] = set()
        self._unanswered: set[_Place] = set()

    def read(self) -> _Offsets:
        """Returns the offsets of the known partitions, which must be committed. Stores the errors of unknown
        partitions."""
        request, version, view = self._request, self._context.version, self._uses.view
        now_ms, limit = self._uses.clock.now_ms(), self.metadata_max_bytes
        offsets: _Offsets = []
        errors, places = self._errors, self._places
        for at, topic in enumerate(request.topics):
            known = view.by_id.get(topic.topic_id) if version >= _FIRST_WITH_IDS else view.topics.get(topic.name)
            if known is None:
                self._unknown.add(at)
            for number, item in enumerate(topic.partitions):
                if known is None or not 0 <= item.partition_index < len(known.partitions):
                    is_id = known is None and version >= _FIRST_WITH_IDS
                    errors[at, number] = ErrorCode.UNKNOWN_TOPIC_ID if is_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                key = places[at, number] = TopicPartition(known.name, item.partition_index)
                # A request of version 1 may contain a timestamp; -1 means the current time.
                stamp = item.commit_timestamp if version == 1 and item.commit_timestamp >= 0 else now_ms
                # A retention time that overflows means forever.
                expires = min(now_ms + request.retention_time_ms, _INT64_MAX) if request.retention_time_ms >= 0 else -1
                value = CommittedOffset(
                    item.committed_offset, item.committed_leader_epoch, item.committed_metadata or "", stamp, expires
                )
                offsets.append((key, value))
                if is_metadata_too_large(value.metadata, limit):
                    self._too_large.add((at, number))
        if version == _WITH_MAP:
            offsets = list(dict(offsets).items())
            self._unanswered = set(places) - set({key: place for place, key in places.items()}.values())
        return offsets

    def replied(self, response: Response) -> None:
        """Sends the answer when the group coordinator has answered."""
        assert isinstance(response, PartitionsAnswer)
        self._context.answer(self.response(response.partitions, response.error))

    def response(self, partitions: dict[TopicPartition, ErrorCode], otherwise: ErrorCode) -> OffsetCommitResponse:
        """Returns the answer. `partitions` has the errors of known partitions. A known partition that is not in
        `partitions` gets the error `otherwise`."""
        unanswered = self._unanswered
        answers = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=item.partition_index,
                        error_code=self._error_of((at, number), partitions, otherwise),
                    )
                    for number, item in enumerate(topic.partitions)
                    if (at, number) not in unanswered
                ],
            )
            for at, topic in enumerate(self._request.topics)
            if topic.partitions or at in self._unknown
        ]
        if self._errors or self._unknown or self._context.version <= 1:
            answers = merged_topics(answers, name_and_id_of)
        return OffsetCommitResponse(topics=answers)

    def _error_of(self, place: _Place, partitions: dict[TopicPartition, ErrorCode], otherwise: ErrorCode) -> ErrorCode:
        if place in self._errors:
            return self._errors[place]
        if place in self._too_large and otherwise is ErrorCode.NONE:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return partitions.get(self._places[place], otherwise)
