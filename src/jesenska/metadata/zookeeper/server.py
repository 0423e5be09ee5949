"""The tree served to ZooKeeper's clients: connections, answers and watches over an `EmbeddedTree`. Moves; what it does not decide is in `tree` and `sessions`.

    four-letter word -> text -> closed
    ConnectRequest -> session opened or come back to -> requests -> answers, in their order -> CLOSE_SESSION, or the connection ends

A write is decided when it arrives and answered when it is committed. A read waits for the writes that its client asked for before it, and is answered from
what is committed. `EmbeddedTree.submit` answers each request at its place among the transactions, and a transaction's watches leave when it is committed:
a client hears of a change before any answer that shows it, and an answer's zxid is that of the state it shows. Answers and events go to the socket together:
once for what one read of it brought, once for what one commit answered.

A client that does not take its answers, or that sends without waiting for them, is not read from beyond a limit. Events cannot be held back: one that takes
none of many is disconnected. Ephemeral nodes go when their session is closed or nothing was heard of it for its timeout, not when a connection ends.

As ZooKeeper 3.8.4 does it (it was asked): a request too short for its type is answered MARSHALLING_ERROR, bytes behind its body are ignored, a type that is
unknown is answered UNIMPLEMENTED and the connection closed; an identity that is not taken, too. Differences, on purpose:
- A request that is refused takes no zxid; the zxid then is that of the last change.
- A wrong password does not disconnect the session's owner.
- Containers and nodes with a time to live, reconfig, SASL, persistent watches, removeWatches, checkWatches and whoAmI are UNIMPLEMENTED. A multi with a
  node with a time to live is answered MARSHALLING_ERROR.
- CHECK alone is answered (3.8.4 answers only where it fails).
- A rule of an ACL with permissions above 31 is refused (INVALID_ACL).
- A bad path below a parent that is missing is BAD_ARGUMENTS, not NO_NODE: paths are looked at first.
- Frames may have 1 MiB and 64 KiB, so that a node at its largest fits with its path and ACL (ZooKeeper's jute.maxbuffer: 1,048,575 bytes).
- Names of children are sorted. What SetWatches finds changed is told in the order of the changes (ZooKeeper: in no order), deletions first.
- /zookeeper/config is empty and its aversion 0.
- All nine four-letter words are allowed (4lw.commands.whitelist names them one by one)."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from jesenska import __version__
from jesenska.base.clock import Clock
from jesenska.base.errors import JesenskaError
from jesenska.base.limits import (
    UNSENT_ANSWER_BYTES,
    ZOOKEEPER_IDENTITIES_MAX,
    ZOOKEEPER_OUTSTANDING_BYTES,
    ZOOKEEPER_OUTSTANDING_MAX,
    ZOOKEEPER_REQUEST_MAX_BYTES,
    ZOOKEEPER_UNSENT_EVENTS_BYTES,
    ZOOKEEPER_WATCHES_MAX,
)
from jesenska.metadata.acl import Identity, completed, digest_identity, permits, shown
from jesenska.metadata.embedded import CLIENT_SESSION_ID_BASE, EmbeddedTree
from jesenska.metadata.transactions import (
    ADMIN,
    READ,
    BadArgumentsError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NoAuthError,
    NoNodeError,
    Operation,
    Result,
    SessionClosed,
    SessionExpiredError,
    SetAcl,
    SetData,
    Stat,
    Transaction,
    TreeCode,
    TreeError,
    UnimplementedError,
)
from jesenska.metadata.tree import CloseSession, Multi, Tree
from jesenska.metadata.watches import EventType, Watches, WatchEvent
from jesenska.metadata.zookeeper import messages, words
from jesenska.metadata.zookeeper.frames import Frames, framed
from jesenska.metadata.zookeeper.messages import (
    MULTI_READ_TYPES,
    MULTI_TYPES,
    PASSWORD_BYTES,
    REQUESTS,
    SYNC_CONNECTED,
    ConnectResponse,
    CreateFlag,
    EmptyResponse,
    GetAclResponse,
    GetChildren2Response,
    GetDataResponse,
    Message,
    MessageError,
    NamesResponse,
    NumberResponse,
    OpCode,
    PathAndStatResponse,
    PathResponse,
    Reader,
    RequestHeader,
    SetWatches,
    SetWatches2,
    StatResponse,
    SubRequest,
    SubResponse,
    WatcherEvent,
    Xid,
)
from jesenska.metadata.zookeeper.sessions import Sessions

logger = logging.getLogger(__name__)

_WRITES = frozenset({OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA, OpCode.SET_ACL, OpCode.CHECK})
_READS = frozenset(
    {OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_ACL, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2, OpCode.GET_EPHEMERALS, OpCode.GET_ALL_CHILDREN_NUMBER}
)
_KNOWN = frozenset(
    {OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL, OpCode.RECONFIG, OpCode.CHECK_WATCHES, OpCode.REMOVE_WATCHES, OpCode.ADD_WATCH, OpCode.WHO_AM_I, OpCode.SASL}
)
_EPHEMERAL, _SEQUENTIAL = int(CreateFlag.EPHEMERAL), int(CreateFlag.SEQUENTIAL)
_KINDS = {int(kind): kind for kind in OpCode}
#: Answers and events of a connection that are gathered before the socket is given them.
_WRITE_OUT_BYTES = 64 * 1024
#: Words of `cons` for the last operation.
_SHORT_NAMES = {OpCode.CREATE: "CREA", OpCode.DELETE: "DELE", OpCode.EXISTS: "EXIS", OpCode.GET_DATA: "GETD", OpCode.SET_DATA: "SETD", OpCode.MULTI: "MULT",
                OpCode.GET_CHILDREN: "GETC", OpCode.GET_CHILDREN2: "GETC", OpCode.PING: "PING", OpCode.CLOSE_SESSION: "CLOS"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What ZooKeeper's configuration calls tickTime, minSessionTimeout, maxSessionTimeout (None: 2 and 20 ticks) and maxClientCnxns (0: no limit)."""

    tick_ms: int = 3000
    min_session_timeout_ms: int | None = None
    max_session_timeout_ms: int | None = None
    max_client_connections: int = 60


