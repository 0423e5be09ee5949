"""ListGroups (key 16), versions 0-5: lists the groups that this broker coordinates. Version 3 adds the compact
encoding, version 4 a filter by state, version 5 a filter by type. All groups of this broker have the type
"classic"."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, KafkaError
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import GroupFamily
from jesenska.broker.requests.gate import handles
from jesenska.groups.classic.states import HAPPENS, GroupEvent
from jesenska.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup

_CLASSIC = "classic"


@handles(ListGroupsRequest, GroupFamily)
def handle(uses: GroupFamily, request: ListGroupsRequest, context: Context) -> Outcome:
    states = {item.lower() for item in request.states_filter}
    types = {item.lower() for item in request.types_filter}
    try:
        coordinators = uses.groups.coordinators()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(
        groups=[
            ListGroupsResponseGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=_CLASSIC,
            )
            for coordinator in coordinators
            for group in coordinator.groups.values()
            if not isinstance(HAPPENS[GroupEvent.READ][group.state], ErrorCode)
            and (not states or group.state.value.lower() in states)
            and (not types or _CLASSIC in types)
        ]
    )
