"""Checks requests about groups and their offsets, and FindCoordinator. Each check returns None
(allowed), a refusal, or a function that corrects the answer (`access.Amend`)."""

from __future__ import annotations

from typing import Any, Final

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.authorization.access import (
    CLUSTER,
    GROUP,
    TOPIC,
    TRANSACTIONAL_ID,
    Access,
    Rule,
    Verdict,
    added,
    merged_refusals,
)
from jesenska.broker.requests.merged_topics import merged_topics, name_and_id_of
from jesenska.security.acls import CLUSTER_NAME, AclOperation
from jesenska.wire.language import Message
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from jesenska.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponseGroupTopicPartition,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from jesenska.wire.messages.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)
from jesenska.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from jesenska.wire.messages.k12_heartbeat import HeartbeatResponse
from jesenska.wire.messages.k13_leave_group import LeaveGroupResponse
from jesenska.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from jesenska.wire.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
)
from jesenska.wire.messages.k16_list_groups import ListGroupsResponse
from jesenska.wire.messages.k42_delete_groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteGroupsResponseResult,
)
from jesenska.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

_READ, _DESCRIBE, _DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_OPERATIONS: Final = -(2**31)
_FIRST_JOIN_WITH_NULL: Final = 7
_FIRST_SYNC_WITH_PROTOCOL: Final = 5
_FIRST_COMMIT_WITH_IDS: Final = 10
_FIRST_FETCH_WITH_WHOLE_ERROR, _FIRST_FETCH_WITH_SEVERAL, _FIRST_FETCH_WITH_IDS = 2, 8, 10
_FIRST_FIND_WITH_SEVERAL: Final = 4
_GROUP_KEY, _TRANSACTION_KEY = 0, 1


def member_of(response: type[Message]) -> Rule:
    """Returns the check of a request that members of a group send: it needs READ on the group."""

    def rule(access: Access, request: Any, version: int) -> Verdict:
        return None if access.allows(_READ, GROUP, request.group_id) else response(error_code=_REFUSED)

    return rule


def sync(access: Access, request: SyncGroupRequest, version: int) -> Verdict:
    """Checks SyncGroup: it needs READ on the group. A request without a protocol type or name is not checked here; the
    handler refuses it."""
    if version >= _FIRST_SYNC_WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return None
    return None if access.allows(_READ, GROUP, request.group_id) else SyncGroupResponse(error_code=_REFUSED)


def join(access: Access, request: JoinGroupRequest, version: int) -> Verdict:
    if access.allows(_READ, GROUP, request.group_id):
        return None
    return JoinGroupResponse(error_code=_REFUSED, protocol_name=None if version >= _FIRST_JOIN_WITH_NULL else "")


def commit(access: Access, request: OffsetCommitRequest, version: int) -> Verdict:
    """Checks OffsetCommit: it needs READ on the group and on each topic. Refused topics come first in the answer."""

    def answered(topics: list[OffsetCommitRequestTopic], error: ErrorCode) -> list[OffsetCommitResponseTopic]:
        return [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ]

    if not access.allows(_READ, GROUP, request.group_id):
        return OffsetCommitResponse(topics=answered(request.topics, _REFUSED))

    def name_of(topic: OffsetCommitRequestTopic) -> str | None:
        return topic.name if version < _FIRST_COMMIT_WITH_IDS else access.topic_name(topic.topic_id)

    kept, refused = access.split(_READ, TOPIC, request.topics, name_of)
    if not refused:
        return None
    failed = merged_topics(answered(refused, _TOPIC_REFUSED), name_and_id_of)
    if not kept:
        return OffsetCommitResponse(topics=failed)
    request.topics = kept
    return added("topics", failed, first=True)


# --- OffsetFetch -----------------------------------------------------------------------------------------------------


def fetch_offsets(access: Access, request: OffsetFetchRequest, version: int) -> Verdict:
    """Checks OffsetFetch: it needs DESCRIBE on each group and topic. If the request asks for all offsets, topics that
    the user may not describe are left out."""
    if version < _FIRST_FETCH_WITH_SEVERAL:
        return _fetch_of_one(access, request, version)
    kept, refused = access.split(_DESCRIBE, GROUP, request.groups, lambda group: group.group_id)
    failed = {id(group): _split_topics(access, group, version) for group in kept}
    order, groups = list(request.groups), kept
    request.groups = kept

    def amend(response: OffsetFetchResponse) -> None:
        answers = {id(group): answer for group, answer in zip(groups, response.groups, strict=True)}
        for group in groups:
            answer = answers[id(group)]
            if group.topics is None:
                answer.topics = [topic for topic in answer.topics if access.may(_DESCRIBE, TOPIC, topic.name)]
            elif not answer.error_code:
                answer.topics += failed[id(group)]
        response.groups = [
            answers.get(id(group)) or OffsetFetchResponseGroup(group_id=group.group_id, error_code=_REFUSED)
            for group in order
        ]

    if refused or any(failed.values()) or any(group.topics is None for group in kept):
        return amend
    return None


def _split_topics(access: Access, group: OffsetFetchRequestGroup, version: int) -> list[OffsetFetchResponseGroupTopic]:
    """Removes the refused topics from the request for one group. Returns the answers for the refused topics."""
    if group.topics is None:
        return []

    def name_of(topic: OffsetFetchRequestGroupTopic) -> str | None:
        return topic.name if version < _FIRST_FETCH_WITH_IDS else access.topic_name(topic.topic_id)

    group.topics, refused = access.split(_DESCRIBE, TOPIC, group.topics, name_of)
    return [
        OffsetFetchResponseGroupTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponseGroupTopicPartition(
                    partition_index=number, committed_offset=-1, metadata="", error_code=_TOPIC_REFUSED
                )
                for number in topic.partition_indexes
            ],
        )
        for topic in refused
    ]


