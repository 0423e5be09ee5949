"""What brokers see of the tree: a session on a store, wherever the tree lives.

`Store` is the interface: operations of one session, in order, with watches as callbacks. It is the same whether the
tree is in this process (`embedded`), in a process of ours or in a ZooKeeper ensemble. A session is in one of these
states:

    CONNECTED   answers come
    SUSPENDED   nothing is heard of the store; the session may live on, and its ephemeral nodes with it
    LOST        nothing was heard for as long as the session lasts: it must be taken for dead, though nobody has said
                so
    EXPIRED     the store said that the session is over: its ephemeral nodes are gone, a new session is needed
    CLOSED      its owner closed it

    CONNECTED <-> SUSPENDED -> LOST -> CONNECTED | EXPIRED         from any of these -> CLOSED

Callbacks of watches and of state run on the event loop, between other things: they must be short and must not raise. A
watch that was asked for hears its event before an answer that shows the change."""

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
#: Bytes of one operation in a request, beside its path and data: headers, the open ACL, flags.
_OPERATION_BYTES = 64


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    EXPIRED = "expired"
    CLOSED = "closed"


StateCallback = Callable[[SessionState], None]


class Store(Protocol):
    """One session. Operations are done in the order in which they were called; each raises TreeError (or MultiError)
    where it is refused.

    ConnectionLossError means that nobody knows whether a change was made: look before trying again."""

    @property
    def session_id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    def on_state(self, callback: StateCallback) -> None:
        """Calls back with every later state."""
        ...

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Data and stat; NoNodeError. `watch` hears once of the node's next change."""
        ...

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """The stat, or None. `watch` hears once of the node's next change, its creation included."""
        ...

    async def children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        """Names of the children, in order; NoNodeError. `watch` hears once of the next child made or deleted."""
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
        """The full path and the stat; NodeExistsError, NoNodeError where the parent is missing."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """The new stat; BadVersionError where the node is not at `version`."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        """All of them or none; MultiError says which was refused."""
        ...

    async def sync(self, path: str = "/") -> None:
        """Returns when reads of this session show every change that was answered to anyone before the call."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes go."""
        ...


async def multi_in_pieces(store: Store, operations: Sequence[Operation], max_bytes: int | None) -> tuple[Result, ...]:
    """All of them in one multi where they are not larger than that; else in pieces, in their order, the checks that
    they begin with in each of them.

    Nothing is cut between an operation and one on its parent behind it (a node and the one it is in go together). What
    an error leaves is a beginning."""
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
    """A watch that hears paths as they are seen from the root; equal for equal callbacks, so that asking twice is
    asking once."""

    root: str
    callback: WatchCallback

    def __call__(self, event: WatchEvent) -> None:
        self.callback(WatchEvent(event.type, event.path.removeprefix(self.root) or "/"))


class ChrootStore:
    """A store seen from a node: `/a` is `root/a`. The root itself must exist."""

    __slots__ = ("_root", "_store")

    def __init__(self, store: Store, root: str) -> None:
        self._store = store
        self._root = root.rstrip("/")

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def state(self) -> SessionState:
        return self._store.state

    def on_state(self, callback: StateCallback) -> None:
        self._store.on_state(callback)

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

    async def close(self) -> None:
        await self._store.close()

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
