"""The metadata tree of the cluster: a deterministic state machine with ZooKeeper's data model.

A node has data and children. It is persistent or ephemeral (deleted with its session). A sequential node gets a number
from its parent. Every node counts its changes, so that a writer can require the version that it has read. A `multi`
does several operations together.

    decide(request, now_ms) -> Decision     checks the request against this tree, applies it, and returns the
                                            transaction and the answers
    apply(transaction) -> changes           applies a transaction that another tree decided; cannot fail

The owner of a journal keeps two trees. One tree decides requests before they are committed. The other tree applies
committed transactions, and readers see only this tree. Both trees, and every tree rebuilt from the journal, reach the
same state, because time, session ids and zxids are arguments or follow from the state.

As in ZooKeeper, the number of a sequential child is the number of children ever created under the node, not the node's
cversion (creations plus deletions). `/`, `/zookeeper` and the nodes below it always exist and cannot be deleted. They
do not count as created, so the root's cversion begins at -1.

ACLs are checked if a request has identities (`Multi.identities`). Code that reads the tree checks permissions itself
(`require_permission`).

Not supported: quotas, containers and TTL nodes. Watches are in `watches`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from jesenska.base.limits import TREE_NODE_MAX_BYTES
from jesenska.metadata.acl import Identity, permits
from jesenska.metadata.tree_operations import (
    ADMIN,
    ANY_VERSION,
    CREATE,
    DELETE,
    OPEN_ACL,
    READ,
    WRITE,
    Acl,
    AclSet,
    BadArgumentsError,
    BadVersionError,
    Change,
    Create,
    DataSet,
    Delete,
    InvalidAclError,
    MultiError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeCreated,
    NodeDeleted,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionClosed,
    SessionExpiredError,
    SessionOpened,
    SetAcl,
    SetData,
    Stat,
    Transaction,
    TreeError,
)

#: Paths that need no further check: names of printable ASCII that do not begin with a dot.
_PLAIN_PATH = re.compile(r"(?:/[!-\-0-~][ -.0-~]*+)++")

_SPECIAL = ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota")


_NO_CHILDREN: set[str] = set()  # never changed


class TreeNode:
    """One node's state. `creates` counts the children ever created; cversion is computed from `creates` and the
    current number of children."""

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "creates",
        "ctime",
        "czxid",
        "data",
        "ephemeral_owner",
        "mtime",
        "mzxid",
        "pzxid",
        "version",
    )

    def __init__(
        self,
        data: bytes | None,
        acl: tuple[Acl, ...],
        czxid: int,
        mzxid: int,
        pzxid: int,
        ctime: int,
        mtime: int,
        version: int,
        creates: int,
        aversion: int,
        ephemeral_owner: int,
    ) -> None:
        self.data, self.acl = data, acl
        self.czxid, self.mzxid, self.pzxid = czxid, mzxid, pzxid
        self.ctime, self.mtime = ctime, mtime
        self.version, self.creates, self.aversion = version, creates, aversion
        self.ephemeral_owner = ephemeral_owner
        #: The names of the children. Nodes without children share one empty set, since most nodes have no children.
        self.children: set[str] = _NO_CHILDREN

    @property
    def stat(self) -> Stat:
        children = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            _int32(2 * self.creates - children),
            self.aversion,
            self.ephemeral_owner,
            len(self.data or b""),
            children,
            self.pzxid,
        )

    def add_child(self, name: str) -> None:
        if self.children:
            self.children.add(name)
        else:
            self.children = {name}

    def copy(self) -> TreeNode:
        other = TreeNode(
            self.data,
            self.acl,
            self.czxid,
            self.mzxid,
            self.pzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.creates,
            self.aversion,
            self.ephemeral_owner,
        )
        other.children = set(self.children) if self.children else _NO_CHILDREN
        return other

    def fields(self) -> tuple[object, ...]:
        """Returns all of the node's state as one comparable value."""
        return (self.data, self.acl, self.stat, self.creates, frozenset(self.children))


class OpenSession(NamedTuple):
    """A request to open a session. The caller chooses an id that is not in use."""

    session_id: int
    timeout_ms: int


class CloseSession(NamedTuple):
    """A request to end a session, from its owner or from the code that expires sessions."""

    session_id: int


class Multi(NamedTuple):
    """A request with operations of one session that are done together or not at all. If `identities` is None, no ACL
    is checked."""

    session_id: int
    operations: tuple[Operation, ...]
    identities: frozenset[Identity] | None = None


Request = OpenSession | CloseSession | Multi


class Decision(NamedTuple):
    """The result of a request: the transaction to write to the journal, and the results to answer after its commit.
    `transaction` is None if the request changes nothing."""

    transaction: Transaction | None
    results: tuple[Result, ...]


