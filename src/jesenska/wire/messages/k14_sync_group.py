"""SyncGroup (key 14): the group's leader sends the assignment of all members, and each member receives its own.

Versions: 3 adds static members, 4 the compact encoding, 5 the protocol's type and name."""

from __future__ import annotations

from jesenska.wire.language import BYTES, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class SyncGroupRequestAssignment(Struct):
    member_id: str = field(STRING)
    assignment: memoryview | bytes = field(BYTES)


class SyncGroupRequest(Message, key=14, kind=REQUEST, versions=(0, 5), flexible=4):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)
    protocol_type: str | None = field(STRING, since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = field(STRING, since=5, nullable=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(Array(SyncGroupRequestAssignment))


class SyncGroupResponse(Message, key=14, kind=RESPONSE, versions=(0, 5), flexible=4):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(STRING, since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = field(STRING, since=5, nullable=5, default=None, ignorable=True)
    assignment: memoryview | bytes = field(BYTES)
