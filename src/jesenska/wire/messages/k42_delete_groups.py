"""DeleteGroups (key 42): removes empty groups with their offsets.

Versions: 2 uses the compact encoding."""

from __future__ import annotations

from jesenska.wire.language import INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DeleteGroupsRequest(Message, key=42, kind=REQUEST, versions=(0, 2), flexible=2):
    groups_names: list[str] = field(Array(STRING))


class DeleteGroupsResponseResult(Struct):
    group_id: str = field(STRING)
    error_code: int = field(INT16)


class DeleteGroupsResponse(Message, key=42, kind=RESPONSE, versions=(0, 2), flexible=2):
    throttle_time_ms: int = field(INT32)
    results: list[DeleteGroupsResponseResult] = field(Array(DeleteGroupsResponseResult))
