"""Access rules in the tree, against the bytes that a broker of Kafka 3.9.1 with AclAuthorizer wrote."""

from __future__ import annotations

import asyncio

import pytest

from jesenska.base.clock import ManualClock
from jesenska.metadata import paths
from jesenska.metadata.acl_nodes import (
    acl_path,
    can_be_named,
    change_prefix,
    decode_acl_change,
    decode_acls,
    encode_acl_change,
    encode_acls,
)
from jesenska.metadata.embedded import EmbeddedTree
from jesenska.metadata.nodes import NodeFormatError
from jesenska.metadata.registration import ensure_paths
from jesenska.security.acls import AclEntry, AclOperation, PatternType, Permission, ResourcePattern, ResourceType

TOKENS = AclEntry("User:anna", "*", AclOperation.CREATE_TOKENS, Permission.ALLOW)
LITERAL = ResourcePattern(ResourceType.USER, "User:bob")
PREFIXED = ResourcePattern(ResourceType.TOPIC, "pre", PatternType.PREFIXED)

KAFKAS_ENTRY = (
    b'{"acls":[{"principal":"User:anna","permissionType":"Allow","host":"*","operation":"CreateTokens"}],"version":1}'
)
KAFKAS_CHANGE = b'{"version":1,"resourceType":"TOPIC","name":"pre","patternType":"PREFIXED"}'


def test_the_rules_of_a_pattern_are_written_as_kafka_writes_them() -> None:
    assert encode_acls([TOKENS]) == KAFKAS_ENTRY
    assert decode_acls(KAFKAS_ENTRY) == {TOKENS}
    assert decode_acls(b"") == frozenset()
    assert (acl_path(LITERAL), acl_path(PREFIXED)) == (
        "/kafka-acl/User/User:bob",
        "/kafka-acl-extended/prefixed/Topic/pre",
    )


def test_changes_are_announced_as_kafka_announces_them() -> None:
    assert encode_acl_change(LITERAL) == b"USER:User:bob"
    assert encode_acl_change(PREFIXED) == KAFKAS_CHANGE
    assert decode_acl_change(b"USER:User:bob", is_prefixed=False) == LITERAL
    assert decode_acl_change(b"User:User:bob", is_prefixed=False) == LITERAL
    assert decode_acl_change(KAFKAS_CHANGE, is_prefixed=True) == PREFIXED
    assert change_prefix(LITERAL) == "/kafka-acl-changes/acl_changes_"
    assert change_prefix(PREFIXED) == "/kafka-acl-extended-changes/acl_changes_"


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[1]}',
        KAFKAS_ENTRY.replace(b"CreateTokens", b"Fly"),
        KAFKAS_ENTRY.replace(b"CreateTokens", b"Any"),
        KAFKAS_ENTRY.replace(b"Allow", b"Perhaps"),
        KAFKAS_ENTRY.replace(b'"*"', b"1"),
    ],
)
def test_rules_of_another_format_are_refused(data: bytes) -> None:
    with pytest.raises(NodeFormatError):
        decode_acls(data)


@pytest.mark.parametrize("data", [b"clicks", b"\xff:a", b"Cow:a", b"ANY:a"])
def test_changes_of_another_format_are_refused(data: bytes) -> None:
    for is_prefixed in (False, True):
        with pytest.raises(NodeFormatError):
            decode_acl_change(data, is_prefixed=is_prefixed)


@pytest.mark.parametrize("name", ["a/b", "", ".", "..", "a\0b"])
def test_a_name_that_no_node_can_have_is_known(name: str) -> None:
    assert not can_be_named(ResourcePattern(ResourceType.GROUP, name))
    assert can_be_named(ResourcePattern(ResourceType.GROUP, "*"))


def test_a_broker_with_an_authorizer_makes_the_nodes_that_kafka_makes() -> None:
    kinds = ("Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User")
    kafkas = {
        *("/kafka-acl", "/kafka-acl-changes", "/kafka-acl-extended", "/kafka-acl-extended-changes"),
        "/kafka-acl-extended/prefixed",
        *(f"{root}/{kind}" for root in ("/kafka-acl", "/kafka-acl-extended/prefixed") for kind in kinds),
    }

    async def body() -> None:
        store = await EmbeddedTree.simulated(ManualClock()).session()
        await ensure_paths(store)
        assert await store.exists(paths.ACLS) is None
        await ensure_paths(store, with_acls=True)
        assert set(paths.ACL_PATHS) == kafkas
        assert all([await store.exists(path) for path in kafkas])

    asyncio.run(body())
