"""What is compiled does the same from source: the tests of the rooms that have compiled modules pass with both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jesenska.base.source_only import request_path_is_compiled

pytestmark = pytest.mark.hour("compiled-modules", "setup.py")

ROOT = Path(__file__).parents[2]
#: What is compiled decides in these, or moves their bytes.
_TREE_TESTS = [
    "test_embedded",
    "test_journal",
    "test_tree",
    "test_watches",
    "test_zookeeper_messages",
    "test_zookeeper_server",
]
SAME_TESTS = [
    "tests/units/log",
    "tests/units/net",
    *(f"tests/units/metadata/{name}.py" for name in _TREE_TESTS),
    *(f"tests/units/broker/test_{name}.py" for name in ("fetch_sessions", "waiting")),
    *(f"tests/processes/broker/test_{name}.py" for name in ("fetches_in_sessions", "fetch_errors", "produce")),
]


@pytest.mark.skipif(not request_path_is_compiled(), reason="everything runs from source already")
@pytest.mark.timeout(3600)
def test_the_source_passes_the_same_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *SAME_TESTS]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JESENSKA_")}
    run = subprocess.run(
        command, cwd=ROOT, env={**environment, "JESENSKA_PURE": "1"}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-4000:]
    assert " passed" in run.stdout
