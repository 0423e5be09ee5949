"""The contents of a cluster's metadata tree, independent of where the tree is stored: each node's data and version, by
path.

Ephemeral nodes are left out, because they end with the session that made them. `FoundTree` lists the running brokers
instead. Times and transaction numbers of nodes are also left out, and so are ACLs: these name users of one ZooKeeper,
which another ZooKeeper does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Node(NamedTuple):
    """A node of the metadata tree. `data` is None if the node's data in ZooKeeper is null."""

    data: bytes | None
    version: int = 0


@dataclass(frozen=True, slots=True)
class FoundTree:
    """A cluster's metadata tree as it was read, and the brokers that were running."""

    #: The nodes that Kafka makes, by their path relative to the chroot.
    nodes: Mapping[str, Node]
    #: The largest transaction number (zxid) in the tree.
    last_zxid: int = 0
    #: The ids of the brokers with a live session.
    brokers_up: frozenset[int] = field(default_factory=frozenset)


#: The names of Kafka's nodes directly below the root. A ZooKeeper that Kafka uses without a chroot may also contain
#: other programs' nodes.
KAFKAS = frozenset(
    (
        "admin",
        "brokers",
        "cluster",
        "config",
        "consumers",
        "controller",
        "controller_epoch",
        "delegation_token",
        "feature",
        "isr_change_notification",
        "kafka-acl",
        "kafka-acl-changes",
        "kafka-acl-extended",
        "kafka-acl-extended-changes",
        "latest_producer_id_block",
        "log_dir_event_notification",
        "migration",
    )
)


def is_kafkas(path: str) -> bool:
    """Returns True if the first part of the path names a node that Kafka's brokers and tools make."""
    return path.split("/", 2)[1] in KAFKAS


def below(nodes: Mapping[str, Node], chroot: str) -> dict[str, Node]:
    """Returns Kafka's nodes below the chroot, with paths relative to the chroot. Parents come before children. An
    empty chroot means the root."""
    found = {}
    for path in sorted(nodes):
        if path.startswith(chroot + "/") and is_kafkas(seen := path.removeprefix(chroot)):
            found[seen] = nodes[path]
    return found


def children(nodes: Mapping[str, Node], path: str) -> list[str]:
    """Returns the names of the children of the node at `path`."""
    begin = path + "/"
    return [name for at in nodes if at.startswith(begin) and "/" not in (name := at[len(begin) :])]
