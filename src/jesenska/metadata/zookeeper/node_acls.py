"""The ACLs of Kafka's nodes, as Apache Kafka 3.9 gives them with `zookeeper.set.acl=true`.

    /consumers                                                  open: old consumers write there with any identity
    /config/users, /config/brokers, /delegation_token/tokens,
    and the nodes below them                                    the creator may do everything, others nothing
    all other nodes                                             the creator may do everything, others may read

The creator is the login or the certificate of the writer's connection. Paths are relative to the chroot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jesenska.metadata.store import ForwardingStore
from jesenska.metadata.tree_operations import (
    ACL_ALL,
    OPEN_ACL,
    READ,
    Acl,
    Create,
    Operation,
    Result,
)

CREATOR_ONLY: Final = (Acl(ACL_ALL, "auth", ""),)
CREATOR_AND_READERS: Final = (*CREATOR_ONLY, Acl(READ, "world", "anyone"))
_CONSUMERS: Final = "/consumers"
#: As in Kafka, a path is sensitive if it begins with one of these texts.
_SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")
#: The top nodes that the tool zookeeper-security-migration protects, with all nodes below them. The second but last is
#: below another one, so its nodes are changed twice, as by Kafka's tool.
SECURE_ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl-extended",
    "/migration",
    "/feature",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended/prefixed",
    "/kafka-acl-extended-changes",
)


def default_acl(path: str, *, is_secure: bool = True) -> tuple[Acl, ...]:
    """Returns the ACL of a node."""
    if not is_secure or path == _CONSUMERS:
        return OPEN_ACL
    return CREATOR_ONLY if path.startswith(_SENSITIVE) else CREATOR_AND_READERS


class ProtectingStore(ForwardingStore):
    """A `Store` that creates nodes with the ACLs of this module, unless the caller names another ACL."""

    __slots__ = ()

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> Result:
        acl = default_acl(path) if acl is OPEN_ACL else acl
        return await self._store.create(path, data, ephemeral=ephemeral, sequential=sequential, acl=acl)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        return await self._store.multi([_protected(operation) for operation in operations])


def _protected(operation: Operation) -> Operation:
    if isinstance(operation, Create) and operation.acl is OPEN_ACL:
        return operation._replace(acl=default_acl(operation.path))
    return operation
