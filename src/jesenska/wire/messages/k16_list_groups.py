"""ListGroups (key 16): returns the groups that this broker coordinates.

Versions: 3 uses the compact encoding, 4 can filter by state, 5 by type."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class ListGroupsRequest(Message, key=16, kind=REQUEST, versions=(0, 5), flexible=3):
    states_filter: list[str] = field(Array(STRING), since=4)
    types_filter: list[str] = field(Array(STRING), since=5)


class ListGroupsResponseGroup(Struct):
    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4, ignorable=True)
    group_type: str = field(STRING, since=5, ignorable=True)


class ListGroupsResponse(Message, key=16, kind=RESPONSE, versions=(0, 5), flexible=3):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListGroupsResponseGroup] = field(Array(ListGroupsResponseGroup))
