"""The ACLs of Kafka's nodes with zookeeper.set.acl=true."""

from __future__ import annotations

import asyncio

import pytest

from jesenska.metadata.store import ChrootStore
from jesenska.metadata.tree_operations import ACL_ALL, OPEN_ACL, READ, Acl, Create, SetData
from jesenska.metadata.zookeeper.client.access import TreeAccess, TreeLogin
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.node_acls import (
    CREATOR_AND_READERS,
    CREATOR_ONLY,
    SECURE_ROOTS,
    ProtectingStore,
    default_acl,
)
from jesenska.metadata.zookeeper.server.guard import Guard
from tests.served_tree import served

_OWN = Acl(ACL_ALL, "sasl", "kafka")


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/", CREATOR_AND_READERS),
        ("/brokers/topics/t", CREATOR_AND_READERS),
        ("/config/topics/t", CREATOR_AND_READERS),
        ("/config/users", CREATOR_ONLY),
        ("/config/users/anna", CREATOR_ONLY),
        ("/config/brokers/1", CREATOR_ONLY),
        ("/delegation_token", CREATOR_AND_READERS),
        ("/delegation_token/tokens/x", CREATOR_ONLY),
        ("/consumers", OPEN_ACL),
        ("/consumers/group", CREATOR_AND_READERS),
    ],
)
def test_a_node_is_protected_as_by_kafka(path: str, acl: tuple[Acl, ...]) -> None:
    assert default_acl(path) == acl
    assert default_acl(path, is_secure=False) == OPEN_ACL


def test_every_top_node_of_kafka_is_migrated_once() -> None:
    assert len(set(SECURE_ROOTS)) == len(SECURE_ROOTS)
    assert "/consumers" not in SECURE_ROOTS


def test_a_store_protects_what_it_creates_below_its_chroot() -> None:
    async def main() -> None:
        async with served(guard=Guard({"kafka": "secret"})) as server:
            inner = await ZooKeeperStore.connect(
                ConnectString((("127.0.0.1", server.port),)), access=TreeAccess(login=TreeLogin("kafka", "secret"))
            )
            await inner.create("/kafka")
            store = ProtectingStore(ChrootStore(inner, "/kafka"))
            await store.create("/config")
            await store.multi(
                [Create("/config/users"), SetData("/config", b"x"), Create("/config/n-", sequential=True)]
            )
            await store.create("/consumers")
            named = (Acl(READ, "world", "anyone"),)
            await store.create("/named", acl=named)
            tree = server.tree.tree
            assert set(tree.acl("/kafka/config")[0]) == {_OWN, Acl(READ, "world", "anyone")}
            assert set(tree.acl("/kafka/config/n-0000000001")[0]) == {_OWN, Acl(READ, "world", "anyone")}
            assert tree.acl("/kafka/config/users")[0] == (_OWN,)
            assert tree.acl("/kafka/consumers")[0] == OPEN_ACL
            assert tree.acl("/kafka/named")[0] == named
            await store.close()

    asyncio.run(main())
