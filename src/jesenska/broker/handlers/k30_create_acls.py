"""CreateAcls (key 30), versions 0-3: SECURITY_DISABLED for each rule, as a broker without an authorizer answers.

A rule whose resource type, pattern type, operation or permission is UNKNOWN (0) closes the connection, as in Kafka.
Version 0 has no pattern types. Left out: access rules, until there is an authorizer.
"""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.acl_requests import NO_AUTHORIZER, require_known
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsResponse, CreateAclsResponseResult


@handles(CreateAclsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: CreateAclsRequest, context: Context) -> Outcome:
    for item in request.creations:
        require_known(item.resource_type, item.resource_pattern_type, item.operation, item.permission_type)
    refused = CreateAclsResponseResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
