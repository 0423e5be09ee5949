"""The login of a client to a broker by SASL: SaslHandshake, then the messages of the mechanism in SaslAuthenticate."""

from __future__ import annotations

import asyncio

from jesenska.base.errors import (
    ErrorCode,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from jesenska.net.channel import Channel
from jesenska.security.client_security import ClientSecurity
from jesenska.security.sasl import SaslError
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def log_in(channel: Channel, security: ClientSecurity) -> None:
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
        exchange = security.exchange()
        message = exchange.step(None)
        while message is not None:
            answer: SaslAuthenticateResponse = await channel.send(
                SaslAuthenticateRequest(auth_bytes=memoryview(message)), version
            )
            if answer.error_code:
                raise KafkaError.of(answer.error_code, answer.error_message or f"{where} refuses the login.")
            lifetime_ms = answer.session_lifetime_ms
            message = exchange.step(bytes(answer.auth_bytes))
    except SaslError as error:
        raise SaslAuthenticationFailedError(f"The login to the broker at {where} failed: {error}.") from error
    if lifetime_ms > 0:
        channel.end_session_after(begun_at, lifetime_ms)
