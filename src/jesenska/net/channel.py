"""An outgoing connection to a broker. Each request is sent with a correlation id, and its answer has the same id.

A broker answers the requests of one connection in order, so answers must arrive in the order of the requests. An
answer out of order closes the channel. When the channel closes, every request without an answer fails with
NetworkException. The versions of requests are chosen once per connection, from the answer to ApiVersions
(`open_channel`). Brokers before 0.10 are not supported: they close the connection at ApiVersions."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

from jesenska.base.errors import (
    ErrorCode,
    KafkaError,
    NetworkException,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from jesenska.base.system_errors import is_out_of_descriptors, remedy_of
from jesenska.net.connection import FramedConnection, ReadBuffer
from jesenska.net.network import Network, SystemNetwork
from jesenska.net.transport import TransportFor
from jesenska.wire.codec import MalformedMessageError, decode, encode_parts
from jesenska.wire.headers import read_response_head, request_head
from jesenska.wire.language import Message
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.registry import API_VERSIONS, APIS

if TYPE_CHECKING:
    # Imported for type checkers only: at run time, only a client with TLS or a login needs this module.
    from jesenska.security.client_security import ClientSecurity

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=Message)
_LENGTH = struct.Struct(">i")
#: The maximum size of an accepted answer in bytes: the largest INT32. The size of an answer to Fetch has no smaller
#: limit.
MAX_ANSWER_BYTES = 2**31 - 1


#: The fraction of the lifetime of a SASL session after which the client replaces the connection by a new connection.
_SESSION_SHARE = 0.85


class _UnansweredError(Exception):
    """Raised when a request was not answered within its time limit."""


def _give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(_UnansweredError())


class _Waiting:
    __slots__ = ("correlation_id", "future", "header_version", "response", "version")

    def __init__(
        self,
        correlation_id: int,
        response: type[Message],
        version: int,
        header_version: int,
        future: asyncio.Future[Any],
    ) -> None:
        self.correlation_id = correlation_id
        self.response = response
        self.version = version
        self.header_version = header_version
        self.future = future


class Channel:
    """One connection to `host:port`. A request may be sent while earlier requests are not answered yet
    (pipelining)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        buffer: ReadBuffer,
        client_id: str,
        host: str,
        port: int,
        transport_for: TransportFor | None = None,
    ) -> None:
        self.host, self.port, self.client_id = host, port, client_id
        self._loop = loop
        self._waiting: deque[_Waiting] = deque()
        self._next_id = 0
        self._ranges: dict[int, tuple[int, int]] = {}
        #: The cluster's finalised features: the level of each by name (KIP-584).
        self.features: dict[str, int] = {}
        self._reason = ""
        self._has_tls = transport_for is not None
        #: The number of requests that were sent to agree on versions.
        self._introductions = 0
        self._connection = FramedConnection(
            loop, sock, buffer, MAX_ANSWER_BYTES, self._on_frame, self._on_closed, None, transport_for
        )
        #: The time, on the event loop's clock, at which a new connection should replace this authenticated one
        #: (KIP-368). None if the broker has set no lifetime for the session.
        self._session_ends_at: float | None = None

    @property
    def closed(self) -> bool:
        return self._connection.closed

    @property
    def is_waiting(self) -> bool:
        """Returns True if at least one request has no answer yet."""
        return bool(self._waiting)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """Returns the minimum and maximum version that the broker announced, by API key."""
        return self._ranges

    def version_for(self, request: type[Message], at_most: int | None = None) -> int:
        """Returns the highest version of a request that both the broker and this client support, but at most
        `at_most`. Raises UnsupportedVersionError if there is no common version."""
        low, high = self._ranges.get(request.api_key, (0, -1))
        ours_low, ours_high = request.versions
        version = min(high, ours_high, high if at_most is None else at_most)
        if version < max(low, ours_low):
            raise UnsupportedVersionError(
                f"The broker at {self.host}:{self.port} does not serve {request.__name__.removesuffix('Request')} in "
                f"a version known here."
            )
        return version

    def send(self, request: Message, version: int, expect_answer: bool = True) -> asyncio.Future[Any]:
        """Sends the request at once. Returns a future for the decoded response. If no answer is expected (acks=0), the
        future gets None as soon as the bytes are passed to the transport."""
        api = APIS[request.api_key]
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.closed:
            future.set_exception(self._gone())
            return future
        correlation_id = self._next_id
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        head = bytearray(4)
        head += request_head(api.key, version, correlation_id, self.client_id, api.request_header_version(version))
        parts = encode_parts(request, version, head)
        total = sum(map(len, parts))
        _LENGTH.pack_into(parts[0], 0, total - 4)  # type: ignore[arg-type]
        if expect_answer:
            self._waiting.append(
                _Waiting(correlation_id, api.response, version, api.response_header_version(version), future)
            )
        self._connection.send(parts, total)
        if not expect_answer:
            future.set_result(None)
        return future

    async def request(
        self, request: Message, response: type[Answer], *, timeout_seconds: float = 30.0, at_most: int | None = None
    ) -> Answer:
        """Sends the request in the highest common version and returns the response. Raises RequestTimedOutError after
        the time limit and closes the channel, because later answers could no longer be matched to their requests."""
        future = self.send(request, self.version_for(type(request), at_most))
        # asyncio.wait_for is not used, because it may swallow a cancellation (Python 3.11). asyncio.timeout is not
        # used, because it costs more than a timer.
        timer = self._loop.call_later(timeout_seconds, _give_up, future)
        try:
            answer = await future
        except _UnansweredError:
            self.close("a request was not answered in time")
            raise RequestTimedOutError(
                f"The broker at {self.host}:{self.port} did not answer within {timeout_seconds:g} s."
            ) from None
        finally:
            timer.cancel()
        assert isinstance(answer, response)
        return answer

    def _on_frame(self, view: memoryview) -> bool:
        try:
            if not self._waiting:
                raise MalformedMessageError("an answer arrived without a request")
            waiting = self._waiting.popleft()
            try:
                if waiting.response.api_key == API_VERSIONS:
                    answer: Message = _api_versions(view, waiting.version)
                else:
                    correlation_id, position = read_response_head(view, waiting.header_version)
                    if correlation_id != waiting.correlation_id:
                        raise MalformedMessageError(
                            f"answer {correlation_id} came for request {waiting.correlation_id}"
                        )
                    answer = decode(waiting.response, waiting.version, self._connection.keep(view)[position:])
            except Exception:
                self._waiting.appendleft(waiting)
                raise
        except MalformedMessageError as error:
            self.close(f"the broker's answer is malformed: {error}")
            return True
        if not waiting.future.done():
            waiting.future.set_result(answer)
        return True

    def _on_closed(self, reason: str) -> None:
        self._reason = self._reason or reason
        waiting, self._waiting = self._waiting, deque()
        if waiting and self._next_id - len(waiting) <= self._introductions:
            self._reason += _remedy_of_refused(self._reason, self._has_tls)
        for item in waiting:
            if not item.future.done():
                item.future.set_exception(self._gone())
                item.future.exception()  # a caller that does not await it needs no warning

    def _gone(self) -> KafkaError:
        because = f": {self._reason}" if self._reason else ""
        return NetworkException(f"The connection to {self.host}:{self.port} was closed{because}.")

    def close(self, reason: str = "") -> None:
        self._reason = self._reason or reason
        self._connection.close(reason)

    async def agree_on_versions(self, software_name: str, software_version: str) -> None:
        """Asks the broker for the versions of requests that it supports. If the broker does not know this version of
        ApiVersions, asks again in a lower version (KIP-511)."""
        version = ApiVersionsRequest.versions[1]
        while True:
            answer: ApiVersionsResponse = await self.send(
                ApiVersionsRequest(client_software_name=software_name, client_software_version=software_version),
                version,
            )
            self._ranges = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}
            if answer.error_code == ErrorCode.NONE:
                self.features = {item.name: item.max_version_level for item in answer.finalized_features}
                self._introductions = self._next_id
                return
            offered = self._ranges.get(API_VERSIONS, (0, 0))[1]
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise KafkaError.of(answer.error_code, f"The broker at {self.host}:{self.port} refuses ApiVersions.")
            version = min(offered, version - 1)

    def end_session_after(self, begun_at: float, lifetime_ms: int) -> None:
        """Sets the end of the SASL session that an authentication has begun. `begun_at` is the time of its begin, by
        the loop's clock in seconds."""
        self._session_ends_at = begun_at + lifetime_ms / 1000 * _SESSION_SHARE

    @property
    def is_session_ending(self) -> bool:
        """Returns True if the broker will soon require a new authentication, so that a new connection should replace
        this connection."""
        return self._session_ends_at is not None and self._loop.time() > self._session_ends_at


