"""DescribeAcls (key 29): returns the access rules that match a filter (KIP-140).

Versions: 1 adds prefixed patterns (KIP-290), 2 the compact encoding, 3 the resource type USER."""

from __future__ import annotations

from jesenska.wire.language import INT8, INT16, INT32, REQUEST, RESPONSE, STRING, Array, Message, Struct, field


class DescribeAclsRequest(Message, key=29, kind=REQUEST, versions=(0, 3), flexible=2):
    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable=0)
    pattern_type_filter: int = field(INT8, since=1, default=3)
    principal_filter: str | None = field(STRING, nullable=0)
    host_filter: str | None = field(STRING, nullable=0)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResponseAcl(Struct):
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResponseResource(Struct):
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3)
    acls: list[DescribeAclsResponseAcl] = field(Array(DescribeAclsResponseAcl))


class DescribeAclsResponse(Message, key=29, kind=RESPONSE, versions=(0, 3), flexible=2):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resources: list[DescribeAclsResponseResource] = field(Array(DescribeAclsResponseResource))
