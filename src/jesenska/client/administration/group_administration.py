"""Administers groups: lists, describes and deletes them, and reads and changes their committed offsets.

Each request goes to the group's coordinator. If the coordinator has moved or is still loading, it is looked up and
asked again until the request timeout has passed. Lists are requested from every broker. Results are returned by name,
with an error for each group that failed.

    describe    DescribeGroups; a group that does not exist is GroupIdNotFoundError (before version 6: the state Dead,
                which means the same)
    offsets     OffsetFetch of all partitions, or of the given partitions
    reset       OffsetCommit with generation -1 and no member, which a coordinator accepts only for a group without
                members

The request ConsumerGroupDescribe, for groups of the new protocol (KIP-848), is not used. Groups of Kafka 0.8 with
offsets in ZooKeeper are not included."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from jesenska.base.errors import ErrorCode, GroupIdNotFoundError, KafkaError, UnknownMemberIdError, error_name
from jesenska.base.identifiers import TopicPartition, numbers_by_topic
from jesenska.client.administration.administration import Administration
from jesenska.client.cluster import Node
from jesenska.client.coordinators import COORDINATOR_PASSES, find_coordinator
from jesenska.client.retries import persistently
from jesenska.wire.codec import MalformedMessageError
from jesenska.wire.consumer_protocol import decode_assignment
from jesenska.wire.language import Message
from jesenska.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from jesenska.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from jesenska.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from jesenska.wire.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseMember,
)
from jesenska.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from jesenska.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from jesenska.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

Answer = TypeVar("Answer", bound=Message)

_ONE_GROUP_PER_REQUEST = 7
_NAMES_NOT_IDS = 9
_DEAD = "Dead"


class GroupListing(NamedTuple):
    """A group in the result of `list_groups`. `state` and `group_type` are empty if the broker is too old to report
    them."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group. `assignment` is empty during a rebalance, and for groups that are not consumer groups."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Node
    members: tuple[GroupMember, ...]


class OffsetAndMetadata(NamedTuple):
    """A committed offset. `leader_epoch` is -1 if no leader epoch was committed with the offset."""

    offset: int
    leader_epoch: int
    metadata: str


