"""One client's connection to the ZooKeeper server. It takes the client's requests in order, sends the answers in the
same order, and sends watch events between them.

    bytes -> frames -> slot for each request -> write submitted | read waiting for its turn -> answer -> socket

A slot keeps a request's place in the order of the answers: the request is answered after the requests in the slots
before it. `requests` handles each request. `server` describes what is guaranteed about the order of answers and
events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from jesenska.base.limits import (
    UNSENT_ANSWER_BYTES,
    ZOOKEEPER_OUTSTANDING_BYTES,
    ZOOKEEPER_OUTSTANDING_MAX,
    ZOOKEEPER_REQUEST_MAX_BYTES,
    ZOOKEEPER_UNSENT_EVENTS_BYTES,
    ZOOKEEPER_WATCHES_MAX,
)
from jesenska.metadata.acl import Identity, permits
from jesenska.metadata.tree_operations import READ, SessionExpiredError, TreeCode, TreeError
from jesenska.metadata.watches import WatchEvent
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.frames import Frames, framed
from jesenska.metadata.zookeeper.messages import (
    PASSWORD_BYTES,
    SYNC_CONNECTED,
    ConnectResponse,
    MessageError,
    OpCode,
    Reader,
    RequestHeader,
    WatcherEvent,
    Xid,
)
from jesenska.metadata.zookeeper.server import four_letter_words
from jesenska.metadata.zookeeper.server.guard import STRANGERS_REQUEST_MAX_BYTES
from jesenska.metadata.zookeeper.server.reads import Caller
from jesenska.metadata.zookeeper.server.requests import Requests
from jesenska.metadata.zookeeper.server.serving import ServedConnection, Serving
from jesenska.metadata.zookeeper.server.slots import Answer, Slot

logger = logging.getLogger(__name__)

#: When the gathered answers and events of a connection exceed this number of bytes, they are written to the socket.
_WRITE_OUT_BYTES = 64 * 1024
#: The abbreviations of the last operation in the output of `cons`.
_SHORT_NAMES = {
    OpCode.CREATE: "CREA",
    OpCode.DELETE: "DELE",
    OpCode.EXISTS: "EXIS",
    OpCode.GET_DATA: "GETD",
    OpCode.SET_DATA: "SETD",
    OpCode.MULTI: "MULT",
    OpCode.GET_CHILDREN: "GETC",
    OpCode.GET_CHILDREN2: "GETC",
    OpCode.PING: "PING",
    OpCode.CLOSE_SESSION: "CLOS",
}


class ZooKeeperConnection(ServedConnection):
    """One client's connection to the ZooKeeper server. It has the methods of asyncio.Protocol but does not inherit
    from it, because a compiled class cannot have a base class that is not compiled."""

    def __init__(self, server: Serving) -> None:
        super().__init__()
        self._server = server
        self._tree = server.tree.tree
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes | bytearray] = []
        self._unsent_bytes = 0
        self._now_ms = 0.0  # arrival time of the current requests
        self._frames = Frames(STRANGERS_REQUEST_MAX_BYTES if server.guard.required else ZOOKEEPER_REQUEST_MAX_BYTES)
        self._host = self._address = ""
        self._is_connected = False  # the ConnectRequest has been read
        self._opening = False
        self._hears_read_only = False
        self._is_full = False  # the socket accepts no more
        self._is_paused = False  # reading is paused
        self._is_busy = False  # requests are being handled: the handler sends their answers
        self._held_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self.slots: deque[Slot] = deque()
        self._caller = Caller()
        self._requests = Requests(server, self._caller)
        self.timeout_ms = 0
        self._established_ms = server.clock.now_ms()
        self._last_xid = self._last_zxid = 0

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
        caller = self._caller
        caller.identities = server.guard.completed(self._first_identities(transport))
        caller.is_admitted = server.guard.admits(caller.identities)
        if caller.is_admitted:
            self._frames.max_bytes = ZOOKEEPER_REQUEST_MAX_BYTES
            # A client must send its ConnectRequest within the longest timeout.
            self._timer = asyncio.get_running_loop().call_later(server.sessions.max_timeout_ms / 1000, self.close)
            return
        server.strangers[self] = None
        if len(server.strangers) > server.guard.strangers_max:
            next(iter(server.strangers)).login_failed("too many clients have not logged in yet")
            next(iter(server.strangers)).close()
        self._timer = asyncio.get_running_loop().call_later(server.guard.login_seconds, self._too_late)

    def _first_identities(self, transport: asyncio.Transport) -> frozenset[Identity]:
        """Returns the identities that a client has before its first request: its address, and the subject of its
        certificate, if it has shown one."""
        found = {Identity("ip", self._host.removeprefix("::ffff:"))}
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(True) if tls is not None else None
        if certificate:
            from jesenska.security.x500 import DerError, subject_name

            try:
                found.add(Identity("x509", subject_name(certificate)))
            except DerError as error:
                logger.warning("the certificate of %s has no name that can be read: %s", self._address, error)
        return frozenset(found)

    def _too_late(self) -> None:
        self.login_failed("it has not logged in in time")
        self.close()

    def admitted(self) -> None:
        """Called when the client has become known: it may use the tree from now on."""
        self._server.strangers.pop(self, None)
        self._server.strange_sessions.discard(self._caller.session_id)
        self._server.sessions.heard(self._caller.session_id, self._server.now_ms())
        self._frames.max_bytes = ZOOKEEPER_REQUEST_MAX_BYTES
        if self._timer is not None:
            self._timer.cancel()

    def _end_strange_session(self, session_id: int) -> None:
        """Closes a session that no admitted client has used, if it has no connection any more."""
        server = self._server
        if session_id in server.strange_sessions and server.sessions.connection(session_id) is None:
            server.strange_sessions.discard(session_id)
            server.close_session(session_id, _nothing)

    def login_failed(self, reason: str) -> None:
        """Logs that the client could not log in."""
        logger.warning(
            "the client at %s is refused: %s", self._address, reason, extra={"once_a_minute": (self._host, "login")}
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone()

    def eof_received(self) -> None:
        """Does nothing when the client has closed its sending side: the transport then closes itself."""

    def close(self) -> None:
        """Closes the connection. Gathered answers are still sent; no more requests are read."""
        self.write_out()
        transport = self._transport
        self._gone()
        if transport is not None:
            if transport.get_write_buffer_size():
                # The transport is aborted after a time limit: a client that does not read would keep its answers in
                # memory.
                asyncio.get_running_loop().call_later(self._server.sessions.min_timeout_ms / 1000, transport.abort)
            transport.close()

    def end(self) -> None:
        """Ends the connection when the server stops. Data that cannot be sent at once is dropped."""
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
        server.strangers.pop(self, None)
        server.ended_figures.add(self.figures)
        server.by_host[self._host] -= 1
        if not server.by_host[self._host]:
            del server.by_host[self._host]
        server.watches.forget(self)
        if self._caller.session_id:
            server.sessions.left(self._caller.session_id, self)
            self._end_strange_session(self._caller.session_id)
        self.slots.clear()
        self._frames = Frames(0)  # the rest of a frame may be a megabyte

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
        """Sends the answers that are due, then handles the requests that have arrived, within the limits for requests
        in progress. The caller must call `write_out` afterwards, at once or after the commit."""
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
        if self._caller.is_admitted:
            self._server.sessions.heard(self._caller.session_id, now_ms)
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
        return (
            self._opening
            or self._is_full
            or len(self.slots) >= ZOOKEEPER_OUTSTANDING_MAX
            or self._held_bytes >= ZOOKEEPER_OUTSTANDING_BYTES
        )

    def _send(self, frame: bytes) -> None:
        """Adds a frame to the gathered frames, which `write_out` sends in order. Calls `write_out` if the gathered
        frames exceed `_WRITE_OUT_BYTES`."""
        if self._transport is None:
            return
        if not self._unsent:
            self._server.unsent[self] = None
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        if self._unsent_bytes > _WRITE_OUT_BYTES:
            self.write_out()

    def write_out(self) -> None:
        """Writes the gathered frames (answers and events) to the socket."""
        if self._unsent and self._transport is not None:
            data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            del self._server.unsent[self]
            self._transport.write(data)

    def may_see(self, event: WatchEvent) -> bool:
        """Returns True if the client may read the node of an event, which may be deleted."""
        tree = self._tree
        acl = tree.deleted_acls.get(event.path)
        if acl is None:
            node = tree.find(event.path)
            if node is None:
                return True
            acl = node.acl
        return permits(acl, READ, self._caller.identities)

    def send_event(self, event: WatchEvent) -> None:
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size() + self._unsent_bytes > ZOOKEEPER_UNSENT_EVENTS_BYTES:
            logger.warning("the connection of %s is closed: it does not read its watch events", self._address)
            self._abort()
            return
        self.figures.sent += 1
        self._send(
            messages.reply(
                Xid.NOTIFICATION,
                -1,
                0,
                messages.write(bytearray(), WatcherEvent(event.type, SYNC_CONNECTED, event.path)),
            )
        )

    # The beginning of a connection

    def _word(self) -> bool:
        """Answers a four-letter word such as `ruok`, and closes the connection. Returns False if the connection does
        not begin with such a word."""
        first = self._frames.first()
        words = four_letter_words.WORDS if self._caller.is_admitted else four_letter_words.WORDS_FOR_STRANGERS
        if first not in words or self._transport is None:
            return False
        self._transport.write(four_letter_words.answer(first, self._server.figures_for_words).encode())
        self.close()
        return True

    def _connect(self, frame: bytes) -> None:
        request, read_only = messages.read_connect(frame)
        self._hears_read_only = read_only is not None
        server = self._server
        if self._timer is not None and self._caller.is_admitted:
            self._timer.cancel()
        if request.last_zxid_seen > server.tree.tree.last_zxid:
            logger.warning(
                "the client at %s has seen zxid %#x, but this tree is older, so the client must connect to "
                "another server. If the tree was lost or restored from a copy, start its brokers again",
                self._address,
                request.last_zxid_seen,
                extra={"once_a_minute": ("", "zxid")},
            )
            self.close()
            return
        if request.session_id == 0:
            self._opening = True
            timeout_ms = server.sessions.negotiated(request.timeout_ms)
            server.tree.open_client_session(
                timeout_ms, lambda session_id, error: self._opened(session_id, timeout_ms, error)
            )
            return
        try:
            timeout_ms, before = server.sessions.reattach(
                request.session_id,
                request.password,
                request.timeout_ms,
                self,
                server.now_ms(),
                is_heard=self._caller.is_admitted,
            )
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
        if not self._caller.is_admitted:
            self._server.strange_sessions.add(session_id)
        if is_here:
            self._welcome(session_id, timeout_ms)
            self._proceed()
        else:
            self._end_strange_session(session_id)

    def _welcome(self, session_id: int, timeout_ms: int) -> None:
        self._caller.session_id, self.timeout_ms = session_id, timeout_ms
        self._tell_session(timeout_ms, session_id, self._server.sessions.password(session_id))

    def _tell_session(self, timeout_ms: int, session_id: int, password: bytes) -> None:
        # A client that sent the byte about read-only servers gets a byte back: 0, this server is not read-only.
        answer = messages.write(bytearray(), ConnectResponse(0, timeout_ms, session_id, password))
        self._send(framed(answer + b"\x00" if self._hears_read_only else answer))

    # Requests

    def _request(self, frame: bytes) -> None:
        reader = Reader(frame)
        xid, kind = messages.read(RequestHeader, reader)
        slot = Slot(xid, kind, len(frame), self._now_ms)
        self.slots.append(slot)
        self._held_bytes += slot.size
        self._last_xid = xid
        try:
            self._requests.take(kind, reader, slot, self)
        except MessageError:
            slot.answer = TreeCode.MARSHALLING_ERROR
        except TreeError as error:
            slot.answer = error.code
        self._flush()

    def done(self, slot: Slot, answer: Answer) -> None:
        """Takes the answer to a write that was committed or refused. The answer has the zxid of the tree's last
        committed transaction at this moment."""
        slot.answer = answer
        slot.zxid = self._tree.last_zxid
        if self._transport is not None and self.slots and self.slots[0] is slot and not self._is_busy:
            self._proceed()

    def _flush(self) -> None:
        """Sends the answers that are due, in order. Stops at the first request that has no answer yet, or when the
        client does not read."""
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
                # The disk's content is unknown after a failed write, so this server handles no more requests.
                self.write_out()
                self._abort()
                return
            else:
                self._send(messages.reply(slot.xid, zxid, answer, slot.after_error))
            if slot.closes:
                self.close()

    def too_many_watches(self) -> None:
        """Closes the connection because its client has too many watches."""
        logger.warning(
            "the connection of %s is closed: it has more than %d watches", self._address, ZOOKEEPER_WATCHES_MAX
        )
        self._abort()

    def outstanding(self) -> int:
        return len(self.slots)

    def figures_for_words(self) -> four_letter_words.ConnectionFigures:
        figures, last_kind = self.figures, self._requests.last_kind
        return four_letter_words.ConnectionFigures(
            address=self._address,
            queued=self.outstanding(),
            received=figures.received,
            sent=figures.sent,
            session_id=self._caller.session_id,
            last_operation="NA" if last_kind is None else _SHORT_NAMES.get(last_kind, last_kind.name),
            established_ms=self._established_ms,
            timeout_ms=self.timeout_ms,
            last_xid=self._last_xid,
            last_zxid=self._last_zxid,
            last_latency_ms=int(figures.last_latency_ms),
            min_latency_ms=int(figures.min_latency_ms),
            average_latency_ms=int(figures.average_latency_ms),
            max_latency_ms=int(figures.max_latency_ms),
        )


def _nothing(error: Exception | None) -> None:
    """Does nothing with the result: no client waits for the end of a stranger's session."""
