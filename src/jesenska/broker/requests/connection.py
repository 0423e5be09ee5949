"""A client's connection: passes the request in each frame to its handler, and sends the handler's answer.

A handler is a function `handle(uses, request, context)`. `uses` has the parts of the broker that the handler needs
(`broker.requests.families`). The result of a handler decides how the request is answered:

  a Message      the answer, sent at once
  NO_ANSWER      nothing is sent (acks=0)
  LATER          the handler stores the context and calls `context.answer(message)` later; no asyncio task waits for
                 this call
  a coroutine    runs as a task, and its result is the answer (used for administrative requests only). If the handler
                 is itself a coroutine function, the bytes of its request are its own

As in Kafka, a connection handles one request at a time. Further requests wait in its buffer, so answers are in the
order of the requests. The next request is handled when the last byte of the previous answer has been sent.

Produce requests are an exception: when the records are in the log and the request only waits for replicas, the next
Produce request may be handled (`context.let_next`). So five requests in flight share one wait for the replicas. Their
answers are still sent in the order of the requests, and any other request waits until all of them are answered.

Each request first passes the `gate`, which checks and counts it. If the broker has an authorizer, the authorizer then
refuses the request, or amends its answer, or does nothing (`authorization.access`). If the client has quotas, its
request is counted when the answer is ready; a client above a quota must wait (`quotas.client_quotas`).

The bytes of a request are views into the connection's buffer. A handler that returns LATER, or a coroutine of another
function, and still needs these bytes must call `context.keep(view)` before it returns. `dispatch` has all connections
of a broker."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from jesenska.base.clock import Clock
from jesenska.base.errors import KafkaError
from jesenska.base.limits import (
    CONVERTED_ANSWER_MIN_BYTES,
    CONVERTED_ANSWERS_BYTES,
    LOGIN_SECONDS,
    WAITING_PRODUCES_BYTES,
    WAITING_PRODUCES_PER_CONNECTION,
)
from jesenska.base.regions import FileRegion
from jesenska.broker.requests.authentication import Authentication, ListenerSecurity, State
from jesenska.broker.requests.families import Families
from jesenska.broker.requests.gate import Gate, Stages, UnknownApiVersionsError
from jesenska.broker.requests.served import BETWEEN_BROKERS
from jesenska.net.connection import FramedConnection, ReadBuffer
from jesenska.quotas.client_quotas import ClientLimits, ClientQuotas
from jesenska.security.principal import ANONYMOUS, NoMappingError, Principal
from jesenska.security.sasl import SaslError
from jesenska.wire.codec import MalformedMessageError, encoder
from jesenska.wire.language import Message
from jesenska.wire.messages.k18_api_versions import ApiVersionsResponse
from jesenska.wire.registry import API_VERSIONS, PRODUCE, Api

if TYPE_CHECKING:
    from jesenska.broker.requests.authorization.access import Access, Amend, Authorizer

logger = logging.getLogger(__name__)

_HEAD_V0 = struct.Struct(">ii")
_HEAD_V1 = struct.Struct(">iib")
_LENGTH = struct.Struct(">i")
_PRODUCE: Final = b"\0\0"
#: A client that has closed its sending side is still answered within this time. After that the connection is closed.
_GONE_AFTER_SECONDS = 5.0


class _Marker:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


NO_ANSWER: Final = _Marker("NO_ANSWER")
LATER: Final = _Marker("LATER")

Outcome = Message | _Marker | Coroutine[Any, Any, Message]


class Context:
    """One request that is being handled: its client, and the methods that send its answer."""

    __slots__ = (
        "access",
        "amend",
        "api",
        "begun_at",
        "client_id",
        "connection",
        "correlation_id",
        "ended_at",
        "is_answered",
        "is_counted",
        "lets_next",
        "limits",
        "on_abandoned",
        "principal",
        "received_at",
        "response",
        "size_bytes",
        "throttle_ms",
        "version",
    )

    def __init__(
        self,
        connection: Connection,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
        size_bytes: int,
        received_at: float,
        begun_at: float,
    ) -> None:
        self.connection = connection
        #: The user that sent the request.
        self.principal = connection.principal
        #: The user's rights; None on a broker without an authorizer.
        self.access: Access | None = None
        #: The authorizer's function that amends the answer; None if the answer is sent unchanged.
        self.amend: Amend | None = None
        #: The client's quotas; None if it has no quotas.
        self.limits: ClientLimits | None = None
        #: How long (in milliseconds) the client must wait after this request, as far as the handler knows.
        #: `is_counted` is True if the handler has counted the request for all quotas.
        self.throttle_ms = 0
        self.is_counted = False
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.size_bytes = size_bytes
        self.received_at = received_at
        self.begun_at = begun_at
        self.ended_at = 0.0
        #: True if the next request may be handled before this request is answered.
        self.lets_next = False
        #: True if the answer is ready, or if there will be no answer. A ready answer may have to wait for earlier
        #: answers.
        self.is_answered = False
        self.response: Message | None = None
        #: Called when the connection is closed while the request waits, so that the waiting request is removed.
        self.on_abandoned: Callable[[], None] | None = None

    def seconds_in_work(self) -> float:
        """Returns the time in seconds for which the handler has worked, without waits."""
        return (self.ended_at or self.connection.now()) - self.begun_at

    def keep(self, view: memoryview) -> memoryview:
        """Returns a view of these bytes of the request that remains valid after the handler has returned."""
        return self.connection.framed.keep(view)

    def answer(self, response: Message) -> None:
        """Sends the answer of a request whose handler has returned LATER."""
        self.connection.answer_later(self, response)

    def no_answer(self) -> None:
        """Ends a request whose handler has returned LATER and which gets no answer."""
        self.connection.answer_later(self, None)

    def let_next(self) -> None:
        """Allows the next Produce request to be handled before this request is answered. Called when this request's
        records are in the log, so that the order of the two requests cannot change."""
        self.lets_next = True
        self.connection.take_next()

    def close(self, reason: str) -> None:
        """Closes the connection. A producer with acks=0 learns of an error only in this way."""
        self.connection.framed.close(reason)

    @property
    def gone(self) -> bool:
        """Returns True if the connection is closed."""
        return self.connection.framed.closed


class SharedByConnections:
    """The state that all connections of a broker share. `families` has the parts of the broker for the handlers.
    `partition_count` returns the number of partitions. `closed` is called with each connection that is closed, and the
    reason."""

    def __init__(
        self,
        families: Families,
        partition_count: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        max_request_bytes: int,
        closed: Callable[[Connection, str], None],
        authorizer: Authorizer | None,
        quotas: ClientQuotas,
    ) -> None:
        self.authorizer = authorizer
        self.quotas = quotas
        self.families = families
        self.loop = loop
        self.monotonic = clock.monotonic
        self.max_request_bytes = max_request_bytes
        self.closed = closed
        self.read_buffer = ReadBuffer()
        self.gate = Gate(partition_count)
        #: The number of bytes of converted answers that are in memory because they have not been sent.
        self.lent_bytes = 0
        #: The running coroutines of handlers.
        self.tasks: dict[asyncio.Task[None], None] = {}

    def answer_room_bytes(self) -> int:
        """Returns the size limit of a converted answer in bytes: half of the memory that is still available for such
        answers."""
        return max(CONVERTED_ANSWER_MIN_BYTES, (CONVERTED_ANSWERS_BYTES - self.lent_bytes) // 2)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a handler's coroutine as a task. A connection has at most one such task."""
        task = self.loop.create_task(coroutine)
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))


