"""LeaveGroup (key 13): members leave a group.

Versions: 0-2 have one member, 3 has several and may name static members. 4 adds the compact encoding, 5 a reason."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class LeaveGroupRequestMember(Struct):
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)
    reason: str | None = field(STRING, since=5, nullable=5, default=None, ignorable=True)


class LeaveGroupRequest(Message, key=13, kind=REQUEST, versions=(0, 5), flexible=4):
    group_id: str = field(STRING)
    member_id: str = field(STRING, until=2)
    members: list[LeaveGroupRequestMember] = field(Array(LeaveGroupRequestMember), since=3)


class LeaveGroupResponseMember(Struct):
    member_id: str = field(STRING, since=3)
    group_instance_id: str | None = field(STRING, since=3, nullable=3)
    error_code: int = field(INT16, since=3)


class LeaveGroupResponse(Message, key=13, kind=RESPONSE, versions=(0, 5), flexible=4):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    members: list[LeaveGroupResponseMember] = field(Array(LeaveGroupResponseMember), since=3)
