"""DescribeGroups (key 15), versions 0-6. Each line is what a version adds:

  3      authorized operations
  4      static members
  5      compact encoding
  6      a group that does not exist is answered GROUP_ID_NOT_FOUND; in versions 0-5 it is answered with the state Dead

Metadata and assignments of members are answered only if the group is stable, as in Kafka."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.authorized_operations import GROUP_OPERATIONS
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.classic.group import Group
from jesenska.groups.classic.states import HAPPENS, GroupEvent, GroupState, Step
from jesenska.wire.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
)

_FIRST_WITH_NOT_FOUND = 6


@handles(DescribeGroupsRequest, GroupFamily)
def handle(uses: GroupFamily, request: DescribeGroupsRequest, context: Context) -> Outcome:
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        answer = DescribeGroupsResponseGroup(group_id=group_id)
        response.groups.append(answer)
        try:
            group = uses.groups.coordinator_of(group_id).groups.get(group_id)
        except KafkaError as error:
            answer.error_code = error.code
            continue
        happens = ErrorCode.GROUP_ID_NOT_FOUND if group is None else HAPPENS[GroupEvent.READ][group.state]
        if group is None or isinstance(happens, ErrorCode):
            answer.group_state = GroupState.DEAD.value
            if context.version >= _FIRST_WITH_NOT_FOUND:
                answer.error_code, answer.error_message = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."
        else:
            _describe(group, answer, with_assignments=happens is Step.SHOW_ASSIGNMENTS)
        if request.include_authorized_operations and answer.error_code == ErrorCode.NONE:
            answer.authorized_operations = GROUP_OPERATIONS
    return response


def _describe(group: Group, answer: DescribeGroupsResponseGroup, *, with_assignments: bool) -> None:
    answer.group_state = group.state.value
    answer.protocol_type = group.protocol_type or ""
    answer.protocol_data = (group.protocol or "") if with_assignments else ""
    answer.members = [
        DescribeGroupsResponseMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if with_assignments else b"",
            member_assignment=member.assignment if with_assignments else b"",
        )
        for member in group.members.values()
    ]
