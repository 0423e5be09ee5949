"""TLS and logins of the tree's protocol: our client with Apache ZooKeeper, and Java's client with our server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from jesenska.metadata.tree_operations import ACL_ALL, OPEN_ACL, READ, Acl, NoAuthError
from jesenska.metadata.zookeeper.client.access import TreeAccess
from jesenska.metadata.zookeeper.client.access_settings import tree_access
from jesenska.metadata.zookeeper.client.client import ZooKeeperStore
from jesenska.metadata.zookeeper.client.connect_string import ConnectString
from jesenska.metadata.zookeeper.client.session import NoSessionError, TlsFailedError
from jesenska.metadata.zookeeper.server.guard import Guard
from jesenska.metadata.zookeeper.server.server import ZooKeeperServer
from jesenska.metadata.zookeeper.server.serving import ServerConfig
from jesenska.security.authority import new_authority, write_secret
from jesenska.testing import BrokerProcess
from jesenska.testing.tree import TreeProcess
from tests.conformance.conftest import need
from tests.peers.apache_kafka import ApacheKafka, java_command
from tests.peers.zookeeper import ZooKeeper, shell
from tests.served_tree import ServedTree

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
        "secureClientPortAddress": "127.0.0.1",
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


async def _acls(port: int, root: str, environment: dict[str, str]) -> dict[str, tuple[frozenset[Acl], int]]:
    """The rules of all nodes below a root, with the numbers of their changes, by path."""
    store = await _connect(port, tree_access(nothing, environment))
    found: dict[str, tuple[frozenset[Acl], int]] = {}

    async def walk(path: str) -> None:
        if "jesenska" in path:
            return  # a node of our own
        acl, stat = await store.get_acl(path)
        found[path.removeprefix(root)] = frozenset(acl), stat.aversion
        for name in (await store.children(path))[0]:
            await walk(f"{path}/{name}")

    await walk(root)
    await store.close()
    return found


def _use(bootstrap: str) -> None:
    """Makes a topic, a user, quotas, settings of a broker and access rules."""

    def tool(name: str, *words: str) -> None:
        command = [sys.executable, "-m", f"jesenska.cli.kafka.{name}", "--bootstrap-server", bootstrap, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    user = ("--alter", "--entity-type", "users", "--entity-name", "anna")
    tool("topics.kafka_topics", "--create", "--topic", "t", "--partitions", "1", "--config", "retention.ms=100000")
    tool("topics.kafka_configs", *user, "--add-config", "SCRAM-SHA-256=[password=x]")
    of_client = ("--entity-type", "clients", "--entity-name", "c", "--add-config", "producer_byte_rate=1000")
    tool("topics.kafka_configs", *user, *of_client)
    of_broker = ("--entity-type", "brokers", "--entity-name", "0", "--add-config", "log.cleaner.threads=2")
    tool("topics.kafka_configs", "--alter", *of_broker)
    for pattern in ("literal", "prefixed"):
        words = ("--operation", "Read", "--topic", "t", "--resource-pattern-type", pattern)
        tool("cluster.kafka_acls", "--add", "--allow-principal", "User:a", *words)


@pytest.mark.timeout(240)
def test_our_broker_and_our_tool_protect_nodes_as_apache_kafkas_do(secured: Secured, tmp_path: Path) -> None:
    port = secured.zookeeper.port
    settings = {
        "zookeeper.set.acl": "true",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
    }
    options = secured.environment()["KAFKA_OPTS"].split()
    with ApacheKafka(
        "3.9.1",
        tmp_path / "kafka",
        heap="400m",
        zookeeper_connect=f"127.0.0.1:{port}/of/theirs",
        java_options=options,
        settings=settings,
    ) as kafka:
        _use(kafka.bootstrap)
        theirs = asyncio.run(_acls(port, "/of/theirs", secured.environment()))
    own = {**settings, "zookeeper.connect": f"127.0.0.1:{port}/by/ours", "broker.id": "0"}
    with BrokerProcess(tmp_path / "ours", settings=own, environment=secured.environment()) as ours:
        _use(ours.bootstrap)
        found = asyncio.run(_acls(port, "/by/ours", secured.environment()))
    assert (Acl(READ, "world", "anyone") in theirs["/brokers"][0], len(theirs["/config/users/anna"][0])) == (True, 1)
    differences = {
        path: (found.get(path), theirs.get(path)) for path in {*found, *theirs} if found.get(path) != theirs.get(path)
    }
    assert differences == {}

    def migrate(action: str) -> None:
        words = ("--zookeeper.acl", action, "--zookeeper.connect")
        theirs = java_command(
            "3.9.1",
            "kafka.admin.ZkSecurityMigrator",
            *words,
            f"127.0.0.1:{port}/of/theirs",
            heap="128m",
            java_options=options,
        )
        ours = [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_security_migration", *words]
        printed = []
        for command in (theirs, [*ours, f"127.0.0.1:{port}/by/ours"]):
            done = subprocess.run(
                command, env={**os.environ, **secured.environment()}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout)
        assert printed[0] == printed[1]

    for action in ("unsecure", "secure"):
        migrate(action)
        theirs = asyncio.run(_acls(port, "/of/theirs", secured.environment()))
        found = asyncio.run(_acls(port, "/by/ours", secured.environment()))
        assert found == theirs
        assert (found["/config/users/anna"][0] == frozenset(OPEN_ACL)) == (action == "unsecure")


def cut(server: ZooKeeperServer) -> None:
    """Ends all connections of a server."""
    for connection in list(server.connections):
        connection.close()


@pytest.mark.timeout(240)
def test_brokers_of_apache_kafka_and_ours_share_our_secured_tree(secured: Secured, tmp_path: Path) -> None:
    guard = Guard({"kafka": "of kafka"}, required=frozenset({"sasl"}))
    with ServedTree(tmp_path / "tree.db", ServerConfig(tick_ms=1000), guard=guard) as served:
        settings = {"zookeeper.set.acl": "true"}
        theirs = ApacheKafka(
            "3.9.1",
            tmp_path / "kafka",
            heap="400m",
            zookeeper_connect=f"{served.address}/kafka",
            first_id=1,
            java_options=secured.environment()["KAFKA_OPTS"].split(),
            settings=settings,
        )
        own = {**settings, "zookeeper.connect": f"{served.address}/kafka", "broker.id": "2"}
        with theirs, BrokerProcess(tmp_path / "ours", settings=own, environment=secured.environment()) as ours:
            command = [sys.executable, "-m", "jesenska.cli.kafka.topics.kafka_topics", "--bootstrap-server"]
            words = ("--create", "--topic", "t", "--partitions", "2", "--replication-factor", "2")
            done = subprocess.run([*command, ours.bootstrap, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            tree = served.server.tree.tree
            assert tree.children("/kafka/brokers/ids")[0] == ["1", "2"]
            assert set(tree.acl("/kafka/brokers/topics/t")[0]) == {
                Acl(ACL_ALL, "sasl", "kafka"),
                Acl(READ, "world", "anyone"),
            }
            assert tree.acl("/kafka/config/users")[0] == (Acl(ACL_ALL, "sasl", "kafka"),)
            before = set(tree.sessions)
            # Both log in again after the end of their connections, and keep their sessions.
            served.call(lambda: cut(served.server))
            words = ("--create", "--topic", "u", "--partitions", "2", "--replication-factor", "2")
            done = subprocess.run([*command, ours.bootstrap, *words], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            assert set(tree.sessions) == before
        options = [f"-Djava.security.auth.login.config={secured.directory}/jaas.conf"]
        answer = shell(served.server.port, "ls /kafka/brokers/topics", java_options=options)
        assert "[t, u]" in answer
        wrong = shell(
            served.server.port, "ls /", java_options=[*options, "-Dzookeeper.sasl.clientconfig=Wrong"], log_level="OFF"
        )
        assert "kafka" not in wrong
        assert "AuthFailed" in wrong


def test_javas_clients_use_tls_and_logins_of_our_server(secured: Secured, tmp_path: Path) -> None:
    settings = {
        "secureClientPort": "0",
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(secured.directory / "server.pem"),
        "ssl.trustStore.location": str(secured.directory / "ca.pem"),
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "sasl",
    }
    with TreeProcess(tmp_path, settings, environment=secured.environment()) as tree:
        found = re.search(r":(\d+) with TLS", tree.log)
        assert found is not None
        tls = {
            "client.secure": "true",
            "clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "ssl.keyStore.location": str(secured.directory / "client.pem"),
            "ssl.trustStore.location": str(secured.directory / "ca.pem"),
        }
        options = [f"-Dzookeeper.{name}={value}" for name, value in tls.items()]
        options += [f"-Djava.security.auth.login.config={secured.directory}/jaas.conf"]
        answer = shell(int(found[1]), "create /a x auth::cdrwa", "getAcl /a", "whoami", java_options=options)
        for text in ("Created /a", "'x509,'CN=client", "'sasl,'kafka", "x509: CN=client", "sasl: kafka"):
            assert text in answer
        (tmp_path / "theirs").mkdir()
        with ApacheKafka(
            "3.9.1",
            tmp_path / "theirs",
            heap="400m",
            zookeeper_connect=f"127.0.0.1:{found[1]}/kafka",
            java_options=options[-1:],
            settings={**secured.tls, "zookeeper.set.acl": "true"},
        ):
            answer = shell(int(found[1]), "getAcl /kafka/brokers/ids/0", java_options=options)
            assert "'x509,'CN=client" in answer
            assert "'sasl,'kafka" in answer
