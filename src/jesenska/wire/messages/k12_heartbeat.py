"""Heartbeat (key 12): a member of a group reports that it is alive.

Versions: 3 adds static members, 4 the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, Message, field


class HeartbeatRequest(Message, key=12, kind=REQUEST, versions=(0, 4), flexible=4):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)


class HeartbeatResponse(Message, key=12, kind=RESPONSE, versions=(0, 4), flexible=4):
    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16)