class GroupAdministration(Administration):
    """Methods for groups, of the class `Admin`."""

    async def list_groups(self) -> list[GroupListing]:
        """Returns all groups of the cluster, sorted by name."""
        await self.cluster.refresh([])
        found: dict[str, GroupListing] = {}
        for broker_id in sorted(self.cluster.nodes):
            answer = await self._list_groups_of(broker_id)
            for item in answer.groups:
                found[item.group_id] = GroupListing(
                    item.group_id, item.protocol_type, item.group_state, item.group_type
                )
        return [found[name] for name in sorted(found)]

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
        """Returns the state and the members of each group, or the group's error: GroupIdNotFoundError if it does not
        exist."""
        found: dict[str, GroupDescription | KafkaError] = {}
        for group_id in dict.fromkeys(group_ids):
            try:
                found[group_id] = await self._describe_group(group_id)
            except KafkaError as error:
                found[group_id] = error
        return found

    async def _describe_group(self, group_id: str) -> GroupDescription:
        request = DescribeGroupsRequest(groups=[group_id])
        answer, coordinator = await self._ask_coordinator(
            group_id, request, DescribeGroupsResponse, lambda got: got.groups[0].error_code
        )
        group = answer.groups[0]
        if group.group_state == _DEAD and not group.members:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        consumers = group.protocol_type == "consumer"
        members = tuple(_member(item, consumers) for item in group.members)
        return GroupDescription(
            group_id, group.group_state, group.protocol_type, group.protocol_data, coordinator, members
        )

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, KafkaError | None]:
        """Deletes groups without members, and their offsets. Returns for each group None, or the error if it was not
        deleted."""
        found: dict[str, KafkaError | None] = {}
        for group_id in dict.fromkeys(group_ids):
            try:
                await self._ask_coordinator(
                    group_id,
                    DeleteGroupsRequest(groups_names=[group_id]),
                    DeleteGroupsResponse,
                    lambda got: got.results[0].error_code,
                )
                found[group_id] = None
            except KafkaError as error:
                found[group_id] = error
        return found

    async def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the committed offsets of the group, for all partitions or for the given ones. Partitions without a
        committed offset are left out."""
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in numbers_by_topic(partitions).items()
            ]
        request = OffsetFetchRequest(group_id=group_id, topics=topics)
        answer, _ = await self._ask_coordinator(
            group_id, request, OffsetFetchResponse, lambda got: got.error_code, at_most=_ONE_GROUP_PER_REQUEST
        )
        found = {}
        for topic in answer.topics:
            for item in topic.partitions:
                key = TopicPartition(topic.name, item.partition_index)
                if item.error_code != ErrorCode.NONE:
                    raise _error(item.error_code, f"Group {group_id}, {key}")
                if item.committed_offset >= 0:
                    found[key] = OffsetAndMetadata(
                        item.committed_offset, item.committed_leader_epoch, item.metadata or ""
                    )
        return found

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commits offsets for a group without members, which need not exist yet. Returns for each partition None or an
        error; the error is UnknownMemberIdError if the group has members. A broker of jesenska makes an exception for
        a branch (a topic that began as a copy of another topic): it accepts offsets in the branch for a group with
        members, if the group has no offsets in the branch yet and no member subscribes to the branch."""
        if not offsets:
            return {}
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_commit_of(number, offsets[TopicPartition(topic, number)]) for number in numbers],
            )
            for topic, numbers in numbers_by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=topics)

        def first_error(got: OffsetCommitResponse) -> int:
            """Returns the first code for which the coordinator must be looked up again, or NONE. Other errors are
            reported by partition."""
            codes = [item.error_code for topic in got.topics for item in topic.partitions]
            return next((code for code in codes if code in COORDINATOR_PASSES), ErrorCode.NONE)

        answer, _ = await self._ask_coordinator(
            group_id, request, OffsetCommitResponse, first_error, at_most=_NAMES_NOT_IDS
        )
        return {
            TopicPartition(topic.name, item.partition_index): _offset_error(group_id, item.error_code)
            for topic in answer.topics
            for item in topic.partitions
        }

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Deletes committed offsets of the group. Returns for each partition None or an error; the error is
        GroupSubscribedToTopicError if a member reads the topic. An error of the whole group is raised."""
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for topic, numbers in numbers_by_topic(partitions).items()
        ]
        request = OffsetDeleteRequest(group_id=group_id, topics=topics)
        answer, _ = await self._ask_coordinator(group_id, request, OffsetDeleteResponse, lambda got: got.error_code)
        return {
            TopicPartition(topic.name, item.partition_index): _error(item.error_code) if item.error_code else None
            for topic in answer.topics
            for item in topic.partitions
        }

    async def remove_members_from_group(self, group_id: str) -> list[GroupMember]:
        """Removes all members from a group, and returns the members that it had. A member that is still running joins
        again."""
        members = (await self._describe_group(group_id)).members
        for member in members:
            await self._remove_member(group_id, member)
        return list(members)

    async def _remove_member(self, group_id: str, member: GroupMember) -> None:
        one = LeaveGroupRequestMember(
            member_id=member.member_id, group_instance_id=member.group_instance_id, reason="removed by a tool"
        )

        def code_of(got: LeaveGroupResponse) -> int:
            code = got.error_code or next((item.error_code for item in got.members), ErrorCode.NONE)
            return ErrorCode.NONE if code == ErrorCode.UNKNOWN_MEMBER_ID else code  # it has left by itself

        async def attempt() -> None:
            coordinator = await find_coordinator(self.cluster, group_id)
            request = LeaveGroupRequest(group_id=group_id, member_id="", members=[one])
            if (await self.cluster.channel_of(coordinator)).version_for(LeaveGroupRequest) < 3:
                request = LeaveGroupRequest(group_id=group_id, member_id=member.member_id, members=[])
            code = code_of(await self.cluster.ask_broker(coordinator, request, LeaveGroupResponse))
            if code != ErrorCode.NONE:
                raise _error(code, f"Group {group_id}, member {member.member_id}")

        await persistently(self.cluster, (*COORDINATOR_PASSES, ErrorCode.NETWORK_EXCEPTION), attempt)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def _ask_coordinator(
        self,
        group_id: str,
        request: Message,
        response: type[Answer],
        code_of: Callable[[Answer], int],
        *,
        at_most: int | None = None,
    ) -> tuple[Answer, Node]:
        """Returns the coordinator's response and the coordinator. Raises the error in the response. If the coordinator
        may have moved, it is first looked up and asked again."""

        async def attempt() -> tuple[Answer, Node]:
            coordinator = await find_coordinator(self.cluster, group_id)
            answer = await self.cluster.ask_broker(coordinator, request, response, at_most=at_most)
            code = code_of(answer)
            if code != ErrorCode.NONE:
                raise _error(code)
            return answer, self.cluster.nodes[coordinator]

        return await persistently(self.cluster, (*COORDINATOR_PASSES, ErrorCode.NETWORK_EXCEPTION), attempt)

    async def _list_groups_of(self, broker_id: int) -> ListGroupsResponse:
        async def attempt() -> ListGroupsResponse:
            answer = await self.cluster.ask_broker(broker_id, ListGroupsRequest(), ListGroupsResponse)
            if answer.error_code != ErrorCode.NONE:
                raise _error(answer.error_code, f"Broker {broker_id}")
            return answer

        return await persistently(self.cluster, COORDINATOR_PASSES, attempt)


def _commit_of(number: int, offset: int | OffsetAndMetadata) -> OffsetCommitRequestPartition:
    if isinstance(offset, int):
        return OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _member(item: DescribeGroupsResponseMember, consumers: bool) -> GroupMember:
    assignment: list[TopicPartition] = []
    if consumers:
        try:
            assignment = sorted(decode_assignment(bytes(item.member_assignment)))
        except MalformedMessageError:
            pass  # a malformed assignment is a fault of the group's leader; a tool that shows it must not fail
    return GroupMember(item.member_id, item.group_instance_id, item.client_id, item.client_host, tuple(assignment))


_SENTENCES: dict[int, str] = {
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",  # noqa: E501
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.INVALID_GROUP_ID: "The group's name is not valid.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "The group may not be used: ask whoever administers the cluster's ACLs.",
}


def _error(code: int, where: str = "") -> KafkaError:
    text = _SENTENCES.get(code) or f"The coordinator answers {error_name(code)}."
    return KafkaError.of(code, f"{where}: {text}" if where else text)


def _offset_error(group_id: str, code: int) -> KafkaError | None:
    if code == ErrorCode.NONE:
        return None
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        return UnknownMemberIdError(f"Group {group_id} has members, whose offsets only they commit: stop them first.")
    return _error(code)
