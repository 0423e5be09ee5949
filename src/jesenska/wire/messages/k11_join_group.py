"""JoinGroup (key 11): a member joins a group, or joins again in a rebalance.

Versions: 1 adds a rebalance time-out, 4 the error MEMBER_ID_REQUIRED (KIP-394), 5 static members (KIP-345), 6 the
compact encoding, 7 the protocol type, 8 a reason. In 9 the response may tell the group's leader to skip the
assignment."""

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


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING)
    metadata: memoryview | bytes = field(BYTES)


class JoinGroupRequest(Message, key=11, kind=REQUEST, versions=(0, 9), flexible=6):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, since=1, default=-1, ignorable=True)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable=5, default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(Array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, since=8, nullable=8, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=5, nullable=5, default=None, ignorable=True)
    metadata: memoryview | bytes = field(BYTES)


class JoinGroupResponse(Message, key=11, kind=RESPONSE, versions=(0, 9), flexible=6):
    throttle_time_ms: int = field(INT32, since=2, ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, since=7, nullable=7, default=None, ignorable=True)
    protocol_name: str | None = field(STRING, nullable=7)
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOLEAN, since=9)
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(Array(JoinGroupResponseMember))
