"""The login of a client to a broker by SASL: SaslHandshake, then the messages of the mechanism in SaslAuthenticate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from jesenska.base.errors import (
    ErrorCode,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from jesenska.security.client_security import ClientSecurity
from jesenska.security.sasl import SaslError
from jesenska.wire.language import Message
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


class LoginChannel(Protocol):
    """The parts of a `Channel` that a login uses."""

    host: str
    port: int

    def send(self, request: Message, version: int) -> asyncio.Future[Any]: ...

    def version_for(self, request: type[Message]) -> int: ...

    def end_session_after(self, begun_at: float, lifetime_ms: int) -> None: ...


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


async def _run(
    security: ClientSecurity, work: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs
) -> _Result:
    """Runs one step of a SASL exchange. Runs the step on another thread if it may wait for another server."""
    return await asyncio.to_thread(work, *given, **named) if security.may_block else work(*given, **named)


async def log_in(channel: LoginChannel, security: ClientSecurity) -> None:
    """Authenticates the client of a channel. Raises SaslAuthenticationFailedError with one sentence if the broker
    refuses the client, or the client does not trust the broker."""
    mechanism = security.mechanism
    assert mechanism is not None
    where = f"{channel.host}:{channel.port}"
    greeting: SaslHandshakeResponse = await channel.send(
        SaslHandshakeRequest(mechanism=mechanism), channel.version_for(SaslHandshakeRequest)
    )
    if greeting.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise UnsupportedSaslMechanismError(
            f"The broker at {where} does not have the SASL mechanism {mechanism}: set sasl.mechanism to one of "
            f"{', '.join(greeting.mechanisms) or 'none'}."
        )
    if greeting.error_code:
        raise KafkaError.of(greeting.error_code, f"The broker at {where} does not take SASL on this listener.")
    version = channel.version_for(SaslAuthenticateRequest)
    begun_at = asyncio.get_running_loop().time()
    lifetime_ms = 0
    try:
        exchange = await _run(security, security.exchange, channel.host)
        message = await _run(security, exchange.step, None)
        while message is not None:
            answer: SaslAuthenticateResponse = await channel.send(
                SaslAuthenticateRequest(auth_bytes=memoryview(message)), version
            )
            if answer.error_code:
                raise KafkaError.of(answer.error_code, answer.error_message or f"{where} refuses the login.")
            lifetime_ms = answer.session_lifetime_ms
            message = await _run(security, exchange.step, bytes(answer.auth_bytes))
    except SaslError as error:
        raise SaslAuthenticationFailedError(f"The login to the broker at {where} failed: {error}.") from error
    if lifetime_ms > 0:
        channel.end_session_after(begun_at, lifetime_ms)
