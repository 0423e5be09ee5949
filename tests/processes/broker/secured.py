"""A broker in this process with a listener of each security protocol, and clients with every kind of login."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from jesenska.broker.server import Broker
from jesenska.client.client_config import ClientConfig, client_config
from jesenska.client.cluster import Cluster
from jesenska.config.layers import BrokerConfig
from jesenska.config.settings.client_settings import ADMIN_SETTINGS
from jesenska.security.authority import Authority, new_authority

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
ADMIN_SECRET, ANNA_SECRET = "admin-sEcret", "anna-sEcret"
AUTHORITY: Authority = new_authority("test", datetime.now(UTC))
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def certificate(name: str, *hosts: str) -> str:
    """A key and a certificate from the authority, as PEM."""
    return AUTHORITY.issue(name, hosts, datetime.now(UTC))


def broker_settings(directory: Path, **more: str) -> dict[str, str]:
    """The settings of the broker. Names in `more` have underscores in place of dots."""
    keystore = directory / "broker.pem"
    if not keystore.exists():
        keystore.write_text(certificate("broker", "127.0.0.1", "localhost"))
    return {
        "log.dirs": str(directory / "data"),
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in PROTOCOLS),
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.pem,
        "ssl.client.auth": "requested",
        "sasl.jaas.config": f'{PLAIN} username="admin" password="{ADMIN_SECRET}" user_admin="{ADMIN_SECRET}" '
        f'user_anna="{ANNA_SECRET}";',
        "connection.failed.authentication.delay.ms": "1",
        "offsets.topic.num.partitions": "1",
    } | {name.replace("_", "."): value for name, value in more.items()}


@asynccontextmanager
async def secured_broker(settings: Mapping[str, str]) -> AsyncIterator[Broker]:
    """A started broker, which is stopped at the end of the block."""
    broker = Broker(BrokerConfig(settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def address(broker: Broker, listener: str) -> str:
    host, port = broker.endpoint_for(listener)
    return f"{host}:{port}"


def login(user: str, secret: str, mechanism: str = "PLAIN") -> dict[str, str]:
    """The settings of a login."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f'{module} username="{user}" password="{secret}";'}


def config(protocol: str, settings: Mapping[str, str] | None = None) -> ClientConfig:
    """A client's configuration from Kafka's settings. A client with TLS trusts the authority."""
    trusted = {"ssl.truststore.certificates": AUTHORITY.pem}
    return client_config(ADMIN_SETTINGS, {"security.protocol": protocol, **trusted, **(settings or {})})


@asynccontextmanager
async def cluster_at(
    broker: Broker, protocol: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """A client of the broker's listener for a protocol."""
    cluster = Cluster(address(broker, protocol), config(protocol, settings))
    try:
        yield cluster
    finally:
        await cluster.close()
