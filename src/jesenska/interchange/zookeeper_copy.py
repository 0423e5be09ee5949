"""A tree read from a running ZooKeeper, and written into one. Both work on any store.

Reading asks for many nodes at a time. Nodes that come and go meanwhile are taken as they are met: who wants one
moment's picture stops the brokers first.

Writing goes in pieces, since ZooKeeper takes a megabyte in one request, parents first. /cluster/id is written last and
removed first: a broker that starts on a half-written tree finds no cluster of its own, and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from jesenska.base.errors import JesenskaError
from jesenska.interchange.nodes import FoundTree, Node, is_kafkas
from jesenska.metadata import paths
from jesenska.metadata.store import Store, multi_in_pieces
from jesenska.metadata.tree_operations import Create, Delete, NoAuthError, NoNodeError, Operation, SetData

_AT_ONCE = 200
#: Nodes of a tree; more are another program's, or somebody's mistake.
NODES_MAX = 10_000_000
_PIECE_BYTES = 400 * 1024
#: Operations of one piece.
_PIECE_OPERATIONS = 500

Progress = Callable[[str], None]


async def read_store(store: Store, progress: Progress = lambda text: None) -> FoundTree:
    """Every node of Kafka's that is not ephemeral; JesenskaError where a node may not be read."""
    nodes: dict[str, Node] = {}
    up: set[int] = set()
    last_zxid = 0
    wave = [""]

    async def look(path: str) -> list[str]:
        nonlocal last_zxid
        try:
            data, stat = await store.get(path or "/")
            last_zxid = max(last_zxid, stat.czxid, stat.mzxid, stat.pzxid)
            if stat.ephemeral_owner > 0:
                above, _, name = path.rpartition("/")
                if above == paths.BROKER_IDS and name.isascii() and name.isdigit():
                    up.add(int(name))
                return []
            if path:
                # A store gives null as no bytes. Kafka tells them apart, and writes null where it writes nothing.
                nodes[path] = Node(data or None, stat.version)
            names = (await store.children(path or "/"))[0] if stat.num_children else []
        except NoNodeError:
            return []
        except NoAuthError as error:
            raise JesenskaError(f"The node {path} may not be read by everybody: stop ZooKeeper, and give its dataDir with --zookeeper-data.") from error
        return [below for name in names if is_kafkas(below := f"{path}/{name}")]

    while wave:
        following: list[str] = []
        for begin in range(0, len(wave), _AT_ONCE):
            for names in await asyncio.gather(*(look(path) for path in wave[begin : begin + _AT_ONCE])):
                following += names
            progress(f"{len(nodes)} nodes read")
        if len(nodes) + len(following) > NODES_MAX:
            raise JesenskaError(f"The tree has more than {NODES_MAX} nodes: give the path that Kafka's zookeeper.connect ends in behind the servers.")
        wave = following
    return FoundTree({path: nodes[path] for path in sorted(nodes)}, last_zxid, frozenset(up))


async def write_store(store: Store, there: Mapping[str, Node], wanted: Mapping[str, Node], progress: Progress = lambda text: None) -> None:
    """Makes the store hold the wanted nodes, and none of the others that are `there`. A repetition after a failure
    ends where this would have ended."""
    operations = changes(there, wanted)
    if paths.CLUSTER_ID in there and operations:
        await store.delete(paths.CLUSTER_ID)
    done = 0
    for begin in range(0, len(operations), _PIECE_OPERATIONS):
        piece = operations[begin : begin + _PIECE_OPERATIONS]
        await multi_in_pieces(store, piece, _PIECE_BYTES)
        done += len(piece)
        progress(f"{done} of {len(operations)} changes written")
    if paths.CLUSTER_ID in wanted and operations:
        await store.create(paths.CLUSTER_ID, wanted[paths.CLUSTER_ID].data)


def changes(there: Mapping[str, Node], wanted: Mapping[str, Node]) -> list[Operation]:
    """What makes the one tree of the other, the cluster's id left out: deletions, children first; then what is new and
    what is changed, parents first."""
    operations: list[Operation] = [Delete(path) for path in sorted(there, reverse=True) if path not in wanted and path != paths.CLUSTER_ID]
    for path in sorted(wanted):
        if path == paths.CLUSTER_ID:
            continue
        if path not in there:
            operations.append(Create(path, wanted[path].data))
        elif (there[path].data or None) != (wanted[path].data or None):
            operations.append(SetData(path, wanted[path].data))
    return operations


async def make_path(store: Store, chroot: str) -> None:
    """The nodes of a chroot, where they are missing."""
    steps = chroot.strip("/").split("/")
    for depth in range(1, len(steps) + 1):
        path = "/" + "/".join(steps[:depth])
        if await store.exists(path) is None:
            await store.create(path, None)
