"""A client's session on a ZooKeeper server. It outlives connections: on each new connection the client sends the
session's id and password.

    connect --> CONNECTED -- the connection ends, or nothing arrives for two thirds of the timeout --> SUSPENDED
                    ^                                                           the timeout has passed |
                    +---- another connection, and the server knows the session ---- SUSPENDED, LOST <--+
                                                      it does not know it any more --> EXPIRED

One task tries the servers in turn as long as the session may still exist. On a new connection it sends the session's
id and password, logs in (SASL) if there is a login, then sends the identities, and sets the watches again
(`client.watches`). The session is CONNECTED when this is done. When a connection ends, the requests
in flight fail with ConnectionLossError. Requests made without a connection fail in the same way. The callers wait for
CONNECTED and decide whether to repeat a request. Answers arrive in the order of the requests.

Sources: ZooKeeper's Programmer's Guide (sessions, watches)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from jesenska.base.backoff import Backoff
from jesenska.base.clock import Random
from jesenska.base.limits import TREE_PENDING_MAX
from jesenska.metadata.store import SessionState, StateCallback
from jesenska.metadata.tree_operations import (
    ConnectionLossError,
    MultiError,
    NoAuthError,
    SessionExpiredError,
    TreeCode,
    TreeError,
)
from jesenska.metadata.watches import EventType, WatchEvent
from jesenska.metadata.zookeeper import messages
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.link import Link
from jesenska.metadata.zookeeper.client.operations import LOGIN_REQUIRED, require_ok
from jesenska.metadata.zookeeper.client.watches import ClientWatches
from jesenska.metadata.zookeeper.messages import (
    PASSWORD_BYTES,
    AuthPacket,
    ConnectRequest,
    ConnectResponse,
    Message,
    MessageError,
    OpCode,
    Reader,
    ReplyHeader,
    RequestHeader,
    SaslToken,
    WatcherEvent,
    Xid,
)
from jesenska.metadata.zookeeper.streams import Streams
from jesenska.security.sasl import SaslError

if TYPE_CHECKING:
    from jesenska.security.digest_md5 import DigestMd5Client

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0
#: A connection that has lasted this long counts as accepted: after it ends, the pauses between attempts to connect
#: start again at the shortest pause.
_STEADY_SECONDS = 2.0
#: After this many handshakes in a row that a server ended without an answer, the client logs a warning. A single such
#: handshake may be due to a stop of the server.
_SHUT_OUT_TIMES = 3


class NoSessionError(ConnectionLossError):
    """Raised when a server accepts connections but ends each connection instead of opening a session."""


class TlsFailedError(ConnectionLossError):
    """Raised when the TLS handshake with a server fails. `reason` is OpenSSL's reason."""


def no_session(servers: str) -> str:
    """Returns the message for the user when a server ends every connection instead of opening a session."""
    return (
        f"The server at {servers} closes every connection. Either it is not a ZooKeeper, or its log says why it "
        "closes them (a full disk, too many connections from one address, or TLS or a client certificate is "
        "required)."
    )


class _Asked:
    """A request without an answer yet, with the function that decodes its answer."""

    __slots__ = ("decode", "future", "path", "xid")

    def __init__(
        self, xid: int, path: str, decode: Callable[[TreeCode | int, Reader], Any], future: asyncio.Future[Any]
    ) -> None:
        self.xid, self.path, self.decode, self.future = xid, path, decode, future


