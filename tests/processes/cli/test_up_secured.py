"""`jesenska up --secured`: one broker, and three, with the certificates and logins of `jesenska init --secure`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.cli.commands.secure_layout import lay_out_secured
from jesenska.cli.jesenska import main as jesenska
from jesenska.cli.kafka.cluster.kafka_acls import main as kafka_acls
from jesenska.cli.kafka.cluster.kafka_server_start import main as kafka_server_start
from jesenska.cli.kafka.records.kafka_console_consumer import main as console_consumer
from jesenska.cli.kafka.topics.kafka_configs import main as kafka_configs
from jesenska.cli.kafka.topics.kafka_topics import main as kafka_topics
from jesenska.security.authority import hosts_of
from tests.processes.cli.conftest import Tool
from tests.several_brokers import SECONDS, SeveralBrokers

pytestmark = pytest.mark.timeout(180)


def login(directory: Path, user: str, password: str) -> str:
    """Writes the settings of a user's clients, and returns the path of the file."""
    text = (directory / "config" / "client.properties").read_text()
    kept = [line for line in text.splitlines() if not line.startswith(("sasl", "  username", "bootstrap"))]
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    path = directory / f"{user}.properties"
    path.write_text(
        "\n".join(
            [
                *kept,
                "sasl.mechanism=SCRAM-SHA-512",
                f'sasl.jaas.config={module} username="{user}" password="{password}";',
            ]
        )
    )
    return str(path)


def produce(bootstrap: str, config: str, topic: str, line: str) -> subprocess.CompletedProcess[str]:
    module = "jesenska.cli.kafka.records.kafka_console_producer"
    command = [sys.executable, "-m", module, "--bootstrap-server", bootstrap, "--producer.config", config]
    return subprocess.run(
        [*command, "--topic", topic, "--sync"], input=f"{line}\n", text=True, capture_output=True, timeout=SECONDS
    )


@pytest.mark.parametrize("count", [1, 3])
def test_brokers_of_a_secured_directory_know_their_users(tool: Tool, tmp_path: Path, count: int) -> None:
    directory = tmp_path / "secured"
    list(lay_out_secured(directory, ["127.0.0.1"], 9093))
    admin = str(directory / "config" / "client.properties")
    with SeveralBrokers(directory / "data", count, "--secured", str(directory)) as brokers:
        assert f" --command-config {admin} --create" in brokers.log
        at = ("--bootstrap-server", brokers.bootstrap)
        assert len(brokers.bootstrap.split(",")) == count
        admins = (*at, "--command-config", admin)
        added = "SCRAM-SHA-512=[password=of-anna]"
        entity = ("--alter", "--entity-type", "users", "--entity-name", "anna", "--add-config", added)
        for made in (
            tool(kafka_topics, *admins, "--create", "--topic", "orders", "--partitions", "3"),
            tool(kafka_configs, *admins, *entity),
            tool(kafka_acls, *admins, "--add", "--allow-principal", "User:anna", "--producer", "--topic", "orders"),
            tool(kafka_acls, "--command-config", _at(directory, brokers.bootstrap), "--list"),
        ):
            assert made.code == 0, made.err
        described = tool(kafka_topics, *admins, "--describe", "--topic", "orders").out
        assert f"ReplicationFactor: {count}" in described
        anna = login(directory, "anna", "of-anna")
        done = produce(brokers.bootstrap, anna, "orders", "one")
        assert done.returncode == 0, done.stderr
        words = ("--topic", "orders", "--from-beginning", "--max-messages", "1", "--timeout-ms", "60000")
        assert tool(console_consumer, *at, "--consumer.config", admin, *words).lines == ["one"]
        refused = tool(console_consumer, *at, "--consumer.config", anna, *words)
        assert refused.code == 1
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.err
        assert "The user lacks a right to the topic: an administrator adds it with kafka-acls --add" in refused.err
        wrong = produce(brokers.bootstrap, login(directory, "anna", "wrong"), "orders", "two")
        assert wrong.returncode == 1
        assert "Authentication failed" in wrong.stderr
        stranger = produce(brokers.bootstrap, str(_plain(directory)), "orders", "three")
        assert stranger.returncode == 1
        assert "set security.protocol to SSL, SASL_SSL or SASL_PLAINTEXT if its listener requires that" in (
            stranger.stderr
        )
        without_rights = produce(brokers.bootstrap, _user_without_rights(tool, directory, admins), "orders", "five")
        assert without_rights.returncode == 1
        assert "TOPIC_AUTHORIZATION_FAILED" in without_rights.stderr
        untrusting = produce(brokers.bootstrap, str(_untrusting(directory)), "orders", "four")
        assert untrusting.returncode == 1
        assert "set ssl.truststore.location to the authority" in untrusting.stderr
        secret = _password(admin)
        for pid in (brokers.pid, *brokers.processes().values()):
            assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert secret not in brokers.log


def _user_without_rights(tool: Tool, directory: Path, admins: tuple[str, ...]) -> str:
    """The settings of the clients of a new user."""
    added = "SCRAM-SHA-512=[password=of-ben]"
    made = tool(
        kafka_configs, *admins, "--alter", "--entity-type", "users", "--entity-name", "ben", "--add-config", added
    )
    assert made.code == 0, made.err
    return login(directory, "ben", "of-ben")


