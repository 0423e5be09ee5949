"""zookeeper-server-start as a process, zookeeper-shell against it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jesenska import __version__
from jesenska.cli.zookeeper import zookeeper_server_start, zookeeper_shell
from jesenska.testing import BrokerProcess
from tests.processes.cli.conftest import Tool


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    file = tmp_path / "zookeeper.properties"
    file.write_text(
        f"dataDir={tmp_path / 'data'}\nclientPort=0\nclientPortAddress=127.0.0.1\ntickTime=200\nadmin.enableServer=false\n"  # noqa: E501
    )
    return file


@contextmanager
def server(properties: Path, *arguments: str) -> Iterator[str]:
    """The address of a server. At the end SIGTERM stops it, and it must end in order."""
    command = [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_server_start", str(properties), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("jesenska's ZooKeeper server is up at 127.0.0.1:")
            yield ready.split()[6]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (
            "127.0.0.1",
            "Port {port} is taken by another process: stop that process, or choose another port for 127.0.0.1:{port}.",
        ),
        ("192.0.2.1", "192.0.2.1 is not an address of this machine: name one of its addresses."),
    ],
)
def test_a_server_that_cannot_listen_says_why(tool: Tool, properties: Path, address: str, says: str) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        result = tool(
            zookeeper_server_start.main,
            str(properties),
            "--override",
            f"clientPort={port}",
            "--override",
            f"clientPortAddress={address}",
        )
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1] == "zookeeper-server-start: " + says.format(port=port)


def test_the_shell_shows_and_changes_what_the_server_keeps(tool: Tool, properties: Path) -> None:
    def shell(*words: str) -> list[str]:
        result = tool(zookeeper_shell.main, address, *words)
        assert (result.code, result.err) == (0, "")
        return result.lines

    with server(properties, "--override", "maxClientCnxns=5") as address:
        assert shell("ls", "/") == ["[zookeeper]"]
        assert shell("create", "/a", "some data") == ["Created /a"]
        assert shell("create", "-s", "/a/n-") == ["Created /a/n-0000000000"]
        assert shell("create", "-e", "/a/e", "x") == ["Created /a/e"]
        assert shell("ls", "/a") == ["[n-0000000000]"]
        assert shell("get", "/a") == ["some data"]
        assert shell("get", "/a/n-0000000000") == ["null"]
        assert shell("set", "-v", "0", "/a", "other") == []
        stat = shell("get", "-s", "/a")
        assert stat[0] == "other"
        assert {"dataVersion = 1", "dataLength = 5", "numChildren = 1", "cversion = 3", "ephemeralOwner = 0x0"} <= set(
            stat
        )
        assert shell("stat", "/a") == stat[1:]
        assert shell("ls", "-R", "/a") == ["/a", "/a/n-0000000000"]
    with server(properties) as address:
        assert shell("get", "/a") == ["other"]
        for words, told in (
            (("delete", "/a"), "Node not empty: /a"),
            (("get", "/none"), "Node does not exist: /none"),
            (("create", "/a"), "Node already exists: /a"),
            (("set", "-v", "7", "/a", "x"), "version No is not valid : /a"),
        ):
            result = tool(zookeeper_shell.main, address, *words)
            assert (result.code, result.out, result.err) == (1, "", f"{told}\n")
        assert tool(zookeeper_shell.main, address, "frobnicate").err.startswith(
            "frobnicate is not a command of this shell.\nls [-s]"
        )
        assert shell("deleteall", "/a") == []
        assert shell("ls", "/") == ["[zookeeper]"]


def test_the_shell_reads_commands_from_its_input(properties: Path) -> None:
    with server(properties) as address:
        command = [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_shell", address]
        done = subprocess.run(
            command,
            input="create /a 'two words'\n\nget /a\nget /none\nls /\nquit\nls /\n",
            text=True,
            capture_output=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "Node does not exist: /none\n")
    assert done.stdout.splitlines() == ["Created /a", "two words", "[a, zookeeper]"]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["dataDir="], "dataDir is missing"),
        (["tickTime=often"], "tickTime=often is not a number"),
        (["tickTime=0"], "tickTime a number of milliseconds from 1"),
        (["server.1=a:2888:3888"], "an ensemble is not built"),
        (["secureClientPort=2281"], "There is no certificate"),
    ],
)
def test_a_server_that_cannot_start_says_why(tool: Tool, properties: Path, overrides: list[str], told: str) -> None:
    result = tool(
        zookeeper_server_start.main,
        str(properties),
        *[word for override in overrides for word in ("--override", override)],
    )
    assert (result.code, result.out) == (1, "")
    assert told in result.err


def test_a_second_server_does_not_take_the_directory(tool: Tool, properties: Path) -> None:
    with server(properties):
        result = tool(zookeeper_server_start.main, str(properties))
        assert result.code == 1
        assert "is in use by process" in result.err


def test_the_shell_says_when_nobody_answers(tool: Tool) -> None:
    result = tool(zookeeper_shell.main, "--timeout-ms", "300", "127.0.0.1:1", "ls", "/")
    assert (result.code, result.err) == (
        1,
        "zookeeper-shell: No ZooKeeper answers at 127.0.0.1:1: start the ZooKeeper, or name another one.\n",
    )


def test_a_brokers_port_is_told_from_a_trees(tool: Tool, broker: BrokerProcess) -> None:
    result = tool(zookeeper_shell.main, broker.bootstrap, "ls", "/")
    assert result.code == 1
    assert result.err == (
        f"zookeeper-shell: A Kafka broker answers at {broker.bootstrap}, and not a ZooKeeper: name the port of the "
        f"ZooKeeper, which is usually 2181.\n"
    )


def test_the_shell_shows_and_changes_who_may_do_what(properties: Path) -> None:
    commands = """
        create /a x
        getAcl /a
        create /b y world:anyone:r
        set /b z
        setAcl -v 0 /a ip:127.0.0.1:cdrwa,world:anyone:r
        getAcl /a
        setAcl -v 0 /a world:anyone:r
        setAcl /a nonsense
        setAcl /a world:anyone:x
        addauth digest user:pw
        whoami
        create /c z auth::cdrwa
        getAcl /c
        create -e /e mine
        getEphemerals
        set /a y 0
        set /a y 0
        create -s / first
        version
    """
    with server(properties) as address:
        command = [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_shell", address]
        done = subprocess.run(command, input=commands, text=True, capture_output=True, timeout=60)
        inside = subprocess.run(
            [*command[:-1], f"{address}/a", "getAcl", "/"], text=True, capture_output=True, timeout=60
        )
    assert done.stdout.splitlines() == [
        "Created /a",
        "'world,'anyone", ": cdrwa",
        "Created /b",
        "'ip,'127.0.0.1", ": cdrwa", "'world,'anyone", ": r",
        "Auth scheme: User", "digest: user", "ip: 127.0.0.1",
        "Created /c",
        "'digest,'user:2Om+GBbT2q/tS6pdvACZbbm7/1A=", ": cdrwa",
        "Created /e",
        "[/e]",
        "Created /0000000004",
        f"ZooKeeper CLI version: jesenska {__version__}",
    ]  # fmt: skip
    assert [line for line in done.stderr.splitlines() if not line.startswith((" ", "ls "))] == [
        'Insufficient permission : /b. Log in with a JAAS file: KAFKA_OPTS="-Djava.security.auth.login.config=FILE".',
        "version No is not valid : /a",
        "nonsense does not have the form scheme:id:perm",
        "Unknown perm type: x",
        "version No is not valid : /a",
    ]
    assert inside.stdout.splitlines() == ["'ip,'127.0.0.1", ": cdrwa", "'world,'anyone", ": r"]


def test_a_watch_tells_of_the_next_change_only(properties: Path) -> None:
    with server(properties) as address:
        command = [sys.executable, "-m", "jesenska.cli.zookeeper.zookeeper_shell", address]
        done = subprocess.run(
            command, input="create /a x\nget -w /a\nset /a y\nset /a z\n", text=True, capture_output=True, timeout=60
        )
    assert (
        done.stdout == "Created /a\nx\n\nWATCHER::\n\nWatchedEvent state:SyncConnected type:NodeDataChanged path:/a\n"
    )
