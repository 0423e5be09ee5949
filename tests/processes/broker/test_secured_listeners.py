"""Listeners with TLS and SASL: which clients are admitted, under which principal, and what the others learn."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from jesenska.base.errors import (
    ErrorCode,
    InvalidConfigError,
    KafkaError,
    NetworkException,
    SaslAuthenticationFailedError,
)
from jesenska.base.identifiers import TopicPartition
from jesenska.base.limits import LOGIN_SECONDS
from jesenska.broker.server import Broker
from jesenska.client.administration.admin import Admin
from jesenska.client.administration.topic_administration import NewTopic
from jesenska.client.consumer import Consumer
from jesenska.client.producer import Producer
from jesenska.config.layers import BrokerConfig
from jesenska.controller.events import AlterClientSettings
from jesenska.net.channel import open_channel
from jesenska.net.connection import ReadBuffer
from jesenska.net.tls_transport import TlsTransport
from jesenska.security.principal import Principal
from jesenska.security.scram import make_credential
from jesenska.wire.language import Message
from jesenska.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from jesenska.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from jesenska.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from jesenska.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tests.processes.broker.secured import (
    ADMIN_SECRET,
    ANNA_SECRET,
    PLAIN,
    address,
    broker_settings,
    certificate,
    cluster_at,
    config,
    login,
    secured_broker,
)
from tests.raw_connection import ClosedByBrokerError, RawConnection

ANNA = login("anna", ANNA_SECRET)


def on_a_broker(tmp_path: Path, work: Callable[[Broker], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), secured_broker(broker_settings(tmp_path, **settings)) as broker:
            await work(broker)

    asyncio.run(main())


def principals(broker: Broker) -> set[Principal]:
    return {connection.principal for connection in broker.dispatcher.connections}


@pytest.mark.parametrize(
    ("protocol", "settings", "principal"),
    [
        ("PLAINTEXT", {}, Principal("User", "ANONYMOUS")),
        ("SSL", {}, Principal("User", "ANONYMOUS")),
        ("SSL", {"ssl.keystore.key": certificate("ben")}, Principal("User", "CN=ben")),
        ("SASL_PLAINTEXT", ANNA, Principal("User", "anna")),
        ("SASL_SSL", ANNA, Principal("User", "anna")),
        ("SASL_SSL", login("eva", "eva-sEcret", "SCRAM-SHA-256"), Principal("User", "eva")),
        ("SASL_PLAINTEXT", login("eva", "eva-sEcret", "SCRAM-SHA-512"), Principal("User", "eva")),
    ],
)
def test_records_go_in_and_out_and_the_broker_knows_the_user(
    tmp_path: Path, protocol: str, settings: dict[str, str], principal: Principal
) -> None:
    async def work(broker: Broker) -> None:
        await with_eva(broker)
        async with cluster_at(broker, protocol, settings) as cluster:
            await Admin(cluster).create_topics([NewTopic("t", 1, 1)])
            values = [os.urandom(40_000) for _ in range(30)]
            async with Producer(cluster) as producer:
                await asyncio.gather(*[await producer.send("t", value) for value in values])
            async with Consumer(cluster) as consumer:
                await consumer.assign({TopicPartition("t", 0): 0})
                read: list[bytes | None] = []
                while len(read) < len(values):
                    read += [record.value for records in (await consumer.poll(1.0)).values() for record in records]
            assert read == values
            assert principal in principals(broker)

    on_a_broker(tmp_path, work)


async def with_eva(broker: Broker) -> None:
    """Gives eva a password for both mechanisms of SCRAM."""
    credentials = {
        name: make_credential(name, "eva-sEcret", b"salt" * 4, 4096).as_text()
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    await broker.replication.settings.ask(lambda token: AlterClientSettings(token, "users/eva", credentials))


@pytest.mark.parametrize(
    "settings",
    [
        login("anna", "wrong"),
        login("nobody", ANNA_SECRET),
        login("eva", "wrong", "SCRAM-SHA-256"),
        login("nobody", "x", "SCRAM-SHA-512"),
    ],
)
def test_a_wrong_login_is_told_one_sentence_and_nothing_else(
    tmp_path: Path, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(broker: Broker) -> None:
        await with_eva(broker)
        async with cluster_at(broker, "SASL_SSL", settings) as cluster:
            with pytest.raises(SaslAuthenticationFailedError) as caught:
                await cluster.topics()
        assert str(caught.value) == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{settings['sasl.mechanism']}"
        )

    with caplog.at_level(logging.DEBUG):
        on_a_broker(tmp_path, work)
    assert "authentication of a client at 127.0.0.1 failed on listener SASL_SSL" in caplog.text
    assert "sEcret" not in caplog.text
    assert 'wrong"' not in caplog.text


def test_a_user_that_is_removed_cannot_log_in_any_more(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await with_eva(broker)
        eva = login("eva", "eva-sEcret", "SCRAM-SHA-256")
        async with cluster_at(broker, "SASL_PLAINTEXT", eva) as cluster:
            await cluster.topics()
        await broker.replication.settings.ask(
            lambda token: AlterClientSettings(token, "users/eva", {"SCRAM-SHA-256": None})
        )
        async with cluster_at(broker, "SASL_PLAINTEXT", eva) as cluster:
            with pytest.raises(SaslAuthenticationFailedError):
                await cluster.topics()

    on_a_broker(tmp_path, work)


def test_a_mechanism_that_the_listener_does_not_have_is_answered_with_those_that_it_has(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with cluster_at(broker, "SASL_SSL", login("eva", "x", "SCRAM-SHA-512")) as cluster:
            with pytest.raises(KafkaError, match=r"set sasl\.mechanism to one of PLAIN"):
                await cluster.topics()

    on_a_broker(tmp_path, work, sasl_enabled_mechanisms="PLAIN")


@pytest.mark.parametrize(
    ("protocol", "listener"), [("PLAINTEXT", "SSL"), ("PLAINTEXT", "SASL_PLAINTEXT"), ("SSL", "SASL_SSL")]
)
def test_a_client_with_another_protocol_gets_nothing(tmp_path: Path, protocol: str, listener: str) -> None:
    async def work(broker: Broker) -> None:
        host, port = broker.endpoint_for(listener)
        security = config(protocol).security
        with pytest.raises(NetworkException):
            channel = await open_channel(host, port, "x", ReadBuffer(), software_version="1", security=security)
            await channel.send(MetadataRequest(topics=None), 9)

    on_a_broker(tmp_path, work)


@asynccontextmanager
async def raw(broker: Broker, listener: str) -> AsyncIterator[RawConnection]:
    connection = await asyncio.to_thread(RawConnection, address(broker, listener))
    try:
        yield connection
    finally:
        connection.socket.close()


async def ask(connection: RawConnection, request: Message, response: type[Message], version: int) -> Message:
    return await asyncio.to_thread(connection.ask, request, version, response)


def test_old_clients_send_bare_tokens_after_a_handshake_of_version_0(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            answer = await ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 0)
            assert isinstance(answer, SaslHandshakeResponse)
            assert answer.error_code == 0
            connection.send_frame(b"\0anna\0" + ANNA_SECRET.encode())
            assert await asyncio.to_thread(connection.receive_frame) == b""
            answer = await ask(connection, ApiVersionsRequest(), ApiVersionsResponse, 0)
            assert isinstance(answer, ApiVersionsResponse)
            assert Principal("User", "anna") in principals(broker)
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            await ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 0)
            connection.send_frame(b"\0anna\0wrong")
            with pytest.raises(ClosedByBrokerError):
                await asyncio.to_thread(connection.receive_frame)

    on_a_broker(tmp_path, work)


def test_before_the_login_only_what_it_needs_is_served(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            await ask(connection, ApiVersionsRequest(), ApiVersionsResponse, 0)
            with pytest.raises(ClosedByBrokerError):
                await ask(connection, MetadataRequest(topics=None), MetadataResponse, 1)
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            await ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
            with pytest.raises(ClosedByBrokerError):
                await ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            with pytest.raises(ClosedByBrokerError):
                await ask(connection, SaslAuthenticateRequest(auth_bytes=b"x"), SaslAuthenticateResponse, 1)
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            connection.send((600_000).to_bytes(4, "big") + b"\0\x12")
            with pytest.raises(ClosedByBrokerError):
                await asyncio.to_thread(connection.receive_frame)

    on_a_broker(tmp_path, work)


async def log_in(
    connection: RawConnection, secret: str, user: str = "anna", version: int = 1
) -> SaslAuthenticateResponse:
    answer = await ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
    assert isinstance(answer, SaslHandshakeResponse)
    assert answer.error_code == 0
    message = f"\0{user}\0{secret}".encode()
    done = await ask(connection, SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, version)
    assert isinstance(done, SaslAuthenticateResponse)
    return done


def test_a_session_is_renewed_by_its_user_and_serves_nothing_after_its_end(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            assert (await log_in(connection, ANNA_SECRET)).session_lifetime_ms == 60_000
            assert (await log_in(connection, ANNA_SECRET)).error_code == 0
            await ask(connection, ApiVersionsRequest(), ApiVersionsResponse, 0)
            # As in Kafka, at most once a second.
            again = await ask(connection, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
            assert isinstance(again, SaslHandshakeResponse)
            assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
            await ask(connection, ApiVersionsRequest(), ApiVersionsResponse, 0)
            (served,) = (item for item in broker.dispatcher.connections if item.principal.name == "anna")
            assert served.authentication is not None
            served.authentication._renewed_at = None
            assert (await log_in(connection, ADMIN_SECRET, "admin")).error_code == 58
            with pytest.raises(ClosedByBrokerError):
                await ask(connection, ApiVersionsRequest(), ApiVersionsResponse, 0)
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            await log_in(connection, ANNA_SECRET)
            (served,) = (item for item in broker.dispatcher.connections if item.principal.name == "anna")
            assert served.authentication is not None
            served.authentication._ends_at = 0.0
            with pytest.raises(ClosedByBrokerError):
                await ask(connection, MetadataRequest(topics=None), MetadataResponse, 1)

    on_a_broker(tmp_path, work, connections_max_reauth_ms="60000")


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_logs_in_whether_it_can_be_told_the_lifetime_or_not(tmp_path: Path, version: int) -> None:
    """Java's clients before 2.2 send version 0."""

    async def work(broker: Broker) -> None:
        async with raw(broker, "SASL_PLAINTEXT") as connection:
            answer = await log_in(connection, ANNA_SECRET, version=version)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000 if version else 0)
            await ask(connection, MetadataRequest(topics=None), MetadataResponse, 1)

    on_a_broker(tmp_path, work, connections_max_reauth_ms="60000")


