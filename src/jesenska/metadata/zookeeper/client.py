"""A `Store` on a ZooKeeper: one of ours, or an ensemble of Apache ZooKeeper 3.5 or later.

    connect --> CONNECTED -- the connection ends, or nothing is heard for two thirds of the timeout --> SUSPENDED
                    ^                                                                                     |  the timeout has passed
                    +---- another connection, and the server knows the session ---- SUSPENDED, LOST <-----+
                                                      it does not know it any more --> EXPIRED

One task connects, to one server after the other, for as long as the session may live; it shows the session's id and password, gives the identities, and has
the server watch again what was watched (SetWatches: what has changed meanwhile is heard at once). What was asked for when a connection ended fails with
ConnectionLossError, and so does what is asked for without one: waiting for CONNECTED and asking again is for those who know what they asked for.

A watch is kept here under its path until its event comes; several of one path are one watch of the server. Answers come in the order of the requests.

Unlike the embedded store, a multi of several operations cannot change ACLs: the protocol does not have it.

Sources: ZooKeeper's Programmer's Guide (sessions, watches)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from jesenska.base.clock import system_random
from jesenska.base.limits import TREE_PENDING_MAX, ZOOKEEPER_ANSWER_MAX_BYTES
from jesenska.metadata.store import ChrootStore, SessionState, StateCallback, Store, WatchCallback
from jesenska.metadata.tree import check_path, require_size
from jesenska.metadata.tree_operations import (
    ANY_VERSION,
    OPEN_ACL,
    Acl,
    BadArgumentsError,
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    InvalidAclError,
    MultiError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Result,
    SessionExpiredError,
    SetAcl,
    SetData,
    Stat,
    TreeCode,
    TreeError,
    UnimplementedError,
)
from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.connect_string import ConnectString
from jesenska.metadata.zookeeper.frames import Frames, framed
from jesenska.metadata.zookeeper.messages import (
    PASSWORD_BYTES,
    RESPONSES,
    AuthPacket,
    ConnectRequest,
    CreateFlag,
    CreateRequest,
    Message,
    MessageError,
    OpCode,
    PathRequest,
    Reader,
    ReplyHeader,
    RequestHeader,
    SetAclRequest,
    SetDataRequest,
    SetWatches,
    SubRequest,
    SubResponse,
    VersionRequest,
    WatchableRequest,
    WatcherEvent,
    Xid,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Bytes of paths in one SetWatches: servers take frames of a megabyte.
_SET_WATCHES_BYTES = 128 * 1024
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0

_ERRORS: dict[int, type[TreeError]] = {
    error.code: error
    for error in (
        NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, NoChildrenForEphemeralsError, SessionExpiredError, BadArgumentsError, InvalidAclError,
        NoAuthError, ConnectionLossError, UnimplementedError,
    )
}  # fmt: skip


async def connect(servers: str, *, session_timeout_ms: int = 18_000, connect_timeout_ms: int | None = None, auth: Sequence[tuple[str, bytes]] = ()) -> Store:
    """A new session on one of `host:port,host:port/chroot`, seen from the chroot, which must exist (`ZooKeeperStore.connect` does not look at it).

    ConnectionLossError where none answers in time (a session's timeout, unless said otherwise), NoAuthError where an identity is not taken."""
    where = ConnectString.parse(servers)
    store = await ZooKeeperStore.connect(where, session_timeout_ms=session_timeout_ms, connect_timeout_ms=connect_timeout_ms, auth=auth)
    return ChrootStore(store, where.chroot) if where.chroot else store


class _Asked:
    """A request in flight: what its answer is made of."""

    __slots__ = ("decode", "future", "path", "xid")

    def __init__(self, xid: int, path: str, decode: Callable[[TreeCode | int, Reader], Any], future: asyncio.Future[Any]) -> None:
        self.xid, self.path, self.decode, self.future = xid, path, decode, future


class _Link(asyncio.Protocol):
    """One connection to one server."""

    def __init__(self, owner: ZooKeeperStore) -> None:
        self._owner = owner
        self._frames = Frames(ZOOKEEPER_ANSWER_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self.connected: asyncio.Future[messages.ConnectResponse] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        try:
            while self._transport is not None and (frame := self._frames.next()) is not None:
                if not self.connected.done():
                    self.connected.set_result(messages.read_connected(frame))
                    # What comes behind is for a session that is taken note of first.
                    self._owner._welcomed(self, self.connected.result())
                else:
                    self._owner._frame(frame)
        except MessageError as error:
            self.end(f"its answer is not understood: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(str(exc) if exc is not None else "the server closed the connection")

    def send(self, payload: bytes | bytearray) -> None:
        if self._transport is not None:
            self._transport.write(framed(payload))

    def end(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if not self.connected.done():
            self.connected.cancel()
        if not self.ended.done():
            self.ended.set_result(reason)
            self._owner._link_ended(self, reason)


class ZooKeeperStore:
    """One session; made by `connect`."""

    def __init__(self, where: ConnectString, session_timeout_ms: int, auth: Sequence[tuple[str, bytes]]) -> None:
        self._servers = list(where.servers)
        system_random().shuffle(self._servers)
        self._timeout_ms = session_timeout_ms
        self._auth = tuple(auth)
        self._session_id = 0
        self._password = bytes(PASSWORD_BYTES)
        self._state = SessionState.SUSPENDED
        self._state_callbacks: list[StateCallback] = []
        self._link: _Link | None = None
        self._asked: deque[_Asked] = deque()
        self._last_xid = 0
        self._last_zxid = 0
        self._heard = self._sent = 0.0
        self._data: dict[str, dict[WatchCallback, None]] = {}
        self._exist: dict[str, dict[WatchCallback, None]] = {}
        self._child: dict[str, dict[WatchCallback, None]] = {}
        self._first: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost_timer: asyncio.TimerHandle | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._closing = False

    @staticmethod
    async def connect(
        where: ConnectString, *, session_timeout_ms: int = 18_000, connect_timeout_ms: int | None = None, auth: Sequence[tuple[str, bytes]] = ()
    ) -> ZooKeeperStore:
        """As the function of that name, without the chroot."""
        store = ZooKeeperStore(where, session_timeout_ms, auth)
        loop = asyncio.get_running_loop()
        store._first = loop.create_future()
        store._task = loop.create_task(store._run())
        try:
            await asyncio.wait_for(store._first, (connect_timeout_ms or session_timeout_ms) / 1000)
        except TimeoutError:
            await store._finish(SessionState.CLOSED)
            names = ", ".join(f"{host}:{port}" for host, port in where.servers)
            raise ConnectionLossError("/", f"no ZooKeeper answers at {names}") from None
        except BaseException:
            await store._finish(SessionState.CLOSED)
            raise
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def timeout_ms(self) -> int:
        """What the server made of the timeout that was asked for."""
        return self._timeout_ms

    @property
    def state(self) -> SessionState:
        return self._state

    def on_state(self, callback: StateCallback) -> None:
        self._state_callbacks.append(callback)

    # Operations

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        def decode(code: TreeCode | int, reader: Reader) -> tuple[bytes, Stat]:
            _require_ok(code, path)
            answer = messages.read(messages.GetDataResponse, reader)
            _keep(self._data, path, watch)
            return answer.data or b"", answer.stat

        check_path(path)
        return await self._ask(OpCode.GET_DATA, path, WatchableRequest(path, watch is not None), decode)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        def decode(code: TreeCode | int, reader: Reader) -> Stat | None:
            if code == TreeCode.NO_NODE:
                _keep(self._exist, path, watch)
                return None
            _require_ok(code, path)
            _keep(self._data, path, watch)
            return messages.read(messages.StatResponse, reader).stat

        check_path(path)
        return await self._ask(OpCode.EXISTS, path, WatchableRequest(path, watch is not None), decode)

    async def children(self, path: str, watch: WatchCallback | None = None) -> tuple[list[str], Stat]:
        def decode(code: TreeCode | int, reader: Reader) -> tuple[list[str], Stat]:
            _require_ok(code, path)
            answer = messages.read(messages.GetChildren2Response, reader)
            _keep(self._child, path, watch)
            return sorted(answer.children), answer.stat

        check_path(path)
        return await self._ask(OpCode.GET_CHILDREN2, path, WatchableRequest(path, watch is not None), decode)

    async def create(
        self, path: str, data: bytes | None = b"", *, ephemeral: bool = False, sequential: bool = False, acl: tuple[Acl, ...] = OPEN_ACL
    ) -> Result:
        kind, body = _sub_request(Create(path, data, ephemeral, sequential, acl))
        return await self._ask(kind, path, body, lambda code, reader: _result(kind, path, code, reader))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        kind, body = _sub_request(SetData(path, data, version))
        result = await self._ask(kind, path, body, lambda code, reader: _result(kind, path, code, reader))
        assert result.stat is not None
        return result.stat

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        kind, body = _sub_request(Delete(path, version))
        await self._ask(kind, path, body, lambda code, reader: _result(kind, path, code, reader))

    async def multi(self, operations: Sequence[Operation]) -> tuple[Result, ...]:
        if not operations:
            return ()
        if len(operations) == 1 and isinstance(operations[0], SetAcl):
            return (await self._set_acl(operations[0]),)
        requests = []
        for index, operation in enumerate(operations):
            try:
                requests.append(_sub_request(operation))
            except TreeError as error:
                raise MultiError(index, len(operations), error) from error

        def decode(code: TreeCode | int, reader: Reader) -> tuple[Result, ...]:
            _require_ok(code, operations[0].path)
            return _results(operations, messages.read_multi_response(reader))

        return await self._ask(OpCode.MULTI, operations[0].path, messages.write_multi(bytearray(), requests), decode)

    async def sync(self, path: str = "/") -> None:
        check_path(path)
        await self._ask(OpCode.SYNC, path, PathRequest(path), lambda code, _: _require_ok(code, path))

    # What ZooKeeper's own shell asks for, beyond a `Store`

    async def get_acl(self, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """Who may do what with the node, and its stat; NoNodeError."""

        def decode(code: TreeCode | int, reader: Reader) -> tuple[tuple[Acl, ...], Stat]:
            _require_ok(code, path)
            answer = messages.read(messages.GetAclResponse, reader)
            return answer.acl, answer.stat

        check_path(path)
        return await self._ask(OpCode.GET_ACL, path, PathRequest(path), decode)

    async def ephemerals(self, prefix: str = "/") -> list[str]:
        """The paths of this session's ephemeral nodes that begin with this, in order."""

        def decode(code: TreeCode | int, reader: Reader) -> list[str]:
            _require_ok(code, prefix)
            return sorted(messages.read(messages.NamesResponse, reader).names)

        check_path(prefix)
        return await self._ask(OpCode.GET_EPHEMERALS, prefix, PathRequest(prefix), decode)

    async def who_am_i(self) -> list[tuple[str, str]]:
        """Scheme and name of each identity that the server knows this connection by. UnimplementedError: a server before 3.7."""

        def decode(code: TreeCode | int, reader: Reader) -> list[tuple[str, str]]:
            _require_ok(code, "/")
            return [(scheme, name) for scheme, name in messages.read(messages.WhoAmIResponse, reader).identities]

        return await self._ask(OpCode.WHO_AM_I, "/", bytearray(), decode)

    async def add_auth(self, scheme: str, auth: bytes) -> None:
        """Shows one more identity, on later connections too; NoAuthError where it is not taken: the session is closed then."""
        link = self._require_connected()
        self._send(link, RequestHeader(Xid.AUTH, OpCode.AUTH), AuthPacket(0, scheme, auth))
        try:
            await self.sync()  # answers come in order
        except SessionExpiredError as error:
            raise NoAuthError("/", f"an identity of the scheme {scheme} was not taken") from error
        self._auth = (*self._auth, (scheme, auth))

    async def close(self) -> None:
        if self._state in (SessionState.CLOSED, SessionState.EXPIRED):
            return
        self._closing = True
        with suppress(TreeError, TimeoutError):
            await asyncio.wait_for(self._ask(OpCode.CLOSE_SESSION, "/", bytearray(), lambda code, _: _require_ok(code, "/")), self._timeout_ms / 3000)
        await self._finish(SessionState.CLOSED)

    async def _set_acl(self, operation: SetAcl) -> Result:
        path, acl, version = operation.path, operation.acl, operation.version

        def decode(code: TreeCode | int, reader: Reader) -> Result:
            try:
                _require_ok(code, path)
            except (ConnectionLossError, SessionExpiredError):
                raise
            except TreeError as error:
                raise MultiError(0, 1, error) from error
            return Result(path, messages.read(messages.StatResponse, reader).stat)

        return await self._ask(OpCode.SET_ACL, path, SetAclRequest(path, acl, version), decode)

    def _ask(self, kind: OpCode, path: str, body: Message | bytearray, decode: Callable[[TreeCode | int, Reader], T]) -> asyncio.Future[T]:
        """Sends a request now; the future has what `decode` makes of its answer, in its turn."""
        link = self._require_connected()
        if len(self._asked) >= TREE_PENDING_MAX:
            raise ConnectionLossError(path, f"{TREE_PENDING_MAX} requests wait for an answer already")
        self._last_xid = self._last_xid % 0x7FFFFFFF + 1
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(self._last_xid, path, decode, future))
        self._send(link, RequestHeader(self._last_xid, kind), body)
        return future

    def _require_connected(self) -> _Link:
        if self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpiredError("/", f"the session is {self._state.value}")
        if self._link is None or self._state is not SessionState.CONNECTED:
            raise ConnectionLossError("/", "there is no connection to ZooKeeper")
        return self._link

    def _send(self, link: _Link, header: RequestHeader, body: Message | bytearray) -> None:
        payload = messages.write(bytearray(), header)
        if isinstance(body, bytearray):
            payload += body
        else:
            messages.write(payload, body)
        self._sent = asyncio.get_running_loop().time()
        link.send(payload)

    # Connecting

    async def _run(self) -> None:
        """Keeps a connection for as long as the session may live."""
        pause = 0.0
        while not self._is_over():
            for host, port in self._servers:
                link = await self._try(host, port)
                if self._is_over():
                    return
                if link is not None:
                    pause = 0.0
                    reason = await link.ended
                    if self._is_over():
                        return
                    logger.info("the connection to the ZooKeeper at %s:%d ended: %s", host, port, reason)
            await asyncio.sleep(pause * (0.5 + system_random().random() / 2))
            pause = min(max(2 * pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)

    async def _try(self, host: str, port: int) -> _Link | None:
        """The connection, once the server has taken the session; None where it has not."""
        limit_seconds = max(self._timeout_ms / len(self._servers), 100) / 1000
        link = _Link(self)
        try:
            async with asyncio.timeout(limit_seconds):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port)
                # The byte at the end: a server that only reads will not do.
                link.send(messages.write(bytearray(), ConnectRequest(0, self._last_zxid, self._timeout_ms, self._session_id, self._password)) + b"\x00")
                await asyncio.wait((link.connected,))
        except (OSError, TimeoutError) as error:
            link.end(str(error))
            logger.info("no answer from the ZooKeeper at %s:%d (%s)", host, port, str(error) or "it took too long")
            return None
        except asyncio.CancelledError:
            link.end("cancelled")
            raise
        return None if link.connected.cancelled() or self._link is not link else link

    def _welcomed(self, link: _Link, response: messages.ConnectResponse) -> None:
        if response.timeout_ms <= 0:
            self._enter(SessionState.EXPIRED)
            link.end("the session is over")
            return
        self._link = link
        self._session_id, self._password, self._timeout_ms = response.session_id, response.password, response.timeout_ms
        self._heard = asyncio.get_running_loop().time()
        for scheme, auth in self._auth:
            self._send(link, RequestHeader(Xid.AUTH, OpCode.AUTH), AuthPacket(0, scheme, auth))
        for request in self._watched():
            self._send(link, RequestHeader(Xid.SET_WATCHES, OpCode.SET_WATCHES), request)
        self._look()
        self._enter(SessionState.CONNECTED)
        if not self._auth:
            self._is_there()

    def _is_there(self) -> None:
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    def _watched(self) -> Iterator[SetWatches]:
        """All watches, in requests of a bounded size."""
        lists: tuple[list[str], list[str], list[str]] = ([], [], [])
        size = 0
        for number, table in enumerate((self._data, self._exist, self._child)):
            for path in table:
                lists[number].append(path)
                size += 4 + len(path.encode())
                if size > _SET_WATCHES_BYTES:
                    yield SetWatches(self._last_zxid, *map(tuple, lists))
                    lists, size = ([], [], []), 0
        if size:
            yield SetWatches(self._last_zxid, *map(tuple, lists))

    def _look(self) -> None:
        """Pings after a third of the timeout without a request, and gives the connection up when nothing was heard for two thirds."""
        link, loop = self._link, asyncio.get_running_loop()
        if link is None:
            return
        now, third = loop.time(), self._timeout_ms / 3000
        if now - self._heard >= 2 * third:
            link.end(f"nothing was heard for {2 * third:.1f} s")
            return
        if now - self._sent >= third:
            self._send(link, RequestHeader(Xid.PING, OpCode.PING), bytearray())
        self._ping_timer = loop.call_at(min(self._sent + third, self._heard + 2 * third), self._look)

    def _link_ended(self, link: _Link, reason: str) -> None:
        if self._link is not link:
            return
        self._link = None
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        asked, self._asked = self._asked, deque()
        over = self._is_over()
        for item in asked:
            if not item.future.done():
                item.future.set_exception(SessionExpiredError(item.path) if over else ConnectionLossError(item.path, reason))
        if not over:
            loop = asyncio.get_running_loop()
            self._lost_timer = loop.call_at(self._heard + self._timeout_ms / 1000, self._enter, SessionState.LOST)
            self._enter(SessionState.SUSPENDED)

    def _is_over(self) -> bool:
        return self._closing or self._state in (SessionState.EXPIRED, SessionState.CLOSED)

    async def _finish(self, state: SessionState) -> None:
        self._enter(state)
        if self._link is not None:
            self._link.end("closed")
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def _enter(self, state: SessionState) -> None:
        if state is self._state or self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            return
        self._state = state
        if state is not SessionState.SUSPENDED and self._lost_timer is not None:
            self._lost_timer.cancel()
            self._lost_timer = None
        if state in (SessionState.EXPIRED, SessionState.CLOSED):
            for table in (self._data, self._exist, self._child):
                table.clear()
        for callback in self._state_callbacks:
            callback(state)

    # Answers

    def _frame(self, frame: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        reader = Reader(frame)
        header = messages.read(ReplyHeader, reader)
        if header.zxid > 0:
            self._last_zxid = max(self._last_zxid, header.zxid)
        match header.xid:
            case Xid.NOTIFICATION:
                self._event(messages.read(WatcherEvent, reader))
            case Xid.PING:
                pass
            case Xid.AUTH:
                self._authenticated(header.error)
            case Xid.SET_WATCHES:
                if header.error:
                    raise MessageError(f"watches were not taken again (error {header.error})")
            case _:
                self._answer(header, reader)

    def _answer(self, header: ReplyHeader, reader: Reader) -> None:
        if not self._asked or self._asked[0].xid != header.xid:
            raise MessageError(f"an answer to request {header.xid}, which is not the next")
        asked = self._asked.popleft()
        try:
            result = asked.decode(header.error, reader)
        except (TreeError, MultiError) as error:
            if not asked.future.done():
                asked.future.set_exception(error)
            return
        except MessageError:
            self._asked.appendleft(asked)
            raise
        if not asked.future.done():
            asked.future.set_result(result)

    def _authenticated(self, error: int) -> None:
        if not error:
            self._is_there()
            return
        if self._first is not None and not self._first.done():
            self._first.set_exception(NoAuthError("/", "an identity was not taken"))
        logger.error("ZooKeeper does not take an identity: the session is given up")
        self._enter(SessionState.CLOSED)
        if self._link is not None:
            self._link.end("an identity was not taken")

    def _event(self, event: WatcherEvent) -> None:
        try:
            kind = EventType(event.type)
        except ValueError:
            return  # of the connection's state, which is known here
        tables = {
            EventType.NODE_CREATED: (self._data, self._exist),
            EventType.NODE_DATA_CHANGED: (self._data, self._exist),
            EventType.NODE_CHILDREN_CHANGED: (self._child,),
            EventType.NODE_DELETED: (self._data, self._exist, self._child),
        }[kind]
        callbacks: dict[WatchCallback, None] = {}
        for table in tables:
            callbacks |= table.pop(event.path, {})
        told = WatchEvent(kind, event.path)
        for callback in callbacks:
            try:
                callback(told)
            except Exception as error:
                # A broken listener must not keep others from hearing, nor answers from being read.
                asyncio.get_running_loop().call_exception_handler({"message": "a watch's callback raised", "exception": error})


def _keep(table: dict[str, dict[WatchCallback, None]], path: str, watch: WatchCallback | None) -> None:
    if watch is not None:
        table.setdefault(path, {})[watch] = None


def _error(code: int, path: str) -> TreeError:
    known = _ERRORS.get(code)
    return known(path) if known is not None else TreeError(path, f"ZooKeeper's error {code}")


def _require_ok(code: int, path: str) -> None:
    if code != TreeCode.OK:
        raise _error(code, path)


def _sub_request(operation: Operation) -> SubRequest:
    match operation:
        case Create(path, data, ephemeral, sequential, acl):
            check_path(path + "1" if sequential else path)
            require_size(path, data)
            flags = (CreateFlag.EPHEMERAL if ephemeral else 0) | (CreateFlag.SEQUENTIAL if sequential else 0)
            return SubRequest(OpCode.CREATE2, CreateRequest(path, data, acl, flags))
        case SetData(path, data, version):
            check_path(path)
            require_size(path, data)
            return SubRequest(OpCode.SET_DATA, SetDataRequest(path, data, version))
        case Delete(path, version):
            check_path(path)
            return SubRequest(OpCode.DELETE, VersionRequest(path, version))
        case Check(path, version):
            check_path(path)
            return SubRequest(OpCode.CHECK, VersionRequest(path, version))
        case SetAcl(path):
            raise BadArgumentsError(path, "ZooKeeper changes ACLs one at a time")


def _result(kind: OpCode, path: str, code: int, reader: Reader) -> Result:
    _require_ok(code, path)
    return _result_of(path, messages.read(RESPONSES[kind], reader))


def _result_of(path: str, body: Message | None) -> Result:
    match body:
        case messages.PathAndStatResponse(full_path, stat):
            return Result(full_path, stat)
        case messages.StatResponse(stat):
            return Result(path, stat)
    return Result(path, None)


def _results(operations: Sequence[Operation], answers: Sequence[SubResponse]) -> tuple[Result, ...]:
    if len(answers) != len(operations):
        raise MessageError(f"{len(answers)} answers to {len(operations)} operations")
    for index, (operation, answer) in enumerate(zip(operations, answers, strict=True)):
        if answer.error not in (TreeCode.OK, TreeCode.RUNTIME_INCONSISTENCY):
            raise MultiError(index, len(operations), _error(answer.error, operation.path))
    return tuple(_result_of(operation.path, answer.body) for operation, answer in zip(operations, answers, strict=True))
