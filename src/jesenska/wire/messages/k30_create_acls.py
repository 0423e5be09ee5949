"""CreateAcls (key 30): adds access rules (KIP-140).

Versions: 1 adds prefixed patterns (KIP-290), 2 the compact encoding, 3 the resource type USER."""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class CreateAclsRequestCreation(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class CreateAclsRequest(Message, key=30, kind=REQUEST, versions=(0, 3), flexible=2):
    creations: list[CreateAclsRequestCreation] = field(Array(CreateAclsRequestCreation))


class CreateAclsResponseResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class CreateAclsResponse(Message, key=30, kind=RESPONSE, versions=(0, 3), flexible=2):
    throttle_time_ms: int = field(INT32)
    results: list[CreateAclsResponseResult] = field(Array(CreateAclsResponseResult))
