"""A benchmark reports at once the programs that it lacks, and a row that fails leaves the other rows alone."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from bench import broker_a_row, needs
from bench.broker_a_row import RowRun, run_rows
from bench.needs import Need, kafka, require
from bench.unfinished import Unfinished

from jesenska.base.errors import JesenskaError

_ROOT = Path(__file__).parents[3]
_JAVA = (
    "java is neither in JAVA_HOME nor on the PATH: install a JDK, 17 or newer (apt-get install "
    "openjdk-17-jdk-headless)."
)
_MAVEN = "are not there, and mvn, which fetches them, is not on the PATH: install it (apt-get install maven)."


def _jars(release: str, streams: str = "") -> str:
    return f"the jars of Apache Kafka {release}{streams} {_MAVEN}"


_KAFKA, _KAFKA_3 = (_JAVA, _jars("4.3.1")), (_JAVA, _jars("3.9.1"))
_KCAT = "kcat is not on the PATH: install it (apt-get install kcat), or choose other rows with --rows."
_CONNECTOR = f"the jars of Spark's Kafka connector {_MAVEN}"

#: The words that each command prints on a machine without programs and jars. PySpark brings a Java.
_TOLD: dict[str, tuple[str, ...]] = {
    "broker_bench": (*_KAFKA, _KCAT),
    "broker_bench --sides jesenska --rows kcat*produce*,*,kcat": (*_KAFKA, _KCAT),
    "broker_bench --sides jesenska --rows idle --profile perf": (
        "perf is not on the PATH: install it (apt-get install linux-perf), or profile with --profile cprofile.",
    ),
    "cluster_bench --sides jesenska": _KAFKA,
    "compaction_bench": _KAFKA,
    "failover_several": (*_KAFKA, _jars("3.9.1")),
    "failover_several --sides apart --rows roll": _KAFKA,
    "instructions": ("valgrind is not on the PATH: install it (apt-get install valgrind).",),
    "many_partitions_several --sides kafka": _KAFKA,
    "move_bench": _KAFKA_3,
    "old_formats_bench": (*_KAFKA_3, _jars("0.10.2.2")),
    "quota_bench": _KAFKA,
    "reassignment_bench": (*_KAFKA, _jars("3.9.1")),
    "spark_connector_bench": (*_KAFKA, _CONNECTOR),
    "streams_bench": (_JAVA, _jars("3.9.1", " and its Streams")),
    "tls_bench": _KAFKA,
    "tls_connections": _KAFKA,
    "transactions_bench": (*_KAFKA, _KCAT),
    "transactions_bench --sides jesenska --rows consume": (*_KAFKA, _KCAT),
    "tree_bench": _KAFKA_3,
}
#: Benchmarks that need nothing but the packages that script/setup test installs.
_WITHOUT_NEEDS = {
    "branch_bench",
    "exactly_once_bench",
    "failover_bench",
    "groups_bench",
    "log_bench",
    "records_bench",
    "restart_bench",
    "spark_bench",
    "streams_state_bench",
    "throttled_moves",
    "warm_brokers_bench",
}
#: Started by others, not by people.
_PARTS = {"counted_requests", "counted_start", "profiled", "profiled_tree", "spark_side", "streams_side"}


def test_every_command_is_among_these() -> None:
    commands = {path.stem for path in (_ROOT / "bench").glob("*.py") if "__main__" in path.read_text()}
    assert commands == {words.split()[0] for words in _TOLD} | _WITHOUT_NEEDS | _PARTS


@pytest.mark.parametrize("words", _TOLD)
def test_what_is_not_there_is_told_before_anything_is_done(words: str, tmp_path: Path) -> None:
    program, *arguments = words.split()
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("JAVA_HOME", "PEERS_JAVA_OPTIONS", "JESENSKA_PURE")
    }
    environment |= {"PATH": str(tmp_path), "PEERS_CACHE": str(tmp_path), "JESENSKA_BENCH_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{program}", *arguments],
        cwd=_ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr[-3000:]
    assert done.stderr.splitlines() == [f"{program}: {sentence}" for sentence in _TOLD[words]]
    assert done.stdout == ""


def test_jars_that_are_there_need_no_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.peers.apache_kafka.CACHE", tmp_path)
    monkeypatch.setenv("PATH", "")
    jars = kafka("4.3.1")[1]
    assert jars.missing() is not None
    (tmp_path / "4.3.1").mkdir()
    (tmp_path / "4.3.1" / ".complete").touch()
    assert jars.missing() is None
    assert kafka("4.3.1", streams=True)[1].missing() is not None


def test_a_query_of_sparks_needs_pyspark_and_a_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(environment: object) -> None:
        raise JesenskaError("no Java")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(needs, "java_home", nowhere)
    assert [need.missing() for need in needs.SPARK_QUERY] == [
        "PySpark is not installed",
        "no Java that Spark can use was found",
    ]


def test_needs_that_are_met_are_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    require("a_bench", [Need(lambda: None, "do nothing")])
    assert capsys.readouterr().err == ""


class _Broker:
    """A stand-in for a broker that starts nothing."""

    name, bootstrap, pid = "jesenska", "", 0

    def __init__(self, *_: object) -> None: ...

    def start(self) -> float:
        return 0.0

    def stop(self) -> None: ...

    def profiled(self, row: str) -> AbstractContextManager[None]:
        return nullcontext()

    def loop_lag_p99_ms(self) -> tuple[float, float] | None:
        return None


def test_a_row_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(broker_a_row, "Jesenska", _Broker)
    monkeypatch.setattr(broker_a_row, "end_in_order", lambda: None)
    monkeypatch.setattr(sys, "argv", ["some_bench.py", "--sides", "jesenska", "--rounds", "1"])

    def work(run: RowRun) -> None:
        if run.row == "second":
            raise FileNotFoundError("kcat")
        run.figures.add(run.row, "records/s", 7.0)

    assert run_rows("Benchmarks.", ("first", "second", "third"), lambda place: {}, work) == 1
    printed, said = capsys.readouterr()
    assert "| first | records/s | 7.00 |" in printed
    assert "| third | records/s | 7.00 |" in printed
    assert said.splitlines()[-1] == "some_bench: second (jesenska): FileNotFoundError: kcat"


def test_a_program_that_is_told_to_end_does() -> None:
    unfinished = Unfinished("a_bench")
    with pytest.raises(SystemExit), unfinished.part("a row"):
        raise SystemExit(143)
    assert unfinished.exit_code() == 0