def _remedy_of_refused(reason: str, has_tls: bool) -> str:
    """Returns what to set, to follow the reason, if a broker has closed a connection and served no request of it. The
    words in capitals are those of OpenSSL."""
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "; set ssl.truststore.location to the authority that signed the certificate of its host"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return "; set ssl.keystore.location if its listener requires a certificate of the client"
    if has_tls and ("WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason):
        return "; its listener has no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT"
    if reason:
        return ""
    kinds = "SASL_SSL" if has_tls else "SSL, SASL_SSL or SASL_PLAINTEXT"
    return f"no request was served; set security.protocol to {kinds} if its listener requires that"


def _api_versions(view: memoryview, version: int) -> ApiVersionsResponse:
    """Decodes an answer to ApiVersions. A broker that does not know the requested version answers UNSUPPORTED_VERSION
    in version 0, so such an answer is decoded in version 0."""
    if len(view) >= 6 and int.from_bytes(view[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    answer: ApiVersionsResponse = decode(ApiVersionsResponse, version, view[4:])
    return answer


_SYSTEM = SystemNetwork()


def _because_of(cause: OSError, message: str) -> NetworkException:
    """Returns a NetworkException whose `__cause__` is set here, because code compiled by Cython loses a cause that is
    given by `raise ... from`. Clients read the cause."""
    failure = NetworkException(message)
    failure.__cause__ = cause
    return failure


async def open_channel(
    host: str,
    port: int,
    client_id: str,
    buffer: ReadBuffer,
    *,
    software_version: str,
    timeout_seconds: float = 10.0,
    send_buffer_bytes: int = -1,
    receive_buffer_bytes: int = -1,
    network: Network | None = None,
    security: ClientSecurity | None = None,
) -> Channel:
    """Connects to a broker, agrees on versions of requests, and authenticates if `security` has a SASL mechanism.
    Raises NetworkException with one sentence if the connection cannot be made. For a buffer size of -1 the system
    chooses the size."""
    where = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_seconds):
            sock = await (network or _SYSTEM).connect(host, port, send_buffer_bytes, receive_buffer_bytes)
            transport_for = None
            if security is not None and security.context is not None:
                from jesenska.net.tls_transport import tls_client

                transport_for = tls_client(security.context, host, security.sessions.of(host, port))
            channel = Channel(asyncio.get_running_loop(), sock, buffer, client_id, host, port, transport_for)
            try:
                await channel.agree_on_versions("jesenska", software_version)
                if security is not None and security.mechanism is not None:
                    from jesenska.net.sasl_login import log_in

                    await log_in(channel, security)
            except BaseException:
                channel.close()
                raise
            return channel
    except TimeoutError:
        raise NetworkException(
            f"No answer from {where} within {timeout_seconds:g} s: is a broker listening there?"
        ) from None
    except socket.gaierror as error:
        raise _because_of(error, f"The host {host!r} has no address ({error.strerror}): correct it.") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if is_out_of_descriptors(error):
            raise _because_of(error, f"No connection to {where} can be made ({reason}): {remedy_of(error)}.") from error
        raise _because_of(
            error, f"No broker answers at {where} ({reason}): start one there, or name another with --bootstrap-server."
        ) from error
