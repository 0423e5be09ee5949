"""zookeeper-server-start with logins and TLS, and the secret of `jesenska up -n N`."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jesenska.cli.shared.several_directories import tree_directory
from jesenska.cli.shared.tree_login import LOGIN_FILE
from jesenska.security.authority import new_authority, write_secret
from jesenska.testing import BrokerProcess
from jesenska.testing.tree import TreeProcess
from tests.peers.apache_kafka import free_port
from tests.several_brokers import SECONDS, SeveralBrokers
from tests.watched_processes import children_of

_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"


def opts(file: Path, *more: str) -> dict[str, str]:
    return {"KAFKA_OPTS": " ".join([f"-Djava.security.auth.login.config={file}", *more])}


def run(module: str, *words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def shell(*words: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run("jesenska.cli.zookeeper.zookeeper_shell", *words, environment=environment)


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    file = tmp_path / "jaas.conf"
    file.write_text(
        f'Server {{ {_MODULE} user_kafka="of kafka"; }}; Client {{ {_MODULE} username="kafka" password="of kafka"; }};'
        f'Wrong {{ {_MODULE} username="kafka" password="guessed"; }};'
    )
    return file


def test_the_server_admits_only_clients_that_log_in(tmp_path: Path, jaas: Path) -> None:
    settings = {"sessionRequireClientSASLAuth": "true", "authProvider.sasl": "SASLAuthenticationProvider"}
    with TreeProcess(tmp_path, settings, environment=opts(jaas)) as tree:
        assert "has no effect" not in tree.log
        done = shell(tree.address, "create", "/a", "x", environment=opts(jaas))
        assert done.returncode == 0, done.stderr
        done = shell(tree.address, "get", "/a")
        assert done.returncode == 1
        assert "only clients that log in" in done.stderr
        done = shell(tree.address, "get", "/a", environment=opts(jaas, "-Dzookeeper.sasl.clientconfig=Wrong"))
        assert done.returncode == 1
        assert "refuses the login" in done.stderr
        tree.kill()
        tree.start()
        assert shell(tree.address, "get", "/a", environment=opts(jaas)).stdout == "x\n"
        assert "of kafka" not in tree.log
        assert "guessed" not in tree.log


def test_a_broker_logs_in_and_a_broker_without_a_login_says_why_it_cannot_start(tmp_path: Path, jaas: Path) -> None:
    with TreeProcess(
        tmp_path, {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}, environment=opts(jaas)
    ) as tree:
        settings = {"zookeeper.connect": f"{tree.address}/kafka", "broker.id": "1"}
        with BrokerProcess(tmp_path / "broker", settings=settings, environment=opts(jaas)):
            done = shell(tree.address, "ls", "/kafka/brokers/ids", environment=opts(jaas))
            assert done.stdout == "[1]\n"
        with pytest.raises(Exception, match="only clients that log in"):
            BrokerProcess(tmp_path / "stranger", settings=settings).start()


def test_the_server_serves_tls_and_knows_clients_by_their_certificates(tmp_path: Path) -> None:
    authority, now = new_authority("tests", datetime.now(UTC)), datetime.now(UTC)
    for name in ("server", "client"):
        write_secret(tmp_path / f"{name}.pem", authority.issue(name, ["127.0.0.1", "localhost"], now))
    (tmp_path / "ca.pem").write_text(authority.pem)
    tls = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(tmp_path / "client.pem"),
        "zookeeper.ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    file = tmp_path / "tls.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in tls.items()))
    settings = {
        "secureClientPort": "0",
        "secureClientPortAddress": "127.0.0.1",
        "ssl.keyStore.location": str(tmp_path / "server.pem"),
        "ssl.trustStore.location": str(tmp_path / "ca.pem"),
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "x509",
    }
    with TreeProcess(tmp_path, settings) as tree:
        found = re.search(r"127\.0\.0\.1:(\d+) with TLS", tree.log)
        assert found is not None
        secure = f"127.0.0.1:{found[1]}"
        done = shell(secure, "-zk-tls-config-file", str(file), "whoami")
        assert done.returncode == 0, done.stderr
        assert "x509: CN=client" in done.stdout
        assert shell(tree.address, "ls", "/").returncode == 1
        with BrokerProcess(tmp_path / "broker", settings={"zookeeper.connect": secure, "broker.id": "1", **tls}):
            done = shell(secure, "-zk-tls-config-file", str(file), "ls", "/brokers/ids")
            assert done.stdout == "[1]\n"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sessionRequireClientSASLAuth": "true"}, "there are no users"),
        ({"enforce.auth.enabled": "true"}, "set enforce.auth.schemes"),
        ({"secureClientPort": "0"}, "ssl.keystore.location"),
        ({"secureClientPort": "x"}, "is not a port"),
        ({"secureClientPort": "0", "ssl.clientAuth": "perhaps"}, "ssl.clientAuth=perhaps"),
    ],
)
def test_settings_that_would_leave_the_tree_open_or_shut_are_refused(
    tmp_path: Path, settings: dict[str, str], sentence: str
) -> None:
    file = tmp_path / "zookeeper.properties"
    file.write_text(
        "".join(f"{k}={v}\n" for k, v in {"dataDir": str(tmp_path / "data"), "clientPort": "0", **settings}.items())
    )
    done = run("jesenska.cli.zookeeper.zookeeper_server_start", str(file))
    assert done.returncode == 1
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_several_brokers_have_a_tree_that_refuses_strangers(tmp_path: Path) -> None:
    with SeveralBrokers(tmp_path / "data", 2, "--zookeeper-port", "0") as brokers:
        file = tree_directory(brokers.data) / LOGIN_FILE
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        found = re.search(r'password="(\w+)"', file.read_text())
        assert found is not None
        secret = found[1]
        tree = (tree_directory(brokers.data) / "jesenska-tree.address").read_text().strip()
        done = shell(tree, "ls", "/brokers/ids")
        assert done.returncode == 1
        assert "only clients that log in" in done.stderr
        assert shell(tree, "ls", "/brokers/ids", environment=opts(file)).stdout == "[1, 2]\n"
        # Tools that are given the directory find the login there.
        assert run("jesenska", "tree", "backup", str(tmp_path / "file"), "--data", str(brokers.data)).returncode == 0
        done = run("jesenska", "forget-broker", "9", "--data", str(brokers.data))
        assert (done.returncode, done.stderr) == (0, "")
        for process in (brokers.pid, *children_of(brokers.pid)):
            assert secret.encode() not in Path(f"/proc/{process}/cmdline").read_bytes()
            assert secret.encode() not in Path(f"/proc/{process}/environ").read_bytes()
        assert secret not in brokers.log
        tree_process = brokers.processes()["tree"]
        os.kill(tree_process, 9)
        brokers.wait_until_said("The tree's process", SECONDS)
        # The brokers log in again to the next process of the tree, with the same password.
        assert shell(tree, "ls", "/brokers/ids", environment=opts(file)).stdout == "[1, 2]\n"
        assert secret in file.read_text()
        words = ("--bootstrap-server", brokers.bootstrap, "--create", "--topic", "t", "--partitions", "2")
        done = run("jesenska.cli.kafka.topics.kafka_topics", *words)
        assert done.returncode == 0, done.stderr


def test_the_migration_protects_nodes_and_opens_them_again(tmp_path: Path, jaas: Path) -> None:
    tool = "jesenska.cli.zookeeper.zookeeper_security_migration"
    with TreeProcess(tmp_path, environment=opts(jaas)) as tree:
        for path in ("/config", "/config/users", "/config/users/anna", "/brokers", "/consumers", "/other"):
            assert shell(tree.address, "create", path, "x").returncode == 0
        words = ("--zookeeper.connect", tree.address, "--zookeeper.acl")
        done = run(tool, *words, "secure")
        assert done.returncode == 1
        assert "has no identity" in done.stderr
        done = run(tool, *words, "secure", "--enable.path.check", environment=opts(jaas))
        assert done.returncode == 1
        assert done.stdout.endswith("Exit the command.\n")
        assert "'world,'anyone\n: cdrwa\n" in shell(tree.address, "getAcl", "/brokers").stdout
        done = run(tool, *words, "secure", environment=opts(jaas))
        assert (done.returncode, done.stderr) == (0, "")
        assert "/admin,/cluster" in done.stdout
        own, readers, all_may = "'sasl,'kafka\n: cdrwa\n", "'world,'anyone\n: r\n", "'world,'anyone\n: cdrwa\n"
        for path, acl in (
            ("/", own + readers),
            ("/brokers", own + readers),
            ("/config/users/anna", own),
            ("/consumers", all_may),
            ("/other", all_may),
        ):
            assert shell(tree.address, "getAcl", path, environment=opts(jaas)).stdout == acl, path
        assert shell(tree.address, "get", "/config/users/anna").returncode == 1
        assert shell(tree.address, "get", "/brokers").stdout == "x\n"
        assert shell(tree.address, "set", "/brokers", "y").returncode == 1
        assert run(tool, *words, "unsecure", environment=opts(jaas)).returncode == 0
        assert shell(tree.address, "getAcl", "/config/users/anna").stdout == all_may


def test_nodes_that_a_tool_with_a_login_writes_are_protected(tmp_path: Path, jaas: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        pass
    backup = tmp_path / "backup"
    done = run("jesenska", "tree", "backup", str(backup), "--data", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    with TreeProcess(tmp_path, environment=opts(jaas)) as tree:
        words = ("jesenska", "tree", "restore", str(backup), "--zookeeper", f"{tree.address}/kafka")
        done = run(*words, environment=opts(jaas))
        assert done.returncode == 0, done.stderr
        for path, rules in (("/kafka", 2), ("/kafka/brokers/topics", 2), ("/kafka/config/users", 1)):
            found = shell(tree.address, "getAcl", path, environment=opts(jaas)).stdout
            assert found.startswith("'sasl,'kafka\n: cdrwa\n"), path
            assert found.count("'") == 2 * rules, found


def test_a_broker_that_serves_its_own_tree_can_require_a_login(tmp_path: Path, jaas: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = opts(jaas, "-Dzookeeper.sessionRequireClientSASLAuth=true")
    settings = {"jesenska.zookeeper.listener": address}
    with BrokerProcess(tmp_path / "data", settings=settings, environment=environment):
        assert "only clients that log in" in shell(address, "ls", "/").stderr
        assert shell(address, "ls", "/brokers/ids", environment=opts(jaas)).stdout == "[1]\n"
    environment["KAFKA_OPTS"] += " -Dzookeeper.sasl.serverconfig=None"
    with pytest.raises(Exception, match="there are no users"):
        BrokerProcess(tmp_path / "data", settings=settings, environment=environment).start()
