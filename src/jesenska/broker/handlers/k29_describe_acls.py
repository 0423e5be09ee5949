"""DescribeAcls (key 29), versions 0-3: answers the ACLs that match a filter, by resource (KIP-140). Each line is what
a version adds:

    0      literal patterns only
    1      prefixed patterns (KIP-290)
    2      compact encoding
    3      user resources

A filter whose resource type, pattern type, operation or permission is UNKNOWN (0) closes the connection, as in Kafka.
A broker without an authorizer answers SECURITY_DISABLED."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.acl_requests import filter_of, require_known_types
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.security.acls import ResourcePattern
from jesenska.wire.messages.k29_describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseAcl,
    DescribeAclsResponseResource,
)


@handles(DescribeAclsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DescribeAclsRequest, context: Context) -> Outcome:
    require_known_types(request)
    if uses.acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
        )
    resources: dict[ResourcePattern, DescribeAclsResponseResource] = {}
    for pattern, entry in uses.acls.acls.bindings(filter_of(request)):
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResponseResource(
                resource_type=pattern.resource_type, resource_name=pattern.name, pattern_type=pattern.pattern_type
            )
        resource.acls.append(
            DescribeAclsResponseAcl(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(error_message="", resources=list(resources.values()))