def test_our_client_takes_another_connection_before_its_session_ends(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with cluster_at(broker, "SASL_PLAINTEXT", ANNA) as cluster:
            first = await cluster.any_channel()
            assert await cluster.channel_of(broker.broker_id) is await cluster.channel_of(broker.broker_id)
            channel = await cluster.channel_of(broker.broker_id)
            channel._session_ends_at = 0.0
            assert await cluster.channel_of(broker.broker_id) is not channel
            assert not first.closed

    on_a_broker(tmp_path, work, connections_max_reauth_ms="60000")


def test_a_handshake_that_says_nothing_leaves_the_others_served(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        host, port = broker.endpoint_for("SSL")
        silent = [socket.create_connection((host, port)) for _ in range(300)]
        try:
            async with cluster_at(broker, "SSL") as cluster:
                await cluster.topics()
        finally:
            for sock in silent:
                sock.close()

    on_a_broker(tmp_path, work)


def test_a_new_certificate_is_shown_without_a_restart_and_open_connections_stay(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with cluster_at(broker, "SSL") as cluster:
            channel = await cluster.any_channel()
            (tmp_path / "broker.pem").write_text(certificate("broker", "another.host"))
            broker._security.look()
            await channel.request(MetadataRequest(topics=None), MetadataResponse)
            async with cluster_at(broker, "SSL") as other:
                with pytest.raises(NetworkException, match="certificate"):
                    await other.topics()

    on_a_broker(tmp_path, work)


def test_a_clients_second_connection_resumes_its_session_as_the_same_user(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        host, port = broker.endpoint_for("SSL")
        security = config("SSL", {"ssl.keystore.key": certificate("ben")}).security
        for is_resumed in (False, True):
            channel = await open_channel(host, port, "x", ReadBuffer(), software_version="1", security=security)
            transport = channel._connection.transport
            assert isinstance(transport, TlsTransport)
            assert transport._object.session_reused is is_resumed
            assert principals(broker) == {Principal("User", "CN=ben")}
            channel.close()
            while broker.dispatcher.connections:
                await asyncio.sleep(0)

    on_a_broker(tmp_path, work, listeners="SSL://127.0.0.1:0", inter_broker_listener_name="SSL")


def test_a_login_that_does_not_end_is_ended(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with raw(broker, "SASL_PLAINTEXT") as silent, raw(broker, "SASL_PLAINTEXT") as done:
            await log_in(done, ANNA_SECRET)
            await ask(silent, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
            silent.send(b"\0\0\0\x20\0")
            served = [item for item in broker.dispatcher.connections if item.listener_name == "SASL_PLAINTEXT"]
            for connection in served:
                connection.begun_at -= LOGIN_SECONDS
            assert await asyncio.to_thread(silent.is_closed)
            await ask(done, MetadataRequest(topics=None), MetadataResponse, 1)

    on_a_broker(tmp_path, work)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ssl.keystore.location": "/nowhere.pem"}, "/nowhere.pem"),
        ({"sasl.jaas.config": f'{PLAIN} username="a"'}, "sasl.jaas.config"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI"),
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "DIGEST-MD5"),
        ({"ssl.principal.mapping.rules": "RULE"}, "ssl.principal.mapping.rules"),
        ({"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"}, "OAUTHBEARER"),
    ],
)
def test_a_listener_that_cannot_be_secured_stops_the_start(
    tmp_path: Path, settings: dict[str, str], named: str
) -> None:
    async def main() -> None:
        with pytest.raises(InvalidConfigError, match=named):
            Broker(BrokerConfig(broker_settings(tmp_path) | settings))

    asyncio.run(main())
