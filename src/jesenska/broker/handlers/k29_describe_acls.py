"""DescribeAcls (key 29), versions 0-3: SECURITY_DISABLED, as a broker without an authorizer answers.

A filter whose resource type, pattern type, operation or permission is UNKNOWN (0) closes the connection, as in Kafka.
Version 0 has no pattern types. Left out: access rules, until there is an authorizer.
"""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.acl_requests import require_known
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(DescribeAclsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DescribeAclsRequest, context: Context) -> Outcome:
    require_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