class ZooKeeperServer:
    """Serves one tree, which should have been opened with `served`; `start`, then `stop`. The tree stays open."""

    def __init__(self, tree: EmbeddedTree, clock: Clock, config: ServerConfig | None = None) -> None:
        self.tree = tree
        self.clock = clock
        self.config = config or ServerConfig()
        self.sessions: Sessions[Connection] = Sessions(tree.secret, self.config.tick_ms, self.config.min_session_timeout_ms, self.config.max_session_timeout_ms)
        self.watches: Watches[Connection] = Watches()
        self.connections: dict[Connection, None] = {}
        self.by_host: Counter[str] = Counter()
        self._figures = _Figures()  # of connections that are gone
        self._unsent: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._look: asyncio.TimerHandle | None = None
        self._started_ms = 0.0
        self.host, self.port = "", 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listens; `port` says where. JesenskaError with one sentence where that is not possible."""
        self._started_ms = now_ms = self.now_ms()
        for session_id, timeout_ms in self.tree.tree.sessions.items():
            if session_id >= CLIENT_SESSION_ID_BASE:
                self.sessions.begin(session_id, timeout_ms, None, now_ms)
        self.tree.on_commit(self._committed, self._send_unsent)
        try:
            self._server = await asyncio.get_running_loop().create_server(lambda: Connection(self), host or None, port)
        except OSError as error:
            raise JesenskaError(f"Cannot listen on {host or '*'}:{port} ({error.strerror}): choose another address or stop who has it.") from error
        self.host, self.port = host, self._server.sockets[0].getsockname()[1]
        self.look_for_expired()

    async def stop(self) -> None:
        """Takes no more requests and closes all connections. Sessions stay in the tree: their clients can come back after a restart."""
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.end()
            await self._server.wait_closed()
            self._server = None

    def now_ms(self) -> float:
        return self.clock.monotonic() * 1000

    # Sessions

    def look_for_expired(self) -> None:
        """Ends the sessions of which nothing was heard for too long, and comes back in time for the next ones."""
        now_ms = self.now_ms()
        for session_id in self.sessions.expired(now_ms):
            logger.info("session %#x expires: nothing was heard of its client for its timeout", session_id)
            self.close_session(session_id, _nothing)
        due_ms = self.sessions.next_look_ms()
        pause_ms = self.config.tick_ms if due_ms is None else min(max(due_ms - now_ms, 1), self.config.tick_ms)
        if self._look is not None:
            self._look.cancel()
        self._look = asyncio.get_running_loop().call_later(pause_ms / 1000, self.look_for_expired)

    def close_session(self, session_id: int, done: Callable[[Exception | None], None]) -> None:
        self.sessions.ending(session_id)

        def closed(_: tuple[Result, ...], error: Exception | None) -> None:
            if error is not None and not isinstance(error, SessionExpiredError):
                self.sessions.not_closed(session_id, self.now_ms())
            done(error)

        self.tree.submit(CloseSession(session_id), closed)

    # What was committed

    def _committed(self, transaction: Transaction) -> None:
        for connection, event in self.watches.fired(transaction.changes):
            connection.send_event(event)
        for change in transaction.changes:
            if isinstance(change, SessionClosed):
                ended = self.sessions.closed(change.session_id)
                if ended is not None and not ended.is_closing_session:
                    ended.close()

    def _send_unsent(self) -> None:
        """Answers and events of one commit leave together."""
        for connection in list(self._unsent):
            connection.write_out()

    # Figures

    @property
    def figures(self) -> _Figures:
        """Of all connections since the start."""
        total = _Figures()
        for some in (self._figures, *(connection.figures for connection in self.connections)):
            total.add(some)
        return total

    def figures_for_words(self) -> words.ServerFigures:
        tree = self.tree.tree
        sessions = self.sessions
        figures = self.figures
        return words.ServerFigures(
            version=f"{words.ZOOKEEPER_VERSION}-jesenska-{__version__}, built on {sys.implementation.name} {platform.python_version()}",
            connections=[connection.figures_for_words() for connection in self.connections],
            received=figures.received,
            sent=figures.sent,
            outstanding=sum(len(connection.slots) for connection in self.connections),
            min_latency_ms=int(figures.min_latency_ms),
            average_latency_ms=figures.average_latency_ms,
            max_latency_ms=int(figures.max_latency_ms),
            zxid=tree.last_zxid,
            nodes=len(tree),
            ephemerals=sum(len(tree.ephemerals(session_id)) for session_id in tree.sessions),
            data_bytes=sum(len(path) + len(node.data or b"") for path, node in tree.walk()),
            sessions=len(tree.sessions),
            watches=len(self.watches),
            watched_paths=self.watches.paths(),
            watching_connections=len(self.watches.watchers()),
            uptime_ms=int(self.now_ms() - self._started_ms),
            configuration={
                "clientPort": str(self.port),
                "tickTime": str(self.config.tick_ms),
                "maxClientCnxns": str(self.config.max_client_connections),
                "minSessionTimeout": str(sessions.min_timeout_ms),
                "maxSessionTimeout": str(sessions.max_timeout_ms),
                "serverId": "0",
            },
            environment={
                "host.name": platform.node(),
                "python.version": platform.python_version(),
                "os.name": platform.system(),
                "os.arch": platform.machine(),
                "os.version": platform.release(),
                "process.id": str(os.getpid()),
            },
        )


def _nothing(error: Exception | None) -> None:
    """Nobody waits for the end of a session that expired."""


class _Figures:
    """Counts and latencies of a server or a connection."""

    __slots__ = ("answered", "last_latency_ms", "max_latency_ms", "min_latency_ms", "received", "sent", "total_latency_ms")

    def __init__(self) -> None:
        self.received = self.sent = self.answered = 0
        self.last_latency_ms = self.min_latency_ms = self.max_latency_ms = self.total_latency_ms = 0.0

    def answer(self, latency_ms: float) -> None:
        if latency_ms < self.min_latency_ms or not self.answered:
            self.min_latency_ms = latency_ms
        if latency_ms > self.max_latency_ms:
            self.max_latency_ms = latency_ms
        self.last_latency_ms = latency_ms
        self.total_latency_ms += latency_ms
        self.answered += 1
        self.sent += 1

    def add(self, other: _Figures) -> None:
        if other.answered:
            self.min_latency_ms = other.min_latency_ms if not self.answered else min(self.min_latency_ms, other.min_latency_ms)
            self.max_latency_ms = max(self.max_latency_ms, other.max_latency_ms)
        self.received += other.received
        self.sent += other.sent
        self.answered += other.answered
        self.total_latency_ms += other.total_latency_ms

    @property
    def average_latency_ms(self) -> float:
        return self.total_latency_ms / self.answered if self.answered else 0.0


class _Slot:
    """A request's place in the order of answers: what its answer is, once that is known (`answer`), and the zxid of the state it belongs to.

    A slot with `read` is ready when its turn comes: it then reads what is committed."""

    __slots__ = ("answer", "begun_ms", "closes", "read", "size", "type", "xid", "zxid")

    def __init__(self, xid: int, kind: int, size: int, begun_ms: float) -> None:
        self.xid, self.type, self.size, self.begun_ms = xid, kind, size, begun_ms
        self.answer: bytes | bytearray | TreeCode | None = None  # the body, or why there is none
        self.read: Callable[[], bytes | bytearray | TreeCode] | None = None
        self.zxid: int | None = None
        self.closes = False


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._tree = server.tree.tree
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes | bytearray] = []
        self._unsent_bytes = 0
        self._now_ms = 0.0  # when the requests that are being taken arrived
        self._frames = Frames(ZOOKEEPER_REQUEST_MAX_BYTES)
        self._host = self._address = ""
        self._is_connected = False  # the ConnectRequest was taken
        self._opening = False
        self._hears_read_only = False
        self._is_full = False  # the socket takes no more
        self._is_paused = False  # nothing is read
        self._is_busy = False  # requests are being taken: what is answered meanwhile is sent by who takes them
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.slots: deque[_Slot] = deque()
        self.session_id = 0
        self.timeout_ms = 0
        self.identities: frozenset[Identity] = frozenset()
        self.is_closing_session = False
        self.figures = _Figures()
        self._established_ms = server.clock.now_ms()
        self._last_xid = self._last_zxid = 0
        self._last_kind: OpCode | None = None

    # The socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        server = self._server
        host, port = transport.get_extra_info("peername")[:2] if transport.get_extra_info("peername") else ("?", 0)
        self._host, self._address = str(host), f"{host}:{port}"
        limit = server.config.max_client_connections
        if limit and server.by_host[self._host] >= limit:
            logger.warning("a connection from %s is refused: it has %d already (maxClientCnxns)", self._host, limit)
            transport.abort()
            return
        self._transport = transport
        server.by_host[self._host] += 1
        server.connections[self] = None
        transport.set_write_buffer_limits(high=UNSENT_ANSWER_BYTES)
        self.identities = frozenset({Identity("ip", self._host.removeprefix("::ffff:"))})
        # A client has the longest timeout to say who it is.
        self._timer = asyncio.get_running_loop().call_later(server.sessions.max_timeout_ms / 1000, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()

    def close(self) -> None:
        """What was sent still leaves; nothing more is taken."""
        self.write_out()
        transport = self._transport
        self._gone()
        if transport is not None:
            if transport.get_write_buffer_size():
                # Not for ever: a client that does not read would keep its answers here.
                asyncio.get_running_loop().call_later(self._server.sessions.min_timeout_ms / 1000, transport.abort)
            transport.close()

    def end(self) -> None:
        """The server stops: what does not leave at once is dropped."""
        self.write_out()
        transport = self._transport
        self._gone()
        if transport is not None:
            transport.abort() if transport.get_write_buffer_size() else transport.close()

    def _abort(self) -> None:
        transport = self._transport
        self._gone()
        if transport is not None:
            transport.abort()

    def _gone(self) -> None:
        if self._transport is None:
            return
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._unsent.clear()
        self._unsent_bytes = 0
        server = self._server
        server._unsent.pop(self, None)
        server.connections.pop(self, None)
        server._figures.add(self.figures)
        server.by_host[self._host] -= 1
        if not server.by_host[self._host]:
            del server.by_host[self._host]
        server.watches.forget(self)
        if self.session_id:
            server.sessions.left(self.session_id, self)
        self.slots.clear()
        self._frames = Frames(0)  # what came of a frame may be a megabyte

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._proceed()
        self.write_out()

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._frames.feed(data)
            self._proceed()
            self.write_out()

    def _proceed(self) -> None:
        """Answers what is due and takes the requests that have arrived, as far as the limits go. `write_out` must follow, at once or after the commit."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            self._flush()
            self._take_frames()
        except MessageError as error:
            logger.info("the connection of %s is closed: %s", self._address, error)
            self.close()
        finally:
            self._is_busy = False
        if self._transport is not None and self._must_wait() != self._is_paused:
            self._is_paused = not self._is_paused
            if self._is_paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _take_frames(self) -> None:
        self._now_ms = now_ms = self._server.now_ms()
        self._server.sessions.heard(self.session_id, now_ms)
        while self._transport is not None and not self._must_wait():
            if not self._is_connected and self._word():
                return
            frame = self._frames.next()
            if frame is None:
                return
            if not self._is_connected:
                self._is_connected = True
                self.figures.received += 1
                self._connect(frame)
            elif not self.is_closing_session:
                self.figures.received += 1
                self._request(frame)

    def _must_wait(self) -> bool:
        return self._opening or self._is_full or len(self.slots) >= ZOOKEEPER_OUTSTANDING_MAX or self._held_bytes >= ZOOKEEPER_OUTSTANDING_BYTES

    def _send(self, frame: bytes) -> None:
        """Has a frame leave with the others that are being made, in their order (`write_out`)."""
        if self._transport is None:
            return
        if not self._unsent:
            self._server._unsent[self] = None
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if self._unsent_bytes > _WRITE_OUT_BYTES:
            self.write_out()

    def write_out(self) -> None:
        """Gives the socket what was sent."""
        if self._unsent and self._transport is not None:
            data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            del self._server._unsent[self]
            self._transport.write(data)

    def send_event(self, event: WatchEvent) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() + self._unsent_bytes > ZOOKEEPER_UNSENT_EVENTS_BYTES:
            logger.warning("the connection of %s is closed: it does not take its events", self._address)
            self._abort()
            return
        self.figures.sent += 1
        self._send(messages.reply(Xid.NOTIFICATION, -1, 0, messages.write(bytearray(), WatcherEvent(event.type, SYNC_CONNECTED, event.path))))

    # The beginning

    def _word(self) -> bool:
        """Answers a four-letter word, if that is what came."""
        first = self._frames.first()
        if first not in words.WORDS or self._transport is None:
            return False
        self._transport.write(words.answer(first, self._server.figures_for_words).encode())
        self.close()
        return True

    def _connect(self, frame: bytes) -> None:
        request, read_only = messages.read_connect(frame)
        self._hears_read_only = read_only is not None
        server = self._server
        if self._timer is not None:
            self._timer.cancel()
        if request.last_zxid_seen > server.tree.tree.last_zxid:
            logger.warning("the client at %s has seen zxid %#x, which is not here: it is sent to another server", self._address, request.last_zxid_seen)
            self.close()
            return
        if request.session_id == 0:
            self._opening = True
            timeout_ms = server.sessions.negotiated(request.timeout_ms)
            server.tree.open_client_session(timeout_ms, lambda session_id, error: self._opened(session_id, timeout_ms, error))
            return
        try:
            timeout_ms, before = server.sessions.reattach(request.session_id, request.password, request.timeout_ms, self, server.now_ms())
        except SessionExpiredError:
            self._tell_session(0, 0, bytes(PASSWORD_BYTES))
            self.close()
            return
        if before is not None and before is not self:
            before.close()
        self._welcome(request.session_id, timeout_ms)

    def _opened(self, session_id: int, timeout_ms: int, error: Exception | None) -> None:
        self._opening = False
        if error is not None:
            self.close()
            return
        is_here = self._transport is not None
        self._server.sessions.begin(session_id, timeout_ms, self if is_here else None, self._server.now_ms())
        if is_here:
            self._welcome(session_id, timeout_ms)
            self._proceed()

    def _welcome(self, session_id: int, timeout_ms: int) -> None:
        self.session_id, self.timeout_ms = session_id, timeout_ms
        self._tell_session(timeout_ms, session_id, self._server.sessions.password(session_id))

    def _tell_session(self, timeout_ms: int, session_id: int, password: bytes) -> None:
        # A client that asks whether it may be a read-only server is told that it is not one.
        answer = messages.write(bytearray(), ConnectResponse(0, timeout_ms, session_id, password))
        self._send(framed(answer + b"\x00" if self._hears_read_only else answer))

    # Requests

    def _request(self, frame: bytes) -> None:
        reader = Reader(frame)
        xid, kind = messages.read(RequestHeader, reader)
        slot = _Slot(xid, kind, len(frame), self._now_ms)
        self.slots.append(slot)
        self._held_bytes += slot.size
        self._last_xid = xid
        try:
            self._take(kind, reader, slot)
        except MessageError:
            slot.answer = TreeCode.MARSHALLING_ERROR
        except TreeError as error:
            slot.answer = error.code
        self._flush()

    def _take(self, number: int, reader: Reader, slot: _Slot) -> None:
        """Submits a write, or says how the slot is answered when its turn comes."""
        server = self._server
        kind = _KINDS.get(number)
        if kind is None:
            slot.answer, slot.zxid, slot.closes = TreeCode.UNIMPLEMENTED, -1, True
            return
        self._last_kind = kind
        if kind in _READS:
            body = messages.read(REQUESTS[kind], reader)
            slot.read = lambda: self._read(kind, body)
        elif kind in _WRITES:
            operation = self._operation(kind, messages.read(REQUESTS[kind], reader))
            self._submit(slot, (operation,), lambda results: messages.write(bytearray(), _response(kind, results[0])))
        elif kind is OpCode.MULTI:
            operations = messages.read_multi(reader, MULTI_TYPES | {OpCode.CREATE_CONTAINER})
            self._multi(slot, operations)
        elif kind is OpCode.MULTI_READ:
            reads = messages.read_multi(reader, MULTI_READ_TYPES)
            slot.read = lambda: messages.write_multi_response(bytearray(), [self._read_one(one) for one in reads])
        elif kind is OpCode.PING:
            slot.answer = b""
        elif kind is OpCode.SYNC:
            path = messages.read(REQUESTS[kind], reader)
            server.tree.wait(lambda _, error: self._done(slot, messages.write(bytearray(), PathResponse(*path)) if error is None else _code(error)))
        elif kind is OpCode.AUTH:
            self._authenticate(slot, *messages.read(messages.AuthPacket, reader))
        elif kind in (OpCode.SET_WATCHES, OpCode.SET_WATCHES2):
            body = messages.read(REQUESTS[kind], reader)
            if isinstance(body, SetWatches2):
                if body.persistent_watches or body.persistent_recursive_watches:
                    raise UnimplementedError("/", "persistent watches")
                body = SetWatches(*body[:4])
            assert isinstance(body, SetWatches)
            watches = body
            slot.read = lambda: self._set_watches(watches)
        elif kind is OpCode.CLOSE_SESSION:
            self.is_closing_session = True
            slot.closes = True
            server.close_session(self.session_id, lambda error: self._done(slot, b"" if error is None else _code(error)))
        elif kind in _KNOWN:
            raise UnimplementedError("/", kind.name)
        else:
            slot.answer, slot.zxid, slot.closes = TreeCode.UNIMPLEMENTED, -1, True

    def _submit(self, slot: _Slot, operations: tuple[Operation, ...], encode: Callable[[tuple[Result, ...]], bytearray], *, is_multi: bool = False) -> None:
        def done(results: tuple[Result, ...], error: Exception | None) -> None:
            if error is None:
                self._done(slot, encode(results))
            elif is_multi and not isinstance(error, ConnectionLossError | SessionExpiredError):
                self._done(slot, _multi_refused(error, len(operations)))
            else:
                self._done(slot, _code(error))

        self._server.tree.submit(Multi(self.session_id, operations, self.identities), done)

    def _done(self, slot: _Slot, answer: bytes | bytearray | TreeCode) -> None:
        """A write was committed or refused; what is committed at this moment is what its answer speaks of."""
        slot.answer = answer
        slot.zxid = self._tree.last_zxid
        if self._transport is not None and self.slots and self.slots[0] is slot and not self._is_busy:
            self._proceed()

    def _flush(self) -> None:
        """Sends what is due: answers from the first on, as long as they are known and the client takes them."""
        slots = self.slots
        if not slots or (slots[0].answer is None and slots[0].read is None):
            return
        server = self._server
        now_ms = server.now_ms()
        while slots and not self._is_full and self._transport is not None:
            slot = slots[0]
            answer = slot.answer
            if answer is None:
                if slot.read is None:
                    return
                answer = slot.read()
            slots.popleft()
            self._held_bytes -= slot.size
            zxid = self._tree.last_zxid if slot.zxid is None else slot.zxid
            if slot.type == OpCode.AUTH:
                zxid = 0
            self._last_zxid = zxid
            self.figures.answer(now_ms - slot.begun_ms)
            if not isinstance(answer, TreeCode):
                self._send(messages.reply(slot.xid, zxid, 0, answer))
            elif answer is TreeCode.CONNECTION_LOSS and server.tree.failure is not None:
                # What is on the disk is in doubt, and nothing more will be done here.
                self.write_out()
                self._abort()
                return
            else:
                self._send(messages.reply(slot.xid, zxid, answer))
            if slot.closes:
                self.close()

    # Writing

    def _operation(self, kind: OpCode, body: Any) -> Operation:
        if kind is OpCode.CREATE_CONTAINER:
            raise UnimplementedError(body.path, "containers")
        if kind in (OpCode.CREATE, OpCode.CREATE2):
            path, data, acl, flags = body
            if not 0 <= flags <= 3:
                raise UnimplementedError(path, "containers and times to live") if 4 <= flags <= 6 else BadArgumentsError(path, f"flags {flags}")
            return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL), completed(path, acl, self.identities))
        if kind is OpCode.DELETE:
            return Delete(*body)
        if kind is OpCode.SET_DATA:
            return SetData(*body)
        if kind is OpCode.SET_ACL:
            path, acl, version = body
            return SetAcl(path, completed(path, acl, self.identities), version)
        return Check(*body)

    def _multi(self, slot: _Slot, requests: tuple[SubRequest, ...]) -> None:
        operations: list[Operation] = []
        for index, (kind, body) in enumerate(requests):
            try:
                operations.append(self._operation(kind, body))
            except UnimplementedError:
                raise
            except TreeError as error:
                slot.answer = _multi_refused(MultiError(index, len(requests), error), len(requests))
                return
        if not operations:
            slot.answer = messages.write_multi_response(bytearray(), ())
            return

        def encode(results: tuple[Result, ...]) -> bytearray:
            answers = [SubResponse(kind, 0, _response(kind, result)) for (kind, _), result in zip(requests, results, strict=True)]
            return messages.write_multi_response(bytearray(), answers)

        self._submit(slot, tuple(operations), encode, is_multi=True)

    def _authenticate(self, slot: _Slot, _: int, scheme: str, auth: bytes) -> None:
        slot.answer = b""
        if scheme == "digest" and len(self.identities) < ZOOKEEPER_IDENTITIES_MAX:
            self.identities |= {digest_identity(auth)}
        elif scheme != "ip":
            slot.answer, slot.closes = TreeCode.AUTH_FAILED, True

    # Reading

    def _read(self, kind: OpCode, body: Any) -> bytes | bytearray | TreeCode:
        try:
            return messages.write(bytearray(), self._found(kind, body))
        except TreeError as error:
            return error.code

    def _read_one(self, request: SubRequest) -> SubResponse:
        """One of several reads, which stands for itself."""
        try:
            return SubResponse(request.type, 0, self._found(request.type, request.body))
        except TreeError as error:
            return SubResponse(OpCode.ERROR, error.code, None)

    def _found(self, kind: OpCode, body: Any) -> Message:
        tree, path = self._tree, body.path or "/"
        if self._server.tree.failure is not None:
            raise ConnectionLossError(path, self._server.tree.failure)
        try:
            node = tree.find(path)
        except BadArgumentsError:
            raise NoNodeError(path) from None  # as ZooKeeper: nobody can be there
        if kind is OpCode.GET_EPHEMERALS:
            prefix = path
            return NamesResponse(tuple([own for own in tree.ephemerals(self.session_id) if own.startswith(prefix)]))
        if node is None:
            if kind is OpCode.EXISTS and body.watch:
                self._watch_data(path)
            raise NoNodeError(path)
        if not permits(node.acl, READ | ADMIN if kind is OpCode.GET_ACL else READ, self.identities):
            raise NoAuthError(path)
        watch = kind is not OpCode.GET_ACL and kind is not OpCode.GET_ALL_CHILDREN_NUMBER and body.watch
        match kind:
            case OpCode.GET_DATA:
                found: Message = GetDataResponse(node.data, node.stat)
            case OpCode.EXISTS:
                found = StatResponse(node.stat)
            case OpCode.GET_ACL:
                found = GetAclResponse(shown(node.acl, self.identities), node.stat)
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
                self._watch_data(path)
            else:
                self._watch_children(path)
        return found

    # Watches

    def _set_watches(self, request: SetWatches) -> bytes:
        """Watches as they were on another connection; what has changed since then is told at once, in the order of the changes, and its watch is used up.

        When a node was deleted is not known any more: those come first."""
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
                self._watch_data(path)
        for path in request.exist_watches:
            stat = _stat(tree, path)
            if stat is not None:
                missed.append((stat.czxid, WatchEvent(EventType.NODE_CREATED, path)))
            else:
                self._watch_data(path)
        for path in request.child_watches:
            stat = _stat(tree, path)
            if stat is None:
                missed.append((0, WatchEvent(EventType.NODE_DELETED, path)))
            elif stat.pzxid > since:
                missed.append((stat.pzxid, WatchEvent(EventType.NODE_CHILDREN_CHANGED, path)))
            else:
                self._watch_children(path)
        missed.sort(key=itemgetter(0))
        for _, event in missed:
            self.send_event(event)
        return b""

    def _watch_data(self, path: str) -> None:
        self._server.watches.watch_data(path, self)
        self._limit_watches()

    def _watch_children(self, path: str) -> None:
        self._server.watches.watch_children(path, self)
        self._limit_watches()

    def _limit_watches(self) -> None:
        if self._server.watches.count(self) > ZOOKEEPER_WATCHES_MAX:
            logger.warning("the connection of %s is closed: it has more than %d watches", self._address, ZOOKEEPER_WATCHES_MAX)
            self._abort()

    def figures_for_words(self) -> words.ConnectionFigures:
        figures = self.figures
        return words.ConnectionFigures(
            address=self._address,
            queued=len(self.slots),
            received=figures.received,
            sent=figures.sent,
            session_id=self.session_id,
            last_operation="NA" if self._last_kind is None else _SHORT_NAMES.get(self._last_kind, self._last_kind.name),
            established_ms=self._established_ms,
            timeout_ms=self.timeout_ms,
            last_xid=self._last_xid,
            last_zxid=self._last_zxid,
            last_latency_ms=int(figures.last_latency_ms),
            min_latency_ms=int(figures.min_latency_ms),
            average_latency_ms=int(figures.average_latency_ms),
            max_latency_ms=int(figures.max_latency_ms),
        )


def _response(kind: OpCode, result: Result) -> Message:
    """The body of the answer to a write that was done."""
    if kind is OpCode.CREATE:
        return PathResponse(result.path)
    if result.stat is None or kind in (OpCode.DELETE, OpCode.CHECK):
        return EmptyResponse()
    if kind is OpCode.CREATE2:
        return PathAndStatResponse(result.path, result.stat)
    return StatResponse(result.stat)


def _multi_refused(error: Exception, count: int) -> bytearray:
    """The answer to a multi of which nothing was done: what became of each operation."""
    refused = error if isinstance(error, MultiError) else MultiError(0, count, error if isinstance(error, TreeError) else TreeError("/"))
    return messages.write_multi_response(bytearray(), [SubResponse(OpCode.ERROR, code, None) for code in refused.codes])


def _code(error: Exception) -> TreeCode:
    return error.code if isinstance(error, TreeError) else TreeCode.SYSTEM_ERROR


def _stat(tree: Tree, path: str) -> Stat | None:
    try:
        return tree.exists(path)
    except BadArgumentsError:
        return None
