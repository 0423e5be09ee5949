"""Reads a metadata tree from a running ZooKeeper, and writes a tree into a running ZooKeeper. Reading and writing also
work with jesenska's own server of the tree.

To read a tree, many nodes are requested at a time, with a watch on each node. Nodes that have changed are read again,
until no node changes. So the copy is the tree at one moment, even if brokers are running.

A tree is written in pieces, since ZooKeeper accepts at most a megabyte in one request. Parents are written before
children. /cluster/id is written last and removed first. So a broker that starts on a half-written tree finds no
cluster id, and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from jesenska.base.errors import JesenskaError
from jesenska.interchange.nodes import FoundTree, Node, is_kafkas
from jesenska.metadata import paths
from jesenska.metadata.store import Store, multi_in_pieces
from jesenska.metadata.tree_operations import Create, Delete, NoAuthError, NoNodeError, Operation, SetData
from jesenska.metadata.watches import WatchEvent

_AT_ONCE = 200
#: The largest number of nodes of a tree. A larger tree belongs to another program, or is a mistake.
NODES_MAX = 10_000_000
#: The largest number of times that changed nodes are read again.
_ROUNDS_MAX = 1000
_PIECE_BYTES = 400 * 1024
#: The largest number of operations in one write request.
_PIECE_OPERATIONS = 500

Progress = Callable[[str], None]


async def read_store(store: Store, progress: Progress = lambda text: None) -> FoundTree:
    """Returns all nodes of Kafka that are not ephemeral, as they are at one moment. Raises JesenskaError if access to
    a node is denied, or if the tree changes faster than it can be read."""
    reading = _Reading(store, progress)
    for _ in range(_ROUNDS_MAX):
        if reading.changed:
            await reading.go_on()
            continue
        await store.sync()
        if not reading.changed:
            return reading.found()
    raise JesenskaError(
        "The tree changes faster than it can be read: stop the brokers, or try again when fewer changes are made."
    )


class _Reading:
    """The nodes that have been read, and the paths that must be read again. In this class the path of the root is the
    empty string."""

    def __init__(self, store: Store, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, set[str]] = {}
        self._up: set[int] = set()
        self._last_zxid = 0
        #: Paths that must be read. A watch on a node adds its path when the node changes.
        self.changed: set[str] = {""}

    def _heard(self, event: WatchEvent) -> None:
        self.changed.add("" if event.path == "/" else event.path)

    async def go_on(self) -> None:
        """Reads the changed paths once, and adds the paths of new children to the paths that must be read."""
        wave, self.changed = sorted(self.changed), set()
        for begin in range(0, len(wave), _AT_ONCE):
            await asyncio.gather(*(self._look(path) for path in wave[begin : begin + _AT_ONCE]))
            self._progress(f"{len(self._nodes)} nodes read")
        if len(self._nodes) + len(self.changed) > NODES_MAX:
            raise JesenskaError(
                f"The tree has more than {NODES_MAX} nodes: give the path at the end of Kafka's zookeeper.connect "
                "after the servers, as in HOST:PORT/PATH."
            )

    async def _look(self, path: str) -> None:
        try:
            data, stat = await self._store.get(path or "/", self._heard)
            self._last_zxid = max(self._last_zxid, stat.czxid, stat.mzxid, stat.pzxid)
            if stat.ephemeral_owner > 0:
                above, _, name = path.rpartition("/")
                if above == paths.BROKER_IDS and name.isascii() and name.isdigit():
                    self._up.add(int(name))
                return
            names = (await self._store.children(path or "/", self._heard))[0]
        except NoNodeError:
            self._forget(path)
            return
        except NoAuthError as error:
            raise JesenskaError(
                f"The node {path} may be read only by some users: stop ZooKeeper, and give its dataDir with "
                "--zookeeper-data."
            ) from error
        if path:
            # The store returns empty bytes for null. Kafka distinguishes null from empty bytes, and writes null for a
            # node without data.
            self._nodes[path] = Node(data or None, stat.version)
        below = {at for name in names if is_kafkas(at := f"{path}/{name}")}
        known = self._children.get(path, set())
        self._children[path] = below
        self.changed |= below - known
        for gone in known - below:
            self._forget(gone)

    def _forget(self, path: str) -> None:
        self._nodes.pop(path, None)
        above, _, name = path.rpartition("/")
        if above == paths.BROKER_IDS and name.isdigit():
            self._up.discard(int(name))
        self._children.get(above, set()).discard(path)
        for below in self._children.pop(path, set()):
            self._forget(below)

    def found(self) -> FoundTree:
        return FoundTree(
            {path: self._nodes[path] for path in sorted(self._nodes)}, self._last_zxid, frozenset(self._up)
        )


async def write_store(
    store: Store, there: Mapping[str, Node], wanted: Mapping[str, Node], progress: Progress = lambda text: None
) -> None:
    """Writes the wanted nodes into the store, and removes the nodes of `there` that are not wanted. The function can
    be called again after a failure."""
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
    """Returns the operations that turn the tree `there` into the tree `wanted`, except for /cluster/id. Deletions come
    first (children before parents), then new and changed nodes (parents before children)."""
    operations: list[Operation] = [
        Delete(path) for path in sorted(there, reverse=True) if path not in wanted and path != paths.CLUSTER_ID
    ]
    for path in sorted(wanted):
        if path == paths.CLUSTER_ID:
            continue
        if path not in there:
            operations.append(Create(path, wanted[path].data))
        elif (there[path].data or None) != (wanted[path].data or None):
            operations.append(SetData(path, wanted[path].data))
    return operations


async def make_path(store: Store, chroot: str) -> None:
    """Creates the nodes of a chroot that do not exist yet."""
    steps = chroot.strip("/").split("/")
    for depth in range(1, len(steps) + 1):
        path = "/" + "/".join(steps[:depth])
        if await store.exists(path) is None:
            await store.create(path, None)
