"""Administers ACLs (KIP-140): lists, adds and removes them. The requests may go to any broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from jesenska.base.errors import KafkaError
from jesenska.client.administration.administration import Administration, error_of, require
from jesenska.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from jesenska.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from jesenska.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation, CreateAclsResponse
from jesenska.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter, DeleteAclsResponse

Asked = TypeVar("Asked", DescribeAclsRequest, DeleteAclsRequestFilter)


class AclAdministration(Administration):
    """Methods for ACLs, of the class `Admin`."""

    async def describe_acls(self, wanted: AclFilter) -> list[AclBinding]:
        """Returns the ACLs that match a filter, grouped by resource. Raises KafkaError if the broker refuses the
        request."""
        answer = await self.cluster.ask_any(_asked(DescribeAclsRequest, wanted), DescribeAclsResponse)
        require(answer.error_code, answer.error_message)
        return [
            _binding(
                (resource.resource_type, resource.resource_name, resource.pattern_type),
                (acl.principal, acl.host, acl.operation, acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        ]

    async def create_acls(self, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Adds ACLs. Returns None for each ACL that was added, and the error for each other ACL."""
        creations = [
            CreateAclsRequestCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ]
        answer = await self.cluster.ask_any(CreateAclsRequest(creations=creations), CreateAclsResponse)
        return [error_of(item.error_code, item.error_message) for item in answer.results]

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Removes the ACLs that match the filters, and returns them. Raises KafkaError for the first ACL that could
        not be removed."""
        wanted = [_asked(DeleteAclsRequestFilter, item) for item in filters]
        answer = await self.cluster.ask_any(DeleteAclsRequest(filters=wanted), DeleteAclsResponse)
        removed = []
        for result in answer.filter_results:
            require(result.error_code, result.error_message)
            for acl in result.matching_acls:
                require(acl.error_code, acl.error_message)
                removed.append(
                    _binding(
                        (acl.resource_type, acl.resource_name, acl.pattern_type),
                        (acl.principal, acl.host, acl.operation, acl.permission_type),
                    )
                )
        return removed


def _asked(made: type[Asked], wanted: AclFilter) -> Asked:
    """Returns the filter as an object of the request class `made`."""
    return made(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _binding(resource: tuple[int, str, int], rule: tuple[str, str, int, int]) -> AclBinding:
    kind, name, pattern_type = resource
    principal, host, operation, permission = rule
    return AclBinding(
        ResourcePattern(ResourceType.of_code(kind), name, PatternType.of_code(pattern_type)),
        AclEntry(principal, host, AclOperation.of_code(operation), Permission.of_code(permission)),
    )
