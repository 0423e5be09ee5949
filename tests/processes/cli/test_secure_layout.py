"""`jesenska init --secure` and `jesenska cert`: a broker with TLS and logins, and tools that know it."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jesenska.cli.commands.secure_layout import lay_out_secured, sign
from jesenska.cli.jesenska import main as jesenska
from jesenska.cli.kafka.cluster.kafka_acls import main as kafka_acls
from jesenska.cli.kafka.records.kafka_console_consumer import main as console_consumer
from jesenska.cli.kafka.topics.kafka_configs import main as kafka_configs
from jesenska.cli.kafka.topics.kafka_topics import main as kafka_topics
from jesenska.config.properties import parse_properties
from jesenska.testing.process import ServerProcess
from tests.processes.cli.conftest import Tool
from tests.tool_modules import module_of_tool


class SecuredBroker(ServerProcess):
    """A broker with the configuration that `init --secure` has made."""

    _READY = re.compile(rb"jesenska is up at \S+:(?P<port>\d+) ")

    def __init__(self, directory: Path) -> None:
        super().__init__(None, ready_seconds=60.0)
        self._words = [
            *(sys.executable, "-m", module_of_tool("kafka_server_start")),
            str(directory / "config" / "server.properties"),
            *("--override", "listeners=SASL_SSL://127.0.0.1:0", "--override", "offsets.topic.num.partitions=1"),
            *("--override", "advertised.listeners=SASL_SSL://127.0.0.1:0"),
        ]

    def _command(self) -> list[str]:
        return self._words


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("secured")
    list(lay_out_secured(made, ["localhost", "127.0.0.1"], 9093))
    return made


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[SecuredBroker]:
    with SecuredBroker(directory) as process:
        yield process


def client(directory: Path, name: str = "client.properties") -> str:
    return str(directory / "config" / name)


def password(directory: Path) -> str:
    found = re.search(r'password="(\w+)"', Path(client(directory)).read_text())
    assert found is not None
    return found[1]


def test_secrets_are_their_owners_and_there_is_one_password(directory: Path) -> None:
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in (*(directory / "security").iterdir(), *(directory / "config").iterdir())
    }
    assert {name for name, mode in modes.items() if mode & 0o077} == {"ca.pem"}
    server, ours = (Path(client(directory, name)).read_text() for name in ("server.properties", "client.properties"))
    theirs = parse_properties(Path(client(directory, "librdkafka.properties")).read_bytes())
    assert len(password(directory)) == 24
    assert server.count(password(directory)) == 2
    assert ours.count(password(directory)) == 1
    assert theirs["sasl.password"] == password(directory)


def test_the_tools_work_with_the_files_as_they_are(directory: Path, broker: SecuredBroker, tool: Tool) -> None:
    where = ["--bootstrap-server", broker.address, "--command-config", client(directory)]
    assert tool(kafka_topics, *where, "--create", "--topic", "t").code == 0
    made = tool(
        kafka_configs,
        *where,
        *("--alter", "--entity-type", "users", "--entity-name", "anna"),
        *("--add-config", "SCRAM-SHA-512=[iterations=4096,password=of-anna]"),
    )
    assert made.out == "Completed updating config for user anna.\n"
    shown = tool(kafka_configs, *where, "--describe", "--entity-type", "users")
    assert shown.out == "SCRAM credential configs for user-principal 'anna' are SCRAM-SHA-512=iterations=4096\n"
    anna = directory / "config" / "anna.properties"
    anna.write_text(
        Path(client(directory))
        .read_text()
        .replace("sasl.mechanism=PLAIN", "sasl.mechanism=SCRAM-SHA-512")
        .replace("plain.PlainLoginModule", "scram.ScramLoginModule")
        .replace('"admin"', '"anna"')
        .replace(password(directory), "of-anna")
    )
    checked = tool(jesenska, "status", *where)
    assert (checked.code, "topics:                       1" in checked.out) == (0, True)
    of_anna = ["--bootstrap-server", broker.address, "--command-config", str(anna)]
    assert tool(kafka_topics, *of_anna, "--list").out == "\n"
    allowed = ["--add", "--allow-principal", "User:anna", "--operation", "Read", "--topic", "t", "--force"]
    assert tool(kafka_acls, *where, *allowed).code == 0
    assert tool(kafka_topics, *of_anna, "--list").out == "t\n"
    assert tool(kafka_configs, *where, "--alter", "--entity-type", "users", "--entity-name", "anna",
                "--delete-config", "SCRAM-SHA-512").code == 0  # fmt: skip
    refused = tool(kafka_topics, *of_anna, "--list")
    assert (refused.code, "Authentication failed" in refused.err) == (1, True)
    assert "of-anna" not in refused.err
    assert tool(console_consumer, "--bootstrap-server", broker.address, "--topic", "t", "--timeout-ms", "100").code == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("SCRAM-SHA-256=[iterations=1,password=x]", "4096"),
        ("SCRAM-SHA-256=[iterations=4096]", "password"),
        ("SCRAM-SHA-256=[password=x],producer_byte_rate=1", "two"),
    ],
)
def test_a_credential_that_cannot_be_made_is_refused(
    directory: Path, broker: SecuredBroker, tool: Tool, text: str, sentence: str
) -> None:
    where = ["--bootstrap-server", broker.address, "--command-config", client(directory)]
    done = tool(
        kafka_configs, *where, "--alter", "--entity-type", "users", "--entity-name", "anna", "--add-config", text
    )
    assert done.code == 1
    assert sentence in done.err


def test_files_that_are_there_stay_and_a_half_is_refused(tmp_path: Path, tool: Tool) -> None:
    first = tool(jesenska, "init", str(tmp_path), "--secure", "--host", "one.example", "--port", "1234")
    assert first.code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert b"advertised.listeners=SASL_SSL://one.example:1234\n" in before[tmp_path / "config" / "server.properties"]
    assert tool(jesenska, "init", str(tmp_path), "--secure").code == 0
    same = ("--host", "one.example", "--port", "1234")
    assert tool(jesenska, "init", str(tmp_path), "--secure", *same).code == 0
    for words in (("--host", "two.example"), ("--port", "1235")):
        other = tool(jesenska, "init", str(tmp_path), "--secure", *words)
        assert other.code == 1
        assert "server.properties has the address one.example:1234 already and is not changed" in other.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "config" / "client.properties").unlink()
    refused = tool(jesenska, "init", str(tmp_path), "--secure")
    assert (refused.code, "server.properties" in refused.err) == (1, True)


def test_a_certificate_is_signed_for_a_name(tmp_path: Path, tool: Tool) -> None:
    list(lay_out_secured(tmp_path, ["localhost"], 9093))
    before = (tmp_path / "security" / "broker-0.pem").read_text()
    assert tool(jesenska, "cert", str(tmp_path), "broker-0", "--host", "localhost").code == 0
    assert (tmp_path / "security" / "broker-0.pem").read_text() != before
    assert sign(tmp_path, "anna", []).read_text().count("BEGIN CERTIFICATE") == 2
    for name in ("../anna", "", ".anna"):
        assert tool(jesenska, "cert", str(tmp_path), name).code == 1
    assert tool(jesenska, "cert", str(tmp_path / "none"), "anna").code == 1
    assert tool(jesenska, "init", str(tmp_path), "--host", "x").code == 1
    assert tool(jesenska, "init", str(tmp_path / "p"), "--secure", "--port", "0").code == 1
