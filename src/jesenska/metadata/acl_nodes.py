"""Kafka's ACLs in the metadata tree (ZooKeeper's nodes): the paths and content of their nodes, and of the nodes that
announce a change. Paths and content are byte for byte as Kafka 3.9.1 writes them.

    /kafka-acl/Topic/clicks                   {"acls":[{"principal":"User:anna","permissionType":"Allow","host":"*",
                                              "operation":"Read"}],"version":1}
    /kafka-acl-extended/prefixed/Topic/cl     the same for a prefixed pattern
    /kafka-acl-changes/acl_changes_N          TOPIC:clicks        (Topic:clicks of older releases is read as well)
    /kafka-acl-extended-changes/acl_changes_N {"version":1,"resourceType":"TOPIC","name":"cl","patternType":"PREFIXED"}

A resource pattern without ACLs has no node. Names are used in paths unchanged, so there is no node for a name with a
slash."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jesenska.metadata import paths
from jesenska.metadata.nodes import NodeFormatError, dump_json, load_json
from jesenska.metadata.tree import check_path
from jesenska.metadata.tree_operations import BadArgumentsError
from jesenska.security.acls import AclEntry, AclOperation, PatternType, Permission, ResourcePattern, ResourceType

_VERSION = 1


def acl_path(pattern: ResourcePattern) -> str:
    """Returns the path of the node that contains the ACLs of a resource pattern."""
    root = paths.PREFIXED_ACLS if pattern.pattern_type is PatternType.PREFIXED else paths.ACLS
    return f"{root}/{pattern.resource_type.label}/{pattern.name}"


def can_be_named(pattern: ResourcePattern) -> bool:
    """Returns False if the pattern's name cannot be part of a node's path, for example because it has a slash."""
    try:
        check_path(acl_path(pattern))
    except BadArgumentsError:
        return False
    return "/" not in pattern.name


def encode_acls(entries: Collection[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.label,
            "host": entry.host,
            "operation": entry.operation.label,
        }
        for entry in sorted(entries)
    ]
    return dump_json({"acls": acls, "version": _VERSION})


def decode_acls(data: bytes) -> frozenset[AclEntry]:
    """Returns the ACLs in the content of a pattern's node. An empty node has no ACLs."""
    if not data:
        return frozenset()
    value = load_json(data)
    if value.get("version") != _VERSION:
        raise NodeFormatError(f"access rules of version {value.get('version')} are not known")
    acls = value.get("acls")
    if not isinstance(acls, list):
        raise NodeFormatError("acls is missing or no list")
    return frozenset(_entry(item) for item in acls)


def _entry(item: Any) -> AclEntry:
    if not isinstance(item, dict):
        raise NodeFormatError("acls holds something else than objects")
    principal, host = item.get("principal"), item.get("host")
    operation = AclOperation.of_label(str(item.get("operation")))
    permission = Permission.of_label(str(item.get("permissionType")))
    if not isinstance(principal, str) or not isinstance(host, str):
        raise NodeFormatError("a rule without a principal or a host")
    if operation in (None, AclOperation.UNKNOWN, AclOperation.ANY):
        raise NodeFormatError(f"a rule for the unknown operation {item.get('operation')!a}")
    if permission not in (Permission.ALLOW, Permission.DENY):
        raise NodeFormatError(f"a rule of the unknown kind {item.get('permissionType')!a}")
    assert operation is not None
    return AclEntry(principal, host, operation, permission)


def change_prefix(pattern: ResourcePattern) -> str:
    """Returns the path, without the number at its end, of the sequential node that announces a change of a pattern's
    ACLs."""
    is_prefixed = pattern.pattern_type is PatternType.PREFIXED
    return f"{paths.PREFIXED_ACL_CHANGES if is_prefixed else paths.ACL_CHANGES}/acl_changes_"


def encode_acl_change(pattern: ResourcePattern) -> bytes:
    """Returns the content of the node that announces a change of a pattern's ACLs."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return dump_json(
        {
            "version": _VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_acl_change(data: bytes, *, is_prefixed: bool) -> ResourcePattern:
    """Returns the pattern whose ACLs have changed, from the node that announces the change."""
    if not is_prefixed:
        try:
            kind, colon, name = data.decode().partition(":")
        except UnicodeDecodeError as error:
            raise NodeFormatError("the node does not hold text") from error
        if not colon:
            raise NodeFormatError("the node does not name a resource")
        return ResourcePattern(_type_of(kind), name)
    value = load_json(data)
    found, pattern_type = value.get("name"), PatternType.of_label(str(value.get("patternType")))
    if not isinstance(found, str) or pattern_type is not PatternType.PREFIXED:
        raise NodeFormatError("the node does not name a prefixed pattern")
    return ResourcePattern(_type_of(str(value.get("resourceType"))), found, pattern_type)


def _type_of(text: str) -> ResourceType:
    kind = ResourceType.of_label(text)
    if kind is None or kind.label not in paths.ACL_TYPES:
        raise NodeFormatError(f"the resource type {text!a} is not known")
    return kind
