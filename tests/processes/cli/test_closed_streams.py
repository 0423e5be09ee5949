"""Tools whose standard input or output is closed, or whose reader ends: they end without a message of Python's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.testing import BrokerProcess
from tests.tool_modules import module_of_tool

#: A tool of each kind: tools that read, tools that print while they work, tools that print from a callback. @ is
#: replaced by the broker.
TOOLS = (
    "kafka_topics --bootstrap-server @ --list",
    "kafka_console_producer --bootstrap-server @ --topic closed-streams",
    "kafka_console_consumer --bootstrap-server @ --topic closed-streams --from-beginning --timeout-ms 200",
    "kafka_verifiable_producer --bootstrap-server @ --topic closed-streams --max-messages 300",
)


@pytest.fixture(scope="module")
def bootstrap(broker: BrokerProcess) -> str:
    command = [
        sys.executable,
        "-m",
        "jesenska.cli.kafka.records.kafka_verifiable_producer",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        "closed-streams",
    ]
    subprocess.run([*command, "--max-messages", "3"], check=True, stdout=subprocess.DEVNULL, timeout=60)
    return broker.bootstrap


def said(shell: str, words: str) -> tuple[int, str]:
    tool, _, arguments = words.partition(" ")
    command = ["bash", "-c", shell.replace("TOOL", f"{sys.executable} -m {module_of_tool(tool)} {arguments}")]
    # As for a user: printed text waits in a buffer.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, env=environment)
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", TOOLS, ids=lambda words: words.split()[0])
@pytest.mark.parametrize(
    "shell",
    [
        "TOOL <&- >&-",
        "set -o pipefail; TOOL </dev/null | head -c 1 >/dev/null",
        "set -o pipefail; TOOL </dev/null 2>&1 | head -c 1 >/dev/null",
    ],
    ids=["closed", "no reader", "no reader of both"],
)
def test_a_closed_stream_is_no_error(bootstrap: str, words: str, shell: str) -> None:
    code, errors = said(shell, words.replace("@", bootstrap))
    assert "Traceback" not in errors
    assert "Exception" not in errors
    assert code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words",
    [
        *(item for item in TOOLS if "producer --bootstrap-server @ --topic" not in item or "verifiable" in item),
        "jesenska --help",
        "jesenska status --bootstrap-server @",
        "jesenska settings retention.ms",
        "kafka_configs --bootstrap-server @ --describe --entity-type topics --entity-name closed-streams",
    ],
)
def test_a_full_disk_behind_the_output_is_one_sentence(bootstrap: str, words: str) -> None:
    code, errors = said("TOOL >/dev/full", words.replace("@", bootstrap))
    tool = words.split()[0].replace("_", "-")
    assert errors.splitlines()[-1] == f"{tool}: The disk is full: make room on it, then try again."
    assert "Exception" not in errors
    assert code == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_error_is_told_although_the_disk_behind_the_output_is_full(tmp_path: Path) -> None:
    code, errors = said("TOOL >/dev/full", f"kafka_dump_log --files {tmp_path / 'none.log'}")
    assert (code, len(errors.splitlines())) == (1, 1)
    assert "cannot be read" in errors


def test_the_trees_shell_ends_at_once_without_an_input() -> None:
    code, errors = said("TOOL <&- >&-", "zookeeper_shell --timeout-ms 300 127.0.0.1:1")
    assert (code, errors) == (
        1,
        "zookeeper-shell: No ZooKeeper answers at 127.0.0.1:1: start the ZooKeeper, or name another one.\n",
    )
