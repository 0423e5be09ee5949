"""DeleteAcls (key 31), versions 0-3: deletes the ACLs that match filters, and answers the deleted ACLs (KIP-140). An
ACL that matches several filters is in the result of the first of these filters only. Each line is what a version adds:

    0      literal patterns only
    1      prefixed patterns (KIP-290)
    2      compact encoding
    3      user resources

A filter whose resource type, pattern type, operation or permission is UNKNOWN (0) closes the connection, as in Kafka.
A broker without an authorizer answers SECURITY_DISABLED for each filter."""

from __future__ import annotations

from jesenska.base.errors import ErrorCode, shortened
from jesenska.broker.controlling.controller_client import as_kafka_error
from jesenska.broker.requests.acl_requests import NO_AUTHORIZER, filter_of, require_known_types, shown
from jesenska.broker.requests.change_log import log_change
from jesenska.broker.requests.connection import Context, Outcome
from jesenska.broker.requests.families import SecurityFamily
from jesenska.broker.requests.gate import handles
from jesenska.broker.settings.acls_runtime import AclsRuntime
from jesenska.security.acls import AclBinding, AclFilter
from jesenska.wire.messages.k31_delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    DeleteAclsResponseMatchingAcl,
)


@handles(DeleteAclsRequest, SecurityFamily)
def handle(uses: SecurityFamily, request: DeleteAclsRequest, context: Context) -> Outcome:
    require_known_types(request)
    if uses.acls is None:
        refused = DeleteAclsResponseFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    return _delete(uses.acls, [filter_of(item) for item in request.filters], context)


async def _delete(acls: AclsRuntime, filters: list[AclFilter], context: Context) -> DeleteAclsResponse:
    usable = [wanted for wanted in filters if not _has_unknown(wanted)]
    try:
        deleted = iter(await acls.delete(usable) if usable else ())
    except Exception as error:
        refused = as_kafka_error(error)
        failed = DeleteAclsResponseFilterResult(error_code=refused.code, error_message=shortened(refused.message))
        return DeleteAclsResponse(filter_results=[failed] * len(filters))
    response = DeleteAclsResponse()
    for wanted in filters:
        if _has_unknown(wanted):
            response.filter_results.append(
                DeleteAclsResponseFilterResult(
                    error_code=ErrorCode.INVALID_REQUEST, error_message="The filter has a type that is not known."
                )
            )
            continue
        chosen = next(deleted)
        for binding, failure in chosen:
            if failure is None:
                log_change(context, f"the access rule {shown(binding)} was removed")
        response.filter_results.append(
            DeleteAclsResponseFilterResult(
                error_message=None, matching_acls=[_matching(binding, failure) for binding, failure in chosen]
            )
        )
    return response


def _has_unknown(wanted: AclFilter) -> bool:
    """Returns True if a type of the filter is a number that is not known."""
    return any(
        int(item) == 0 for item in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission)
    )


def _matching(binding: AclBinding, error: Exception | None) -> DeleteAclsResponseMatchingAcl:
    (kind, name, pattern_type), (principal, host, operation, permission) = binding
    refused = None if error is None else as_kafka_error(error)
    return DeleteAclsResponseMatchingAcl(
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else shortened(refused.message) or None,
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )
