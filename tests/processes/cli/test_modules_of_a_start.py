"""A broker starts without the modules that only some brokers or other programs need. Each module makes every start
slower."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: Ends when clients can connect, and prints the modules that are loaded then.
_PROGRAM = """
import io, os, signal, sys

class Announced(io.StringIO):
    def write(self, text):
        if "jesenska is up" in text:
            print("\\n".join(sys.modules), file=sys.stderr)
            os.kill(os.getpid(), signal.SIGTERM)
        return len(text)

sys.stdout = Announced()
from jesenska.cli.jesenska import main
sys.exit(main(["up", "--port", "0", "--log-level", "error", *sys.argv[1:]]))
"""
#: About 480 modules, and the packages that rooms have for their sub-rooms, which are empty.
_MODULES_MAX = 523
#: With everything below them.
_NOT_WANTED = (
    "csv",
    "email",
    "http",
    "importlib.metadata",
    "importlib.resources",
    "jesenska.base.re2_pattern",
    "jesenska.broker.handlers.k00_produce",
    "jesenska.client",
    "jesenska.interchange",
    "jesenska.metadata.renewed_store",
    "jesenska.metadata.zookeeper.client.client",
    "jesenska.metadata.zookeeper.server.server",
    "jesenska.metadata.zookeeper.server.serving",
    "jesenska.pipeline",
    "jesenska.testing",
    "logging.handlers",
    "multiprocessing",
    "numpy",
    "pandas",
    "pickle",
    "pyarrow",
    "pyspark",
    "tempfile",
    "urllib.request",
    "xml",
    "zipfile",
)


def modules_of_a_start(data: Path, *words: str) -> list[str]:
    """The modules that are imported when clients can connect to `jesenska up`."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "--data", str(data), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.split()


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return modules_of_a_start(tmp_path_factory.mktemp("start") / "data")


def test_a_start_imports_nothing_that_only_others_need(modules: list[str]) -> None:
    assert "jesenska.broker.server" in modules
    assert [name for name in modules if any(f"{name}.".startswith(f"{unwanted}.") for unwanted in _NOT_WANTED)] == []


def test_a_start_imports_no_more_modules_than_that(modules: list[str]) -> None:
    """Before you raise this number, check that the new modules are needed before the first client connects."""
    assert len(modules) <= _MODULES_MAX


def test_who_asks_for_more_gets_its_modules(tmp_path: Path) -> None:
    modules = modules_of_a_start(
        tmp_path / "data",
        "--zookeeper-port",
        "0",
        "--log-file",
        str(tmp_path / "log"),
        "--override",
        "jesenska.log.retention.policy=whole-hours",
    )
    assert {"importlib.metadata", "jesenska.metadata.zookeeper.server.server", "logging.handlers"} <= set(modules)
