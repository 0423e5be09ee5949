"""Functions that the handlers of DescribeAcls, CreateAcls and DeleteAcls share."""

from __future__ import annotations

from jesenska.base.errors import InvalidRequestError
from jesenska.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.wire.messages.k29_describe_acls import DescribeAclsRequest
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation
from jesenska.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter

#: On a broker without an authorizer, the error message for each ACL or filter of a request that changes ACLs.
NO_AUTHORIZER = "No Authorizer is configured."
_UNKNOWN = 0


def require_known(*codes: int) -> None:
    """Raises InvalidRequestError if a resource type, pattern type, operation or permission is UNKNOWN."""
    if _UNKNOWN in codes:
        raise InvalidRequestError("a rule or filter has an element of the type UNKNOWN")


def require_known_types(request: DescribeAclsRequest | CreateAclsRequest | DeleteAclsRequest) -> None:
    """Raises InvalidRequestError if an ACL or filter of a request has a resource type, pattern type, operation or
    permission UNKNOWN. A number that stands for no known type is not refused here."""
    if isinstance(request, CreateAclsRequest):
        for item in request.creations:
            require_known(item.resource_type, item.resource_pattern_type, item.operation, item.permission_type)
        return
    for asked in request.filters if isinstance(request, DeleteAclsRequest) else (request,):
        require_known(asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type)


def filter_of(asked: DescribeAclsRequest | DeleteAclsRequestFilter) -> AclFilter:
    """Returns the filter of a request. A number that stands for no known type becomes UNKNOWN, so the filter matches
    no ACL."""
    kind, pattern_type = (
        ResourceType.of_code(asked.resource_type_filter),
        PatternType.of_code(asked.pattern_type_filter),
    )
    operation, permission = AclOperation.of_code(asked.operation), Permission.of_code(asked.permission_type)
    return AclFilter(
        kind,
        asked.resource_name_filter,
        pattern_type,
        asked.principal_filter,
        asked.host_filter,
        operation,
        permission,
    )


def binding_of(asked: CreateAclsRequestCreation) -> AclBinding:
    """Returns the ACL of a request. Raises InvalidRequestError, with Kafka's message, if the ACL is not valid."""
    kind, pattern_type = ResourceType.of_code(asked.resource_type), PatternType.of_code(asked.resource_pattern_type)
    operation, permission = AclOperation.of_code(asked.operation), Permission.of_code(asked.permission_type)
    if kind is ResourceType.CLUSTER and asked.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not asked.resource_name:
        raise InvalidRequestError("Invalid empty resource name")
    if kind in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise InvalidRequestError(f"Invalid resourceType {kind.name}")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequestError(f"Invalid patternType {pattern_type.name}")
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise InvalidRequestError(f"Invalid operation {operation.name}")
    if permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequestError(f"Invalid permissionType {permission.name}")
    if ":" not in asked.principal:
        raise InvalidRequestError(
            f"Could not parse principal from `{asked.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return AclBinding(
        ResourcePattern(kind, asked.resource_name, pattern_type),
        AclEntry(asked.principal, asked.host, operation, permission),
    )


def shown(binding: AclBinding) -> str:
    """Returns an ACL as text for the log."""
    (kind, name, pattern_type), (principal, host, operation, permission) = binding
    return f"{permission.name} {principal} at {host} {operation.name} on {kind.name} {pattern_type.name} {name!a}"
