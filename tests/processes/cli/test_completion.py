"""`jesenska completion`: the scripts are run by the shells themselves, with a line as it would be typed."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from jesenska.cli.commands.completion import script
from jesenska.cli.jesenska import main
from jesenska.testing import BrokerProcess
from tests.old_requests import create
from tests.raw_connection import RawConnection

_TOOLS = sorted(
    entry.name for entry in entry_points(group="console_scripts") if entry.module.startswith("jesenska.cli.")
)

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "jesenska.bash"
    path.write_text(script("bash"))
    return path


def _tab(bash_script: Path, line: str, directory: Path | None = None) -> list[str]:
    """The words that bash would offer after this line. Output on stderr would appear in the middle of the typed line,
    so there must be none."""
    program = (
        'set -u; source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _jesenska; printf "%s\\n" '
        '${COMPREPLY[@]+"${COMPREPLY[@]}"}'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", program, "bash", bash_script, line],
        capture_output=True,
        text=True,
        check=True,
        cwd=directory,
        env={**os.environ, "PATH": path},
        timeout=30,
    )
    assert done.stderr == ""
    return sorted(done.stdout.split())


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh"):
        assert main(["completion", shell]) == 0
        assert capsys.readouterr().out == script(shell)


@pytest.mark.parametrize("tool", _TOOLS)
def test_every_flag_of_every_tool_is_offered_under_both_names(bash_script: Path, tool: str) -> None:
    entry = next(iter(entry_points(group="console_scripts", name=tool)))
    parser: argparse.ArgumentParser = vars(import_module(entry.module))["_parser"]()
    wanted = sorted(
        name for action in parser._actions if action.help != argparse.SUPPRESS for name in action.option_strings
    )
    assert wanted
    for typed in (tool, f"bin/{tool}" if tool == "jesenska" else f"bin/{tool}.sh"):
        assert _tab(bash_script, f"{typed} -") == wanted


def test_each_tool_is_registered_under_both_names(bash_script: Path) -> None:
    said = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", 'source "$1"; complete -p', "bash", bash_script],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    names = {line.split()[-1] for line in said.splitlines() if "-F _jesenska" in line}
    assert names == {*_TOOLS, *(f"{name}.sh" for name in _TOOLS if name != "jesenska")}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kafka-topics --boot", ["--bootstrap-server"]),
        ("kafka-topics --bootstrap-server localhost:9092 --li", ["--list"]),
        ("kafka-topics --output ", ["json", "text"]),
        ("kafka-topics --output j", ["json"]),
        ("kafka-topics --output=t", ["text"]),
        ("kafka-topics --create --topic ", []),
        ("kafka-topics --create --config retention.m", ["retention.ms="]),
        ("kafka-topics --create --config retention.ms=", []),
        ("kafka-topics --partitions ", []),
        ("kafka-producer-perf-test --producer-props acks=1 compression.t", ["compression.type="]),
        ("kafka-server-start server.properties --override num.part", ["num.partitions="]),
        (
            "jesenska ",
            [
                "balance",
                "branch",
                "cert",
                "completion",
                "decommission",
                "export",
                "forget-broker",
                "import",
                "init",
                "recommission",
                "settings",
                "status",
                "streams",
                "tree",
                "up",
                "verify",
            ],
        ),
        ("jesenska streams ", ["describe", "explain", "run"]),
        ("jesenska tree ", ["backup", "inventory", "rebuild", "restore"]),
        ("jesenska up --log-level d", ["debug"]),
        ("jesenska up --any", ["--any-port"]),
        ("jesenska completion ", ["bash", "zsh"]),
        ("kafka-verifiable-producer --acks ", ["-1", "0", "1"]),
    ],
)
def test_what_follows_is_offered(bash_script: Path, line: str, offered: list[str]) -> None:
    assert _tab(bash_script, line) == offered


def test_files_and_directories_are_offered_where_they_are_meant(bash_script: Path, tmp_path: Path) -> None:
    (tmp_path / "server.properties").touch()
    (tmp_path / "store").mkdir()
    assert _tab(bash_script, "kafka-server-start s", tmp_path) == ["server.properties", "store"]
    assert _tab(bash_script, "kafka-topics --command-config ser", tmp_path) == ["server.properties"]
    assert _tab(bash_script, "jesenska up --data s", tmp_path) == ["store"]


def test_topics_of_the_cluster_on_the_line_are_offered(bash_script: Path, broker: BrokerProcess) -> None:
    with RawConnection(broker.bootstrap) as connection:
        create(connection, "completed-one")
        create(connection, "completed-two")
    for line in (
        f"kafka-topics --bootstrap-server {broker.bootstrap} --topic compl",
        f"kafka-console-producer --broker-list={broker.bootstrap} --topic compl",
    ):
        assert _tab(bash_script, line) == ["completed-one", "completed-two"]


def test_a_cluster_that_does_not_answer_says_nothing(bash_script: Path) -> None:
    assert _tab(bash_script, "kafka-topics --bootstrap-server 127.0.0.1:1 --topic ") == []


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_takes_its_script(tmp_path: Path) -> None:
    path = tmp_path / "_jesenska"
    path.write_text(script("zsh"))
    done = subprocess.run(["zsh", "-f", "-n", path], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_zsh_is_told_every_flag_with_what_it_is_for() -> None:
    text = script("zsh")
    assert text.startswith("#compdef jesenska kafka-acls kafka-acls.sh kafka-broker-api-versions ")
    assert "'--bootstrap-server=[The Kafka server to connect to.]:HOST\\:PORT[,...]: '" in text
    assert (
        "'--output=[How to answer: as Kafka'\\''s tool does, or as JSON (default: text).]:OUTPUT:(text json)'" in text
    )
    assert "'--topic=[The topic; for all actions but --create a regular expression.]:TOPIC:_jesenska_topics'" in text
    # The values that follow the first of --producer-props.
    assert "'*:NAME=VALUE:_jesenska_settings producer'" in text
