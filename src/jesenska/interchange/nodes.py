"""The contents of a cluster's tree, apart from any store: each node's data and version, by its path.

Ephemeral nodes are not part of it, because they end with the process that made them; the brokers that are up are
listed instead. Left out: times and transaction numbers of nodes, and their ACLs: those name users of one ZooKeeper,
which another one does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Node(NamedTuple):
    """A node of the tree. `data` None is ZooKeeper's null."""

    data: bytes | None
    version: int = 0


@dataclass(frozen=True, slots=True)
class FoundTree:
    """The nodes of a cluster as they were found."""

    #: Kafka's nodes only, by path, seen from the chroot.
    nodes: Mapping[str, Node]
    #: The largest transaction number.
    last_zxid: int = 0
    #: Brokers whose sessions are alive.
    brokers_up: frozenset[int] = field(default_factory=frozenset)


#: Kafka's nodes below the root. A ZooKeeper that Kafka uses without a chroot may also hold other programs' nodes.
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
    """True if a node is one of those that Kafka's brokers and tools make."""
    return path.split("/", 2)[1] in KAFKAS


def below(nodes: Mapping[str, Node], chroot: str) -> dict[str, Node]:
    """Returns Kafka's nodes as they are seen from a chroot (empty: none), parents first."""
    found = {}
    for path in sorted(nodes):
        if path.startswith(chroot + "/") and is_kafkas(seen := path.removeprefix(chroot)):
            found[seen] = nodes[path]
    return found


def children(nodes: Mapping[str, Node], path: str) -> list[str]:
    """Returns the names of a node's children."""
    begin = path + "/"
    return [name for at in nodes if at.startswith(begin) and "/" not in (name := at[len(begin) :])]