def _plain(directory: Path) -> Path:
    """The settings of a client without TLS and login."""
    path = directory / "plain.properties"
    path.write_text("request.timeout.ms=3000\ndelivery.timeout.ms=5000\nmax.block.ms=5000\n")
    return path


def _untrusting(directory: Path) -> Path:
    """The settings of a client with a login that does not trust the authority of the brokers."""
    path = directory / "untrusting.properties"
    kept = [
        line
        for line in (directory / "config" / "client.properties").read_text().splitlines()
        if not line.startswith("ssl.truststore")
    ]
    path.write_text("\n".join([*kept, _plain(directory).read_text()]))
    return path


def _at(directory: Path, bootstrap: str) -> str:
    """The settings of the administrator's clients, with the present addresses of the brokers."""
    path = directory / "here.properties"
    text = (directory / "config" / "client.properties").read_text()
    path.write_text(f"{text}\nbootstrap.servers={bootstrap}\n")
    return str(path)


def _password(client_file: str) -> str:
    return Path(client_file).read_text().partition('password="')[2].partition('"')[0]


def test_a_secured_directory_is_made_first_and_its_hosts_are_fixed(tool: Tool, tmp_path: Path) -> None:
    missing = tool(jesenska, "up", "--secured", str(tmp_path))
    assert missing.code == 1
    assert missing.err == (
        f"jesenska: {tmp_path} has no config/server.properties: jesenska init {tmp_path} --secure makes one.\n"
    )
    list(lay_out_secured(tmp_path, ["127.0.0.1"], 9093))
    hosted = tool(jesenska, "up", "--secured", str(tmp_path), "--host", "0.0.0.0")
    assert hosted.code == 1
    assert "--host cannot be given with --secured: the certificate in" in hosted.err
    plain = tmp_path / "plain"
    assert tool(jesenska, "init", str(plain)).code == 0
    unsecured = tool(jesenska, "up", "--secured", str(plain))
    assert unsecured.code == 1
    assert "does not have the one listener SASL_SSL" in unsecured.err


@pytest.mark.parametrize(("words", "folder"), [(("-n", "3"), "kafka-logs"), ((), "broker-1")])
def test_data_of_one_broker_and_of_several_are_not_mixed(
    tool: Tool, tmp_path: Path, words: tuple[str, ...], folder: str
) -> None:
    list(lay_out_secured(tmp_path, ["127.0.0.1"], 9093))
    (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "data" / folder / "meta.properties").write_text("version=0\nbroker.id=1\n")
    refused = tool(jesenska, "up", "--secured", str(tmp_path), "--port", "0", *words)
    assert refused.code == 1
    assert "has the data of" in refused.err


def test_a_broker_of_its_own_is_not_started_beside_the_data_of_several(tool: Tool, tmp_path: Path) -> None:
    list(lay_out_secured(tmp_path, ["127.0.0.1"], 9093))
    for name in ("tree", "broker-1", "broker-2"):
        (tmp_path / "data" / name).mkdir()
        (tmp_path / "data" / name / "meta.properties").write_text("version=0\nbroker.id=1\n")
    refused = tool(kafka_server_start, str(tmp_path / "config" / "server.properties"))
    assert refused.code == 1
    assert "kafka-logs has no data, but" in refused.err
    assert "start them with jesenska up -n 2 again" in refused.err


@pytest.mark.parametrize("data", ["data", "data/kafka-logs"])
def test_secured_data_are_not_served_without_security(tool: Tool, tmp_path: Path, data: str) -> None:
    list(lay_out_secured(tmp_path, ["127.0.0.1"], 9093))
    refused = tool(jesenska, "up", "--port", "0", "--data", str(tmp_path / data))
    assert refused.code == 1
    assert f"belongs to a directory of jesenska init --secure: start it with jesenska up --secured {tmp_path}" in (
        refused.err
    )


def test_data_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    list(lay_out_secured(tmp_path, ["127.0.0.1"], 9093))
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_renewed_certificate_keeps_its_hosts(tool: Tool, tmp_path: Path) -> None:
    list(lay_out_secured(tmp_path, ["kafka.example", "10.0.0.7"], 9093))
    path = tmp_path / "security" / "broker-0.pem"
    before = path.read_bytes()
    assert tool(jesenska, "cert", str(tmp_path), "broker-0").code == 0
    assert path.read_bytes() != before
    assert hosts_of(path.read_bytes()) == ["kafka.example", "10.0.0.7"]
    assert tool(jesenska, "cert", str(tmp_path), "anna").code == 0
    assert hosts_of((tmp_path / "security" / "anna.pem").read_bytes()) == []


@pytest.mark.parametrize("host", ["bad host", "http://kafka.example", "a,b", ""])
def test_a_host_that_cannot_be_is_refused(tool: Tool, tmp_path: Path, host: str) -> None:
    refused = tool(jesenska, "init", str(tmp_path / "new"), "--secure", "--host", host)
    assert refused.code == 1
    assert "is not a host: write a name such as kafka.example" in refused.err


def test_a_key_of_the_authority_that_was_moved_away_is_named(tool: Tool, tmp_path: Path) -> None:
    list(lay_out_secured(tmp_path, ["127.0.0.1"], 9093))
    (tmp_path / "security" / "ca.key").unlink()
    refused = tool(jesenska, "cert", str(tmp_path), "broker-0")
    assert refused.code == 1
    assert refused.err == (
        f"jesenska: The key of the authority, {tmp_path}/security/ca.key, is missing, so no certificate can be "
        "made: put the key file back.\n"
    )
