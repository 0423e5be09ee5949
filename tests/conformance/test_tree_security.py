"""TLS and logins of the tree's protocol: our client with Apache ZooKeeper, and Java's client with our server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from jesenska.metadata.tree_operations import ACL_ALL, READ, Acl, NoAuthError
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.access_settings import tree_access
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.session import NoSessionError, TlsFailedError
from jesenska.security.authority import new_authority, write_secret
from tests.conformance.conftest import need
from tests.peers.zookeeper import ZooKeeper

pytestmark = pytest.mark.conformance

_JAAS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="of kafka" user_anna="of anna";
};
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="of kafka"; };
Anna { org.apache.zookeeper.server.auth.DigestLoginModule required username="anna" password="of anna"; };
Wrong { org.apache.zookeeper.server.auth.DigestLoginModule required username="anna" password="of kafka"; };
"""


def nothing(name: str) -> None:
    """The value of every setting that is not given."""


class Secured(NamedTuple):
    """An Apache ZooKeeper with TLS and logins, and the files of its clients."""

    zookeeper: ZooKeeper
    directory: Path

    @property
    def tls(self) -> dict[str, str]:
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": str(self.directory / "client.pem"),
            "zookeeper.ssl.truststore.location": str(self.directory / "ca.pem"),
        }

    def environment(self, entry: str = "Client") -> dict[str, str]:
        return {
            "KAFKA_OPTS": f"-Djava.security.auth.login.config={self.directory}/jaas.conf "
            f"-Dzookeeper.sasl.clientconfig={entry}"
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    need("java", "mvn")
    directory = tmp_path_factory.mktemp("secured")
    authority, now = new_authority("tests", datetime.now(UTC)), datetime.now(UTC)
    for name in ("server", "client"):
        write_secret(directory / f"{name}.pem", authority.issue(name, ["127.0.0.1", "localhost"], now))
    (directory / "ca.pem").write_text(authority.pem)
    (directory / "jaas.conf").write_text(_JAAS)
    auth = "org.apache.zookeeper.server.auth."
    settings = {
        "secureClientPort": "",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.x509": f"{auth}X509AuthenticationProvider",
        "authProvider.sasl": f"{auth}SASLAuthenticationProvider",
        "ssl.keyStore.location": str(directory / "server.pem"),
        "ssl.trustStore.location": str(directory / "ca.pem"),
        "ssl.clientAuth": "need",
    }
    options = [f"-Djava.security.auth.login.config={directory}/jaas.conf"]
    with ZooKeeper(directory, settings=settings, java_options=options) as zookeeper:
        yield Secured(zookeeper, directory)


async def _connect(port: int, access: TreeAccess, timeout_ms: int = 20_000) -> ZooKeeperStore:
    where = ConnectString((("127.0.0.1", port),))
    return await ZooKeeperStore.connect(where, session_timeout_ms=4000, connect_timeout_ms=timeout_ms, access=access)


def test_our_client_speaks_tls_with_apache_zookeeper_and_is_known_by_its_certificate(secured: Secured) -> None:
    async def body() -> None:
        access = tree_access(secured.tls.get, {})
        assert access.is_identified
        store = await _connect(secured.zookeeper.secure_port, access)
        assert ("x509", "CN=client") in await store.who_am_i()
        await store.create("/tls", b"x" * 300_000, acl=(Acl(ACL_ALL, "auth", ""),))
        assert (await store.get("/tls"))[0] == b"x" * 300_000
        assert (await store.get_acl("/tls"))[0] == (Acl(ACL_ALL, "x509", "CN=client"),)
        await store.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        pytest.param({"zookeeper.ssl.truststore.location": "client.pem"}, TlsFailedError, id="unknown authority"),
        pytest.param({"zookeeper.ssl.keystore.location": None}, TlsFailedError, id="no certificate"),
        pytest.param({"zookeeper.ssl.client.enable": "false"}, NoSessionError, id="no TLS"),
    ],
)
def test_a_connection_that_apache_zookeeper_or_we_do_not_trust_fails(
    secured: Secured, change: dict[str, str | None], error: type[Exception]
) -> None:
    settings: dict[str, str | None] = {**secured.tls, **change}
    if "zookeeper.ssl.truststore.location" in change:
        other = secured.directory / "other.pem"
        other.write_text(new_authority("others", datetime.now(UTC)).pem)
        settings["zookeeper.ssl.truststore.location"] = str(other)

    async def body() -> None:
        with pytest.raises(error):
            await _connect(secured.zookeeper.secure_port, tree_access(settings.get, {}), 1500)

    asyncio.run(body())


def test_our_client_logs_in_to_apache_zookeeper(secured: Secured) -> None:
    async def body() -> None:
        port = secured.zookeeper.port
        kafka = await _connect(port, tree_access(nothing, secured.environment()))
        anna = await _connect(port, tree_access(nothing, secured.environment("Anna")))
        nobody = await _connect(port, TreeAccess())
        assert ("sasl", "kafka") in await kafka.who_am_i()
        await kafka.create("/own", b"x", acl=(Acl(ACL_ALL, "auth", ""), Acl(READ, "sasl", "anna")))
        assert (await kafka.get_acl("/own"))[0] == (Acl(ACL_ALL, "sasl", "kafka"), Acl(READ, "sasl", "anna"))
        for store in (anna, nobody):
            await store.sync("/own")
        assert (await anna.get("/own"))[0] == b"x"
        for store in (anna, nobody):
            with pytest.raises(NoAuthError):
                await store.set("/own", b"y")
        with pytest.raises(NoAuthError):
            await nobody.get("/own")
        for store in (kafka, anna, nobody):
            await store.close()
        with pytest.raises(NoAuthError, match="refuses the login"):
            await _connect(port, tree_access(nothing, secured.environment("Wrong")))

    asyncio.run(body())


def test_the_shell_uses_tls_and_a_login_together(secured: Secured) -> None:
    config = secured.directory / "tls.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in secured.tls.items()))
    command = [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_shell"]
    done = subprocess.run(
        [*command, f"127.0.0.1:{secured.zookeeper.secure_port}", "-zk-tls-config-file", str(config), "whoami"],
        env={**os.environ, **secured.environment("Anna")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sasl: anna" in done.stdout
    assert "x509: CN=client" in done.stdout
