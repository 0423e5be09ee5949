"""DescribeGroups (key 15): returns the state and the members of groups.

Versions: 3 adds authorised operations, 4 static members, 5 the compact encoding, 6 error messages and
GROUP_ID_NOT_FOUND."""

from __future__ import annotations

from jesenska.wire.language import (
    BOOLEAN,
    BYTES,
    INT16,
    INT32,
    REQUEST,
    RESPONSE,
    STRING,
    Array,
    Message,
    Struct,
    field,
)


class DescribeGroupsRequest(Message, key=15, kind=REQUEST, versions=(0, 6), flexible=5):
    groups: list[str] = field(Array(STRING))
    include_authorized_operations: bool = field(BOOLEAN, since=3)


class DescribeGroupsResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=4, nullable=4, default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: memoryview | bytes = field(BYTES)
    member_assignment: memoryview | bytes = field(BYTES)


class DescribeGroupsResponseGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=6, nullable=6, default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribeGroupsResponseMember] = field(Array(DescribeGroupsResponseMember))
    authorized_operations: int = field(INT32, since=3, default=-2147483648)


class DescribeGroupsResponse(Message, key=15, kind=RESPONSE, versions=(0, 6), flexible=5):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    groups: list[DescribeGroupsResponseGroup] = field(Array(DescribeGroupsResponseGroup))
