"""One client's connection to the tree's server: its requests in their order, their answers in the same order, its watches' events between them.

    bytes -> frames -> slot for each request -> write submitted | read waiting for its turn -> answer -> socket

A slot is answered when those before it are. `server` says what answers and events promise."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from jesenska.base.limits import (
    UNSENT_ANSWER_BYTES,
    ZOOKEEPER_IDENTITIES_MAX,
    ZOOKEEPER_OUTSTANDING_BYTES,
    ZOOKEEPER_OUTSTANDING_MAX,
    ZOOKEEPER_REQUEST_MAX_BYTES,
    ZOOKEEPER_UNSENT_EVENTS_BYTES,
    ZOOKEEPER_WATCHES_MAX,
)
from jesenska.metadata.acl import Identity, digest_identity, permits, shown
from jesenska.metadata.tree import Multi, Tree
from jesenska.metadata.tree_operations import (
    ADMIN,
    READ,
    BadArgumentsError,
    ConnectionLossError,
    MultiError,
    NoAuthError,
    NoNodeError,
    Operation,
    Result,
    SessionExpiredError,
    Stat,
    TreeCode,
    TreeError,
    UnimplementedError,
)
from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper import four_letter_words, messages
from jesenska.metadata.zookeeper.frames import Frames, framed
from jesenska.metadata.zookeeper.messages import (
    MULTI_READ_TYPES,
    MULTI_TYPES,
    PASSWORD_BYTES,
    REQUESTS,
    SYNC_CONNECTED,
    ConnectResponse,
    GetAclResponse,
    GetChildren2Response,
    GetDataResponse,
    Message,
    MessageError,
    NamesResponse,
    NumberResponse,
    OpCode,
    PathResponse,
    Reader,
    RequestHeader,
    SetWatches,
    SetWatches2,
    StatResponse,
    SubRequest,
    SubResponse,
    WatcherEvent,
    WatcherKind,
    WatchesRequest,
    WhoAmIResponse,
    Xid,
)
from jesenska.metadata.zookeeper.operations import code_of, operation_of, refused_multi, response_to
from jesenska.metadata.zookeeper.serving import Serving

logger = logging.getLogger(__name__)

_WRITES = frozenset({OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA, OpCode.SET_ACL, OpCode.CHECK})
_READS = frozenset(
    {OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_ACL, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2, OpCode.GET_EPHEMERALS, OpCode.GET_ALL_CHILDREN_NUMBER}
)
_KNOWN = frozenset({OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL, OpCode.RECONFIG, OpCode.ADD_WATCH, OpCode.SASL})
_KINDS = {int(kind): kind for kind in OpCode}
#: Answers and events of a connection that are gathered before the socket is given them.
_WRITE_OUT_BYTES = 64 * 1024
#: Words of `cons` for the last operation.
_SHORT_NAMES = {OpCode.CREATE: "CREA", OpCode.DELETE: "DELE", OpCode.EXISTS: "EXIS", OpCode.GET_DATA: "GETD", OpCode.SET_DATA: "SETD", OpCode.MULTI: "MULT",
                OpCode.GET_CHILDREN: "GETC", OpCode.GET_CHILDREN2: "GETC", OpCode.PING: "PING", OpCode.CLOSE_SESSION: "CLOS"}  # fmt: skip


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


class ZooKeeperConnection:
    """One client's connection: an asyncio.Protocol that does not say so, for what is compiled has no base that is not."""

    def __init__(self, server: Serving) -> None:
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
        self.figures = four_letter_words.Figures()
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

    def eof_received(self) -> None:
        """The client sends no more: the transport closes itself."""

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
        server.unsent.pop(self, None)
        server.connections.pop(self, None)
        server.ended_figures.add(self.figures)
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
            self._server.unsent[self] = None
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
            del self._server.unsent[self]
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
        if first not in four_letter_words.WORDS or self._transport is None:
            return False
        self._transport.write(four_letter_words.answer(first, self._server.figures_for_words).encode())
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
            operation = operation_of(kind, messages.read(REQUESTS[kind], reader), self.identities)
            self._submit(slot, (operation,), lambda results: messages.write(bytearray(), response_to(kind, results[0])))
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
            server.tree.wait(lambda _, error: self._done(slot, messages.write(bytearray(), PathResponse(*path)) if error is None else code_of(error)))
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
        elif kind in (OpCode.CHECK_WATCHES, OpCode.REMOVE_WATCHES):
            meant = messages.read(WatchesRequest, reader)
            slot.read = lambda: self._own_watches(meant, removes=kind is OpCode.REMOVE_WATCHES)
        elif kind is OpCode.WHO_AM_I:
            # Of a digest the name alone: what stands behind it follows from the password.
            named = sorted((identity.scheme, identity.id.partition(":")[0] if identity.scheme == "digest" else identity.id) for identity in self.identities)
            slot.answer = messages.write(bytearray(), WhoAmIResponse(tuple(named)))
        elif kind is OpCode.CLOSE_SESSION:
            self.is_closing_session = True
            slot.closes = True
            server.close_session(self.session_id, lambda error: self._done(slot, b"" if error is None else code_of(error)))
        elif kind in _KNOWN:
            raise UnimplementedError("/", kind.name)
        else:
            slot.answer, slot.zxid, slot.closes = TreeCode.UNIMPLEMENTED, -1, True

    def _submit(self, slot: _Slot, operations: tuple[Operation, ...], encode: Callable[[tuple[Result, ...]], bytearray], *, is_multi: bool = False) -> None:
        def done(results: tuple[Result, ...], error: Exception | None) -> None:
            if error is None:
                self._done(slot, encode(results))
            elif is_multi and not isinstance(error, ConnectionLossError | SessionExpiredError):
                self._done(slot, refused_multi(error, len(operations)))
            else:
                self._done(slot, code_of(error))

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

    def _multi(self, slot: _Slot, requests: tuple[SubRequest, ...]) -> None:
        operations: list[Operation] = []
        for index, (kind, body) in enumerate(requests):
            try:
                operations.append(operation_of(kind, body, self.identities))
            except UnimplementedError:
                raise
            except TreeError as error:
                slot.answer = refused_multi(MultiError(index, len(requests), error), len(requests))
                return
        if not operations:
            slot.answer = messages.write_multi_response(bytearray(), ())
            return

        def encode(results: tuple[Result, ...]) -> bytearray:
            answers = [SubResponse(kind, 0, response_to(kind, result)) for (kind, _), result in zip(requests, results, strict=True)]
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

    def _own_watches(self, meant: WatchesRequest, *, removes: bool) -> bytes | TreeCode:
        """Whether this client has such a watch; with `removes` it is dropped."""
        data, children = meant.kind in (WatcherKind.DATA, WatcherKind.ANY), meant.kind in (WatcherKind.CHILDREN, WatcherKind.ANY)
        if not data and not children:
            return TreeCode.MARSHALLING_ERROR
        watches = self._server.watches
        found = watches.remove(meant.path, self, data=data, children=children) if removes else watches.has(meant.path, self, data=data, children=children)
        return b"" if found else TreeCode.NO_WATCHER

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

    def figures_for_words(self) -> four_letter_words.ConnectionFigures:
        figures = self.figures
        return four_letter_words.ConnectionFigures(
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


def _stat(tree: Tree, path: str) -> Stat | None:
    try:
        return tree.exists(path)
    except BadArgumentsError:
        return None
