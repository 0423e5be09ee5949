"""The interface through which brokers read and write the metadata tree (ZooKeeper's nodes).

A `Store` is one session: its operations are done in order, and its watches are callbacks. The interface is the same
for a tree in this process (`embedded`), in another process of jesenska, and in a ZooKeeper ensemble. The states of a
session:

  CONNECTED   answers arrive
  SUSPENDED   the store does not answer; the session and its ephemeral nodes may still exist
  LOST        the store has not answered for the session's timeout; the session must be treated as ended, though the
              store has not reported its end
  EXPIRED     the store has reported the end of the session; its ephemeral nodes are deleted; a new session is needed
  CLOSED      its owner has closed it

  CONNECTED <-> SUSPENDED -> LOST -> CONNECTED | EXPIRED         from any of these -> CLOSED

Callbacks of watches and of states run on the event loop: they must be short and must not raise. The event of a change
is delivered before any answer that shows the change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Protocol

from jesenska.metadata.tree_operations import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    BadArgumentsError,
    Check,
    Create,
    Delete,
    MultiError,
    Operation,
    Result,
    SetAcl,
    SetData,
    Stat,
)
from jesenska.metadata.watches import WatchEvent

WatchCallback = Callable[[WatchEvent], None]
#: Estimated bytes of one operation in a request besides its path and data: headers, the ACL, flags.
_OPERATION_BYTES = 64


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    EXPIRED = "expired"
    CLOSED = "closed"


StateCallback = Callable[[SessionState], None]


class Store(Protocol):
    """One session on the metadata tree. Operations are done in the order of the calls. A refused operation raises
    TreeError (a multi: MultiError).

    After ConnectionLossError the caller does not know if a change was made, and must read before it tries again."""

    @property
    def session_id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    def on_state(self, callback: StateCallback) -> None:
        """Registers a callback for every later state of the session."""
        ...

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Returns the data and stat of a node. Raises NoNodeError if it does not exist. `watch` is called once, at the
        next change or the deletion of the node."""
        ...

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Returns the stat of a node, or None if it does not exist. `watch` is called once, at the next creation,
        change or deletion of the node."""
        ...

    async def children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        """Returns the sorted names of a node's children, and its stat. Raises NoNodeError if the node does not exist.
        `watch` is called once, when a child is next created or deleted, or the node is deleted."""
        ...

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> Result:
        """Creates a node. Returns its full path and stat. Raises NodeExistsError if it exists, NoNodeError if its
        parent is missing."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Sets the data of a node, and returns its new stat. Raises BadVersionError if the node has another version
        than `version`."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node. Raises NoNodeError if it does not exist, BadVersionError if it has another version,
        NotEmptyError if it has children."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """Does all operations or none. Raises MultiError, which names the refused operation."""
        ...

    async def sync(self, path: str = "/") -> None:
        """Waits until reads of this session show every change that any session had been answered before this call."""
        ...

    async def close(self) -> None:
        """Ends the session. Its ephemeral nodes are deleted."""
        ...


async def multi_in_pieces(store: Store, operations: Sequence[Operation], max_bytes: int | None) -> tuple[Result, ...]:
    """Does many operations, in one multi if it has at most `max_bytes`, otherwise in several multis in order. The
    `Check` operations at the beginning are repeated in each multi.

    If an operation on a node is directly followed by an operation on the node's parent, both are in the same multi.
    After an error, the earlier multis remain done."""
    if max_bytes is None:
        return await store.multi(operations)
    checks = tuple(takewhile(lambda operation: isinstance(operation, Check), operations))
    results: list[Result] = []
    for number, piece in enumerate(_pieces(operations[len(checks) :], max_bytes)):
        answers = await store.multi((*checks, *piece))
        results += answers if number == 0 else answers[len(checks) :]
    return tuple(results)


def _pieces(operations: Sequence[Operation], max_bytes: int) -> Iterator[list[Operation]]:
    piece: list[Operation] = []
    size = 0
    for operation in operations:
        own = _OPERATION_BYTES + len(operation.path) + len(getattr(operation, "data", None) or b"")
        if piece and size + own > max_bytes and not piece[-1].path.startswith(operation.path + "/"):
            yield piece
            piece, size = [], 0
        piece.append(operation)
        size += own
    if piece:
        yield piece


@dataclass(frozen=True, slots=True)
class _ChrootWatch:
    """A watch whose callback gets paths relative to the chroot. Two watches with the same callback are equal, so that
    the store calls the callback once."""

    root: str
    callback: WatchCallback

    def __call__(self, event: WatchEvent) -> None:
        self.callback(WatchEvent(event.type, event.path.removeprefix(self.root) or "/"))


class ForwardingStore:
    """A `Store` that passes every request to another store unchanged. Subclasses change some of the requests."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def state(self) -> SessionState:
        return self._store.state

    def on_state(self, callback: StateCallback) -> None:
        self._store.on_state(callback)

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        return await self._store.get(path, watch)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        return await self._store.exists(path, watch)

    async def children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        return await self._store.children(path, watch)

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> Result:
        return await self._store.create(path, data, ephemeral=ephemeral, sequential=sequential, acl=acl)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._store.set(path, data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._store.delete(path, version)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        return await self._store.multi(operations)

    async def sync(self, path: str = "/") -> None:
        await self._store.sync(path)

    async def close(self) -> None:
        await self._store.close()


class ChrootStore(ForwardingStore):
    """A `Store` with paths relative to a chroot: `/a` means `root/a`. The root node must exist."""

    __slots__ = ("_root",)

    def __init__(self, store: Store, root: str) -> None:
        super().__init__(store)
        self._root = root.rstrip("/")

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        return await self._store.get(self._inside(path), self._watch(watch))

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        return await self._store.exists(self._inside(path), self._watch(watch))

    async def children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        return await self._store.children(self._inside(path), self._watch(watch))

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> Result:
        result = await self._store.create(self._inside(path), data, ephemeral=ephemeral, sequential=sequential, acl=acl)
        return Result(self._outside(result.path), result.stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return await self._store.set(self._inside(path), data, version)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._store.delete(self._inside(path), version)

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        moved = []
        for index, operation in enumerate(operations):
            try:
                moved.append(self._moved(operation))
            except BadArgumentsError as error:
                raise MultiError(index, len(operations), error) from error
        results = await self._store.multi(moved)
        return tuple(Result(self._outside(result.path), result.stat) for result in results)

    async def sync(self, path: str = "/") -> None:
        await self._store.sync(self._inside(path))

    def _inside(self, path: str) -> str:
        if not path.startswith("/"):
            raise BadArgumentsError(path, "a path begins with /")
        return (self._root if path == "/" else self._root + path) or "/"

    def _outside(self, path: str) -> str:
        return path.removeprefix(self._root) or "/"

    def _watch(self, watch: WatchCallback | None) -> WatchCallback | None:
        if watch is None:
            return None
        return _ChrootWatch(self._root, watch)

    def _moved(self, operation: Operation) -> Operation:
        path = self._inside(operation.path)
        match operation:
            case Create(_, data, ephemeral, sequential, acl):
                return Create(path, data, ephemeral, sequential, acl)
            case Delete(_, version):
                return Delete(path, version)
            case SetData(_, data, version):
                return SetData(path, data, version)
            case SetAcl(_, acl, version):
                return SetAcl(path, acl, version)
            case Check(_, version):
                return Check(path, version)