def _fetch_of_one(access: Access, request: OffsetFetchRequest, version: int) -> Verdict:
    def answered(topics: list[OffsetFetchRequestTopic], error: ErrorCode) -> list[OffsetFetchResponseTopic]:
        found = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata="", error_code=error
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in topics
        ]
        return merged_refusals(found, "partitions", "partition_index")

    if not access.allows(_DESCRIBE, GROUP, request.group_id):
        if version >= _FIRST_FETCH_WITH_WHOLE_ERROR:
            return OffsetFetchResponse(error_code=_REFUSED)
        return OffsetFetchResponse(topics=answered(request.topics or [], _REFUSED))
    if request.topics is None:

        def leave_out(response: OffsetFetchResponse) -> None:
            response.topics = [topic for topic in response.topics if access.may(_DESCRIBE, TOPIC, topic.name)]

        return leave_out
    kept, refused = access.split(_DESCRIBE, TOPIC, request.topics, lambda topic: topic.name)
    if not refused:
        return None
    request.topics = kept
    failed = answered(refused, _TOPIC_REFUSED)

    def amend(response: OffsetFetchResponse) -> None:
        if not response.error_code:
            response.topics = response.topics + failed

    return amend


# --- requests that name groups ---------------------------------------------------------------------------------------


def find(access: Access, request: FindCoordinatorRequest, version: int) -> Verdict:
    """Checks FindCoordinator: it needs DESCRIBE on each group or transactional id. The answers are in the order of the
    request."""
    if request.key_type not in (_GROUP_KEY, _TRANSACTION_KEY):
        return None
    of_group = request.key_type == _GROUP_KEY
    kind = GROUP if of_group else TRANSACTIONAL_ID
    error = _REFUSED if of_group else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if version < _FIRST_FIND_WITH_SEVERAL:
        if access.allows(_DESCRIBE, kind, request.key):
            return None
        text = "Group authorization failed." if of_group else "Transactional Id authorization failed."
        return FindCoordinatorResponse(
            error_code=error, error_message=text if version else None, node_id=-1, host="", port=-1
        )
    order = request.coordinator_keys
    kept, refused = access.split(_DESCRIBE, kind, order, lambda key: key)
    if not refused:
        return None
    forbidden = set(refused)
    failed = {
        key: FindCoordinatorResponseCoordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error, error_message=""
        )
        for key in refused
    }
    if not kept:
        return FindCoordinatorResponse(coordinators=[failed[key] for key in order])
    request.coordinator_keys = kept

    def amend(response: FindCoordinatorResponse) -> None:
        found = iter(response.coordinators)
        response.coordinators = [failed[key] if key in forbidden else next(found) for key in order]

    return amend


def describe(access: Access, request: DescribeGroupsRequest, version: int) -> Verdict:
    """Checks DescribeGroups: it needs DESCRIBE on each group. Refused groups come first in the answer."""
    kept, refused = access.split(_DESCRIBE, GROUP, request.groups, lambda group: group)
    failed = [DescribeGroupsResponseGroup(error_code=_REFUSED, group_id=group) for group in refused]
    if refused and not kept:
        return DescribeGroupsResponse(groups=failed)
    if not refused and not request.include_authorized_operations:
        return None
    request.groups = kept

    def amend(response: DescribeGroupsResponse) -> None:
        for group in response.groups:
            if group.authorized_operations != _NO_OPERATIONS:
                group.authorized_operations = access.operations(GROUP, group.group_id)
        response.groups = failed + response.groups

    return amend


def list_groups(access: Access, request: Any, version: int) -> Verdict:
    """Checks ListGroups: with DESCRIBE on the cluster the user sees all groups. Otherwise, groups that the user may
    not describe are left out."""
    if access.may(_DESCRIBE, CLUSTER, CLUSTER_NAME):
        return None

    def amend(response: ListGroupsResponse) -> None:
        response.groups = [group for group in response.groups if access.may(_DESCRIBE, GROUP, group.group_id)]

    return amend


def delete(access: Access, request: DeleteGroupsRequest, version: int) -> Verdict:
    kept, refused = access.split(_DELETE, GROUP, dict.fromkeys(request.groups_names), lambda group: group)
    if not refused:
        return None
    failed = [DeleteGroupsResponseResult(group_id=group, error_code=_REFUSED) for group in refused]
    if not kept:
        return DeleteGroupsResponse(results=failed)
    request.groups_names = kept
    return added("results", failed)


def delete_offsets(access: Access, request: OffsetDeleteRequest, version: int) -> Verdict:
    """Checks OffsetDelete: it needs DELETE on the group and READ on each topic. Refused topics come first in the
    answer."""
    if not access.allows(_DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=_REFUSED)
    kept, refused = access.split(_READ, TOPIC, request.topics, lambda topic: topic.name)
    if not refused:
        return None
    failed = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=part.partition_index, error_code=_TOPIC_REFUSED)
                for part in topic.partitions
            ],
        )
        for topic in refused
    ]
    if not kept:
        return OffsetDeleteResponse(topics=failed)
    request.topics = kept

    def amend(response: OffsetDeleteResponse) -> None:
        if not response.error_code:
            response.topics = failed + response.topics

    return amend


GROUP_RULES: Final[dict[int, Rule]] = {
    8: commit,
    9: fetch_offsets,
    10: find,
    11: join,
    12: member_of(HeartbeatResponse),
    13: member_of(LeaveGroupResponse),
    14: sync,
    15: describe,
    16: list_groups,
    42: delete,
    47: delete_offsets,
}
