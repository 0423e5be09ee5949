"""A listener with OAUTHBEARER and an identity provider: clients get in with its tokens, keys change, sessions end with
their tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jesenska.base.errors import InvalidConfigError, KafkaError
from jesenska.broker.server import Broker
from jesenska.client.administration.admin import Admin
from jesenska.client.cluster import Cluster
from jesenska.config.layers import BrokerConfig
from jesenska.security.oauthbearer.messages import first_message
from jesenska.security.principal import Principal
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.processes.broker.identity_provider import CLIENT, SECRET, IdentityProvider, identity_provider
from tests.processes.broker.secured import AUTHORITY, address, broker_settings, cluster_at, config, secured_broker
from tests.raw_connection import ClosedByBrokerError, RawConnection
from tests.units.security.test_oauthbearer import OTHER_RSA_KEY, RSA_KEY, jwks

_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def _settings(directory: Path, provider: IdentityProvider, **more: str) -> dict[str, str]:
    trusted = directory / "authority.pem"
    trusted.write_text(AUTHORITY.pem)
    tls = f'ssl.truststore.type="PEM" ssl.truststore.location="{trusted}"'
    own = {
        f"listener.name.{name}.{key}": value
        for name in ("sasl_ssl", "sasl_plaintext")
        for key, value in {
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": f"{_MODULE} {tls};",
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": provider.url("keys"),
        }.items()
    }
    return broker_settings(directory, **more) | own


def _login(directory: Path, provider: IdentityProvider, secret: str = SECRET) -> dict[str, str]:
    tls = f'ssl.truststore.type="PEM" ssl.truststore.location="{directory / "authority.pem"}"'
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": provider.url("token"),
        "sasl.jaas.config": f'{_MODULE} clientId="{CLIENT}" clientSecret="{secret}" scope="read write" {tls};',
    }


def _on_a_broker(directory: Path, work: Callable[[Broker, IdentityProvider], Awaitable[None]], **settings: str) -> None:
    async def main(provider: IdentityProvider) -> None:
        async with asyncio.timeout(60), secured_broker(_settings(directory, provider, **settings)) as broker:
            await work(broker, provider)

    with identity_provider(directory) as provider:
        asyncio.run(main(provider))


async def _until_keys_are_known(broker: Broker, provider: IdentityProvider, directory: Path) -> None:
    """Logs in until it succeeds: the broker reads the keys while it starts, on another thread."""
    while True:
        try:
            async with cluster_at(broker, "SASL_SSL", _login(directory, provider)) as cluster:
                await Admin(cluster).topics()
                return
        except KafkaError:
            await asyncio.sleep(0.05)


def test_a_client_with_a_token_of_the_provider_is_its_user(tmp_path: Path) -> None:
    async def work(broker: Broker, provider: IdentityProvider) -> None:
        await _until_keys_are_known(broker, provider, tmp_path)
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
            async with cluster_at(broker, protocol, _login(tmp_path, provider)) as cluster:
                assert await Admin(cluster).topics() == {}
                principals = {connection.principal for connection in broker.dispatcher.connections}
                assert Principal("User", "anna") in principals
        assert set(provider.scopes) == {"read write"}

    _on_a_broker(tmp_path, work)


def test_one_token_serves_all_connections_of_a_client(tmp_path: Path) -> None:
    async def work(broker: Broker, provider: IdentityProvider) -> None:
        await _until_keys_are_known(broker, provider, tmp_path)
        before = provider.requests.count("/token")
        settings = config("SASL_SSL", _login(tmp_path, provider))
        for _ in range(3):
            cluster = Cluster(address(broker, "SASL_SSL"), settings)
            try:
                assert await Admin(cluster).topics() == {}
            finally:
                await cluster.close()
        assert provider.requests.count("/token") == before + 1

    _on_a_broker(tmp_path, work)


def test_a_client_that_the_provider_refuses_gets_no_token_and_the_secret_is_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: Broker, provider: IdentityProvider) -> None:
        await _until_keys_are_known(broker, provider, tmp_path)
        with pytest.raises(KafkaError, match="401"):
            async with cluster_at(broker, "SASL_SSL", _login(tmp_path, provider, "wrong-sEcret")) as cluster:
                await Admin(cluster).topics()

    caplog.set_level(logging.DEBUG)
    _on_a_broker(tmp_path, work)
    assert "sEcret" not in caplog.text


def test_a_token_signed_by_a_new_key_is_taken_after_the_keys_are_read_again(tmp_path: Path) -> None:
    async def work(broker: Broker, provider: IdentityProvider) -> None:
        provider.keys = jwks(("old", OTHER_RSA_KEY, {}))
        while "/keys" not in provider.requests:
            await asyncio.sleep(0.02)
        provider.keys = jwks(("r", RSA_KEY, {}))
        await _until_keys_are_known(broker, provider, tmp_path)
        assert provider.requests.count("/keys") >= 2

    _on_a_broker(tmp_path, work)


def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    def log_in(connection: RawConnection, provider: IdentityProvider) -> int:
        connection.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1, SaslHandshakeResponse)
        answer = connection.ask(
            SaslAuthenticateRequest(auth_bytes=memoryview(first_message(provider.token(), {}))),
            1,
            SaslAuthenticateResponse,
        )
        assert answer.error_code == 0
        return answer.session_lifetime_ms

    async def work(broker: Broker, provider: IdentityProvider) -> None:
        await _until_keys_are_known(broker, provider, tmp_path)
        await asyncio.to_thread(in_a_thread, address(broker, "SASL_PLAINTEXT"), provider)

    def in_a_thread(where: str, provider: IdentityProvider) -> None:
        provider.lifetime_seconds = 1.0
        with RawConnection(where) as connection:
            assert 0 < log_in(connection, provider) <= 1000
            connection.ask(MetadataRequest(topics=[]), 1, MetadataResponse)
            # A new login keeps the connection, until its token expires, too.
            assert log_in(connection, provider) <= 1000
            with pytest.raises(ClosedByBrokerError):
                while True:
                    connection.ask(MetadataRequest(topics=[]), 1, MetadataResponse)
        provider.lifetime_seconds, provider.user = 3600.0, "anna"
        with RawConnection(where) as connection:
            log_in(connection, provider)
            provider.user = "ben"
            connection.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1, SaslHandshakeResponse)
            answer = connection.ask(
                SaslAuthenticateRequest(auth_bytes=memoryview(first_message(provider.token(), {}))),
                1,
                SaslAuthenticateResponse,
            )
            assert answer.error_code == 58

    _on_a_broker(tmp_path, work)


def test_a_listener_without_keys_says_what_to_set(tmp_path: Path) -> None:
    async def main() -> None:
        Broker(BrokerConfig(broker_settings(tmp_path, sasl_enabled_mechanisms="OAUTHBEARER,PLAIN")))

    with pytest.raises(InvalidConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        asyncio.run(main())