class Connection:
    """A client's connection: receives requests, and sends their answers in the same order."""

    __slots__ = (
        "_access",
        "_in_work",
        "_lent_bytes",
        "_progress",
        "_returning",
        "_sending_since",
        "_shared",
        "_unmuting",
        "active_at",
        "authentication",
        "begun_at",
        "client_host",
        "framed",
        "listener",
        "listener_name",
        "principal",
    )

    def __init__(
        self,
        shared: SharedByConnections,
        sock: socket.socket,
        client_host: str,
        listener_name: str,
        listener: ListenerSecurity,
    ) -> None:
        self._shared = shared
        self.client_host = client_host
        self.listener_name = listener_name
        self.listener = listener
        #: The user of the connection; ANONYMOUS until the user is authenticated.
        self.principal = ANONYMOUS
        #: The user's rights; None before they are first needed.
        self._access: Access | None = None
        #: The SASL authentication of the connection; None if the listener has no SASL.
        self.authentication = None if listener.mechanisms is None else Authentication(listener, shared.monotonic)
        #: Requests that are not answered, or whose answers wait for earlier answers, in order.
        self._in_work: list[Context] = []
        self._returning = False
        self._sending_since: tuple[float, Stages] | None = None
        #: The number of bytes of the converted answer that this connection has in memory.
        self._lent_bytes = 0
        self._progress = (0, 0)
        #: The timer that ends the wait of a client above a quota; None if the client need not wait.
        self._unmuting: asyncio.TimerHandle | None = None
        #: `begun_at` is the time at which the connection was accepted.
        #: The time (monotonic, in seconds) of the last request, the last answer, or the last seen progress of sending
        #: or receiving.
        self.active_at = self.begun_at = shared.monotonic()
        self.framed = FramedConnection(
            shared.loop,
            sock,
            shared.read_buffer,
            shared.max_request_bytes,
            self._on_frame,
            self._on_closed,
            self._on_drained,
            listener.transport_for(self._secured),
            reads_in_parts=True,
        )
        if self.authentication is not None:
            self.framed.limit_frames(listener.token_max_bytes)

    def _secured(self, certificate: bytes | None) -> None:
        """Called when the TLS handshake is complete. Sets the user from the client's certificate."""
        if self.authentication is None:
            try:
                self.principal = self.listener.principal_of(certificate)
            except NoMappingError as error:
                self.framed.close(str(error))

    def authenticated(self, principal: Principal) -> None:
        """Sets the user of the connection, after a SASL authentication has succeeded."""
        self.principal = principal
        self._access = None
        self.framed.limit_frames(self._shared.max_request_bytes)

    def log_failed_login(self, error: SaslError) -> None:
        """Logs the cause of a failed authentication, which the client does not get."""
        logger.info(
            "authentication of a client at %s failed on listener %s: %s", self.client_host, self.listener_name, error
        )

    def _on_token(self, view: memoryview, authentication: Authentication) -> bool:
        """Handles a message of a SASL mechanism in a frame without a header (KIP-43). If the last answer is None, no
        answer is sent."""
        try:
            answer = authentication.step(bytes(view))
        except SaslError as error:
            self.log_failed_login(error)
            self.framed.close("a failed authentication")
            return True
        if authentication.principal is not None:
            self.authenticated(authentication.principal)
        self.active_at = self._shared.monotonic()
        if answer is None:
            return True
        return self.framed.send([len(answer).to_bytes(4, "big"), answer], len(answer) + 4)

    def _on_frame(self, view: memoryview) -> bool:
        if self._unmuting is not None or (self._in_work and bytes(view[:2]) != _PRODUCE):
            return self.framed.put_back()
        shared = self._shared
        if self.authentication is not None:
            authentication = self.authentication
            if authentication.state is State.TOKENS or authentication.begins_with(view):
                return self._on_token(view, authentication)
            if not authentication.takes(int.from_bytes(view[:2], "big", signed=True)):
                self.framed.close("a request that is not for this state of the authentication")
                return True
        received_at = self.active_at = shared.monotonic()
        try:
            served, version, correlation_id, client_id, request = shared.gate.admit(view, self.client_host)
        except UnknownApiVersionsError as unknown:
            # This exception and the next exception have different variable names, because compiled code gives each
            # name one type.
            return self._refuse_api_versions(unknown.correlation_id)
        except (MalformedMessageError, struct.error, UnicodeDecodeError) as error:
            self.framed.close(f"a request that cannot be read: {error}")
            return True
        except (ImportError, OSError):
            logger.exception(
                "the handler of a request from %s cannot be imported; the connection is closed", self.client_host
            )
            self.framed.close("an internal error")
            return True
        api = served.api
        context = Context(self, api, version, correlation_id, client_id, len(view), received_at, shared.monotonic())
        if shared.quotas.is_active:
            context.limits = shared.quotas.limits_for(self.principal.name, client_id or "")
        self._in_work.append(context)
        self._returning = True
        try:
            refusal = None if shared.authorizer is None else self._refusal(shared.authorizer, context, request)
            outcome: Outcome = (
                served.handler(shared.families[served.family], request, context) if refusal is None else refusal
            )
        except KafkaError as failure:
            outcome = NO_ANSWER
            self.framed.close(f"{api.name} failed: {failure}")
        except Exception:
            logger.exception(
                "%s version %s from %s failed; the connection is closed", api.name, version, self.client_host
            )
            outcome = NO_ANSWER
            self.framed.close("an internal error")
        finally:
            self._returning = False
        context.ended_at = shared.monotonic()
        if outcome is LATER:
            return self._may_take_next()
        if isinstance(outcome, Message):
            context.response = outcome
        elif outcome is not NO_ANSWER:
            assert inspect.iscoroutine(outcome)
            shared.run(self._answer_when_done(context, outcome))
            return self._may_take_next()
        context.is_answered = True
        self._send_answers()
        return self._may_take_next()

    def _refusal(self, authorizer: Authorizer, context: Context, request: Message) -> Message | None:
        """Returns the answer to a request that the authorizer refuses as a whole. Returns None if the request must be
        handled; refused parts have then been removed from the request."""
        access = self._access
        if access is None:
            access = self._access = authorizer.access_for(self.principal, self.client_host)
        context.access = access
        verdict = authorizer.check(access, context.api.key, context.version, request)
        if verdict is None or isinstance(verdict, Message):
            return verdict
        context.amend = verdict
        return None

    def _may_take_next(self) -> bool:
        """Returns True if the next request may be handled now."""
        if self._sending_since is not None or self._unmuting is not None:
            return False
        in_work = self._in_work
        if not in_work:
            return True
        last = in_work[-1]
        if not (last.lets_next or last.is_answered) or len(in_work) >= WAITING_PRODUCES_PER_CONNECTION:
            return False
        return sum([context.size_bytes for context in in_work]) < WAITING_PRODUCES_BYTES

    def take_next(self) -> None:
        """Handles requests that have arrived, as long as the next request may be handled now."""
        if not self._returning and self._may_take_next():
            self.framed.resume()

    async def _answer_when_done(self, context: Context, coroutine: Coroutine[Any, Any, Message]) -> None:
        try:
            response = await coroutine
        except asyncio.CancelledError:
            self.framed.close("the broker stops")
            raise
        except Exception as error:
            if not isinstance(error, KafkaError):
                logger.exception(
                    "%s version %s from %s failed; the connection is closed",
                    context.api.name,
                    context.version,
                    self.client_host,
                )
            self.framed.close(f"{context.api.name} failed")
            return
        self.answer_later(context, response)

    def answer_later(self, context: Context, response: Message | None) -> None:
        if context.is_answered or self.framed.closed:
            return
        context.is_answered = True
        context.response = response
        context.on_abandoned = None
        if self._in_work[0] is context:
            self._send_answers()
            self.take_next()

    def _send_answers(self) -> None:
        """Sends the answers that are ready, up to the first answer that is not ready."""
        in_work = self._in_work
        while in_work and in_work[0].is_answered and self._sending_since is None:
            context = in_work.pop(0)
            if context.amend is not None and not self._amended(context, context.amend):
                return
            if context.limits is not None:
                self._throttle(context, context.limits)
            if context.response is not None:
                self._send(context, context.response)

    def _throttle(self, context: Context, limits: ClientLimits) -> None:
        """Counts a request with a ready answer for the client's quotas. If the client is above a quota, the answer
        contains the time for which the client must wait, and its next request is not handled before that time has
        passed."""
        throttle_ms = context.throttle_ms
        if not context.is_counted:
            key, now_ms = context.api.key, self._shared.quotas.now_ms()
            if key == PRODUCE:
                throttle_ms = limits.produced(context.size_bytes, now_ms)
            if context.response is not None and key not in BETWEEN_BROKERS:
                throttle_ms = max(throttle_ms, limits.requested(context.seconds_in_work(), now_ms))
        if throttle_ms <= 0:
            return
        if context.response is not None and hasattr(context.response, "throttle_time_ms"):
            context.response.throttle_time_ms = throttle_ms
        if not self.framed.closed:
            if self._unmuting is not None:
                self._unmuting.cancel()
            self._unmuting = self._shared.loop.call_later(throttle_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        self.take_next()

    def now(self) -> float:
        """Returns the monotonic time in seconds, by the same clock as `Context.begun_at`."""
        return self._shared.monotonic()

    def _amended(self, context: Context, amend: Amend) -> bool:
        """Lets the authorizer amend an answer. Returns False if there is no answer or the authorizer fails; in both
        cases the connection is closed."""
        if context.response is None:
            self.framed.close("a part of a request without an answer was refused")
            return False
        try:
            amend(context.response)
        except Exception:
            logger.exception(
                "the answer to %s version %d cannot be amended; the connection to %s is closed",
                context.api.name,
                context.version,
                self.client_host,
            )
            self.framed.close("an internal error")
            return False
        return True

    def _send(self, context: Context, response: Message) -> None:
        """Encodes and sends an answer. Sets `_sending_since` if a part of the answer could not be sent yet."""
        version, api = context.version, context.api
        if api.response_header_version(version):
            head = bytearray(_HEAD_V1.pack(0, context.correlation_id, 0))
        else:
            head = bytearray(_HEAD_V0.pack(0, context.correlation_id))
        parts: list[Any] = []
        try:
            out = encoder(api.response, version)(response, head, parts)
        except Exception:
            logger.exception(
                "the answer to %s version %d cannot be encoded; the connection to %s is closed",
                api.name,
                version,
                self.client_host,
            )
            for part in parts:
                if isinstance(part, FileRegion):
                    part.release()
            self.framed.close("an internal error")
            return
        if parts:
            if out:
                parts.append(out)
            total = sum(map(len, parts))
        else:
            parts.append(out)
            total = len(out)
        _LENGTH.pack_into(head, 0, total - 4)
        ready_at = self._shared.monotonic()
        stages = self._shared.gate.left(
            api.key, context.received_at, context.begun_at, context.ended_at, ready_at, total
        )
        self.active_at = ready_at
        if self.framed.send(parts, total):
            if self._lent_bytes:
                self._give_back()
        else:
            self._sending_since = (ready_at, stages)

    def answer_room_bytes(self) -> int:
        """Returns the size limit of a converted answer in bytes."""
        return self._shared.answer_room_bytes()

    def tell_of_unserved(self, client_id: str | None, kind: str, what: str) -> None:
        """Logs that the client asks for something that is not supported. Each client and kind is logged once."""
        self._shared.gate.unserved.tell_of(self.client_host, client_id, kind, what)

    def lend(self, size_bytes: int) -> None:
        """Counts the memory of this connection's converted answer in `SharedByConnections.lent_bytes`, until the
        answer is sent or the connection is closed."""
        if not self.framed.closed:
            self._shared.lent_bytes += size_bytes - self._lent_bytes
            self._lent_bytes = size_bytes

    def _give_back(self) -> None:
        self._shared.lent_bytes -= self._lent_bytes
        self._lent_bytes = 0

    def look(self, now: float) -> None:
        """Checks if bytes were sent or received since the last call. Closes the connection if its client has closed it
        while a request waits, or does not log in. Must be called about once a second."""
        authentication = self.authentication
        if (
            authentication is not None
            and authentication.principal is None
            and self.begun_at < now - LOGIN_SECONDS
            and not self._in_work
        ):
            self.framed.close(f"no login within {LOGIN_SECONDS:g} s")
            return
        progress = self.framed.progress
        if progress != self._progress:
            self._progress = progress
            self.active_at = now
        elif self._in_work and self.active_at < now - _GONE_AFTER_SECONDS and self.framed.peer_has_closed():
            self.framed.close("the client has gone")
        else:
            self.framed.read_on()

    @property
    def waits_for_us(self) -> bool:
        """Returns True while a request is being handled or the client must wait because of a quota. During this time
        the connection does not count as idle."""
        return bool(self._in_work) or self._unmuting is not None

    def _refuse_api_versions(self, correlation_id: int) -> bool:
        gate = self._shared.gate
        head = bytearray(_HEAD_V0.pack(0, correlation_id))
        out = encoder(ApiVersionsResponse, 0)(gate.api_versions_refusal, head, [])
        _LENGTH.pack_into(out, 0, len(out) - 4)
        if self.framed.send([out], len(out)):
            return True
        self._sending_since = (self._shared.monotonic(), gate.stages[API_VERSIONS])
        return False

    def _on_drained(self) -> None:
        if self._sending_since is not None:
            since, stages = self._sending_since
            stages.send += self._shared.monotonic() - since
            self._sending_since = None
            if self._lent_bytes:
                self._give_back()
        self._send_answers()
        self.take_next()

    def _on_closed(self, reason: str) -> None:
        self._shared.closed(self, reason)
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        abandoned, self._in_work = self._in_work, []
        if self._lent_bytes:
            self._give_back()
        for context in abandoned:
            if context.on_abandoned is not None:
                context.on_abandoned()
                context.on_abandoned = None
