"""DeleteAcls (key 31): removes the access rules that match filters (KIP-140).

Versions: 1 adds prefixed patterns (KIP-290), 2 the compact encoding, 3 the resource type USER."""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DeleteAclsRequestFilter(Struct):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable=0)
    pattern_type_filter: int = field(INT8, since=1, default=3)
    principal_filter: str | None = field(STRING, nullable=0)
    host_filter: str | None = field(STRING, nullable=0)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsRequest(Message, key=31, kind=REQUEST, versions=(0, 3), flexible=2):
    filters: list[DeleteAclsRequestFilter] = field(Array(DeleteAclsRequestFilter))


class DeleteAclsResponseMatchingAcl(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsResponseFilterResult(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    matching_acls: list[DeleteAclsResponseMatchingAcl] = field(Array(DeleteAclsResponseMatchingAcl))


class DeleteAclsResponse(Message, key=31, kind=RESPONSE, versions=(0, 3), flexible=2):
    throttle_time_ms: int = field(INT32)
    filter_results: list[DeleteAclsResponseFilterResult] = field(Array(DeleteAclsResponseFilterResult))
