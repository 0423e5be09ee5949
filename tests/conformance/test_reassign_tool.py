"""kafka-reassign-partitions of Apache Kafka 4.3.1 and ours, on three brokers of each: the same lines and exit codes in
all four pairs, and a mistake is refused by both. What our kafka-topics says about reassignments is compared, too."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import BrokerCluster
from tests.conformance.conftest import need
from tests.conformance.reassignment_steps import TOOL, Run, Said, Steps, mistakes, steps_of_a_life
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.tools import Tools
from tests.tool_modules import module_of_tool

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

_SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
}


class _Kafka(ApacheKafka):
    """Brokers with two log directories each."""

    def _start_broker(self, node: int, quorum: list[int], cluster: str) -> None:
        at = self.directory / f"broker-{node}"
        at.mkdir(exist_ok=True)
        self.settings = {**_SETTINGS, "log.dirs": f"{at}/a,{at}/b"}
        super()._start_broker(node, quorum, cluster)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    need("java", "mvn")
    path = tmp_path_factory.mktemp("kafka")
    with _Kafka("4.3.1", path, nodes=3, heap="384m") as running:
        yield running.bootstrap, path


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    path = tmp_path_factory.mktemp("ours")
    cluster = BrokerCluster(path, session_ms=60_000, settings=_SETTINGS, log_dirs=("a", "b"))
    try:
        cluster.begin(range(3))
        yield cluster.bootstrap, path
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def expected(kafka: tuple[str, Path], tools_4: Tools, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What 4.3.1's tool says about 4.3.1's brokers."""
    return steps_of_a_life(_steps(kafka, _theirs(tools_4), tmp_path_factory.mktemp("files"), "expected"))


def _theirs(tools: Tools) -> Run:
    def run(name: str, arguments: Sequence[str]) -> Said:
        outcome = tools.run(name, *arguments)
        return Said(outcome.code, outcome.output)

    return run


def our_tool(name: str, arguments: Sequence[str]) -> Said:
    """Runs a tool of ours in this process."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            code = importlib.import_module(module_of_tool(name)).main(list(arguments))
        except SystemExit as end:
            code = end.code
    return Said(code, output.getvalue())


def _steps(cluster: tuple[str, Path], run: Run, files: Path, prefix: str) -> Steps:
    return Steps(*cluster, files, run, prefix)


def test_their_tool_says_the_same_about_our_brokers(
    ours: tuple[str, Path], tools_4: Tools, expected: list[Any], tmp_path: Path
) -> None:
    assert steps_of_a_life(_steps(ours, _theirs(tools_4), tmp_path, "theirs")) == expected


def test_our_tool_says_the_same_about_their_brokers(
    kafka: tuple[str, Path], expected: list[Any], tmp_path: Path
) -> None:
    assert steps_of_a_life(_steps(kafka, our_tool, tmp_path, "ours")) == expected


def test_our_tool_says_the_same_about_our_brokers(ours: tuple[str, Path], expected: list[Any], tmp_path: Path) -> None:
    assert steps_of_a_life(_steps(ours, our_tool, tmp_path, "ours")) == expected


@pytest.mark.parametrize("whose", ["kafka", "ours"])
def test_what_their_tool_refuses_ours_refuses_and_nothing_begins(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], tools_4: Tools, tmp_path: Path, whose: str
) -> None:
    cluster: tuple[str, Path] = request.getfixturevalue(whose)
    at = _steps(cluster, our_tool, tmp_path, f"mistakes-{whose}")
    for name, arguments in mistakes(at):
        if whose == "kafka":
            said = tools_4.run(TOOL, "--bootstrap-server", at.bootstrap, *arguments)
            assert said.code == 1, (name, said)
        capsys.readouterr()
        assert at(*arguments) == (1, []), name
        sentence = capsys.readouterr().err
        assert sentence.count("\n") == 1, (name, sentence)
        assert sentence.startswith(f"{TOOL}: "), (name, sentence)
        assert ": " in sentence.removeprefix(f"{TOOL}: ") or "; " in sentence, (name, sentence)
        assert at.ongoing() == set(), name
    assert at.rates() == [{}, {}, {}]


def test_an_existing_reassignment_is_not_replaced(
    ours: tuple[str, Path], capsys: pytest.CaptureFixture[str], tools_4: Tools, tmp_path: Path
) -> None:
    at = _steps(ours, our_tool, tmp_path, "existing")
    topic = at.topic("t", [[0, 1]], megabytes=3)
    plan = at.plan((topic, 0, [0, 2]))
    assert at("--execute", "--reassignment-json-file", plan, "--throttle", 1000)[0] == 0
    theirs = tools_4.run(TOOL, "--bootstrap-server", at.bootstrap, "--execute", "--reassignment-json-file", plan)
    assert theirs.code == 1
    capsys.readouterr()
    assert at("--execute", "--reassignment-json-file", plan) == (1, [])
    assert capsys.readouterr().err == f"{TOOL}: {theirs.output.strip()}\n"
    assert at("--cancel", "--reassignment-json-file", plan)[0] == 0
