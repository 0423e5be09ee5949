"""The documents with commands are true: typed with our tools; the quick start once more with the tools of Apache Kafka
0.8.2.2 against our broker and tree."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.conftest import need, refuse
from tests.docs.executed import blocks
from tests.peers.apache_kafka import java_command, tool_class

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "quickstart.md"
#: What 0.8.2's quick start has a reader type in its steps 2 to 6.
OLD_COMMANDS = [
    "bin/zookeeper-server-start.sh config/zookeeper.properties",
    "bin/kafka-server-start.sh config/server.properties",
    "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 --topic test",
    "bin/kafka-topics.sh --list --zookeeper localhost:2181",
    "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test ",
    "bin/kafka-console-consumer.sh --zookeeper localhost:2181 --topic test --from-beginning",
    "cp config/server.properties config/server-1.properties",
    "cp config/server.properties config/server-2.properties",
    "bin/kafka-server-start.sh config/server-1.properties &",
    "bin/kafka-server-start.sh config/server-2.properties &",
    (
        "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 3 --partitions 1 --topic "
        "my-replicated-topic"
    ),
    "bin/kafka-topics.sh --describe --zookeeper localhost:2181 --topic my-replicated-topic",
    "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic my-replicated-topic",
    "bin/kafka-console-consumer.sh --zookeeper localhost:2181 --from-beginning --topic my-replicated-topic",
    "ps | grep server-1.properties",
    "kill -9 7564",
]


def typed(directory: Path, document: Path) -> subprocess.CompletedProcess[str]:
    """The document, typed in a directory of its own and on a network of its own."""
    if (
        subprocess.run(["unshare", "--map-root-user", "--net", "true"], check=False, capture_output=True).returncode
        != 0
    ):
        refuse(["the right to make a network namespace"])
    # Only what is on the path of who has installed it.
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.docs.executed", "--alone", str(document)],
        cwd=directory, env=environment, text=True, capture_output=True, timeout=110, check=False,
    )  # fmt: skip


def test_it_has_the_old_quick_start_word_for_word() -> None:
    commands = [command for _, items in blocks(DOCUMENT.read_text()) for command, _ in items]
    places = [commands.index(command) for command in OLD_COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["quickstart.md", "tools.md"])
def test_what_it_says_happens(tmp_path: Path, name: str) -> None:
    need("unshare")
    done = typed(tmp_path, ROOT / "docs" / name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_document_that_is_not_true_is_found_out(tmp_path: Path) -> None:
    need("unshare")
    document = tmp_path / "untrue.md"
    document.write_text("```console\n> echo one\ntwo\n```\n")
    done = typed(tmp_path, document)
    assert done.returncode == 1
    assert "echo one printed\none" in done.stderr


@pytest.mark.hour("docs/quickstart.md", "src/jesenska/cli/commands/directory_layout.py")
def test_the_tools_of_0_8_2_do_the_same(tmp_path: Path) -> None:
    need("unshare", "java", "mvn")
    scripts = tmp_path / "kafka" / "bin"
    scripts.mkdir(parents=True)
    for name in ("kafka-topics", "kafka-console-producer", "kafka-console-consumer"):
        command = java_command("0.8.2.2", tool_class("0.8.2.2", name), heap="128m")
        assert shutil.which(command[0]) is not None
        script = scripts / f"{name}.sh"  # `jesenska init` leaves it as it is
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    done = typed(tmp_path, DOCUMENT)
    assert done.returncode == 0, done.stdout + done.stderr
