"""DeleteAcls (key 31), versions 0-3: SECURITY_DISABLED for each filter, as a broker without an authorizer answers.

A filter whose resource type, pattern type, operation or permission is UNKNOWN (0) closes the connection, as in Kafka.
Version 0 has no pattern types. Left out: access rules, until there is an authorizer.
"""

from __future__ import annotations

from jesenska.base.errors import ErrorCode
from jesenska.broker.requests.acl_requests import NO_AUTHORIZER, require_known
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsResponse, DeleteAclsResponseFilterResult


@handles(DeleteAclsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DeleteAclsRequest, context: Context) -> Outcome:
    for item in request.filters:
        require_known(item.resource_type_filter, item.pattern_type_filter, item.operation, item.permission_type)
    refused = DeleteAclsResponseFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