class ClientSession:
    """A client's session on a ZooKeeper server, from `open` to `close`. See the module for its states."""

    def __init__(
        self,
        where: ConnectString,
        session_timeout_ms: int,
        auth: Sequence[tuple[str, bytes]],
        streams: Streams,
        random: Random,
        access: TreeAccess | None = None,
    ) -> None:
        self._where = where
        self._streams = streams
        self._access = access or TreeAccess()
        #: The login that is in progress on the current connection.
        self._exchange: DigestMd5Client | None = None
        #: The reason why the last login failed; empty if it succeeded.
        self._login_failure = ""
        #: The reason why the last TLS handshake failed; empty if it succeeded.
        self._tls_failure = ""
        self._servers = list(where.servers)
        random.shuffle(self._servers)
        self._backoff = Backoff(
            _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, random.random, is_shortened=True, is_first_at_once=True
        )
        #: The session's timeout in milliseconds: the timeout that the server granted; before the server's first
        #: answer, the requested timeout.
        self.timeout_ms = session_timeout_ms
        self._auth = tuple(auth)
        #: Id and password, by which a server recognizes the session on a new connection.
        self.session_id = 0
        self.password = bytes(PASSWORD_BYTES)
        self.state = SessionState.SUSPENDED
        self.state_callbacks: list[StateCallback] = []
        self._link: Link | None = None
        self._asked: deque[_Asked] = deque()
        self._last_xid = 0
        self._last_zxid = 0
        #: Number of connections in a row that the server ended instead of answering the handshake.
        self._shut_out = 0
        self._heard = self._sent = 0.0
        self.watches = ClientWatches()
        self._first: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost_timer: asyncio.TimerHandle | None = None
        self._ping_timer: asyncio.TimerHandle | None = None
        self._closing = False

    async def open(self, connect_timeout_ms: int | None) -> None:
        """Opens the session. Raises ConnectionLossError if no server answers in time (default: the session's timeout),
        NoSessionError if a server ends the connections without opening a session, TlsFailedError if its certificate is
        not accepted, and NoAuthError if the server refuses the login or an identity."""
        loop = asyncio.get_running_loop()
        self._first = loop.create_future()
        self._task = loop.create_task(self._run())
        try:
            await asyncio.wait_for(self._first, (connect_timeout_ms or self.timeout_ms) / 1000)
        except TimeoutError:
            await self._finish(SessionState.CLOSED)
            names = ", ".join(f"{host}:{port}" for host, port in self._where.servers)
            if self._tls_failure:
                raise TlsFailedError("/", self._tls_failure) from None
            if self._shut_out:
                raise NoSessionError("/", f"the ZooKeeper at {names} gives no session") from None
            raise ConnectionLossError("/", f"no ZooKeeper answers at {names}") from None
        except BaseException:
            await self._finish(SessionState.CLOSED)
            raise

    async def close(self) -> None:
        """Ends the session. The client waits up to a third of the timeout for the server to confirm the end. Without
        this confirmation the session ends on the server when its timeout has passed."""
        if self.state in (SessionState.CLOSED, SessionState.EXPIRED):
            return
        self._closing = True
        with suppress(TreeError, TimeoutError):
            await asyncio.wait_for(
                self.ask(OpCode.CLOSE_SESSION, "/", bytearray(), lambda code, _: require_ok(code, "/")),
                self.timeout_ms / 3000,
            )
        await self._finish(SessionState.CLOSED)

    # Requests

    def ask(
        self, kind: OpCode, path: str, body: Message | bytearray, decode: Callable[[TreeCode | int, Reader], T]
    ) -> asyncio.Future[T]:
        """Sends a request at once. The returned future gets the result of `decode` when the answer arrives."""
        link = self._require_connected()
        if len(self._asked) >= TREE_PENDING_MAX:
            raise ConnectionLossError(path, f"{TREE_PENDING_MAX} requests wait for an answer already")
        self._last_xid = self._last_xid % 0x7FFFFFFF + 1
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(self._last_xid, path, decode, future))
        self._send(link, RequestHeader(self._last_xid, kind), body)
        return future

    def _require_connected(self) -> Link:
        if self.state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise SessionExpiredError("/", f"the session is {self.state.value}")
        if self._link is None or self.state is not SessionState.CONNECTED:
            if self._login_failure:
                raise NoAuthError("/", self._login_failure)
            raise ConnectionLossError("/", "there is no connection to ZooKeeper")
        return self._link

    def _send(self, link: Link, header: RequestHeader, body: Message | bytearray) -> None:
        payload = messages.write(bytearray(), header)
        if isinstance(body, bytearray):
            payload += body
        else:
            messages.write(payload, body)
        self._sent = asyncio.get_running_loop().time()
        link.send(payload)

    def show(self, scheme: str, auth: bytes) -> None:
        """Sends the server one more identity (scheme and credentials) on the current connection."""
        self._send(self._require_connected(), RequestHeader(Xid.AUTH, OpCode.AUTH), AuthPacket(0, scheme, auth))

    def keep_identity(self, scheme: str, auth: bytes) -> None:
        """Adds an identity to the identities that are sent on each new connection."""
        self._auth = (*self._auth, (scheme, auth))

    # Connecting

    async def _run(self) -> None:
        """Connects again after each end of a connection, as long as the session may still exist."""
        failures = 0
        while not self._is_over():
            for host, port in self._servers:
                link = await self._try(host, port)
                if self._is_over():
                    return
                if link is not None:
                    begun = asyncio.get_running_loop().time()
                    reason = await link.ended
                    if self._is_over():
                        return
                    # A server that accepts the session and then ends its connections must not be asked again without a
                    # pause.
                    if asyncio.get_running_loop().time() >= begun + _STEADY_SECONDS:
                        failures = 0
                    if not self._login_failure:
                        logger.warning(
                            "the connection to the ZooKeeper at %s:%d ended: %s",
                            host,
                            port,
                            reason,
                            extra={"once_a_minute": (host, port)},
                        )
            failures += 1
            await asyncio.sleep(self._backoff.seconds(failures))

    async def _try(self, host: str, port: int) -> Link | None:
        """Connects to one server. Returns the connection if the server accepted the session, else None."""
        limit_seconds = max(self.timeout_ms / len(self._servers), 100) / 1000
        link = Link(self)
        try:
            async with asyncio.timeout(limit_seconds):
                await self._streams.open_stream(lambda: link, host, port, self._access.tls)
                self._tls_failure = ""
                # The byte 0 at the end means that the client does not accept a read-only server.
                link.send(
                    messages.write(
                        bytearray(), ConnectRequest(0, self._last_zxid, self.timeout_ms, self.session_id, self.password)
                    )
                    + b"\x00"
                )
                await asyncio.wait((link.connected,))
        except (OSError, TimeoutError) as error:
            link.end(str(error))
            self._shut_out = 0
            reason = str(error) or "it took too long"
            if isinstance(error, ssl.SSLError):
                self._tls_failure = getattr(error, "verify_message", None) or error.reason or reason
            logger.info(
                "no answer from the ZooKeeper at %s:%d (%s)",
                host,
                port,
                reason,
                extra={"once_a_minute": (host, port, "no answer")},
            )
            return None
        except asyncio.CancelledError:
            link.end("cancelled")
            raise
        if not link.connected.cancelled():
            self._shut_out = 0
            return link if self._link is link else None
        self._shut_out += 1
        if self._shut_out >= _SHUT_OUT_TIMES and self._last_zxid and not self._is_over():
            logger.warning(
                "the ZooKeeper at %s:%d closes every connection of this session. Its tree may be older than the "
                "changes that this session has seen: if the tree was lost or replaced by an older copy, stop "
                "this process, repair the tree, and start this process again",
                host,
                port,
                extra={"once_a_minute": (host, port, "shut out")},
            )
        return None

    def welcomed(self, link: Link, response: ConnectResponse) -> None:
        if response.timeout_ms <= 0:
            self._enter(SessionState.EXPIRED)
            link.end("the session is over")
            return
        self._link = link
        self.session_id, self.password, self.timeout_ms = response.session_id, response.password, response.timeout_ms
        self._heard = asyncio.get_running_loop().time()
        if self._access.login is None:
            self._resume(link)
            return
        self._exchange = self._access.login.exchange()
        self._ping_timer = asyncio.get_running_loop().call_later(
            self.timeout_ms / 1000, link.end, "the login took too long"
        )
        self._log_in(link, None)

    # The login

    def _log_in(self, link: Link, challenge: bytes | None) -> None:
        """Sends the next message of the login, or ends the login if there is none."""
        assert self._exchange is not None
        try:
            token = self._exchange.step(challenge)
        except SaslError as error:
            self._not_logged_in(link, str(error))
            return
        if token is not None:
            self._last_xid = self._last_xid % 0x7FFFFFFF + 1
            self._send(link, RequestHeader(self._last_xid, OpCode.SASL), SaslToken(token))
            return
        self._exchange = None
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._resume(link)

    def _login_answered(self, link: Link, header: ReplyHeader, reader: Reader) -> None:
        if header.xid != self._last_xid:
            raise MessageError(f"an answer to request {header.xid} during the login")
        if header.error:
            self._not_logged_in(link, "the server refuses the login")
            return
        token = messages.read(SaslToken, reader).token
        if token is None:
            self._not_logged_in(link, "the server takes no logins")
        else:
            self._log_in(link, token)

    def _not_logged_in(self, link: Link, reason: str) -> None:
        """Ends the connection, since the login has failed. At the first connection, `open` fails. Later the client
        tries again, as long as the session may still exist."""
        self._exchange = None
        self._login_failure = reason
        if self._last_zxid:  # otherwise no request was ever answered, and the caller gets the error
            logger.error("no login to ZooKeeper: %s", reason, extra={"once_a_minute": ("", "login")})
        for item in self._asked:
            if not item.future.done():
                item.future.set_exception(NoAuthError(item.path, reason))
        if self._first is not None and not self._first.done():
            self._first.set_exception(NoAuthError("/", reason))
        link.end(reason)

    def _resume(self, link: Link) -> None:
        """Sends the identities and the watches on a new connection. From now on it takes requests."""
        self._login_failure = ""
        for scheme, auth in self._auth:
            self._send(link, RequestHeader(Xid.AUTH, OpCode.AUTH), AuthPacket(0, scheme, auth))
        for request in self.watches.requests(self._last_zxid):
            self._send(link, RequestHeader(Xid.SET_WATCHES, OpCode.SET_WATCHES), request)
        self._look()
        self._enter(SessionState.CONNECTED)
        if not self._auth:
            self._is_there()

    def _is_there(self) -> None:
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    def _look(self) -> None:
        """Sends a ping if no request was sent for a third of the timeout. Ends the connection if nothing arrived for
        two thirds of the timeout."""
        link, loop = self._link, asyncio.get_running_loop()
        if link is None:
            return
        now, third = loop.time(), self.timeout_ms / 3000
        # The comparison uses the same sum as the timer below. With a difference, rounding could make the timer fire
        # slightly too early for this check.
        if now >= self._heard + 2 * third:
            link.end(f"nothing was heard for {2 * third:.1f} s")
            return
        if now >= self._sent + third:
            self._send(link, RequestHeader(Xid.PING, OpCode.PING), bytearray())
        self._ping_timer = loop.call_at(min(self._sent + third, self._heard + 2 * third), self._look)

    def link_ended(self, link: Link, reason: str) -> None:
        if self._link is not link:
            return
        if self._exchange is not None and self._first is not None and not self._first.done():
            # The session ends on the server with the connection, since the login has not ended: begin anew.
            self.session_id, self.password = 0, bytes(PASSWORD_BYTES)
        self._link = self._exchange = None
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        asked, self._asked = self._asked, deque()
        over = self._is_over()
        for item in asked:
            if not item.future.done():
                item.future.set_exception(
                    SessionExpiredError(item.path) if over else ConnectionLossError(item.path, reason)
                )
        if not over:
            loop = asyncio.get_running_loop()
            self._lost_timer = loop.call_at(self._heard + self.timeout_ms / 1000, self._enter, SessionState.LOST)
            self._enter(SessionState.SUSPENDED)

    def _is_over(self) -> bool:
        return self._closing or self.state in (SessionState.EXPIRED, SessionState.CLOSED)

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
        if state is self.state or self.state in (SessionState.EXPIRED, SessionState.CLOSED):
            return
        self.state = state
        if state is not SessionState.SUSPENDED and self._lost_timer is not None:
            self._lost_timer.cancel()
            self._lost_timer = None
        if state in (SessionState.EXPIRED, SessionState.CLOSED):
            self.watches.clear()
        for callback in self.state_callbacks:
            callback(state)

    # Answers

    def frame(self, frame: bytes) -> None:
        self._heard = asyncio.get_running_loop().time()
        reader = Reader(frame)
        header = messages.read(ReplyHeader, reader)
        if header.zxid > 0:
            self._last_zxid = max(self._last_zxid, header.zxid)
        if self._exchange is not None and self._link is not None:
            self._login_answered(self._link, header, reader)
            return
        match header.xid:
            case Xid.NOTIFICATION:
                self._event(messages.read(WatcherEvent, reader))
            case Xid.PING:
                if header.error and self._link is not None:
                    self._not_logged_in(self._link, LOGIN_REQUIRED)
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
        logger.error("ZooKeeper does not accept an identity: the session is given up")
        self._enter(SessionState.CLOSED)
        if self._link is not None:
            self._link.end("an identity was not taken")

    def _event(self, event: WatcherEvent) -> None:
        try:
            kind = EventType(event.type)
        except ValueError:
            return  # an event of the connection's state, which is known here
        watch_event = WatchEvent(kind, event.path)
        for callback in self.watches.take(watch_event):
            try:
                callback(watch_event)
            except Exception as error:
                # A faulty callback must not stop other callbacks or answers.
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a watch's callback raised", "exception": error}
                )
