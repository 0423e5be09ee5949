"""A client's reads of the tree, and the watches that they set. A read is done at the moment when its answer is due,
and returns the tree as it is committed at that moment."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from jesenska.base.limits import ZOOKEEPER_WATCHES_MAX
from jesenska.metadata.acl import Identity, permits, shown
from jesenska.metadata.tree import Tree
from jesenska.metadata.tree_operations import (
    ADMIN,
    READ,
    BadArgumentsError,
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    Stat,
    TreeCode,
    TreeError,
)
from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.messages import (
    GetAclResponse,
    GetChildren2Response,
    GetDataResponse,
    Message,
    NamesResponse,
    NumberResponse,
    OpCode,
    SetWatches,
    StatResponse,
    SubRequest,
    SubResponse,
    WatcherKind,
    WatchesRequest,
)
from jesenska.metadata.zookeeper.server.serving import ServedConnection, Serving
from jesenska.metadata.zookeeper.server.slots import Answer


class Caller:
    """The client of a connection: its session's id (0 before it has a session), and the identities that it has
    sent."""

    __slots__ = ("identities", "is_admitted", "session_id")

    def __init__(self) -> None:
        self.session_id = 0
        self.identities: frozenset[Identity] = frozenset()
        #: True if the client may use the tree (`guard`).
        self.is_admitted = False


class Reads:
    """Answers the reads of one client. The parameter `client` of the methods is its connection, which also gets the
    events of its watches."""

    __slots__ = ("_caller", "_server", "_tree")

    def __init__(self, server: Serving, caller: Caller) -> None:
        self._server = server
        self._tree = server.tree.tree
        self._caller = caller

    def read(self, kind: OpCode, body: Any, client: ServedConnection) -> Answer:
        """Returns the body of the answer to a read, or an error code."""
        try:
            return messages.write(bytearray(), self._found(kind, body, client))
        except TreeError as error:
            return error.code

    def read_one(self, request: SubRequest, client: ServedConnection) -> SubResponse:
        """Does one of the reads of a multiRead. An error is returned as the answer to this read only."""
        try:
            return SubResponse(request.type, 0, self._found(request.type, request.body, client))
        except TreeError as error:
            return SubResponse(OpCode.ERROR, error.code, None)

    def _found(self, kind: OpCode, body: Any, client: ServedConnection) -> Message:
        tree, path = self._tree, body.path or "/"
        if self._server.tree.failure is not None:
            raise ConnectionLossError(path, self._server.tree.failure)
        try:
            node = tree.find(path)
        except BadArgumentsError:
            raise NoNodeError(path) from None  # as ZooKeeper: no node can have such a path
        if kind is OpCode.GET_EPHEMERALS:
            prefix = path
            return NamesResponse(
                tuple([own for own in tree.ephemerals(self._caller.session_id) if own.startswith(prefix)])
            )
        if node is None:
            if kind is OpCode.EXISTS and body.watch:
                self._watch_data(path, client)
            raise NoNodeError(path)
        if not permits(node.acl, READ | ADMIN if kind is OpCode.GET_ACL else READ, self._caller.identities):
            raise NoAuthError(path)
        watch = kind is not OpCode.GET_ACL and kind is not OpCode.GET_ALL_CHILDREN_NUMBER and body.watch
        match kind:
            case OpCode.GET_DATA:
                found: Message = GetDataResponse(node.data, node.stat)
            case OpCode.EXISTS:
                found = StatResponse(node.stat)
            case OpCode.GET_ACL:
                found = GetAclResponse(shown(node.acl, self._caller.identities), node.stat)
            case OpCode.GET_CHILDREN:
                found = NamesResponse(tuple(tree.children(path)[0]))
            case OpCode.GET_CHILDREN2:
                names, stat = tree.children(path)
                found = GetChildren2Response(tuple(names), stat)
            case _:
                prefix = path.rstrip("/") + "/"
                found = NumberResponse(sum(1 for other, _ in tree.walk() if other.startswith(prefix) and other != "/"))
        if watch:
            if kind in (OpCode.EXISTS, OpCode.GET_DATA):
                self._watch_data(path, client)
            else:
                self._watch_children(path, client)
        return found

    # Watches

    def set_watches(self, request: SetWatches, client: ServedConnection) -> bytes:
        """Sets the watches that a client had on another connection. For changes that the client has missed, the events
        are sent at once, in the order of the changes, and no watches are set.

        Events of deletions come first, because the time of a deletion is not known."""
        tree = self._tree
        since = request.relative_zxid
        missed: list[tuple[int, WatchEvent]] = []
        for path in request.data_watches:
            stat = _stat(tree, path)
            if stat is None:
                missed.append((0, WatchEvent(EventType.NODE_DELETED, path)))
            elif stat.mzxid > since:
                missed.append((stat.mzxid, WatchEvent(EventType.NODE_DATA_CHANGED, path)))
            else:
                self._watch_data(path, client)
        for path in request.exist_watches:
            stat = _stat(tree, path)
            if stat is not None:
                missed.append((stat.czxid, WatchEvent(EventType.NODE_CREATED, path)))
            else:
                self._watch_data(path, client)
        for path in request.child_watches:
            stat = _stat(tree, path)
            if stat is None:
                missed.append((0, WatchEvent(EventType.NODE_DELETED, path)))
            elif stat.pzxid > since:
                missed.append((stat.pzxid, WatchEvent(EventType.NODE_CHILDREN_CHANGED, path)))
            else:
                self._watch_children(path, client)
        missed.sort(key=itemgetter(0))
        for _, event in missed:
            client.send_event(event)
        return b""

    def own_watches(self, meant: WatchesRequest, client: ServedConnection, *, removes: bool) -> bytes | TreeCode:
        """Returns an empty answer if this client has a watch of this kind on the path, else NO_WATCHER. With `removes`
        the watch is removed."""
        data, children = (
            meant.kind in (WatcherKind.DATA, WatcherKind.ANY),
            meant.kind in (WatcherKind.CHILDREN, WatcherKind.ANY),
        )
        if not data and not children:
            return TreeCode.MARSHALLING_ERROR
        watches = self._server.watches
        found = (
            watches.remove(meant.path, client, data=data, children=children)
            if removes
            else watches.has(meant.path, client, data=data, children=children)
        )
        return b"" if found else TreeCode.NO_WATCHER

    def _watch_data(self, path: str, client: ServedConnection) -> None:
        self._server.watches.watch_data(path, client)
        self._limit_watches(client)

    def _watch_children(self, path: str, client: ServedConnection) -> None:
        self._server.watches.watch_children(path, client)
        self._limit_watches(client)

    def _limit_watches(self, client: ServedConnection) -> None:
        if self._server.watches.count(client) > ZOOKEEPER_WATCHES_MAX:
            client.too_many_watches()


def _stat(tree: Tree, path: str) -> Stat | None:
    try:
        return tree.exists(path)
    except BadArgumentsError:
        return None
