"""docs/operations.md, "A cluster on several hosts": its files start three brokers and a tree. These are restarted, get
a new disk, and lose their tree, as the page describes."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from jesenska.cli.jesenska import main
from jesenska.cli.kafka.topics import kafka_topics
from jesenska.testing.process import ServerProcess
from tests.cluster.cluster import ours_only, until
from tests.peers.apache_kafka import free_port
from tests.tool_modules import module_of_tool

pytestmark = [ours_only, pytest.mark.timeout(300)]

_PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


class _Server(ServerProcess):
    """A server that is started with a file of the page."""

    _READY = re.compile(rb"jesenska(?:'s ZooKeeper server)? is up at \S+:(?P<port>\d+) ")

    def __init__(self, module: str, file: Path) -> None:
        super().__init__(None, ready_seconds=60.0)
        self._words = [sys.executable, "-m", module_of_tool(module), str(file)]

    def _command(self) -> list[str]:
        return self._words


def _written(file: Path, text: str, changes: Sequence[tuple[str, str]]) -> Path:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text)
    return file


def _code(*words: str) -> int:
    return main(["status", *words])


def test_what_the_page_says_about_several_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = _PAGE.read_text().partition("## A cluster on several hosts\n")[2].partition("\n## ")[0]
    of_tree, of_broker = re.findall(r"^```properties\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    tree_port, ports = free_port(), [free_port() for _ in range(3)]
    tree_data = tmp_path / "zookeeper"
    changes = [("/var/lib/jesenska/zookeeper", str(tree_data)), ("=2181", f"={tree_port}"), ("10.0.0.1", "127.0.0.1")]
    tree = _Server("zookeeper_server_start", _written(tmp_path / "zookeeper.properties", of_tree, changes))
    brokers = []
    for number, port in enumerate(ports, 1):
        changes = [
            ("broker.id=1", f"broker.id={number}"),
            ("10.0.0.1:2181", f"127.0.0.1:{tree_port}"),
            ("10.0.0.1:9092", f"127.0.0.1:{port}"),
            ("h1.example:9092", f"127.0.0.1:{port}"),
            ("/var/lib/jesenska/data", str(tmp_path / f"data-{number}")),
        ]
        brokers.append(_Server("kafka_server_start", _written(tmp_path / f"{number}.properties", of_broker, changes)))
    first = f"127.0.0.1:{ports[0]}"

    def in_sync() -> bool:
        return _code("--bootstrap-server", first, "--check", "replicas") == 0

    with ExitStack() as stack:
        for server in (tree, *brokers):
            stack.enter_context(server)
        assert "had no cluster: the new cluster " in brokers[0].log
        assert "had no cluster" not in brokers[1].log
        assert "has no effect" not in "".join(server.log for server in (tree, *brokers))
        assert in_sync()
        assert re.search(r"^brokers: +3$", capsys.readouterr().out, re.MULTILINE)
        create = ["--bootstrap-server", first, "--create", "--topic", "clicks", "--partitions", "4"]
        assert kafka_topics.main(create) == 0
        assert [path.name for path in tmp_path.glob("data-*/clicks-0")] == ["clicks-0"] * 3

        # Restarted in order.
        assert brokers[1].stop() == 0
        # The others hear of it a moment after it has ended; until then they name a broker that cannot be reached.
        until(lambda: _code("--bootstrap-server", first, "--check", "replicas") == 5, "a replica is out of sync")
        brokers[1].start()
        until(in_sync, "every replica is in sync")

        # A new disk.
        assert brokers[2].stop() == 0
        shutil.rmtree(tmp_path / "data-3")
        brokers[2].start()
        until(in_sync, "every replica is in sync")

        # The tree is lost.
        for server in (*brokers, tree):
            assert server.stop() == 0
        shutil.rmtree(tree_data)
        rebuilt = [
            "tree",
            "rebuild",
            *(str(tmp_path / f"data-{number}") for number in (1, 2, 3)),
            "--data",
            str(tree_data),
            "--chroot",
            "/kafka",
        ]
        assert main(rebuilt) == 0
        for server in (tree, *brokers):
            server.start()
        until(in_sync, "every replica is in sync")
        assert re.search(r"^topics: +1$", capsys.readouterr().out, re.MULTILINE)
