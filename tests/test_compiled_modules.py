"""The modules of the request path run compiled where a compiler is there, and do the same from source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from jesenska.base.source_only import request_path_is_compiled, source_is_asked_for
from jesenska.records import codec

ROOT = Path(__file__).parents[1]
#: What is compiled decides in these, or moves their bytes.
_BROKER_TESTS = ["test_fetch_sessions", "test_fetches_in_sessions", "test_fetch_errors", "test_produce", "test_waiting"]
_TREE_TESTS = ["test_embedded", "test_journal", "test_tree", "test_watches", "test_zookeeper_messages", "test_zookeeper_server"]
SAME_TESTS = ["tests/log", "tests/net", *(f"tests/metadata/{name}.py" for name in _TREE_TESTS), *(f"tests/broker/{name}.py" for name in _BROKER_TESTS)]


def _listed() -> list[str]:
    lines = (ROOT / "compiled-modules").read_text().splitlines()
    return ["jesenska." + line.removesuffix(".py").replace("/", ".") for line in lines if line and not line.startswith("#")]


def test_all_of_the_list_is_compiled_or_none() -> None:
    files = {name: str(import_module(name).__file__) for name in _listed()}
    assert {name for name, file in files.items() if file.endswith(".py")} == (set() if request_path_is_compiled() else set(files))


@pytest.mark.skipif(source_is_asked_for(), reason="JESENSKA_PURE asks for source")
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler is there")
def test_what_can_be_compiled_is() -> None:
    assert codec.COMPILED
    assert request_path_is_compiled()


@pytest.mark.skipif(not request_path_is_compiled(), reason="everything runs from source already")
@pytest.mark.timeout(600)
def test_the_source_passes_the_same_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SAME_TESTS]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JESENSKA_")}
    run = subprocess.run(command, cwd=ROOT, env={**environment, "JESENSKA_PURE": "1"}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert " passed" in run.stdout