class Tree:
    """The metadata tree: its nodes, its sessions, and the number (zxid) of its last transaction."""

    __slots__ = ("_ephemerals", "_nodes", "deleted_acls", "last_zxid", "sessions")

    def __init__(self) -> None:
        self._nodes: dict[str, TreeNode] = {}
        self._ephemerals: dict[int, set[str]] = {}
        self.sessions: dict[int, int] = {}  # session id -> time-out in ms
        self.last_zxid = 0
        #: The ACLs of the nodes that the last applied transaction has deleted, except open ACLs.
        self.deleted_acls: dict[str, tuple[Acl, ...]] = {}
        for path in _SPECIAL:
            self._nodes[path] = TreeNode(b"", OPEN_ACL, 0, 0, 0, 0, 0, 0, 0, 0, 0)
            if path != "/":
                parent, name = split(path)
                self._nodes[parent].add_child(name)

    @staticmethod
    def restored(nodes: Iterable[tuple[str, TreeNode]], sessions: dict[int, int], last_zxid: int) -> Tree:
        """Returns the tree with exactly these nodes, which may be in any order. Raises ValueError if a node's parent
        or the root is missing."""
        tree = Tree()
        tree._nodes = dict(nodes)
        tree.sessions = dict(sessions)
        tree.last_zxid = last_zxid
        tree._ephemerals = {session_id: set() for session_id in sessions}
        for path, node in tree._nodes.items():
            if path != "/":
                parent, name = split(path)
                if parent not in tree._nodes:
                    raise ValueError(f"node {path} has no parent")
                tree._nodes[parent].add_child(name)
            if node.ephemeral_owner:
                tree._ephemerals.setdefault(node.ephemeral_owner, set()).add(path)
        if "/" not in tree._nodes:
            raise ValueError("the root node is missing")
        return tree

    def copy(self) -> Tree:
        """Returns an independent tree with the same state."""
        other = Tree()
        other._nodes = {path: node.copy() for path, node in self._nodes.items()}
        other._ephemerals = {session: set(paths) for session, paths in self._ephemerals.items()}
        other.sessions = dict(self.sessions)
        other.last_zxid = self.last_zxid
        return other

    def state(self) -> tuple[object, ...]:
        """Returns all of the tree's state as one comparable value."""
        return ({path: node.fields() for path, node in self._nodes.items()}, dict(self.sessions), self.last_zxid)

    # Reading

    def get(self, path: str) -> tuple[bytes | None, Stat]:
        """Returns the data (None: null) and stat of a node. Raises NoNodeError if it does not exist."""
        node = self._node(path)
        return node.data, node.stat

    def exists(self, path: str) -> Stat | None:
        """Returns the stat of a node, or None if it does not exist."""
        node = self.find(path)
        return node.stat if node is not None else None

    def find(self, path: str) -> TreeNode | None:
        """Returns a node, or None if it does not exist. Callers must not change it."""
        node = self._nodes.get(path)
        if node is None:
            check_path(path)
        return node

    def children(self, path: str) -> tuple[list[str], Stat]:
        """Returns the sorted names of a node's children, and its stat. Raises NoNodeError if the node does not
        exist."""
        node = self._node(path)
        return sorted(node.children), node.stat

    def acl(self, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """Returns the ACL of a node, and its stat. Raises NoNodeError if the node does not exist."""
        node = self._node(path)
        return node.acl, node.stat

    def require_permission(self, path: str, permissions: int, identities: Collection[Identity]) -> None:
        """Raises NoAuthError if the node's ACL grants none of these permissions to any of the identities, and
        NoNodeError if the node does not exist."""
        _require_permission(path, self._node(path), permissions, identities)

    def ephemerals(self, session_id: int) -> list[str]:
        """Returns the sorted paths of a session's ephemeral nodes."""
        return sorted(self._ephemerals.get(session_id, ()))

    def walk(self) -> Iterator[tuple[str, TreeNode]]:
        """Yields every path with its node. Callers must not change the nodes."""
        return iter(self._nodes.items())

    def __len__(self) -> int:
        return len(self._nodes)

    # Deciding

    def decide(self, request: Request, now_ms: int) -> Decision:
        """Decides a request and applies it to this tree. Returns the transaction and the results.

        Raises TreeError if a request of one operation was refused, and MultiError if one of several operations was
        refused. The tree is then unchanged."""
        zxid = self.last_zxid + 1
        session_id = request.session_id
        if isinstance(request, OpenSession):
            if session_id in self.sessions or session_id == 0:
                raise BadArgumentsError("/", f"session id {session_id:#x} is in use")
            transaction = Transaction(zxid, now_ms, (SessionOpened(session_id, request.timeout_ms),))
            self.apply(transaction)
            return Decision(transaction, ())
        if session_id not in self.sessions:
            raise SessionExpiredError("/")
        if isinstance(request, Multi):
            return self._decide_all(request, zxid, now_ms)
        gone = [NodeDeleted(path) for path in self.ephemerals(session_id)]
        transaction = Transaction(zxid, now_ms, (*gone, SessionClosed(session_id)))
        self.apply(transaction)
        return Decision(transaction, ())

    def _decide_all(self, request: Multi, zxid: int, now_ms: int) -> Decision:
        operations = request.operations
        if len(operations) == 1:
            return self._decide_alone(request, zxid, now_ms)
        changes: list[Change] = []
        results: list[Result] = []
        undo: list[Callable[[], None]] = []
        for index, operation in enumerate(operations):
            try:
                change = self._decide_one(request, operation)
            except TreeError as error:
                for back in reversed(undo):
                    back()
                raise MultiError(index, len(operations), error) from error
            if change is None:
                results.append(Result(operation.path, None))
                continue
            undo.append(self._undo_of(change))
            self._apply_change(change, zxid, now_ms)
            changes.append(change)
            node = self._nodes.get(change.path)
            results.append(Result(change.path, node.stat if node is not None else None))
        if not changes:
            return Decision(None, tuple(results))
        self.last_zxid = zxid
        return Decision(Transaction(zxid, now_ms, tuple(changes)), tuple(results))

    def _decide_alone(self, request: Multi, zxid: int, now_ms: int) -> Decision:
        """Decides a request of one operation, as `_decide_all` does, but without the functions that undo earlier
        operations."""
        (operation,) = request.operations
        change = self._decide_one(request, operation)
        if change is None:
            return Decision(None, (Result(operation.path, None),))
        self._apply_change(change, zxid, now_ms)
        self.last_zxid = zxid
        node = self._nodes.get(change.path)
        return Decision(
            Transaction(zxid, now_ms, (change,)), (Result(change.path, node.stat if node is not None else None),)
        )

    def _decide_one(self, request: Multi, operation: Operation) -> NodeCreated | NodeDeleted | DataSet | AclSet | None:
        # Not a `match` statement, for speed: that would look up the names of a class's fields each time.
        identities = request.identities
        path = operation.path
        if isinstance(operation, SetData):
            node = self._node(path)
            _require_permission(path, node, WRITE, identities)
            data = operation.data
            require_size(path, data)
            _require_version(path, node.version, operation.version)
            return DataSet(path, _kept(data), _int32(node.version + 1))
        if isinstance(operation, Create):
            return self._decide_create(request, operation)
        if isinstance(operation, Delete):
            if path in _SPECIAL:
                raise BadArgumentsError(path, "this node cannot be deleted")
            check_path(path)
            parent = self._nodes.get(split(path)[0])
            if parent is not None:
                _require_permission(path, parent, DELETE, identities)
            node = self._node(path)
            _require_version(path, node.version, operation.version)
            if node.children:
                raise NotEmptyError(path)
            return NodeDeleted(path)
        if isinstance(operation, SetAcl):
            node = self._node(path)
            _require_permission(path, node, ADMIN, identities)
            _require_acl(path, operation.acl)
            _require_version(path, node.aversion, operation.version)
            return AclSet(path, operation.acl, _int32(node.aversion + 1))
        node = self._node(path)
        _require_permission(path, node, READ, identities)
        _require_version(path, node.version, operation.version)
        return None

    def _decide_create(self, request: Multi, operation: Create) -> NodeCreated:
        path = operation.path
        check_path(path + "1" if operation.sequential else path)
        _require_acl(path, operation.acl)
        require_size(path, operation.data)
        if path == "/" and not operation.sequential:
            raise NodeExistsError(path)
        parent_path = path[: path.rindex("/")] or "/"
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(path)
        _require_permission(path, parent, CREATE, request.identities)
        if operation.sequential:
            path += f"{_int32(parent.creates):010d}"
        if path in self._nodes:
            raise NodeExistsError(path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemeralsError(path)
        return NodeCreated(path, _kept(operation.data), operation.acl, request.session_id if operation.ephemeral else 0)

    # Applying

    def apply(self, transaction: Transaction) -> tuple[Change, ...]:
        """Applies a transaction that another tree decided, and returns its changes in order. Raises AssertionError if
        the transaction's zxid is not the next zxid of this tree."""
        assert transaction.zxid == self.last_zxid + 1, (
            f"transaction {transaction.zxid} does not follow {self.last_zxid}"
        )
        if self.deleted_acls:
            self.deleted_acls = {}
        for change in transaction.changes:
            if isinstance(change, NodeDeleted) and (acl := self._nodes[change.path].acl) is not OPEN_ACL:
                self.deleted_acls[change.path] = acl
            self._apply_change(change, transaction.zxid, transaction.time_ms)
        self.last_zxid = transaction.zxid
        return transaction.changes

    def _apply_change(self, change: Change, zxid: int, time_ms: int) -> None:
        if isinstance(change, DataSet):
            node = self._nodes[change.path]
            node.data, node.version = change.data, change.version
            node.mzxid, node.mtime = zxid, time_ms
        elif isinstance(change, NodeCreated):
            path, owner = change.path, change.owner
            parent_path, name = split(path)
            parent = self._nodes[parent_path]
            parent.add_child(name)
            parent.creates += 1
            parent.pzxid = zxid
            self._nodes[path] = TreeNode(change.data, change.acl, zxid, zxid, zxid, time_ms, time_ms, 0, 0, 0, owner)
            if owner:
                self._ephemerals.setdefault(owner, set()).add(path)
        elif isinstance(change, NodeDeleted):
            path = change.path
            node = self._nodes.pop(path)
            parent_path, name = split(path)
            parent = self._nodes[parent_path]
            parent.children.discard(name)
            parent.pzxid = zxid
            if node.ephemeral_owner:
                self._ephemerals[node.ephemeral_owner].discard(path)
        elif isinstance(change, AclSet):
            node = self._nodes[change.path]
            node.acl, node.aversion = change.acl, change.version
        elif isinstance(change, SessionOpened):
            self.sessions[change.session_id] = change.timeout_ms
            self._ephemerals[change.session_id] = set()
        else:
            del self.sessions[change.session_id]
            self._ephemerals.pop(change.session_id, None)

    def _undo_of(self, change: NodeCreated | NodeDeleted | DataSet | AclSet) -> Callable[[], None]:
        """Returns a function that undoes a change. It must be called before the change is applied."""
        nodes, path = self._nodes, change.path
        if isinstance(change, DataSet | AclSet):
            node = nodes[path]
            before = (node.data, node.version, node.mzxid, node.mtime, node.acl, node.aversion)

            def restore_node() -> None:
                node.data, node.version, node.mzxid, node.mtime, node.acl, node.aversion = before

            return restore_node
        parent_path, name = split(path)
        parent = nodes[parent_path]
        counters = (parent.creates, parent.pzxid)
        deleted = nodes.get(path)
        owner = (
            change.owner if isinstance(change, NodeCreated) else deleted.ephemeral_owner if deleted is not None else 0
        )

        def restore_membership() -> None:
            parent.creates, parent.pzxid = counters
            if deleted is None:
                del nodes[path]
                parent.children.discard(name)
                self._ephemerals.get(owner, set()).discard(path)
            else:
                nodes[path] = deleted
                parent.add_child(name)
                if owner:
                    self._ephemerals[owner].add(path)

        return restore_membership

    def _node(self, path: str) -> TreeNode:
        node = self._nodes.get(path)
        if node is None:
            check_path(path)
            raise NoNodeError(path)
        return node


def split(path: str) -> tuple[str, str]:
    """Returns the path of a node's parent, and the node's own name."""
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def check_path(path: str) -> None:
    """Raises BadArgumentsError for a path that ZooKeeper does not accept."""
    if _PLAIN_PATH.fullmatch(path):
        return
    if not path.startswith("/"):
        raise BadArgumentsError(path, "a path begins with /")
    if path == "/":
        return
    for name in path[1:].split("/"):
        if name in ("", ".", ".."):
            raise BadArgumentsError(path, "a path has no empty name, no . and no ..")
    if not path.isascii() or not path.isprintable():
        for char in path:
            code = ord(char)
            if code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF:
                raise BadArgumentsError(path, f"a path does not hold the character {char!r}")


def _require_permission(path: str, node: TreeNode, permissions: int, identities: Collection[Identity] | None) -> None:
    if identities is not None and not permits(node.acl, permissions, identities):
        raise NoAuthError(path)


def _require_version(path: str, actual: int, wanted: int) -> None:
    if wanted not in (ANY_VERSION, actual):
        raise BadVersionError(path, f"it is at version {actual}, not {wanted}")


def _kept(data: bytes | None) -> bytes | None:
    return None if data is None else bytes(data)


def require_size(path: str, data: bytes | None) -> None:
    """Raises BadArgumentsError if the data is longer than a node may contain."""
    if data is not None and len(data) > TREE_NODE_MAX_BYTES:
        raise BadArgumentsError(path, f"{len(data)} bytes are more than the {TREE_NODE_MAX_BYTES} that a node may hold")


def _require_acl(path: str, acl: tuple[Acl, ...]) -> None:
    if not acl or not all(rule.scheme and 0 <= rule.permissions <= 31 for rule in acl):
        raise InvalidAclError(path)


def _int32(value: int) -> int:
    """Returns a counter wrapped to a signed integer of 32 bits, as in ZooKeeper: after the largest number it continues
    with the most negative."""
    return (value + 2**31) % 2**32 - 2**31
